//! Wraps a store: times its operations, records its refusals, and reports changes that may end the parking of timers.

use super::by_word::ByWord;
use super::metrics::SharedTimes;
use super::refusals::Refusals;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::{
    Call, Durability, Hook, Hooked, IfPresent, Op, Outcome, StoreFuture, TimerStore,
};

/// For each operation of the store, the distribution of the durations of its calls. A duration is the time from the
/// call to the store's answer.
#[derive(Debug)]
pub(crate) struct StoreTimes(ByWord<SharedTimes, 9>);

impl Default for StoreTimes {
    fn default() -> Self {
        let operations = ["apply", "claim", "renew", "reap", "upcoming", "get", "list", "counts", "horizon"];
        Self(ByWord::new(operations))
    }
}

impl StoreTimes {
    /// Returns the name of each operation of the store, with the distribution of the durations of its calls.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &SharedTimes)> {
        self.0.iter()
    }
}

/// A store that records the durations of its operations and the changes that it refuses, and reports changes that may
/// have ended the parking of timers.
pub(crate) type TimedStore = Hooked<Timing>;

/// The hook of a [`TimedStore`], which sees each call of the store and each answer.
pub(crate) struct Timing {
    times: Arc<StoreTimes>,
    refusals: Arc<Refusals>,
    /// Notified after a change that may have ended the parking of timers. The parked timers are then counted again.
    recount: Arc<Notify>,
}

impl Timing {
    pub(crate) fn new(times: Arc<StoreTimes>, refusals: Arc<Refusals>, recount: Arc<Notify>) -> Self {
        Self { times, refusals, recount }
    }
}

/// Returns whether the operation may change the reason for which a timer is parked, or end its parking. The ends of
/// deliveries change only leased timers, and [`ParkedIndex`](crate::delivery) counts each unpark by itself.
fn may_take_parked(op: &Op) -> bool {
    match op {
        // A schedule replaces its own timer at each decision. This timer is never parked for a reason of the service.
        Op::Place(timer, IfPresent::Replace | IfPresent::ReplaceKeepDue | IfPresent::ReplaceOnly(_)) => {
            timer.key.is_some() && !timer.namespace.starts_with(Schedules::NAMESPACES)
        }
        Op::Cancel(..)
        | Op::CancelLabelled { .. }
        | Op::Move(..)
        | Op::Pause(_)
        | Op::Resume(_)
        | Op::Fire(_) => true,
        _ => false,
    }
}

/// The notes that [`Timing`] keeps about a call of the store until the store answers. They say to which distribution
/// the duration of the call is added, and whether the success or error of the call is reported to [`Refusals`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Notes {
    /// The operation in [`StoreTimes`] to which the duration of the call is added. `None` if the call is not timed.
    time: Option<&'static str>,
    /// Set if the success or error of the call is reported to [`Refusals`]. `None` if the call changes no timers. Also
    /// `None` for some calls that change timers but that [`Refusals`] ignores, such as [`Call::PutBack`].
    change: Option<Change>,
    /// Whether the call may end the parking of timers, or change the reasons for which they are parked.
    may_take_parked: bool,
}

#[derive(Clone, Copy)]
struct Change {
    /// Whether the call stores new timers, or replaces timers, if it succeeds.
    is_new: bool,
}

/// Returns whether an outcome is a new timer, which shows that the store has room for new timers. A kept or a replaced
/// timer does not show this, because a store without room accepts both.
fn show_room(outcomes: &[Outcome]) -> bool {
    outcomes.iter().any(|outcome| matches!(outcome, Outcome::Created(_)))
}

impl Timing {
    /// Records a call of the store and its answer. `shows_room` says whether a success shows that the store takes new
    /// timers.
    fn record<'a, T: Send + 'a>(
        &'a self,
        notes: Notes,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
        shows_room: fn(&T) -> bool,
    ) -> StoreFuture<'a, T> {
        let (begun, answer) = (Instant::now(), pass_on());
        // Records nothing if the caller drops the future before the answer comes.
        Box::pin(async move {
            let answer = answer.await;
            if let Some(time) = notes.time {
                self.times.0.of(time).record(begun.elapsed());
            }
            if let Some(Change { is_new }) = notes.change {
                match &answer {
                    Ok(answer) => self.refusals.note_success(shows_room(answer)),
                    Err(error) => self.refusals.note(error, is_new),
                }
            }
            // A change that was answered with an error may have had its effect.
            if notes.may_take_parked {
                self.recount.notify_one();
            }
            answer
        })
    }
}

impl Hook for Timing {
    type Seen = Notes;

    fn see(&self, call: Call<'_>) -> Notes {
        let timed = |time| Notes { time: Some(time), ..Notes::default() };
        let other = Change { is_new: false };
        let changes = |time| Notes { change: Some(other), ..timed(time) };
        match call {
            Call::Apply(ops) => Notes {
                may_take_parked: ops.iter().any(may_take_parked),
                change: Some(Change { is_new: ops.iter().any(|op| matches!(op, Op::Place(..))) }),
                ..timed("apply")
            },
            Call::Claim => changes("claim"),
            Call::Renew => changes("renew"),
            Call::Reap => changes("reap"),
            // A successful import ends no refusal of new timers. Only a restore, beside no service, imports timers.
            Call::Import => Notes { change: Some(Change { is_new: true }), ..Notes::default() },
            Call::Upcoming => timed("upcoming"),
            Call::Get => timed("get"),
            Call::List(_) | Call::Reasons => timed("list"),
            Call::Counts => timed("counts"),
            Call::Horizon => timed("horizon"),
            Call::PutBack => timed("apply"),
            _ => Notes::default(),
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        notes: Notes,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        if notes.time.is_none() && notes.change.is_none() {
            return pass_on();
        }
        self.record(notes, pass_on, |_| false)
    }

    fn apply<'a>(
        &'a self,
        store: &'a dyn TimerStore,
        ops: Vec<Op>,
        durability: Durability,
    ) -> StoreFuture<'a, Vec<Outcome>> {
        let notes = self.see(Call::Apply(&ops));
        self.record(notes, move || store.apply(ops, durability), |outcomes| show_room(outcomes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollster::block_on;
    use tourbillon_durable::UtcMillis;
    use tourbillon_durable::store::{MemoryStore, StoreError, StoreErrorKind};
    use tourbillon_durable::timer::{Timer, TimerId};

    #[test]
    fn only_a_new_timer_shows_that_a_full_store_has_room_again() {
        let refusals = Arc::new(Refusals::default());
        let timing = Timing::new(Arc::default(), Arc::clone(&refusals), Arc::default());
        let store = Hooked::new(Arc::new(MemoryStore::default()), timing);
        let place = |id: TimerId, key: &str, if_present| {
            let timer = Timer::new(id, "kind", UtcMillis::from_millis(1_900_000_000_000));
            let timer = Timer { key: Some(key.into()), ..timer };
            let op = Op::Place(Box::new(timer), if_present);
            block_on(store.apply(vec![op], Durability::default())).unwrap().remove(0)
        };
        let (first, shown) = (TimerId::fresh(), || refusals.lasting(None).is_none());
        place(first, "k", IfPresent::Reject);
        refusals.note(&StoreError::new(StoreErrorKind::Full, "no room"), true);
        // A client repeats its creation.
        let repeated = place(first, "k", IfPresent::Reject);
        assert!(matches!(repeated, Outcome::Repeated(_)) && !shown(), "{repeated:?}");
        for (if_present, is_expected) in [
            (
                IfPresent::Reject,
                (|outcome| matches!(outcome, Outcome::KeyExists { .. })) as fn(&Outcome) -> bool,
            ),
            (IfPresent::Keep, |outcome| matches!(outcome, Outcome::Kept { .. })),
            (IfPresent::Replace, |outcome| matches!(outcome, Outcome::Replaced { .. })),
            (IfPresent::ReplaceKeepDue, |outcome| matches!(outcome, Outcome::Replaced { .. })),
        ] {
            let outcome = place(TimerId::fresh(), "k", if_present);
            assert!(is_expected(&outcome) && !shown(), "{outcome:?}");
        }
        for (key, if_present) in [("other", IfPresent::Keep), ("third", IfPresent::Replace)] {
            refusals.note(&StoreError::new(StoreErrorKind::Full, "no room"), true);
            let outcome = place(TimerId::fresh(), key, if_present);
            assert!(matches!(outcome, Outcome::Created(_)) && shown(), "{outcome:?}");
        }
    }
}
