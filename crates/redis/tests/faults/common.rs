//! Stores and timers of the tests.

use std::io::{self, Write};
use std::time::{Duration, Instant};
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{
    Claimant, Durability, Fault, IfPresent, Leased, Limit, Op, Outcome, StoreError, StoreErrorKind,
    TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Server;
use tourbillon_redis::{Connect, RedisBuilder, RedisStore};

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const ONE: Claimant = Claimant { incarnation: 1, lease: LEASE };
pub(crate) const OTHER: Claimant = Claimant { incarnation: 2, lease: LEASE };
pub(crate) const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };
/// The longest time that a test waits. In the tests that use it, the length makes no difference.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// The time after which the leases and the shards of a killed process are free for other processes.
pub(crate) const GONE: Duration = Duration::from_secs(61);

/// Returns the size of a test: the value of the environment variable, or the default.
pub(crate) fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number in the variable"))
}

/// Prints a figure to the standard error, because the test harness does not capture the output there.
pub(crate) fn tell(figure: &str) {
    drop(writeln!(io::stderr(), "{figure}"));
}

pub(crate) fn single(url: &str) -> Connect {
    Connect::single(url).unwrap().patience(PATIENCE).response_timeout(PATIENCE)
}

pub(crate) fn open(builder: RedisBuilder, url: &str) -> RedisStore {
    now(builder.open(&single(url)))
}

pub(crate) fn builder() -> RedisBuilder {
    RedisStore::builder("d").poll(None)
}

/// A server, and a clock that only the test advances. The stores on the server use the clock.
pub(crate) struct Manual {
    pub(crate) server: Server,
    pub(crate) clock: ManualClock,
}

impl Manual {
    pub(crate) fn start() -> Option<Self> {
        let server = Server::start(&[])?;
        let clock = ManualClock::new();
        clock.advance(100 * DAY);
        Some(Self { server, clock })
    }

    pub(crate) fn open(&self, shards: u16) -> RedisStore {
        open(builder().shards(shards).test_clock(self.clock.clone()), &self.server.url())
    }
}

pub(crate) fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    pollster::block_on(answer).unwrap()
}

pub(crate) fn kind<T>(answer: impl Future<Output = Result<T, StoreError>>) -> StoreErrorKind {
    pollster::block_on(answer).map(drop).unwrap_err().kind()
}

pub(crate) fn try_apply(store: &RedisStore, op: Op) -> Result<Outcome, StoreError> {
    pollster::block_on(store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
}

pub(crate) fn apply(store: &RedisStore, op: Op) -> Outcome {
    try_apply(store, op).unwrap()
}

pub(crate) fn id(number: u128) -> TimerId {
    TimerId::from_u128(number)
}

/// Makes a timer with a given id, so that its creation may be repeated.
pub(crate) fn timer(number: u128, due: UtcMillis) -> Timer {
    Timer { has_chosen_id: true, ..Timer::new(id(number), "kind", due) }
}

pub(crate) fn keyed(number: u128, key: &str, due: UtcMillis) -> Timer {
    Timer { key: Some(key.into()), ..timer(number, due) }
}

pub(crate) fn placing(timer: Timer) -> Op {
    Op::Place(Box::new(timer), IfPresent::Reject)
}

pub(crate) fn place(store: &RedisStore, timer: Timer) {
    let id = timer.id;
    assert_eq!(apply(store, placing(timer)), Outcome::Created(id));
}

pub(crate) fn replace(store: &RedisStore, timer: Timer) -> Outcome {
    apply(store, Op::Place(Box::new(timer), IfPresent::Replace))
}

pub(crate) fn ids(leased: &[Leased]) -> Vec<TimerId> {
    leased.iter().map(|leased| leased.timer.id).collect()
}

/// Waits until `is_so` returns true. `event` names the awaited condition in the message of a failure.
#[track_caller]
pub(crate) fn until(event: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Claims until `count` timers are leased. Also ends overdue leases, so that timers of dead processes come back. The
/// claims are numbered from `from` on.
#[track_caller]
pub(crate) fn claim(store: &RedisStore, by: Claimant, from: u64, count: usize) -> Vec<Leased> {
    let (mut leased, mut number) = (Vec::new(), from);
    until("the timers are not claimed", || {
        drop(now(store.reap(100_000)));
        let limit = Limit { timers: u32::try_from(count - leased.len()).unwrap(), ..ALL };
        leased.extend(now(store.claim(by, number, limit, None)).leased);
        number += 1;
        leased.len() >= count
    });
    leased
}

/// Verifies by three claims that no timer can be claimed. The claims are numbered from `from` on.
#[track_caller]
pub(crate) fn nothing(store: &RedisStore, by: Claimant, from: u64) {
    for number in from..from + 3 {
        drop(now(store.reap(1_000)));
        assert_eq!(ids(&now(store.claim(by, number, ALL, None)).leased), []);
    }
}

/// Reports that the deliveries of the leased timers are done. Verifies that each report has its effect.
pub(crate) fn end(store: &RedisStore, leased: &[Leased]) {
    let ops = leased.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let outcomes = now(store.apply(ops, Durability::PowerLoss));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{outcomes:?}");
}

/// Returns the number of stored timers, in all namespaces and phases together.
pub(crate) fn count(store: &RedisStore) -> u64 {
    now(store.counts()).by_namespace.values().sum()
}

#[track_caller]
pub(crate) fn is_whole(store: &RedisStore) {
    assert_eq!(now(store.check()), Vec::<Fault>::new());
}

/// Returns the names of the server's keys that match this pattern.
pub(crate) fn keys(server: &Server, pattern: &str) -> Vec<String> {
    server.query(&["KEYS", pattern])
}

/// The parts of a shard's data that exist only while timers are stored.
pub(crate) const PARTS: [&str; 9] =
    ["records", "tokens", "leases", "k:*", "labels", "parked", "dead", "slices", "counts"];

/// Verifies that ended timers have left nothing on the server: no entries, no slices (sets of pending timers), no
/// redirects.
#[track_caller]
pub(crate) fn is_empty(server: &Server) {
    let parts = PARTS.iter().map(|part| format!("*:{part}"));
    for pattern in parts.chain(["*:q:*".to_owned(), "*:h:*".to_owned()]) {
        assert_eq!(keys(server, &pattern), Vec::<String>::new());
    }
}

/// Runs a script on each key of the server that stores this part of a shard's data.
pub(crate) fn damage(server: &Server, part: &str, script: &str) {
    for key in keys(server, &format!("*:{part}")) {
        server.command(&["EVAL", script, "1", &key]);
    }
}
