#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use super::settings::*;
use super::*;
use crate::cli::{self, Command, ParseError};

/// A directory with empty files of these names.
fn files() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    for name in ["ca", "crt", "key", "policy", "tokens"] {
        std::fs::write(temp.path().join(name), "").unwrap();
    }
    temp
}

/// Settings from words in which `@name` stands for the file of that name.
fn settings(dir: &Path, typed: &[&str]) -> Result<ApiserverSettings, String> {
    let at = format!("{}/", dir.display());
    let typed = typed.iter().map(|word| word.replace('@', &at).into());
    let args = ["peerage", "apiserver"]
        .into_iter()
        .map(Into::into)
        .chain(typed);
    match cli::parse(args) {
        Ok(typed) => match typed.command {
            Command::Apiserver(flags) => ApiserverSettings::new(*flags).map_err(|e| e.to_string()),
            other => panic!("{other:?}"),
        },
        Err(ParseError::Failure(failure)) => Err(failure.to_string()),
        Err(ParseError::Clap(error)) => Err(error.to_string()),
    }
}

const PEERS: [&str; 4] = [
    "--peer-ca-file=@ca",
    "--proxy-client-cert-file=@crt",
    "--proxy-client-key-file=@key",
    "--requestheader-client-ca-file=@ca",
];

#[test]
fn without_flags_a_server_keeps_its_objects_in_its_data_directory() {
    let dir = files();
    let settings = settings(dir.path(), &["--data-dir=@"]).unwrap();
    assert_eq!(
        settings.storage,
        Storage::Sqlite(dir.path().join("store.db"))
    );
    assert_eq!(settings.storage_prefix, "/registry");
    assert_eq!(settings.version, None);
    assert_eq!(settings.serving.bind.to_string(), "0.0.0.0:6443");
    assert_eq!(settings.serving.cert_dir, dir.path().join("pki"));
    assert_eq!(settings.serving.max_reads, Some(400));
    assert_eq!(settings.serving.request_timeout, Duration::from_secs(60));
    assert_eq!(settings.authorization, [AuthorizationMode::Rbac]);
    assert_eq!(settings.controllers, ["*"]);
    assert!(settings.authentication.anonymous);
    assert_eq!(settings.peers.hold, Duration::from_secs(600));
}

#[test]
fn flags_are_written_as_go_programs_take_them() {
    let dir = files();
    let settings = settings(
        dir.path(),
        &[
            "--anonymous-auth=F",
            "--secure-port",
            "1",
            "--secure_port=7443",
            "--requestheader-allowed-names=a,b",
            "--requestheader-allowed-names",
            "c",
            "--requestheader-client-ca-file=@ca",
            "--controllers=",
            "--peer-hold=1h30m",
            "--emulated-version=kube=v1.34",
            "--runtime-config=api/all=true,apps/v1=false",
            "--runtime-config=batch/v1",
            "--max-requests-inflight=0",
            "-v=4",
            "--bind-address=::1",
        ],
    )
    .unwrap();
    assert!(!settings.authentication.anonymous);
    assert_eq!(settings.serving.bind.to_string(), "[::1]:7443");
    let front_proxy = settings.authentication.front_proxy.unwrap();
    assert_eq!(front_proxy.allowed_names, ["a", "b", "c"]);
    assert_eq!(front_proxy.extra_prefixes, ["X-Remote-Extra-"]);
    assert!(settings.controllers.is_empty());
    assert_eq!(settings.peers.hold, Duration::from_secs(5400));
    assert_eq!(settings.version.as_deref(), Some("1.34"));
    let on = |name: &str, on| (name.to_owned(), on);
    assert_eq!(
        settings.runtime_config,
        [
            on("api/all", true),
            on("apps/v1", false),
            on("batch/v1", true)
        ]
    );
    assert_eq!(settings.serving.max_reads, None);
}

#[test]
fn the_names_of_articles_stand_for_the_proxy_client_pair() {
    let dir = files();
    let typed = [
        "--peer-ca-file=@ca",
        "--peer-cert-file=@crt",
        "--peer-key-file",
        "@key",
    ];
    let proxy = settings(dir.path(), &typed).unwrap().peers.proxy.unwrap();
    assert_eq!(proxy.pair.certificate, dir.path().join("crt"));
    assert_eq!(proxy.pair.key, dir.path().join("key"));
}

#[test]
fn a_missing_peer_ca_file_is_one_warning_that_says_how_to_change_it() {
    let dir = files();
    let alone = settings(dir.path(), &[]).unwrap();
    assert_eq!(alone.warnings.len(), 1, "{:?}", alone.warnings);
    assert!(alone.warnings[0].contains("give --peer-ca-file"));
    assert!(alone.peers.proxy.is_none());

    assert!(settings(dir.path(), &PEERS).unwrap().warnings.is_empty());
    let off = ["--feature-gates=UnknownVersionInteroperabilityProxy=false"];
    assert!(settings(dir.path(), &off).unwrap().warnings.is_empty());
}

#[test]
fn peers_that_could_not_send_requests_here_are_warned_of() {
    let dir = files();
    let warnings = settings(dir.path(), &PEERS[..3]).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("--requestheader-client-ca-file"));
}

#[test]
fn wrong_combinations_are_refused_with_the_fix_in_the_message() {
    let dir = files();
    let off = "--feature-gates=UnknownVersionInteroperabilityProxy=false";
    for (typed, expected) in [
        (
            &[off, "--peer-ca-file=@ca"][..],
            "--peer-ca-file requires UnknownVersionInteroperabilityProxy feature to be turned on",
        ),
        (
            &[off, "--peer-advertise-ip=10.0.0.1"],
            "--peer-advertise-ip requires",
        ),
        (
            &[off, "--peer-advertise-port=1"],
            "--peer-advertise-port requires",
        ),
        (
            &["--peer-ca-file=@ca"],
            "give --proxy-client-cert-file and --proxy-client-key-file",
        ),
        (
            &["--peer-ca-file=@ca", "--proxy-client-cert-file=@crt"],
            "--proxy-client-cert-file needs --proxy-client-key-file",
        ),
        (
            &["--proxy-client-key-file=@key"],
            "needs --proxy-client-cert-file",
        ),
        (
            &["--peer-advertise-ip=10.0.0.1"],
            "--peer-advertise-ip needs --peer-advertise-port",
        ),
        (
            &["--peer-advertise-port=6443"],
            "--peer-advertise-port needs --peer-advertise-ip",
        ),
        (&["--peer-advertise-ip=not-an-ip"], "--peer-advertise-ip"),
        (&["--peer-advertise-port=http"], "--peer-advertise-port"),
        (&["--peer-advertise-port=0"], "--peer-advertise-port"),
        (&["--peer-hold=10"], "10m, 1h30m"),
        (
            &["--tls-cert-file=@crt"],
            "--tls-cert-file needs --tls-private-key-file",
        ),
        (
            &["--tls-cert-file=@none", "--tls-private-key-file=@key"],
            "--tls-cert-file: cannot read",
        ),
        (&["--client-ca-file=@none"], "--client-ca-file: cannot read"),
        (
            &["--storage=memory", "--etcd-servers=https://x:1"],
            "two stores",
        ),
        (&["--storage=etcd"], "needs --etcd-servers"),
        (&["--storage=postgres"], "sqlite:FILE"),
        (&["--storage=sqlite:"], "sqlite:FILE"),
        (&["--etcd-cafile=@ca"], "--etcd-cafile needs --etcd-servers"),
        (&["--etcd-servers=x:1"], "https://127.0.0.1:2379"),
        (&["--etcd-prefix=/"], "/registry"),
        (&["--storage-backend=etcd2"], "etcd3"),
        (
            &["--storage-media-type=application/vnd.kubernetes.protobuf"],
            "application/json",
        ),
        (
            &["--feature-gates=Nope=true"],
            "known are UnknownVersionInteroperabilityProxy and APIServerIdentity",
        ),
        (
            &["--feature-gates=APIServerIdentity=false"],
            "turn both off",
        ),
        (&["--authorization-mode=Webhook"], "RBAC, Node"),
        (&["--authorization-mode=Node"], "RBAC, Node"),
        (&["--authorization-mode=RBAC,RBAC"], "given twice"),
        (
            &["--authorization-config=@policy"],
            "--authorization-mode=RBAC",
        ),
        (&["--authentication-config", "@policy"], "--client-ca-file"),
        (
            &["--encryption-provider-config=@policy"],
            "encrypt the disk",
        ),
        (&["--audit-policy-file=@policy"], "needs --audit-log-path"),
        (&["--audit-log-path=-"], "needs --audit-policy-file"),
        (&["--audit-log-format=legacy"], "json"),
        (
            &["--service-account-signing-key-file=@key"],
            "needs --service-account-issuer",
        ),
        (&["--emulated-version=newest"], "1.36"),
        (&["--runtime-config=apps/v1=maybe"], "apps/v1=false"),
        (&["--hostname-override=a b"], "--hostname-override"),
        (&["--service-cluster-ip-range=10.0.0.0/33"], "10.96.0.0/12"),
        (
            &["--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24"],
            "10.96.0.0/12",
        ),
        (&["--anonymous-auth=maybe"], "write true or false"),
        (&["--no-such-flag=1"], "--no-such-flag"),
    ] {
        match settings(dir.path(), typed) {
            Ok(_) => panic!("{typed:?} is accepted"),
            Err(message) => assert!(message.contains(expected), "{typed:?}: {message}"),
        }
    }
}

#[test]
fn stores_are_chosen_by_flag() {
    let dir = files();
    let storage = |typed: &[&str]| settings(dir.path(), typed).unwrap().storage;
    assert_eq!(storage(&["--storage=memory"]), Storage::Memory);
    assert_eq!(
        storage(&["--storage=sqlite:/x/y.db"]),
        Storage::Sqlite("/x/y.db".into())
    );
    let Storage::Etcd(etcd) = storage(&[
        "--etcd-servers=https://a:1,https://b:2",
        "--etcd-cafile=@ca",
        "--etcd-certfile=@crt",
        "--etcd-keyfile=@key",
    ]) else {
        panic!("--etcd-servers means etcd");
    };
    assert_eq!(etcd.servers, ["https://a:1", "https://b:2"]);
    assert_eq!(etcd.ca, Some(dir.path().join("ca")));
    assert_eq!(etcd.pair.unwrap().key, dir.path().join("key"));
}

#[test]
fn a_kubeadm_command_line_is_accepted_with_one_note_per_flag_without_effect() {
    let dir = files();
    let at = format!("{}/", dir.path().display());
    let typed = [
        "--advertise-address=172.18.0.2",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--client-ca-file=@ca",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--etcd-cafile=@ca",
        "--etcd-certfile=@crt",
        "--etcd-keyfile=@key",
        "--etcd-servers=https://127.0.0.1:2379",
        "--kubelet-client-certificate=@crt",
        "--kubelet-client-key=@key",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        "--proxy-client-cert-file=@crt",
        "--proxy-client-key-file=@key",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-client-ca-file=@ca",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        "--runtime-config=",
        "--secure-port=6443",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=@key",
        "--service-account-signing-key-file=@key",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--tls-cert-file=@crt",
        "--tls-private-key-file=@key",
        "--peer-ca-file=@ca",
    ];
    let typed = typed.iter().map(|word| word.replace('@', &at).into());
    let args = ["peerage", "apiserver"]
        .into_iter()
        .map(Into::into)
        .chain(typed);
    let typed = cli::parse(args).unwrap_or_else(|e| panic!("{e:?}"));
    let unneeded: Vec<_> = typed.unneeded.iter().map(|flag| flag.name).collect();
    assert_eq!(
        unneeded,
        [
            "allow-privileged",
            "enable-admission-plugins",
            "enable-bootstrap-token-auth",
            "kubelet-client-certificate",
            "kubelet-client-key",
            "kubelet-preferred-address-types",
        ]
    );
    let Command::Apiserver(flags) = typed.command else {
        panic!("{:?}", typed.command);
    };
    let settings = ApiserverSettings::new(*flags).unwrap();
    assert_eq!(settings.authorization, [AuthorizationMode::Rbac]);
    assert!(settings.runtime_config.is_empty());
    assert!(settings.peers.proxy.is_some());
}

#[test]
fn a_configuration_file_is_the_same_flags() {
    let dir = files();
    let text = "secure-port: 7443\nanonymous-auth: false\nstorage: memory\nauthorization-mode: [RBAC]\n\
                feature-gates:\n  UnknownVersionInteroperabilityProxy: false\n";
    std::fs::write(dir.path().join("c.yaml"), text).unwrap();
    let settings = settings(dir.path(), &["--config=@c.yaml", "--anonymous-auth"]).unwrap();
    assert_eq!(settings.serving.bind.port(), 7443);
    assert!(settings.authentication.anonymous);
    assert_eq!(settings.storage, Storage::Memory);
    assert!(!settings.gates.proxy);
}

#[test]
fn no_flag_is_both_listed_and_without_effect() {
    use clap::CommandFactory;
    let command = cli::Cli::command();
    command.clone().debug_assert();
    let apiserver = command.find_subcommand("apiserver").unwrap();
    for name in apiserver.get_arguments().filter_map(clap::Arg::get_long) {
        assert!(unneeded::find(name).is_none(), "--{name}");
        assert!(unneeded::refusal(name).is_none(), "--{name}");
    }
}
