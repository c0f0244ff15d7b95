//! Tests that the numbers of waiting timers follow each change that takes a timer away from what it waits for.

use crate::inside::Inside;
use crate::operating::{number, scrape};
use crate::receivers::{Manner, Rough};
use crate::rig::{eventually, settings};
use prometheus_parse::Value as Number;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::store::MemoryStore;

const TIMERS: &str = "/v1/namespaces/default/timers";

/// Waits until the metric of parked timers has this value for this kind of reason.
async fn await_parked(inside: &Inside, why: &str, count: u32) {
    eventually(&format!("{count} timers wait because of {why}"), async || {
        let page = scrape(inside).await;
        let difference = number(&page, "tourbillon_parked", Some(("why", why))) - f64::from(count);
        (difference.abs() < 0.5).then_some(())
    })
    .await;
}

/// Waits until the queue `mail` has this depth in each report.
async fn await_depth(inside: &Inside, depth: u32) {
    inside
        .until("/v1/queues", |queues| {
            queues
                .as_array()
                .unwrap()
                .iter()
                .map(|queue| &queue["depth"])
                .eq(&vec![json!(depth); usize::from(depth > 0)])
        })
        .await;
    await_parked(inside, "queue", depth).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_was_paused_counts_as_paused_although_no_other_timer_waits() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    // The first count of the parked timers, at the start, must not be the one that finds the timer.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let timer = json!({ "delay_ms": 3_600_000, "pull": { "queue": "mail" } });
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), timer).await.status, 201);
    for (change, count) in [("pause", 1), ("resume", 0), ("pause", 1), ("fire", 0)] {
        let changed = inside.send("POST", &format!("{TIMERS}/k/{change}"), Value::Null).await;
        assert_eq!(changed.status, 200, "{change}");
        await_parked(&inside, "paused", count).await;
        await_parked(&inside, "other", 0).await;
    }
}

/// Returns the values of the metric `name`, each under its labels other than the namespace `default`.
async fn values(inside: &Inside, name: &str) -> BTreeMap<String, f64> {
    let page = scrape(inside).await;
    let samples = page.samples.into_iter().filter(|sample| sample.metric == name);
    samples
        .map(|sample| {
            let labels: Vec<_> = ["why", "queue", "namespace"]
                .into_iter()
                .filter_map(|label| sample.labels.get(label))
                .filter(|value| *value != "default")
                .collect();
            let Number::Gauge(value) = sample.value else { panic!("{name} is {:?}", sample.value) };
            (labels.join(" "), value)
        })
        .collect()
}

/// An alarm on these metrics must fire for a queue that nobody fetches, and for a namespace whose pause was forgotten.
/// `overdue_seconds` is zero for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_age_of_a_parked_timer_shows_under_what_it_waits_for() {
    const QUEUES: &str = "tourbillon_queue_oldest_seconds";
    const PAUSES: &str = "tourbillon_namespace_paused_oldest_seconds";
    const REASONS: &str = "tourbillon_parked_oldest_seconds";
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    for (key, queue) in [("a", "mail"), ("b", "mail"), ("c", "print")] {
        let timer = json!({ "pull": { "queue": queue } });
        assert_eq!(inside.send("PUT", &format!("{TIMERS}/{key}"), timer).await.status, 201);
    }
    await_parked(&inside, "queue", 3).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    // The cancellation of a parked timer makes the service count the parked timers soon.
    inside.send("DELETE", &format!("{TIMERS}/c"), Value::Null).await;
    eventually("the age of the oldest timer shows", async || {
        (values(&inside, QUEUES).await.get("mail")? >= &1.0).then_some(())
    })
    .await;
    let is_zero = |value: f64| value.abs() < 1e-9;
    let reasons = values(&inside, REASONS).await;
    assert!(reasons["queue"] >= 1.0 && is_zero(reasons["paused"]), "{reasons:?}");
    assert!(values(&inside, PAUSES).await.values().all(|age| is_zero(*age)));
    let depths = values(&inside, "tourbillon_queue_timers").await;
    assert!((depths["mail"] - 2.0).abs() < 1e-9 && is_zero(depths["(other) (other)"]), "{depths:?}");
    assert!(is_zero(number(&scrape(&inside).await, "tourbillon_overdue_seconds", None)));

    let pause = async |is_paused: bool| {
        let changed = inside.send("PATCH", "/v1/namespaces/default", json!({ "paused": is_paused })).await;
        assert_eq!(changed.status, 200);
    };
    pause(true).await;
    let (queues, pauses) = (values(&inside, QUEUES).await, values(&inside, PAUSES).await);
    let reasons = values(&inside, REASONS).await;
    assert!(is_zero(queues["mail"]) && is_zero(reasons["queue"]), "{queues:?} {reasons:?}");
    assert!(pauses[""] >= 1.0 && reasons["paused"] >= 1.0, "{pauses:?} {reasons:?}");

    pause(false).await;
    assert!(values(&inside, QUEUES).await["mail"] >= 1.0);
    let claims = json!({ "max": 10, "wait_ms": 5_000 });
    let claimed = inside.send("POST", "/v1/namespaces/default/queues/mail/claims", claims).await.json();
    assert_eq!(claimed["claims"].as_array().map(Vec::len), Some(2), "{claimed}");
    eventually("a fetched timer waits no longer", async || {
        let (queues, reasons) = (values(&inside, QUEUES).await, values(&inside, REASONS).await);
        (!queues.contains_key("mail") && is_zero(reasons["queue"])).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_depth_of_a_queue_follows_each_change_of_a_waiting_timer() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let put = async |key: &str| {
        let timer = json!({ "pull": { "queue": "mail" }, "if_present": "replace" });
        let placed = inside.send("PUT", &format!("{TIMERS}/{key}"), timer).await;
        assert!(placed.status.is_success(), "{}", placed.json());
    };
    let act = async |method: &str, path: &str, body: Value| {
        let answer = inside.send(method, &format!("{TIMERS}/{path}"), body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.json());
        inside.send("GET", &format!("{TIMERS}/b0"), Value::Null).await.json()
    };
    for key in ["b0", "b1", "b2", "b3"] {
        put(key).await;
    }
    await_depth(&inside, 4).await;
    for key in ["b1", "b2", "b3"] {
        act("DELETE", key, Value::Null).await;
    }
    await_depth(&inside, 1).await;
    for _ in 0..3 {
        put("b0").await;
    }
    await_depth(&inside, 1).await;
    let moved = act("PATCH", "b0", json!({ "delay_ms": 3_600_000 })).await;
    assert_eq!(moved["phase"], "pending", "{moved}");
    await_depth(&inside, 0).await;
    act("PATCH", "b0", json!({ "delay_ms": 0 })).await;
    await_depth(&inside, 1).await;
    for _ in 0..2 {
        let paused = act("POST", "b0/pause", Value::Null).await;
        assert_eq!((&paused["phase"], &paused["reason"]), (&json!("parked"), &json!("paused")), "{paused}");
    }
    await_depth(&inside, 0).await;
    act("POST", "b0/resume", Value::Null).await;
    await_depth(&inside, 1).await;
    act("POST", "b0/fire", Value::Null).await;
    await_depth(&inside, 1).await;
    // A receiver takes the only timer, and no receiver comes after it.
    let claims = json!({ "wait_ms": 5_000 });
    inside.send("POST", "/v1/namespaces/default/queues/mail/claims", claims).await;
    await_depth(&inside, 0).await;
    let refused = inside.send("POST", &format!("{TIMERS}/b0/pause"), Value::Null).await;
    assert_eq!(refused.status, 409);
    let detail = "the timer is leased: while it is being delivered, it cannot be paused";
    assert_eq!(refused.json()["detail"], detail);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_of_a_paused_namespace_and_of_a_host_follow_cancellations() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    // No callback probes the host during the test.
    settings.caller.hosts.first_pause = Duration::from_secs(300);
    let inside = Inside::open(settings, Arc::new(MemoryStore::default()));
    assert_eq!(inside.send("PUT", "/v1/namespaces/n", json!({ "paused": true })).await.status, 201);
    for key in ["a", "b", "c"] {
        let timer = json!({ "pull": { "queue": "mail" } });
        inside.send("PUT", &format!("/v1/namespaces/n/timers/{key}"), timer).await;
    }
    await_parked(&inside, "paused", 3).await;
    for key in ["a", "b", "c"] {
        inside.send("DELETE", &format!("/v1/namespaces/n/timers/{key}"), Value::Null).await;
    }
    await_parked(&inside, "paused", 0).await;

    let away = Rough::start(Manner::Away).await;
    let waiting = |count: u64| {
        move |endpoints: &Value| {
            let items = endpoints.as_array().unwrap();
            items.iter().map(|endpoint| endpoint["parked"].as_u64().unwrap()).sum::<u64>() == count
        }
    };
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 3_600_000 } });
    let callback = async |key: String| {
        let timer =
            json!({ "callback": { "url": away.url() }, "policy": policy.clone(), "labels": ["away"] });
        assert_eq!(inside.send("PUT", &format!("{TIMERS}/{key}"), timer).await.status, 201);
    };
    for nth in 0..10 {
        callback(format!("opens{nth}")).await;
    }
    inside.until("/v1/endpoints", |endpoints| endpoints[0]["breaker"] == "open").await;
    for nth in 0..5 {
        callback(format!("waits{nth}")).await;
    }
    inside.until("/v1/endpoints", waiting(5)).await;
    let resumed = inside.send("POST", &format!("{TIMERS}/waits0/resume"), Value::Null).await;
    assert_eq!(resumed.status, 409);
    let detail = resumed.json()["detail"].as_str().unwrap().to_owned();
    let words = "the timer is not paused; it is parked for the reason host:default/";
    assert!(detail.starts_with(words), "{detail}");
    let paused = inside.send("POST", &format!("{TIMERS}/waits0/pause"), Value::Null).await;
    assert_eq!(paused.status, 200);
    inside.until("/v1/endpoints", waiting(4)).await;
    for nth in 1..5 {
        inside.send("DELETE", &format!("{TIMERS}/waits{nth}"), Value::Null).await;
    }
    inside.until("/v1/endpoints", waiting(0)).await;
    await_parked(&inside, "host", 0).await;
}
