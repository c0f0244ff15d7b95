//! Tests idempotency keys, and creations with an unknown outcome.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use crate::schedules::interposed;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::store::{Call, Durability, Op, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::TimerId;

const TIMERS: &str = "/v1/namespaces/default/timers";

fn timer(delay_ms: u64) -> Value {
    json!({ "delay_ms": delay_ms, "callback": { "url": "http://127.0.0.1:9999/", "json": { "n": 17 } } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_makes_one_timer_and_another_request_with_the_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let key = [("idempotency-key", "order 17")];
    let first = inside.with("POST", TIMERS, &key, timer(60_000)).await;
    assert_eq!((first.status.as_u16(), &first.json()["outcome"]), (201, &json!("created")));
    let id = first.json()["id"].clone();

    // The order of an object's members does not matter.
    let mut same = timer(60_000);
    same["callback"] = json!({ "json": { "n": 17 }, "url": "http://127.0.0.1:9999/" });
    for again in [timer(60_000), same] {
        let again = inside.with("POST", TIMERS, &key, again).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, json!({ "id": id, "outcome": "repeated" })));
    }

    for other in [timer(60_001), json!({ "delay_ms": 60_000, "pull": { "queue": "q" } })] {
        let refused = inside.with("POST", TIMERS, &key, other).await;
        assert_eq!(refused.problem(), (422, "idempotency-mismatch".to_owned()));
    }
    // The timer's own key is part of the request. So the same timer with a key is a different request.
    let refused = inside.with("PUT", &format!("{TIMERS}/k"), &key, timer(60_000)).await;
    assert_eq!(refused.problem(), (422, "idempotency-mismatch".to_owned()));
    assert_eq!(inside.send("GET", TIMERS, Value::Null).await.json()["items"].as_array().unwrap().len(), 1);

    // Moving a timer changes the timer. But the creation of the timer is still the same request.
    let path = format!("/v1/namespaces/default/ids/{}", id.as_str().unwrap());
    assert_eq!(inside.send("PATCH", &path, json!({ "delay_ms": 90_000 })).await.status, 200);
    let again = inside.with("POST", TIMERS, &key, timer(60_000)).await;
    assert_eq!(again.json()["outcome"], "repeated");

    // After the end of the timer, its creation may still be repeated.
    assert_eq!(inside.send("DELETE", &path, Value::Null).await.json()["result"], "cancelled");
    let again = inside.with("POST", TIMERS, &key, timer(60_000)).await;
    assert_eq!(again.json(), json!({ "id": id, "outcome": "repeated" }));
    let refused = inside.with("POST", TIMERS, &key, timer(60_001)).await;
    assert_eq!(refused.problem(), (422, "idempotency-mismatch".to_owned()));
    assert_eq!(inside.send("GET", &path, Value::Null).await.status, 404);
}

/// The store remembers no id of a request that has kept another timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_kept_another_timer_passes_no_limit_when_it_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let (namespace, timers) = ("/v1/namespaces/n", "/v1/namespaces/n/timers");
    assert_eq!(inside.send("PUT", namespace, json!({ "max_timers": 2 })).await.status, 201);
    let path = format!("{timers}/k");
    let mut keep = timer(60_000);
    keep["if_present"] = json!("keep");
    let key = [("idempotency-key", "order 17")];
    assert_eq!(inside.send("PUT", &path, timer(60_000)).await.status, 201);
    assert_eq!(inside.with("PUT", &path, &key, keep.clone()).await.json()["outcome"], "kept");
    assert_eq!(inside.send("DELETE", &path, Value::Null).await.status, 200);
    assert_eq!(inside.send("PUT", namespace, json!({ "max_timers": 0 })).await.status, 200);
    let again = inside.with("PUT", &path, &key, keep).await;
    assert_eq!(again.problem(), (429, "limit-reached".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_has_the_first_answer_although_the_namespace_is_full_by_now() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let (namespace, timers) = ("/v1/namespaces/n", "/v1/namespaces/n/timers");
    assert_eq!(inside.send("PUT", namespace, json!({ "max_timers": 1 })).await.status, 201);
    let key = [("idempotency-key", "order 17")];
    let first = inside.with("POST", timers, &key, timer(60_000)).await.json();
    let path = format!("{namespace}/ids/{}", first["id"].as_str().unwrap());
    assert_eq!(inside.send("DELETE", &path, Value::Null).await.json()["result"], "cancelled");
    // Now another timer fills the namespace, and the limits would refuse the request. A repetition is still answered.
    assert_eq!(inside.send("POST", timers, timer(60_000)).await.status, 201);
    let narrow =
        json!({ "max_timers": 1, "max_delay_ms": 1, "max_body_bytes": 1, "allowed_hosts": ["a.example"] });
    assert_eq!(inside.send("PUT", namespace, narrow).await.status, 200);
    let again = inside.with("POST", timers, &key, timer(60_000)).await;
    let repeated = json!({ "id": first["id"], "outcome": "repeated" });
    assert_eq!((again.status.as_u16(), again.json()), (200, repeated.clone()));
    let put = json!({ "put": { "idempotency_key": "order 17", "timer": timer(60_000) } });
    let batch = inside.send("POST", &format!("{namespace}/batch"), json!({ "changes": [put] })).await.json();
    assert_eq!(batch["results"][0]["placed"], repeated, "{batch}");
    let other = inside.with("POST", timers, &key, timer(60_001)).await;
    assert_eq!(other.problem(), (422, "idempotency-mismatch".to_owned()));
    let refused = inside.with("POST", timers, &[("idempotency-key", "other")], timer(60_000)).await;
    assert_eq!(refused.problem().0, 422, "another request is not admitted");
    let view = inside.send("GET", namespace, Value::Null).await.json();
    assert_eq!(view["pending"], 1, "{view}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_the_requests_of_timers_that_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let mut ids = json!({});
    for (key, method, path) in [("stored", "POST", ""), ("ended", "POST", ""), ("named", "PUT", "/k")] {
        let header = [("idempotency-key", key)];
        let made = inside.with(method, &format!("{TIMERS}{path}"), &header, timer(60_000)).await;
        ids[key] = made.json()["id"].clone();
        if key != "stored" {
            let path = format!("/v1/namespaces/default/ids/{}", ids[key].as_str().unwrap());
            inside.send("DELETE", &path, Value::Null).await;
        }
        if key == "named" {
            let again = inside.with(method, &format!("{TIMERS}{path}"), &header, timer(60_000)).await;
            assert_eq!(again.json()["key"], "k", "the request is remembered");
        }
    }
    inside.stop().await;

    let inside = Inside::on(&folder, store);
    let again =
        async |key, delay| inside.with("POST", TIMERS, &[("idempotency-key", key)], timer(delay)).await;
    assert_eq!(again("stored", 1).await.problem(), (422, "idempotency-mismatch".to_owned()));
    assert_eq!(again("stored", 60_000).await.json()["outcome"], "repeated");
    // The repetition makes no second timer. The service has forgotten the first request, as the document says. So it
    // does not refuse a different request with the same key, and does not say that the timer had the key of this one.
    assert_eq!(again("ended", 60_000).await.json()["outcome"], "repeated");
    for (path, key) in [(format!("{TIMERS}/other"), "ended"), (format!("{TIMERS}/k"), "named")] {
        let again = inside.with("PUT", &path, &[("idempotency-key", key)], timer(60_000)).await;
        assert_eq!(
            (again.status.as_u16(), again.json()),
            (200, json!({ "id": ids[key], "outcome": "repeated" }))
        );
        assert_eq!(inside.send("GET", &path, Value::Null).await.status, 404, "no timer is made");
    }
    assert_eq!(inside.send("GET", TIMERS, Value::Null).await.json()["items"].as_array().unwrap().len(), 1);
}

/// A restart stands for the hour after which the memory of a request ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_outlives_the_memory_of_its_request_is_remembered_again_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let send = async |inside: &Inside, key: &str, body: &str| {
        let timer = json!({ "pull": { "queue": "q", "body": body }, "labels": [key] });
        inside.with("POST", TIMERS, &[("idempotency-key", key)], timer).await
    };
    let keys = ["cancelled", "cancelled in bulk", "acknowledged"];
    let mut ids = Vec::new();
    for key in keys {
        ids.push(send(&inside, key, "first").await.json()["id"].as_str().unwrap().to_owned());
    }
    inside.stop().await;

    let inside = Inside::on(&folder, store);
    let path = |id: &str| format!("/v1/namespaces/default/ids/{id}");
    assert_eq!(inside.send("DELETE", &path(&ids[0]), Value::Null).await.json()["result"], "cancelled");
    let bulk = json!({ "label": keys[1] });
    let begun = inside.send("POST", "/v1/namespaces/default/cancellations", bulk).await;
    assert_eq!(begun.status, 202);
    // The operation remembers the request after the store has cancelled the timer.
    inside.until(begun.header("location"), |operation| operation["state"] == "done").await;
    assert_eq!(inside.send("GET", &path(&ids[1]), Value::Null).await.status, 404);
    let queue = "/v1/namespaces/default/queues/q/claims";
    let claims = inside.send("POST", queue, json!({ "wait_ms": 20_000 })).await.json();
    let ack = format!("/v1/namespaces/default/claims/{}/ack", claims["claims"][0]["claim"].as_str().unwrap());
    assert_eq!(inside.send("POST", &ack, Value::Null).await.status, 204);
    for key in keys {
        let other = send(&inside, key, "other").await;
        assert_eq!(other.problem(), (422, "idempotency-mismatch".to_owned()), "{key}");
        assert_eq!(send(&inside, key, "first").await.json()["outcome"], "repeated");
    }
}

/// A restart stands for the hour after which the memory of a request ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_is_cancelled_before_its_delivery_has_started_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    let key = [("idempotency-key", "order 17")];
    let timer = |delay: u64| json!({ "delay_ms": delay, "pull": { "queue": "q" } });
    let first = inside.with("POST", TIMERS, &key, timer(3_600_000)).await.json();
    drop(inside);
    let inside = Inside::on(&folder, Arc::clone(&store) as Arc<dyn TimerStore>);
    let id: TimerId = first["id"].as_str().unwrap().parse().unwrap();
    let inner = Arc::clone(store.inner());
    let parks =
        |call: Call<'_>| matches!(call, Call::Apply(ops) if ops.iter().any(|op| matches!(op, Op::Park(..))));
    store.hook().at(parks, 0, move || {
        let cancel = inner.apply(vec![Op::Cancel(id.into(), None)], Durability::Volatile);
        pollster::block_on(cancel).unwrap();
    });
    // No receiver fetches the timer, so its delivery ends before it has started.
    let path = format!("/v1/namespaces/default/ids/{id}");
    assert_eq!(inside.send("PATCH", &path, json!({ "delay_ms": 0 })).await.status, 200);
    inside.until(&format!("{path}/past"), |past| past["end"]["how"] == "cancelled").await;
    assert_eq!(inside.send("GET", &path, Value::Null).await.status, 404);
    let refused = inside.with("POST", TIMERS, &key, timer(3_600_001)).await;
    assert_eq!(refused.problem(), (422, "idempotency-mismatch".to_owned()));
}

/// A restart stands for the hour after which the memory of a request ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_delivery_is_remembered_only_if_its_timer_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let send = async |inside: &Inside, key: &str, body: &str| {
        let policy = json!({ "guarantee": if key == "once" { "at-most-once" } else { "at-least-once" } });
        let timer = json!({ "pull": { "queue": key, "body": body }, "policy": policy });
        inside.with("POST", TIMERS, &[("idempotency-key", key)], timer).await
    };
    let keys = ["again", "once", "withdrawn"];
    let mut paths = Vec::new();
    for key in keys {
        let id = send(&inside, key, "first").await.json()["id"].as_str().unwrap().to_owned();
        paths.push(format!("/v1/namespaces/default/ids/{id}"));
    }
    inside.stop().await;

    let inside = Inside::on(&folder, store);
    for (key, path) in keys.into_iter().zip(&paths) {
        let queue = format!("/v1/namespaces/default/queues/{key}/claims");
        let claims = inside.send("POST", &queue, json!({ "wait_ms": 20_000 })).await.json();
        let claim = claims["claims"][0]["claim"].as_str().unwrap();
        if key == "withdrawn" {
            assert_eq!(inside.send("DELETE", path, Value::Null).await.json()["result"], "in-flight");
        }
        let nack = format!("/v1/namespaces/default/claims/{claim}/nack");
        assert_eq!(inside.send("POST", &nack, json!({ "error": "no" })).await.status, 204);
        let page = inside.send("GET", "/metrics", Value::Null).await.bytes;
        let known = usize::from(key == "once") + 2 * usize::from(key == "withdrawn");
        let line = format!("\ntourbillon_idempotency_keys {known}\n");
        assert!(String::from_utf8(page).unwrap().contains(&line), "{key}");
    }
    for key in keys {
        let other = send(&inside, key, "other").await;
        assert_eq!(other.problem(), (422, "idempotency-mismatch".to_owned()), "{key}");
    }
}

/// A restart stands for the hour after which the memory of a request ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skipped_timer_is_remembered() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(Faulty::default()));
    let inside = Inside::on(&folder, store.clone());
    let guarantees = ["at-least-once", "at-most-once"];
    let send = async |inside: &Inside, guarantee: &str, body: &str| {
        let policy = json!({ "guarantee": guarantee, "misfire_within_ms": 100 });
        let pull = json!({ "queue": "q", "body": body });
        let timer = json!({ "delay_ms": 200, "pull": pull, "policy": policy });
        inside.with("POST", TIMERS, &[("idempotency-key", guarantee)], timer).await
    };
    for guarantee in guarantees {
        let placed = send(&inside, guarantee, "first").await;
        assert_eq!(placed.status, 201, "{placed:?}");
    }
    inside.stop().await;
    tokio::time::sleep(Duration::from_millis(600)).await;

    let inside = Inside::on(&folder, store);
    inside.until("/v1/stats", |stats| stats["pending"] == 0).await;
    for guarantee in guarantees {
        let other = send(&inside, guarantee, "other").await;
        assert_eq!(other.problem(), (422, "idempotency-mismatch".to_owned()), "{guarantee}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_with_one_key_at_the_same_time_make_one_timer() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Arc::new(Inside::start(&folder));
    for round in 0..50 {
        let key = format!("round {round}");
        let both = [0, 1].map(|_| {
            let (inside, key) = (Arc::clone(&inside), key.clone());
            tokio::spawn(async move {
                inside.with("POST", TIMERS, &[("idempotency-key", &key)], timer(60_000)).await
            })
        });
        let mut ids = Vec::new();
        for answer in both {
            let answer = answer.await.unwrap();
            if answer.status == 409 {
                assert_eq!(answer.problem().1, "idempotency-in-progress");
                assert_eq!(answer.header("retry-after"), "1");
            } else {
                ids.push(answer.json()["id"].clone());
            }
        }
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
    }
    let stats = inside.send("GET", "/v1/stats", Value::Null).await.json();
    assert_eq!((&stats["created"], &stats["pending"]), (&json!(50), &json!(50)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_is_not_known_is_called_so_and_the_request_may_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    store.hook().fail(Fails::Answers);
    let key = [("idempotency-key", "k")];
    let lost = inside.with("POST", TIMERS, &key, timer(60_000)).await;
    assert_eq!(lost.problem(), (503, "store-unavailable".to_owned()));
    assert_eq!(lost.json()["outcome"], "unknown");
    assert_eq!(lost.header("retry-after"), "1");
    for (method, path, body) in [
        ("DELETE", format!("{TIMERS}/k"), Value::Null),
        (
            "POST",
            "/v1/namespaces/default/batch".to_owned(),
            json!({ "changes": [{ "cancel": { "key": "k" } }] }),
        ),
    ] {
        let lost = inside.send(method, &path, body).await;
        assert_eq!((lost.problem().0, &lost.json()["outcome"]), (503, &json!("unknown")));
    }

    store.hook().fail(Fails::Nothing);
    let again = inside.with("POST", TIMERS, &key, timer(60_000)).await;
    assert_eq!((again.status.as_u16(), &again.json()["outcome"]), (200, &json!("repeated")));

    // If the store fails before the change, the outcome is known.
    for (kind, status, word) in
        [(StoreErrorKind::Full, 507, "storage-full"), (StoreErrorKind::ReadOnly, 503, "read-only")]
    {
        store.hook().fail(Fails::Changes(kind, 0));
        let refused = inside.with("POST", TIMERS, &[("idempotency-key", "other")], timer(60_000)).await;
        assert_eq!(refused.problem(), (status, word.to_owned()));
        assert_eq!(refused.json().get("outcome"), None);
    }
    store.hook().fail(Fails::Nothing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_answers_each_change_and_obeys_idempotency_keys() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let batch = "/v1/namespaces/default/batch";
    let other = inside.send("PUT", &format!("{TIMERS}/other"), timer(60_000)).await.json();
    let changes = json!([
        { "put": { "key": "a", "timer": timer(60_000) } },
        { "put": { "key": "a", "timer": timer(60_000) } },
        { "put": { "key": "other", "timer": { "delay_ms": 1_000_000, "pull": { "queue": "no queue" } } } },
        { "put": { "idempotency_key": "i", "timer": timer(60_000) } },
        { "put": { "idempotency_key": "i", "timer": timer(60_000) } },
        { "move": { "key": "a", "to": { "delay_ms": 90_000 } } },
        { "move": { "id": other["id"], "to": {} } },
        { "move": { "key": "none", "to": { "delay_ms": 1 } } },
        { "cancel": { "id": other["id"] } },
        { "cancel": { "key": "none" } },
        { "cancel": { "key": "a", "id": other["id"] } },
        { "move": { "key": "a", "to": { "delay_ms": 9_000_000_000_000_u64 } } },
        { "cancel": { "id": "no id" } },
        { "put": { "key": "k".repeat(256), "timer": timer(60_000) } },
        { "put": { "timer": { "callback": { "url": "nonsense" } } } },
        { "put": { "timer": { "due": "2040-01-01T00:00:00Z", "delay_ms": 1, "pull": { "queue": "q" } } } },
    ]);
    let answer = inside.send("POST", batch, json!({ "changes": changes.clone() })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let results = answer.json()["results"].as_array().unwrap().clone();
    let problem = |index: usize| {
        let problem = &results[index]["problem"];
        (problem["type"].as_str().unwrap_or("").to_owned(), problem["errors"][0]["pointer"].clone())
    };
    assert_eq!(results[0]["placed"]["outcome"], "created");
    assert_eq!(problem(1), ("/problems/key-exists".to_owned(), Value::Null));
    assert_eq!(problem(2), ("/problems/bad-request".to_owned(), json!("/changes/2/put/timer/pull/queue")));
    assert_eq!(results[3]["placed"]["outcome"], "created");
    assert_eq!(problem(4).0, "/problems/idempotency-in-progress");
    assert_eq!(results[5]["changed"]["id"], results[0]["placed"]["id"]);
    assert_eq!(problem(6), ("/problems/bad-request".to_owned(), json!("/changes/6/move/to")));
    assert_eq!(problem(7).0, "/problems/not-found");
    assert_eq!(results[8]["cancelled"]["result"], "cancelled");
    assert_eq!(results[9]["cancelled"]["result"], "not-found");
    assert_eq!(problem(10), ("/problems/bad-request".to_owned(), json!("/changes/10/cancel")));
    assert_eq!(problem(11).0, "/problems/due-too-far");
    assert_eq!(problem(12), ("/problems/bad-request".to_owned(), json!("/changes/12/cancel/id")));
    assert_eq!(problem(13), ("/problems/too-large".to_owned(), json!("/changes/13/put/key")));
    assert_eq!(
        problem(14),
        ("/problems/bad-request".to_owned(), json!("/changes/14/put/timer/callback/url"))
    );
    assert_eq!(problem(15), ("/problems/bad-request".to_owned(), json!("/changes/15/put/timer")));
    let request = json!({ "changes": changes });
    for result in &results {
        let pointer = result["problem"]["errors"][0]["pointer"].as_str();
        let is_there = pointer.is_none_or(|pointer| request.pointer(pointer).is_some());
        assert!(is_there, "no field is at {pointer:?}");
    }

    let again = json!({ "changes": [
        { "put": { "idempotency_key": "i", "timer": timer(60_000) } },
        { "put": { "idempotency_key": "i", "timer": timer(60_000) } },
    ] });
    let again = inside.send("POST", batch, again).await.json();
    assert_eq!(again["results"][0]["placed"]["outcome"], "repeated");
    assert_eq!(again["results"][0]["placed"]["id"], results[3]["placed"]["id"]);
    let mismatch = json!({ "changes": [{ "put": { "idempotency_key": "i", "timer": timer(1) } }] });
    let mismatch = inside.send("POST", batch, mismatch).await.json();
    assert_eq!(mismatch["results"][0]["problem"]["type"], "/problems/idempotency-mismatch");

    let a = inside.send("GET", &format!("{TIMERS}/a"), Value::Null).await.json();
    assert_eq!(a["id"], results[0]["placed"]["id"]);
    let many = json!({ "changes": vec![json!({ "cancel": { "key": "k" } }); 1_001] });
    assert_eq!(inside.send("POST", batch, many).await.problem(), (413, "too-large".to_owned()));
    assert_eq!(inside.send("POST", batch, json!({ "changes": [] })).await.json(), json!({ "results": [] }));
}
