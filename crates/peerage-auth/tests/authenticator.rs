//! Whom the authenticator recognises, row by row, with certificates of real CAs.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use peerage_auth::{
    AuthError, Authenticated, Authenticator, AuthenticatorOptions, Method, RequestHeaderOptions,
};
use peerage_http::reload::Reloaded;
use peerage_http::testing::{Authority, Subject, Usage};
use peerage_http::{ConnInfo, Pem, TlsPeer};
use rcgen::string::{BmpString, PrintableString, TeletexString, UniversalString};
use rcgen::{DistinguishedName, DnType, DnValue};
use rustls::pki_types::CertificateDer;

type Row<'r> = (
    Vec<CertificateDer<'static>>,
    Vec<(&'r str, &'r str)>,
    &'r str,
);

fn leaf(ca: &Authority, name: &str, group: Option<&str>, usage: Usage) -> CertificateDer<'static> {
    let subject = Subject {
        name,
        groups: group.as_slice(),
        usage: Some(usage),
        ..Subject::default()
    };
    ca.issue(&subject).der
}

fn connection(certificates: Vec<CertificateDer<'static>>) -> ConnInfo {
    ConnInfo {
        remote: "127.0.0.1:1".parse().unwrap(),
        local: "127.0.0.1:2".parse().unwrap(),
        tls: Some(Arc::new(TlsPeer::new(certificates, None))),
    }
}

fn request(lines: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::new(());
    for (name, value) in lines {
        let name = HeaderName::try_from(*name).unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    request.into_parts().0
}

struct Fixture {
    client_ca: Authority,
    proxy_ca: Authority,
    authenticator: Authenticator,
    tokens: tempfile::NamedTempFile,
}

impl Fixture {
    fn new() -> Self {
        let (client_ca, proxy_ca) = (Authority::new("clients"), Authority::new("proxies"));
        let mut tokens = tempfile::NamedTempFile::new().unwrap();
        tokens.write_all(b"t1,tess,u1,\"dev,ops\"\n").unwrap();
        let mut request_header = RequestHeaderOptions::new(proxy_ca.pem());
        request_header.allowed_names = vec!["front-proxy-client".to_owned()];
        let authenticator = Authenticator::load(AuthenticatorOptions {
            client_ca: Some(client_ca.pem()),
            request_header: Some(request_header),
            token_file: Some(tokens.path().to_owned()),
            anonymous: true,
        })
        .unwrap();
        Self {
            client_ca,
            proxy_ca,
            authenticator,
            tokens,
        }
    }

    fn client(&self) -> Vec<CertificateDer<'static>> {
        vec![leaf(&self.client_ca, "alice", Some("dev"), Usage::Client)]
    }

    fn proxy(&self) -> Vec<CertificateDer<'static>> {
        vec![leaf(
            &self.proxy_ca,
            "front-proxy-client",
            None,
            Usage::Client,
        )]
    }

    fn ask(
        &self,
        certificates: Vec<CertificateDer<'static>>,
        lines: &[(&str, &str)],
    ) -> Result<Authenticated, AuthError> {
        self.authenticator
            .authenticate(&mut request(lines), &connection(certificates))
    }

    /// Name, groups and method, or why not.
    fn told(&self, certificates: Vec<CertificateDer<'static>>, lines: &[(&str, &str)]) -> String {
        match self.ask(certificates, lines) {
            Ok(found) => format!(
                "{} [{}] {:?}",
                found.user.name,
                found.user.groups.join(" "),
                found.method
            ),
            Err(AuthError::Certificate(_)) => "bad certificate".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

const ROOT: (&str, &str) = ("X-Remote-User", "root");

#[test]
fn the_first_credential_in_kubernetes_order_that_succeeds_counts() {
    let f = Fixture::new();
    let other = Authority::new("nobody's");
    let named = |name: &str| vec![leaf(&f.proxy_ca, name, None, Usage::Client)];
    let stranger = || vec![leaf(&other, "front-proxy-client", None, Usage::Client)];
    let of_client_ca = || {
        vec![leaf(
            &f.client_ca,
            "front-proxy-client",
            None,
            Usage::Client,
        )]
    };
    let serving = || vec![leaf(&f.client_ca, "alice", None, Usage::Server)];
    let bearer = ("Authorization", "Bearer t1");
    let bad = ("Authorization", "Bearer nope");
    let alice = "alice [dev system:authenticated] Certificate";
    let tess = "tess [dev ops system:authenticated] Token";
    let nobody = "system:anonymous [system:unauthenticated] Anonymous";
    let rows: Vec<Row<'_>> = vec![
        (
            f.proxy(),
            vec![ROOT, ("X-Remote-Group", "a"), ("X-Remote-Group", "b,c")],
            "root [a b,c system:authenticated] FrontProxy",
        ),
        (
            f.proxy(),
            vec![
                ("X-Remote-User", "system:anonymous"),
                ("X-Remote-Group", "system:unauthenticated"),
            ],
            "system:anonymous [system:unauthenticated] FrontProxy",
        ),
        (
            f.proxy(),
            vec![ROOT, bad],
            "root [system:authenticated] FrontProxy",
        ),
        (f.proxy(), vec![], "bad certificate"),
        (f.proxy(), vec![("X-Remote-User", "")], "bad certificate"),
        (f.proxy(), vec![("X-Remote-User", ""), bearer], tess),
        (named("someone"), vec![ROOT], "bad certificate"),
        (stranger(), vec![ROOT], "bad certificate"),
        (stranger(), vec![ROOT, bearer], tess),
        (stranger(), vec![], "bad certificate"),
        (serving(), vec![], "bad certificate"),
        (
            of_client_ca(),
            vec![ROOT],
            "front-proxy-client [system:authenticated] Certificate",
        ),
        (f.client(), vec![], alice),
        (
            f.client(),
            vec![ROOT, ("X-Remote-Group", "system:masters")],
            alice,
        ),
        (f.client(), vec![bearer], alice),
        (f.client(), vec![bad], alice),
        (vec![], vec![bearer], tess),
        (vec![], vec![("Authorization", "bearer t1")], tess),
        (vec![], vec![bad], "the bearer token is not known"),
        (vec![], vec![("Authorization", "Bearer")], nobody),
        (vec![], vec![("Authorization", "Basic dDE6")], nobody),
        (vec![], vec![("Authorization", "Token x")], nobody),
        (vec![], vec![ROOT], nobody),
        (
            vec![CertificateDer::from(b"garbage".to_vec())],
            vec![],
            "bad certificate",
        ),
    ];
    for (row, (certificates, lines, expected)) in rows.into_iter().enumerate() {
        assert_eq!(
            f.told(certificates, &lines),
            expected,
            "row {row}: {lines:?}"
        );
    }
}

/// What of these Go's versions read differently is told beside the code that reads it.
#[test]
fn a_certificate_names_the_user_that_a_kube_apiserver_reads_in_it_or_nobody() {
    let f = Fixture::new();
    let issue = |name: DnValue, group: DnValue| {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, group);
        subject.push(DnType::CommonName, name);
        let usage = Subject {
            usage: Some(Usage::Client),
            ..Subject::default()
        };
        vec![f.client_ca.issue_to(subject, &usage).der]
    };
    let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
    let bmp = |text: &str| DnValue::BmpString(BmpString::try_from(text).unwrap());
    let t61 = |text: &str| DnValue::TeletexString(TeletexString::try_from(text).unwrap());
    let printable = |text: &str| DnValue::PrintableString(PrintableString::try_from(text).unwrap());
    let universal = |text: &str| DnValue::UniversalString(UniversalString::try_from(text).unwrap());
    let bad = "bad certificate";
    for (name, group, expected) in [
        (
            utf8("alice"),
            utf8(""),
            "alice [ system:authenticated] Certificate",
        ),
        (utf8(""), utf8("dev"), bad),
        (
            bmp("zo\u{eb}"),
            t61("dev"),
            "zo\u{eb} [dev system:authenticated] Certificate",
        ),
        (
            t61("alice"),
            bmp("\u{20ac}"),
            "alice [\u{20ac} system:authenticated] Certificate",
        ),
        (
            printable("alice"),
            printable("a:b"),
            "alice [a:b system:authenticated] Certificate",
        ),
        (utf8("alice"), universal("system:masters"), bad),
        (universal("alice"), utf8("dev"), bad),
    ] {
        let case = format!("{name:?} {group:?}");
        assert_eq!(f.told(issue(name, group), &[]), expected, "{case}");
    }
}

#[test]
fn an_intermediate_that_the_client_presents_is_used() {
    let f = Fixture::new();
    let between = f.client_ca.intermediate("between");
    let alone = leaf(&between, "alice", None, Usage::Client);
    assert_eq!(f.told(vec![alone.clone()], &[]), "bad certificate");
    let chain = vec![alone, between.der()];
    assert_eq!(
        f.told(chain, &[]),
        "alice [system:authenticated] Certificate"
    );
}

#[test]
fn only_a_front_proxy_with_the_guard_header_is_a_verified_peer() {
    let f = Fixture::new();
    let guard = ("X-Kubernetes-Peer-Proxied", "true");
    let rows = [
        (f.proxy(), vec![ROOT, guard], true),
        (
            f.proxy(),
            vec![ROOT, ("X-Kubernetes-Peer-Proxied", "false"), guard],
            true,
        ),
        (
            f.proxy(),
            vec![ROOT, ("X-Kubernetes-Peer-Proxied", "TRUE")],
            false,
        ),
        (f.proxy(), vec![ROOT], false),
        (f.client(), vec![ROOT, guard], false),
        (vec![], vec![guard, ("Authorization", "Bearer t1")], false),
    ];
    for (certificates, lines, expected) in rows {
        assert_eq!(
            f.ask(certificates, &lines).unwrap().verified_peer,
            expected,
            "{lines:?}"
        );
    }
}

#[test]
fn after_success_no_credential_is_left_and_after_failure_nothing_is_changed() {
    let f = Fixture::new();
    let lines = [
        ("Authorization", "Bearer t1"),
        ROOT,
        ("x_remote_group", "system:masters"),
        ("X-Remote-Extra-Scopes", "all"),
        ("X-Remote-Uid", "0"),
        ("Accept", "*/*"),
    ];
    for certificates in [f.client(), f.proxy(), vec![]] {
        let mut parts = request(&lines);
        f.authenticator
            .authenticate(&mut parts, &connection(certificates))
            .unwrap();
        assert_eq!(
            parts
                .headers
                .keys()
                .map(HeaderName::as_str)
                .collect::<Vec<_>>(),
            ["accept"]
        );
    }
    let mut parts = request(&[("Authorization", "Bearer nope"), ROOT]);
    f.authenticator
        .authenticate(&mut parts, &connection(vec![]))
        .unwrap_err();
    assert_eq!(parts.headers.len(), 2);
}

#[test]
fn a_certificates_user_carries_its_digest_and_is_found_once_for_a_connection() {
    let f = Fixture::new();
    let connection = connection(f.client());
    let first = f
        .authenticator
        .authenticate(&mut request(&[]), &connection)
        .unwrap();
    let second = f
        .authenticator
        .authenticate(&mut request(&[]), &connection)
        .unwrap();
    assert!(Arc::ptr_eq(&first.user, &second.user));
    let id = &first.user.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(
        id.starts_with("X509SHA256=") && id.len() == "X509SHA256=".len() + 64,
        "{id}"
    );
    let masked = f
        .authenticator
        .by_certificate(&request(&[]), &connection)
        .unwrap()
        .unwrap();
    assert_eq!(masked.method, Method::Certificate);
}

#[test]
fn a_changed_token_file_counts_and_a_broken_one_does_not() {
    let mut f = Fixture::new();
    let reload = |f: &Fixture| {
        f.authenticator
            .reloads()
            .iter()
            .map(|r| r.reload())
            .collect::<Vec<_>>()
    };
    f.tokens.write_all(b"t2,tom,u2\n").unwrap();
    assert!(reload(&f).iter().any(|r| matches!(r, Reloaded::Changed)));
    assert_eq!(
        f.told(vec![], &[("Authorization", "Bearer t2")]),
        "tom [system:authenticated] Token"
    );
    f.tokens.write_all(b"broken\n").unwrap();
    assert!(reload(&f).iter().any(|r| matches!(r, Reloaded::Failed(_))));
    assert_eq!(
        f.told(vec![], &[("Authorization", "Bearer t2")]),
        "tom [system:authenticated] Token"
    );
}

#[test]
fn a_changed_ca_counts_for_connections_that_exist() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    std::fs::write(&file, old.certificate()).unwrap();
    let options = AuthenticatorOptions {
        client_ca: Some(Pem::file(&file)),
        ..AuthenticatorOptions::default()
    };
    let authenticator = Authenticator::load(options).unwrap();
    let connection = connection(vec![leaf(&old, "alice", None, Usage::Client)]);
    authenticator
        .authenticate(&mut request(&[]), &connection)
        .unwrap();
    std::fs::write(&file, new.certificate()).unwrap();
    assert!(matches!(
        authenticator.reloads()[0].reload(),
        Reloaded::Changed
    ));
    let refused = authenticator
        .authenticate(&mut request(&[]), &connection)
        .unwrap_err();
    assert!(matches!(refused, AuthError::Certificate(_)));
}

#[test]
fn without_anonymous_requests_somebody_must_be_named() {
    let authenticator = Authenticator::load(AuthenticatorOptions::default()).unwrap();
    let refused = authenticator
        .authenticate(&mut request(&[]), &connection(vec![]))
        .unwrap_err();
    assert!(matches!(refused, AuthError::NoCredentials));
}

#[test]
fn the_audit_log_is_told_what_was_tried() {
    let certificate = || vec![CertificateDer::from(vec![1])];
    let rows = [
        (
            vec![],
            vec![],
            "Authentication failed, no credentials provided",
        ),
        (
            vec![],
            vec![("Authorization", "Bearer x")],
            "Authentication failed, attempted: bearer",
        ),
        (
            certificate(),
            vec![("Authorization", "basic x")],
            "Authentication failed, attempted: basic, x509",
        ),
    ];
    for (certificates, lines, expected) in rows {
        assert_eq!(
            peerage_auth::attempted(&request(&lines), &connection(certificates)),
            expected
        );
    }
}
