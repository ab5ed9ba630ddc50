//! `peerage gateway` beside a kube-apiserver, as a static pod and as a systemd unit.

use super::{BEHIND, Facts, PLACEHOLDER, SECURE_PORT};

/// Where the gateway tells how it is, on loopback.
const ADMIN_PORT: u16 = 10440;
/// How long the gateway may take to stop: for its `--shutdown-delay-duration`, its `--drain-timeout` (30 s) and the audit
/// log's last events.
const STOP_SECONDS: u32 = 90;
/// Where kubeadm keeps certificates.
pub(super) const PKI: &str = "/etc/kubernetes/pki";

/// The gateway's flags as a sidecar.
pub(super) fn flags(facts: &Facts) -> Vec<String> {
    let mut flags = vec![format!("--upstream=https://127.0.0.1:{BEHIND}")];
    let servers = match facts.behind() {
        servers if servers.is_empty() => vec![format!("{PLACEHOLDER}:{BEHIND}")],
        servers => servers,
    };
    flags.extend(servers.iter().map(|it| format!("--peer=https://{it}")));
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
        // Gateways believe each other: a --peer may be a server's address that its gateway has taken.
        (
            "requestheader-client-ca-file",
            format!("{PKI}/front-proxy-ca.crt"),
        ),
        (
            "requestheader-allowed-names",
            "front-proxy-client".to_owned(),
        ),
    ];
    flags.extend(rest.iter().map(|(name, value)| format!("--{name}={value}")));
    flags
}

/// What both ways to run the gateway beside a kube-apiserver begin with: what is to be done in which order. Between the
/// last two steps nobody is at the port of the clients.
fn steps(begins: &str, file: &str, last: &str) -> String {
    format!(
        "# `peerage gateway` beside the kube-apiserver of this host: it takes port {SECURE_PORT}, where clients are. As root:\n\
         # 1. Here: leave out the --peer that is this host{file}.\n\
         #    A server that has not moved to {BEHIND} yet is at {SECURE_PORT}, where its gateway is later: it passes on what comes.\n\
         # 2. See that the flags are good: peerage gateway --print-config $(sed -n 's/^{begins}\\(--[^ ]*\\).*/\\1/p' FILE)\n\
         # 3. Give the kube-apiserver --secure-port={BEHIND}, and its probes that port.\n\
         # 4. {last}\n\
         # It reads keys that root alone may read, as kube-apiserver does.\n"
    )
}

/// As a static pod.
pub(super) fn static_pod(facts: &Facts) -> String {
    let flags: String = flags(facts)
        .iter()
        .map(|it| format!("\n    - {it}"))
        .collect();
    let head = steps(
        "    - ",
        ", and name an image that holds the executable `peerage`",
        "Move the file to /etc/kubernetes/manifests/peerage-gateway.yaml (not before: the kubelet starts it at once).",
    );
    format!(
        "{head}\
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
    image: {PLACEHOLDER}
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
    )
}

/// As a systemd unit.
pub(super) fn systemd(facts: &Facts) -> String {
    let flags = flags(facts).join(" \\\n  ");
    let head = steps(
        "  ",
        "",
        "Move the file to /etc/systemd/system/peerage-gateway.service, then: systemctl daemon-reload && systemctl enable --now peerage-gateway",
    );
    format!(
        "{head}\
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
    )
}
