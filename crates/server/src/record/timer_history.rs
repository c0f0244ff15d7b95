//! Remembers the histories of single timers in two groups. The first group has the timers with the latest attempts. The
//! second group has the timers that ended last without an attempt, for example by a cancellation. So timers without an
//! attempt never displace attempted timers.

use crate::convert::moment;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tourbillon_api::{EndKind, PastAttempt, PastEnd};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::timer::{KeyOf, TimerId};

/// The greatest number of timers in each of the two groups of [`TimerHistory`]: timers with remembered attempts, and
/// timers that ended without an attempt.
const MOST_TIMERS: usize = 16_384;
/// The greatest number of attempts that [`TimerHistory`] remembers for all timers together.
const MOST_ATTEMPTS: usize = 49_152;
/// The greatest number of attempts in the history of a timer.
const MOST_OF_A_TIMER: usize = 16;
/// The greatest number of interruptions in the history of a timer. An interruption is the death of the process that
/// delivers the timer.
const MOST_INTERRUPTIONS: usize = 4;
/// The greatest number of replays in the history of a timer.
const MOST_REPLAYS: usize = 4;

/// The facts that a timer's history keeps about the timer itself. They come from the events of the timer. Some events
/// lack the key or the moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) namespace: Box<str>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) created: Option<UtcMillis>,
    pub(crate) scheduled: Option<UtcMillis>,
    pub(crate) deliveries: u32,
}

impl Known {
    /// Adds the facts of a newer event about the same timer. A fact that the newer event lacks keeps its value.
    fn update(&mut self, newer: Self) {
        self.namespace = newer.namespace;
        self.key = newer.key.or(self.key.take());
        self.created = newer.created.or(self.created);
        self.scheduled = newer.scheduled.or(self.scheduled);
        self.deliveries = newer.deliveries.max(self.deliveries);
    }
}

/// The remembered history of a timer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) known: Known,
    pub(crate) attempts: VecDeque<PastAttempt>,
    pub(crate) parks: u32,
    pub(crate) parked_for: Option<Box<str>>,
    /// The moments at which the service noticed the death of a process that delivered the timer.
    pub(crate) interrupted: Vec<UtcMillis>,
    /// The moments at which the dead timer was replayed, in ascending order.
    pub(crate) replayed: VecDeque<UtcMillis>,
    pub(crate) end: Option<PastEnd>,
    /// The number of the timer's last event. The events of all timers are numbered in one sequence.
    touched: u64,
}

impl Entry {
    /// Makes the history of a timer of which no event is remembered.
    pub(super) fn of(known: Known) -> Self {
        Self { known, ..Self::default() }
    }
}

/// One of the two groups of timers' histories in [`TimerHistory`]. If the group has too many histories, it forgets the
/// history whose last event is the oldest.
#[derive(Debug, Default)]
struct Ring {
    entries: HashMap<TimerId, Entry>,
    order: BTreeMap<u64, TimerId>,
    /// The timer that last had each key.
    by_key: HashMap<KeyOf, TimerId>,
    attempts: usize,
}

impl Ring {
    /// Returns the history of a timer, so that the caller can add an event to it. `number` is the number of this new
    /// event. Makes an empty history if the group has none for this timer. Also makes this history the last that the
    /// group forgets, because the new event is the latest event in the group.
    fn touch(&mut self, id: TimerId, number: u64) -> &mut Entry {
        let entry = self.entries.entry(id).or_default();
        // A new history has the number 0, which no event has. So nothing is removed for a new history.
        self.order.remove(&entry.touched);
        entry.touched = number;
        self.order.insert(number, id);
        entry
    }

    fn remove(&mut self, id: TimerId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.order.remove(&entry.touched);
        self.attempts -= entry.attempts.len();
        if let Some(key) = &entry.known.key {
            let key = KeyOf { namespace: entry.known.namespace.clone(), key: key.clone() };
            // A later timer may have taken the key.
            if self.by_key.get(&key) == Some(&id) {
                self.by_key.remove(&key);
            }
        }
        Some(entry)
    }

    /// Returns the timer that last had this namespace and key, and the number of the timer's last event.
    fn last_of(&self, key: &KeyOf) -> Option<(u64, TimerId)> {
        let id = *self.by_key.get(key)?;
        Some((self.entries.get(&id)?.touched, id))
    }

    /// Forgets the histories of all timers in a namespace.
    fn forget(&mut self, namespace: &str) {
        let of_it = self.entries.iter().filter(|(_, entry)| *entry.known.namespace == *namespace);
        let ids: Vec<TimerId> = of_it.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| drop(self.remove(id)));
    }

    /// Forgets histories of timers until this group has at most [`MOST_TIMERS`] timers and [`MOST_ATTEMPTS`] attempts.
    /// Begins with the history whose last event is the oldest.
    fn trim(&mut self) {
        while self.entries.len() > MOST_TIMERS || self.attempts > MOST_ATTEMPTS {
            let Some((_, oldest)) = self.order.first_key_value() else { return };
            let oldest = *oldest;
            self.remove(oldest);
        }
    }
}

/// The histories of timers in two groups: attempted timers, and withdrawn timers. A withdrawn timer ended without an
/// attempt, for example by a cancellation.
#[derive(Debug, Default)]
pub(super) struct TimerHistory {
    attempted: Ring,
    withdrawn: Ring,
    /// The number of the last event, counted from 1 since the start of the process.
    touches: u64,
}

impl TimerHistory {
    fn change(&mut self, id: TimerId, is_attempt: bool, known: Option<Known>, act: impl FnOnce(&mut Entry)) {
        self.touches += 1;
        // A timer with remembered attempts stays in the first group, so that its attempts and its end remain together.
        let is_attempted = is_attempt || self.attempted.entries.contains_key(&id);
        let ring = if is_attempted { &mut self.attempted } else { &mut self.withdrawn };
        if let Some(Known { namespace, key: Some(key), .. }) = &known {
            ring.by_key.insert(KeyOf { namespace: namespace.clone(), key: key.clone() }, id);
        }
        let entry = ring.touch(id, self.touches);
        if let Some(known) = known {
            entry.known.update(known);
        }
        let before = entry.attempts.len();
        act(entry);
        let after = entry.attempts.len();
        ring.attempts = ring.attempts + after - before;
        ring.trim();
    }

    /// Adds an ended attempt to the history of the timer `id`.
    pub(super) fn attempted(&mut self, id: TimerId, known: Known, attempt: PastAttempt) {
        self.change(id, true, Some(known), |entry| {
            if entry.attempts.len() >= MOST_OF_A_TIMER {
                entry.attempts.pop_front();
            }
            entry.attempts.push_back(attempt);
            // A dead timer may have been fired or replayed, so the recorded end no longer holds.
            entry.end = None;
        });
    }

    /// Records that a timer was parked (set aside, even if due) for this reason. Does nothing if no attempt of the
    /// timer is remembered.
    pub(super) fn parked(&mut self, id: TimerId, reason: &str) {
        if let Some(entry) = self.attempted.entries.get_mut(&id) {
            entry.parks = entry.parks.saturating_add(1);
            entry.parked_for = Some(reason.into());
        }
    }

    /// Records that the process that delivered the timer has died.
    pub(super) fn interrupted(&mut self, id: TimerId, at: UtcMillis) {
        // The event about an expired lease has only the id of the timer.
        self.change(id, true, None, |entry| {
            if entry.interrupted.len() < MOST_INTERRUPTIONS {
                entry.interrupted.push(at);
            }
        });
    }

    /// Records that a dead timer was replayed at the moment `at`.
    pub(super) fn replayed(&mut self, id: TimerId, known: Known, at: UtcMillis) {
        self.change(id, true, Some(known), |entry| {
            if entry.replayed.len() >= MOST_REPLAYS {
                entry.replayed.pop_front();
            }
            entry.replayed.push_back(at);
            // The delivery after the replay may already have ended. Its end is kept.
            if entry.end.as_ref().is_some_and(|end| end.at <= moment(at)) {
                entry.end = None;
            }
        });
    }

    /// Records how and when a timer ended.
    pub(super) fn ended(
        &mut self,
        id: TimerId,
        known: Known,
        at: UtcMillis,
        how: EndKind,
        detail: Option<&str>,
    ) {
        let end = PastEnd { at: moment(at), how, detail: detail.map(Into::into) };
        self.change(id, false, Some(known), |entry| entry.end = Some(end));
    }

    /// Forgets the histories of all timers in a namespace.
    pub(super) fn forget(&mut self, namespace: &str) {
        self.attempted.forget(namespace);
        self.withdrawn.forget(namespace);
    }

    pub(super) fn get(&self, id: TimerId) -> Option<&Entry> {
        self.attempted.entries.get(&id).or_else(|| self.withdrawn.entries.get(&id))
    }

    /// Returns at most `limit` timers that have ended and that `is_wanted` selects, the latest first. With `before`,
    /// returns only timers whose last event has a lower number. If more timers may follow, also returns the value of
    /// `before` for the next page.
    pub(super) fn ended_lately(
        &self,
        before: Option<u64>,
        limit: usize,
        is_wanted: impl Fn(&Known, EndKind) -> bool,
    ) -> (Vec<(TimerId, Entry)>, Option<u64>) {
        let before = before.unwrap_or(u64::MAX);
        let mut places: Vec<(u64, TimerId, &Ring)> = Vec::new();
        for ring in [&self.attempted, &self.withdrawn] {
            let ended = ring.order.range(..before).rev().filter(|(_, id)| {
                let entry = ring.entries.get(id);
                let end = entry.and_then(|entry| Some((&entry.known, entry.end.as_ref()?.how)));
                end.is_some_and(|(known, how)| is_wanted(known, how))
            });
            // All timers of the page may come from one ring. The additional timer shows whether further timers follow.
            places.extend(ended.take(limit + 1).map(|(touched, id)| (*touched, *id, ring)));
        }
        places.sort_unstable_by_key(|(touched, ..)| core::cmp::Reverse(*touched));
        let has_more = places.len() > limit;
        places.truncate(limit);
        let next = places.last().map(|(touched, ..)| *touched).filter(|_| has_more);
        let entry = |(_, id, ring): (u64, TimerId, &Ring)| Some((id, ring.entries.get(&id)?.clone()));
        (places.into_iter().filter_map(entry).collect(), next)
    }

    /// Returns the timer of a namespace that last had this key, or `None` if its history is not remembered.
    pub(super) fn last_of(&self, namespace: &str, key: &str) -> Option<TimerId> {
        let key = KeyOf { namespace: namespace.into(), key: key.into() };
        let last = self.attempted.last_of(&key).into_iter().chain(self.withdrawn.last_of(&key)).max();
        last.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_api::Moment;

    fn id(number: usize) -> TimerId {
        TimerId::from_u128(number as u128 + 1)
    }

    fn known() -> Known {
        Known { namespace: "n".into(), ..Known::default() }
    }

    fn attempt(number: u32) -> PastAttempt {
        let at = Moment::from_millis(1);
        PastAttempt {
            attempt: number,
            delivery: number,
            due: at,
            claimed: at,
            started: at,
            ended: Some(at),
            late_ms: 0,
            took_ms: Some(0),
            outcome: None,
            status: None,
            error: None,
            answer: None,
            may_repeat: None,
        }
    }

    #[test]
    fn attempts_and_timers_are_bounded_and_the_oldest_are_forgotten() {
        let mut history = TimerHistory::default();
        for number in 1..=20 {
            history.attempted(id(0), known(), attempt(number));
        }
        let entry = history.get(id(0)).unwrap();
        assert_eq!(
            entry.attempts.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(),
            (5..=20).collect::<Vec<_>>()
        );
        for timer in 1..MOST_TIMERS {
            history.attempted(id(timer), known(), attempt(1));
        }
        history.attempted(id(1), known(), attempt(2));
        history.attempted(id(MOST_TIMERS), known(), attempt(1));
        assert!(history.get(id(0)).is_none() && history.get(id(1)).is_some());
        assert_eq!(history.attempted.entries.len(), MOST_TIMERS);
        assert_eq!(history.attempted.order.len(), MOST_TIMERS);
        for timer in 0..MOST_TIMERS {
            for number in 0..4 {
                history.attempted(id(timer), known(), attempt(number));
            }
        }
        let count: usize = history.attempted.entries.values().map(|entry| entry.attempts.len()).sum();
        assert!(count <= MOST_ATTEMPTS && count == history.attempted.attempts, "{count}");
        assert!(count + MOST_OF_A_TIMER > MOST_ATTEMPTS, "no more are forgotten than need be: {count}");
    }

    #[test]
    fn the_last_timer_of_a_key_is_found_and_forgotten_with_its_past() {
        let mut history = TimerHistory::default();
        let known = |key: &str| Known { key: Some(key.into()), ..known() };
        let at = UtcMillis::from_millis(7);
        history.attempted(id(0), known("a"), attempt(1));
        history.ended(id(1), known("a"), at, EndKind::Cancelled, None);
        assert_eq!((history.last_of("n", "a"), history.last_of("m", "a")), (Some(id(1)), None));
        history.attempted(id(0), known("a"), attempt(2));
        assert_eq!(history.last_of("n", "a"), Some(id(0)));
        for _ in 0..=MOST_REPLAYS {
            history.replayed(id(0), known("a"), at);
        }
        let entry = history.get(id(0)).unwrap();
        assert_eq!((entry.replayed.len(), entry.attempts.len()), (MOST_REPLAYS, 2));
        for timer in 2..=MOST_TIMERS + 1 {
            history.attempted(id(timer), known("b"), attempt(1));
            history.ended(id(MOST_TIMERS + timer), known("c"), at, EndKind::Cancelled, None);
        }
        assert_eq!(history.last_of("n", "a"), None);
        assert_eq!(history.last_of("n", "b"), Some(id(MOST_TIMERS + 1)));
        assert_eq!((history.attempted.by_key.len(), history.withdrawn.by_key.len()), (1, 1));
    }

    #[test]
    fn those_that_ended_last_come_first_a_page_at_a_time() {
        let mut history = TimerHistory::default();
        let at = UtcMillis::from_millis(7);
        for number in 0..10 {
            if number % 2 == 0 {
                history.attempted(id(number), known(), attempt(1));
                history.ended(id(number), known(), at, EndKind::Delivered, None);
            } else {
                history.ended(id(number), known(), at, EndKind::Cancelled, None);
            }
        }
        // A timer that waits for its next attempt has not ended.
        history.attempted(id(20), known(), attempt(1));
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let (page, next) = history.ended_lately(before, 3, |_, _| true);
            found.extend(page.into_iter().map(|(id, _)| id));
            before = next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, (0..10).rev().map(id).collect::<Vec<_>>());
        let (page, next) = history
            .ended_lately(None, 10, |known, how| *known.namespace == *"n" && how == EndKind::Cancelled);
        assert_eq!((page.len(), next), (5, None));
        assert!(history.ended_lately(None, 10, |known, _| *known.namespace == *"m").0.is_empty());
    }

    #[test]
    fn a_flood_of_withdrawn_timers_leaves_the_attempted_ones() {
        let mut history = TimerHistory::default();
        history.attempted(id(0), known(), attempt(1));
        let at = UtcMillis::from_millis(7);
        for timer in 1..=MOST_TIMERS + 1 {
            history.ended(id(timer), known(), at, EndKind::Cancelled, None);
        }
        assert!(history.get(id(0)).is_some() && history.get(id(1)).is_none() && history.get(id(2)).is_some());
        history.ended(id(0), known(), at, EndKind::Replaced, Some("by another"));
        let entry = history.get(id(0)).unwrap();
        assert_eq!(entry.attempts.len(), 1);
        let end = PastEnd { at: moment(at), how: EndKind::Replaced, detail: Some("by another".to_owned()) };
        assert_eq!(entry.end, Some(end));
    }
}
