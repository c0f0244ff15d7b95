//! A store that fails as a test wants.

use std::sync::Mutex;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit,
    MemoryStore, Op, Outcome, Page, Reaped, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// What fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    /// Nothing.
    #[default]
    Nothing,
    /// Changes have their effect, and the answer is lost.
    Answers,
    /// Changes, with this kind of error, once so many transactions with cancellations have succeeded.
    Changes(StoreErrorKind, u32),
    /// Reads.
    Reads,
    /// Claims wait, without an end.
    ClaimsHang,
}

/// A store in memory with faults.
#[derive(Default)]
pub(crate) struct Faulty {
    store: MemoryStore,
    fails: Mutex<Fails>,
}

impl Faulty {
    pub(crate) fn fail(&self, fails: Fails) {
        *self.fails.lock().unwrap() = fails;
    }

    fn fails(&self) -> Fails {
        *self.fails.lock().unwrap()
    }

    fn read<'a, T: Send + 'a>(&self, answer: Answer<'a, T>) -> Answer<'a, T> {
        if self.fails() == Fails::Reads {
            return Box::pin(async { Err(StoreError::new(StoreErrorKind::Io, "the disk is gone")) });
        }
        answer
    }
}

impl TimerStore for Faulty {
    fn now(&self) -> UtcMillis {
        self.store.now()
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        let mut fails = self.fails.lock().unwrap();
        match &mut *fails {
            Fails::Answers => Box::pin(async move {
                self.store.apply(ops, durability).await?;
                Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"))
            }),
            Fails::Changes(kind, 0) => {
                let error = StoreError::new(*kind, "the disk is gone");
                Box::pin(async { Err(error) })
            }
            Fails::Changes(_, left) => {
                *left -= u32::from(ops.iter().any(|op| matches!(op, Op::Cancel(..))));
                self.store.apply(ops, durability)
            }
            _ => self.store.apply(ops, durability),
        }
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        if self.fails() == Fails::ClaimsHang {
            return Box::pin(core::future::pending());
        }
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
        self.read(self.store.get(at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.read(self.store.list(filter, cursor, limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read(self.store.counts())
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.read(self.store.horizon())
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.store.check()
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.store.export(each)
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.store.import(timers)
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.store.subscribe(wake);
    }
}
