//! Tests nodes: which node owns a shard, and how timers are delivered when a node, a clock or a server fails.

mod cost;
mod membership;
mod outages;

use super::plain;
use crate::{RedisBuilder, RedisStore};
use pollster::block_on;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Leased, Limit, Nodes, Op, Outcome, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Server, eventually};

const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };
const LEASE: Duration = Duration::from_secs(60);
/// A time that is longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);
/// The lateness that a busy machine may add to a timer.
const SLACK: Duration = Duration::from_secs(10);

fn builder(shards: u16) -> RedisBuilder {
    RedisStore::builder("d").shards(shards)
}

fn open(builder: RedisBuilder, server: &Server) -> Arc<RedisStore> {
    Arc::new(plain::open(builder, server.port()).unwrap())
}

fn nodes(store: &RedisStore) -> Nodes {
    block_on(store.nodes()).unwrap().unwrap()
}

/// Returns the number of shards of each owner. The entry `None` has the number of shards without an owner.
fn shares(store: &RedisStore) -> BTreeMap<Option<u64>, usize> {
    let mut shares = BTreeMap::new();
    nodes(store).shards.iter().for_each(|shard| *shares.entry(shard.owner).or_default() += 1);
    shares
}

/// Returns whether `stores` together own all shards, and each of them owns at least one shard.
fn is_divided(stores: &[&RedisStore]) -> bool {
    let owners: Vec<u64> = stores.iter().map(|store| store.node.incarnation).collect();
    let shares = shares(stores[0]);
    shares.len() == owners.len() && owners.iter().all(|owner| shares.contains_key(&Some(*owner)))
}

fn takeovers(store: &RedisStore) -> u64 {
    nodes(store).shards.iter().map(|shard| shard.takeovers).sum()
}

fn by(incarnation: u64, lease: Duration) -> Claimant {
    Claimant { incarnation, lease }
}

fn place(store: &RedisStore, id: u128, due: UtcMillis) {
    let op = Op::Place(Box::new(Timer::new(TimerId::from_u128(id), "kind", due)), IfPresent::Reject);
    // A creation whose answer was lost is repeated under the same id.
    eventually("a creation is answered", || {
        let outcome = block_on(store.apply(vec![op.clone()], Durability::PowerLoss));
        matches!(outcome.as_deref(), Ok([Outcome::Created(_) | Outcome::Repeated(_)]))
    });
}

fn ids(leased: &[Leased]) -> Vec<u128> {
    leased.iter().map(|leased| leased.timer.id.as_u128()).collect()
}

type Seen = Arc<Mutex<Vec<(u128, Duration)>>>;

/// A runtime without handlers, which claims when the store wakes it or a timer is due, and ends all claimed timers at
/// once.
struct Runner {
    store: Arc<RedisStore>,
    /// The ids of the delivered timers, each with its lateness.
    seen: Seen,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn start(store: Arc<RedisStore>) -> Self {
        Self::start_with(store, LEASE)
    }

    fn start_with(store: Arc<RedisStore>, lease: Duration) -> Self {
        let (seen, ends) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (wake, woken) = channel();
        store.subscribe(Box::new(move || _ = wake.send(())));
        let thread = {
            let (store, seen, ends) = (Arc::clone(&store), Arc::clone(&seen), Arc::clone(&ends));
            let by = by(store.node.incarnation ^ 1, lease);
            thread::spawn(move || {
                let mut has_failed = false;
                for claim in 1.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let claimed = block_on(store.claim(by, claim, ALL, None));
                    has_failed |= claimed.is_err();
                    let mut rest = match &claimed {
                        Ok(claimed) => claimed.next_due.map_or(NEVER, |due| due - store.now()),
                        Err(_) => Duration::from_millis(50),
                    };
                    if has_failed {
                        // The timers of a claim with a lost answer come back when their leases end.
                        drop(block_on(store.reap(1_000)));
                        rest = rest.min(Duration::from_millis(500));
                    }
                    let (leased, now) = match claimed {
                        Ok(claimed) => (claimed.leased, claimed.now),
                        Err(_) => (block_on(store.recover(by, claim)).unwrap_or_default(), store.now()),
                    };
                    for Leased { timer, token } in leased {
                        seen.lock().unwrap().push((timer.id.as_u128(), now - timer.due));
                        eventually("an end is answered", || {
                            block_on(store.apply(vec![Op::Ack(timer.id, token)], Durability::PowerLoss))
                                .is_ok()
                        });
                    }
                    match woken.recv_timeout(rest) {
                        Ok(()) | Err(RecvTimeoutError::Timeout) => while woken.try_recv().is_ok() {},
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })
        };
        Self { store, seen, ends, thread: Some(thread) }
    }

    /// Stops the claims without leaving the deployment, as if the process were killed.
    fn kill(mut self) -> (Arc<RedisStore>, Seen) {
        self.ends.store(true, Ordering::Relaxed);
        self.store.deployment.alarm.wake();
        self.thread.take().unwrap().join().unwrap();
        (Arc::clone(&self.store), Arc::clone(&self.seen))
    }

    fn has_seen(&self, id: u128) -> bool {
        self.seen.lock().unwrap().iter().any(|(seen, _)| *seen == id)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.store.deployment.alarm.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
