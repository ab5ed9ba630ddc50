//! Each thing that may be wrong with a certificate.

#![allow(clippy::unwrap_used)]

use super::fixture::*;

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::json;

use crate::check::gather::PEER_NAME;
use crate::check::judge::judge;
use crate::check::report::Verdict;

#[test]
fn each_fault_of_a_certificate_is_named() {
    let pki = Pki::new("ca");
    let other = Pki::new("other");
    let names = |names: &[&'static str]| Leaf {
        names: names.to_vec(),
        ..leaf()
    };
    for (signer, leaf, says) in [
        (&pki, leaf(), None),
        (
            &pki,
            Leaf {
                years: (2020, 2030),
                ..leaf()
            },
            Some("it ended 2030-01-01"),
        ),
        (
            &pki,
            Leaf {
                years: (2031, 2032),
                ..leaf()
            },
            Some("it begins 2031-01-01 only"),
        ),
        (
            &pki,
            Leaf {
                usage: ExtendedKeyUsagePurpose::ClientAuth,
                ..leaf()
            },
            Some("its usages do not allow"),
        ),
        (
            &pki,
            names(&["10.0.0.1"]),
            Some("kubernetes.default.svc is not among its names: 10.0.0.1"),
        ),
        (
            &pki,
            names(&[PEER_NAME]),
            Some("10.0.0.1 is not among its names"),
        ),
        (&other, leaf(), Some("signed by \"other\"")),
    ] {
        let mut world = world(&pki);
        world.servers[0].handshake = signer.serving(&leaf);
        world.ports[0].handshake = signer.serving(&leaf);
        let report = judge(&world);
        let of = |check: &str, subject: &str| {
            let found = report
                .items
                .iter()
                .find(|it| it.check == check && it.subject.starts_with(subject));
            found.cloned().unwrap()
        };
        let (own, port) = (of("certificate", "old"), of("peer-port", "old"));
        match says {
            None => assert_eq!((own.verdict, port.verdict), (Verdict::Pass, Verdict::Pass)),
            Some(says) => {
                assert!(own.says.contains(says), "{own:?}");
                assert_eq!(own.verdict, Verdict::Fail);
                // Peers ask for one name, whatever the address.
                let port_is_fine = says.starts_with("10.0.0.1");
                assert_eq!(port.verdict == Verdict::Pass, port_is_fine, "{port:?}");
            }
        }
    }
}

#[test]
fn a_front_proxy_certificate_is_believed_by_authority_and_name() {
    let (pki, front) = (Pki::new("ca"), Pki::new("front-proxy-ca"));
    let client = || Leaf {
        names: vec![],
        usage: ExtendedKeyUsagePurpose::ClientAuth,
        ..leaf()
    };
    for (signer, name, years, says) in [
        (&front, "front-proxy-client", (2029, 2032), "allowed, "),
        (
            &front,
            "somebody",
            (2029, 2032),
            "is not among the names that are allowed",
        ),
        (
            &pki,
            "front-proxy-client",
            (2029, 2032),
            "signed by ca, not by",
        ),
        (&front, "front-proxy-client", (2020, 2030), "it ended "),
    ] {
        let mut world = world(&pki);
        let config = json!({"data": {"requestheader-client-ca-file": front.pem(),
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]"}});
        world.config = document(200, &config);
        let leaf = Leaf { years, ..client() };
        world.front_proxy = Some(signer.issue(name, &leaf).1);
        let report = judge(&world);
        let item = report
            .items
            .iter()
            .find(|it| it.check == "front-proxy")
            .unwrap();
        assert!(item.says.contains(says), "{item:?}");
        assert_eq!(item.verdict == Verdict::Pass, says.starts_with("allowed"));
    }
}

#[test]
fn a_gateway_that_believes_no_peer_is_as_it_comes_and_a_server_is_not() {
    let mut world = world(&Pki::new("ca"));
    for at in [0, 1] {
        world.servers[at].as_peer = Some(document(401, &json!({})));
    }
    through_a_gateway(&mut world, 0);
    let report = judge(&world);
    for (name, verdict, says) in [
        (
            "old",
            Verdict::Skip,
            "unless it has --requestheader-client-ca-file",
        ),
        (
            "new",
            Verdict::Fail,
            "does not believe the front-proxy certificate",
        ),
    ] {
        let mut items = report.items.iter();
        let item = items.find(|it| it.check == "front-proxy" && it.subject == name);
        let item = item.unwrap();
        assert_eq!(item.verdict, verdict);
        assert!(item.says.contains(says), "{item:?}");
    }
}
