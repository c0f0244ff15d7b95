//! A store that fails as a test wants.

use std::sync::Mutex;
use tourbillon_durable::store::{Answer, Call, Hook, Hooked, Op, StoreError, StoreErrorKind};

/// What fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fails {
    /// Nothing.
    #[default]
    Nothing,
    /// Changes have their effect, and the answer is lost.
    Answers,
    /// Changes fail with this kind of error, once this number of transactions with cancellations has succeeded.
    Changes(StoreErrorKind, u32),
    /// Reads.
    Reads,
    /// Claims wait, without an end.
    ClaimsHang,
}

/// A store in memory with faults.
pub(crate) type Faulty = Hooked<Faults>;

/// The faults of a store.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Fails>);

impl Faults {
    pub(crate) fn fail(&self, fails: Fails) {
        *self.0.lock().unwrap() = fails;
    }
}

/// A call as the faults tell it apart.
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
