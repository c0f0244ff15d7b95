//! Tests users, passwords and TLS of connections, and the checks of the servers.

use super::{LONG, count, count_safely, counted, open, single};
use crate::examine::{Grade, check};
use crate::link::{Connect, SyncPolicy, Tls};
use core::time::Duration;
use pollster::block_on;
use redis::Value;
use std::fs;
use tourbillon_fault::{Fate, Proxy, Server, Watched, free_port};

/// Returns the rights in the README.
fn rights() -> Vec<String> {
    let page = include_str!("../../../README.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the page has the user");
    line.split_whitespace()
        .skip(3)
        .map(|word| if word.starts_with('>') { ">secret" } else { word }.to_owned())
        .collect()
}

#[test]
fn a_user_with_the_listed_rights_alone_can_do_all() {
    let Some(watched) = Watched::start(&[]) else { return };
    for server in [&watched.first, &watched.second] {
        let rights = rights();
        let mut words = vec!["ACL", "SETUSER", "tourbillon"];
        words.extend(rights.iter().map(String::as_str));
        // The test's own script needs this command.
        words.push("+incrby");
        server.command(&words);
        server.command(&["ACL", "LOG", "RESET"]);
    }
    let sync = SyncPolicy::Wait { replicas: 1, timeout: LONG };
    let direct = single(&watched.first.url()).user("tourbillon", "secret").sync(sync);
    let session = open(&direct);
    assert_eq!(count(&session, "tb:{0}a").expect("a reply"), 1);
    watched.first.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&session, "tb:{0}a").expect("a reply"), 2);
    let report = block_on(check(&direct)).expect("a report");
    assert!(!report.is_refused(), "{report}");
    assert_eq!(count_safely(&session, "tb:{0}b").expect("a reply"), 1);

    let url = watched.sentinel.url();
    let by_sentinel = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    assert_eq!(count(&open(&by_sentinel.user("tourbillon", "secret")), "tb:{0}a").expect("a reply"), 3);

    // The log of refused commands may contain only the command by which the driver sends its name. Servers before 7.2
    // do not know this command.
    let refused: Vec<Value> = watched.first.query(&["ACL", "LOG"]);
    let refused: Vec<_> = refused.iter().map(|entry| format!("{entry:?}")).collect();
    assert!(refused.iter().all(|entry| entry.contains("setinfo")), "{refused:#?}");

    let error = count(
        &open(&direct.clone().user("tourbillon", "wrong").patience(Duration::from_millis(500))),
        "tb:{0}a",
    )
    .expect_err("a wrong password");
    assert!(!error.may_have_run() && error.to_string().contains("no connection"), "{error}");
    watched.first.command(&["ACL", "SETUSER", "tourbillon", "-evalsha", "-eval"]);
    let error = count(&session, "tb:{0}a").expect_err("no right");
    assert!(!error.may_have_run(), "{error}");
    assert_eq!(error.code(), Some("NOPERM"));
}

#[test]
fn tls_is_checked_on_both_sides() {
    let own_signed = |name: &str| {
        rcgen::generate_simple_self_signed([name.to_owned(), "localhost".to_owned()]).expect("a certificate")
    };
    let (ours, client, other) = (own_signed("ours"), own_signed("client"), own_signed("ours"));
    let port = free_port();
    let server = Server::start_in(|folder| {
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file in a temporary folder");
            path.to_string_lossy().into_owned()
        };
        vec![
            "--tls-port".into(),
            port.to_string(),
            "--tls-cert-file".into(),
            file("server.crt", ours.cert.pem()),
            "--tls-key-file".into(),
            file("server.key", ours.signing_key.serialize_pem()),
            "--tls-ca-cert-file".into(),
            file("clients.crt", client.cert.pem()),
        ]
    });
    let Some(server) = server else { return };
    let url = format!("rediss://localhost:{port}");
    let tls = Tls::new()
        .authority(ours.cert.pem())
        .certificate(client.cert.pem(), client.signing_key.serialize_pem());
    let session = open(&single(&url).tls(tls.clone()));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    assert_eq!(counted(&server, "a"), 1);
    let address = format!("rediss://127.0.0.1:{port}");
    for (url, tls, reason) in [
        (&url, Tls::new().authority(ours.cert.pem()), "a client without a certificate"),
        (&url, tls.clone().authority(other.cert.pem()), "a certificate that is not trusted"),
        (&address, tls, "a certificate of another name"),
    ] {
        let brief = single(url).tls(tls).patience(Duration::from_secs(1));
        let error = count(&open(&brief), "a").expect_err(reason);
        assert!(!error.may_have_run(), "{reason}: {error}");
    }
    assert_eq!(counted(&server, "a"), 1);
}

#[test]
fn a_server_that_would_lose_timers_is_refused_with_the_reason() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let report = block_on(check(&single(&server.url()))).expect("a report");
    assert!(report.is_refused(), "{report}");
    assert!(report.to_string().contains("maxmemory-policy allkeys-lru: timers would be evicted"), "{report}");
    assert!(report.to_string().contains("warning 127.0.0.1:"), "{report}");
    assert!(report.to_string().contains("no append-only file, no snapshots"), "{report}");

    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    let report = block_on(check(&single(&server.url()))).expect("a report");
    assert!(report.lines().iter().all(|line| line.grade() == Grade::Ok), "{report}");
    assert!(report.to_string().contains("synchronised each second"), "{report}");
    assert!(report.to_string().contains("clock "), "{report}");

    // A proxy makes the server look older.
    let version = server.info("redis_version").expect("a version");
    let proxy = Proxy::start(server.address());
    proxy.rewrite(&format!("redis_version:{version}"), &format!("redis_version:6{}", &version[1..]));
    let report = block_on(check(&single(&proxy.url()))).expect("a report");
    assert!(report.is_refused() && report.to_string().contains("at least 7.0 is needed"), "{report}");

    proxy.greet(Fate::Refuse);
    proxy.cut();
    let nobody = single(&proxy.url()).patience(Duration::from_millis(200));
    let report = block_on(check(&nobody)).expect("a report");
    assert!(report.is_refused() && report.to_string().contains("the servers do not answer"), "{report}");
}

#[test]
fn addresses_are_shown_and_passwords_are_not() {
    for connect in [
        Connect::single("redis://user:hidden@127.0.0.1:6379/2"),
        Connect::sentinel(["redis://:hidden@127.0.0.1:26379"], "timers"),
        Connect::cluster(["redis://user:hidden@127.0.0.1:7000"]),
    ] {
        let connect =
            connect.expect("URLs").user("name", "hidden").database(0).tls(Tls::new().authority("hidden"));
        let text = format!("{connect:?}");
        assert!(text.contains("127.0.0.1") && !text.contains("hidden"), "{text}");
    }
    for error in [
        Connect::single("http://:hidden@127.0.0.1").expect_err("no URL of Redis"),
        Connect::sentinel([""; 0], "timers").expect_err("no address"),
        Connect::cluster(["unix:///run/redis"]).expect_err("a socket"),
        Connect::cluster(["rediss://:hidden@a", "redis://b"]).expect_err("TLS for one of two"),
    ] {
        assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
    }
}
