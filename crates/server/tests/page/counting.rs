//! A store in memory that counts what it is asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit,
    MemoryStore, Op, Outcome, Page, Reaped, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// The store.
#[derive(Default)]
pub(crate) struct Counting {
    store: MemoryStore,
    /// The calls of `list`, and the timers that they asked for.
    pub(crate) lists: AtomicU64,
    pub(crate) listed: AtomicU64,
    /// The reads of the whole store.
    pub(crate) whole: AtomicU64,
    /// The single timers that were read.
    pub(crate) gets: AtomicU64,
}

impl Counting {
    /// The work since the last call: lists, timers asked for, reads of the whole store, reads of single timers.
    pub(crate) fn work(&self) -> [u64; 4] {
        [&self.lists, &self.listed, &self.whole, &self.gets].map(|count| count.swap(0, Ordering::SeqCst))
    }
}

impl TimerStore for Counting {
    fn now(&self) -> UtcMillis {
        self.store.now()
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        self.store.apply(ops, durability)
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        self.store.claim(by, claim, limit)
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
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.store.get(at)
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.listed.fetch_add(limit.into(), Ordering::SeqCst);
        self.store.list(filter, cursor, limit)
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.store.counts()
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.store.horizon()
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.whole.fetch_add(1, Ordering::SeqCst);
        self.store.check()
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.whole.fetch_add(1, Ordering::SeqCst);
        self.store.export(each)
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.store.import(timers)
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.store.subscribe(wake);
    }
}
