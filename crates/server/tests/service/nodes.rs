//! Tests how the HTTP interface and `/metrics` show the nodes that share a store.

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Call, Hook, Hooked, Node, Nodes, Shard, StoreFuture, TimerStore};
use tourbillon_server::{Service, Settings, router};
use tower::ServiceExt as _;

/// A hook that makes a store look as if two nodes shared it. The second of these nodes is dead.
#[derive(Default)]
struct Shared;

impl Hook for Shared {
    type Seen = ();

    fn see(&self, _: Call<'_>) {}

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }

    fn nodes<'a>(&'a self, _: &'a dyn TimerStore) -> StoreFuture<'a, Option<Nodes>> {
        Box::pin(async { Ok(Some(two_nodes())) })
    }
}

/// Returns the two nodes that the hook shows: a live node and a dead node.
fn two_nodes() -> Nodes {
    let at = UtcMillis::from_millis;
    let node = |incarnation, name: &str, seen, is_live, is_this| Node {
        incarnation,
        name: name.into(),
        version: "1.2.3".into(),
        since: at(1_000),
        seen: at(seen),
        is_live,
        is_this,
    };
    Nodes {
        now: at(100_000),
        nodes: vec![node(0xa1, "one", 99_000, true, true), node(0xb2, "<two>", 50_000, false, false)],
        shards: vec![
            Shard {
                number: 0,
                owner: Some(0xa1),
                polled: Some(at(93_000)),
                first_due: Some(at(40_000)),
                epoch: 3,
                takeovers: 2,
                taken_over: Some(at(60_000)),
                is_silent: false,
                is_lost: false,
            },
            Shard { number: 1, ..Shard::default() },
            // The server of this shard cannot be reached. When it answered last, nothing was due.
            Shard {
                number: 2,
                owner: Some(0xa1),
                polled: Some(at(88_000)),
                epoch: 1,
                takeovers: 1,
                is_silent: true,
                ..Shard::default()
            },
            Shard { number: 3, is_lost: true, ..Shard::default() },
        ],
        set_backs: 2,
    }
}

async fn get(service: &Service, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    let response = router(service.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_of_a_shared_store_are_shown_over_http_on_the_page_and_as_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Hooked::<Shared>::default());
    let service = Service::open_on(Settings::new(folder.path()), store).unwrap();
    let (status, text) = get(&service, "/v1/nodes").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let nodes: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        nodes,
        json!({
            "now": "1970-01-01T00:01:40.000Z", "shared": true,
            "nodes": [
                { "incarnation": "00000000000000a1", "name": "one", "version": "1.2.3", "since": "1970-01-01T00:00:01.000Z",
                  "seen": "1970-01-01T00:01:39.000Z", "live": true, "this": true, "shards": 2 },
                { "incarnation": "00000000000000b2", "name": "<two>", "version": "1.2.3", "since": "1970-01-01T00:00:01.000Z",
                  "seen": "1970-01-01T00:00:50.000Z", "live": false, "this": false, "shards": 0 },
            ],
            "shards": [
                { "number": 0, "owner": "00000000000000a1", "polled_ms_ago": 7_000, "overdue_ms": 60_000,
                  "first_due": "1970-01-01T00:00:40.000Z", "epoch": 3, "takeovers": 2,
                  "taken_over": "1970-01-01T00:01:00.000Z" },
                { "number": 1, "overdue_ms": 0, "epoch": 0, "takeovers": 0 },
                { "number": 2, "owner": "00000000000000a1", "polled_ms_ago": 12_000, "overdue_ms": 0, "epoch": 1,
                  "takeovers": 1, "silent": true },
                { "number": 3, "overdue_ms": 0, "epoch": 0, "takeovers": 0, "lost": true },
            ],
        })
    );
    let (_, numbers) = get(&service, "/metrics").await;
    for line in [
        "tourbillon_nodes 1",
        "tourbillon_shards_without_node 3",
        "tourbillon_shards_lost 1",
        "tourbillon_set_backs_total 2",
        "tourbillon_takeovers_total 3",
        "tourbillon_poll_age_seconds 12",
    ] {
        assert!(numbers.lines().any(|other| other == line), "{line} is not in {numbers}");
    }
    let (status, page) = get(&service, "/ui/nodes").await;
    assert_eq!(status, StatusCode::OK, "{page}");
    for part in [
        "shard 0 of one: the first timer is due for 1 min, looked at 7 s ago",
        "shard 2 of one: its server does not answer, looked at 12 s ago",
        "3 takeovers so far",
        "1 shards have no node",
        "The server of 1 shards does not answer",
        "Lost by the server: 3.",
        "<code>tourbillond mend</code>",
        ">lost<",
        ">not known of 1 shards<",
        ">not known<",
        "&#60;two&#62;",
        ">gone<",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_a_file_of_its_own_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(Settings::new(folder.path())).unwrap();
    let (_, text) = get(&service, "/v1/nodes").await;
    let nodes: Value = serde_json::from_str(&text).unwrap();
    let expected = (json!(false), json!([]), json!([]));
    assert_eq!(
        (&nodes["shared"], &nodes["nodes"], &nodes["shards"]),
        (&expected.0, &expected.1, &expected.2)
    );
    let (_, numbers) = get(&service, "/metrics").await;
    for line in [
        "tourbillon_nodes 1",
        "tourbillon_shards_without_node 0",
        "tourbillon_shards_lost 0",
        "tourbillon_set_backs_total 0",
        "tourbillon_takeovers_total 0",
    ] {
        assert!(numbers.lines().any(|other| other == line), "{line} is not in {numbers}");
    }
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
}
