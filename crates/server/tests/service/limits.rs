//! Tests namespaces and their limits.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use crate::receivers::{Manner, Rough};
use crate::rig::{Rig, eventually};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn set(rig: &Rig, limits: Value) {
    let (status, answer) = rig.send("PUT", "/v1/namespaces/n", limits).await;
    assert!(status.is_success(), "{answer}");
}

async fn place(rig: &Rig, key: &str, timer: Value) -> (StatusCode, Value) {
    rig.send("PUT", &format!("/v1/namespaces/n/timers/{key}"), timer).await
}

async fn count(rig: &Rig, phase: &str) -> u64 {
    rig.send("GET", "/v1/namespaces/n", Value::Null).await.1[phase].as_u64().unwrap()
}

async fn await_none(rig: &Rig) {
    eventually("no timer is left", async || {
        let (_, view) = rig.send("GET", "/v1/namespaces/n", Value::Null).await;
        (view["pending"] == 0 && view["parked"] == 0 && view["leased"] == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_are_made_shown_changed_and_removed() {
    let rig = Rig::start().await;
    let path = "/v1/namespaces/n";
    assert_eq!(rig.send("GET", path, Value::Null).await.0, StatusCode::NOT_FOUND);
    let timer = json!({ "delay_ms": 60_000, "pull": { "queue": "q" } });
    assert_eq!(place(&rig, "k", timer.clone()).await.0, StatusCode::NOT_FOUND);
    let (status, view) = rig.send("PUT", path, json!({ "max_timers": 7 })).await;
    assert_eq!((status, &view["limits"]), (StatusCode::CREATED, &json!({ "max_timers": 7 })), "{view}");
    let (status, view) = rig.send("PUT", path, json!({ "concurrency": 2 })).await;
    assert_eq!((status, &view["limits"]), (StatusCode::OK, &json!({ "concurrency": 2 })), "{view}");
    assert_eq!(place(&rig, "k", timer).await.0, StatusCode::CREATED);
    let (_, all) = rig.send("GET", "/v1/namespaces", Value::Null).await;
    let names: Vec<_> = all.as_array().unwrap().iter().map(|view| view["name"].as_str().unwrap()).collect();
    assert_eq!((names, &all[1]["pending"]), (vec!["default", "n"], &json!(1)));
    let (status, problem) = rig.send("DELETE", path, Value::Null).await;
    assert_eq!((status, &problem["type"]), (StatusCode::CONFLICT, &json!("/problems/namespace-not-empty")));
    rig.send("DELETE", "/v1/namespaces/n/timers/k", Value::Null).await;
    assert_eq!(rig.send("DELETE", path, Value::Null).await, (StatusCode::NO_CONTENT, Value::Null));
    assert_eq!(rig.send("GET", path, Value::Null).await.0, StatusCode::NOT_FOUND);
    assert_eq!(rig.send("DELETE", path, Value::Null).await.0, StatusCode::NOT_FOUND);
    assert_eq!(rig.send("DELETE", "/v1/namespaces/default", Value::Null).await.0, StatusCode::CONFLICT);
    for (name, body) in
        [("a%20b", json!({})), ("n", json!({ "rate_per_second": 0 })), ("n", json!({ "rate": 1 }))]
    {
        let (status, _) = rig.send("PUT", &format!("/v1/namespaces/{name}"), body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_of_a_namespace_keeps_the_limits_that_it_does_not_name() {
    let rig = Rig::start().await;
    let path = "/v1/namespaces/n";
    let (status, view) = rig.send("PATCH", path, json!({ "max_timers": 7 })).await;
    assert_eq!((status, &view["limits"]), (StatusCode::CREATED, &json!({ "max_timers": 7 })), "{view}");
    let hosts = json!({ "concurrency": 2, "allowed_hosts": ["A.example"], "keep_answers": true });
    for (patch, limits) in [
        (json!({}), json!({ "max_timers": 7 })),
        (
            hosts,
            json!({ "max_timers": 7, "concurrency": 2, "allowed_hosts": ["a.example"], "keep_answers": true }),
        ),
        (
            json!({ "max_timers": null, "paused": true }),
            json!({ "concurrency": 2, "allowed_hosts": ["a.example"], "paused": true, "keep_answers": true }),
        ),
        (
            json!({ "allowed_hosts": [], "paused": false, "keep_answers": false, "rate_per_second": null }),
            json!({ "concurrency": 2 }),
        ),
    ] {
        let (status, view) = rig.send("PATCH", path, patch.clone()).await;
        assert_eq!((status, &view["limits"]), (StatusCode::OK, &limits), "{view}");
        let (_, trail) = rig.send("GET", "/v1/audit?limit=1", Value::Null).await;
        let (change, left) = trail["items"][0]["detail"].as_str().unwrap().split_once("; now ").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(change).unwrap(),
            patch,
            "the trail has the change: {trail}"
        );
        let left: Value = serde_json::from_str(left).unwrap();
        assert_eq!(left, limits, "the trail has the limits that the change has left: {trail}");
    }
    for (wrong, pointer) in [
        (json!({ "rate_per_second": 0 }), "/rate_per_second"),
        (json!({ "allowed_hosts": ["a.example", "b:443"] }), "/allowed_hosts/1"),
        (json!({ "allowed_hosts": null }), "/allowed_hosts"),
        (json!({ "paused": null }), "/paused"),
        (json!({ "rate": 1 }), "/rate"),
    ] {
        let (status, problem) = rig.send("PATCH", path, wrong.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {problem}");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{wrong}: {problem}");
    }
    assert_eq!(rig.send("PATCH", "/v1/namespaces/a%20b", json!({})).await.0, StatusCode::BAD_REQUEST);
    // Changes of different limits at the same time lose none of each other.
    let fields = ["max_timers", "max_schedules", "concurrency", "max_delay_ms", "rate_per_second"];
    let patch = async |field: &str| rig.send("PATCH", path, json!({ field: 5 })).await.0;
    let statuses = futures_util::future::join_all(fields.map(patch)).await;
    assert!(statuses.iter().all(|status| *status == StatusCode::OK), "{statuses:?}");
    let (_, view) = rig.send("GET", path, Value::Null).await;
    assert!(fields.iter().all(|field| view["limits"][field] == 5), "{view}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creations_beyond_a_limit_are_refused() {
    let rig = Rig::start().await;
    set(&rig, json!({ "max_timers": 3, "max_body_bytes": 10, "max_delay_ms": 100_000 })).await;
    let timer = |delay: u64, body: &str| json!({ "delay_ms": delay, "pull": { "queue": "q", "body": body } });
    for (timer, status, kind) in [
        (timer(100_001, ""), StatusCode::UNPROCESSABLE_ENTITY, "due-too-far"),
        (
            json!({ "due": "2099-01-01T00:00:00Z", "pull": { "queue": "q" } }),
            StatusCode::UNPROCESSABLE_ENTITY,
            "due-too-far",
        ),
        (timer(1, "12345678901"), StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
        (
            json!({ "pull": { "queue": "q", "body_base64": "MTIzNDU2Nzg5MDE=" } }),
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
        ),
    ] {
        let (got, problem) = place(&rig, "k", timer).await;
        assert_eq!((got, &problem["type"]), (status, &json!(format!("/problems/{kind}"))), "{problem}");
    }
    for key in ["a", "b", "c"] {
        assert_eq!(place(&rig, key, timer(100_000, "1234567890")).await.0, StatusCode::CREATED);
    }
    let (status, problem) = place(&rig, "d", timer(1_000, "")).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("/problems/limit-reached"))
    );
    // A timer that replaces another timer does not count as a further timer.
    let mut again = timer(1_000, "");
    again["if_present"] = json!("replace");
    assert_eq!(place(&rig, "c", again).await.0, StatusCode::OK);
    rig.send("DELETE", "/v1/namespaces/n/timers/a", Value::Null).await;
    assert_eq!(place(&rig, "d", timer(1_000, "")).await.0, StatusCode::CREATED);
}

/// Each creation of a batch sees the changes before it, also when a limit is checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_timers_sees_the_changes_before_a_creation_in_its_batch() {
    let rig = Rig::start().await;
    let timer = |mode: &str| json!({ "delay_ms": 600_000, "if_present": mode, "pull": { "queue": "q" } });
    let put = |key: &str| json!({ "put": { "key": key, "timer": timer("reject") } });
    let replace = |key: &str| json!({ "put": { "key": key, "timer": timer("replace") } });
    let cancel = |key: &str| json!({ "cancel": { "key": key } });
    let shift = |key: &str| json!({ "move": { "key": key, "to": { "delay_ms": 500_000 } } });
    let batch = async |changes: Vec<Value>| -> Vec<String> {
        let changes = json!({ "changes": changes });
        let (status, answer) = rig.send("POST", "/v1/namespaces/n/batch", changes).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let word = |result: &Value| {
            let words =
                [&result["placed"]["outcome"], &result["cancelled"]["result"], &result["problem"]["type"]];
            words.into_iter().find_map(Value::as_str).unwrap_or("moved").to_owned()
        };
        answer["results"].as_array().unwrap().iter().map(word).collect()
    };
    let full = "/problems/limit-reached";
    set(&rig, json!({ "max_timers": 3 })).await;
    assert_eq!(
        batch(vec![put("a"), put("b"), put("c"), put("d")]).await,
        ["created", "created", "created", full]
    );
    // The stored timers are a, b and c.
    assert_eq!(batch(vec![cancel("a"), put("d"), put("e")]).await, ["cancelled", "created", full]);
    // b, c and d
    assert_eq!(
        batch(vec![replace("b"), replace("b"), replace("c"), put("e")]).await,
        ["replaced", "replaced", "replaced", full]
    );
    assert_eq!(
        batch(vec![replace("b"), cancel("c"), cancel("c"), put("e"), put("f")]).await,
        ["replaced", "cancelled", "not-found", "created", full]
    );
    // b, d and e
    let (_, d) = rig.send("GET", "/v1/namespaces/n/timers/d", Value::Null).await;
    let by_id = json!({ "cancel": { "id": d["id"] } });
    assert_eq!(
        batch(vec![by_id, cancel("d"), put("d"), put("f")]).await,
        ["cancelled", "not-found", "created", full]
    );
    // b, d and e
    assert_eq!(
        batch(vec![put("f"), cancel("f"), cancel("b"), put("f"), cancel("f"), put("g"), put("h")]).await,
        [full, "not-found", "cancelled", "created", "cancelled", "created", full]
    );
    // d, e and g
    set(&rig, json!({ "max_timers": 4 })).await;
    assert_eq!(
        batch(vec![shift("d"), shift("e"), shift("g"), put("h"), put("i")]).await,
        ["moved", "moved", "moved", "created", full]
    );
    assert_eq!(count(&rig, "pending").await, 4);
}

/// A delay of exactly the limit is permitted, when a timer is created and when it is moved. The part of a millisecond
/// that passes between the request and the check does not matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_of_exactly_the_limit_is_permitted() {
    const LONGEST: u64 = 36_600 * 86_400_000;
    let rig = Rig::start().await;
    let timer = |delay: u64| json!({ "delay_ms": delay, "pull": { "queue": "q" } });
    let path = "/v1/namespaces/n/timers/k";
    for (limits, longest) in [(json!({}), LONGEST), (json!({ "max_delay_ms": 100_000 }), 100_000)] {
        set(&rig, limits).await;
        for _ in 0..20 {
            assert_eq!(place(&rig, "k", timer(longest)).await.0, StatusCode::CREATED);
            let moved = rig.send("PATCH", path, json!({ "delay_ms": longest })).await;
            assert_eq!(moved.0, StatusCode::OK, "{}", moved.1);
            rig.send("DELETE", path, Value::Null).await;
        }
        assert_eq!(place(&rig, "k", timer(1)).await.0, StatusCode::CREATED);
        // The delay is above the limit by a second, since some time passes before the check.
        for refused in [
            place(&rig, "l", timer(longest + 1_000)).await,
            rig.send("PATCH", path, json!({ "delay_ms": longest + 1_000 })).await,
        ] {
            assert_eq!(refused.1["type"], "/problems/due-too-far", "{}", refused.1);
        }
        rig.send("DELETE", path, Value::Null).await;
    }
    // The last hours of the year 9999 are valid moments. They are too far away for a due moment, but may be the end of
    // a schedule.
    let far = json!({ "due": "9999-12-31T23:59:59Z", "pull": { "queue": "q" } });
    let (status, problem) = place(&rig, "k", far).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("/problems/due-too-far"))
    );
    let ends = json!({ "every_ms": 60_000, "end": "9999-12-31T23:59:59Z", "pull": { "queue": "q" } });
    let made = rig.send("PUT", "/v1/namespaces/n/schedules/s", ends).await;
    assert_eq!(
        (made.0, &made.1["schedule"]["end"]),
        (StatusCode::CREATED, &json!("9999-12-30T22:00:00.000Z")),
        "{}",
        made.1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_has_no_more_schedules_than_it_may() {
    let rig = Rig::start().await;
    set(&rig, json!({ "max_schedules": 2 })).await;
    let new = json!({ "every_ms": 60_000, "pull": { "queue": "q" } });
    let put = async |key: usize, new: &Value| {
        rig.send("PUT", &format!("/v1/namespaces/n/schedules/{key}"), new.clone()).await
    };
    // Requests at the same time cannot exceed the limit together.
    let all = [0, 1, 2, 3, 4, 5, 6, 7].map(|key| put(key, &new));
    let answers = futures_util::future::join_all(all).await;
    let made: Vec<_> = (0..8).filter(|key| answers[*key].0 == StatusCode::CREATED).collect();
    assert_eq!((made.len(), count(&rig, "schedules").await), (2, 2), "{answers:?}");
    let refused = answers.iter().find(|answer| answer.0 != StatusCode::CREATED).unwrap();
    assert_eq!(
        (refused.0, &refused.1["type"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("/problems/limit-reached"))
    );
    assert!(refused.1["detail"].as_str().unwrap().contains("`max_schedules`"), "{}", refused.1);
    // An existing schedule can be changed although the limit is reached. It counts while it is paused, too.
    let path = format!("/v1/namespaces/n/schedules/{}", made[0]);
    assert_eq!(
        put(made[0], &json!({ "every_ms": 90_000, "pull": { "queue": "q" } })).await.0,
        StatusCode::OK
    );
    assert_eq!(rig.send("PATCH", &path, json!({ "every_ms": 120_000 })).await.0, StatusCode::OK);
    assert_eq!(rig.send("POST", &format!("{path}/pause"), Value::Null).await.0, StatusCode::OK);
    assert_eq!(put(8, &new).await.0, StatusCode::TOO_MANY_REQUESTS);
    // Another namespace has its own limit.
    let other = rig.send("PUT", "/v1/namespaces/default/schedules/a", new.clone()).await;
    assert_eq!((other.0, count(&rig, "schedules").await), (StatusCode::CREATED, 2));
    assert_eq!(rig.send("DELETE", &path, Value::Null).await.0, StatusCode::OK);
    assert_eq!(put(8, &new).await.0, StatusCode::CREATED);
    let (status, problem) = rig.send("DELETE", "/v1/namespaces/n", Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
}

/// The store parks a timer (keeps it back), but the store's answer is lost. The service must find this timer again
/// without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_park_whose_answer_is_lost_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    let (namespace, path) = ("/v1/namespaces/n", "/v1/namespaces/n/timers/k");
    assert_eq!(inside.send("PUT", namespace, json!({ "paused": true })).await.status, StatusCode::CREATED);
    let timer = json!({ "delay_ms": 100, "callback": { "url": receiver.url() } });
    assert_eq!(inside.send("PUT", path, timer).await.status, StatusCode::CREATED);
    store.hook().fail(Fails::Answers);
    inside.until(path, |timer| timer["phase"] == "parked").await;
    store.hook().fail(Fails::Nothing);
    // The service tries again, and learns that the timer is not leased any more.
    inside.until("/readyz", |json| json["ok"] == true).await;
    assert_eq!(inside.send("PUT", namespace, json!({})).await.status, StatusCode::OK);
    receiver.await_requests(1).await;
}

/// Deliveries of a namespace reach the rate that its limits permit, and do not exceed the rate. The service parks the
/// timers above the rate, and does not claim them again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_of_a_namespace_is_kept_and_used() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    set(&rig, json!({ "rate_per_second": 40 })).await;
    let timer = json!({ "callback": { "url": receiver.url() } });
    for key in 0..100 {
        assert_eq!(place(&rig, &key.to_string(), timer.clone()).await.0, StatusCode::CREATED);
    }
    let requests = receiver.await_requests(100).await;
    await_none(&rig).await;
    let at: Vec<_> = requests.iter().map(|request| request.at).collect();
    let second = Duration::from_secs(1);
    let most = (0..at.len()).map(|i| at[i..].iter().filter(|other| **other < at[i] + second).count()).max();
    // A request that is delayed on its way arrives closer to the next request. So the bounds are wide.
    assert!((30..=46).contains(&most.unwrap()), "{most:?} within a second");
    let took = *at.last().unwrap() - at[0];
    assert!((2.2..4.0).contains(&took.as_secs_f64()), "100 at 40 a second: {took:?}");
    assert_eq!(receiver.requests().len(), 100);
    let service = rig.service.clone();
    let stats = tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap().unwrap();
    assert!(stats.parked < 150, "a timer is put off about once: {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_deliveries_run_than_the_namespace_permits_and_others_are_not_held_up() {
    let rig = Rig::start().await;
    let answer = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let slow = Rough::start(Manner::Answer(answer, Duration::from_millis(30))).await;
    let quick = Rough::start(Manner::answer("200 OK", "")).await;
    set(&rig, json!({ "concurrency": 3 })).await;
    for key in 0..60 {
        place(&rig, &key.to_string(), json!({ "callback": { "url": slow.url() } })).await;
    }
    let other = json!({ "callback": { "url": quick.url() } });
    rig.send("POST", "/v1/namespaces/default/timers", other).await;
    quick.await_requests(1).await;
    slow.await_requests(60).await;
    await_none(&rig).await;
    assert_eq!((slow.requests().len(), slow.most_at_a_time()), (60, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_namespace_holds_timers_back_and_loses_none() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    set(&rig, json!({ "paused": true })).await;
    let timer = json!({ "callback": { "url": receiver.url() } });
    for key in 0..30 {
        assert_eq!(place(&rig, &key.to_string(), timer.clone()).await.0, StatusCode::CREATED);
    }
    eventually("all are parked", async || (count(&rig, "parked").await == 30).then_some(())).await;
    let (_, parked) = rig.send("GET", "/v1/namespaces/n/timers/7", Value::Null).await;
    assert_eq!((&parked["reason"], &parked["deliveries"]), (&json!("paused:n"), &json!(0)), "{parked}");
    let (_, cancelled) = rig.send("DELETE", "/v1/namespaces/n/timers/29", Value::Null).await;
    assert_eq!(cancelled["result"], "cancelled");
    set(&rig, json!({})).await;
    receiver.await_requests(29).await;
    await_none(&rig).await;

    // The namespace is paused and resumed again and again while timers become due. A timer whose parking is stored
    // after the resumption must go on, too.
    for round in 0..10 {
        set(&rig, json!({ "paused": true })).await;
        for key in 0..5 {
            place(&rig, &format!("{round}-{key}"), timer.clone()).await;
        }
        set(&rig, json!({})).await;
    }
    receiver.await_requests(29 + 50).await;
    await_none(&rig).await;

    // The limits change while the service is stopped, so the service does not see the resumption.
    set(&rig, json!({ "paused": true })).await;
    for key in 0..700 {
        place(&rig, &key.to_string(), timer.clone()).await;
    }
    eventually("all are parked", async || (count(&rig, "parked").await == 700).then_some(())).await;
    let rig = rig
        .restart_after(|folder| {
            let path = folder.join("namespaces.json");
            let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            file["n"]["limits"]["paused"] = json!(false);
            std::fs::write(&path, file.to_string()).unwrap();
        })
        .await;
    receiver.await_requests(79 + 700).await;
    await_none(&rig).await;
    assert_eq!(receiver.requests().len(), 779);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_always_gets_a_new_secret_and_the_last_ten_sign() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let path = "/v1/namespaces/default/secrets";
    for round in 0..12 {
        let made = inside.send("POST", path, Value::Null).await;
        assert_eq!(made.status, 201, "round {round}: {}", made.json());
    }
    let view = inside.send("GET", "/v1/namespaces/default", Value::Null).await.json();
    let secrets = view["secrets"].as_array().unwrap();
    assert_eq!(secrets.len(), 10, "{view}");
    assert!(secrets[0]["until"].is_null() && secrets[1..].iter().all(|secret| secret["until"].is_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_large_timers_is_short_and_the_pages_have_all() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let body = "x".repeat(60_000);
    let timer = json!({ "delay_ms": 600_000, "pull": { "queue": "q", "body": body } });
    for key in 0..170 {
        let path = format!("/v1/namespaces/default/timers/{key}");
        assert_eq!(inside.send("PUT", &path, timer.clone()).await.status, 201);
    }
    let (mut keys, mut pages, mut cursor) = (std::collections::BTreeSet::new(), 0, String::new());
    loop {
        let path = format!("/v1/namespaces/default/timers?limit=200{cursor}");
        let answer = inside.send("GET", &path, Value::Null).await;
        assert!(answer.status == 200 && answer.bytes.len() < 4 << 20, "{} bytes", answer.bytes.len());
        let page = answer.json();
        keys.extend(page["items"].as_array().unwrap().iter().map(|timer| timer["key"].to_string()));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(keys.len(), 170, "{keys:?}");
    assert!(pages < 10, "{pages}");
}
