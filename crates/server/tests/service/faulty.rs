//! Provides a store in memory whose calls fail as a test wants.

use std::sync::Mutex;
use tourbillon_durable::store::{Answer, Call, Hook, Hooked, Op, StoreError, StoreErrorKind};

/// Says which calls of the store fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    /// No call fails.
    #[default]
    Nothing,
    /// Changes take effect, but their answers are lost.
    Answers,
    /// Changes fail with this kind of error. Before that, this number of transactions with cancellations succeeds.
    Changes(StoreErrorKind, u32),
    /// Reads fail.
    Reads,
    /// Claims wait for ever.
    ClaimsHang,
}

/// A store in memory with faults.
pub(crate) type Faulty = Hooked<Faults>;

/// The calls that fail at the moment, which a test can change.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Fails>);

impl Faults {
    pub(crate) fn fail(&self, fails: Fails) {
        *self.0.lock().unwrap() = fails;
    }
}

/// The kind of a call. It decides whether the call fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Change { cancels: bool },
    Claim,
    Read,
    Other,
}

impl Hook for Faults {
    type Seen = Kind;

    fn see(&self, call: Call<'_>) -> Kind {
        match call {
            Call::Apply(ops) => Kind::Change { cancels: ops.iter().any(|op| matches!(op, Op::Cancel(..))) },
            Call::PutBack => Kind::Change { cancels: false },
            Call::Claim => Kind::Claim,
            Call::Get | Call::Counts | Call::Horizon | Call::List(_) | Call::Reasons => Kind::Read,
            _ => Kind::Other,
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        kind: Kind,
        pass_on: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        let gone = |kind| -> Answer<'a, T> {
            Box::pin(async move { Err(StoreError::new(kind, "the disk is gone")) })
        };
        let mut fails = self.0.lock().unwrap();
        match (&mut *fails, kind) {
            (Fails::Answers, Kind::Change { .. }) => {
                let answer = pass_on();
                Box::pin(async move {
                    answer.await?;
                    Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"))
                })
            }
            (Fails::Changes(kind, 0), Kind::Change { .. }) => gone(*kind),
            (Fails::Changes(_, left), Kind::Change { cancels }) => {
                *left -= u32::from(cancels);
                pass_on()
            }
            (Fails::Reads, Kind::Read) => gone(StoreErrorKind::Io),
            (Fails::ClaimsHang, Kind::Claim) => Box::pin(core::future::pending()),
            _ => pass_on(),
        }
    }
}
