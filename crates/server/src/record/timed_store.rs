//! Wraps a store to time its operations and to record its refusals.

use super::metrics::SharedTimes;
use super::refusals::Refusals;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_durable::store::{Call, Hook, Hooked, Op, StoreFuture};

/// For each operation of the store, the distribution of the durations of its calls. A duration is the time from the
/// call to the store's answer.
#[derive(Debug, Default)]
pub(crate) struct StoreTimes {
    apply: SharedTimes,
    claim: SharedTimes,
    renew: SharedTimes,
    reap: SharedTimes,
    upcoming: SharedTimes,
    get: SharedTimes,
    list: SharedTimes,
    counts: SharedTimes,
    horizon: SharedTimes,
}

impl StoreTimes {
    /// Returns the name of each operation of the store, with the distribution of the durations of its calls.
    pub(crate) fn all(&self) -> [(&'static str, &SharedTimes); 9] {
        [
            ("apply", &self.apply),
            ("claim", &self.claim),
            ("renew", &self.renew),
            ("reap", &self.reap),
            ("upcoming", &self.upcoming),
            ("get", &self.get),
            ("list", &self.list),
            ("counts", &self.counts),
            ("horizon", &self.horizon),
        ]
    }
}

/// A store that records the durations of its operations and the changes that it refuses.
pub(crate) type TimedStore = Hooked<Timing>;

/// The hook of a [`TimedStore`], which sees each call of the store and each answer.
pub(crate) struct Timing {
    times: Arc<StoreTimes>,
    refusals: Arc<Refusals>,
}

impl Timing {
    pub(crate) fn new(times: Arc<StoreTimes>, refusals: Arc<Refusals>) -> Self {
        Self { times, refusals }
    }
}

/// The notes that [`Timing`] keeps about a call of the store until the store answers. They say to which distribution
/// the duration of the call is added, and whether the success or error of the call is reported to [`Refusals`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Notes {
    /// Selects the distribution in [`StoreTimes`] to which the duration of the call is added. `None` if the call is not
    /// timed.
    time: Option<fn(&StoreTimes) -> &SharedTimes>,
    /// Set if the success or error of the call is reported to [`Refusals`]. `None` if the call changes no timers. Also
    /// `None` for some calls that change timers but that [`Refusals`] ignores, such as [`Call::PutBack`].
    change: Option<Change>,
}

#[derive(Clone, Copy)]
struct Change {
    /// Whether the call stores new timers if it succeeds.
    is_new: bool,
}

impl Hook for Timing {
    type Seen = Notes;

    fn see(&self, call: Call<'_>) -> Notes {
        let timed = |time: fn(&StoreTimes) -> &SharedTimes| Notes { time: Some(time), change: None };
        let changes = |time, is_new| Notes { change: Some(Change { is_new }), ..timed(time) };
        match call {
            Call::Apply(ops) => {
                changes(|times| &times.apply, ops.iter().any(|op| matches!(op, Op::Place(..))))
            }
            Call::Claim => changes(|times| &times.claim, false),
            Call::Renew => changes(|times| &times.renew, false),
            Call::Reap => changes(|times| &times.reap, false),
            Call::Import => Notes { time: None, change: Some(Change { is_new: true }) },
            Call::Upcoming => timed(|times| &times.upcoming),
            Call::Get => timed(|times| &times.get),
            Call::List(_) | Call::Reasons => timed(|times| &times.list),
            Call::Counts => timed(|times| &times.counts),
            Call::Horizon => timed(|times| &times.horizon),
            Call::PutBack => timed(|times| &times.apply),
            _ => Notes::default(),
        }
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        notes: Notes,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let (begun, answer) = (Instant::now(), pass_on());
        if notes.time.is_none() && notes.change.is_none() {
            return answer;
        }
        // Records nothing if the caller drops the future before the answer comes.
        Box::pin(async move {
            let answer = answer.await;
            if let Some(time) = notes.time {
                time(&self.times).record(begun.elapsed());
            }
            if let Some(Change { is_new }) = notes.change {
                match &answer {
                    Ok(_) => self.refusals.note_success(is_new),
                    Err(error) => self.refusals.note(error, is_new),
                }
            }
            answer
        })
    }
}
