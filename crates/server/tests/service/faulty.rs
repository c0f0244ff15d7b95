//! A store that fails as a test wants.

use crate::forwarding::{Call, Forwarding, Guard};
use std::sync::Mutex;
use tourbillon_durable::store::{Answer, StoreError, StoreErrorKind};

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
pub(crate) type Faulty = Forwarding<Faults>;

/// The faults of a store.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Fails>);

impl Faulty {
    pub(crate) fn fail(&self, fails: Fails) {
        *self.guard.0.lock().unwrap() = fails;
    }
}

impl Guard for Faults {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        weight: u64,
        go: impl FnOnce() -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        let gone = |kind| -> Answer<'a, T> {
            Box::pin(async move { Err(StoreError::new(kind, "the disk is gone")) })
        };
        let mut fails = self.0.lock().unwrap();
        match (&mut *fails, call) {
            (Fails::Answers, Call::Change) => {
                let answer = go();
                Box::pin(async move {
                    answer.await?;
                    Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"))
                })
            }
            (Fails::Changes(kind, 0), Call::Change) => gone(*kind),
            (Fails::Changes(_, left), Call::Change) => {
                *left -= u32::from(weight > 0);
                go()
            }
            (Fails::Reads, Call::Get | Call::Count | Call::List) => gone(StoreErrorKind::Io),
            (Fails::ClaimsHang, Call::Claim) => Box::pin(core::future::pending()),
            _ => go(),
        }
    }
}
