//! Tests how many commands parked timers and queues cost on Redis. The commands that scripts call count, too. Without
//! `redis-server`, the tests say that they were skipped.

use crate::rig::{Rig, SOON, eventually};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tourbillon_durable::state::State;
use tourbillon_durable::store::TimerStore as _;
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Server;
use tourbillon_redis::{Connect, RedisStore};
use tourbillon_server::{RedisSettings, StorePlace};

/// Returns the number in the environment variable `variable`. If the variable is not set, returns `default`. A person
/// can make a run larger by the variable.
fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Starts `count` nodes on a Redis server. Returns the nodes once they have divided the shards among themselves.
async fn nodes(server: &Server, count: usize) -> Vec<Rig> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        let connect = Connect::single(&server.url()).unwrap();
        let redis = RedisSettings::new(connect, "d");
        nodes.push(Rig::start_with(|settings| settings.store = StorePlace::Redis(redis)).await);
    }
    let is_divided = |view: &Value| {
        let shares: Vec<u64> =
            view["nodes"].as_array().unwrap().iter().filter_map(|node| node["shards"].as_u64()).collect();
        shares.len() == count && shares.iter().all(|share| *share > 0) && shares.iter().sum::<u64>() == 64
    };
    nodes[0].until("/v1/nodes", is_divided).await;
    nodes
}

fn commands(server: &Server) -> u64 {
    server.info("total_commands_processed").unwrap().parse().unwrap()
}

/// Returns how often the Redis server ran each command, as a text for a message.
fn by_command(server: &Server) -> String {
    let info: String = server.query(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((rest.split(',').next()?.parse::<u64>().ok()?, name.to_owned()))
    };
    let mut all: Vec<_> = info.lines().filter_map(calls).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    format!("{all:?}")
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::builder("d").open(&Connect::single(&server.url()).unwrap()).await.unwrap()
}

/// The test parks timers for all kinds of reasons that no node can lift. The number of timers is `TOURBILLON_PARKED`,
/// 2,000 by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_timers_cost_no_commands_by_their_number() {
    let Some(server) = Server::start(&[]) else { return };
    let nodes = nodes(&server, 3).await;
    let (status, answer) = nodes[0].send("PUT", "/v1/namespaces/shop", json!({ "paused": true })).await;
    assert!(status.is_success(), "{answer}");
    let store = open(&server).await;
    let count = number("TOURBILLON_PARKED", 2_000);
    let reasons = ["paused:shop", "queue:shop/q", "no handler: mail", "queue:default/r"];
    for first in (0..count).step_by(500) {
        let timers = (first..count.min(first + 500)).map(|n| {
            let reason = if n % 10 < 7 { reasons[0] } else { reasons[n % 4] };
            Timer {
                namespace: "shop".into(),
                state: State::Parked(reason.into()),
                ..Timer::new(TimerId::fresh(), "test", store.now())
            }
        });
        store.import(timers.collect()).await.unwrap();
    }
    drop(store);
    // Soon after a node has joined, the nodes search for parked timers. Wait until this is over.
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.command(&["CONFIG", "RESETSTAT"]);
    let begun = Instant::now();
    // The nodes repeat the search for parked timers. With many timers, measure long enough to contain several searches.
    let span = if count > 2_000 { 65 } else { 8 };
    tokio::time::sleep(Duration::from_secs(span)).await;
    let rate = commands(&server) as f64 / begun.elapsed().as_secs_f64();
    let calls = by_command(&server);
    eprintln!("{count} parked timers, three nodes: {rate:.0} commands a second; {calls}");
    // Idle nodes send about 300 commands a second. A search through the reasons may add some.
    assert!(rate <= 400.0, "{rate:.0} commands a second for {count} parked timers: {calls}");
    let (_, view) = nodes[0].send("GET", "/v1/namespaces/shop", Value::Null).await;
    assert_eq!(view["parked"], count, "nothing was put back");
}

/// Fetches `count` timers of the queue `q` from a single node, up to 50 with each request. Returns the claims (holds on
/// the timers) and the number of requests.
async fn fetch_all(node: &Rig, count: usize) -> (Vec<Value>, usize) {
    let (mut claims, mut requests) = (Vec::new(), 0);
    let begun = Instant::now();
    while claims.len() < count {
        assert!(begun.elapsed() < SOON, "{} of {count} in {requests} requests", claims.len());
        requests += 1;
        let wish = json!({ "max": 50, "wait_ms": 1_000 });
        let (status, answer) = node.send("POST", "/v1/namespaces/default/queues/q/claims", wish).await;
        assert!(status.is_success(), "{answer}");
        claims.extend(answer["claims"].as_array().unwrap().iter().cloned());
    }
    (claims, requests)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_at_one_node_gets_the_timers_of_all_nodes_for_few_commands() {
    const COUNT: usize = 1_000;
    for count in 1..=3 {
        let Some(server) = Server::start(&[]) else { return };
        let nodes = nodes(&server, count).await;
        for first in (0..COUNT).step_by(100) {
            let changes: Vec<Value> = (first..first + 100)
                .map(|n| {
                    let timer = json!({ "delay_ms": n % 10, "pull": { "queue": "q", "json": n } });
                    json!({ "put": { "key": format!("k{n}"), "timer": timer } })
                })
                .collect();
            let batch = json!({ "changes": changes });
            let (status, answer) = nodes[count - 1].send("POST", "/v1/namespaces/default/batch", batch).await;
            assert!(status.is_success(), "{answer}");
        }
        nodes[0].until("/v1/namespaces/default", |view| view["parked"] == COUNT).await;
        server.command(&["CONFIG", "RESETSTAT"]);
        let begun = Instant::now();
        let (claims, requests) = fetch_all(&nodes[0], COUNT).await;
        let (took, all, calls) = (begun.elapsed(), commands(&server), by_command(&server));
        let each = all as f64 / COUNT as f64;
        eprintln!("{count} nodes: {requests} requests in {took:.2?}, {each:.2} commands a timer; {calls}");
        let keys: BTreeSet<_> = claims.iter().map(|claim| claim["key"].to_string()).collect();
        assert_eq!((keys.len(), claims.len()), (COUNT, COUNT), "each timer arrives once");
        assert!(each <= 5.0, "{each:.2} commands a timer with {count} nodes: {calls}");
        assert!(requests <= 40, "{requests} requests with {count} nodes");
        // The timers may be acknowledged at any node.
        server.command(&["CONFIG", "RESETSTAT"]);
        let acks = claims.iter().enumerate().map(|(nth, claim)| {
            let path = format!("/v1/namespaces/default/claims/{}/ack", claim["claim"].as_str().unwrap());
            let node = &nodes[nth % count];
            async move {
                let (status, answer) = node.send("POST", &path, Value::Null).await;
                assert!(status.is_success(), "{answer}");
            }
        });
        futures_util::stream::iter(acks).buffer_unordered(64).collect::<Vec<()>>().await;
        let each = commands(&server) as f64 / COUNT as f64;
        eprintln!("{count} nodes: {each:.2} commands an acknowledgement; {}", by_command(&server));
        let have_ended = |view: &Value| ["pending", "leased", "parked"].iter().all(|phase| view[phase] == 0);
        nodes[0].until("/v1/namespaces/default", have_ended).await;
    }
}

/// A receiver waits for timers at one node. The timers become due at the other nodes, one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_waits_at_one_node_gets_what_becomes_due_at_another() {
    let Some(server) = Server::start(&[]) else { return };
    let nodes = nodes(&server, 3).await;
    let mut waits = Vec::new();
    for n in 0..24 {
        let wish = json!({ "max": 1, "wait_ms": 15_000 });
        let fetch = nodes[0].send("POST", "/v1/namespaces/default/queues/q/claims", wish);
        let place = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let timer = json!({ "delay_ms": 20, "pull": { "queue": "q", "json": n } });
            let path = format!("/v1/namespaces/default/timers/k{n}");
            let (status, answer) = nodes[n % 3].send("PUT", &path, timer).await;
            assert!(status.is_success(), "{answer}");
            Instant::now()
        };
        let ((status, answer), placed) = tokio::join!(fetch, place);
        assert!(status.is_success(), "{answer}");
        assert_eq!(answer["claims"][0]["key"], format!("k{n}"), "{answer}");
        waits.push(placed.elapsed());
    }
    waits.sort_unstable();
    eprintln!("from the creation to the receiver: median {:.2?}, longest {:.2?}", waits[12], waits[23]);
    assert!(waits[12] < Duration::from_millis(500) && waits[23] < Duration::from_secs(5), "{waits:?}");
}

/// A node leases a timer and then dies. The node that owns the timer's shard ends the lease, although it did not make
/// the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetched_timer_comes_back_after_its_node_is_gone() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let redis = RedisSettings::new(connect, "d");
    let owner = Rig::start_with(|settings| {
        settings.store = StorePlace::Redis(redis);
        settings.lease = Duration::from_secs(2);
    })
    .await;
    let timer = json!({ "delay_ms": 0, "pull": { "queue": "q", "json": 1 } });
    let (status, answer) = owner.send("PUT", "/v1/namespaces/default/timers/k", timer).await;
    assert!(status.is_success(), "{answer}");
    let store = open(&server).await;
    // This claimant stands for a node that leases a timer and then does nothing more.
    let by = tourbillon_durable::store::Claimant { incarnation: 7, lease: Duration::from_secs(2) };
    let limit = tourbillon_durable::store::Limit { timers: 1, bytes: u64::MAX };
    let mut claim = 0;
    eventually("the timer is parked", async || {
        claim += 1;
        let claimed = store.claim_parked(by, claim, "queue:default/q".into(), 1, limit).await;
        (!claimed.unwrap().unwrap().leased.is_empty()).then_some(())
    })
    .await;
    store.leave().await.unwrap();
    drop(store);
    let begun = Instant::now();
    let (claims, _) = fetch_all(&owner, 1).await;
    eprintln!("the timer came back after {:.2?}", begun.elapsed());
    assert_eq!(claims[0]["attempt"], 1, "{claims:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Imports `count` timers into a store, as a restore does. The timers are due far in the future, and their keys begin
/// with `bulk-`.
async fn import_far(store: &RedisStore, count: usize) {
    let now = store.now();
    for first in (0..count).step_by(500) {
        let timers = (first..count.min(first + 500)).map(|n| {
            let key = format!("bulk-{n}");
            let id = store.fresh_id("default", Some(&key));
            Timer {
                namespace: "default".into(),
                key: Some(key.into()),
                created: now,
                ..Timer::new(id, "test", now + Duration::from_secs(86_400))
            }
        });
        store.import(timers.collect()).await.unwrap();
    }
}

async fn begin_cancel(node: &Rig) -> String {
    let wish = json!({ "key_prefix": "bulk-" });
    let (status, answer) = node.send("POST", "/v1/namespaces/default/cancellations", wish).await;
    assert!(status.is_success(), "{answer}");
    format!("/v1/namespaces/default/operations/{}", answer["id"].as_str().unwrap())
}

/// Waits until a node shows that an operation, a change of many timers, is done. Returns the operation.
async fn ended(node: &Rig, operation: &str) -> Value {
    node.until(operation, |answer| answer["state"] == "done").await
}

/// An operation cancels many timers while the test creates other timers. The number of cancelled timers is
/// `TOURBILLON_CANCELLED`, 3,000 by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_cancel_costs_few_scripts_and_is_shown_by_all_nodes() {
    let Some(server) = Server::start(&[]) else { return };
    let nodes = nodes(&server, 2).await;
    let store = open(&server).await;
    let count = number("TOURBILLON_CANCELLED", 3_000);
    import_far(&store, count).await;
    drop(store);
    // Wait, so that the timers are older than the operation.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let scripts = || -> u64 {
        let info: String = server.query(&["INFO", "commandstats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let before = scripts();
    let begun = Instant::now();
    let operation = begin_cancel(&nodes[0]).await;
    let mut creations = Vec::new();
    let done = async { ended(&nodes[1], &operation).await };
    let create = async {
        for n in 0.. {
            let begun = Instant::now();
            let timer = json!({ "delay_ms": 3_600_000, "pull": { "queue": "q", "json": n } });
            let (status, answer) =
                nodes[1].send("PUT", &format!("/v1/namespaces/default/timers/n{n}"), timer).await;
            assert!(status.is_success(), "{answer}");
            creations.push(begun.elapsed());
        }
    };
    let done = tokio::select! {
        done = done => done,
        () = create => unreachable!(),
    };
    let took = begun.elapsed();
    creations.sort_unstable();
    let each = (scripts() - before - creations.len() as u64) as f64 / count as f64;
    let p99 = creations.get(creations.len() * 99 / 100).copied().unwrap_or_default();
    eprintln!(
        "{count} timers cancelled in {took:.2?}, {:.0} a second, {each:.2} scripts a timer; {} creations \
         meanwhile, p99 {p99:.2?}",
        count as f64 / took.as_secs_f64(),
        creations.len()
    );
    assert_eq!(done["changed"], count);
    assert!(each < 0.8, "{each:.2} scripts a timer");
}
