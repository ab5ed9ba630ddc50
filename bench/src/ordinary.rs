//! Ordinary proxies with TLS on both sides: what a byte-level proxy costs that knows nothing of Kubernetes.
//!
//! They are Debian's packages. Nothing is installed here: a run refuses to begin without them, and says how to get them.
//! Their settings are their own defaults, but for what a Kubernetes API needs: HTTP/2 towards clients, verified TLS
//! towards the server, connections that are kept, streams that are not buffered, no logs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use peerage_testkit::daemon::{Daemon, DaemonSpec, Ready};
use peerage_testkit::kube::ports;
use peerage_testkit::pki::{Pki, SERVER_NAME};

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ordinary {
    HAProxy,
    Nginx,
}

impl Ordinary {
    pub(crate) const ALL: [Self; 2] = [Self::HAProxy, Self::Nginx];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HAProxy => "HAProxy",
            Self::Nginx => "nginx",
        }
    }

    fn executable(self) -> PathBuf {
        let program = match self {
            Self::HAProxy => "haproxy",
            Self::Nginx => "nginx",
        };
        Path::new("/usr/sbin").join(program)
    }

    /// Its version; an error says how to get it.
    pub(crate) fn version(self) -> anyhow::Result<String> {
        let program = self.executable();
        let output = Command::new(&program).arg("-v").output();
        let output = output.with_context(|| {
            let program = program.display();
            format!(
                "{program} is missing: apt-get install --no-install-recommends haproxy nginx-light"
            )
        })?;
        ensure!(output.status.success(), "{} -v", program.display());
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().next().unwrap_or_default();
        let words = line.split([' ', '/']);
        let version = words
            .clone()
            .find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
        Ok(version.unwrap_or(line).to_owned())
    }

    /// Starts it in front of a server.
    pub(crate) async fn start(
        self,
        pki: &Pki,
        directory: &Path,
        server: SocketAddr,
    ) -> anyhow::Result<(Daemon, SocketAddr)> {
        let address = ports::free();
        let files = Files::write(pki, directory)?;
        let settings = match self {
            Self::HAProxy => files.haproxy(address, server),
            Self::Nginx => files.nginx(address, server),
        };
        let file = directory.join(format!("{}.conf", self.name()));
        std::fs::write(&file, settings)?;
        let file = file.display().to_string();
        let args = match self {
            Self::HAProxy => vec!["-db".to_owned(), "-f".to_owned(), file],
            Self::Nginx => vec!["-c".to_owned(), file],
        };
        let daemon = DaemonSpec {
            name: self.name().to_owned(),
            program: self.executable(),
            args,
            hostname: None,
            directory: directory.to_owned(),
            ready: Ready::Tcp(address),
        };
        Ok((Daemon::start(daemon).await, address))
    }
}

/// The files that their settings name.
struct Files {
    /// Certificate and key in one, as HAProxy wants it.
    pair: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
    directory: PathBuf,
}

impl Files {
    fn write(pki: &Pki, directory: &Path) -> anyhow::Result<Self> {
        let (certificate, key) = (pki.file("server.crt"), pki.file("server.key"));
        let pair = directory.join("pair.pem");
        let both = [std::fs::read(&certificate)?, std::fs::read(&key)?].concat();
        std::fs::write(&pair, both)?;
        Ok(Self {
            pair,
            certificate,
            key,
            authority: pki.file("ca.crt"),
            directory: directory.to_owned(),
        })
    }

    fn haproxy(&self, address: SocketAddr, server: SocketAddr) -> String {
        let (pair, authority) = (self.pair.display(), self.authority.display());
        format!(
            "global
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend clients
  bind {address} ssl crt {pair} alpn h2,http/1.1
  default_backend servers
backend servers
  http-reuse always
  server newer {server} ssl verify required ca-file {authority} sni str({SERVER_NAME}) verifyhost {SERVER_NAME} alpn h2
"
        )
    }

    fn nginx(&self, address: SocketAddr, server: SocketAddr) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let (authority, directory) = (self.authority.display(), self.directory.display());
        format!(
            "daemon off;
worker_processes auto;
worker_rlimit_nofile 16384;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {directory}/nginx-client;
  proxy_temp_path {directory}/nginx-proxy;
  fastcgi_temp_path {directory}/nginx-fastcgi;
  uwsgi_temp_path {directory}/nginx-uwsgi;
  scgi_temp_path {directory}/nginx-scgi;
  client_max_body_size 0;
  keepalive_requests 1000000;
  upstream servers {{ server {server}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen {address} ssl http2;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    location / {{
      proxy_pass https://servers;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 1h;
      proxy_ssl_protocols TLSv1.2 TLSv1.3;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate {authority};
      proxy_ssl_server_name on;
      proxy_ssl_name {SERVER_NAME};
    }}
  }}
}}
"
        )
    }
}
