//! Makes changes to several timers in one transaction.

use super::Timers;
use super::answers::{Cancelled, Changed, Placed, cancelled, changed, placed};
use crate::executor::block_on;
use crate::spec::{Rejection, Spec};
use crate::store::dry_run::admit;
use crate::store::{Durability, Op, Outcome, StoreError, StoreErrorKind};
use crate::timer::{Address, TimerId};
use tourbillon_words::UtcMillis;

/// A change to a single timer, as a part of a [`batch`](crate::Timers::batch).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Creates a timer, see [`Timers::schedule_bytes`]. The durability of the batch applies, and the durability in
    /// `spec` is ignored.
    Schedule {
        /// The kind of the new timer.
        kind: Box<str>,
        /// The description of the timer, with its payload.
        spec: Box<Spec<Vec<u8>>>,
    },
    /// Cancels a timer, see [`Timers::cancel`].
    Cancel(Address),
    /// Moves the due moment of a timer, see [`Timers::move_to`].
    Move(Address, UtcMillis),
    /// Pauses a timer or a series, see [`Timers::pause`].
    Pause(Address),
    /// Resumes a paused timer or series, see [`Timers::resume`].
    Resume(Address),
    /// Makes a timer due now, see [`Timers::fire`].
    Fire(Address),
    /// Delivers a dead timer again, see [`Timers::replay`].
    Replay(TimerId),
}

impl Change {
    /// Makes a change that creates a timer.
    ///
    /// ```
    /// use tourbillon_durable::{Change, Spec};
    ///
    /// let changes = [Change::schedule("mail", Spec::new(b"hello".to_vec()).key("a")), Change::Cancel("b".into())];
    /// # let _ = changes;
    /// ```
    pub fn schedule(kind: impl Into<Box<str>>, spec: Spec<Vec<u8>>) -> Self {
        Self::Schedule { kind: kind.into(), spec: Box::new(spec) }
    }
}

/// The result of a [`Change`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Effect {
    /// The result of [`Change::Schedule`].
    Placed(Placed),
    /// The result of [`Change::Cancel`].
    Cancelled(Cancelled),
    /// The result of any other change.
    Changed(Changed),
}

/// Selects the variant of [`Effect`] into which the outcome of an operation is converted.
#[derive(Clone, Copy)]
enum EffectKind {
    Placed,
    Cancelled,
    Changed,
}

impl EffectKind {
    fn effect(self, outcome: Outcome) -> Result<Effect, Rejection> {
        match self {
            Self::Placed => placed(&outcome).map(Effect::Placed),
            Self::Cancelled => cancelled(outcome).map(Effect::Cancelled).map_err(Rejection::Store),
            Self::Changed => changed(&outcome).map(Effect::Changed).map_err(Rejection::Store),
        }
    }
}

impl Timers {
    /// The greatest number of changes in a [`batch`](Self::batch).
    pub const MOST_CHANGES: usize = 1_000;

    /// Makes at most [`MOST_CHANGES`](Self::MOST_CHANGES) changes in one transaction, in their order. Each change sees
    /// the changes before it. No other caller's change and no claim comes between two changes of the batch. If the
    /// process dies, either all changes are made or none. Returns once all changes have the given durability. The
    /// answers are in the order of the changes.
    ///
    /// If a change is refused, because of a limit or another timer's key, the other changes are still made. All delays
    /// count from the same moment. Each payload may be as long as the [`limits`](crate::Builder::limits) permit, and
    /// the store writes all payloads at once. So a caller that takes batches from outside must limit their bytes.
    ///
    /// # Errors
    ///
    /// Fails if there are too many changes ([`StoreErrorKind::Limit`]), or if the store fails. Then no change has been
    /// made. The exception is an error of the kind [`Unknown`](StoreErrorKind::Unknown), after which the changes may
    /// have been made. A caller that has chosen the ids of its timers can then repeat the batch.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, all changes may have been made, or none.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::store::{Durability, MemoryStore};
    /// use tourbillon_durable::{Change, Changed, Durable, Effect, Rejection, Spec, UtcMillis};
    ///
    /// let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// let mail = |key: &str| Spec::new(b"hello".to_vec()).key(key).after(Duration::from_secs(3_600));
    /// let changes = vec![
    ///     Change::schedule("mail", mail("a")),
    ///     Change::schedule("mail", mail("a")),
    ///     Change::Move("a".into(), UtcMillis::MAX),
    /// ];
    /// let answers = durable.handle().batch_blocking(changes, Durability::PowerLoss)?;
    /// let [Ok(Effect::Placed(first)), Err(Rejection::KeyExists(holder)), Ok(moved)] = &answers[..] else { panic!() };
    /// assert_eq!(*holder, first.id());
    /// assert_eq!(*moved, Effect::Changed(Changed::Changed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn batch(
        &self,
        changes: Vec<Change>,
        durability: Durability,
    ) -> Result<Vec<Result<Effect, Rejection>>, StoreError> {
        if changes.len() > Self::MOST_CHANGES {
            let message =
                format!("a batch has {} changes, the most are {}", changes.len(), Self::MOST_CHANGES);
            return Err(StoreError::new(StoreErrorKind::Limit, message));
        }
        let now = self.store().now();
        let (mut ops, mut answers) = (Vec::with_capacity(changes.len()), Vec::with_capacity(changes.len()));
        for change in changes {
            let (op, answer) = match change {
                Change::Schedule { kind, spec } => match self.placing(&kind, *spec, now) {
                    Ok(op) => (op, EffectKind::Placed),
                    Err(rejection) => {
                        answers.push(Err(rejection));
                        continue;
                    }
                },
                Change::Cancel(at) => (Op::Cancel(at, None), EffectKind::Cancelled),
                Change::Move(at, due) => (Op::Move(at, due), EffectKind::Changed),
                Change::Pause(at) => (Op::Pause(at), EffectKind::Changed),
                Change::Resume(at) => (Op::Resume(at), EffectKind::Changed),
                Change::Fire(at) => (Op::Fire(at), EffectKind::Changed),
                Change::Replay(id) => (Op::Replay(id), EffectKind::Changed),
            };
            // The store would refuse all operations because of this one.
            if let Err(error) = admit(&op) {
                answers.push(Err(Rejection::Store(error)));
                continue;
            }
            ops.push(op);
            answers.push(Ok(answer));
        }
        // Without operations, the store would only wait until earlier changes are durable.
        let outcomes = if ops.is_empty() { Vec::new() } else { self.store().apply(ops, durability).await? };
        let mut outcomes = outcomes.into_iter();
        let missing = || StoreError::new(StoreErrorKind::Corrupt, "the store gave no outcome");
        // A rejected change has no operation. So only the accepted changes take an outcome, in their order.
        let mut effect_of = |kind: EffectKind| match outcomes.next() {
            Some(outcome) => kind.effect(outcome),
            None => Err(Rejection::Store(missing())),
        };
        Ok(answers.into_iter().map(|answer| answer.and_then(&mut effect_of)).collect())
    }

    /// Makes changes in one transaction as [`batch`](Self::batch) does, and waits on the calling thread.
    ///
    /// # Errors
    ///
    /// Fails as [`batch`](Self::batch) does.
    pub fn batch_blocking(
        &self,
        changes: Vec<Change>,
        durability: Durability,
    ) -> Result<Vec<Result<Effect, Rejection>>, StoreError> {
        block_on(self.batch(changes, durability))
    }

    fn placing(&self, kind: &str, mut spec: Spec<Vec<u8>>, now: UtcMillis) -> Result<Op, Rejection> {
        let payload = core::mem::take(&mut spec.payload);
        let timer = self.admit(&spec, kind, payload, now)?;
        Ok(Op::Place(Box::new(timer), spec.if_present))
    }
}
