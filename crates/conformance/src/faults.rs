//! Makes a store with faults that a seed chooses.

use core::fmt;
use core::future::poll_fn;
use core::task::Poll;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_durable::store::{Call, Hook, Hooked, StoreError, StoreErrorKind, StoreFuture, TimerStore};

/// The frequencies of the faults of a [`Faulty`] store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The percentage of calls that have no effect, and fail with an error of the kind [`StoreErrorKind::Io`].
    pub before: u8,
    /// The percentage of calls that take effect, but lose their answers: they fail with an error of the kind
    /// [`StoreErrorKind::Unknown`].
    pub after: u8,
    /// The percentage of calls whose future must be polled several times before it returns the answer. The calls take
    /// effect.
    pub delayed: u8,
    /// The percentage of wakes that the store drops: a timer becomes due, but the store does not call its subscriber.
    pub dropped_wakes: u8,
}

impl Default for Faults {
    fn default() -> Self {
        Self { before: 15, after: 15, delayed: 20, dropped_wakes: 50 }
    }
}

/// A store that passes calls on to another store, and adds faults. A seed chooses the calls that fail, before or after
/// they take effect. The same seed with the same order of calls gives the same faults.
pub type Faulty = Hooked<SeededFaults>;

/// The hook that gives a [`Faulty`] store its faults.
#[derive(Clone)]
pub struct SeededFaults(Arc<Mutex<Luck>>);

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

impl SeededFaults {
    /// Makes a hook with these faults. The seed decides which calls have the faults.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        let luck = Luck { rng: fastrand::Rng::with_seed(seed), faults, injected: 0 };
        Self(Arc::new(Mutex::new(luck)))
    }

    /// Returns a store that passes calls on to `store`, and adds the faults.
    #[must_use]
    pub fn on(self, store: Arc<dyn TimerStore>) -> Faulty {
        Hooked::new(store, self)
    }

    /// Ends all faults of the store: later calls succeed.
    pub fn heal(&self) {
        self.luck().faults = Faults { before: 0, after: 0, delayed: 0, dropped_wakes: 0 };
    }

    /// Returns the number of faults that the hook has caused so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.luck().injected
    }

    fn luck(&self) -> MutexGuard<'_, Luck> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SeededFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let luck = self.luck();
        f.debug_struct("SeededFaults")
            .field("faults", &luck.faults)
            .field("injected", &luck.injected)
            .finish()
    }
}

/// The faults that a single call at the store gets.
#[derive(Clone, Copy, Debug)]
pub struct Strikes {
    before: bool,
    after: bool,
    /// The number of polls of the call that return "pending" before the answer comes.
    polls: u32,
}

impl Hook for SeededFaults {
    type Seen = Strikes;

    fn see(&self, call: Call<'_>) -> Strikes {
        // These calls concern the process, not its timers. They have no faults.
        if matches!(call, Call::Leave | Call::Nodes) {
            return Strikes { before: false, after: false, polls: 0 };
        }
        let mut luck = self.luck();
        let Faults { before, after, delayed, .. } = luck.faults;
        let polls = if luck.strikes(delayed) { luck.rng.u32(1..5) } else { 0 };
        Strikes { polls, before: luck.strikes(before), after: luck.strikes(after) }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        strikes: Strikes,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            if strikes.before {
                return Err(StoreError::new(StoreErrorKind::Io, "a fault before the operation"));
            }
            let answer = pass_on().await;
            let mut left = strikes.polls;
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
                Ok(_) if strikes.after => {
                    Err(StoreError::new(StoreErrorKind::Unknown, "the answer was lost"))
                }
                answer => answer,
            }
        })
    }

    fn subscribe(&self, store: &dyn TimerStore, wake: Box<dyn Fn() + Send + Sync>) {
        let faults = self.clone();
        store.subscribe(Box::new(move || {
            let is_dropped = {
                let mut luck = faults.luck();
                let percent = luck.faults.dropped_wakes;
                luck.strikes(percent)
            };
            if !is_dropped {
                wake();
            }
        }));
    }
}
