//! Tests nodes on servers of Redis that lose their data, die, or are not fit.

use super::{TIMERS, callback};
use crate::rig::{Receiver, Rig, eventually};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::time::Duration;
use tourbillon_fault::{Cluster, Server};
use tourbillon_redis::Connect;
use tourbillon_server::{OpenError, RedisSettings, Service, Settings, StorePlace, router};
use tower::ServiceExt as _;

fn settings(server: &Server) -> RedisSettings {
    let connect = Connect::single(&server.url()).unwrap();
    let connect = connect.response_timeout(Duration::from_secs(2)).patience(Duration::from_secs(2));
    RedisSettings::new(connect, "d")
}

/// Returns the text of a node's `/metrics`.
async fn numbers(node: &Rig) -> String {
    let request = Request::get("/metrics").header("host", "localhost").body(Body::empty()).unwrap();
    let response = router(node.service.clone()).oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_are_gone_make_healthz_and_readyz_red_with_the_reason() {
    let Some(server) = Server::start(&[]) else { return };
    let rig = Rig::start_with(|with| with.store = StorePlace::Redis(settings(&server))).await;
    let receiver = Receiver::start().await;
    let (status, _) = rig.send("POST", TIMERS, callback(&receiver, "/lost", 3_600_000)).await;
    assert_eq!(status, StatusCode::CREATED);
    server.command(&["FLUSHALL"]);
    for path in ["/healthz", "/readyz"] {
        let answer = eventually(path, async || {
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
    let rig = Rig::start_with(|settings| settings.store = StorePlace::Redis(redis)).await;
    let number = async |name: &str| {
        let numbers = numbers(&rig).await;
        let line = numbers.lines().find_map(|line| line.strip_prefix(name));
        line.map(|number| number.trim().parse::<f64>().unwrap())
    };
    eventually("the node has all shards", async || {
        (number("tourbillon_shards_without_node ").await == Some(0.0)).then_some(())
    })
    .await;
    // Kill the server that has the list of the nodes.
    let slot = cluster.slot("tb:{d}:nodes");
    let victim = cluster.owner(0, slot).unwrap();
    cluster.nodes[victim].kill();
    let age = async || number("tourbillon_poll_age_seconds ").await.filter(|age| *age > 3.0);
    eventually("the age of the last poll grows", age).await;
    eventually("the shards of the server that is away have no node", async || {
        number("tourbillon_shards_without_node ").await.filter(|free| *free > 10.0)
    })
    .await;
    // While the client looks for the dead server, a request may fail. So try again.
    let nodes = eventually("the nodes are answered", async || {
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
        settings.store = StorePlace::Redis(redis);
        Service::open(settings)
    };
    // A process that another test starts holds the lock of the folder until its program begins.
    let with_free = async |redis: &RedisSettings| {
        eventually("the folder is free", async || {
            let opened = with(redis.clone());
            (!matches!(opened, Err(OpenError::InUse(_)))).then_some(opened)
        })
        .await
    };
    let error = with(settings(&server)).unwrap_err();
    assert!(matches!(error, OpenError::Servers(_)) && error.is_of_configuration(), "{error:?}");
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    std::fs::write(folder.path().join("namespaces.json"), r#"{"old":{"limits":{}}}"#).unwrap();
    let service = with_free(&settings(&server)).await.unwrap();
    let notices = service.notices().join("\n");
    assert!(notices.contains("namespaces.json is not used"), "{notices}");
    assert!(notices.contains("append-only file"), "a warning of the checks: {notices}");
    let error = with(settings(&server)).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "two nodes do not share a folder: {error:?}");
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    let mut other = settings(&server);
    other.shards = Some(128);
    let error = with_free(&other).await.unwrap_err();
    assert!(error.is_of_configuration() && error.to_string().contains("64 shards"), "{error}");
    drop(server);
    let error = with_free(&other).await.unwrap_err();
    assert!(matches!(error, OpenError::NoServers(_)) && !error.is_of_configuration(), "{error:?}");
}
