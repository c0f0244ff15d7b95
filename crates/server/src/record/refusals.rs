//! Counts the changes that the store refuses for its own reasons, such as a full or broken disk. Refusals because of
//! the caller's limits do not count.
//!
//! After a refused change, the service assumes that the store still refuses changes. A [`Refusal`] stands for this
//! assumption. The refusal lasts until a change of the same kind succeeds. For example, a refusal of creations ends
//! with a successful creation, but not with a successful claim. Without further creations, such a refusal would keep
//! the service unready for ever. So a refusal also ends ten seconds after the last refused change. This time limit does
//! not apply while [`TimerStore::refuses_new`] reports that the store refuses new timers.
//!
//! [`TimerStore::refuses_new`]: tourbillon_durable::store::TimerStore::refuses_new

use super::by_word::ByWord;
use crate::state::Counter;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The time after the last refused change at which a [`Refusal`] ends. The refusal does not end in this way while the
/// store reports that it refuses new timers.
const LASTS: Duration = Duration::from_secs(10);
/// The values of the metric's label for the reason why the store has refused a change.
const REASONS: [&str; 4] = ["full", "read-only", "damaged", "io"];

/// Counts the changes that the store has refused since the start of the process. Also remembers, as a [`Refusal`],
/// whether the store still refuses changes.
#[derive(Debug)]
pub(crate) struct Refusals {
    counts: ByWord<Counter, { REASONS.len() }>,
    present: Mutex<Option<Refusal>>,
}

/// The state of a store that still refuses changes, with the error of the latest refused change. If the store has
/// refused only new timers, the refusal ends when the store accepts a new timer. Otherwise any successful change ends
/// the refusal. [`Refusals::lasting`] also ends the refusal ten seconds after the latest refused change.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) error: StoreError,
    last: Instant,
    /// Whether each change that the store has refused since the beginning of this refusal would have stored new timers.
    is_new: bool,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { counts: ByWord::new(REASONS), present: Mutex::default() }
    }
}

/// Returns the value of the metric's label for an error with which the store refused a change. `None` if the error does
/// not count as a refusal: the caller reached a limit, a transaction of another program holds the timer, or the service
/// stops.
fn reason(error: &StoreError) -> Option<&'static str> {
    match error.kind() {
        StoreErrorKind::Limit | StoreErrorKind::Closed | StoreErrorKind::Held => None,
        StoreErrorKind::Full => Some("full"),
        StoreErrorKind::ReadOnly => Some("read-only"),
        StoreErrorKind::Corrupt => Some("damaged"),
        _ => Some("io"),
    }
}

impl Refusals {
    fn present(&self) -> MutexGuard<'_, Option<Refusal>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, error: &StoreError, is_new: bool) {
        let Some(reason) = reason(error) else { return };
        self.counts.of(reason).add(1);
        let now = Instant::now();
        let mut present = self.present();
        let was_new = present.as_ref().is_none_or(|before| before.is_new);
        *present = Some(Refusal { error: error.clone(), last: now, is_new: is_new && was_new });
    }

    /// Notes a successful change. `shows_room` is true if the change shows that the store takes new timers.
    pub(super) fn note_success(&self, shows_room: bool) {
        let mut present = self.present();
        // A store that refuses new timers may still accept other changes, so only a new timer ends such a refusal.
        if present.as_ref().is_some_and(|refusal| shows_room || !refusal.is_new) {
            *present = None;
        }
    }

    /// Returns the [`Refusal`] if the store still refuses changes. `reason` is the error with which the store now
    /// refuses new timers, or `None` if it accepts new timers. If `reason` is `None`, the refusal ends ten seconds
    /// after the last refused change.
    pub(crate) fn lasting(&self, reason: Option<StoreError>) -> Option<Refusal> {
        let mut present = self.present();
        if reason.is_none() && present.as_ref().is_some_and(|refusal| refusal.last.elapsed() > LASTS) {
            *present = None;
        }
        present.clone()
    }

    /// Returns each value of the metric's label with the number of changes refused for this reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().map(|(reason, count)| (reason, count.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "no")
    }

    #[test]
    fn a_refused_creation_lasts_until_a_creation_succeeds_and_neither_a_limit_nor_a_held_timer_is_one() {
        let refusals = Refusals::default();
        refusals.note(&error(StoreErrorKind::Limit), true);
        refusals.note(&error(StoreErrorKind::Held), true);
        assert!(refusals.lasting(None).is_none());
        refusals.note(&error(StoreErrorKind::Full), true);
        refusals.note_success(false);
        assert_eq!(refusals.lasting(None).unwrap().error.kind(), StoreErrorKind::Full);
        refusals.note_success(true);
        assert!(refusals.lasting(None).is_none());
        refusals.note(&error(StoreErrorKind::Io), false);
        refusals.note_success(false);
        assert!(refusals.lasting(None).is_none());
        let counts: Vec<_> = refusals.counts().collect();
        assert_eq!(counts, [("full", 1), ("read-only", 0), ("damaged", 0), ("io", 1)]);
    }
}
