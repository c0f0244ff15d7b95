//! The board: how many timers are parked for which reason, as far as is known, and which reasons are to be looked at.
//!
//! # No timer is forgotten
//! A timer is parked some time after its handler has decided so, and what it waits for may have come in between. So
//! each park that is stored is noted here ([`Board::parked`]), which makes the usher look at the reason again, after
//! the park. Whatever makes room calls [`Board::look_at`], before the timer is parked or after it. One of the two comes
//! last, and finds both the timer and the room. The count may be too high, after a cancel for example, and never stays
//! too low: a number of zero is believed only after an unpark has found nothing, and parks that were noted meanwhile
//! are added.

use super::reason::Reason;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    parked: HashMap<Reason, Parked>,
    /// The reasons that are to be looked at.
    marked: HashSet<Reason>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Parked {
    count: u64,
    /// An unpark is under way.
    is_busy: bool,
    /// The parks that were noted since it began.
    since: u64,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a timer is parked for this reason.
    pub(crate) fn parked(&self, reason: Reason) {
        let mut state = self.lock();
        let parked = state.parked.entry(reason.clone()).or_default();
        (parked.count, parked.since) = (parked.count + 1, parked.since + 1);
        state.marked.insert(reason);
        drop(state);
        self.changed.notify_one();
    }

    /// Notes that a timer was found which another process may have parked for this reason.
    pub(crate) fn found(&self, reason: Reason) {
        let is_known = self.lock().parked.contains_key(&reason);
        if !is_known {
            self.parked(reason);
        }
    }

    /// Makes the usher look at a reason: there may be room.
    pub(crate) fn look_at(&self, reason: &Reason) {
        let mut state = self.lock();
        if state.parked.contains_key(reason) {
            state.marked.insert(reason.clone());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Makes the usher look at all reasons.
    pub(crate) fn look_everywhere(&self) {
        let mut state = self.lock();
        let all: Vec<Reason> = state.parked.keys().cloned().collect();
        state.marked.extend(all);
        drop(state);
        self.changed.notify_one();
    }

    /// The number of timers that are parked for this reason, or fewer if some are being unparked.
    pub(crate) fn count(&self, reason: &Reason) -> u64 {
        self.lock().parked.get(reason).map_or(0, |parked| parked.count)
    }

    /// The numbers of parked timers by the reason, as far as is known.
    pub(crate) fn counts(&self) -> BTreeMap<Reason, u64> {
        let state = self.lock();
        state.parked.iter().map(|(reason, parked)| (reason.clone(), parked.count)).collect()
    }

    /// The number of all timers that the service has parked.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.lock().parked.values().map(|parked| parked.count).sum()
    }

    /// Waits until a reason is to be looked at, or the board is closed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Ends the usher.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The reasons that are to be looked at and of which no unpark is under way.
    pub(crate) fn take_marked(&self) -> Vec<Reason> {
        let mut state = self.lock();
        let marked: Vec<Reason> = state.marked.drain().collect();
        let is_free = |reason: &Reason| state.parked.get(reason).is_some_and(|parked| !parked.is_busy);
        marked.into_iter().filter(is_free).collect()
    }

    /// Notes that an unpark begins.
    pub(crate) fn begin(&self, reason: &Reason) {
        if let Some(parked) = self.lock().parked.get_mut(reason) {
            (parked.is_busy, parked.since) = (true, 0);
        }
    }

    /// Notes that an unpark has put so many timers back, none if there were none, and makes the usher look again.
    pub(crate) fn end(&self, reason: &Reason, found: Option<u32>) {
        let mut state = self.lock();
        let Some(parked) = state.parked.get_mut(reason) else { return };
        parked.is_busy = false;
        parked.count = match found {
            None => parked.count,
            Some(0) => parked.since,
            // The last one is not believed: the count may be too low by a park whose event was lost.
            Some(found) => parked.count.saturating_sub(u64::from(found)).max(1),
        };
        if parked.count == 0 {
            state.parked.remove(reason);
        } else if found.is_some() {
            state.marked.insert(reason.clone());
            drop(state);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_looked_at_until_an_unpark_finds_nothing() {
        let board = Board::default();
        let reason = Reason::Rate("a".into());
        board.look_at(&reason);
        assert_eq!(board.take_marked(), []);
        board.parked(reason.clone());
        board.parked(reason.clone());
        assert_eq!(board.take_marked(), vec![reason.clone()]);
        assert_eq!(board.take_marked(), []);
        board.begin(&reason);
        board.look_at(&reason);
        assert_eq!(board.take_marked(), [], "one unpark at a time");
        board.end(&reason, Some(2));
        assert_eq!((board.take_marked(), board.count(&reason)), (vec![reason.clone()], 1));
        board.begin(&reason);
        board.end(&reason, Some(0));
        assert_eq!((board.take_marked(), board.count(&reason), board.total()), (vec![], 0, 0));
    }

    #[test]
    fn a_park_during_an_unpark_that_finds_nothing_counts() {
        let board = Board::default();
        let reason = Reason::Rate("a".into());
        board.parked(reason.clone());
        board.take_marked();
        board.begin(&reason);
        board.parked(reason.clone());
        board.end(&reason, Some(0));
        assert_eq!((board.take_marked(), board.count(&reason)), (vec![reason.clone()], 1));
    }
}
