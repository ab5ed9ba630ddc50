//! `peerage check --print`: what is missing, ready to be put where it belongs.
//!
//! What the servers tell (their Leases, and the pods of kube-apiservers) is filled in; without servers there are
//! placeholders. Everything printed is YAML or a unit file with comments that say what to do with it.

mod gates;
mod network_policy;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::command_line::{self, GATE, NEEDED, ON_BY_DEFAULT};
use super::gather::{self, Plan};
use super::records::{self, Lease};
use super::rights;
use super::world::{CommandLine, good};
use crate::exit::Failure;
use gates::Gates;

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The flags that kube-apiservers lack, as kubeadm's ClusterConfiguration (v1beta4, kubeadm 1.31 and newer)
    Kubeadm,
    /// The same as v1beta3, for older kubeadm
    KubeadmV1beta3,
    /// `peerage gateway` beside a kube-apiserver, as a static pod
    StaticPod,
    /// `peerage gateway` beside a kube-apiserver, as a systemd unit
    Systemd,
    /// What has to be let through between the servers, as a NetworkPolicy and as rules for hosts
    NetworkPolicy,
}

/// The port of kube-apiserver once the gateway has its own.
const BEHIND: u16 = 6444;
/// The port that clients know.
const SECURE_PORT: u16 = 6443;
/// Where the gateway tells how it is, on loopback.
const ADMIN_PORT: u16 = 10440;
/// How long the gateway may take to stop: for its `--shutdown-delay-duration`, its `--drain-timeout` (30 s) and the audit
/// log's last events.
const STOP_SECONDS: u32 = 90;
/// Where kubeadm keeps certificates.
const PKI: &str = "/etc/kubernetes/pki";

/// What is known of the control plane.
#[derive(Debug, Clone, Default)]
struct Facts {
    /// Hosts and ports that the servers tell each other.
    addresses: Vec<String>,
    /// Flags of kube-apiservers.
    lines: Vec<CommandLine>,
    /// What could not be read, in words.
    unread: Vec<String>,
    /// Which of the addresses are those of servers as they were named here.
    as_named: Vec<String>,
}

/// What is written where something is not known.
const PLACEHOLDER: &str = "REPLACE-ME";

impl Facts {
    /// The addresses of Leases, and where one has none, those of the servers as they were named.
    fn take_addresses(&mut self, leases: &[Lease], named: impl Iterator<Item = String>) {
        let told = |it: &Lease| it.address.clone().filter(|it| records::is_socket(it));
        self.addresses = leases.iter().filter_map(told).collect();
        if !leases.is_empty() && self.addresses.len() == leases.len() {
            return;
        }
        for address in named.filter(|it| records::is_socket(it)) {
            if !self.addresses.contains(&address) {
                self.as_named.push(address.clone());
                self.addresses.push(address);
            }
        }
    }

    fn hosts(&self) -> Vec<String> {
        let host = |address: &String| address.rsplit_once(':').map(|it| it.0.to_owned());
        let mut hosts: Vec<String> = self.addresses.iter().filter_map(host).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }
}

/// Asks what is to be filled in, and writes; `named` says that the servers are not just those that there happen to be.
pub(super) async fn print(what: What, plan: &Plan, named: bool) -> Result<String, Failure> {
    let mut facts = Facts {
        lines: plan.manifests.clone(),
        ..Facts::default()
    };
    if !plan.targets.is_empty() {
        let (leases, pods) = gather::of_cluster(plan).await;
        if let (true, Err(why), Err(_)) = (named, &leases, &pods) {
            return Err(Failure::unavailable(format!(
                "none of the servers that were named answers: {why}"
            )));
        }
        for (got, right) in [(&leases, rights::LEASES), (&pods, rights::PODS)] {
            if let Err(problem) = good(got) {
                let item = rights::unread("", "", right, &problem);
                facts
                    .unread
                    .extend([Some(item.says), item.fix].into_iter().flatten());
            }
        }
        let leases = records::leases(&leases);
        let targets = plan.targets.iter();
        facts.take_addresses(
            &leases,
            targets.map(|it| gather::address(&it.connection.url)),
        );
        if let Ok(pods) = good(&pods) {
            facts.lines.extend(command_line::of_pods(&pods.json()));
        }
    }
    Ok(text(what, &facts))
}

fn text(what: What, facts: &Facts) -> String {
    let mut head = String::new();
    for problem in &facts.unread {
        let _ = writeln!(
            head,
            "# NOT READ, so not filled in from this cluster: {problem}"
        );
    }
    if facts.lines.is_empty() && !facts.unread.is_empty() {
        head.push_str("# Values here are placeholders; keep feature gates that the cluster has beside the one named here.\n");
    }
    if !matches!(what, What::Kubeadm | What::KubeadmV1beta3) {
        head.push_str(&where_from(facts));
    }
    head + &filled_in(what, facts)
}

/// What is to be known of addresses that no Lease tells.
fn where_from(facts: &Facts) -> String {
    if facts.addresses.is_empty() {
        return format!(
            "# {PLACEHOLDER}: no server's address is known here; write each server's in its place.\n"
        );
    }
    let as_named = facts.as_named.iter();
    let lines = as_named.map(|it| {
        format!("# {it} is as the server was named here, not from an identity Lease: see that the others reach it there.\n")
    });
    lines.collect()
}

fn filled_in(what: What, facts: &Facts) -> String {
    match what {
        What::Kubeadm => kubeadm("v1beta4", facts),
        What::KubeadmV1beta3 => kubeadm("v1beta3", facts),
        What::StaticPod => static_pod(facts),
        What::Systemd => systemd(facts),
        What::NetworkPolicy => network_policy::text(&facts.addresses),
    }
}

/// The flags that any of the kube-apiservers lacks, with their values, by name.
fn missing(facts: &Facts) -> BTreeMap<&'static str, String> {
    let mut missing = BTreeMap::new();
    if facts.lines.is_empty() {
        // kubeadm itself sets all others.
        missing.insert("feature-gates", format!("{GATE}=true"));
        let peer_ca = NEEDED.iter().filter(|it| it.flag == "peer-ca-file");
        missing.extend(peer_ca.map(|it| (it.flag, it.value.to_owned())));
        return missing;
    }
    for line in &facts.lines {
        let lacks = line.missing();
        missing.extend(lacks.iter().map(|it| (it.flag, it.value.to_owned())));
    }
    if facts.lines.iter().any(CommandLine::has_wrong_gates) {
        missing.insert("feature-gates", Gates::of(&facts.lines).with_proxy());
    }
    missing
}

fn kubeadm(version: &str, facts: &Facts) -> String {
    let missing = missing(facts);
    if missing.is_empty() {
        return format!(
            "# Nothing is missing: {} has all flags that Kubernetes' own proxy needs.",
            facts
                .lines
                .iter()
                .map(|it| it.origin.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let mut text = what_for(facts, missing.contains_key("feature-gates"));
    let _ = writeln!(
        text,
        "apiVersion: kubeadm.k8s.io/{version}\nkind: ClusterConfiguration\napiServer:\n  extraArgs:"
    );
    for (name, value) in missing {
        let _ = match version {
            "v1beta3" => writeln!(text, "    {name}: \"{value}\""),
            _ => writeln!(text, "  - name: {name}\n    value: \"{value}\""),
        };
    }
    text.trim_end().to_owned()
}

/// What to do with the configuration, who lacks what of it, and what in it needs a decision.
fn what_for(facts: &Facts, with_gates: bool) -> String {
    let mut text = "# What kube-apiservers need for Kubernetes' own proxy, beside what kubeadm sets.\n\
         # Merge it into the ClusterConfiguration (kubectl -n kube-system get configmap kubeadm-config -o yaml), then on each\n\
         # control plane node, one after another: kubeadm init phase control-plane apiserver --config FILE\n"
        .to_owned();
    if facts.lines.is_empty() && with_gates {
        let _ = writeln!(
            text,
            "# The gate is on by default since {ON_BY_DEFAULT}; there feature-gates can be left out."
        );
    }
    for line in &facts.lines {
        let mut lacks: Vec<_> = line.missing().iter().map(|it| it.flag).collect();
        if line.has_wrong_gates() {
            lacks.push("feature-gates");
        }
        if !lacks.is_empty() {
            let _ = writeln!(text, "# {} lacks {}", line.origin, lacks.join(", "));
        }
    }
    if with_gates {
        for conflict in Gates::of(&facts.lines).conflicts {
            let _ = writeln!(text, "# {conflict}");
        }
    }
    text
}

/// The gateway's flags as a sidecar.
fn gateway_flags(facts: &Facts) -> Vec<String> {
    let mut flags = vec![format!("--upstream=https://127.0.0.1:{BEHIND}")];
    let hosts = match facts.hosts() {
        hosts if hosts.is_empty() => vec![PLACEHOLDER.to_owned()],
        hosts => hosts,
    };
    flags.extend(
        hosts
            .iter()
            .map(|it| format!("--peer=https://{it}:{BEHIND}")),
    );
    let rest = [
        ("secure-port", SECURE_PORT.to_string()),
        ("tls-cert-file", format!("{PKI}/apiserver.crt")),
        ("tls-private-key-file", format!("{PKI}/apiserver.key")),
        ("client-ca-file", format!("{PKI}/ca.crt")),
        (
            "proxy-client-cert-file",
            format!("{PKI}/front-proxy-client.crt"),
        ),
        (
            "proxy-client-key-file",
            format!("{PKI}/front-proxy-client.key"),
        ),
        ("peer-ca-file", format!("{PKI}/ca.crt")),
    ];
    flags.extend(rest.iter().map(|(name, value)| format!("--{name}={value}")));
    flags
}

/// What both ways to run the gateway beside a kube-apiserver begin with.
fn before_the_gateway() -> String {
    format!(
        "# `peerage gateway` beside the kube-apiserver of this host: it takes port {SECURE_PORT}, where clients are.\n\
         # First give the kube-apiserver --secure-port={BEHIND} (its probes too). Leave out the --peer that is this host.\n\
         # It reads keys that root alone may read, as kube-apiserver does.\n"
    )
}

fn static_pod(facts: &Facts) -> String {
    let flags: String = gateway_flags(facts)
        .iter()
        .map(|it| format!("\n    - {it}"))
        .collect();
    format!(
        "{head}# Put it into /etc/kubernetes/manifests/peerage-gateway.yaml, with an image that holds the executable `peerage`.\n\
apiVersion: v1
kind: Pod
metadata:
  name: peerage-gateway
  namespace: kube-system
  labels:
    component: peerage-gateway
    tier: control-plane
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: {STOP_SECONDS}
  priorityClassName: system-node-critical
  securityContext:
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: peerage-gateway
    image: peerage:{version}
    command:
    - peerage
    - gateway{flags}
    resources:
      requests:
        cpu: 100m
        memory: 64Mi
    readinessProbe:
      httpGet:
        host: 127.0.0.1
        path: /readyz
        port: {ADMIN_PORT}
      periodSeconds: 1
    livenessProbe:
      httpGet:
        host: 127.0.0.1
        path: /livez
        port: {ADMIN_PORT}
      failureThreshold: 8
      periodSeconds: 10
    volumeMounts:
    - name: pki
      mountPath: {PKI}
      readOnly: true
  volumes:
  - name: pki
    hostPath:
      path: {PKI}
      type: Directory",
        head = before_the_gateway(),
        version = env!("CARGO_PKG_VERSION"),
    )
}

fn systemd(facts: &Facts) -> String {
    let flags = gateway_flags(facts).join(" \\\n  ");
    format!(
        "{head}# Put it into /etc/systemd/system/peerage-gateway.service, then: systemctl daemon-reload && systemctl enable --now peerage-gateway
[Unit]
Description=Mixed Version Proxy before the kube-apiserver
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/local/bin/peerage gateway \\
  {flags}
Restart=always
RestartSec=1
TimeoutStopSec={STOP_SECONDS}
LimitNOFILE=1048576
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX

[Install]
WantedBy=multi-user.target",
        head = before_the_gateway(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::check::report::Verdict;
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
            let was_fine = command_line::judge_line(&before).verdict == Verdict::Pass;
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
            let item = command_line::judge_line(&after);
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
            assert!(shown.starts_with("# REPLACE-ME: no server's"), "{shown}");
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
            facts.take_addresses(&leases, named());
            assert_eq!(facts.addresses, addresses);
            assert_eq!(facts.as_named, as_named);
            let shown = text(What::Systemd, &facts);
            let told = shown.matches("is as the server was named").count();
            assert_eq!(told, as_named.len(), "{shown}");
        }
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
        let words = words.into_iter().chain(gateway_flags(&facts));
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
    }
}
