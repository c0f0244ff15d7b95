//! Provides a store in memory whose calls fail as a test wants.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{
    Call, Hook, Hooked, Op, StoreError, StoreErrorKind, StoreFuture, TimerStore,
};

/// The calls to the store that fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    /// No call to the store fails.
    #[default]
    Nothing,
    /// A change takes effect, but its answer is lost.
    Answers,
    /// Changes fail with an error of the given kind. The number counts the transactions with cancellations that succeed
    /// before the first failure.
    Changes(StoreErrorKind, u32),
    /// Every read of the store fails.
    Reads,
    /// Every read of a list of timers fails.
    Lists,
    /// Every claim of due timers waits for ever.
    ClaimsHang,
    /// Every removal of a timer that is delivered at most once waits for [`Faults::let_removal_go`].
    RemovalsWait,
    /// Every removal of a timer that is delivered at most once fails for good, without an effect.
    RemovalsFail,
    /// Every removal of a timer that is delivered at most once takes effect, and its answer is lost.
    RemovalAnswers,
}

/// A store in memory whose calls fail as a test wants.
pub(crate) type Faulty = Hooked<Faults>;

/// The calls to the store that fail at present. A test can replace the value.
#[derive(Default)]
pub(crate) struct Faults {
    fails: Mutex<Fails>,
    /// The number of milliseconds by which the estimate of the store's time is ahead of its lower bound, as after a
    /// slow answer of a database server.
    pub(crate) ahead_ms: AtomicU64,
    /// The number of removals that have begun to wait.
    waiting: AtomicU64,
    gate: Notify,
}

impl Faults {
    pub(crate) fn fail(&self, fails: Fails) {
        *self.fails.lock().unwrap() = fails;
    }

    /// Returns the number of removals that have begun to wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets a removal that waits go on to the store.
    pub(crate) fn let_removal_go(&self) {
        self.gate.notify_one();
    }
}

/// The kind of a call to the store. The kind decides whether the call fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Change {
        cancels: bool,
    },
    /// A removal of a timer that is delivered at most once, before its delivery.
    Removal,
    Claim,
    Read,
    List,
    Other,
}

impl Hook for Faults {
    type Seen = Kind;

    fn now(&self, store: &dyn TimerStore) -> UtcMillis {
        store.now() + Duration::from_millis(self.ahead_ms.load(Ordering::Relaxed))
    }

    fn see(&self, call: Call<'_>) -> Kind {
        match call {
            Call::Apply(ops) if ops.iter().any(|op| matches!(op, Op::Skip(..))) => Kind::Removal,
            Call::Apply(ops) => Kind::Change { cancels: ops.iter().any(|op| matches!(op, Op::Cancel(..))) },
            Call::PutBack => Kind::Change { cancels: false },
            Call::Claim => Kind::Claim,
            Call::List(_) => Kind::List,
            Call::Get | Call::Counts | Call::Horizon | Call::Reasons => Kind::Read,
            _ => Kind::Other,
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        kind: Kind,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let gone = |kind| -> StoreFuture<'a, T> {
            Box::pin(async move { Err(StoreError::new(kind, "the disk is gone")) })
        };
        let mut fails = self.fails.lock().unwrap();
        match (&mut *fails, kind) {
            (Fails::Answers, Kind::Change { .. })
            | (Fails::Answers | Fails::RemovalAnswers, Kind::Removal) => {
                let answer = pass_on();
                Box::pin(async move {
                    answer.await?;
                    Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"))
                })
            }
            (Fails::Changes(kind, 0), Kind::Change { .. } | Kind::Removal) => gone(*kind),
            (Fails::Changes(_, left), Kind::Change { cancels }) => {
                *left -= u32::from(cancels);
                pass_on()
            }
            (Fails::Reads, Kind::Read | Kind::List) | (Fails::Lists, Kind::List) => gone(StoreErrorKind::Io),
            (Fails::RemovalsWait, Kind::Removal) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move {
                    self.gate.notified().await;
                    pass_on().await
                })
            }
            (Fails::RemovalsFail, Kind::Removal) => gone(StoreErrorKind::Corrupt),
            (Fails::ClaimsHang, Kind::Claim) => Box::pin(core::future::pending()),
            _ => pass_on(),
        }
    }
}
