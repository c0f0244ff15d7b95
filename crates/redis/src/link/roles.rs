//! Keeps track of the primary by the events and the answers of the Sentinels.
//!
//! | the Sentinels name a server | it counts as the primary |
//! |---|---|
//! | an event has named another server within the last three seconds, or since the question | no |
//! | most of the Sentinels have answered | yes |
//! | fewer have answered; the answer is older than one that this client has taken, or than an event that has named another server | no |
//! | fewer have answered, otherwise | yes |
//!
//! The epochs of answers say which is older. Sentinels that are set up anew begin with the epoch 0, so the answer of
//! most of the Sentinels counts although it looks old.

use super::primary::{Named, Primary};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The longest time for which calls are held back during a failover. It is shorter than the default of
/// `Connect::patience`, so that these calls do not fail.
const LONGEST: Duration = Duration::from_secs(4);
/// After a Sentinel has named a server as the primary, connections to any other server are not used for this time.
pub(super) const FRESH: Duration = Duration::from_secs(3);

/// Stores the primary that the events of the Sentinels name, and holds calls back during a failover.
#[derive(Debug)]
pub(crate) struct Roles {
    /// The moment until which calls are held back because a failover is under way. `None` or a past moment holds no
    /// calls back.
    held: watch::Sender<Option<Instant>>,
    known: Mutex<Known>,
    /// The number of changes of the primary that the Sentinels have reported.
    changes: watch::Sender<u64>,
}

/// The knowledge from the answers and the events of the Sentinels.
#[derive(Debug, Default)]
struct Known {
    /// The configuration epoch of the last answer that has led to a connection, or 0 before the first such answer.
    /// Each failover has a higher epoch than the failovers before it.
    epoch: u64,
    event: Option<Event>,
}

/// The last event by which a Sentinel has named a primary.
#[derive(Debug)]
struct Event {
    primary: Named,
    at: Instant,
    /// The value of [`Known::epoch`] when this server was first named. The event's failover has a higher epoch.
    after: u64,
}

impl Known {
    fn permit(&self, primary: &Primary, asked: Instant) -> bool {
        let event = self.event.as_ref().filter(|event| event.primary != primary.address);
        // An event before the question does not count once it is old. This client may have missed a later event, and
        // would then refuse the present primary.
        let is_fresh = |event: &Event| event.at >= asked || event.at.elapsed() < FRESH;
        let is_old = primary.epoch < self.epoch || event.is_some_and(|event| primary.epoch <= event.after);
        !event.is_some_and(is_fresh) && (primary.is_of_most || !is_old)
    }
}

impl Default for Roles {
    fn default() -> Self {
        Self { held: watch::channel(None).0, known: Mutex::default(), changes: watch::channel(0).0 }
    }
}

impl Roles {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until calls are no longer held back because of a failover.
    pub(crate) async fn settled(&self) {
        let mut held = self.held.subscribe();
        loop {
            let until = *held.borrow_and_update();
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return };
            // Both a change and the end of the time lead to another check. `changed` cannot fail here, because `self`
            // has the sender.
            let _changed = timeout_at(until, held.changed()).await;
        }
    }

    /// Returns a receiver that notices the next change of the primary.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns whether `primary`, the Sentinels' answer, may be the primary at present. `asked` is the moment at
    /// which the Sentinels were asked. Without Sentinels, `primary` is `None`, and the result is `true`.
    pub(crate) fn permit(&self, primary: Option<&Primary>, asked: Instant) -> bool {
        primary.is_none_or(|primary| self.lock().permit(primary, asked))
    }

    /// Does the same as [`permit`](Self::permit), and stores the answer `primary` if it is permitted.
    pub(crate) fn take(&self, primary: Option<&Primary>, asked: Instant) -> bool {
        let Some(primary) = primary else { return true };
        let mut known = self.lock();
        let is_permitted = known.permit(primary, asked);
        if is_permitted {
            known.epoch = primary.epoch;
            // An event that has named another server is from before this answer.
            known.event.take_if(|event| event.primary != primary.address);
        }
        is_permitted
    }

    pub(super) fn hold(&self) {
        // Several Sentinels report several events of one failover. Only the first event holds calls back. A later event
        // must not prolong the hold, because the patience of the held calls might end first.
        self.held.send_if_modified(|held| {
            let is_new = held.is_none_or(|until| until <= Instant::now());
            if is_new {
                *held = Some(Instant::now() + LONGEST);
            }
            is_new
        });
    }

    pub(super) fn release(&self) {
        self.held.send_replace(None);
    }

    /// Records that a Sentinel has named this server as the primary.
    pub(super) fn name(&self, primary: Named) {
        self.name_at(primary, Instant::now());
    }

    pub(super) fn name_at(&self, primary: Named, at: Instant) {
        let mut known = self.lock();
        let before = known.event.take().filter(|event| event.primary == primary);
        let is_new = before.is_none();
        // Several events name the same server. Each of them begins the time `FRESH` again. Only the first event counts
        // as a change, because a change ends the subscription to messages, which then begins at the new primary. The
        // later events may be older than answers that this client has taken in between.
        let after = before.map_or(known.epoch, |event| event.after);
        known.event = Some(Event { primary, at, after });
        drop(known);
        if is_new {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(port: u16, epoch: u64, is_of_most: bool) -> Primary {
        Primary { address: ("a".into(), port), epoch, is_of_most }
    }

    /// Returns three moments before now, in order. Each is [`FRESH`] after the moment before it.
    fn moments() -> [Instant; 3] {
        [3, 2, 1].map(|times| Instant::now().checked_sub(FRESH * times).unwrap())
    }

    #[test]
    fn only_the_server_that_was_named_is_taken_for_the_primary() {
        let (roles, first, second) = (Roles::default(), primary(1, 1, true), primary(2, 2, true));
        let mut changes = roles.changes();
        let permit = |server| roles.permit(server, Instant::now());
        assert!(permit(Some(&first)) && permit(None));
        roles.name(second.address.clone());
        assert!(!permit(Some(&first)) && permit(Some(&second)) && permit(None));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        roles.name(second.address);
        assert!(!changes.has_changed().unwrap(), "it is the same one");
    }

    #[test]
    fn a_server_that_was_named_before_an_event_is_refused_also_after_a_long_attempt_to_connect() {
        let (roles, first, second) = (Roles::default(), primary(1, 1, true), primary(2, 2, true));
        let [asked, event, later] = moments();
        roles.name_at(second.address.clone(), event);
        assert!(!roles.permit(Some(&first), asked) && roles.permit(Some(&second), asked));
        assert!(roles.permit(Some(&first), later), "an old event before the question");
    }

    #[test]
    fn an_answer_of_few_sentinels_counts_only_if_it_is_not_old() {
        let (roles, [_, event, later]) = (Roles::default(), moments());
        assert!(roles.take(Some(&primary(1, 4, false)), later), "nothing is known");
        assert!(!roles.take(Some(&primary(2, 3, false)), later), "a former primary");
        // The event has an epoch of at least 5.
        roles.name_at(primary(2, 5, true).address, event);
        assert!(!roles.take(Some(&primary(1, 4, false)), later), "a former primary");
        assert!(roles.take(Some(&primary(2, 5, false)), later));
        assert!(!roles.take(Some(&primary(1, 4, false)), later), "a former primary");
        assert!(roles.take(Some(&primary(1, 6, false)), later), "this client has missed an event");
        assert!(!roles.take(Some(&primary(2, 5, false)), later), "a former primary");
    }

    #[test]
    fn the_answer_of_most_sentinels_counts_although_it_looks_old() {
        let (roles, [_, event, later]) = (Roles::default(), moments());
        assert!(roles.take(Some(&primary(1, 4, true)), later));
        roles.name_at(primary(2, 5, true).address, event);
        // All Sentinels were set up anew.
        assert!(roles.take(Some(&primary(3, 0, true)), later));
        assert!(roles.take(Some(&primary(3, 0, false)), later));
    }
}
