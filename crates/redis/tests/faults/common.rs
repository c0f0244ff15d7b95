//! Stores and timers of the tests.

use std::io::{self, Write};
use std::time::{Duration, Instant};
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{
    Claimant, Durability, Fault, IfPresent, Leased, Limit, Op, Outcome, StoreError, StoreErrorKind,
    TimerStore,
};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};
use tourbillon_fault::Server;
use tourbillon_redis::{Connect, RedisBuilder, RedisStore};

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const ONE: Claimant = Claimant { incarnation: 1, lease: LEASE };
pub(crate) const OTHER: Claimant = Claimant { incarnation: 2, lease: LEASE };
pub(crate) const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };
/// The time for which a test waits where its length makes no difference.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// A time after which a process that is gone has neither leases nor shards.
pub(crate) const GONE: Duration = Duration::from_secs(61);

/// A size of a test, which an environment variable sets.
pub(crate) fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number in the variable"))
}

/// Prints a figure of a test, past its captured output.
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

/// A deployment on a clock of the test's.
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

/// A timer whose creation may be repeated.
pub(crate) fn timer(number: u128, due: UtcMillis) -> Timer {
    Timer { has_chosen_id: true, ..Timer::new(id(number), "kind", due) }
}

pub(crate) fn keyed(number: u128, key: &str, due: UtcMillis) -> Timer {
    Timer { key: Some(key.into()), ..timer(number, due) }
}

pub(crate) fn key(key: &str) -> Address {
    Address::Key(KeyOf { namespace: "".into(), key: key.into() })
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

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(event: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Claims until `count` timers are leased. Also reaps, so that timers of processes that are gone come back. Each claim
/// has a number of its own, from `from` on.
#[track_caller]
pub(crate) fn claim(store: &RedisStore, by: Claimant, from: u64, count: usize) -> Vec<Leased> {
    let (mut leased, mut number) = (Vec::new(), from);
    until("the timers are not claimed", || {
        drop(now(store.reap(100_000)));
        let limit = Limit { timers: u32::try_from(count - leased.len()).unwrap(), ..ALL };
        leased.extend(now(store.claim(by, number, limit)).leased);
        number += 1;
        leased.len() >= count
    });
    leased
}

/// No timer can be claimed.
#[track_caller]
pub(crate) fn nothing(store: &RedisStore, by: Claimant, from: u64) {
    for number in from..from + 3 {
        drop(now(store.reap(1_000)));
        assert_eq!(ids(&now(store.claim(by, number, ALL)).leased), []);
    }
}

/// Ends deliveries.
pub(crate) fn end(store: &RedisStore, leased: &[Leased]) {
    let ops = leased.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let outcomes = now(store.apply(ops, Durability::PowerLoss));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{outcomes:?}");
}

/// The number of timers.
pub(crate) fn count(store: &RedisStore) -> u64 {
    now(store.counts()).by_namespace.values().sum()
}

#[track_caller]
pub(crate) fn is_whole(store: &RedisStore) {
    assert_eq!(now(store.check()), Vec::<Fault>::new());
}

/// The keys of the server that end with this.
pub(crate) fn keys(server: &Server, pattern: &str) -> Vec<String> {
    server.query(&["KEYS", pattern])
}

/// The parts of a shard that stand for timers.
pub(crate) const PARTS: [&str; 9] =
    ["records", "tokens", "leases", "k:*", "labels", "parked", "dead", "slices", "counts"];

/// Nothing is left of timers: no records, no slices, no redirects.
#[track_caller]
pub(crate) fn is_empty(server: &Server) {
    let parts = PARTS.iter().map(|part| format!("*:{part}"));
    for pattern in parts.chain(["*:q:*".to_owned(), "*:h:*".to_owned()]) {
        assert_eq!(keys(server, &pattern), Vec::<String>::new());
    }
}

/// Runs a script of the test's own on each shard's key of this part that there is.
pub(crate) fn damage(server: &Server, part: &str, script: &str) {
    for key in keys(server, &format!("*:{part}")) {
        server.command(&["EVAL", script, "1", &key]);
    }
}
