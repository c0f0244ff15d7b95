//! Tests several services, called nodes, on a single deployment in Redis. A change through one node holds for the
//! others. Without `redis-server`, the tests say that they were skipped.

use crate::rig::{Receiver, Rig};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tourbillon_api::Moment;
use tourbillon_fault::{Cluster, Server};
use tourbillon_redis::Connect;
use tourbillon_server::{OpenError, RedisSettings, Service, Settings, router};
use tower::ServiceExt as _;

/// The longest time for which a test waits for an event that should come within seconds. The time is long, because the
/// machine may be busy.
const SOON: Duration = Duration::from_secs(60);
const TIMERS: &str = "/v1/namespaces/default/timers";

fn settings(server: &Server) -> RedisSettings {
    let connect = Connect::single(&server.url()).unwrap();
    let connect = connect.response_timeout(Duration::from_secs(2)).patience(Duration::from_secs(2));
    RedisSettings::new(connect, "d")
}

/// Starts a node of a service on a Redis server. The node has its own data folder.
async fn node(server: &Server) -> Rig {
    let redis = settings(server);
    Rig::start_with(|settings| {
        settings.lease = Duration::from_secs(3);
        settings.redis = Some(redis);
    })
    .await
}

/// Calls `ask` until it returns a value, and returns this value. Fails after a minute with `condition` in the message.
async fn until<T>(condition: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(begun.elapsed() < SOON, "{condition}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the text of a node's `/metrics`.
async fn numbers(node: &Rig) -> String {
    let request = Request::get("/metrics").header("host", "localhost").body(Body::empty()).unwrap();
    let response = router(node.service.clone()).oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn make_namespace(node: &Rig, number: usize) -> StatusCode {
    node.send("PUT", &format!("/v1/namespaces/n{number}"), json!({})).await.0
}

fn callback(receiver: &Receiver, path: &str, delay_ms: u64) -> Value {
    json!({ "delay_ms": delay_ms, "callback": { "url": receiver.url(path) } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_has_made_the_other_sees_cancels_and_delivers() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (node(&server).await, node(&server).await);
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
        let received = tokio::time::timeout(SOON, receiver.next()).await.unwrap();
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
    let received = until("the delivery by the other node", async || Some(receiver.next().await)).await;
    assert_eq!(received.path, "/late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_makes_one_timer_whatever_nodes_the_requests_reach() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (node(&server).await, node(&server).await);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_of_one_node_are_known_to_the_others_and_none_is_lost() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (node(&server).await, node(&server).await);
    let (status, _) = one.send("PUT", "/v1/namespaces/shop", json!({ "max_timers": 5 })).await;
    assert_eq!(status, StatusCode::CREATED);
    let begun = Instant::now();
    until("the other node knows the namespace", async || {
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
        until("both know all namespaces", async || {
            let (_, list) = node.send("GET", "/v1/namespaces", Value::Null).await;
            (list.as_array().unwrap().len() == 22).then_some(())
        })
        .await;
    }
    // A pause through one node holds back the deliveries of the other node, too.
    let mut receiver = Receiver::start().await;
    let (status, _) = one.send("PUT", "/v1/namespaces/shop", json!({ "paused": true })).await;
    assert_eq!(status, StatusCode::OK);
    until("the other node knows the pause", async || {
        let (_, view) = two.send("GET", "/v1/namespaces/shop", Value::Null).await;
        (view["limits"]["paused"] == true).then_some(())
    })
    .await;
    let path = "/v1/namespaces/shop/timers";
    let (status, _) = two.send("POST", path, callback(&receiver, "/shop", 0)).await;
    assert_eq!(status, StatusCode::CREATED);
    until("the timer is parked", async || {
        let (_, view) = one.send("GET", "/v1/namespaces/shop", Value::Null).await;
        (view["parked"] == 1).then_some(())
    })
    .await;
    let (status, _) = two.send("PUT", "/v1/namespaces/shop", json!({})).await;
    assert_eq!(status, StatusCode::OK);
    // The timer goes on, whichever node has parked it.
    let received = tokio::time::timeout(SOON, async { receiver.next().await }).await.unwrap();
    assert_eq!(received.path, "/shop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_ended_and_prolonged_through_another_node() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (node(&server).await, node(&server).await);
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
        until("a claim", async || {
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
    let (status, _) = one.send("GET", &format!("{TIMERS}/acked"), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    place("nacked", 60_000, 1).await;
    let (claim, other) = fetch().await;
    let name = claim["claim"].as_str().unwrap();
    let (status, answer) =
        other.send("POST", &format!("{claims}/{name}/nack"), json!({ "error": "no paper" })).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    let (again, other) = fetch().await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_show_each_other_and_who_has_the_shards() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (node(&server).await, node(&server).await);
    let shares = async |node: &Rig| {
        let (status, nodes) = node.send("GET", "/v1/nodes", Value::Null).await;
        assert_eq!((status, nodes["shards"].as_array().unwrap().len()), (StatusCode::OK, 64), "{nodes}");
        let live = nodes["nodes"].as_array().unwrap().iter().filter(|node| node["live"] == true);
        live.map(|node| node["shards"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    until("the nodes share the shards", async || {
        let shares = shares(&one).await;
        (shares.len() == 2 && shares.iter().sum::<u64>() == 64 && !shares.contains(&0)).then_some(())
    })
    .await;
    let (_, seen) = two.send("GET", "/v1/nodes", Value::Null).await;
    let own: Vec<_> = seen["nodes"].as_array().unwrap().iter().filter(|node| node["this"] == true).collect();
    assert_eq!(own.len(), 1, "{seen}");
    drop(two);
    until("the other node has all shards", async || (shares(&one).await == [64]).then_some(())).await;
    let (_, nodes) = one.send("GET", "/v1/nodes", Value::Null).await;
    let takeovers: u64 =
        nodes["shards"].as_array().unwrap().iter().map(|shard| shard["takeovers"].as_u64().unwrap()).sum();
    assert_eq!(takeovers, 0, "a node that stops gives its shards back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_one_node_removes_the_other_does_not_follow() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, two) = (node(&server).await, node(&server).await);
    let mut receiver = Receiver::start().await;
    let schedule = json!({ "every_ms": 100, "callback": { "url": receiver.url("/tick") } });
    let path = "/v1/namespaces/default/schedules/s";
    for round in 0..3 {
        let (status, answer) = one.send("PUT", path, schedule.clone()).await;
        assert_eq!(status, StatusCode::CREATED, "round {round}: {answer}");
        for _ in 0..5 {
            let received = tokio::time::timeout(SOON, async { receiver.next().await }).await.unwrap();
            assert_eq!(received.path, "/tick");
        }
        let (status, answer) = two.send("DELETE", path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let (status, _) = one.send("GET", path, Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "round {round}: a schedule that was removed is back");
        let label = "/v1/namespaces/default/timers?label=schedule:s";
        // Timers that the schedule made before its removal may still be delivered. It makes no more timers.
        until("the occurrences end", async || {
            let (_, list) = one.send("GET", label, Value::Null).await;
            list["items"].as_array().is_some_and(Vec::is_empty).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (_, list) = two.send("GET", label, Value::Null).await;
        assert_eq!(list["items"], json!([]), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthz_is_red_while_redis_is_away_and_green_again_without_a_restart() {
    let Some(server) = Server::start(&[]) else { return };
    let rig = node(&server).await;
    let mut receiver = Receiver::start().await;
    let health = async || rig.send("GET", "/healthz", Value::Null).await;
    assert_eq!(health().await.0, StatusCode::OK);
    server.stop();
    let answer = until("healthz is red", async || {
        let (status, answer) = health().await;
        (status != StatusCode::OK).then_some(answer)
    })
    .await;
    assert!(answer["detail"].as_str().unwrap().contains("the store"), "{answer}");
    assert!(rig.service.alive().is_ok(), "the process is well, and is not to be started again");
    let (status, _) = rig.send("POST", TIMERS, callback(&receiver, "/x", 0)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    server.go_on();
    until("healthz is green again", async || (health().await.0 == StatusCode::OK).then_some(())).await;
    until("creations work again", async || {
        let (status, _) = rig.send("POST", TIMERS, callback(&receiver, "/again", 0)).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
    loop {
        // The timer whose creation had an unknown outcome may exist, and then arrives, too.
        let received = tokio::time::timeout(SOON, async { receiver.next().await }).await.unwrap();
        if received.path == "/again" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_are_gone_make_healthz_and_readyz_red_with_the_reason() {
    let Some(server) = Server::start(&[]) else { return };
    let rig = node(&server).await;
    let receiver = Receiver::start().await;
    let (status, _) = rig.send("POST", TIMERS, callback(&receiver, "/lost", 3_600_000)).await;
    assert_eq!(status, StatusCode::CREATED);
    server.command(&["FLUSHALL"]);
    for path in ["/healthz", "/readyz"] {
        let answer = until(path, async || {
            let (status, answer) = rig.send("GET", path, Value::Null).await;
            (status == StatusCode::SERVICE_UNAVAILABLE).then_some(answer)
        })
        .await;
        assert!(answer.to_string().contains("its server has lost it"), "{path}: {answer}");
    }
    let (status, answer) = rig.send("POST", TIMERS, callback(&receiver, "/new", 0)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "nothing is mixed: {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_primary_of_a_cluster_is_seen_in_the_age_of_the_last_poll() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let connect = Connect::cluster(cluster.urls()).unwrap();
    let redis = RedisSettings::new(connect, "d");
    let rig = Rig::start_with(|settings| settings.redis = Some(redis)).await;
    let number = async |name: &str| {
        let numbers = numbers(&rig).await;
        let line = numbers.lines().find_map(|line| line.strip_prefix(name));
        line.map(|number| number.trim().parse::<f64>().unwrap())
    };
    until("the node has all shards", async || {
        (number("tourbillon_shards_without_node ").await == Some(0.0)).then_some(())
    })
    .await;
    // Kill the server that has the list of the nodes.
    let slot = cluster.slot("tb:{d}:nodes");
    let victim = cluster.owner(0, slot).unwrap();
    cluster.nodes[victim].kill();
    let age = async || number("tourbillon_poll_age_seconds ").await.filter(|age| *age > 3.0);
    until("the age of the last poll grows", age).await;
    until("the shards of the server that is away have no node", async || {
        number("tourbillon_shards_without_node ").await.filter(|free| *free > 10.0)
    })
    .await;
    // While the client looks for the dead server, a request may fail. So try again.
    let nodes = until("the nodes are answered", async || {
        let (status, nodes) = rig.send("GET", "/v1/nodes", Value::Null).await;
        (status == StatusCode::OK).then_some(nodes)
    })
    .await;
    let shards = nodes["shards"].as_array().unwrap();
    assert!(shards.iter().all(|shard| shard["owner"] == nodes["nodes"][0]["incarnation"]), "{nodes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_folders_that_are_not_fit_are_refused_with_the_reason() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let with = |redis: RedisSettings| {
        let mut settings = Settings::new(folder.path());
        settings.redis = Some(redis);
        Service::open(settings)
    };
    let error = with(settings(&server)).unwrap_err();
    assert!(matches!(error, OpenError::Servers(_)) && error.is_of_configuration(), "{error:?}");
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    std::fs::write(folder.path().join("namespaces.json"), r#"{"old":{"limits":{}}}"#).unwrap();
    let service = with(settings(&server)).unwrap();
    let notices = service.notices().join("\n");
    assert!(notices.contains("namespaces.json is not used"), "{notices}");
    assert!(notices.contains("append-only file"), "a warning of the checks: {notices}");
    let error = with(settings(&server)).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "two nodes do not share a folder: {error:?}");
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    let mut other = settings(&server);
    other.shards = Some(128);
    let error = until("the folder is free", async || {
        let mut settings = Settings::new(folder.path());
        settings.redis = Some(other.clone());
        let error = Service::open(settings).unwrap_err();
        (!matches!(error, OpenError::InUse(_))).then_some(error)
    })
    .await;
    assert!(error.is_of_configuration() && error.to_string().contains("64 shards"), "{error}");
    drop(server);
    let error = with(other).unwrap_err();
    assert!(matches!(error, OpenError::NoServers(_)) && !error.is_of_configuration(), "{error:?}");
}
