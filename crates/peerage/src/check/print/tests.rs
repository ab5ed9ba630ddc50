//! What is printed is read back: as YAML, by the checklist, by the gateway's own flags.

#![allow(clippy::unwrap_used)]

mod told;

use super::gateway::{self, PKI};
use super::*;
use crate::check::command_line::{GATE, NEEDED};
use crate::check::report::Verdict;
use crate::check::world::Way;
use crate::diff::lifecycle::Release;
use serde_json::Value;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn line(version: &str, args: &[&str]) -> CommandLine {
    CommandLine {
        origin: format!("kube-apiserver-{version}"),
        release: Release::parse(version),
        args: args.iter().map(|it| (*it).to_owned()).collect(),
    }
}

#[test]
fn kubeadm_gets_what_any_server_lacks_and_keeps_its_gates() {
    let kubeadm: Vec<String> = NEEDED
        .iter()
        .filter(|it| it.flag != "peer-ca-file")
        .map(|it| format!("--{}={}", it.flag, it.value))
        .collect();
    let mut args: Vec<&str> = kubeadm.iter().map(String::as_str).collect();
    args.push("--feature-gates=A=false");
    let facts = Facts {
        lines: vec![line("1.35", &args), line("1.37", &args)],
        ..Facts::default()
    };
    let v4 = yaml(&text(What::Kubeadm, &facts));
    assert_eq!(v4["apiVersion"], "kubeadm.k8s.io/v1beta4");
    let args = v4["apiServer"]["extraArgs"].as_array().unwrap();
    assert_eq!(args.len(), 2, "{args:?}");
    assert_eq!(args[0]["value"], format!("A=false,{GATE}=true"));
    assert_eq!(args[1]["name"], "peer-ca-file");

    let v3 = yaml(&text(What::KubeadmV1beta3, &Facts::default()));
    assert_eq!(v3["apiVersion"], "kubeadm.k8s.io/v1beta3");
    let args = &v3["apiServer"]["extraArgs"];
    assert_eq!(args["peer-ca-file"], "/etc/kubernetes/pki/ca.crt");
    assert_eq!(args["feature-gates"], format!("{GATE}=true"));

    let complete: Vec<String> = NEEDED.iter().map(|it| format!("--{}=x", it.flag)).collect();
    let complete: Vec<&str> = complete.iter().map(String::as_str).collect();
    let facts = Facts {
        lines: vec![line("1.36", &complete)],
        ..Facts::default()
    };
    assert!(text(What::Kubeadm, &facts).starts_with("# Nothing is missing"));
}

#[test]
fn a_server_that_was_given_what_is_printed_has_all_flags() {
    let all: Vec<String> = NEEDED.iter().map(|it| format!("--{}=x", it.flag)).collect();
    let (first, rest) = all.split_first().unwrap();
    let identity_off = "--feature-gates=A=true,APIServerIdentity=false";
    for (version, words) in [
        ("1.37", [rest, std::slice::from_ref(first)].concat()),
        ("1.37", [&all[..], &[identity_off.to_owned()]].concat()),
        ("1.35", [&all[..], &[identity_off.to_owned()]].concat()),
        ("1.37", [rest, &[identity_off.to_owned()]].concat()),
        ("1.34", rest.to_vec()),
        ("1.37", vec![format!("--feature-gates={GATE}=false")]),
        ("1.36", vec!["--peer-ca-file=".to_owned()]),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let before = line(version, &words);
        let was_fine = command_line::judge_line(&before, Way::Own).verdict == Verdict::Pass;
        let facts = Facts {
            lines: vec![before.clone()],
            ..Facts::default()
        };
        let shown = text(What::Kubeadm, &facts);
        assert_eq!(
            shown.starts_with("# Nothing is missing"),
            was_fine,
            "{shown}"
        );
        let after = given(before, &yaml(&shown));
        let item = command_line::judge_line(&after, Way::Own);
        assert_eq!(item.verdict, Verdict::Pass, "{words:?}: {item:?}\n{shown}");
        assert_eq!(
            after.gate("A"),
            words.contains(&identity_off).then_some(true)
        );
    }
}

/// The command line that kubeadm makes: its flags take the place of those of the same name.
fn given(mut line: CommandLine, configuration: &Value) -> CommandLine {
    let given = configuration["apiServer"]["extraArgs"].as_array();
    for arg in given.into_iter().flatten() {
        let flag = format!("--{}=", arg["name"].as_str().unwrap());
        line.args.retain(|it| !it.starts_with(&flag));
        line.args.push(flag + arg["value"].as_str().unwrap());
    }
    line
}

#[test]
fn what_could_not_be_read_is_said_and_not_taken_for_nothing() {
    let facts = Facts {
        unread: vec!["the kube-apiservers' pods: may not be read (403)".to_owned()],
        ..Facts::default()
    };
    for what in [What::Kubeadm, What::StaticPod, What::Systemd] {
        let printed = text(what, &facts);
        let mut lines = printed.lines();
        let (first, second) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(
            first.starts_with("# NOT READ") && first.ends_with("(403)"),
            "{first}"
        );
        assert!(
            second.contains("keep feature gates that the cluster has"),
            "{second}"
        );
    }
    assert!(!text(What::Kubeadm, &Facts::default()).contains("NOT READ"));
}

#[test]
fn no_gate_of_any_server_is_lost_and_a_conflict_is_told() {
    let facts = Facts {
        lines: vec![
            line("1.35", &["--feature-gates=A=true,C=true"]),
            line(
                "1.34",
                &["--feature-gates=A=false", "--feature-gates", "B=true"],
            ),
            // It lacks nothing of the gate, and its own gates hold all the same.
            line("1.37", &["--feature-gates=kube:D=false"]),
        ],
        ..Facts::default()
    };
    let shown = text(What::Kubeadm, &facts);
    let document = yaml(&shown);
    let args = document["apiServer"]["extraArgs"].as_array().unwrap();
    let gates = args
        .iter()
        .find(|it| it["name"] == "feature-gates")
        .unwrap();
    let expected = format!("A=true,C=true,B=true,D=false,{GATE}=true");
    assert_eq!(gates["value"], expected);
    let conflict =
        "# Decide on the gate A: true on kube-apiserver-1.35, false on kube-apiserver-1.34";
    assert!(shown.contains(conflict), "{shown}");
    assert_eq!(shown.matches("Decide").count(), 1, "{shown}");
}

#[test]
fn what_is_not_known_is_a_placeholder_that_says_so() {
    for what in [What::StaticPod, What::Systemd, What::NetworkPolicy] {
        let shown = text(what, &Facts::default());
        assert!(shown.starts_with("# <REPLACE-ME>: no server's"), "{shown}");
        assert!(shown.matches("REPLACE-ME").count() > 1, "{shown}");
        assert!(!shown.contains("10.0.0."), "{shown}");
    }
    assert!(!text(What::Kubeadm, &Facts::default()).contains("REPLACE-ME"));
    yaml(&text(What::NetworkPolicy, &Facts::default()));
}

#[test]
fn a_server_without_an_address_in_its_lease_has_that_by_which_it_was_named() {
    let lease = |address: Option<&str>| Lease {
        address: address.map(str::to_owned),
        ..Lease::default()
    };
    let named = || {
        ["10.0.0.1:6443", "10.0.0.2:6443"]
            .map(str::to_owned)
            .into_iter()
    };
    for (leases, addresses, as_named) in [
        (
            vec![lease(Some("10.0.0.1:6443")), lease(None)],
            &["10.0.0.1:6443", "10.0.0.2:6443"][..],
            &["10.0.0.2:6443"][..],
        ),
        (
            vec![lease(Some("10.0.0.8:6443")), lease(Some("10.0.0.9:6443"))],
            &["10.0.0.8:6443", "10.0.0.9:6443"],
            &[],
        ),
        (
            vec![],
            &["10.0.0.1:6443", "10.0.0.2:6443"],
            &["10.0.0.1:6443", "10.0.0.2:6443"],
        ),
    ] {
        let mut facts = Facts::default();
        facts.take_addresses(&leases, named(), &[]);
        assert_eq!(facts.addresses, addresses);
        assert_eq!(facts.as_named, as_named);
        let shown = text(What::Systemd, &facts);
        let told = shown.matches("is as the server was named").count();
        assert_eq!(told, as_named.len(), "{shown}");
    }
}

/// What a gateway says on its own address.
fn says(url: &str, listening: &str, beside: Option<&str>) -> crate::check::world::Gateway {
    let debug = serde_json::json!({
        "server": "gateway", "listening": listening, "beside": beside,
        "peers": [{"id": "named", "address": "127.0.0.1:7444"}],
    });
    crate::check::world::Gateway {
        url: url.to_owned(),
        ready: Err(String::new()),
        debug: Ok(crate::client::Answer {
            status: http::StatusCode::OK,
            headers: http::HeaderMap::new(),
            body: debug.to_string().into(),
        }),
        metrics: Err(String::new()),
    }
}

/// What is printed of peers, given that of those who were named the second is a gateway.
fn peers_printed(
    named: [&str; 2],
    leases: &[Lease],
    told: &[crate::check::world::Gateway],
) -> (Vec<String>, String) {
    let mut facts = Facts {
        gateways: behind::find(vec![named[1].to_owned()], told),
        ..Facts::default()
    };
    facts.take_addresses(leases, named.map(str::to_owned).into_iter(), told);
    let peer = |flag: String| flag.strip_prefix("--peer=https://").map(str::to_owned);
    let peers = gateway::flags(&facts).into_iter().filter_map(peer);
    let shown = text(What::NetworkPolicy, &facts);
    for what in [What::StaticPod, What::Systemd] {
        assert!(text(what, &facts).starts_with(shown.lines().next().unwrap()));
    }
    (peers.collect(), shown)
}

#[test]
fn the_server_behind_a_gateway_that_was_named_is_a_peer() {
    let lease = Lease {
        address: Some("10.0.0.2:6444".to_owned()),
        ..Lease::default()
    };
    let own = "http://127.0.0.1:10440";
    let both = &["10.0.0.1:6444", "10.0.0.2:6444"][..];
    let second = &both[1..];
    for (gateway, leases, told, peers, comment) in [
        // The recipe's own layout.
        (
            "10.0.0.1:6443",
            &[][..],
            &[][..],
            both,
            "taken to be at 10.0.0.1:6444",
        ),
        (
            "10.0.0.1:7443",
            &[],
            &[],
            second,
            "Left out, because a gateway is",
        ),
        // All servers are known.
        (
            "10.0.0.1:6443",
            std::slice::from_ref(&lease),
            &[],
            second,
            "Left out, because a gateway is",
        ),
        // The gateway says it.
        (
            "10.0.0.1:6443",
            &[],
            &[says(own, "0.0.0.0:6443", Some("named"))],
            &["10.0.0.1:7444", "10.0.0.2:6444"],
            "it says, is at 10.0.0.1:7444",
        ),
        (
            "10.0.0.1:7443",
            &[],
            &[
                says("http://10.0.0.9:1", "0.0.0.0:7443", None),
                says(own, "10.0.0.1:7443", Some("10.0.0.1:6444")),
            ],
            both,
            "it says, is at 10.0.0.1:6444",
        ),
        // It is nobody else's address that leads to its own host.
        (
            "127.0.1.1:6443",
            &[],
            &[says(own, "127.0.1.1:6443", Some("127.0.1.1:6444"))],
            &["10.0.0.2:6444", "127.0.0.1:7444", "127.0.1.1:6444"],
            "it says, is at 127.0.1.1:6444",
        ),
        (
            "10.0.0.1:6443",
            &[],
            &[says(own, "10.0.0.1:6443", None)],
            second,
            "it is a balancer",
        ),
        // That is no address, or of another gateway.
        (
            "10.0.0.1:6443",
            &[],
            &[says(own, "0.0.0.0:6443", Some("a\nb"))],
            both,
            "taken to be at",
        ),
        (
            "10.0.0.1:6443",
            &[],
            &[says(own, "10.0.0.5:6443", None)],
            both,
            "taken to be at",
        ),
    ] {
        let (found, shown) = peers_printed(["10.0.0.2:6444", gateway], leases, told);
        assert_eq!(found, peers, "{gateway} {told:?}");
        let first = shown.lines().next().unwrap();
        assert!(
            first.starts_with("# ") && first.contains(comment),
            "{first}"
        );
        let policy = yaml(&shown);
        let allowed = policy["spec"]["egress"].as_array().unwrap().len();
        assert_eq!(allowed, peers.len(), "{shown}");
    }
    // Who names a gateway alone, which may be anywhere, has named no server.
    let mut facts = Facts {
        gateways: behind::find(vec!["10.0.0.9:7443".to_owned()], &[]),
        ..Facts::default()
    };
    facts.take_addresses(&[], ["10.0.0.9:7443".to_owned()].into_iter(), &[]);
    let shown = text(What::StaticPod, &facts);
    assert!(
        shown.contains(&format!("--peer=https://{PLACEHOLDER}:")),
        "{shown}"
    );
}

#[test]
fn the_gateway_is_told_of_every_server() {
    let facts = Facts {
        addresses: vec!["10.0.0.1:6443".into(), "[fd00::2]:6443".into()],
        ..Facts::default()
    };
    let pod = yaml(&text(What::StaticPod, &facts));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], PKI, "{pod}");
    assert!(container["resources"]["requests"]["memory"].is_string());
    let command = container["command"].to_string();
    for flag in [
        "--peer=https://10.0.0.1:6444",
        "--peer=https://[fd00::2]:6444",
    ] {
        assert!(command.contains(flag), "{command}");
    }
    assert!(text(What::Systemd, &facts).contains("--peer=https://10.0.0.1:6444 \\\n"));
    // They are flags that the gateway has.
    let words = ["peerage", "gateway"].map(str::to_owned);
    let words = words.into_iter().chain(gateway::flags(&facts));
    crate::cli::parse(words.map(Into::into)).unwrap();
}

#[test]
fn the_policy_lets_through_what_peers_are_told() {
    let facts = Facts {
        addresses: vec!["10.0.0.1:6443".into(), "[fd00::2]:7443".into()],
        ..Facts::default()
    };
    let shown = text(What::NetworkPolicy, &facts);
    let policy = yaml(&shown);
    let egress = policy["spec"]["egress"].as_array().unwrap();
    assert_eq!(egress[0]["to"][0]["ipBlock"]["cidr"], "10.0.0.1/32");
    assert_eq!(egress[1]["to"][0]["ipBlock"]["cidr"], "fd00::2/128");
    assert_eq!(egress[1]["ports"][0]["port"], 7443);
    assert!(shown.contains("ip6 saddr '{ fd00::2 }'"), "{shown}");
    // The sidecars that are printed come to another port than the servers tell.
    let flags = gateway::flags(&facts);
    assert!(flags.contains(&"--peer=https://10.0.0.1:6444".to_owned()));
    let open = "dport '{ 6443, 6444, 7443 }' accept";
    assert_eq!(shown.matches(open).count(), 2, "{shown}");
    // What is commented is a rule too.
    let with_names = shown.lines().map(|line| match line.strip_prefix("  # ") {
        Some(rule) if !rule.starts_with("Where") => format!("  {rule}"),
        _ => line.to_owned(),
    });
    let with_names = yaml(&with_names.collect::<Vec<_>>().join("\n"));
    assert_eq!(with_names["spec"]["egress"].as_array().unwrap().len(), 3);
    assert_eq!(with_names["spec"]["egress"][0]["ports"][0]["port"], 53);
}

/// The flags as the command that is printed with them takes them out of the file.
fn taken_out<'t>(shown: &'t str, begin: &str) -> Vec<&'t str> {
    let flags = shown.lines().filter_map(|line| line.strip_prefix(begin));
    let flags = flags.filter(|it| it.starts_with("--"));
    flags.map(|it| it.split(' ').next().unwrap()).collect()
}

#[test]
fn the_command_that_is_printed_checks_all_flags_and_refuses_what_was_left_to_replace() {
    let known = Facts {
        addresses: vec!["10.0.0.1:6443".into()],
        ..Facts::default()
    };
    for (what, begin) in [(What::StaticPod, "    - "), (What::Systemd, "  ")] {
        let shown = text(what, &known);
        assert!(shown.contains(&format!("sed -n 's/^{begin}\\(--[^ ]*\\).*/\\1/p' FILE")));
        assert_eq!(taken_out(&shown, begin), gateway::flags(&known));
        let words = taken_out(&text(what, &Facts::default()), begin).join("\n");
        let words = ["peerage", "gateway"].into_iter().chain(words.lines());
        let crate::cli::Command::Gateway(flags) =
            crate::cli::parse(words.map(Into::into)).unwrap().command
        else {
            panic!();
        };
        let refused = crate::gateway::settings::GatewaySettings::new(&flags).unwrap_err();
        let says = "--peer: \"https://<REPLACE-ME>:6444\" is not like";
        assert!(refused.to_string().starts_with(says), "{refused}");
    }
}

#[test]
fn servers_of_one_host_are_told_apart_in_words() {
    let facts = |addresses: &[&str]| Facts {
        addresses: addresses.iter().map(|it| (*it).to_owned()).collect(),
        ..Facts::default()
    };
    let shared = facts(&["10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.1:7443"]);
    for what in [What::StaticPod, What::Systemd] {
        let shown = text(what, &shared);
        let said = "# 10.0.0.1 has several servers (10.0.0.1:6443, 10.0.0.1:7443)";
        assert!(shown.contains(said), "{shown}");
        assert!(!shown.contains("10.0.0.2 has several"), "{shown}");
        let apart = text(what, &facts(&["10.0.0.1:6443", "10.0.0.2:6443"]));
        assert!(!apart.contains("several servers"), "{apart}");
    }
    assert!(!text(What::NetworkPolicy, &shared).contains("several servers"));
}
