//! Tests a service that listens at an address that others reach, and requests that a page in a browser could send.

use crate::clients::{Http, far, timer};
use crate::process::{Daemon, folder, program, run, text, token};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// Starts a service that must refuse its arguments with the exit code `code`. Returns the reason that the service
/// gives.
fn refusal(folder: &std::path::Path, arguments: &[&str], code: i32) -> String {
    let ended = run(folder, arguments);
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    text(&ended.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_others_reach_needs_tokens_and_tls() {
    let folder = folder();
    let all = ["--listen", "0.0.0.0:0"];
    // The missing TLS is a matter of the settings, which the next start finds again. A missing token is none.
    let reason = refusal(folder.path(), &all, 2);
    assert!(reason.contains("tokens") && reason.contains("TLS"), "{reason}");
    let with_tls = ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem"];
    let reason = refusal(folder.path(), &[&all[..], &with_tls].concat(), 1);
    assert!(reason.contains("tokens") && !reason.contains("TLS ("), "{reason}");
    assert!(!folder.path().join("tourbillon-data").exists(), "it refuses before it makes anything");
    assert!(refusal(folder.path(), &["--behind-proxy"], 1).contains("tokens"));

    let admin = token(folder.path(), &["--role", "admin"]);
    let reason = refusal(folder.path(), &all, 2);
    assert!(!reason.contains("token new") && reason.contains("TLS"), "{reason}");
    let daemon = Daemon::spawn(program(folder.path(), &[&all[..], &["--behind-proxy"]].concat()));
    let http = Http::new(([127, 0, 0, 1], daemon.address.port()).into());
    assert_eq!(http.get(&timer("k")).await.status, 401);
    assert_eq!(http.with_token(&admin).get(&timer("k")).await.status, 404);
}

/// A kubelet and a Prometheus of the same machine have no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_for_probes_needs_no_token_and_answers_nothing_else() {
    let folder = folder();
    let admin = token(folder.path(), &["--data", "data", "--role", "admin"]);
    let mut daemon = Daemon::start(folder.path(), &["--probes", "127.0.0.1:0"]);
    let line = daemon.line("probes and metrics without a token").await;
    let (_, address) = line.split_once("://").unwrap();
    let (probes, usual) = (Http::new(address.parse().unwrap()), Http::new(daemon.address));
    for path in ["/healthz", "/readyz", "/metrics"] {
        let (status, text) = probes.bytes("GET", path).await.unwrap();
        assert!(status == 200 && !text.is_empty(), "{path}: {status}");
    }
    for path in ["/readyz", "/metrics"] {
        assert_eq!(usual.get(path).await.status, 401, "{path}");
    }
    let admin = probes.with_token(&admin);
    for path in ["/", "/ui", "/openapi.json", "/v1/stats", "/v1/namespaces", &timer("k")] {
        assert_eq!(admin.get(path).await.status, 404, "{path}");
    }
    let put = admin.try_send("PUT", &timer("k"), &[], &far()).await.unwrap();
    assert_eq!(put.status, 404);
    let post = admin.try_send("POST", "/metrics", &[], &Value::Null).await.unwrap();
    assert_eq!(post.status, 405);
    daemon.signal(Signal::TERM);
    assert!(daemon.end(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_in_a_browser_cannot_command_a_service_without_tokens() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    daemon.line("there are no tokens").await;
    let port = daemon.address.port();
    // A page may call the service by a name that the page's own server resolves to this machine.
    for (host, status) in [
        (format!("localhost:{port}"), 404),
        (format!("[::1]:{port}"), 404),
        (format!("evil.example:{port}"), 403),
        ("127.0.0.1.evil.example".to_owned(), 403),
    ] {
        for path in [timer("k"), "/nowhere".to_owned()] {
            let answer = http.try_send("GET", &path, &[("host", &host)], &Value::Null).await.unwrap();
            assert_eq!(answer.status, status, "{host}{path}: {}", answer.json);
        }
    }
    // A page of another site may send a request.
    for (headers, status) in [
        (&[("origin", "http://evil.example")][..], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1")], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("x-forwarded-for", "10.0.0.1")], 403),
        (&[("sec-fetch-site", "same-origin")], 201),
    ] {
        let answer = http.try_send("PUT", &timer("k"), headers, &far()).await.unwrap();
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.json);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_site_cannot_change_anything_with_a_token_either() {
    let folder = folder();
    let admin = token(folder.path(), &["--role", "admin", "--data", "data"]);
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address).with_token(&admin);
    let origin = [("origin", "http://evil.example")];
    assert_eq!(http.try_send("PUT", &timer("k"), &origin, &far()).await.unwrap().status, 403);
    assert_eq!(http.try_send("GET", &timer("k"), &origin, &Value::Null).await.unwrap().status, 404);
    // A service with tokens may be called by any name.
    assert_eq!(
        http.try_send("GET", &timer("k"), &[("host", "a.example")], &Value::Null).await.unwrap().status,
        404
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_never_calls_itself() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let victim = format!("http://{}{}", daemon.address, timer("victim"));
    http.send("PUT", &timer("victim"), &far()).await;
    let mut attack = crate::clients::callback(&victim, 0);
    attack["callback"]["method"] = "DELETE".into();
    let answer = http.send("PUT", &timer("attack"), &attack).await;
    if answer.status != 422 {
        assert_eq!(answer.status, 201, "{}", answer.json);
        let path = format!("/v1/namespaces/default/ids/{}", answer.json["id"].as_str().unwrap());
        loop {
            let shown = http.get(&path).await;
            assert_eq!(shown.status, 200);
            if shown.json["phase"] == "dead" {
                assert!(
                    shown.json["last_error"].as_str().unwrap().contains("blocked-destination"),
                    "{}",
                    shown.json
                );
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(http.get(&timer("victim")).await.status, 200);
}
