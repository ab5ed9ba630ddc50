//! Gateways among those that are checked.

use peerage_testkit::pki::Pki;
use peerage_testkit::process::{GatewayProcess, ServerProcess, ServerSpec};

use crate::{check, checked, executable};

#[tokio::test]
async fn a_gateway_is_known_for_one_by_whoever_asks() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::create(temp.path());
    let spec = ServerSpec::peer("old", "1.36", "");
    let spec = ServerSpec {
        store: None,
        ..spec
    };
    let server = ServerProcess::start(executable(), &pki, &spec).await;
    let gateway = GatewayProcess::start(executable(), &pki, server.address).await;
    let url = format!("https://{}", gateway.address);
    // It names the server that answered to the administrator alone.
    for (user, says) in [
        ("alice", "a gateway"),
        ("admin", "a gateway (this was answered by "),
    ] {
        let found = checked(&pki, user, std::slice::from_ref(&url), &[]).await;
        let expected = format!("proxy of {}: {says}", &url["https://".len()..]);
        let passed = found.of("pass");
        let found = passed.iter().find(|it| it.starts_with(&expected));
        let found = found.unwrap_or_else(|| panic!("{expected}: {passed:#?}"));
        assert_eq!(found.ends_with("a gateway"), user == "alice", "{found}");
    }
    let own = format!("https://{}", server.address);
    let found = checked(&pki, "admin", std::slice::from_ref(&own), &[]).await;
    let expected = format!("proxy of {}: on (Peerage's)", server.address);
    assert!(found.of("pass").contains(&expected), "{}", found.text);

    // What it says on its own address is read as it says it.
    let admin = format!("--gateway=http://{}", gateway.admin);
    let found = checked(&pki, "admin", &[url.clone(), own.clone()], &[&admin]).await;
    let passed = found.of("pass");
    for expected in [
        format!("source of flags of http://{}: 1 server", gateway.admin),
        format!("known-servers of http://{}: it knows all", gateway.admin),
        format!("proxy of {}: clients come through", server.address),
    ] {
        let has = passed.iter().any(|it| it.starts_with(&expected));
        assert!(has, "{expected}: {}", found.text);
    }
    // Pods do not come to it: the server has published itself.
    let past = format!(
        "in-cluster of : pods reach servers without a gateway: the Service kubernetes publishes {}",
        server.address
    );
    assert!(
        found.of("warn").iter().any(|it| it.starts_with(&past)),
        "{}",
        found.text
    );

    // And it is no server that others connect to.
    let urls = [url.clone(), own];
    for what in ["static-pod", "systemd", "network-policy"] {
        let mut output = check(&pki, "admin", &urls, &[&format!("--print={what}")]);
        let output = output.output().await.unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let of_gateway = shown
            .lines()
            .filter(|it| it.contains(&gateway.address.to_string()));
        let of_gateway: Vec<&str> = of_gateway.collect();
        assert_eq!(of_gateway.len(), 1, "{shown}");
        assert!(
            of_gateway[0].starts_with("# Left out, because a gateway is no server"),
            "{shown}"
        );
    }
}
