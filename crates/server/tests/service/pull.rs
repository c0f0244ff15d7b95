//! Tests receivers that fetch timers from a queue.

use crate::inside::Inside;
use crate::receivers::dead;
use crate::rig::{Rig, eventually};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tourbillon_api::Moment;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::MemoryStore;

const CLAIMS: &str = "/v1/namespaces/default/queues/q/claims";

async fn place(rig: &Rig, key: &str, policy: Value) -> String {
    let timer =
        json!({ "pull": { "queue": "q", "json": { "key": key } }, "policy": policy, "labels": ["l"] });
    let (status, placed) = rig.send("PUT", &format!("/v1/namespaces/default/timers/{key}"), timer).await;
    assert_eq!(status, StatusCode::CREATED, "{placed}");
    placed["id"].as_str().unwrap().to_owned()
}

async fn claim(rig: &Rig, max: u32, wait_ms: u64) -> Vec<Value> {
    let (status, answer) = rig.send("POST", CLAIMS, json!({ "max": max, "wait_ms": wait_ms })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["claims"].as_array().unwrap().clone()
}

async fn settle(rig: &Rig, claim: &Value, how: &str, body: Value) -> StatusCode {
    let claim = claim["claim"].as_str().unwrap();
    let (status, answer) =
        rig.send("POST", &format!("/v1/namespaces/default/claims/{claim}/{how}"), body).await;
    if status == StatusCode::CONFLICT {
        assert_eq!(answer["type"], "/problems/claim-ended", "{answer}");
    }
    status
}

async fn get(rig: &Rig, key: &str) -> Value {
    rig.send("GET", &format!("/v1/namespaces/default/timers/{key}"), Value::Null).await.1
}

async fn await_parked(rig: &Rig, key: &str) {
    eventually("it is parked", async || (get(rig, key).await["phase"] == "parked").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_is_kept_says_whether_its_delivery_has_begun() {
    let rig = Rig::start().await;
    let put = async |delay_ms: u64, if_present: &str| {
        let timer = json!({ "pull": { "queue": "q" }, "delay_ms": delay_ms, "if_present": if_present });
        rig.send("PUT", "/v1/namespaces/default/timers/refresh", timer).await
    };
    let (_, first) = put(600_000, "reject").await;
    let (status, kept) = put(0, "keep").await;
    assert_eq!((status, &kept["outcome"], &kept["id"]), (StatusCode::OK, &json!("kept"), &first["id"]));
    assert_eq!(kept["kept"], json!({ "was": "pending" }));
    let (_, second) = put(0, "replace").await;
    assert_eq!(second.get("kept"), None);
    let claimed = claim(&rig, 1, 20_000).await;
    let (_, kept) = put(0, "keep").await;
    assert_eq!((&kept["outcome"], &kept["id"]), (&json!("kept"), &second["id"]));
    assert_eq!(kept["kept"], json!({ "was": "leased" }));
    // The caller knows that the timer is leased. By the replacement, it gets another delivery afterwards.
    put(0, "replace").await;
    assert_eq!(settle(&rig, &claimed[0], "ack", Value::Null).await, StatusCode::NO_CONTENT);
    assert_eq!(claim(&rig, 1, 20_000).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_due_moment_that_has_passed_is_now_unless_the_policy_says_that_it_is_too_late() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let timers = "/v1/namespaces/default/timers";
    let new =
        |policy: Value| json!({ "due": "2020-01-01T00:00:00Z", "pull": { "queue": "q" }, "policy": policy });
    assert_eq!(inside.send("PUT", &format!("{timers}/a"), new(json!({}))).await.status, 201);
    let claimed =
        inside.send("POST", "/v1/namespaces/default/queues/q/claims", json!({ "wait_ms": 20_000 })).await;
    let claim = claimed.json()["claims"][0].clone();
    assert_eq!((&claim["key"], &claim["scheduled"]), (&json!("a"), &json!("2020-01-01T00:00:00.000Z")));
    let timer = inside.send("GET", &format!("{timers}/a"), Value::Null).await.json();
    assert_eq!(timer["scheduled"], claim["scheduled"], "{timer}");
    // The service may read its clock twice.
    let at = |field: &str| timer[field].as_str().unwrap().parse::<UtcMillis>().unwrap().as_millis();
    assert!(at("created").abs_diff(at("due")) < 1_000, "{timer}");
    let within = new(json!({ "misfire_within_ms": 60_000 }));
    let placed = inside.send("PUT", &format!("{timers}/b"), within).await.json();
    let past = format!("/v1/namespaces/default/ids/{}/past", placed["id"].as_str().unwrap());
    inside.until(&past, |past| past["end"]["how"] == "skipped").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_waits_for_a_receiver_and_is_done_once_acknowledged() {
    let rig = Rig::start().await;
    let id = place(&rig, "k", json!({})).await;
    await_parked(&rig, "k").await;
    let parked = get(&rig, "k").await;
    assert_eq!(
        (&parked["reason"], &parked["deliveries"]),
        (&json!("queue:default/q"), &json!(0)),
        "{parked}"
    );
    // A receiver that does not wait gets the timers that are due already.
    let claims = claim(&rig, 10, 0).await;
    assert_eq!(claims.len(), 1, "{claims:?}");
    let claim_of = &claims[0];
    assert_eq!((claim_of["id"].as_str(), &claim_of["attempt"]), (Some(&*id), &json!(1)));
    assert_eq!((&claim_of["body"], &claim_of["labels"]), (&json!(r#"{"key":"k"}"#), &json!(["l"])));
    assert_eq!(get(&rig, "k").await["phase"], "leased");
    let other = claim_of["claim"].as_str().unwrap();
    rig.send("PUT", "/v1/namespaces/n", json!({})).await;
    let (status, _) = rig.send("POST", &format!("/v1/namespaces/n/claims/{other}/ack"), Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT, "a claim belongs to its namespace");
    assert_eq!(settle(&rig, claim_of, "ack", Value::Null).await, StatusCode::NO_CONTENT);
    assert_eq!(settle(&rig, claim_of, "ack", Value::Null).await, StatusCode::CONFLICT);
    eventually("it is gone", async || get(&rig, "k").await["status"].as_u64()).await;
    let begin = Instant::now();
    assert!(claim(&rig, 1, 0).await.is_empty() && begin.elapsed() < Duration::from_secs(2));
    let begin = Instant::now();
    assert!(claim(&rig, 1, 300).await.is_empty());
    assert!((0.3..2.0).contains(&begin.elapsed().as_secs_f64()), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_come_in_the_order_of_their_due_moments_within_a_claim_and_between_claims() {
    let rig = Rig::start().await;
    // The timers are made in another order than the order of their due moments.
    for number in (0..30).map(|number| number * 7 % 30) {
        let timer = json!({ "pull": { "queue": "q" }, "delay_ms": 20 * number });
        let path = format!("/v1/namespaces/default/timers/{number:02}");
        assert_eq!(rig.send("PUT", &path, timer).await.0, StatusCode::CREATED);
    }
    for number in 0..30 {
        await_parked(&rig, &format!("{number:02}")).await;
    }
    let mut due = Vec::new();
    for _ in 0..3 {
        let claims = claim(&rig, 10, 5_000).await;
        assert_eq!(claims.len(), 10, "{claims:?}");
        due.extend(claims.iter().map(|claim| claim["scheduled"].as_str().unwrap().to_owned()));
    }
    assert!(due.is_sorted(), "{due:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_waits_gets_a_timer_when_it_is_due_and_the_first_comes_first() {
    let rig = Arc::new(Rig::start().await);
    let wait = |name: &'static str| {
        let rig = Arc::clone(&rig);
        tokio::spawn(async move { (name, claim(&rig, 1, 10_000).await) })
    };
    let first = wait("first");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let second = wait("second");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let begin = Instant::now();
    for key in ["a", "b"] {
        place(&rig, key, json!({})).await;
        if key == "a" {
            eventually("the first receiver's answer", async || first.is_finished().then_some(())).await;
            assert!(!second.is_finished());
        }
    }
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!((&first.1[0]["key"], &second.1[0]["key"]), (&json!("a"), &json!("b")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_claims_and_those_whose_time_is_over_come_again_under_the_same_id() {
    let rig = Rig::start().await;
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 1 }, "timeout_ms": 300, "attempts": 4 });
    let id = place(&rig, "k", policy).await;
    let first = claim(&rig, 1, 5_000).await.remove(0);
    assert_eq!(
        settle(&rig, &first, "nack", json!({ "error": "no \u{1F570} today" })).await,
        StatusCode::NO_CONTENT
    );
    let second = claim(&rig, 1, 5_000).await.remove(0);
    assert_eq!((second["id"].as_str(), &second["attempt"]), (Some(&*id), &json!(2)));
    assert_eq!(get(&rig, "k").await["last_error"], "no \u{1F570} today");
    // The second claim is renewed twice, past its first end, and then left alone.
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(settle(&rig, &second, "renew", Value::Null).await, StatusCode::OK);
    }
    let begin = Instant::now();
    let third = claim(&rig, 1, 5_000).await.remove(0);
    assert!(begin.elapsed() > Duration::from_millis(250), "it was open until then: {:?}", begin.elapsed());
    assert_eq!((third["id"].as_str(), &third["attempt"]), (Some(&*id), &json!(3)));
    for how in ["ack", "renew"] {
        assert_eq!(settle(&rig, &second, how, Value::Null).await, StatusCode::CONFLICT);
    }
    assert_eq!(
        settle(&rig, &third, "nack", json!({ "dead": true, "error": "never" })).await,
        StatusCode::NO_CONTENT
    );
    let timer = eventually("it is dead", async || dead(&rig, "default", &id).await).await;
    assert_eq!((&timer["reason"], &timer["last_error"]), (&json!("refused"), &json!("never")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_asks_for_more_time_than_the_policy_gives_and_not_for_less() {
    let rig = Rig::start().await;
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 60_000 } });
    for (key, refusal, seconds) in [
        ("zero", json!({ "retry_after_ms": 0 }), 60),
        ("none", json!({}), 60),
        ("more", json!({ "retry_after_ms": 120_000 }), 120),
    ] {
        place(&rig, key, policy.clone()).await;
        let claim = claim(&rig, 1, 5_000).await.remove(0);
        assert_eq!(settle(&rig, &claim, "nack", refusal).await, StatusCode::NO_CONTENT);
        let timer = get(&rig, key).await;
        let moment = |field: &str| timer[field].as_str().unwrap().parse::<Moment>().unwrap().as_millis();
        let pause = moment("due") - moment("scheduled");
        let wanted = seconds * 1_000;
        assert!((wanted..wanted + 10_000).contains(&pause), "{key}: {pause} ms");
    }
}

/// A receiver that cannot do the work yet has not failed at it. The timer's only attempt is left to the next receiver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_is_put_off_comes_again_later_and_has_its_attempts_left() {
    let rig = Rig::start().await;
    let id = place(&rig, "k", json!({ "attempts": 1 })).await;
    for _ in 0..3 {
        let claim = claim(&rig, 1, 20_000).await.remove(0);
        assert_eq!((claim["id"].as_str(), &claim["attempt"]), (Some(&*id), &json!(1)));
        assert_eq!(settle(&rig, &claim, "nack", json!({ "snooze_ms": 0 })).await, StatusCode::NO_CONTENT);
        assert_eq!(settle(&rig, &claim, "ack", Value::Null).await, StatusCode::CONFLICT, "it has ended");
    }
    let last = claim(&rig, 1, 20_000).await.remove(0);
    for refusal in [
        json!({ "snooze_ms": 0, "dead": true }),
        json!({ "snooze_ms": 0, "error": "no" }),
        json!({ "snooze_ms": 0, "retry_after_ms": 0 }),
        json!({ "snooze_ms": 86_400_001 }),
    ] {
        assert_eq!(settle(&rig, &last, "nack", refusal).await, StatusCode::BAD_REQUEST);
    }
    assert_eq!(settle(&rig, &last, "nack", json!({ "snooze_ms": 60_000 })).await, StatusCode::NO_CONTENT);
    let timer = get(&rig, "k").await;
    let moment = |field: &str| timer[field].as_str().unwrap().parse::<Moment>().unwrap().as_millis();
    let (_, stats) = rig.send("GET", "/v1/stats", Value::Null).await;
    let now = stats["now"].as_str().unwrap().parse::<Moment>().unwrap().as_millis();
    assert!((55_000..=60_000).contains(&(moment("due") - now)), "{timer} {now}");
    assert_eq!((&timer["phase"], &timer["deliveries"]), (&json!("pending"), &json!(0)), "{timer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_not_put_off_past_its_greatest_age_or_after_its_only_delivery() {
    let rig = Rig::start().await;
    let id = place(&rig, "old", json!({ "max_age_ms": 60_000 })).await;
    let old = claim(&rig, 1, 20_000).await.remove(0);
    assert_eq!(settle(&rig, &old, "nack", json!({ "snooze_ms": 120_000 })).await, StatusCode::NO_CONTENT);
    let timer = eventually("it is dead", async || dead(&rig, "default", &id).await).await;
    assert_eq!(timer["reason"], "age");

    place(&rig, "once", json!({ "guarantee": "at-most-once" })).await;
    let once = claim(&rig, 1, 20_000).await.remove(0);
    assert_eq!(settle(&rig, &once, "nack", json!({ "snooze_ms": 0 })).await, StatusCode::BAD_REQUEST);
    assert_eq!(settle(&rig, &once, "ack", Value::Null).await, StatusCode::NO_CONTENT, "it is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_are_acknowledged_together_have_each_its_own_answer() {
    const ACKS: &str = "/v1/namespaces/default/claims/ack";
    let rig = Rig::start().await;
    for number in 0..40 {
        place(&rig, &format!("k{number}"), json!({})).await;
    }
    let mut names = Vec::new();
    while names.len() < 40 {
        let claims = claim(&rig, 40, 20_000).await;
        names.extend(claims.iter().map(|claim| claim["claim"].as_str().unwrap().to_owned()));
    }
    let ended = names.pop().unwrap();
    let claims = json!({ "claim": ended });
    assert_eq!(settle(&rig, &claims, "nack", json!({ "dead": true })).await, StatusCode::NO_CONTENT);
    rig.send("PUT", "/v1/namespaces/n", json!({})).await;
    let (status, foreign) = rig.send("POST", "/v1/namespaces/n/claims/ack", json!({ "claims": names })).await;
    let refused = |result: &Value| result["problem"]["type"] == "/problems/claim-ended";
    assert_eq!(status, StatusCode::OK);
    assert!(foreign["results"].as_array().unwrap().iter().all(refused), "{foreign}");

    let mut all = names.clone();
    // The same claim twice is one end, so both have the same answer.
    all.extend([ended.clone(), "0".repeat(32), String::new(), names[0].clone()]);
    let (status, answer) = rig.send("POST", ACKS, json!({ "claims": all })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let results = answer["results"].as_array().unwrap();
    let named: Vec<_> = results.iter().map(|result| result["claim"].as_str().unwrap()).collect();
    assert_eq!(named, all);
    let is_refused: Vec<_> = results.iter().map(refused).collect();
    let wanted: Vec<_> = (0..all.len()).map(|nth| (39..42).contains(&nth)).collect();
    assert_eq!(is_refused, wanted, "{answer}");
    assert_eq!(results[0], json!({ "claim": names[0] }));
    let (_, stats) = rig.send("GET", "/v1/stats", Value::Null).await;
    assert_eq!((&stats["leased"], &stats["dead"]), (&json!(0), &json!(1)), "{stats}");

    let (status, answer) = rig.send("POST", ACKS, json!({ "claims": [] })).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({ "results": [] })));
    let (status, answer) = rig.send("POST", ACKS, json!({ "claims": vec!["0"; 101] })).await;
    assert_eq!((status, &answer["errors"][0]["pointer"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("/claims")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_a_claim_has_ended_and_its_timer_comes_again() {
    let rig = Rig::start().await;
    let id = place(&rig, "k", json!({ "timeout_ms": 600_000 })).await;
    let claim_of = claim(&rig, 1, 5_000).await.remove(0);
    let rig = rig.restart_after(|_| {}).await;
    assert_eq!(settle(&rig, &claim_of, "ack", Value::Null).await, StatusCode::CONFLICT);
    let again = claim(&rig, 1, 5_000).await.remove(0);
    assert_eq!((again["id"].as_str(), &again["attempt"]), (Some(&*id), &json!(1)));
}

/// Puts a timer that is delivered at most once into the namespace `shop`, which is new. Returns the claim of the
/// receiver that has fetched the timer.
async fn fetched_once(inside: &Inside) -> Value {
    assert_eq!(inside.send("PUT", "/v1/namespaces/shop", json!({})).await.status, 201);
    let timer = json!({ "pull": { "queue": "q" }, "policy": { "guarantee": "at-most-once" } });
    let placed = inside.send("PUT", "/v1/namespaces/shop/timers/k", timer).await;
    assert_eq!(placed.status, 201, "{placed:?}");
    let claims = inside.send("POST", "/v1/namespaces/shop/queues/q/claims", json!({ "wait_ms": 20_000 }));
    claims.await.json()["claims"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_brings_no_timer_again_that_a_receiver_has_and_that_is_delivered_at_most_once() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::default()));
    let inside = Inside::on(&folder, store.clone());
    let claim = fetched_once(&inside).await;
    assert_eq!(claim["key"], "k", "{claim}");
    inside.stop().await;
    let inside = Inside::on(&folder, store);
    let queue = "/v1/namespaces/shop/queues/q/claims";
    let claims = inside.send("POST", queue, json!({ "wait_ms": 1_000 })).await.json();
    assert_eq!(claims["claims"], json!([]), "the first receiver has it");
    assert_eq!(inside.send("GET", "/v1/namespaces/shop/timers/k", Value::Null).await.status, 404);
}

/// A timer that is delivered at most once is stored until a receiver gets it, so a removal of its namespace counts it.
/// Afterwards the open claim of the receiver holds the namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_not_removed_before_the_claim_of_a_timer_at_most_once_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    assert_eq!(inside.send("PUT", "/v1/namespaces/shop", json!({})).await.status, 201);
    let timer = json!({ "pull": { "queue": "q" }, "policy": { "guarantee": "at-most-once" } });
    assert_eq!(inside.send("PUT", "/v1/namespaces/shop/timers/k", timer).await.status, 201);
    for _ in 0..20 {
        let removed = inside.send("DELETE", "/v1/namespaces/shop", Value::Null).await;
        assert_ne!(removed.status, StatusCode::NO_CONTENT, "its timer waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let claims = inside.send("POST", "/v1/namespaces/shop/queues/q/claims", json!({ "wait_ms": 20_000 }));
    let claim = claims.await.json()["claims"][0].clone();
    assert_eq!(claim["key"], "k");
    let removed = inside.send("DELETE", "/v1/namespaces/shop", Value::Null).await;
    assert_eq!(removed.status, StatusCode::TOO_MANY_REQUESTS, "its receiver has the timer: {removed:?}");
    let path = format!("/v1/namespaces/shop/claims/{}/ack", claim["claim"].as_str().unwrap());
    let acked = inside.send("POST", &path, Value::Null).await;
    assert_eq!(acked.status, StatusCode::NO_CONTENT, "{acked:?}");
    let removed = inside.send("DELETE", "/v1/namespaces/shop", Value::Null).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{removed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_goes_away_while_it_waits_loses_no_timer() {
    let rig = Rig::start().await;
    for key in ["a", "b", "c"] {
        let body = r#"{"wait_ms":20000}"#;
        let mut gone = tokio::net::TcpStream::connect(rig.address).await.unwrap();
        let request = format!(
            "POST {CLAIMS} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            rig.address,
            body.len()
        );
        gone.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(gone);
        tokio::time::sleep(Duration::from_millis(50)).await;
        place(&rig, key, json!({})).await;
        let claim_of = claim(&rig, 1, 5_000).await.remove(0);
        assert_eq!((&claim_of["key"], &claim_of["attempt"]), (&json!(key), &json!(1)));
        assert_eq!(settle(&rig, &claim_of, "ack", Value::Null).await, StatusCode::NO_CONTENT);
    }
}

/// Timers become due while receivers come and go. Each timer is fetched once, soon after its due moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_timers_and_receivers() {
    let rig = Arc::new(Rig::start().await);
    const TIMERS: usize = 200;
    let placing = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move {
            for key in 0..TIMERS {
                place(&rig, &key.to_string(), json!({})).await;
                if key % 20 == 0 {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            }
        }
    });
    let begin = Instant::now();
    let receivers: Vec<_> = (0..4_u32)
        .map(|number| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move {
                let mut got = Vec::new();
                let mut idle = 0;
                while idle < 3 {
                    // The waits are short, so receivers leave while timers become due.
                    let claims = claim(&rig, 1 + number % 3, 20 + 150 * u64::from(number)).await;
                    idle = if claims.is_empty() && begin.elapsed() > Duration::from_secs(2) {
                        idle + 1
                    } else {
                        0
                    };
                    for claim in claims {
                        assert_eq!(settle(&rig, &claim, "ack", Value::Null).await, StatusCode::NO_CONTENT);
                        got.push((claim["key"].as_str().unwrap().to_owned(), claim["attempt"].clone()));
                    }
                }
                got
            })
        })
        .collect();
    placing.await.unwrap();
    let mut counts = BTreeMap::<String, usize>::new();
    for receiver in receivers {
        for (key, attempt) in receiver.await.unwrap() {
            assert_eq!(attempt, 1);
            *counts.entry(key).or_default() += 1;
        }
    }
    assert_eq!(counts.len(), TIMERS);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

/// Checks that a receiver that waits for a second timer does not lose its first timer, whose time is short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_at_most_once_is_not_lost_while_its_receiver_waits_for_another() {
    let rig = Rig::start().await;
    // The second timer waits for the permit of the first.
    let (status, _) = rig.send("PUT", "/v1/namespaces/narrow", json!({ "concurrency": 1 })).await;
    assert_eq!(status, StatusCode::CREATED);
    for key in ["a", "b"] {
        let policy = json!({ "guarantee": "at-most-once", "timeout_ms": 100 });
        let timer = json!({ "pull": { "queue": "q" }, "policy": policy });
        let (status, placed) = rig.send("PUT", &format!("/v1/namespaces/narrow/timers/{key}"), timer).await;
        assert_eq!(status, StatusCode::CREATED, "{placed}");
    }
    let mut got = Vec::new();
    let since = Instant::now();
    while got.len() < 2 {
        assert!(since.elapsed() < Duration::from_secs(20), "only {got:?} came");
        let claims = "/v1/namespaces/narrow/queues/q/claims";
        let (_, answer) = rig.send("POST", claims, json!({ "max": 2, "wait_ms": 2_000 })).await;
        let keys = answer["claims"].as_array().unwrap().iter().map(|claim| claim["key"].clone());
        got.extend(keys);
    }
    got.sort_by_key(Value::to_string);
    assert_eq!(got, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_claims_are_bounded() {
    let rig = Rig::start_with(|settings| settings.open_claims = 2).await;
    for key in ["a", "b", "c"] {
        place(&rig, key, json!({})).await;
        await_parked(&rig, key).await;
    }
    let claims = claim(&rig, 10, 5_000).await;
    assert_eq!(claims.len(), 2);
    let (status, problem) = rig.send("POST", CLAIMS, json!({})).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("/problems/limit-reached"))
    );
    assert_eq!(settle(&rig, &claims[0], "ack", Value::Null).await, StatusCode::NO_CONTENT);
    assert_eq!(claim(&rig, 10, 5_000).await.len(), 1);
    for request in
        [json!({ "max": 0 }), json!({ "max": 101 }), json!({ "wait_ms": 20_001 }), json!({ "n": 1 })]
    {
        assert_eq!(rig.send("POST", CLAIMS, request).await.0, StatusCode::BAD_REQUEST);
    }
}
