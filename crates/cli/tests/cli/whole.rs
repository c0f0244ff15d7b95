//! Tests the commands about many timers, schedules and namespaces with a real service.

use crate::rig::{Rig, program};
use serde_json::json;
use std::process::Stdio;

const URL: &str = "http://127.0.0.1:9999/hook";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_fetches_refuses_and_replays_timers() {
    let rig = Rig::start().await;
    rig.run(&["put", "--queue", "mail", "--body", "hello"]).await.ok();
    let claim = rig.run(&["claim", "mail", "--wait", "10s", "--json"]).await.json();
    assert_eq!(claim["body"], "hello");
    assert!(rig.run(&["renew", claim["claim"].as_str().unwrap()]).await.ok().starts_with("until 20"));
    rig.run(&["ack", claim["claim"].as_str().unwrap()]).await.ok();
    assert_eq!(rig.run(&["ack", claim["claim"].as_str().unwrap()]).await.code, 1);
    assert_eq!(rig.run(&["claim", "mail"]).await.code, 3);

    let id = rig.run(&["put", "--queue", "mail", "--json"]).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(rig.run(&["dead", "drop", &id]).await.code, 1);
    let claim = rig.run(&["claim", "mail", "--wait", "10s", "--json"]).await.json();
    rig.run(&["nack", claim["claim"].as_str().unwrap(), "--dead", "--error", "not\u{1b}good"]).await.ok();
    let list = loop {
        let list = rig.run(&["dead", "list"]).await.ok();
        if list.contains(&id) {
            break list;
        }
    };
    assert!(list.contains("not\\u{1b}good"), "{list}");
    rig.run(&["dead", "replay", &id]).await.ok();
    assert_eq!(rig.run(&["dead", "list", "--json"]).await.ok(), "");
    let claim = rig.run(&["claim", "mail", "--wait", "10s", "--json"]).await.json();
    rig.run(&["nack", claim["claim"].as_str().unwrap(), "--dead"]).await.ok();
    while rig.run(&["dead", "list", "--json"]).await.lines().is_empty() {}
    assert_eq!(rig.run(&["dead", "drop", &id]).await.ok(), format!("dropped {id}\n"));
    assert_eq!(rig.run(&["dead", "drop", &id]).await.code, 3);
    let all = rig.run(&["dead", "replay-all"]).await.ok();
    assert!(all.starts_with("done: 0 replayed"), "{all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_listed_shown_and_waited_for() {
    let rig = Rig::start().await;
    assert_eq!(rig.run(&["operation", "--json"]).await.ok(), "");
    for key in ["a1", "a2", "b1"] {
        rig.run(&["put", key, "--in", "1h", "--queue", "q"]).await.ok();
    }
    let begun = rig.run(&["cancel-many", "--key-prefix", "a", "--no-wait", "--json"]).await.json();
    let id = begun["id"].as_str().unwrap();
    let done = rig.run(&["operation", id, "--wait"]).await.ok();
    assert!(done.starts_with("done: 2 changed") && done.contains(id), "{done}");
    assert_eq!(rig.run(&["operation", id, "--json"]).await.json()["changed"], 2);
    let list = rig.run(&["operation"]).await.ok();
    assert!(list.starts_with("ID") && list.contains(id) && list.contains("done"), "{list}");
    assert_eq!(rig.run(&["operation", "none"]).await.code, 3);
    assert_eq!(rig.run(&["operation", "--wait"]).await.code, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_timer_is_replayed_by_its_key_and_has_a_history() {
    let rig = Rig::start().await;
    let die = async |key: &str| {
        rig.run(&["put", key, "--queue", "mail"]).await.ok();
        let claim = rig.run(&["claim", "mail", "--wait", "20s", "--json"]).await.json();
        rig.run(&["nack", claim["claim"].as_str().unwrap(), "--dead", "--error", "no"]).await.ok();
        claim["id"].as_str().unwrap().to_owned()
    };
    let id = die("a b").await;
    while rig.run(&["dead", "list", "--json"]).await.lines().is_empty() {}
    let none = rig.run(&["dead", "replay", "a"]).await;
    assert_eq!((none.code, &*none.out), (3, ""), "{none:?}");
    assert!(none.err.contains("no dead timer had the key \"a\""), "{none:?}");
    assert_eq!(rig.run(&["dead", "replay", "a b"]).await.ok(), format!("replayed {id}\n"));
    let claim = rig.run(&["claim", "mail", "--wait", "20s", "--json"]).await.json();
    rig.run(&["ack", claim["claim"].as_str().unwrap()]).await.ok();
    // The timer has ended. It is found by its key and by its id.
    let history = loop {
        let history = rig.run(&["history", "a b"]).await.ok();
        if history.contains("attempt 1 delivered") {
            break history;
        }
    };
    let at = |text: &str| history.find(text).unwrap_or_else(|| panic!("{text}: {history}"));
    let order = ["created", "attempt 1 dead", "replayed", "attempt 1 delivered"].map(at);
    assert!(order.is_sorted() && history.contains(&id), "{history}");
    assert_eq!(rig.run(&["history", "--id", &id]).await.ok(), history);
    assert_eq!(rig.run(&["history", "nobody"]).await.code, 3);

    let first = die("twice").await;
    let second = die("twice").await;
    while rig.run(&["dead", "list", "--json"]).await.lines().len() < 2 {}
    let both = rig.run(&["dead", "drop", "twice"]).await;
    assert_eq!(both.code, 1, "{both:?}");
    assert!(both.err.contains(&first) && both.err.contains(&second), "{both:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_for_the_last_day_and_a_zone_with_a_slip_is_named() {
    let rig = Rig::start().await;
    let put = ["schedule", "put", "m", "--queue", "q", "--time", "09:00", "--day"];
    let made = rig.run(&[&put[..], &["last", "--json"]].concat()).await.json();
    assert_eq!(made["schedule"]["monthly"]["day"], 31);
    let shown = rig.run(&["schedule", "get", "m"]).await.ok();
    assert!(shown.contains("on the last day at 09:00:00 in UTC"), "{shown}");
    rig.run(&[&put[..], &["30"]].concat()).await.ok();
    let shown = rig.run(&["schedule", "get", "m"]).await.ok();
    assert!(shown.contains("on day 30 or the last at 09:00:00 in UTC"), "{shown}");
    rig.run(&[&put[..], &["31", "--skip-short"]].concat()).await.ok();
    assert!(rig.run(&["schedule", "get", "m"]).await.ok().contains("on day 31 at 09:00:00 in UTC"));
    assert_eq!(rig.run(&[&put[..], &["32"]].concat()).await.code, 2);
    let slip = rig.run(&[&put[..], &["last", "--zone", "Europe/Zurch"]].concat()).await;
    assert_eq!(slip.code, 1, "{slip:?}");
    assert_eq!(slip.err.matches("Europe/Zurch").count(), 1, "each thing is said once: {slip:?}");
    assert!(slip.err.contains("is \"Europe/Zurich\" meant?"), "{slip:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_made_changed_and_removed() {
    let rig = Rig::start().await;
    rig.run(&["ns", "set", "shop", "--max-timers", "5", "--rate", "7"]).await.ok();
    let view = rig.run(&["ns", "set", "shop", "--rate", "none", "--pause", "--json"]).await.json();
    assert_eq!(view["limits"], json!({ "max_timers": 5, "paused": true }));
    assert_eq!(rig.run(&["ns", "get", "shop", "--json"]).await.json()["limits"], view["limits"]);
    assert_eq!(rig.run(&["ns", "list", "--json"]).await.lines().len(), 2);
    assert!(rig.run(&["ns", "rotate-secret", "shop"]).await.ok().starts_with("whsec_"));
    rig.run(&["-n", "shop", "put", "k", "--in", "1h", "--callback", URL, "--label", "l"]).await.ok();
    assert_eq!(rig.run(&["ns", "delete", "shop"]).await.code, 1);
    let all = rig.run(&["-n", "shop", "cancel-many", "--label", "l"]).await.ok();
    assert!(all.starts_with("done: 1 cancelled, 0 of them in flight"), "{all}");
    rig.run(&["ns", "delete", "shop"]).await.ok();
    assert_eq!(rig.run(&["ns", "get", "shop"]).await.code, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_shown_live() {
    let rig = Rig::start().await;
    let mut tail = program(&["tail", "--count", "1", "--url", &rig.url]);
    let tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut tail = std::pin::pin!(tail.wait_with_output());
    let mut n = 0;
    let output = loop {
        // The program may connect only after the first timers were made. So make timers until it has seen one.
        rig.run(&["put", &format!("key {n}"), "--in", "1h", "--callback", URL]).await.ok();
        n += 1;
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), &mut tail).await;
        if let Ok(output) = waited {
            break output.unwrap();
        }
    };
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && line.contains(" created ") && line.contains("\"key "), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_measurement_agrees_with_the_service_and_leaves_nothing() {
    let rig = Rig::start().await;
    for kind in ["create", "callback"] {
        let bench =
            ["bench", "--kind", kind, "--connections", "4", "--seconds", "1", "--delay", "100ms", "--json"];
        let report = rig.run(&bench).await.json();
        assert_eq!(report["check"]["is_right"], true, "{report}");
        assert!(report["created"].as_u64().unwrap() > 0 && report["failed"] == 0, "{report}");
        assert!(report["creation"]["p50_ms"].as_f64().unwrap() > 0.0, "{report}");
        if kind == "callback" {
            assert_eq!(report["callbacks"]["arrived"], report["created"], "{report}");
        }
        let names = rig.run(&["ns", "list", "--json"]).await.lines();
        assert!(names.len() == 1 && names[0]["name"] == "default", "{names:?}");
    }
    let stats = rig.run(&["stats", "--json"]).await.json();
    assert_eq!((&stats["pending"], &stats["dead"]), (&json!(0), &json!(0)), "{stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_refuses_callbacks_is_among_the_endpoints() {
    let rig = Rig::start().await;
    assert_eq!(rig.run(&["endpoints", "--json"]).await.ok(), "");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    rig.run(&["put", "--in", "0s", "--callback", &format!("http://{closed}/hook")]).await.ok();
    let endpoint = loop {
        if let [endpoint] = rig.run(&["endpoints", "--json"]).await.lines().as_slice()
            && endpoint["errors"] != 0
        {
            break endpoint.clone();
        }
    };
    assert_eq!(endpoint["host"], closed.to_string());
    assert!(endpoint["last_error"].is_string(), "{endpoint}");
    assert!(rig.run(&["endpoints"]).await.ok().contains(&format!("{closed}")));
}
