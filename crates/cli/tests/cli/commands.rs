//! Tests the commands about timers with a real service.

use crate::rig::{Fake, Rig};
use serde_json::json;

const URL: &str = "http://127.0.0.1:9999/hook";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_made_shown_moved_and_cancelled() {
    let rig = Rig::start().await;
    let put = ["put", "order 17", "--in", "30d", "--callback", URL, "--label", "customer 4"];
    let placed = rig.run(&[&put[..], &["--json", "--body-json", r#"{"n":17}"#]].concat()).await.json();
    assert_eq!(placed["outcome"], "created");
    let id = placed["id"].as_str().unwrap();

    let text = rig.run(&["get", "order 17"]).await.ok();
    for part in ["order 17", id, "pending", "customer 4", &format!("POST {URL}"), r#"{"n":17}"#] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let timer = rig.run(&["get", "--json", "order 17"]).await.json();
    assert_eq!(timer["key"], "order 17");
    // The service stores a JSON body as bytes, and shows these bytes as a text.
    assert_eq!(timer["callback"]["body"], r#"{"n":17}"#);

    let again = rig.run(&put).await;
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.starts_with("tourbillon: Another timer has the key"), "{again:?}");
    assert!(again.err.contains("--if-present"), "{again:?}");
    let kept = rig.run(&[&put[..], &["--if-present", "keep"]].concat()).await.ok();
    assert_eq!(kept, format!("kept {id} (which is pending)\n"));
    let replaced = rig.run(&[&put[..], &["--if-present", "replace"]].concat()).await.ok();
    assert!(replaced.starts_with("replaced ") && replaced.contains("which was pending"), "{replaced}");

    let moved = rig.run(&["move", "order 17", "--at", "2090-01-02T03:04:05Z"]).await.ok();
    assert!(moved.starts_with("moved "), "{moved}");
    let timer = rig.run(&["get", "--json", "order 17"]).await.json();
    assert_eq!(timer["due"], "2090-01-02T03:04:05.000Z");

    assert_eq!(rig.run(&["cancel", "order 17"]).await.ok(), "cancelled\n");
    let gone = rig.run(&["cancel", "--json", "order 17"]).await;
    assert_eq!((gone.code, &*gone.out), (3, "{\"result\":\"not-found\"}\n"));
    let gone = rig.run(&["get", "order 17"]).await;
    assert_eq!((gone.code, &*gone.out), (3, ""));
    assert_eq!(gone.err, "tourbillon: Not found: there is no such timer\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_read_from_the_standard_input_and_changed_by_flags() {
    let rig = Rig::start().await;
    let file =
        json!({ "delay_ms": 1, "callback": { "url": URL }, "labels": ["a"], "policy": { "attempts": 3 } });
    let put = ["put", "k", "--file", "-", "--in", "1h", "--label", "b", "--backoff", "fixed:5s", "--json"];
    rig.run_with(&put, file.to_string().as_bytes()).await.json();
    let timer = rig.run(&["get", "k", "--json"]).await.json();
    assert_eq!(timer["phase"], "pending");
    assert_eq!(timer["labels"], json!(["a", "b"]));
    assert_eq!(timer["policy"]["attempts"], 3);
    assert_eq!(timer["policy"]["backoff"], json!({ "kind": "fixed", "pause_ms": 5000 }));

    let bad = rig.run_with(&["put", "-f", "-"], br#"{"dely_ms": 1}"#).await;
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("unknown field `dely_ms`"), "{bad:?}");
    let bytes =
        rig.run_with(&["put", "b", "--in", "1h", "--callback", URL, "--body-file", "-"], b"\xff\x00").await;
    assert_eq!(bytes.code, 0, "{bytes:?}");
    assert_eq!(rig.run(&["get", "b", "--json"]).await.json()["callback"]["body_base64"], "/wA=");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_as_many_timers_as_are_wanted() {
    let rig = Rig::start().await;
    for n in 0..5 {
        let key = format!("key {n}");
        rig.run(&["put", &key, "--in", "1h", "--callback", URL, "--label", "l"]).await.ok();
    }
    let all = rig.run(&["list", "--json", "--label", "l"]).await.lines();
    assert_eq!(all.len(), 5);
    let some = rig.run(&["list", "--json", "--limit", "3"]).await.lines();
    assert_eq!(some.len(), 3);
    let some = rig.run(&["list", "--limit", "3"]).await;
    assert_eq!((some.code, some.out.lines().count()), (0, 4), "{some:?}");
    assert!(some.out.starts_with("ID ") && some.err.contains("--all"), "{some:?}");
    assert_eq!(rig.run(&["list", "--all", "--key-prefix", "key 1"]).await.ok().lines().count(), 2);
    assert_eq!(rig.run(&["list", "--phase", "dead", "--json"]).await.ok(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_cannot_command_the_terminal() {
    let rig = Rig::start().await;
    let key = "\u{1b}[2J\u{7}evil";
    rig.run(&["put", key, "--in", "1h", "--callback", URL]).await.ok();
    for arguments in [&["list"][..], &["get", key]] {
        let text = rig.run(arguments).await.ok();
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J\\u{7}evil"), "{text:?}");
    }
}

#[tokio::test]
async fn each_command_sends_its_request() {
    let changed = json!({ "id": "7" });
    let operation = json!({
        "id": "9", "state": "done", "begun": "2026-11-22T16:00:00.000Z", "changed": 5, "in_flight": 1
    });
    let claims = json!({ "claims": [{
        "claim": "c1", "id": "7", "scheduled": "2026-11-22T16:00:00.000Z", "attempt": 2,
        "until": "2026-11-22T16:00:30.000Z", "body": "hello"
    }]});
    let view = json!({
        "name": "shop", "limits": { "max_timers": 5, "rate_per_second": 7 },
        "pending": 1, "leased": 0, "parked": 0, "dead": 0
    });
    let attempt = |second: u32, outcome: &str, status: u16| {
        let at = format!("2026-11-22T16:00:{second:02}.000Z");
        json!({
            "attempt": 1, "delivery": 1, "due": at, "claimed": at, "started": at, "ended": at, "late_ms": 1_000 * second,
            "took_ms": 12, "outcome": outcome, "status": status
        })
    };
    let past = json!({
        "id": "7", "namespace": "default", "key": "a/b", "phase": "done", "deliveries": 1,
        "attempts": [attempt(1, "dead", 500), attempt(9, "delivered", 204)],
        "replayed": ["2026-11-22T16:00:05.000Z"]
    });
    let secret = json!({ "secret": "whsec_x", "former_until": "2026-11-23T16:00:00.000Z" });
    let endpoints = json!([{
        "host": "shop.example:443", "breaker": "open", "since": "2026-11-22T16:00:00.000Z", "open_for_ms": 5_000,
        "running": 1, "failures_in_a_row": 3, "parked": 2, "deliveries": 30, "errors": 4,
        "recent": 8, "recent_errors": 2, "p50_ms": 40, "p99_ms": 1_200, "last_error": "status 500"
    }]);
    let nodes = json!({
        "now": "2026-11-22T16:00:10.000Z", "shared": true,
        "nodes": [
            { "incarnation": "00000000000000a1", "name": "one", "version": "0.1.0", "since": "2026-11-22T15:00:00.000Z",
              "seen": "2026-11-22T16:00:08.000Z", "live": true, "this": true, "shards": 1 },
            { "incarnation": "00000000000000b2", "name": "two", "version": "0.1.0", "since": "2026-11-22T15:00:00.000Z",
              "seen": "2026-11-22T15:59:10.000Z", "live": false, "this": false, "shards": 0 }
        ],
        "shards": [
            { "number": 0, "owner": "00000000000000a1", "polled_ms_ago": 250, "overdue_ms": 1_500, "epoch": 3,
              "takeovers": 1, "taken_over": "2026-11-22T15:59:30.000Z" },
            { "number": 1, "owner": "00000000000000b2", "overdue_ms": 0, "epoch": 0, "takeovers": 0, "silent": true }
        ]
    });
    let alone = json!({ "now": "2026-11-22T16:00:10.000Z", "shared": false, "nodes": [], "shards": [] });
    let base = "/v1/namespaces/default";
    for (arguments, answer, requests, body, out) in [
        (
            &["fire", "a/b"][..],
            &changed,
            vec![format!("POST {base}/timers/a%2Fb/fire")],
            json!(null),
            "fired 7",
        ),
        (
            &["pause", "--id", "7"],
            &changed,
            vec![format!("POST {base}/ids/7/pause")],
            json!(null),
            "paused 7",
        ),
        (&["resume", "k"], &changed, vec![format!("POST {base}/timers/k/resume")], json!(null), "resumed 7"),
        (
            &["move", "--id", "7", "--in", "5m"],
            &changed,
            vec![format!("PATCH {base}/ids/7")],
            json!({ "delay_ms": 300_000 }),
            "moved 7",
        ),
        (
            &["cancel-many", "--label", "l"],
            &operation,
            vec![format!("POST {base}/cancellations")],
            json!({ "label": "l" }),
            "done: 5 cancelled, 1 of them in flight",
        ),
        (
            &["cancel-many", "--label", "l", "--no-wait"],
            &operation,
            vec![format!("POST {base}/cancellations")],
            json!({ "label": "l" }),
            "done: 5 cancelled",
        ),
        (
            &["cancel-many", "--no-wait", "--key-prefix=-p"],
            &operation,
            vec![format!("POST {base}/cancellations")],
            json!({ "key_prefix": "-p" }),
            "done: 5 cancelled",
        ),
        (
            &["operation", "7", "--wait"],
            &operation,
            vec![format!("GET {base}/operations/7")],
            json!(null),
            "done: 5 changed, 1 of them in flight",
        ),
        (
            &["dead", "replay-all", "-n", "shop"],
            &operation,
            vec!["POST /v1/namespaces/shop/replays".to_owned()],
            json!({}),
            "done: 5 replayed",
        ),
        (
            &["dead", "replay", "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70"],
            &changed,
            vec![format!("POST {base}/ids/01935560-1c40-7a5e-8b6c-2f9a3d1e4b70/replay")],
            json!(null),
            "replayed 7",
        ),
        (
            &["history", "a/b"],
            &past,
            vec![format!("GET {base}/timers/a%2Fb/past")],
            json!(null),
            "2026-11-22T16:00:09.000Z  attempt 1 delivered  9s    12ms  status 204",
        ),
        (
            &["history", "--id", "7", "--json"],
            &past,
            vec![format!("GET {base}/ids/7/past")],
            json!(null),
            r#""replayed":["2026-11-22T16:00:05.000Z"]"#,
        ),
        (
            &["claim", "mail", "--max", "3", "--wait", "5s"],
            &claims,
            vec![format!("POST {base}/queues/mail/claims")],
            json!({ "max": 3, "wait_ms": 4_999 }),
            "hello",
        ),
        (&["ack", "c1"], &json!({}), vec![format!("POST {base}/claims/c1/ack")], json!(null), ""),
        (
            &["ack", "c1", "c2"],
            &json!({ "results": [{ "claim": "c1" }, { "claim": "c2" }] }),
            vec![format!("POST {base}/claims/ack")],
            json!({ "claims": ["c1", "c2"] }),
            "",
        ),
        (
            &["nack", "c1", "--snooze", "5s"],
            &json!({}),
            vec![format!("POST {base}/claims/c1/nack")],
            json!({ "snooze_ms": 5_000 }),
            "",
        ),
        (
            &["nack", "c1", "--error", "no", "--retry-after", "5s"],
            &json!({}),
            vec![format!("POST {base}/claims/c1/nack")],
            json!({ "error": "no", "retry_after_ms": 5_000 }),
            "",
        ),
        (
            &[
                "ns",
                "set",
                "shop",
                "--max-timers",
                "none",
                "--concurrency",
                "9",
                "--max-delay",
                "30d",
                "--pause",
            ],
            &view,
            // The request has only the limits to change. Others may change the rest at the same time.
            vec!["PATCH /v1/namespaces/shop".to_owned()],
            json!({ "max_timers": null, "concurrency": 9, "max_delay_ms": 2_592_000_000_u64, "paused": true }),
            "shop",
        ),
        (
            &["ns", "set", "shop", "--allow-all-hosts", "--resume", "--drop-answers"],
            &view,
            vec!["PATCH /v1/namespaces/shop".to_owned()],
            json!({ "allowed_hosts": [], "paused": false, "keep_answers": false }),
            "shop",
        ),
        (
            &["ns", "set", "shop", "--replace", "--allow-host", "a.example", "--allow-host", "b.example"],
            &view,
            vec!["PUT /v1/namespaces/shop".to_owned()],
            json!({ "allowed_hosts": ["a.example", "b.example"] }),
            "rate a second",
        ),
        (
            &["ns", "delete", "shop"],
            &json!({}),
            vec!["DELETE /v1/namespaces/shop".to_owned()],
            json!(null),
            "deleted shop",
        ),
        (
            &["ns", "rotate-secret", "shop"],
            &secret,
            vec!["POST /v1/namespaces/shop/secrets".to_owned()],
            json!(null),
            "whsec_x\nThe secrets before it sign too until 2026-11-23T16:00:00.000Z.",
        ),
        (
            &["ns", "list"],
            &json!([view]),
            vec!["GET /v1/namespaces".to_owned()],
            json!(null),
            "NAME  PENDING",
        ),
        (
            &["endpoints"],
            &endpoints,
            vec!["GET /v1/endpoints".to_owned()],
            json!(null),
            "shop.example:443  open for 5s  1        2       30    4       25 %           40ms  1s200ms  status 500",
        ),
        (
            &["nodes"],
            &nodes,
            vec!["GET /v1/nodes".to_owned()],
            json!(null),
            "one   00000000000000a1  0.1.0    live, answers  1       1s500ms",
        ),
        (&["nodes"], &nodes, vec!["GET /v1/nodes".to_owned()], json!(null), "gone           0       unknown"),
        (
            &["nodes", "--shards"],
            &nodes,
            vec!["GET /v1/nodes".to_owned()],
            json!(null),
            "0      one   00000000000000a1  1s500ms  250ms ago  3       1          2026-11-22T15:59:30.000Z",
        ),
        // A server that does not answer cannot say how late its timers are.
        (
            &["nodes", "--shards"],
            &nodes,
            vec!["GET /v1/nodes".to_owned()],
            json!(null),
            "1      two   00000000000000b2  unknown",
        ),
        (&["nodes", "--json"], &nodes, vec!["GET /v1/nodes".to_owned()], json!(null), r#""overdue_ms":1500"#),
        (
            &["nodes", "--shards"],
            &alone,
            vec!["GET /v1/nodes".to_owned()],
            json!(null),
            "shares them with no node",
        ),
        (
            &["endpoints", "--json"],
            &endpoints,
            vec!["GET /v1/endpoints".to_owned()],
            json!(null),
            r#""host":"shop.example:443","breaker":"open""#,
        ),
    ] {
        let fake = Fake::start(200, answer.clone()).await;
        let text = fake.run(arguments).await.ok();
        assert!(text.contains(out), "{arguments:?}: {text}");
        let sent = fake.requests();
        let lines: Vec<_> = sent.iter().map(|request| request.line.clone()).collect();
        assert_eq!(lines, requests, "{arguments:?}");
        let mut sent = sent.last().unwrap().body.clone();
        if sent["wait_ms"].as_u64().is_some_and(|wait| (4_000..5_000).contains(&wait)) {
            sent["wait_ms"] = json!(4_999);
        }
        assert_eq!(sent, body, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_trail_says_who_has_cancelled_many_timers() {
    let rig = Rig::start().await;
    for n in 0..3 {
        rig.run(&["put", &format!("k{n}"), "--in", "1h", "--callback", URL, "--label", "l"]).await.ok();
    }
    rig.run(&["cancel-many", "--label", "l"]).await.ok();
    rig.run(&["ns", "set", "shop", "--pause"]).await.ok();
    let all = rig.run(&["audit", "--json"]).await.lines();
    let seen: Vec<_> =
        all.iter().map(|entry| (&entry["action"], &entry["outcome"], &entry["count"])).collect();
    let (cancel, begun, done) = (json!("cancel-many"), json!("begun"), json!("done"));
    let (set, none) = (json!("set-namespace"), json!(null));
    assert_eq!(seen, [(&set, &done, &none), (&cancel, &done, &json!(3)), (&cancel, &begun, &none)]);

    let table = rig.run(&["audit", "--action", "cancel-many", "--limit", "1"]).await.ok();
    for part in ["ACTION", "cancel-many", "done", "3", "the label \"l\""] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert_eq!(rig.run(&["audit", "--namespace", "shop", "--json"]).await.lines().len(), 1);
    assert_eq!(
        rig.run(&["audit", "--namespace", "shop", "--all-namespaces", "--json"]).await.lines().len(),
        3
    );
    assert_eq!(rig.run(&["audit", "--by-token", "nobody", "--json"]).await.lines().len(), 0);
    assert_eq!(rig.run(&["audit", "--since", "2090-01-02T03:04:05Z", "--json"]).await.lines().len(), 0);
    assert_eq!(rig.run(&["audit", "--action", "explode"]).await.code, 2);
}
