//! Applies the operations that [`Op`] describes.

use super::Act;
use crate::error::{Result, corrupt, failed, limit};
use crate::row::{id_bytes, id_of};
use core::time::Duration;
use rusqlite::params;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{
    Death, DeathReason, End, Event, Next, Phase, Refusal, State, Token, Withdrawal, step,
};
use tourbillon_durable::store::{IfPresent, Op, Outcome, PAUSED, dry_run};
use tourbillon_durable::timer::{Address, Timer, TimerId};

/// The greatest number of timers that an operation on many timers reads at once.
const PAGE: u32 = 256;

/// The greatest normal difference between the clocks of processes that create timers. If the moment of a timer's
/// creation is further in the future, the clock of its creator was ahead.
const AHEAD: Duration = Duration::from_secs(1);

impl Act<'_> {
    /// Applies an operation. The arguments must be within the limits that [`dry_run::admit`] checks.
    pub(crate) fn apply(&self, op: Op) -> Result<Outcome> {
        match op {
            Op::Place(timer, if_present) => self.place(*timer, if_present),
            Op::Cancel(at, only) => self.change(&at, |timer| self.cancel(timer, only)),
            Op::CancelLabelled { namespace, label, limit } => self.cancel_labelled(&namespace, &label, limit),
            Op::Move(at, due) => self.change(&at, |timer| self.step(&timer, Event::Move(due))),
            Op::Pause(at) => self.change(&at, |timer| self.pause(timer, true)),
            Op::Resume(at) => self.change(&at, |timer| self.pause(timer, false)),
            Op::Ack(id, token) => self.delivered(id, token, Event::Ack(token)),
            Op::Skip(id, token) => self.delivered(id, token, Event::Skip(token)),
            Op::Fail(id, token, failure) => self.delivered(id, token, Event::Fail(token, failure)),
            Op::Snooze(id, token, due) => self.delivered(id, token, Event::Snooze(token, due)),
            Op::Release(id, token) => self.delivered(id, token, Event::Release(token)),
            Op::Park(id, token, reason) => self.delivered(id, token, Event::Park(reason, Some(token))),
            Op::Unpark(reason, limit) => self.unpark(&reason, limit),
            Op::Replay(id) => self.change(&id.into(), |timer| self.replay(&timer)),
            Op::Fire(at) => self.change(&at, |timer| self.fire(timer)),
            other => Err(limit(&format!("this version of the store does not know the operation {other:?}"))),
        }
    }

    fn place(&self, mut timer: Timer, if_present: IfPresent) -> Result<Outcome> {
        if self.is_stored(timer.id)? || self.is_remembered(timer.id)? {
            return Ok(Outcome::Repeated(timer.id));
        }
        timer.created = self.now;
        let old = match timer.key_of() {
            Some(key) => self.get_key(&key)?,
            None => None,
        };
        let new = timer.id;
        match (old, if_present) {
            (None, IfPresent::ReplaceOnly(_)) => Ok(Outcome::NotFound),
            (None, _) => {
                self.write(&timer)?;
                Ok(Outcome::Created(new))
            }
            (Some(old), IfPresent::ReplaceOnly(only)) if only != old.id => {
                Ok(Outcome::KeyExists { holder: old.id, refused: Box::new(timer) })
            }
            (Some(old), IfPresent::Reject) => {
                Ok(Outcome::KeyExists { holder: old.id, refused: Box::new(timer) })
            }
            (Some(old), IfPresent::Keep) => Ok(Outcome::Kept { id: old.id, was: old.state.phase() }),
            (Some(old), _) => {
                if if_present == IfPresent::ReplaceKeepDue {
                    (timer.due, timer.scheduled) = (old.due, old.scheduled);
                }
                let was = old.state.phase();
                self.withdraw(&old, Withdrawal::Replaced)?;
                self.write(&timer)?;
                Ok(Outcome::Replaced { new, old: old.id, was })
            }
        }
    }

    /// Withdraws a timer, because it is cancelled or replaced (`why`). Returns whether a delivery of the timer has
    /// begun. If so, the timer stays stored until this delivery ends, and is not delivered again. Otherwise the timer
    /// is removed.
    fn withdraw(&self, timer: &Timer, why: Withdrawal) -> Result<bool> {
        match step(timer, Event::Withdraw(why), self.now) {
            Ok(Next::Stays(marked)) => self.write(&marked).map(|()| true),
            Ok(Next::Ends(_)) => self.end(timer).map(|()| false),
            Err(refusal) => Err(corrupt(format!("a withdrawal was refused: {refusal:?}"))),
        }
    }

    fn change(&self, at: &Address, change: impl FnOnce(Timer) -> Result<Outcome>) -> Result<Outcome> {
        self.get(at)?.map_or(Ok(Outcome::NotFound), change)
    }

    fn cancel(&self, timer: Timer, only: Option<TimerId>) -> Result<Outcome> {
        if only.is_some_and(|only| only != timer.id) {
            return Ok(Outcome::NotFound);
        }
        if self.withdraw(&timer, Withdrawal::Cancelled)? {
            return Ok(Outcome::InFlight(timer.id));
        }
        Ok(Outcome::Cancelled(Box::new(timer)))
    }

    fn cancel_labelled(&self, namespace: &str, label: &str, limit: u32) -> Result<Outcome> {
        // With a limit of 0, each call would cancel nothing and say that more timers are left.
        let limit = limit.max(1);
        let (mut cancelled, mut in_flight) = (0, 0);
        let mut last: Vec<u8> = Vec::new();
        loop {
            let ids = self.labelled(namespace, label, &last)?;
            let Some(end) = ids.last() else {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: false });
            };
            last = id_bytes(*end).to_vec();
            for id in ids {
                if cancelled == limit {
                    return Ok(Outcome::CancelledMany { cancelled, in_flight, more: true });
                }
                // A timer that is already withdrawn does not count towards the limit. After the limit is reached, it
                // still counts as left (`more`).
                let Some(timer) = self.get_id(id)?.filter(|timer| !is_withdrawn(timer)) else { continue };
                cancelled += 1;
                in_flight += u32::from(self.withdraw(&timer, Withdrawal::Cancelled)?);
            }
        }
    }

    /// Returns the ids of at most [`PAGE`] timers with a label, in ascending order. All these ids are greater than the
    /// id with the bytes `after`. If `after` is empty, begins with the smallest id.
    fn labelled(&self, namespace: &str, label: &str, after: &[u8]) -> Result<Vec<TimerId>> {
        let sql = "SELECT id FROM tourbillon_labels WHERE namespace = ? AND label = ? AND id > ? ORDER BY id LIMIT ?";
        let mut query = self.sql.prepare_cached(sql).map_err(failed)?;
        let ids = query.query_map(params![namespace, label, after, PAGE], |row| row.get::<_, Vec<u8>>(0));
        let ids: Vec<Vec<u8>> = ids.and_then(Iterator::collect).map_err(failed)?;
        Ok(ids.iter().filter_map(|id| id_of(id)).collect())
    }

    fn fire(&self, timer: Timer) -> Result<Outcome> {
        match timer.state {
            State::Leased(_) => Ok(Outcome::Refused(Refusal::State(Phase::Leased))),
            State::Dead(_) => self.replay(&timer),
            State::Pending | State::Parked(_) => {
                let (id, due) = (timer.id, timer.due.min(self.now));
                self.write(&Timer { due, state: State::Pending, ..timer })?;
                Ok(Outcome::Changed(id))
            }
        }
    }

    fn step(&self, timer: &Timer, event: Event) -> Result<Outcome> {
        match step(timer, event, self.now) {
            Ok(Next::Stays(next)) => self.write(&next).map(|()| Outcome::Changed(timer.id)),
            Ok(Next::Ends(end)) => Err(corrupt(format!("a change has ended a timer: {end:?}"))),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn replay(&self, timer: &Timer) -> Result<Outcome> {
        // Only a dead timer has lost its key, and could take it from its present owner.
        if let State::Dead(_) = timer.state
            && let Some(key) = timer.key_of()
            && let Some(holder) = self.get_key(&key)?.filter(|holder| holder.id != timer.id)
        {
            return Ok(Outcome::KeyExists { holder: holder.id, refused: Box::new(timer.clone()) });
        }
        self.step(timer, Event::Replay)
    }

    fn pause(&self, mut timer: Timer, pause: bool) -> Result<Outcome> {
        let is_paused = timer.is_parked_for(PAUSED);
        let target = match (pause, &timer.state) {
            (true, State::Pending | State::Parked(_)) => State::Parked(PAUSED.into()),
            (false, _) if is_paused => State::Pending,
            (_, state) if timer.series.is_some() => state.clone(),
            (_, state) => return Ok(Outcome::Refused(Refusal::State(state.phase()))),
        };
        timer.state = target;
        timer.series.iter_mut().for_each(|series| series.paused = pause);
        self.write(&timer).map(|()| Outcome::Changed(timer.id))
    }

    fn unpark(&self, reason: &str, limit: u32) -> Result<Outcome> {
        let sql = "SELECT id, record FROM tourbillon_timers INDEXED BY tourbillon_parked
                   WHERE phase = 2 AND reason = ? ORDER BY due, id LIMIT ?";
        let mut unparked = 0;
        while unparked < limit {
            // The timers of this page are no longer parked for the reason, so the next page has other timers.
            let rows = self.rows(sql, &[&reason, &PAGE.min(limit - unparked)], |_| true)?;
            if rows.is_empty() {
                break;
            }
            for (id, timer) in rows {
                match timer {
                    Some(timer) if timer.is_parked_for(reason) => {
                        unparked += u32::from(self.unpark_one(timer, reason)?);
                    }
                    // The row's columns are damaged.
                    Some(timer) => self.write(&timer)?,
                    None => self.put_aside(id)?,
                }
            }
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// Makes a timer pending that is parked for `reason`. A parked timer is stored, but is not delivered, even if it is
    /// due. If the timer's series is paused and `reason` is not [`PAUSED`], the timer stays parked, but now for the
    /// reason [`PAUSED`]. Returns whether the timer is pending.
    fn unpark_one(&self, mut timer: Timer, reason: &str) -> Result<bool> {
        let stays = reason != PAUSED && timer.series.as_ref().is_some_and(|series| series.paused);
        if stays {
            timer.state = State::Parked(PAUSED.into());
        } else {
            timer.state = State::Pending;
            timer.series.iter_mut().for_each(|series| series.paused = false);
        }
        self.write(&timer)?;
        Ok(!stays)
    }

    /// Ends the delivery of a timer. `event` is the report of the process that holds the timer's lease, and `token`
    /// identifies this lease. If the user's program has already ended the delivery in one of its own transactions,
    /// returns the outcome of that transaction.
    fn delivered(&self, id: TimerId, token: Token, event: Event) -> Result<Outcome> {
        let (stored, mut refusal) = (self.get_id(id)?, Refusal::Stale);
        if let Some(timer) = &stored {
            match step(timer, event, self.now) {
                Ok(next) => return self.settle(timer, next),
                Err(refused) => refusal = refused,
            }
        }
        // The delivery may have ended in a transaction of the user's program.
        let Some((next, skipped)) = self.noted_end(id, token)? else { return Ok(Outcome::Refused(refusal)) };
        self.run("DELETE FROM tourbillon_ends WHERE id = ?", [id_bytes(id)])?;
        let has_stopped = stored
            .is_some_and(|timer| matches!(timer.state, State::Dead(Death { reason: DeathReason::Plan, .. })));
        let phase = if has_stopped { Phase::Dead } else { Phase::Done };
        Ok(Outcome::Ended { id, phase, next, skipped })
    }

    /// Ends a delivery as successful in a transaction of the user's program. Also writes a note
    /// ([`note_end`](Self::note_end)), so that the runtime's later report about the delivery succeeds.
    ///
    /// The outer option is `None` if the lease with this token was lost or has ended. The inner option is the id of the
    /// next timer of the series, or `None` if no timer follows.
    pub(crate) fn done(&self, id: TimerId, token: Token) -> Result<Option<Option<TimerId>>> {
        let Some(timer) = self.get_id(id)? else { return Ok(None) };
        let Ok(next) = step(&timer, Event::Ack(token), self.now) else { return Ok(None) };
        let Outcome::Ended { next, skipped, .. } = self.settle(&timer, next)? else { return Ok(None) };
        self.note_end(id, token, next, skipped)?;
        Ok(Some(next))
    }

    pub(super) fn settle(&self, timer: &Timer, next: Next) -> Result<Outcome> {
        let is_done = matches!(next, Next::Ends(End::Done | End::Skipped)) && !is_withdrawn(timer);
        if is_done && has_invalid_plan(timer) {
            // No occurrence can follow. The dead timer shows that the series has stopped.
            let state = State::Dead(Death { reason: DeathReason::Plan, at: self.now });
            self.write(&Timer { state, series: None, ..timer.clone() })?;
            return Ok(Outcome::Ended { id: timer.id, phase: Phase::Dead, next: None, skipped: 0 });
        }
        let (phase, goes_on) = match next {
            Next::Ends(End::Withdrawn(_)) => {
                self.end(timer)?;
                (Phase::Withdrawn, false)
            }
            Next::Ends(_) => {
                self.end(timer)?;
                (Phase::Done, is_done)
            }
            Next::Stays(mut next) => {
                let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
                let is_dead = next.state.phase() == Phase::Dead;
                if is_dead {
                    next.series = None;
                } else if is_paused && next.state == State::Pending {
                    next.state = State::Parked(PAUSED.into());
                }
                self.write(&next)?;
                (next.state.phase(), is_dead)
            }
        };
        let (next, skipped) = if goes_on { self.follow(timer)? } else { (None, 0) };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Stores the next timer of the series to which `timer` belongs. Returns the id of the new timer, or `None` if no
    /// timer follows. Also returns the number of scheduled moments before the new timer that get no timer, because they
    /// have already passed, or because their timers are already stored.
    fn follow(&self, timer: &Timer) -> Result<(Option<TimerId>, u64)> {
        let Some(series) = &timer.series else { return Ok((None, 0)) };
        // If the clock was ahead when the timer was made, the series goes back to the present moment.
        let is_ahead = timer.created > self.now + AHEAD;
        let mut last = if is_ahead { timer.scheduled.min(self.now) } else { timer.scheduled };
        let mut skipped = 0;
        loop {
            let following = series.following(last, self.now);
            skipped += following.skipped;
            let Some(instant) = following.instant else { return Ok((None, skipped)) };
            let id = TimerId::of_occurrence(series.id, instant);
            if self.is_stored(id)? {
                (last, skipped) = (instant, skipped + 1);
                continue;
            }
            self.write(&Timer {
                id,
                created: self.now,
                scheduled: instant,
                due: instant + timer.policy.jitter_of(id),
                deliveries: 0,
                failures: 0,
                last_error: None,
                state: if series.paused { State::Parked(PAUSED.into()) } else { State::Pending },
                has_chosen_id: false,
                ..timer.clone()
            })?;
            return Ok((Some(id), skipped));
        }
    }

    pub(crate) fn import(&self, timers: Vec<Timer>) -> Result<()> {
        for mut timer in timers {
            dry_run::admit_import(&timer)?;
            if is_withdrawn(&timer) {
                continue;
            }
            if self.is_stored(timer.id)? {
                return Err(limit("a stored timer has the id of a timer of the backup"));
            }
            if let State::Leased(_) = timer.state {
                let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
                timer.state = if is_paused { State::Parked(PAUSED.into()) } else { State::Pending };
            }
            if let Some(key) = timer.key_of().filter(|_| timer.owns_key())
                && self.get_key(&key)?.is_some()
            {
                return Err(limit("a stored timer has the key of a timer of the backup"));
            }
            self.write(&timer)?;
        }
        Ok(())
    }
}

fn has_invalid_plan(timer: &Timer) -> bool {
    // A preview of no instants only reads the plan.
    timer.series.as_ref().is_some_and(|series| series.plan.preview(UtcMillis::ZERO, 0).is_err())
}

fn is_withdrawn(timer: &Timer) -> bool {
    matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some())
}
