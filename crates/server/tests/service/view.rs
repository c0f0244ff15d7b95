//! Tests the reports for people: the histories of timers, the hosts, the service's history, and the timers to come.

use crate::inside::Inside;
use crate::operating::{number, scrape};
use crate::receivers::{Manner, Rough};
use crate::rig::{Receiver, Rig, eventually};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_api::Moment;
use tourbillon_durable::store::{Claimant, Limit, MemoryStore, TimerStore as _};

const TIMERS: &str = "/v1/namespaces/default/timers";

fn past(id: &Value) -> String {
    format!("/v1/namespaces/default/ids/{}/past", id.as_str().unwrap())
}

/// Waits until the service's record of a timer's past says how the timer ended. Returns the record.
async fn ended(rig: &Rig, id: &Value) -> Value {
    eventually("the end", async || {
        let (_, past) = rig.send("GET", &past(id), Value::Null).await;
        past["end"].is_object().then_some(past)
    })
    .await
}

fn at(value: &Value) -> u64 {
    let moment: Moment = value.as_str().unwrap_or_else(|| panic!("{value} is no moment")).parse().unwrap();
    moment.as_millis()
}

/// Tests timers that no longer have their key during their delivery: a timer that is delivered at most once, and a
/// timer that was cancelled. Their past is found by the key and by the id, until another timer takes the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_has_left_its_key_during_its_delivery_has_a_past() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let hangs = Rough::start(Manner::Hang).await;
    let hangs = json!({ "url": hangs.url() });
    for (guarantee, is_pull) in
        [("at-least-once", false), ("at-most-once", false), ("at-least-once", true), ("at-most-once", true)]
    {
        let key = format!("{guarantee}-{is_pull}");
        let path = format!("{TIMERS}/{key}");
        let mut timer = json!({ "policy": { "guarantee": guarantee } });
        let (kind, work) =
            if is_pull { ("pull", json!({ "queue": "q" })) } else { ("callback", hangs.clone()) };
        timer[kind] = work;
        let placed = inside.send("PUT", &path, timer.clone()).await.json();
        if is_pull {
            let claims = json!({ "wait_ms": 9_000 });
            inside.send("POST", "/v1/namespaces/default/queues/q/claims", claims).await;
        }
        let is_under_way = |past: &Value| past["attempts"][0]["started"].is_string();
        inside.until(&past(&placed["id"]), is_under_way).await;
        if guarantee == "at-least-once" {
            let cancelled = inside.send("DELETE", &path, Value::Null).await.json();
            assert_eq!(cancelled["result"], "in-flight", "{key}");
        }
        for name in [format!("{path}/past"), past(&placed["id"])] {
            let seen = inside.send("GET", &name, Value::Null).await;
            assert_eq!(seen.status, 200, "{name}");
            let seen = seen.json();
            assert_eq!(
                (&seen["id"], &seen["phase"], &seen["key"]),
                (&placed["id"], &json!("leased"), &json!(key))
            );
            assert!(is_under_way(&seen) && seen["end"].is_null(), "{seen}");
        }
        let other = "/v1/namespaces/other";
        inside.send("PUT", other, json!({})).await;
        for name in [format!("{other}/timers/{key}/past"), past(&placed["id"]).replace("default", "other")] {
            assert_eq!(inside.send("GET", &name, Value::Null).await.status, 404, "{name}");
        }
        // The key names the timer that had it last.
        timer["delay_ms"] = json!(3_600_000);
        let second = inside.send("PUT", &path, timer).await.json();
        inside.send("DELETE", &path, Value::Null).await;
        let seen = inside.send("GET", &format!("{path}/past"), Value::Null).await.json();
        assert_eq!((&seen["id"], &seen["end"]["how"]), (&second["id"], &json!("cancelled")), "{key}");
    }
}

/// After a timer's end, the record of its past has the moments of each attempt. The record also says why the receiver
/// may have got the timer twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_has_ended_has_its_attempts_and_the_cause_of_a_duplicate() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::Reset).await;
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 200 }, "attempts": 9 });
    let timer = json!({ "callback": { "url": receiver.url() }, "policy": policy });
    let (_, placed) = rig.send("PUT", &format!("{TIMERS}/k"), timer).await;
    let id = &placed["id"];
    receiver.await_requests(1).await;
    receiver.behave(Manner::answer("500 Bad", ""));
    receiver.await_requests(2).await;
    receiver.behave(Manner::answer("200 OK", ""));
    let past = ended(&rig, id).await;
    assert_eq!(
        (&past["phase"], &past["end"]["how"], &past["key"]),
        (&json!("done"), &json!("delivered"), &json!("k"))
    );
    let attempts = past["attempts"].as_array().unwrap();
    assert!(attempts.len() >= 3, "{past}");
    assert_eq!(past["deliveries"], attempts.len() as u64);
    // The scheduled moment is that of the request, which is slightly before the store's own moments.
    let mut before = at(&past["scheduled"]);
    assert!(at(&attempts[0]["claimed"]) >= at(&past["created"]) && past.get("due").is_none(), "{past}");
    for (number, attempt) in (1..).zip(attempts) {
        assert_eq!((&attempt["attempt"], &attempt["delivery"]), (&json!(number), &json!(number)), "{past}");
        for moment in ["due", "claimed", "started", "ended"] {
            assert!(at(&attempt[moment]) >= before, "{moment}: {past}");
            before = at(&attempt[moment]);
        }
        assert_eq!(attempt["late_ms"], at(&attempt["started"]) - at(&attempt["due"]), "{past}");
        let is_last = number == attempts.len();
        assert_eq!(attempt["outcome"], if is_last { "delivered" } else { "failed" }, "{past}");
        assert_eq!(attempt.get("answer"), None, "answers are not kept unless the namespace wants it: {past}");
    }
    let (first, last) = (&attempts[0], &attempts[attempts.len() - 1]);
    assert_eq!((&first["may_repeat"], &first["status"]), (&json!("no-answer"), &Value::Null), "{past}");
    assert!(first["error"].as_str().unwrap().contains("the connection failed"), "{past}");
    assert_eq!(
        (&last["status"], &last["may_repeat"], &last["error"]),
        (&json!(200), &Value::Null, &Value::Null)
    );
    let failed = attempts.iter().find(|attempt| attempt["status"] == 500).unwrap();
    assert_eq!(failed["error"], "the receiver answered 500 Internal Server Error", "{past}");
    assert_eq!(failed["may_repeat"], Value::Null, "an answer is no reason for a duplicate");
    assert!(at(&past["end"]["at"]) >= at(&last["started"]));
    let (status, _) = rig.send("GET", &past_of("other", id), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    rig.send("PUT", "/v1/namespaces/other", json!({})).await;
    let (status, _) = rig.send("GET", &past_of("other", id), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "another namespace's past is not shown");
}

fn past_of(namespace: &str, id: &Value) -> String {
    format!("/v1/namespaces/{namespace}/ids/{}/past", id.as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_is_named_and_answers_are_kept_only_where_they_are_wanted() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::answer("410 Gone", "")).await;
    let far = json!({ "delay_ms": 600_000, "callback": { "url": receiver.url() }, "if_present": "replace" });
    let put = async |key: &str| rig.send("PUT", &format!("{TIMERS}/{key}"), far.clone()).await.1;

    let cancelled = put("a").await["id"].clone();
    let (_, living) = rig.send("GET", &past(&cancelled), Value::Null).await;
    assert_eq!(
        (&living["phase"], &living["attempts"], &living["end"]),
        (&json!("pending"), &json!([]), &Value::Null)
    );
    assert_eq!(living["due"], living["scheduled"]);
    rig.send("DELETE", &format!("{TIMERS}/a"), Value::Null).await;
    let past_of_it = ended(&rig, &cancelled).await;
    assert_eq!((&past_of_it["phase"], &past_of_it["end"]["how"]), (&json!("withdrawn"), &json!("cancelled")));
    assert_eq!(
        (&past_of_it["created"], &past_of_it["scheduled"]),
        (&living["created"], &living["scheduled"])
    );

    let replaced = put("b").await["id"].clone();
    let by = put("b").await["id"].clone();
    let past_of_it = ended(&rig, &replaced).await;
    assert_eq!((&past_of_it["end"]["how"], &past_of_it["end"]["detail"]), (&json!("replaced"), &by));

    let due = json!({ "callback": { "url": receiver.url() } });
    let dead = rig.send("POST", TIMERS, due.clone()).await.1["id"].clone();
    let past_of_it = ended(&rig, &dead).await;
    assert_eq!((&past_of_it["phase"], &past_of_it["end"]["how"]), (&json!("dead"), &json!("dead")));
    assert!(past_of_it["end"]["detail"].as_str().unwrap().contains("410"), "{past_of_it}");
    let attempts = eventually("the attempt", async || {
        let (_, past) = rig.send("GET", &past(&dead), Value::Null).await;
        past["attempts"].as_array().filter(|attempts| attempts.len() == 1).cloned()
    })
    .await;
    assert_eq!((&attempts[0]["outcome"], &attempts[0]["status"]), (&json!("dead"), &json!(410)));

    // After a replay to a receiver that works, the timer has another end.
    receiver.behave(Manner::answer("200 OK", ""));
    rig.send("PUT", "/v1/namespaces/default", json!({ "keep_answers": true })).await;
    let replay = format!("/v1/namespaces/default/ids/{}/replay", dead.as_str().unwrap());
    assert_eq!(rig.send("POST", &replay, Value::Null).await.0, StatusCode::OK);
    let past_of_it = eventually("the end", async || {
        let (_, past) = rig.send("GET", &past(&dead), Value::Null).await;
        (past["end"]["how"] == "delivered").then_some(past)
    })
    .await;
    assert_eq!(past_of_it["attempts"][1]["answer"], "not today", "{past_of_it}");

    let unknown = json!("01935560-1c40-7a5e-8b6c-2f9a3d1e4b70");
    assert_eq!(rig.send("GET", &past(&unknown), Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_whose_only_delivery_failed_has_not_been_delivered() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::answer("500 Bad", "")).await;
    for (status, error) in [("500 Bad", "500"), ("410 Gone", "410")] {
        receiver.behave(Manner::answer(status, ""));
        let policy = json!({ "guarantee": "at-most-once" });
        let timer = json!({ "callback": { "url": receiver.url() }, "policy": policy });
        let id = rig.send("POST", TIMERS, timer).await.1["id"].clone();
        let past = ended(&rig, &id).await;
        assert_eq!((&past["phase"], &past["end"]["how"]), (&json!("done"), &json!("failed")), "{past}");
        assert_eq!(past["attempts"][0]["outcome"], "failed", "{past}");
        assert!(past["end"]["detail"].as_str().unwrap().contains(error), "{past}");
    }
}

/// A token for reading shows a timer's past without the receiver's answers. So no other part of the past or of the
/// timer may repeat an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_of_a_receiver_is_in_no_error() {
    let rig = Rig::start().await;
    rig.send("PUT", "/v1/namespaces/default", json!({ "keep_answers": true })).await;
    let receiver = Rough::start(Manner::answer("500 Bad", "")).await;
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 20 }, "attempts": 2 });
    let timer = json!({ "callback": { "url": receiver.url() }, "policy": policy });
    let id = rig.send("POST", TIMERS, timer).await.1["id"].clone();
    let mut of_it = eventually("the attempts", async || {
        let (_, past) = rig.send("GET", &past(&id), Value::Null).await;
        // An attempt is in the past before its end is known. So wait until each attempt has an error.
        let attempts = past["attempts"].as_array()?;
        let are_over = attempts.len() == 2 && attempts.iter().all(|attempt| attempt["error"].is_string());
        (past["end"].is_object() && are_over).then_some(past)
    })
    .await;
    for attempt in of_it["attempts"].as_array_mut().unwrap() {
        assert_eq!(attempt.as_object_mut().unwrap().remove("answer"), Some(json!("not today")));
        assert_eq!(attempt["error"], "the receiver answered 500 Internal Server Error");
    }
    let path = format!("/v1/namespaces/default/ids/{}", id.as_str().unwrap());
    for shown in [of_it, rig.send("GET", &path, Value::Null).await.1] {
        assert!(shown.to_string().contains("500") && !shown.to_string().contains("not today"), "{shown}");
    }
}

/// A namespace with the name of a removed namespace does not show the pasts of the removed namespace's timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_made_anew_has_no_pasts() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let make = async || inside.send("PUT", "/v1/namespaces/n", json!({})).await.status;
    assert_eq!(make().await, 201);
    let timer = json!({ "delay_ms": 600_000, "pull": { "queue": "q" } });
    let placed = inside.send("PUT", "/v1/namespaces/n/timers/k", timer).await.json();
    assert!(inside.send("DELETE", "/v1/namespaces/n/timers/k", Value::Null).await.status.is_success());
    let (by_key, by_id) = (
        "/v1/namespaces/n/timers/k/past".to_owned(),
        format!("/v1/namespaces/n/ids/{}/past", placed["id"].as_str().unwrap()),
    );
    for path in [&by_key, &by_id] {
        inside.until(path, |past| past["end"]["how"] == "cancelled").await;
    }
    assert!(inside.send("DELETE", "/v1/namespaces/n", Value::Null).await.status.is_success());
    assert_eq!(make().await, 201);
    for path in [&by_key, &by_id] {
        let answer = inside.send("GET", path, Value::Null).await;
        assert_eq!(answer.status, 404, "{path} shows {}", answer.json());
    }
}

/// A process leases a timer and dies, and the service ends the lease. Then the record of the timer's past says why the
/// receiver may get the timer twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_process_died_is_shown_as_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_800_000_000));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let inside = Inside::on(&folder, store.clone());
    let timer = json!({ "delay_ms": 1_000, "pull": { "queue": "q" } });
    let id = inside.send("POST", TIMERS, timer).await.json()["id"].clone();
    inside.stop().await;
    clock.advance(Duration::from_secs(2));
    let other = Claimant { incarnation: 7, lease: Duration::from_secs(30) };
    let claimed = store.claim(other, 1, Limit { timers: 1, bytes: 1_000 }, None).await.unwrap();
    assert_eq!(claimed.leased.len(), 1);
    clock.advance(Duration::from_secs(31));
    let inside = Inside::on(&folder, store);
    let past = inside.until(&past(&id), |past| past["interrupted"].as_array().is_some()).await;
    assert_eq!(past["interrupted"].as_array().unwrap().len(), 1, "{past}");
    let scrape = scrape(&inside).await;
    let duplicates = number(&scrape, "tourbillon_duplicates_total", Some(("cause", "process-died")));
    assert_eq!(duplicates.to_bits(), f64::to_bits(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_have_their_numbers_and_a_breaker_with_its_moment() {
    let rig = Rig::start_with(|settings| settings.caller.hosts.failures = 2).await;
    let (good, bad) =
        (Rough::start(Manner::answer("200 OK", "")).await, Rough::start(Manner::answer("500 Bad", "")).await);
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 5 }, "attempts": 9 });
    for url in [good.url(), good.url(), bad.url()] {
        rig.send("POST", TIMERS, json!({ "callback": { "url": url }, "policy": policy })).await;
    }
    let find = |all: &Value, address: &str| {
        all.as_array()
            .unwrap()
            .iter()
            .find(|endpoint| endpoint["host"] == address)
            .cloned()
            .unwrap_or_default()
    };
    let (good, bad) = (good.address.to_string(), bad.address.to_string());
    let all = eventually("the breaker opens", async || {
        let (_, all) = rig.send("GET", "/v1/endpoints", Value::Null).await;
        let is_parked = find(&all, &bad)["parked"] == 1;
        (is_parked && find(&all, &good)["deliveries"] == 2).then_some(all)
    })
    .await;
    let (good, bad) = (find(&all, &good), find(&all, &bad));
    assert_eq!(
        (&good["breaker"], &good["errors"], &good["recent"]),
        (&json!("closed"), &json!(0), &json!(2))
    );
    assert!(good["p50_ms"].as_u64() <= good["p99_ms"].as_u64() && good.get("since").is_none(), "{good}");
    assert_eq!(
        (&bad["breaker"], &bad["failures_in_a_row"], &bad["errors"]),
        (&json!("open"), &json!(2), &json!(2))
    );
    assert_eq!(bad["last_error"], "the receiver answered 500 Internal Server Error");
    assert!(at(&bad["since"]) <= at(&bad["last"]) + 20_000 && bad["open_for_ms"].as_u64() > Some(0), "{bad}");

    // The report on lateness has the same deliveries, by the second at which they were due.
    let (_, lateness) = rig.send("GET", "/v1/lateness", Value::Null).await;
    let seconds = lateness["seconds"].as_array().unwrap();
    let count: u64 = seconds.iter().map(|cell| cell["count"].as_u64().unwrap()).sum();
    // A delivery also counts as started if it finds the breaker open just before it sends its request.
    assert!(seconds.len() == 60 && (4..=6).contains(&count), "{lateness}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_from_the_creation_to_each_delivery_with_spans_of_their_own() {
    let rig = Rig::start().await;
    let mut receiver = Receiver::start().await;
    let inside = tourbillon_server::router(rig.service.clone());
    let inside = std::mem::ManuallyDrop::new(Inside { service: rig.service.clone(), router: inside });
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 5 } });
    let timer = json!({ "callback": { "url": receiver.url("/t") }, "policy": policy });
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    receiver.statuses.lock().unwrap().push(StatusCode::INTERNAL_SERVER_ERROR);
    inside.with("POST", TIMERS, &[("traceparent", context)], timer.clone()).await;
    let mut spans = vec!["b7ad6b7169203331".to_owned()];
    for _ in 0..2 {
        let received = receiver.next().await;
        let sent = received.headers["traceparent"].to_str().unwrap().to_owned();
        let parts: Vec<_> = sent.split('-').collect();
        assert_eq!(
            (parts[0], parts[1], parts[3]),
            ("00", "0af7651916cd43dd8448eb211c80319c", "01"),
            "{sent}"
        );
        assert!(!spans.contains(&parts[2].to_owned()), "{sent}");
        spans.push(parts[2].to_owned());
    }
    for wrong in ["nonsense", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "\u{e9}"] {
        let answer = inside.with("POST", TIMERS, &[("traceparent", wrong)], timer.clone()).await;
        assert_eq!(answer.status, 201, "a context that is not valid is ignored: {wrong}");
        assert!(!receiver.next().await.headers.contains_key("traceparent"), "{wrong}");
    }
    let twice = [("traceparent", context), ("traceparent", context)];
    inside.with("POST", TIMERS, &twice, timer).await;
    assert!(!receiver.next().await.headers.contains_key("traceparent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_come_is_counted_by_the_time_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    for delay in [30_000, 40_000, 1_800_000, 40_000_000_000_u64] {
        let timer = json!({ "delay_ms": delay, "pull": { "queue": "q" } });
        assert_eq!(inside.send("POST", TIMERS, timer).await.status, 201);
    }
    let horizon = inside.send("GET", "/v1/horizon", Value::Null).await.json();
    let buckets = horizon["buckets"].as_array().unwrap();
    let count =
        |within: u64| buckets.iter().find(|bucket| bucket["within_ms"] == within).unwrap()["count"].clone();
    assert_eq!((count(0), count(60_000), count(3_600_000)), (json!(0), json!(2), json!(1)), "{horizon}");
    assert_eq!(buckets.last().unwrap().get("within_ms"), None);
    let all: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(all, 4, "{horizon}");

    let history = inside.send("GET", "/v1/history?points=10", Value::Null).await.json();
    assert!(history["points"].as_array().unwrap().len() <= 10, "{history}");
    for wrong in ["points=0", "points=1001", "points=-1", "points=many", "since=yesterday", "until=now"] {
        let answer = inside.send("GET", &format!("/v1/history?{wrong}"), Value::Null).await;
        assert_eq!(answer.problem(), (400, "bad-request".to_owned()), "{wrong}");
    }
    for extreme in ["1970-01-01T00:00:00Z", "9999-12-30T22:00:00Z"] {
        let answer = inside.send("GET", &format!("/v1/history?points=1&since={extreme}"), Value::Null).await;
        assert_eq!(answer.status, 200, "{extreme}");
    }
}
