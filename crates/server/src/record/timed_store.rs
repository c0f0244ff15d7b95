//! A store whose operations are timed, and whose refusals are noted.

use super::metrics::Histogram;
use super::refusals::Refusals;
use core::fmt;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Nodes, Op,
    Outcome, Page, Reaped, Reasons, Scrub, Shares, StoreError, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// The times of a store's operations, from the call to the answer.
#[derive(Debug, Default)]
pub(crate) struct StoreTimes {
    apply: Histogram,
    claim: Histogram,
    renew: Histogram,
    reap: Histogram,
    upcoming: Histogram,
    get: Histogram,
    list: Histogram,
    counts: Histogram,
    horizon: Histogram,
}

impl StoreTimes {
    /// The times with the names of the operations.
    pub(crate) fn all(&self) -> [(&'static str, &Histogram); 9] {
        [
            ("apply", &self.apply),
            ("claim", &self.claim),
            ("renew", &self.renew),
            ("reap", &self.reap),
            ("upcoming", &self.upcoming),
            ("get", &self.get),
            ("list", &self.list),
            ("counts", &self.counts),
            ("horizon", &self.horizon),
        ]
    }
}

/// A store that notes how long its operations take.
pub(crate) struct TimedStore {
    store: Arc<dyn TimerStore>,
    times: Arc<StoreTimes>,
    refusals: Arc<Refusals>,
}

impl TimedStore {
    pub(crate) fn new(store: Arc<dyn TimerStore>, times: Arc<StoreTimes>, refusals: Arc<Refusals>) -> Self {
        Self { store, times, refusals }
    }

    /// The answer to a change. Its error is noted, if the reason is the store's own.
    fn change<'a, T: Send + 'a>(&'a self, answer: Answer<'a, T>, is_new: bool) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(_) => self.refusals.note_success(is_new),
                Err(error) => self.refusals.note(error, is_new),
            }
            answer
        })
    }
}

impl fmt::Debug for TimedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedStore").finish_non_exhaustive()
    }
}

/// The answer, whose time is noted once it is there. An answer that is not waited for is not noted.
fn timed<'a, T: Send + 'a>(answer: Answer<'a, T>, time: &'a Histogram) -> Answer<'a, T> {
    let begun = Instant::now();
    Box::pin(async move {
        let answer = answer.await;
        time.note(begun.elapsed());
        answer
    })
}

impl TimerStore for TimedStore {
    fn now(&self) -> UtcMillis {
        self.store.now()
    }

    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        self.store.fresh_id(namespace, key)
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        let is_new = ops.iter().any(|op| matches!(op, Op::Place(..)));
        self.change(timed(self.store.apply(ops, durability), &self.times.apply), is_new)
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        self.change(timed(self.store.claim(by, claim, limit), &self.times.claim), false)
    }

    fn claim_in_turn(&self, by: Claimant, claim: u64, limit: Limit, shares: Shares) -> Answer<'_, Claimed> {
        self.change(timed(self.store.claim_in_turn(by, claim, limit, shares), &self.times.claim), false)
    }

    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> Answer<'_, Option<Claimed>> {
        self.change(
            timed(self.store.claim_parked(by, claim, reason, wanted, limit), &self.times.claim),
            false,
        )
    }

    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        self.store.recover(by, claim)
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        self.change(timed(self.store.renew(by, leases), &self.times.renew), false)
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        self.change(timed(self.store.reap(limit), &self.times.reap), false)
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        timed(self.store.upcoming(from, until, limit), &self.times.upcoming)
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        timed(self.store.get(at), &self.times.get)
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        timed(self.store.list(filter, cursor, limit), &self.times.list)
    }

    fn counts(&self) -> Answer<'_, Counts> {
        timed(self.store.counts(), &self.times.counts)
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        timed(self.store.horizon(), &self.times.horizon)
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.store.check()
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.store.export(each)
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.change(self.store.import(timers), true)
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.store.subscribe(wake);
    }

    fn refuses_new(&self) -> Option<StoreError> {
        self.store.refuses_new()
    }

    fn leave(&self) -> Answer<'_, ()> {
        self.store.leave()
    }

    fn parts(&self) -> u32 {
        self.store.parts()
    }

    fn part_of(&self, id: TimerId) -> u32 {
        self.store.part_of(id)
    }

    fn is_transactional(&self) -> bool {
        self.store.is_transactional()
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> Answer<'_, Reasons> {
        timed(self.store.reasons(after, limit), &self.times.list)
    }

    fn put_back(&self, reason: Box<str>, limit: u32) -> Answer<'_, u32> {
        timed(self.store.put_back(reason, limit), &self.times.apply)
    }

    fn scrub(&self) -> Option<Scrub> {
        self.store.scrub()
    }

    fn nodes(&self) -> Answer<'_, Option<Nodes>> {
        self.store.nodes()
    }
}
