//! Tests a server that comes back with older data than before.

use super::recording::{Late, recording};
use crate::{Connect, RedisStore};
use pollster::block_on;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon_durable::Durable;
use tourbillon_durable::store::{Durability, IfPresent, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Server, eventually};

const FAR: Duration = Duration::from_secs(3_600);
const TTL: Duration = Duration::from_millis(400);

struct Run {
    server: Server,
    store: Arc<RedisStore>,
    durable: Durable,
    delivered: Late,
    told: Arc<Mutex<Vec<Duration>>>,
}

/// Starts a server and a node with these settings.
fn start(may_lose: Duration, ttl: Duration) -> Option<Run> {
    let server = Server::start(&[])?;
    let connect = Connect::single(&server.url()).unwrap();
    let told = Arc::<Mutex<Vec<Duration>>>::default();
    let tells = Arc::clone(&told);
    let builder = RedisStore::builder("d").shards(4).may_lose(may_lose).ttl(ttl);
    let builder = builder.on_set_back(move |time| tells.lock().unwrap().push(time));
    let store = Arc::new(block_on(builder.open(&connect)).unwrap());
    let (runtime, delivered) = recording(&store);
    Some(Run { server, store, durable: runtime.start().unwrap(), delivered, told })
}

impl Run {
    fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        block_on(self.store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
    }

    fn place(&self, id: u128, after: Duration) {
        let timer = Timer::new(TimerId::from_u128(id), "kind", self.store.now() + after);
        assert!(self.apply(Op::Place(Box::new(timer), IfPresent::Reject)).is_ok());
    }

    fn signs(&self) -> u64 {
        let latest: Option<u64> = self.server.query(&["HGET", "tb:{d}:deployment", "latest"]);
        latest.unwrap_or_default()
    }

    /// Writes a snapshot, lets the node go on for `time`, and restarts the server from the snapshot. A timer that was
    /// cancelled after the snapshot is then due.
    fn go_back(&mut self, time: Duration) {
        self.place(1, FAR);
        self.place(2, time + Duration::from_millis(100));
        let first = self.signs();
        eventually("the node gives signs of life", || self.signs() > first);
        self.server.command(&["SAVE"]);
        assert!(matches!(
            self.apply(Op::Cancel(TimerId::from_u128(2).into(), None)),
            Ok(Outcome::Cancelled(_))
        ));
        self.place(3, FAR);
        let then = self.signs();
        eventually("the node goes on", || self.signs() >= then + u64::try_from(time.as_millis()).unwrap());
        self.server.kill();
        thread::sleep(Duration::from_millis(200));
        self.server.restart();
    }
}

#[test]
fn data_that_have_gone_back_too_far_are_refused_and_named() {
    let Some(mut run) = start(Duration::from_millis(500), TTL) else { return };
    run.go_back(Duration::from_millis(1_500));
    let error = || block_on(run.store.counts()).err();
    eventually("the store is closed", || error().is_some_and(|error| error.kind() == StoreErrorKind::Closed));
    let text = error().unwrap().to_string();
    assert!(text.contains("the server's data have gone back by"), "{text}");
    // A cancelled timer is not delivered, and no timer is accepted.
    thread::sleep(Duration::from_millis(500));
    assert!(run.delivered.lock().unwrap().is_empty());
    assert!(run.apply(Op::Fire(TimerId::from_u128(1).into())).is_err());
    assert!(run.told.lock().unwrap().is_empty());
    // A store that is opened afterwards accepts the data as they are.
    let connect = Connect::single(&run.server.url()).unwrap();
    let again = block_on(RedisStore::builder("d").poll(None).open(&connect)).unwrap();
    assert_eq!(block_on(again.counts()).unwrap().by_namespace.values().sum::<u64>(), 2);
    drop(run.durable.shutdown(Duration::ZERO));
}

#[test]
fn data_that_have_gone_back_a_little_are_counted_and_the_node_goes_on() {
    let Some(mut run) = start(Duration::from_secs(60), TTL) else { return };
    run.go_back(Duration::from_millis(1_000));
    eventually("somebody is told", || !run.told.lock().unwrap().is_empty());
    let told = run.told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0] >= Duration::from_millis(900), "{told:?}");
    run.place(4, Duration::ZERO);
    eventually("timers are delivered", || run.delivered.lock().unwrap().contains_key(&4));
    assert_eq!(block_on(run.store.nodes()).unwrap().unwrap().set_backs, 1);
    drop(run.durable.shutdown(Duration::from_secs(5)));
}

/// Tests signs of life that are two seconds apart, so that even a small loss can include the last sign.
#[test]
fn a_loss_of_the_last_moment_is_no_greater_one_because_signs_of_life_are_rare() {
    let Some(mut run) = start(Duration::from_millis(1_500), Duration::from_secs(8)) else { return };
    run.place(1, FAR);
    let first = run.signs();
    eventually("the node gives a sign of life", || run.signs() > first);
    run.server.command(&["SAVE"]);
    let saved = run.signs();
    eventually("the node gives a sign of life", || run.signs() > saved);
    run.server.kill();
    run.server.restart();
    eventually("somebody is told", || !run.told.lock().unwrap().is_empty());
    run.place(2, Duration::ZERO);
    eventually("timers are delivered", || run.delivered.lock().unwrap().contains_key(&2));
    drop(run.durable.shutdown(Duration::from_secs(5)));
}
