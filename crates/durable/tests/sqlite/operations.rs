//! Applies the operations, as the documentation describes them.

use crate::transaction::{Act, Result, bytes, failed, limit, millis};
use rusqlite::OptionalExtension;
use tourbillon_durable::state::{End, Event, Next, Phase, Refusal, State, Withdrawal, step};
use tourbillon_durable::store::{IfPresent, Op, Outcome, PAUSED};
use tourbillon_durable::timer::{Address, Timer, TimerId};

impl Act<'_> {
    fn place(&self, mut timer: Timer, if_present: IfPresent) -> Result<Outcome> {
        if timer.namespace.len() > 255 || timer.labels.iter().any(|label| label.len() > 255) {
            return Err(limit("a text is too long"));
        }
        if matches!(timer.state, State::Leased(_) | State::Dead(_)) {
            return Err(limit("a new timer is pending or parked"));
        }
        self.run("DELETE FROM remembered WHERE until <= ?", [millis(self.now)])?;
        let sql = "SELECT 1 FROM remembered WHERE id = ?";
        let remembered = self.sql.query_row(sql, [bytes(timer.id)], |_| Ok(())).optional().map_err(failed)?;
        if remembered.is_some() || self.is_stored(timer.id)? {
            return Ok(Outcome::Repeated(timer.id));
        }
        timer.created = self.now;
        let old = match timer.key_of() {
            Some(key) => self.get(&Address::Key(key))?,
            None => None,
        };
        let new = timer.id;
        match (old, if_present) {
            (None, IfPresent::ReplaceOnly(_)) => Ok(Outcome::NotFound),
            (None, _) => {
                self.store(&timer)?;
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
                self.store(&timer)?;
                Ok(Outcome::Replaced { new, old: old.id, was })
            }
        }
    }

    /// Withdraws a timer. Returns whether a delivery of the timer has begun.
    fn withdraw(&self, timer: &Timer, why: Withdrawal) -> Result<bool> {
        match step(timer, Event::Withdraw(why), self.now).unwrap() {
            Next::Stays(marked) => self.store(&marked).map(|()| true),
            Next::Ends(_) => self.end(timer).map(|()| false),
        }
    }

    fn change(&self, at: &Address, change: impl FnOnce(Timer) -> Result<Outcome>) -> Result<Outcome> {
        self.get(at)?.map_or(Ok(Outcome::NotFound), change)
    }

    pub(crate) fn apply(&self, op: Op) -> Result<Outcome> {
        match op {
            Op::Place(timer, if_present) => self.place(*timer, if_present),
            Op::Cancel(at, only) => self.change(&at, |timer| {
                if only.is_some_and(|only| only != timer.id) {
                    Ok(Outcome::NotFound)
                } else if self.withdraw(&timer, Withdrawal::Cancelled)? {
                    Ok(Outcome::InFlight(timer.id))
                } else {
                    Ok(Outcome::Cancelled(Box::new(timer)))
                }
            }),
            Op::CancelLabelled { namespace, label, limit } => {
                let mut timers = self.timers(
                    "JOIN labels USING (id) WHERE labels.namespace = ? AND label = ? ORDER BY id",
                    vec![namespace.to_string().into(), label.to_string().into()],
                )?;
                // Timers that were withdrawn before count as left only if the operation ends before it comes to them.
                let is_withdrawn =
                    |timer: &Timer| matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some());
                let (mut cancelled, mut in_flight) = (0, 0);
                while let Some(timer) = timers.first().filter(|_| cancelled < limit) {
                    if !is_withdrawn(timer) {
                        cancelled += 1;
                        in_flight += u32::from(self.withdraw(timer, Withdrawal::Cancelled)?);
                    }
                    timers.remove(0);
                }
                Ok(Outcome::CancelledMany { cancelled, in_flight, more: !timers.is_empty() })
            }
            Op::Move(at, due) => self.change(&at, |timer| self.step(&timer, Event::Move(due))),
            Op::Pause(at) => self.change(&at, |timer| self.pause(timer, true)),
            Op::Resume(at) => self.change(&at, |timer| self.pause(timer, false)),
            Op::Ack(id, token) => self.delivered(id, Event::Ack(token)),
            Op::Skip(id, token) => self.delivered(id, Event::Skip(token)),
            Op::Fail(id, token, failure) => self.delivered(id, Event::Fail(token, failure)),
            Op::Snooze(id, token, due) => self.delivered(id, Event::Snooze(token, due)),
            Op::Release(id, token) => self.delivered(id, Event::Release(token)),
            Op::Return(timer, _) => self.put_back(*timer),
            Op::Park(_, _, reason) if reason.len() > 255 => Err(limit("a text is too long")),
            Op::Park(id, token, reason) => self.delivered(id, Event::Park(reason, Some(token))),
            Op::Unpark(reason, limit) => self.unpark(&reason, limit),
            Op::Replay(id) => self.change(&id.into(), |timer| self.replay(&timer)),
            Op::Fire(at) => self.change(&at, |timer| match timer.state {
                State::Leased(_) => Ok(Outcome::Refused(Refusal::State(Phase::Leased))),
                State::Dead(_) => self.replay(&timer),
                State::Pending | State::Parked(_) => {
                    let due = timer.due.min(self.now);
                    self.store(&Timer { due, state: State::Pending, ..timer.clone() })?;
                    Ok(Outcome::Changed(timer.id))
                }
            }),
            other => panic!("an operation that the oracle does not know: {other:?}"),
        }
    }

    fn put_back(&self, mut timer: Timer) -> Result<Outcome> {
        if self.is_stored(timer.id)? {
            return Ok(Outcome::Repeated(timer.id));
        }
        timer.series = None;
        if let Some(key) = timer.key_of()
            && self.get(&Address::Key(key))?.is_some()
        {
            timer.key = None;
        }
        self.store(&timer).map(|()| Outcome::Created(timer.id))
    }

    fn step(&self, timer: &Timer, event: Event) -> Result<Outcome> {
        match step(timer, event, self.now) {
            Ok(Next::Stays(next)) => self.store(&next).map(|()| Outcome::Changed(timer.id)),
            Ok(Next::Ends(end)) => panic!("no change ends a timer: {end:?}"),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn replay(&self, timer: &Timer) -> Result<Outcome> {
        if let Some(key) = timer.key_of()
            && let Some(holder) = self.get(&Address::Key(key))?.filter(|holder| holder.id != timer.id)
        {
            return Ok(Outcome::KeyExists { holder: holder.id, refused: Box::new(timer.clone()) });
        }
        self.step(timer, Event::Replay)
    }

    fn pause(&self, mut timer: Timer, pause: bool) -> Result<Outcome> {
        let is_paused = timer.state == State::Parked(PAUSED.into());
        let target = match (pause, &timer.state) {
            (true, State::Pending) => State::Parked(PAUSED.into()),
            (false, _) if is_paused => State::Pending,
            (_, state) if timer.series.is_some() => state.clone(),
            (_, state) => return Ok(Outcome::Refused(Refusal::State(state.phase()))),
        };
        timer.state = target;
        timer.series.iter_mut().for_each(|series| series.paused = pause);
        self.store(&timer).map(|()| Outcome::Changed(timer.id))
    }

    fn unpark(&self, reason: &str, limit: u32) -> Result<Outcome> {
        let mut unparked = 0;
        for mut timer in self.timers(
            "WHERE phase = 'parked' AND reason = ? ORDER BY due, id",
            vec![reason.to_owned().into()],
        )? {
            if unparked == limit {
                break;
            }
            let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
            if is_paused && reason != PAUSED {
                timer.state = State::Parked(PAUSED.into());
            } else {
                timer.state = State::Pending;
                timer.series.iter_mut().for_each(|series| series.paused = false);
                unparked += 1;
            }
            self.store(&timer)?;
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// Ends the delivery of a timer with an event of the lease's holder.
    fn delivered(&self, id: TimerId, event: Event) -> Result<Outcome> {
        let Some(timer) = self.get(&id.into())? else { return Ok(Outcome::Refused(Refusal::Stale)) };
        match step(&timer, event, self.now) {
            Ok(next) => self.settle(&timer, next),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    pub(crate) fn settle(&self, timer: &Timer, next: Next) -> Result<Outcome> {
        let (phase, goes_on) = match next {
            Next::Ends(End::Withdrawn(_)) => {
                self.end(timer)?;
                (Phase::Withdrawn, false)
            }
            Next::Ends(_) => {
                self.end(timer)?;
                let is_withdrawn = matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some());
                (Phase::Done, !is_withdrawn)
            }
            Next::Stays(mut next) => {
                let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
                let is_dead = next.state.phase() == Phase::Dead;
                if is_dead {
                    next.series = None;
                } else if is_paused && next.state == State::Pending {
                    next.state = State::Parked(PAUSED.into());
                }
                self.store(&next)?;
                (next.state.phase(), is_dead)
            }
        };
        let (next, skipped) = if goes_on { self.follow(timer)? } else { (None, 0) };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Stores the next occurrence of the timer's series. Returns the id of the occurrence, and the number of instants
    /// that were left out.
    fn follow(&self, timer: &Timer) -> Result<(Option<TimerId>, u64)> {
        let Some(series) = &timer.series else { return Ok((None, 0)) };
        let (mut last, mut skipped) = (timer.scheduled, 0);
        loop {
            let following = series.following(last, self.now);
            skipped += following.skipped;
            let Some(instant) = following.instant else { return Ok((None, skipped)) };
            let id = TimerId::of_occurrence(series.id, instant);
            if self.is_stored(id)? {
                (last, skipped) = (instant, skipped + 1);
                continue;
            }
            self.store(&Timer {
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
            if timer.namespace.len() > 255 || self.is_stored(timer.id)? {
                return Err(limit("it does not fit"));
            }
            if let State::Leased(lease) = timer.state {
                if lease.withdrawn.is_some() {
                    continue;
                }
                let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
                timer.state = if is_paused { State::Parked(PAUSED.into()) } else { State::Pending };
            }
            let is_dead = timer.state.phase() == Phase::Dead;
            if let Some(key) = timer.key_of().filter(|_| !is_dead)
                && self.get(&Address::Key(key))?.is_some()
            {
                return Err(limit("the key is taken"));
            }
            self.store(&timer)?;
        }
        Ok(())
    }
}
