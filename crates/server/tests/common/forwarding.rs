//! A store in memory behind a guard, which sees each call first.

use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit,
    MemoryStore, Nodes, Op, Outcome, Page, Reaped, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// A kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A transaction. Its weight is the number of cancellations.
    Change,
    /// A claim, of either kind.
    Claim,
    /// A read of one timer, of numbers, or of a list. The weight of a list is the number of timers that it may have.
    Get,
    Count,
    List,
    /// A read of the whole store.
    Whole,
}

/// Sees the calls of a store.
pub(crate) trait Guard: Send + Sync + 'static {
    /// The answer to a call of this weight. The store has the call once `go` is called.
    fn answer<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        weight: u64,
        go: impl FnOnce() -> Answer<'a, T>,
    ) -> Answer<'a, T>;

    /// The nodes that share the store, if there are any.
    fn nodes(&self) -> Option<Nodes> {
        None
    }
}

/// The store.
#[derive(Default)]
pub(crate) struct Forwarding<G> {
    store: MemoryStore,
    pub(crate) guard: G,
}

impl<G: Guard> TimerStore for Forwarding<G> {
    fn now(&self) -> UtcMillis {
        self.store.now()
    }

    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        self.store.fresh_id(namespace, key)
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        let cancellations = ops.iter().filter(|op| matches!(op, Op::Cancel(..))).count();
        self.guard.answer(Call::Change, cancellations as u64, || self.store.apply(ops, durability))
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        self.guard.answer(Call::Claim, 0, || self.store.claim(by, claim, limit))
    }

    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        self.store.recover(by, claim)
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        self.store.renew(by, leases)
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        self.store.reap(limit)
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        self.store.upcoming(from, until, limit)
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        self.guard.answer(Call::Get, 0, || self.store.get(at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.guard.answer(Call::List, limit.into(), || self.store.list(filter, cursor, limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.guard.answer(Call::Count, 0, || self.store.counts())
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.guard.answer(Call::Count, 0, || self.store.horizon())
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.guard.answer(Call::Whole, 0, || self.store.check())
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.guard.answer(Call::Whole, 0, || self.store.export(each))
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.store.import(timers)
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.store.subscribe(wake);
    }

    fn leave(&self) -> Answer<'_, ()> {
        self.store.leave()
    }

    fn nodes(&self) -> Answer<'_, Option<Nodes>> {
        Box::pin(async { Ok(self.guard.nodes()) })
    }
}
