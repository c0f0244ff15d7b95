//! Sets up a store under test, and offers the operations that the cases use.

use core::cell::Cell;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, State, Token};
use tourbillon_durable::store::{
    Claimant, Claimed, Counts, Durability, Horizon, IfPresent, Leased, Limit, Op, Outcome, Reaped,
    StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};

/// A function by which a store's author makes an empty store on the given clock. The clock counts from the start of
/// 1970. Several threads call the function at the same time.
pub type Make<'a> = &'a (dyn Fn(ManualClock) -> Arc<dyn TimerStore> + Sync);

/// A test case: its name, and a function that panics if a store deviates from the specified behaviour.
pub type Case = (&'static str, fn(Make<'_>));

/// The moment at which each test case starts, in milliseconds since 1970. The moment is on a day in 2026.
pub(crate) const START: u64 = 1_780_000_000_000;

pub(crate) const HOUR: u64 = 3_600_000;

/// A store under test, with its clock and a claimant (a process that claims the store's timers).
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<dyn TimerStore>,
    pub(crate) by: Claimant,
    pub(crate) claims: Cell<u64>,
    pub(crate) ids: Cell<u128>,
}

/// Returns the moment that is `millis` milliseconds after the start of the test case.
pub(crate) const fn at(millis: u64) -> UtcMillis {
    UtcMillis::from_millis(START + millis)
}

/// The length of a lease that the bench's claimant gets, in milliseconds.
pub(crate) const LEASE: u64 = 30_000;

impl Bench {
    pub(crate) fn new(make: Make<'_>) -> Self {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(START * 1_000_000));
        let store = make(clock.clone());
        assert_eq!(store.now(), at(0), "the store's time is not the clock's");
        let by = Claimant { incarnation: 7, lease: Duration::from_millis(LEASE) };
        let bench = Self { clock, store, by, claims: Cell::new(0), ids: Cell::new(1_000) };
        bench.audit();
        bench
    }

    /// Sets the clock to `millis` milliseconds after the start of the test case.
    pub(crate) fn set(&self, millis: u64) {
        self.clock.set(Timestamp::from_nanos((START + millis) * 1_000_000));
    }

    pub(crate) fn fresh(&self) -> TimerId {
        self.ids.set(self.ids.get() + 1);
        TimerId::from_u128(self.ids.get() << 64 | 0x5a)
    }

    /// Makes a pending timer that is due `due` milliseconds after the start of the test case.
    pub(crate) fn timer(&self, due: u64) -> Timer {
        timer(self.fresh(), at(due))
    }

    /// Makes a pending timer with this key, due `due` milliseconds after the start of the test case. The name of its
    /// namespace is empty.
    pub(crate) fn keyed(&self, key: &str, due: u64) -> Timer {
        Timer { key: Some(key.into()), ..self.timer(due) }
    }

    #[track_caller]
    pub(crate) fn apply_all(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let count = ops.len();
        let outcomes =
            pollster::block_on(self.store.apply(ops, Durability::PowerLoss)).expect("an operation failed");
        assert_eq!(outcomes.len(), count, "there is one outcome for each operation");
        self.audit();
        outcomes
    }

    #[track_caller]
    pub(crate) fn apply(&self, op: Op) -> Outcome {
        self.apply_all(vec![op]).pop().expect("one operation has one outcome")
    }

    /// Checks that the store refuses these operations and changes nothing. Returns the kind of the error.
    #[track_caller]
    pub(crate) fn refuses(&self, ops: Vec<Op>) -> StoreErrorKind {
        let before = self.all();
        let result = pollster::block_on(self.store.apply(ops, Durability::PowerLoss));
        let kind = result.expect_err("the operations were not refused").kind();
        assert_eq!(self.all(), before, "an operation that failed had an effect");
        self.audit();
        kind
    }

    /// Stores a timer that must not exist in the store yet.
    #[track_caller]
    pub(crate) fn create(&self, timer: &Timer) -> TimerId {
        assert_eq!(self.place(timer, IfPresent::Reject), Outcome::Created(timer.id));
        timer.id
    }

    #[track_caller]
    pub(crate) fn place(&self, timer: &Timer, if_present: IfPresent) -> Outcome {
        self.apply(Op::Place(Box::new(timer.clone()), if_present))
    }

    #[track_caller]
    pub(crate) fn claim(&self, timers: u32, bytes: u64) -> Claimed {
        self.claim_by(self.by, timers, bytes)
    }

    #[track_caller]
    pub(crate) fn claim_by(&self, by: Claimant, timers: u32, bytes: u64) -> Claimed {
        let number = self.claims.get() + 1;
        self.claims.set(number);
        let claimed = pollster::block_on(self.store.claim(by, number, Limit { timers, bytes }, None))
            .expect("a claim failed");
        let token = Token { incarnation: by.incarnation, claim: number };
        assert_eq!(claimed.now, self.store.now());
        assert!(claimed.leased.iter().all(|leased| leased.token == token), "the token is the claim's");
        assert!(claimed.leased.iter().all(|leased| leased.timer.due <= claimed.now), "a timer is early");
        self.audit();
        claimed
    }

    /// Claims all timers that are due in the store.
    #[track_caller]
    pub(crate) fn due(&self) -> Vec<Leased> {
        self.claim(u32::MAX, u64::MAX).leased
    }

    /// Claims the only due timer of the store. Panics unless exactly one timer is due.
    #[track_caller]
    pub(crate) fn the_due(&self) -> Leased {
        let mut due = self.due();
        assert_eq!(due.len(), 1, "one timer is due");
        due.remove(0)
    }

    /// Claims all due timers, and returns their ids. The timers stay leased.
    #[track_caller]
    pub(crate) fn due_ids(&self) -> Vec<TimerId> {
        self.due().into_iter().map(|leased| leased.timer.id).collect()
    }

    #[track_caller]
    pub(crate) fn reap(&self, limit: u32) -> Reaped {
        let reaped = pollster::block_on(self.store.reap(limit)).expect("a reap failed");
        self.audit();
        reaped
    }

    #[track_caller]
    pub(crate) fn renew(&self, leases: Vec<(TimerId, Token)>) -> Vec<(TimerId, Token)> {
        let renewal = pollster::block_on(self.store.renew(self.by, leases)).expect("a renewal failed");
        self.audit();
        assert_eq!(renewal.silent, []);
        renewal.lost
    }

    #[track_caller]
    pub(crate) fn get(&self, at: impl Into<Address>) -> Option<Timer> {
        pollster::block_on(self.store.get(at.into())).expect("a read failed")
    }

    #[track_caller]
    pub(crate) fn phase(&self, at: impl Into<Address>) -> Option<Phase> {
        self.get(at).map(|timer| timer.state.phase())
    }

    #[track_caller]
    pub(crate) fn all(&self) -> Vec<Timer> {
        all(&*self.store)
    }

    /// Checks that the store finds no fault in its structure, and that its counts agree with a recount.
    #[track_caller]
    pub(crate) fn audit(&self) {
        audit(&*self.store);
    }
}

/// Makes a pending timer with this id and due moment.
pub(crate) fn timer(id: TimerId, due: UtcMillis) -> Timer {
    Timer { payload: Payload(Box::new([1, 2, 3])), ..Timer::new(id, "test", due) }
}

/// Exports the store, and returns all stored timers in the order of their ids.
#[track_caller]
pub(crate) fn all(store: &dyn TimerStore) -> Vec<Timer> {
    let found = Arc::new(Mutex::new(BTreeMap::new()));
    let into = Arc::clone(&found);
    let each = Box::new(move |timer: &Timer| {
        let before = into.lock().unwrap_or_else(PoisonError::into_inner).insert(timer.id, timer.clone());
        assert_eq!(before, None, "an export has a timer twice");
        true
    });
    pollster::block_on(store.export(each)).expect("an export failed");
    let found = core::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    found.into_values().collect()
}

#[track_caller]
pub(crate) fn audit(store: &dyn TimerStore) {
    let faults = pollster::block_on(store.check()).expect("a check failed");
    assert!(faults.is_empty(), "the store's check found {faults:#?}");
    let counts = pollster::block_on(store.counts()).expect("the counts could not be read");
    let mut recount = Counts { quarantined: counts.quarantined, ..Counts::default() };
    for timer in all(store) {
        *recount.by_namespace.entry((timer.namespace.clone(), timer.state.phase())).or_default() += 1;
    }
    assert_eq!(counts, recount, "the counts are not those of a recount");
    audit_horizon(store, counts.of(Phase::Pending));
}

/// Checks the store's horizon, which counts pending timers by spans of due moments. Each span must count the pending
/// timers that are due in the span.
#[track_caller]
fn audit_horizon(store: &dyn TimerStore, pending: u64) {
    let horizon = pollster::block_on(store.horizon()).expect("the horizon could not be read");
    let mut recount = Horizon::empty(store.now());
    for timer in all(store).into_iter().filter(|timer| timer.state == State::Pending) {
        recount.add(timer.due, 1);
    }
    assert_eq!((horizon.now, horizon.spans.len()), (recount.now, recount.spans.len()));
    for (span, wanted) in horizon.spans.iter().zip(recount.spans) {
        assert_eq!((span.within, span.until), (wanted.within, wanted.until));
        let is_right = if span.is_exact { span.count == wanted.count } else { span.count <= wanted.count };
        assert!(is_right, "{span:?} has {} timers", wanted.count);
    }
    assert_eq!(horizon.placed() + horizon.unplaced, pending, "a timer is in no span");
}
