//! Tests the audit trail of a service with tokens: its entries, and that they have no secrets.

use crate::clients::{Http, Raw, callback, far, timer};
use crate::process::{Daemon, folder, run, token, until};
use crate::receiver::Receiver;
use axum::http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Returns the entries of the audit trail that a query finds, the newest first.
async fn entries(http: &Http, query: &str) -> Vec<Value> {
    let answer = http.get(&format!("/v1/audit{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.json);
    answer.json["items"].as_array().unwrap().clone()
}

/// Stores `count` timers with the same label.
async fn fill(http: &Http, count: usize) {
    let timer =
        |n| json!({ "delay_ms": 3_600_000, "labels": ["customer 4"], "pull": { "queue": "q", "json": n } });
    let put = |n| json!({ "put": { "key": format!("k{n}"), "timer": timer(n) } });
    let batch = json!({ "changes": (0..count).map(put).collect::<Vec<_>>() });
    assert_eq!(http.send("POST", "/v1/namespaces/default/batch", &batch).await.status, 200);
}

/// Returns the texts of all files of the audit trail, joined to one text.
fn files(folder: &Path) -> String {
    let files = std::fs::read_dir(folder.join("data/audit")).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cancelled_700_timers_is_found_and_a_restart_forgets_nothing() {
    let folder = folder();
    let make_token = |arguments: &[&str]| token(folder.path(), &[&["--data", "data"], arguments].concat());
    let admin = make_token(&["--role", "admin", "--name", "head"]);
    let writer = make_token(&["--role", "writer", "--name", "deploy robot", "--namespace", "default"]);
    let tenant = make_token(&["--role", "admin", "--name", "tenant", "--namespace", "default"]);
    let mut daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let (head, robot) = (http.with_token(&admin), http.with_token(&writer));
    fill(&robot, 700).await;
    let which = json!({ "label": "customer 4" });
    let path = "/v1/namespaces/default/cancellations";
    let begun = robot.try_send("POST", path, &[("x-request-id", "ticket-17")], &which).await.unwrap();
    assert_eq!(begun.status, 202, "{}", begun.json);
    let begin = std::time::Instant::now();
    let done = loop {
        let all = entries(&head, "?action=cancel-many").await;
        if all.len() == 2 {
            break all;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{all:?}");
    };
    for (entry, outcome) in done.iter().zip(["done", "begun"]) {
        assert_eq!((&entry["outcome"], &entry["target"]), (&outcome.into(), &begun.json["id"]), "{entry}");
        let by = &entry["by"];
        assert_eq!((&by["token"], &by["via"]), (&"deploy robot".into(), &"api".into()), "{entry}");
        assert_eq!((&by["peer"], &by["request_id"]), (&"127.0.0.1".into(), &"ticket-17".into()), "{entry}");
        assert!(entry["detail"].as_str().unwrap().contains("customer 4"), "{entry}");
    }
    assert_eq!(done[0]["count"], 700);
    // The log has the entry, too.
    assert!(daemon.line("cancel-many").await.contains("deploy robot"), "{}", daemon.log());

    let (mine, all) = (entries(&head, "?token=deploy%20robot").await, entries(&head, "?limit=200").await);
    assert_eq!(mine.len(), 2, "{mine:?}");
    let made: Vec<_> = all.iter().filter(|entry| entry["action"] == "make-token").collect();
    assert_eq!(made.len(), 3, "{all:?}");
    assert!(made.iter().all(|entry| entry["by"]["via"] == "command" && entry["target"].is_string()));
    let page = head.get("/v1/audit?limit=2").await.json;
    let next = page["next"].as_str().unwrap();
    assert_eq!(entries(&head, &format!("?limit=200&cursor={next}")).await, all[2..]);
    let at = all[1]["at"].as_str().unwrap();
    assert!(entries(&head, &format!("?since={at}")).await.len() >= 2);
    assert!(
        entries(&head, &format!("?until={at}")).await.iter().all(|entry| entry["at"].as_str().unwrap() < at)
    );

    for (client, query, status) in [
        (&robot, "?namespace=default", 403),
        (&http, "", 401),
        (&http.with_token(&tenant), "", 403),
        (&http.with_token(&tenant), "?namespace=other", 403),
        (&http.with_token(&tenant), "?namespace=default", 200),
        (&head, "?limit=0", 400),
        (&head, "?limit=201", 400),
        (&head, "?cursor=x", 400),
        (&head, "?action=x", 400),
        (&head, "?colour=x", 400),
    ] {
        assert_eq!(client.get(&format!("/v1/audit{query}")).await.status, status, "{query}");
    }
    daemon.signal(Signal::TERM);
    daemon.end(Duration::from_secs(20));
    let daemon = Daemon::start(folder.path(), &[]);
    let head = Http::new(daemon.address).with_token(&admin);
    assert_eq!(entries(&head, "?limit=200").await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_by_administrators_and_bulk_are_in_the_trail_and_no_secret_is_there_or_in_the_log() {
    let folder = folder();
    let make_token = |arguments: &[&str]| token(folder.path(), &[&["--data", "data"], arguments].concat());
    let admin = make_token(&["--role", "admin", "--name", "head"]);
    let revoked = make_token(&["--role", "writer", "--name", "former"]);
    assert!(run(folder.path(), &["token", "revoke", "former", "--data", "data"]).status.success());
    let receiver = Receiver::start(Duration::ZERO).await;
    receiver.answer(StatusCode::GONE);
    let daemon = Daemon::start(folder.path(), &["--log-level", "debug", "--behind-proxy"]);
    let http = Http::new(daemon.address);
    let head = http.with_token(&admin);
    let proxied = [("x-forwarded-for", "10.9.9.9, 192.0.2.7")];

    let limits = json!({ "paused": true, "allowed_hosts": ["127.0.0.1"] });
    assert_eq!(head.try_send("PUT", "/v1/namespaces/shop", &proxied, &limits).await.unwrap().status, 201);
    assert_eq!(head.send("PUT", "/v1/namespaces/shop", &json!({})).await.status, 200);
    let secret = head.send("POST", "/v1/namespaces/shop/secrets", &Value::Null).await.json;
    let secret = secret["secret"].as_str().unwrap().to_owned();
    assert_eq!(head.send("DELETE", "/v1/namespaces/default", &Value::Null).await.status, 409);
    let mut dies = callback(&receiver.url("/path?key=payload-of-a-query"), 0);
    dies["callback"]["headers"] = json!({ "authorization": "payload-of-a-header" });
    dies["callback"]["body"] = "payload-of-a-body".into();
    assert_eq!(head.send("PUT", &timer("dies"), &dies).await.status, 201);
    daemon.line("timer-died").await;
    assert_eq!(head.send("POST", "/v1/namespaces/default/replays", &json!({})).await.status, 202);
    fill(&head, 5).await;
    let cancels = (0..9).map(|n| json!({ "cancel": { "key": format!("k{n}") } })).collect::<Vec<_>>();
    let batch = json!({ "changes": cancels });
    assert_eq!(head.send("POST", "/v1/namespaces/default/batch", &batch).await.status, 200);
    assert_eq!(head.bytes("POST", "/v1/backup").await.unwrap().0, 200);
    assert_eq!(head.send("DELETE", "/v1/namespaces/shop", &Value::Null).await.status, 204);
    assert_eq!(http.with_token(&revoked).get(&timer("k")).await.status, 401);
    assert_eq!(http.with_token("payload-of-a-token").get(&timer("k")).await.status, 401);
    until("the end of the replay", || files(folder.path()).matches("replay-many").count() == 2).await;

    let all = entries(&head, "?limit=200").await;
    let seen = |entry: &Value| {
        let count = entry["count"].as_u64().map_or_else(String::new, |count| format!(" {count}"));
        format!("{} {}{count}", entry["action"].as_str().unwrap(), entry["outcome"].as_str().unwrap())
    };
    let mut seen: Vec<_> = all.iter().map(seen).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "back-up done 1",
            "batch done 5",
            "make-secret done",
            "make-token done",
            "make-token done",
            "remove-namespace done",
            "remove-namespace failed",
            "replay-many begun",
            "replay-many done 1",
            "revoke-token done",
            "set-namespace done",
            "set-namespace done",
        ]
    );
    let paused = all.iter().rev().find(|entry| entry["action"] == "set-namespace").unwrap();
    assert_eq!((&paused["namespace"], &paused["by"]["token"]), (&"shop".into(), &"head".into()), "{paused}");
    assert!(paused["detail"].as_str().unwrap().contains(r#""paused":true"#), "{paused}");
    assert_eq!(paused["by"]["peer"], "192.0.2.7", "the client's address, as the proxy names it");
    // The log comes through a pipe, so its lines may arrive after the answers.
    assert!(daemon.line("the token is not known").await.contains("token-refused"), "{}", daemon.log());
    daemon.line("a request was answered").await;

    let written = daemon.log() + &files(folder.path());
    let digits = |token: &str| token.rsplit('_').next().unwrap().to_owned();
    for secret in [digits(&admin), digits(&revoked), digits(&secret), "payload-of".to_owned()] {
        assert!(!written.contains(&secret), "{secret}: {written}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_goes_through_to_the_answer_the_log_and_the_problem() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &["--log-level", "debug", "--log-format", "json"]);
    let http = Http::new(daemon.address);
    let ask = async |path: &str, id: &str, body: &Value| {
        http.try_send("PUT", path, &[("x-request-id", id)], body).await.unwrap()
    };
    let made = ask(&timer("k"), "a-1", &far()).await;
    assert_eq!((made.status.as_u16(), &made.headers["x-request-id"]), (201, &"a-1".parse().unwrap()));
    let line = daemon.line("\"a-1\"").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["target"], &line["status"], &line["peer"]),
        (&"request".into(), &201.into(), &"127.0.0.1".into())
    );
    assert_eq!(http.get(&timer("k")).await.json["request_id"], "a-1");

    let refused = ask(&timer("k"), "a-2", &far()).await;
    assert_eq!((refused.status.as_u16(), &refused.json["request_id"]), (409, &"a-2".into()));
    let made_up = ask(&timer("k"), "not an id", &far()).await;
    let id = made_up.json["request_id"].as_str().unwrap();
    assert_eq!((id.len(), made_up.headers["x-request-id"].to_str().unwrap()), (32, id));
    // A body that is too large is refused before a handler reads the request. This answer has the request's id, too.
    let mut raw = Raw::connect(daemon.address).await;
    let head =
        "host: localhost\r\nx-request-id: a-3\r\ncontent-type: application/json\r\ncontent-length: 9999999";
    raw.send(format!("PUT {} HTTP/1.1\r\n{head}\r\n\r\n", timer("large")).as_bytes()).await;
    let large = raw.head().await;
    assert!(large.starts_with("HTTP/1.1 413") && large.contains("x-request-id: a-3\r\n"), "{large}");
    assert_eq!(http.get("/healthz").await.headers.get_all("x-request-id").iter().count(), 1);
}
