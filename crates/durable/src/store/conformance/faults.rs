//! A store that fails by a seed.

use crate::state::Token;
use crate::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, Op,
    Outcome, Page, Reaped, Reasons, Scrub, StoreError, StoreErrorKind, TimerStore,
};
use crate::timer::{Address, Timer, TimerId};
use crate::utc::UtcMillis;
use core::fmt;
use core::future::poll_fn;
use core::task::Poll;
use std::sync::{Arc, Mutex, PoisonError};

/// The faults of a [`Faulty`] store, each as the share of calls that it strikes, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The call fails and has no effect ([`StoreErrorKind::Io`]).
    pub before: u8,
    /// The call has its effect, and its answer is lost ([`StoreErrorKind::Unknown`]).
    pub after: u8,
    /// The answer comes after a future's caller has polled it several times, although the effect is there.
    pub delayed: u8,
    /// A subscriber is not called.
    pub dropped_wakes: u8,
}

impl Default for Faults {
    fn default() -> Self {
        Self { before: 15, after: 15, delayed: 20, dropped_wakes: 50 }
    }
}

/// A store around another one, which fails by a seed: before its operations take effect, or after. The same seed and
/// the same order of calls give the same faults.
pub struct Faulty {
    store: Arc<dyn TimerStore>,
    luck: Arc<Mutex<Luck>>,
}

struct Luck {
    rng: fastrand::Rng,
    faults: Faults,
    injected: u64,
}

impl Luck {
    fn strikes(&mut self, percent: u8) -> bool {
        let strikes = self.rng.u8(0..100) < percent;
        self.injected += u64::from(strikes);
        strikes
    }
}

impl Faulty {
    /// A store that passes its calls on to `store`, but for these faults.
    pub fn new(store: Arc<dyn TimerStore>, seed: u64, faults: Faults) -> Self {
        let luck = Luck { rng: fastrand::Rng::with_seed(seed), faults, injected: 0 };
        Self { store, luck: Arc::new(Mutex::new(luck)) }
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.luck().faults = Faults { before: 0, after: 0, delayed: 0, dropped_wakes: 0 };
    }

    /// The number of faults so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.luck().injected
    }

    fn luck(&self) -> std::sync::MutexGuard<'_, Luck> {
        self.luck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the store, or does not.
    fn call<'a, T: Send + 'a>(&'a self, call: impl FnOnce() -> Answer<'a, T> + Send + 'a) -> Answer<'a, T> {
        let (before, after, polls) = {
            let mut luck = self.luck();
            let Faults { before, after, delayed, .. } = luck.faults;
            let polls = if luck.strikes(delayed) { luck.rng.u32(1..5) } else { 0 };
            (luck.strikes(before), luck.strikes(after), polls)
        };
        Box::pin(async move {
            if before {
                return Err(StoreError::new(StoreErrorKind::Io, "a fault before the operation"));
            }
            let answer = call().await;
            let mut left = polls;
            poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            match answer {
                Ok(_) if after => Err(StoreError::new(StoreErrorKind::Unknown, "the answer was lost")),
                answer => answer,
            }
        })
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let luck = self.luck();
        f.debug_struct("Faulty").field("faults", &luck.faults).field("injected", &luck.injected).finish()
    }
}

impl TimerStore for Faulty {
    fn now(&self) -> UtcMillis {
        self.store.now()
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>> {
        self.call(move || self.store.apply(ops, durability))
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        self.call(move || self.store.claim(by, claim, limit))
    }

    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> Answer<'_, Option<Claimed>> {
        self.call(move || self.store.claim_parked(by, claim, reason, wanted, limit))
    }

    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        self.call(move || self.store.recover(by, claim))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        self.call(move || self.store.renew(by, leases))
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        self.call(move || self.store.reap(limit))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        self.call(move || self.store.upcoming(from, until, limit))
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        self.call(move || self.store.get(at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.call(move || self.store.list(filter, cursor, limit))
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> Answer<'_, Reasons> {
        self.call(move || self.store.reasons(after, limit))
    }

    fn put_back(&self, reason: Box<str>, limit: u32) -> Answer<'_, u32> {
        self.call(move || self.store.put_back(reason, limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.call(move || self.store.counts())
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.call(move || self.store.horizon())
    }

    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.call(move || self.store.check())
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.call(move || self.store.export(each))
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.call(move || self.store.import(timers))
    }

    fn scrub(&self) -> Option<Scrub> {
        self.store.scrub()
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let luck = Arc::clone(&self.luck);
        self.store.subscribe(Box::new(move || {
            let is_dropped = {
                let mut luck = luck.lock().unwrap_or_else(PoisonError::into_inner);
                let percent = luck.faults.dropped_wakes;
                luck.strikes(percent)
            };
            if !is_dropped {
                wake();
            }
        }));
    }
}
