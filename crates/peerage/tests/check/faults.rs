//! Servers that are not as they should be: without a proxy, with a wrong clock, with a certificate that has ended.

use peerage_http::Pem;
use peerage_testkit::odd::shared_pair;
use peerage_testkit::pki::Pki;
use peerage_testkit::process::{ServerProcess, ServerSpec, StoreProcess};

use crate::{checked, executable, fake};

#[tokio::test]
async fn servers_without_a_proxy_fail_where_it_would_be_needed() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let store = StoreProcess::start(executable(), "memory").await;
    let spec = |name: &str, version: &str| ServerSpec {
        proxy: false,
        ..ServerSpec::peer(name, version, &store.url)
    };
    let old = ServerProcess::start(executable(), &pki, &spec("old", "1.36")).await;
    let new = ServerProcess::start(executable(), &pki, &spec("new", "1.37")).await;
    let urls = [&old, &new].map(|it| format!("https://{}", it.address));
    let found = checked(&pki, "admin", &urls, &[]).await;
    assert_eq!(found.code, Some(2));
    let failed = found.of("fail");
    for expected in [
        format!("proxy of {}: off", old.address),
        format!("merged-view of {}: it hides ", old.address),
        "read-through of /apis/".to_owned(),
    ] {
        assert!(
            failed.iter().any(|it| it.starts_with(&expected)),
            "{expected}: {failed:#?}"
        );
    }
}

#[tokio::test]
async fn a_clock_that_is_wrong_and_a_certificate_that_has_ended_are_found() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let late = fake(shared_pair(&pki), -300).await;
    let found = checked(&pki, "admin", std::slice::from_ref(&late.url), &[]).await;
    let failed = found.of("fail");
    let clock = format!("clock of {}: at least 29", late.address);
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&clock) && it.contains("behind")),
        "{failed:#?}"
    );

    let (certificate, key) = ended(&pki);
    let pair = (Pem::bytes(certificate), Pem::bytes(key));
    let past = fake(pair, 0).await;
    let found = checked(&pki, "admin", std::slice::from_ref(&past.url), &[]).await;
    assert_eq!(found.code, Some(2));
    let failed = found.of("fail");
    let name = past.address;
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&format!("certificate of {name}: it ended 2021-01-01"))),
        "{failed:#?}"
    );
    assert!(
        failed
            .iter()
            .any(|it| it.starts_with(&format!("reachable of {name}: "))),
        "{failed:#?}"
    );
}

/// A serving certificate of the authority that has ended, and its key.
fn ended(pki: &Pki) -> (String, String) {
    let read = |name: &str| std::fs::read_to_string(pki.file(name)).unwrap();
    let authority = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), authority).unwrap();
    let names = vec!["kubernetes.default.svc".to_owned(), "127.0.0.1".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &issuer).unwrap();
    (signed.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_wrong_authority_is_looked_for_first_where_the_operator_named_it() {
    let (temp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pki = Pki::create(temp.path());
    let other = Pki::create(other.path());
    let server = fake(shared_pair(&pki), 0).await;
    let url = std::slice::from_ref(&server.url);
    let found = checked(&other, "admin", url, &[]).await;
    assert_eq!(found.code, Some(2));
    let named = format!("--certificate-authority {}", other.file("ca.crt").display());
    let failed = found.of("fail");
    for (expected, says) in [
        (
            format!("certificate of {}: signed by", server.address),
            format!("which is not in {named}"),
        ),
        (
            format!("reachable of {}: shows a certificate", server.address),
            format!("look first at {named}"),
        ),
    ] {
        let item = failed.iter().find(|it| it.starts_with(&expected));
        let item = item.unwrap_or_else(|| panic!("{expected}: {failed:#?}"));
        assert!(item.contains(&says), "{item}");
    }
    assert!(!found.text.contains("--peer-ca-file to") && !found.text.contains("did not answer"));
}
