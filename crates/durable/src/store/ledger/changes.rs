//! Applies the operations by which callers change stored timers.

use super::entries::{id_at_end, label_key, part};
use super::lifecycle::{Lifecycle, bug, is_withdrawn};
use crate::phase::PAUSED;
use crate::state::{Event, Next, Phase, Refusal, State, Withdrawal, step};
use crate::store::Outcome;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::timer::{Address, Timer, TimerId};

fn has_label(timer: &Timer, namespace: &str, label: &str) -> bool {
    *timer.namespace == *namespace && timer.labels.iter().any(|other| **other == *label)
}

impl<T: Tables> Lifecycle<T> {
    pub(super) fn cancel(&mut self, at: &Address, only: Option<TimerId>) -> Result<Outcome, StoreError> {
        let Some(timer) = self.timers.load_at(at)? else { return Ok(Outcome::NotFound) };
        if only.is_some_and(|only| only != timer.id) {
            return Ok(Outcome::NotFound);
        }
        let id = timer.id;
        Ok(if self.withdraw(&timer, Withdrawal::Cancelled)? {
            Outcome::InFlight(id)
        } else {
            Outcome::Cancelled(Box::new(timer))
        })
    }

    pub(super) fn cancel_labelled(
        &mut self,
        namespace: &str,
        label: &str,
        limit: u32,
    ) -> Result<Outcome, StoreError> {
        // With a limit of 0, each call would cancel nothing and report more timers. A caller that repeats the call
        // would never end.
        let (prefix, limit) = (label_key(namespace, label), limit.max(1));
        // A timer that was withdrawn in flight keeps its labels until its delivery ends. The loop skips such timers.
        let (mut cancelled, mut in_flight, mut more) = (0, 0, false);
        let mut from = prefix.clone();
        'all: loop {
            let keys = self.timers.reader().keys(Table::Labels, &from, &prefix, 256)?;
            let Some(last) = keys.last() else { break };
            from = [&last[..], &[0]].concat();
            for key in keys {
                if cancelled == limit {
                    more = true;
                    break 'all;
                }
                let Some(id) = id_at_end(&key) else { continue };
                match self.timers.load_named(id)? {
                    None => self.timers.remove_stray(Table::Labels, &key, None)?,
                    // The entry does not belong to the timer that it names, and must not cancel it.
                    Some(timer) if !has_label(&timer, namespace, label) => {
                        self.timers.remove_stray(Table::Labels, &key, Some(&timer))?;
                    }
                    Some(timer) if !is_withdrawn(&timer) => {
                        cancelled += 1;
                        in_flight += u32::from(self.withdraw(&timer, Withdrawal::Cancelled)?);
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(Outcome::CancelledMany { cancelled, in_flight, more })
    }

    pub(super) fn change_by(&mut self, at: &Address, event: Event) -> Result<Outcome, StoreError> {
        let Some(timer) = self.timers.load_at(at)? else { return Ok(Outcome::NotFound) };
        match step(&timer, event, self.now) {
            Ok(Next::Stays(changed)) => {
                self.timers.change(&timer, &changed)?;
                Ok(Outcome::Changed(timer.id))
            }
            Ok(Next::Ends(end)) => self.end(&timer, end),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    pub(super) fn pause(&mut self, at: &Address) -> Result<Outcome, StoreError> {
        self.set_paused(at, true, |timer| match timer.state {
            // A timer that waits for another reason, such as a receiver, waits for the resume instead. After the resume
            // it is due, and its handler parks it again if the reason still holds.
            State::Pending | State::Parked(_) => Some(Event::Park(PAUSED.into(), None)),
            _ => None,
        })
    }

    pub(super) fn resume(&mut self, at: &Address) -> Result<Outcome, StoreError> {
        self.set_paused(at, false, |timer| match &timer.state {
            State::Parked(reason) if **reason == *PAUSED => Some(Event::Unpark),
            _ => None,
        })
    }

    /// Pauses or resumes the timer that `at` names by its id or its key. If the timer has a series, sets whether the
    /// series is paused. Then applies the event that `event_for` returns for the timer. If the timer has no series, and
    /// `event_for` returns no event, the outcome is a refusal.
    fn set_paused(
        &mut self,
        at: &Address,
        is_paused: bool,
        event_for: impl Fn(&Timer) -> Option<Event>,
    ) -> Result<Outcome, StoreError> {
        let Some(timer) = self.timers.load_at(at)? else { return Ok(Outcome::NotFound) };
        let mut changed = timer.clone();
        if let Some(series) = &mut changed.series {
            series.paused = is_paused;
        }
        // The event is applied to `changed`, so that its result has the new flag of the series.
        match event_for(&timer).map(|event| step(&changed, event, self.now)) {
            Some(Ok(Next::Stays(next))) => changed = next,
            Some(Ok(Next::Ends(_)) | Err(_)) => return Err(bug("a pause ends no timer")),
            None if timer.series.is_none() => {
                return Ok(Outcome::Refused(Refusal::State(timer.state.phase())));
            }
            // Other occurrences get only the flag. The end of a delivery and `unpark_one` read the flag later.
            None => {}
        }
        self.timers.change(&timer, &changed)?;
        Ok(Outcome::Changed(timer.id))
    }

    pub(super) fn unpark(&mut self, reason: &str, limit: u32) -> Result<Outcome, StoreError> {
        let prefix = part(reason);
        let (mut unparked, mut from) = (0, prefix.clone());
        // An occurrence of a paused series gets another reason and does not count, so the loop continues with the next
        // timers.
        while unparked < limit {
            // All timers of a page may become pending, so a page must not exceed the rest of the limit.
            let keys = self.timers.reader().keys(
                Table::Parked,
                &from,
                &prefix,
                (limit - unparked).min(256) as usize,
            )?;
            let Some(last) = keys.last() else { break };
            from = [&last[..], &[0]].concat();
            for key in keys {
                unparked += u32::from(self.unpark_one(reason, &key)?);
            }
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// Makes a timer pending if it is parked for `reason`. `key` is the index entry that names the timer. If `reason`
    /// is [`PAUSED`], also resumes the timer's series. If `reason` is any other reason, and the timer's series is
    /// paused, the timer stays parked, with the reason [`PAUSED`]. Returns whether the timer is now pending.
    fn unpark_one(&mut self, reason: &str, key: &[u8]) -> Result<bool, StoreError> {
        let Some(id) = id_at_end(key) else { return Ok(false) };
        let timer = match self.timers.load_named(id)? {
            Some(timer) if matches!(&timer.state, State::Parked(other) if **other == *reason) => timer,
            other => {
                return self.timers.remove_stray(Table::Parked, key, other.as_ref()).map(|()| false);
            }
        };
        let Ok(Next::Stays(mut next)) = step(&timer, Event::Unpark, self.now) else { return Ok(false) };
        let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
        if reason == PAUSED {
            next.series.iter_mut().for_each(|series| series.paused = false);
        } else if is_paused {
            next.state = State::Parked(PAUSED.into());
        }
        self.timers.change(&timer, &next)?;
        Ok(next.state == State::Pending)
    }

    pub(super) fn replay(&mut self, id: TimerId) -> Result<Outcome, StoreError> {
        let Some(timer) = self.timers.load(id)? else { return Ok(Outcome::NotFound) };
        // A dead timer has lost its key. If another timer has the key now, a replay would give the key two owners (L2).
        // `change_by` refuses a timer in any other state, even if another timer has replaced it under its key.
        if let State::Dead(_) = timer.state
            && let Some(key) = &timer.key
            && let Some(Timer { id: holder, .. }) = self.timers.load_owner(&timer.namespace, key)?
            && holder != id
        {
            return Ok(Outcome::KeyExists { holder, refused: Box::new(timer) });
        }
        self.change_by(&Address::Id(id), Event::Replay)
    }

    pub(super) fn fire(&mut self, at: &Address) -> Result<Outcome, StoreError> {
        let Some(timer) = self.timers.load_at(at)? else { return Ok(Outcome::NotFound) };
        let id = timer.id;
        match timer.state {
            State::Dead(_) => self.replay(id),
            State::Parked(_) => {
                // An overdue timer keeps its due moment, and with it its place in the order of deliveries. A paused
                // series stays paused: only this occurrence is delivered.
                let now = Timer { due: timer.due.min(self.now), state: State::Pending, ..timer.clone() };
                self.timers.change(&timer, &now)?;
                Ok(Outcome::Changed(id))
            }
            State::Pending => {
                // The scheduled instant stays: the next occurrence of a series follows from it.
                let now = Timer { due: timer.due.min(self.now), ..timer.clone() };
                self.timers.change(&timer, &now)?;
                Ok(Outcome::Changed(id))
            }
            State::Leased(_) => Ok(Outcome::Refused(Refusal::State(Phase::Leased))),
        }
    }
}
