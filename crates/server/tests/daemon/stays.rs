//! Tests faults of Redis that last. Clients call two services over HTTP. While the fault lasts, callbacks arrive,
//! requests are answered, and each refusal names its reason. Each test prints its figures.
//!
//! `TOURBILLON_STAYS=60` makes each fault last for 60 seconds. The default is 4.

use crate::clients::{Http, callback, far, timer};
use crate::process::{Daemon, SOON, folder, run, text};
use crate::receiver::Receiver;
use crate::redis::on_redis;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tourbillon_fault::{Server, Watched, eventually};

/// The pause between two creations of timers by a test.
const PAUSE: Duration = Duration::from_millis(20);
/// The time from a timer's creation to its due moment.
const DELAY: Duration = Duration::from_millis(500);
/// The greatest median lateness that a test accepts. The limit is high, because the machine may be busy.
const BUSY: Duration = Duration::from_secs(2);

fn stay() -> Duration {
    let seconds = std::env::var("TOURBILLON_STAYS").map_or(4, |seconds| seconds.parse().expect("a number"));
    Duration::from_secs(seconds)
}

/// Two services on the same Redis servers, and a receiver of their callbacks.
struct Stage {
    folder: TempDir,
    services: [Daemon; 2],
    receiver: Receiver,
    next: usize,
    /// Whether the test accepts that a callback arrives twice. A failover may lose the stored end of a delivery,
    /// because no client waits until the end is confirmed.
    may_repeat: bool,
}

/// The answer to a request that created a timer, and the moment of the request.
struct Made {
    sent: SystemTime,
    status: u16,
    json: Value,
}

/// The outcomes of all creations of timers within a span of time.
#[derive(Default)]
struct Span {
    created: usize,
    /// The refused creations, by status. Each status has the number of refusals, and the text of the last refusal.
    refused: BTreeMap<u16, (usize, String)>,
    /// How late each callback arrived, in ascending order.
    late: Vec<Duration>,
}

impl Span {
    fn percentile(&self, percent: usize) -> Duration {
        self.late.get(self.late.len() * percent / 100).copied().unwrap_or_default()
    }

    #[expect(clippy::print_stdout, reason = "figures")]
    fn show(&self, phase: &str) {
        let refused: Vec<_> =
            self.refused.iter().map(|(status, (count, _))| format!("{count} x {status}")).collect();
        println!(
            "{phase}: {} created, refused: {refused:?}; {} callbacks, late by {:.0?} (p50), {:.0?} (p99)",
            self.created,
            self.late.len(),
            self.percentile(50),
            self.percentile(99)
        );
    }
}

impl Stage {
    /// Starts two services and a receiver of their callbacks. `redis` is the text of the settings section `redis`.
    async fn start(redis: &str) -> Self {
        let folder = folder();
        fs::write(folder.path().join("redis.toml"), format!("[redis]\n{redis}")).unwrap();
        let services = ["one", "two"].map(|data| on_redis(folder.path(), data));
        let receiver = Receiver::start(Duration::ZERO).await;
        Self { folder, services, receiver, next: 0, may_repeat: false }
    }

    fn http(&self, nth: usize) -> Http {
        Http::new(self.services[nth % 2].address)
    }

    /// Creates timers at both services for the time `time`. Waits until each acknowledged timer has arrived. Fails if a
    /// timer arrives twice and the test does not accept that.
    async fn create_for(&mut self, time: Duration) -> Span {
        let begun = Instant::now();
        let mut requests: Vec<JoinHandle<Option<Made>>> = Vec::new();
        let clients = [self.http(0), self.http(1)];
        while begun.elapsed() < time {
            let (http, nth) = (clients[self.next % 2].clone(), self.next);
            let url = self.receiver.url("/");
            self.next += 1;
            requests.push(tokio::spawn(async move {
                let delay = u64::try_from(DELAY.as_millis()).unwrap();
                let sent = SystemTime::now();
                let answer = http
                    .try_send("PUT", &timer(&format!("stays-{nth}")), &[], &callback(&url, delay))
                    .await?;
                Some(Made { sent, status: answer.status.as_u16(), json: answer.json })
            }));
            tokio::time::sleep(PAUSE).await;
        }
        let mut span = Span::default();
        let mut due = BTreeMap::new();
        for request in requests {
            let made = request.await.unwrap().expect("each request has an answer");
            if made.status == 201 {
                span.created += 1;
                due.insert(made.json["id"].as_str().unwrap().to_owned(), made.sent + DELAY);
            } else {
                let (count, why) = span.refused.entry(made.status).or_default();
                *count += 1;
                *why = made.json.to_string();
            }
        }
        span.late = self.lateness(&due).await;
        span
    }

    /// Creates `number` timers at the first service. The first timer is due after the time `after`, and each further
    /// timer a little later. Returns the earliest moment at which each timer can be due, by the timer's id.
    async fn promise(&self, number: u32, after: Duration) -> BTreeMap<String, SystemTime> {
        let (http, url, mut due) = (self.http(0), self.receiver.url("/promised"), BTreeMap::new());
        for nth in 0..number {
            let delay = after + nth * Duration::from_millis(10);
            let sent = SystemTime::now();
            let body = callback(&url, u64::try_from(delay.as_millis()).unwrap());
            let made = http.send("PUT", &timer(&format!("promised-{nth}")), &body).await;
            assert_eq!(made.status, 201, "{}", made.json);
            due.insert(made.json["id"].as_str().unwrap().to_owned(), sent + delay);
        }
        due
    }

    /// Waits until the callbacks of the timers in `due` have arrived. Returns how late each callback arrived, in
    /// ascending order.
    async fn lateness(&self, due: &BTreeMap<String, SystemTime>) -> Vec<Duration> {
        let begun = Instant::now();
        let arrivals = loop {
            let mut arrivals = BTreeMap::<String, Vec<SystemTime>>::new();
            self.receiver.log().into_iter().for_each(|one| arrivals.entry(one.id).or_default().push(one.at));
            let missing = due.keys().filter(|id| !arrivals.contains_key(*id)).count();
            if missing == 0 {
                break arrivals;
            }
            assert!(
                begun.elapsed() < 2 * SOON,
                "{missing} of {} acknowledged timers did not arrive",
                due.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let mut late: Vec<Duration> = Vec::new();
        for (id, due) in due {
            let after = arrivals[id][0].duration_since(*due);
            late.push(after.expect("no callback is early by the client's clock"));
            assert!(self.may_repeat || arrivals[id].len() == 1, "timer {id} arrived again");
        }
        late.sort_unstable();
        late
    }

    fn check(&self) -> String {
        let check = run(self.folder.path(), &["check", "--config", "redis.toml"]);
        text(&check.stdout) + &text(&check.stderr)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_stays_lost_stops_no_other_and_is_named() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = Stage::start(&format!("servers = [\"{}\"]\nshards = 16\n", server.url())).await;
    let before = stage.create_for(stay() / 2).await;
    before.show("all shards");
    let metas: Vec<String> = server.query(&["KEYS", "tb:{tourbillon:5.*}:meta"]);
    assert_eq!(metas.len(), 1, "{metas:?}");
    server.command(&["DEL", &metas[0]]);
    let after = stage.create_for(stay()).await;
    after.show("one of 16 shards is lost");
    assert_eq!(before.refused.len(), 0);
    // About every sixteenth key belongs to the lost shard, so most creations succeed.
    assert!(after.created > before.created, "{} and {}", before.created, after.created);
    for (status, (_, why)) in &after.refused {
        assert!(*status == 503 && why.contains("shard 5 is lost"), "{status}: {why}");
    }
    assert!(after.percentile(50) < BUSY);
    assert!(stage.check().contains("shard 5 is lost"), "{}", stage.check());
    let shards = stage.http(0).get("/v1/nodes").await.json["shards"].clone();
    let lost: Vec<_> = shards.as_array().unwrap().iter().filter(|shard| shard["lost"] == true).collect();
    assert!(lost.len() == 1 && lost[0]["number"] == 5, "{shards}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_that_stays_full_stops_no_delivery_and_no_cancellation() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = Stage::start(&format!("servers = [\"{}\"]\nshards = 8\n", server.url())).await;
    let before = stage.create_for(stay() / 2).await;
    before.show("memory free");
    let http = stage.http(0);
    for nth in 0..100 {
        assert_eq!(http.send("PUT", &timer(&format!("far-{nth}")), &far()).await.status, 201);
    }
    let promised = stage.promise(100, Duration::from_millis(1_500)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let mut full = stage.create_for(stay()).await;
    full.late = stage.lateness(&promised).await;
    full.show("memory full");
    assert_eq!(full.created, 0);
    for (status, (_, why)) in &full.refused {
        assert!(*status == 507 && !why.contains("disk is full"), "{status}: {why}");
    }
    assert!(full.percentile(50) < BUSY);
    for nth in 0..100 {
        let cancelled = http.send("DELETE", &timer(&format!("far-{nth}")), &Value::Null).await;
        assert!(cancelled.status.is_success(), "{} {}", cancelled.status, cancelled.json);
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(http.send("PUT", &timer("again"), &far()).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_stays_dead_delays_no_callback() {
    let Some(primary) = Server::start(&[]) else { return };
    let Some(mut replica) = Server::start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]) else {
        return;
    };
    eventually("the replica follows", || replica.info("master_link_status").as_deref() == Some("up"));
    let redis = format!("servers = [\"{}\"]\nshards = 8\nsync = \"wait:1:500ms\"\n", primary.url());
    let mut stage = Stage::start(&redis).await;
    let before = stage.create_for(stay() / 2).await;
    before.show("with its replica");
    let promised = stage.promise(100, Duration::from_millis(2_000)).await;
    replica.kill();
    let mut dead = stage.create_for(stay()).await;
    dead.late = stage.lateness(&promised).await;
    dead.show("the replica is dead");
    // Without the replica no creation is acknowledged. Each answer says that the outcome is unknown.
    for (status, (_, why)) in &dead.refused {
        assert!(*status == 503 && why.contains("unknown"), "{status}: {why}");
    }
    assert!(dead.percentile(50) < BUSY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_failover_loses_no_acknowledged_timer() {
    let Some(watched) = Watched::start(&[]) else { return };
    let sentinel = watched.sentinel.url();
    let redis = format!(
        "servers = [\"{sentinel}\"]\nsentinel = \"{}\"\nshards = 8\nsync = \"wait:1:500ms\"\n",
        Watched::NAME
    );
    let mut stage = Stage::start(&redis).await;
    let before = stage.create_for(stay() / 2).await;
    before.show("before the failover");
    let failover = std::thread::spawn(move || {
        std::thread::sleep(stay() / 4);
        eventually("the Sentinel changes the roles", || {
            watched.sentinel.try_query::<String>(&["SENTINEL", "FAILOVER", Watched::NAME]).is_ok()
        });
        eventually("the old primary follows", || watched.first.info("role").as_deref() == Some("slave"));
        watched
    });
    stage.may_repeat = true;
    let during = stage.create_for(2 * stay()).await;
    during.show("with a failover");
    // Until the old primary follows the new primary, no replica confirms creations. So their outcomes are unknown.
    assert!(during.refused.keys().all(|status| *status == 503), "{:?}", during.refused);
    let watched = failover.join().unwrap();
    assert_eq!(watched.second.info("role").as_deref(), Some("master"));
    let begun = Instant::now();
    let after = loop {
        let after = stage.create_for(stay() / 4).await;
        if after.refused.is_empty() {
            break after;
        }
        assert!(begun.elapsed() < 2 * SOON, "{:?}", after.refused);
    };
    after.show("after the failover");
    let answer =
        stage.http(1).send("PUT", &timer("after"), &json!({ "delay_ms": 1, "pull": { "queue": "q" } })).await;
    assert_eq!(answer.status, 201, "{}", answer.json);
}

/// The Redis server restarts from an old snapshot, and its own data does not show the loss. The nodes must notice the
/// loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_went_back_and_stay_so_deliver_nothing_that_was_cancelled_and_are_named() {
    let Some(mut server) = Server::start(&[]) else { return };
    let settings = format!("servers = [\"{}\"]\nshards = 8\nttl = \"2s\"\nmay_lose = \"1s\"\n", server.url());
    let mut stage = Stage::start(&settings).await;
    let before = stage.create_for(stay() / 2).await;
    before.show("before the snapshot");
    let http = stage.http(0);
    let (soon, pause) = (timer("cancelled"), Duration::from_secs(6));
    let delay = u64::try_from(pause.as_millis()).unwrap() + 500;
    assert_eq!(http.send("PUT", &soon, &callback(&stage.receiver.url("/"), delay)).await.status, 201);
    let cancelled = http.get(&soon).await.json["id"].clone();
    server.command(&["SAVE"]);
    assert!(http.send("DELETE", &soon, &Value::Null).await.status.is_success());
    assert_eq!(http.send("PUT", &timer("lost"), &far()).await.status, 201);
    // Wait while the nodes write signs of life, which are not in the snapshot.
    tokio::time::sleep(pause).await;
    server.kill();
    server.restart();
    // Each node notices by itself that the data have gone back.
    for nth in 0..2 {
        let (http, begun) = (stage.http(nth), Instant::now());
        loop {
            let ready = http.get("/readyz").await;
            if ready.status == 503 && ready.json.to_string().contains("have gone back") {
                break;
            }
            assert!(begun.elapsed() < SOON, "{} {}", ready.status, ready.json);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let during = stage.create_for(stay()).await;
    during.show("the data went back");
    assert_eq!(during.created, 0);
    for (status, (_, why)) in &during.refused {
        assert!(*status == 503 && why.contains("have gone back"), "{status}: {why}");
    }
    let arrived = stage.receiver.log();
    assert!(arrived.iter().all(|one| cancelled != one.id.as_str()), "a cancelled timer is delivered");
    let log = stage.services[0].log();
    assert!(log.contains("have gone back"), "{log}");
}
