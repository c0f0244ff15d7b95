//! Tests several services, called nodes, on a single deployment in Redis or in PostgreSQL. A change through one node
//! holds for the others. Without `redis-server` or PostgreSQL, the tests say that they were skipped.

mod deployment;
mod pages;
mod parity;
mod postgres;
mod queues;
mod redis;

use crate::rig::{Receiver, Rig, eventually};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use deployment::Deployment;
use http_body_util::BodyExt as _;
use pages::the_page_of_one_node_keeps_the_limits_that_another_has_just_set;
use queues::{
    a_dead_timer_that_was_dropped_at_another_node_is_shown_as_dead_by_none,
    timers_that_wait_come_to_receivers_of_a_node_in_the_order_of_their_due_moments,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tourbillon_api::Moment;
use tourbillon_fault::{Postgres, Server};
use tourbillon_server::{StorePlace, router};
use tower::ServiceExt as _;

const TIMERS: &str = "/v1/namespaces/default/timers";

/// Runs each of these tests on Redis and in PostgreSQL.
macro_rules! on_each {
    ($($name:ident)*) => {
        mod on_redis {
            use super::{Deployment, Server};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(server) = Server::start(&[]) {
                        super::$name(Deployment::Redis(server)).await;
                    }
                }
            )*
        }

        mod in_postgres {
            use super::{Deployment, Postgres};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(server) = Postgres::start(&[]) {
                        super::$name(Deployment::Postgres(server)).await;
                    }
                }
            )*
        }
    };
}

on_each! {
    what_one_node_has_made_the_other_sees_cancels_and_delivers
    an_idempotency_key_makes_one_timer_whatever_nodes_the_requests_reach
    namespaces_of_one_node_are_known_to_the_others_and_none_is_lost
    the_page_of_one_node_keeps_the_limits_that_another_has_just_set
    a_namespace_that_one_node_removes_is_gone_for_the_others
    a_receiver_at_one_node_gets_the_timers_of_all_nodes
    timers_that_wait_come_to_receivers_of_a_node_in_the_order_of_their_due_moments
    a_claim_is_ended_and_prolonged_through_another_node
    a_dead_timer_that_was_dropped_at_another_node_is_shown_as_dead_by_none
    nodes_show_each_other_and_who_has_the_shards
    the_page_of_a_node_shows_all_nodes
    a_schedule_that_one_node_removes_the_other_does_not_follow
    an_operation_is_shown_by_all_nodes_and_goes_on_when_its_node_stops
    healthz_is_red_while_the_server_is_away_and_green_again_without_a_restart
}

async fn make_namespace(node: &Rig, number: usize) -> StatusCode {
    node.send("PUT", &format!("/v1/namespaces/n{number}"), json!({})).await.0
}

fn callback(receiver: &Receiver, path: &str, delay_ms: u64) -> Value {
    json!({ "delay_ms": delay_ms, "callback": { "url": receiver.url(path) } })
}

async fn what_one_node_has_made_the_other_sees_cancels_and_delivers(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let mut receiver = Receiver::start().await;
    let far = callback(&receiver, "/never", 3_600_000);
    let (status, made) = one.send("PUT", &format!("{TIMERS}/a"), far).await;
    assert_eq!((status, &made["outcome"]), (StatusCode::CREATED, &json!("created")), "{made}");
    let (_, seen) = two.send("GET", &format!("{TIMERS}/a"), Value::Null).await;
    assert_eq!(seen["id"], made["id"]);
    let (_, answer) = two.send("DELETE", &format!("{TIMERS}/a"), Value::Null).await;
    assert_eq!(answer["result"], "cancelled");
    let (status, _) = one.send("GET", &format!("{TIMERS}/a"), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let wanted: BTreeSet<_> = (0..20).map(|number| format!("/{number}")).collect();
    const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    let method = |number: usize| METHODS[number % METHODS.len()];
    let body =
        |number: usize| if method(number) == "GET" { String::new() } else { format!("{number} of ä\0") };
    for (number, path) in wanted.iter().enumerate() {
        let node = if number % 2 == 0 { &one } else { &two };
        let mut timer = callback(&receiver, path, 50);
        timer["callback"]["method"] = json!(method(number));
        timer["callback"]["headers"] =
            json!({ "x-order": number.to_string(), "content-type": "text/x-test" });
        if method(number) != "GET" {
            timer["callback"]["body"] = json!(body(number));
        }
        let (status, answer) = node.send("POST", TIMERS, timer).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    let mut got = BTreeSet::new();
    while got.len() < wanted.len() {
        let received = receiver.next().await;
        assert!(got.insert(received.path.clone()), "{} came twice", received.path);
        let number = wanted.iter().position(|path| *path == received.path).unwrap();
        assert_eq!(received.method.as_str(), method(number), "{received:?}");
        assert_eq!(received.headers["x-order"], number.to_string(), "{received:?}");
        assert_eq!(received.headers["content-type"], "text/x-test", "{received:?}");
        assert_eq!(received.body, body(number), "{received:?}");
    }
    assert_eq!(got, wanted);

    // After a node has stopped, the other node does its work.
    let (_, answer) = one.send("PUT", &format!("{TIMERS}/late"), callback(&receiver, "/late", 1_000)).await;
    assert_eq!(answer["outcome"], "created");
    drop(one);
    // The node that stopped had no time to store all results, so the other node may repeat its last deliveries.
    eventually("the delivery by the other node", async || {
        (receiver.next().await.path == "/late").then_some(())
    })
    .await;
}

async fn an_idempotency_key_makes_one_timer_whatever_nodes_the_requests_reach(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let receiver = Receiver::start().await;
    let timer = callback(&receiver, "/x", 3_600_000);
    let put = |node: &Rig, timer: Value| {
        let (path, body) = (format!("http://{}{TIMERS}", node.address), timer.to_string());
        async move {
            let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
            let client = client.build_http::<http_body_util::Full<axum::body::Bytes>>();
            let request = Request::post(path)
                .header("content-type", "application/json")
                .header("idempotency-key", "k")
                .body(body.into())
                .unwrap();
            let answer = client.request(request).await.unwrap();
            let status = answer.status();
            let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            (status, serde_json::from_slice::<Value>(&bytes).unwrap())
        }
    };
    let ((_, first), (_, second)) = tokio::join!(put(&one, timer.clone()), put(&two, timer.clone()));
    assert_eq!(first["id"], second["id"], "{first} {second}");
    let outcomes = BTreeSet::from([first["outcome"].to_string(), second["outcome"].to_string()]);
    assert_eq!(outcomes, BTreeSet::from(["\"created\"".to_owned(), "\"repeated\"".to_owned()]));
    let (status, other) = put(&two, callback(&receiver, "/y", 3_600_000)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{other}");
    assert!(other["type"].as_str().unwrap().contains("idempotency"), "{other}");
}

async fn namespaces_of_one_node_are_known_to_the_others_and_none_is_lost(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let (status, _) = one.send("PUT", "/v1/namespaces/shop", json!({ "max_timers": 5 })).await;
    assert_eq!(status, StatusCode::CREATED);
    let begun = Instant::now();
    eventually("the other node knows the namespace", async || {
        let (status, view) = two.send("GET", "/v1/namespaces/shop", Value::Null).await;
        (status == StatusCode::OK).then(|| assert_eq!(view["limits"]["max_timers"], 5))
    })
    .await;
    eprintln!("the other node knew the namespace after {:.2?}", begun.elapsed());
    // Both nodes make namespaces at the same time. Neither undoes the changes of the other.
    let all = (0..20).map(|number| make_namespace(if number % 2 == 0 { &one } else { &two }, number));
    let all = futures_util::future::join_all(all);
    assert!(all.await.iter().all(|status| *status == StatusCode::CREATED));
    for node in [&one, &two] {
        eventually("both know all namespaces", async || {
            let (_, list) = node.send("GET", "/v1/namespaces", Value::Null).await;
            (list.as_array().unwrap().len() == 22).then_some(())
        })
        .await;
    }
    // A pause through one node holds back the deliveries of the other node, too.
    let mut receiver = Receiver::start().await;
    let (status, _) = one.send("PUT", "/v1/namespaces/shop", json!({ "paused": true })).await;
    assert_eq!(status, StatusCode::OK);
    eventually("the other node knows the pause", async || {
        let (_, view) = two.send("GET", "/v1/namespaces/shop", Value::Null).await;
        (view["limits"]["paused"] == true).then_some(())
    })
    .await;
    let path = "/v1/namespaces/shop/timers";
    let (status, _) = two.send("POST", path, callback(&receiver, "/shop", 0)).await;
    assert_eq!(status, StatusCode::CREATED);
    eventually("the timer is parked", async || {
        let (_, view) = one.send("GET", "/v1/namespaces/shop", Value::Null).await;
        (view["parked"] == 1).then_some(())
    })
    .await;
    let (status, _) = two.send("PUT", "/v1/namespaces/shop", json!({})).await;
    assert_eq!(status, StatusCode::OK);
    // The timer goes on, whichever node has parked it.
    let received = receiver.next().await;
    assert_eq!(received.path, "/shop");
}

async fn a_receiver_at_one_node_gets_the_timers_of_all_nodes(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    eventually("both nodes have shards", async || {
        let (_, nodes) = one.send("GET", "/v1/nodes", Value::Null).await;
        let nodes = nodes["nodes"].as_array().unwrap();
        let have_shards = nodes.iter().all(|node| node["shards"].as_u64() > Some(0));
        (nodes.len() == 2 && have_shards).then_some(())
    })
    .await;
    let mut waits = Vec::new();
    for number in 0..16 {
        let wish = json!({ "max": 1, "wait_ms": 15_000 });
        let fetch = one.send("POST", "/v1/namespaces/default/queues/q/claims", wish);
        let place = async {
            let timer = json!({ "delay_ms": 20, "pull": { "queue": "q", "json": number } });
            let (status, answer) = two.send("PUT", &format!("{TIMERS}/k{number}"), timer).await;
            assert_eq!(status, StatusCode::CREATED, "{answer}");
            Instant::now()
        };
        let ((_, answer), placed) = tokio::join!(fetch, place);
        assert_eq!(answer["claims"][0]["key"], format!("k{number}"), "{answer}");
        waits.push(placed.elapsed());
    }
    waits.sort_unstable();
    eprintln!("from the creation to the receiver: median {:.2?}, longest {:.2?}", waits[8], waits[15]);
    assert!(waits[15] < Duration::from_secs(10), "{waits:?}");
}

async fn a_claim_is_ended_and_prolonged_through_another_node(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let queue = "/v1/namespaces/default/queues/q/claims";
    let claims = "/v1/namespaces/default/claims";
    let place = async |key: &str, timeout_ms: u64, pause_ms: u64| {
        let backoff = json!({ "kind": "fixed", "pause_ms": pause_ms });
        let timer = json!({
            "delay_ms": 0, "pull": { "queue": "q", "json": key },
            "policy": { "backoff": backoff, "timeout_ms": timeout_ms },
        });
        let (status, answer) = one.send("PUT", &format!("{TIMERS}/{key}"), timer).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    };
    // Fetches a timer from one node. Returns the claim and the other node.
    let fetch = async || {
        let mut turn = 0;
        eventually("a claim", async || {
            turn += 1;
            let (node, other) = if turn % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let (status, answer) = node.send("POST", queue, json!({ "wait_ms": 300 })).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            answer["claims"].get(0).map(|claim| (claim.clone(), other))
        })
        .await
    };
    place("acked", 60_000, 1).await;
    let (claim, other) = fetch().await;
    let name = claim["claim"].as_str().unwrap();
    let elsewhere = format!("{claims}/{name}/ack");
    let (status, _) = other
        .send("POST", &format!("/v1/namespaces/default/claims/{}/ack", "0".repeat(112)), Value::Null)
        .await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, answer) = other.send("POST", &elsewhere, Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    let (status, _) = other.send("POST", &elsewhere, Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT, "a claim ends once");
    let has_ended_for_all = async |name: &str| {
        for node in [&one, &two] {
            let (status, answer) = node.send("POST", &format!("{claims}/{name}/renew"), Value::Null).await;
            assert_eq!(status, StatusCode::CONFLICT, "{answer}");
        }
    };
    has_ended_for_all(name).await;
    let (status, _) = one.send("GET", &format!("{TIMERS}/acked"), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    place("nacked", 60_000, 1).await;
    let (claim, other) = fetch().await;
    let name = claim["claim"].as_str().unwrap();
    let (status, answer) =
        other.send("POST", &format!("{claims}/{name}/nack"), json!({ "error": "no paper" })).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    has_ended_for_all(name).await;
    let (again, other) = fetch().await;
    has_ended_for_all(name).await;
    assert_eq!((&again["attempt"], &again["id"]), (&json!(2), &claim["id"]));
    let name = again["claim"].as_str().unwrap();
    let (status, answer) =
        other.send("POST", &format!("{claims}/{name}/nack"), json!({ "dead": true })).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    let (_, timer) = two
        .send("GET", &format!("/v1/namespaces/default/ids/{}", again["id"].as_str().unwrap()), Value::Null)
        .await;
    assert_eq!(timer["phase"], "dead", "{timer}");

    place("patient", 60_000, 60_000).await;
    let (claim, other) = fetch().await;
    let name = claim["claim"].as_str().unwrap();
    let (status, answer) =
        other.send("POST", &format!("{claims}/{name}/nack"), json!({ "retry_after_ms": 0 })).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    let (_, timer) = two.send("GET", &format!("{TIMERS}/patient"), Value::Null).await;
    let moment = |field: &str| timer[field].as_str().unwrap().parse::<Moment>().unwrap().as_millis();
    assert!(moment("due") - moment("scheduled") >= 60_000, "the policy's pause is longer: {timer}");

    place("put-off", 60_000, 1).await;
    let (claim, other) = fetch().await;
    let name = claim["claim"].as_str().unwrap();
    let (status, answer) =
        other.send("POST", &format!("{claims}/{name}/nack"), json!({ "snooze_ms": 1_000 })).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    has_ended_for_all(name).await;
    let (again, other) = fetch().await;
    assert_eq!((&again["attempt"], &again["id"]), (&json!(1), &claim["id"]));
    let both = json!({ "claims": [again["claim"], name] });
    let (status, answer) = other.send("POST", &format!("{claims}/ack"), both).await;
    assert_eq!((status, &answer["results"][0]["problem"]), (StatusCode::OK, &Value::Null), "{answer}");
    assert_eq!(answer["results"][1]["problem"]["type"], "/problems/claim-ended", "{answer}");
    let (status, _) = one.send("GET", &format!("{TIMERS}/put-off"), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    place("prolonged", 3_000, 1).await;
    let (claim, other) = fetch().await;
    let (name, begun) = (claim["claim"].as_str().unwrap(), Instant::now());
    while begun.elapsed() < Duration::from_secs(5) {
        let (status, answer) = other.send("POST", &format!("{claims}/{name}/renew"), Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // Without the renewals, the claim would have ended after three seconds.
    let (status, answer) = other.send("POST", &format!("{claims}/{name}/ack"), Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
}

async fn nodes_show_each_other_and_who_has_the_shards(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let shares = async |node: &Rig| {
        let (status, nodes) = node.send("GET", "/v1/nodes", Value::Null).await;
        let shards = nodes["shards"].as_array().unwrap().len() as u64;
        assert_eq!((status, shards), (StatusCode::OK, deployment.shards()), "{nodes}");
        let live = nodes["nodes"].as_array().unwrap().iter().filter(|node| node["live"] == true);
        live.map(|node| node["shards"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    eventually("the nodes share the shards", async || {
        let shares = shares(&one).await;
        (shares.len() == 2 && shares.iter().sum::<u64>() == deployment.shards() && !shares.contains(&0))
            .then_some(())
    })
    .await;
    let (_, seen) = two.send("GET", "/v1/nodes", Value::Null).await;
    let own: Vec<_> = seen["nodes"].as_array().unwrap().iter().filter(|node| node["this"] == true).collect();
    assert_eq!(own.len(), 1, "{seen}");
    drop(two);
    eventually("the other node has all shards", async || {
        (shares(&one).await == [deployment.shards()]).then_some(())
    })
    .await;
    let (_, nodes) = one.send("GET", "/v1/nodes", Value::Null).await;
    let takeovers: u64 =
        nodes["shards"].as_array().unwrap().iter().map(|shard| shard["takeovers"].as_u64().unwrap()).sum();
    assert_eq!(takeovers, 0, "a node that stops gives its shards back");
}

async fn a_namespace_that_one_node_removes_is_gone_for_the_others(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let path = "/v1/namespaces/shop";
    assert_eq!(one.send("PUT", path, json!({})).await.0, StatusCode::CREATED);
    let (status, secret) = one.send("POST", &format!("{path}/secrets"), Value::Null).await;
    assert_eq!(status, StatusCode::CREATED, "{secret}");
    eventually("the other node knows the namespace and its secret", async || {
        let (_, view) = two.send("GET", path, Value::Null).await;
        view["secrets"].as_array().is_some_and(|secrets| secrets.len() == 1).then_some(())
    })
    .await;
    let receiver = Receiver::start().await;
    let timer = format!("{path}/timers/k");
    let (status, _) = two.send("PUT", &timer, callback(&receiver, "/never", 3_600_000)).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(one.send("DELETE", path, Value::Null).await.0, StatusCode::CONFLICT, "it has a timer");
    assert_eq!(two.send("DELETE", &timer, Value::Null).await.0, StatusCode::OK);
    let (status, answer) = one.send("DELETE", path, Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    // The removal has waited until no node goes by an older copy. For a second, the other node may still know the
    // namespace as one that is being removed.
    eventually("the other node knows that the namespace is gone", async || {
        let (status, answer) = two.send("PUT", &timer, callback(&receiver, "/never", 3_600_000)).await;
        let is_refused = [StatusCode::TOO_MANY_REQUESTS, StatusCode::NOT_FOUND].contains(&status);
        assert!(is_refused, "{status}: {answer}");
        (status == StatusCode::NOT_FOUND).then_some(())
    })
    .await;
}

/// Makes `count` timers with the label `x`.
async fn make_labelled(node: &Rig, count: u64) {
    for portion in 0..count / 500 {
        let put = |number: usize| {
            let callback = json!({ "url": "http://127.0.0.1:9999/" });
            let timer = json!({ "delay_ms": 3_600_000, "callback": callback, "labels": ["x"] });
            json!({ "put": { "key": format!("{portion}-{number}"), "timer": timer } })
        };
        let changes: Vec<_> = (0..500).map(put).collect();
        let (status, answer) =
            node.send("POST", "/v1/namespaces/default/batch", json!({ "changes": changes })).await;
        let results = answer["results"].as_array().unwrap();
        let are_made = results.iter().all(|result| result["placed"]["outcome"] == "created");
        assert!(status == StatusCode::OK && are_made, "{answer}");
    }
}

async fn an_operation_is_shown_by_all_nodes_and_goes_on_when_its_node_stops(deployment: Deployment) {
    const COUNT: u64 = 3_000;
    let (one, two) = (deployment.node().await, deployment.node().await);
    make_labelled(&one, COUNT).await;
    let (status, begun) =
        one.send("POST", "/v1/namespaces/default/cancellations", json!({ "label": "x" })).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{begun}");
    let path = format!("/v1/namespaces/default/operations/{}", begun["id"].as_str().unwrap());
    let (status, seen) = two.send("GET", &path, Value::Null).await;
    assert_eq!((status, &seen["id"]), (StatusCode::OK, &begun["id"]), "{seen}");
    drop(one);
    let ended = eventually("the operation ends", async || {
        let (_, seen) = two.send("GET", &path, Value::Null).await;
        (seen["state"] != "running").then_some(seen)
    })
    .await;
    // The last step of the node that stops may have its effect after the other node has taken the operation over.
    let counted = ended["changed"].as_u64().unwrap();
    assert!(ended["state"] == "done" && (COUNT - 1_000..=COUNT).contains(&counted), "{ended}");
    let (_, stats) = two.send("GET", "/v1/stats", Value::Null).await;
    assert_eq!(stats["pending"], 0);
    let (_, list) = two.send("GET", "/v1/namespaces/default/operations", Value::Null).await;
    assert!(list.to_string().contains(begun["id"].as_str().unwrap()), "{list}");
}

async fn the_page_of_a_node_shows_all_nodes(deployment: Deployment) {
    let named = async |name: &'static str| {
        Rig::start_with(|settings| {
            deployment.share(settings);
            match &mut settings.store {
                StorePlace::Redis(redis) => redis.node = name.to_owned(),
                StorePlace::Postgres(postgres) => postgres.node = name.to_owned(),
                other => panic!("nodes do not share {other:?}"),
            }
        })
        .await
    };
    let (one, _two) = (named("first-node").await, named("second-node").await);
    let page = async |path: &str| {
        let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
        let response = router(one.service.clone()).oneshot(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    assert!(page("/ui/").await.contains("/ui/nodes"), "the pages have a link to the nodes");
    eventually("the page shows both nodes", async || {
        let page = page("/ui/nodes").await;
        (page.contains("first-node") && page.contains("second-node")).then_some(())
    })
    .await;
}

async fn a_schedule_that_one_node_removes_the_other_does_not_follow(deployment: Deployment) {
    let (one, two) = (deployment.node().await, deployment.node().await);
    let mut receiver = Receiver::start().await;
    let schedule = json!({ "every_ms": 100, "callback": { "url": receiver.url("/tick") } });
    let path = "/v1/namespaces/default/schedules/s";
    for round in 0..3 {
        let (status, answer) = one.send("PUT", path, schedule.clone()).await;
        assert_eq!(status, StatusCode::CREATED, "round {round}: {answer}");
        for _ in 0..5 {
            let received = receiver.next().await;
            assert_eq!(received.path, "/tick");
        }
        let (status, answer) = two.send("DELETE", path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let (status, _) = one.send("GET", path, Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "round {round}: a schedule that was removed is back");
        let label = "/v1/namespaces/default/timers?label=schedule:s";
        // Timers that the schedule made before its removal may still be delivered. It makes no more timers.
        eventually("the occurrences end", async || {
            let (_, list) = one.send("GET", label, Value::Null).await;
            list["items"].as_array().is_some_and(Vec::is_empty).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (_, list) = two.send("GET", label, Value::Null).await;
        assert_eq!(list["items"], json!([]), "round {round}");
    }
}

async fn healthz_is_red_while_the_server_is_away_and_green_again_without_a_restart(
    mut deployment: Deployment,
) {
    let rig = deployment.node().await;
    let mut receiver = Receiver::start().await;
    let health = async || rig.send("GET", "/healthz", Value::Null).await;
    assert_eq!(health().await.0, StatusCode::OK);
    deployment.take_away();
    let answer = eventually("healthz is red", async || {
        let (status, answer) = health().await;
        (status != StatusCode::OK).then_some(answer)
    })
    .await;
    assert!(answer["detail"].as_str().unwrap().contains("the store"), "{answer}");
    assert!(rig.service.alive().is_ok(), "the process is well, and is not to be started again");
    let (status, _) = rig.send("POST", TIMERS, callback(&receiver, "/x", 0)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    deployment.bring_back();
    eventually("healthz is green again", async || (health().await.0 == StatusCode::OK).then_some(())).await;
    eventually("creations work again", async || {
        let (status, _) = rig.send("POST", TIMERS, callback(&receiver, "/again", 0)).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
    loop {
        // The timer whose creation had an unknown outcome may exist, and then arrives, too.
        let received = receiver.next().await;
        if received.path == "/again" {
            break;
        }
    }
}
