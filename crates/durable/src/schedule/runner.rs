//! Handles the deliveries of the timers that store schedules. Each such delivery is a decision of a schedule: it
//! determines which of the instants that have come get occurrences.

use super::Progress;
use super::key::{NAMESPACES, ScheduleKey};
use super::progress::SLACK;
use super::store::{LIST, ScheduleStore, has_replaced};
use super::stored::{PAUSE, Stored};
use super::words::{ScheduleEvent, ScheduleFault};
use crate::delivery::Delivery;
use crate::executor::block_on;
use crate::id::TimerId;
use crate::policy::Guarantee;
use crate::state::State;
use crate::store::{Durability, IfPresent, Op, Outcome, StoreError};
use crate::timer::Timer;
use crate::verdict::Verdict;
use core::cell::Cell;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// The handler of the timers in which schedules are stored.
pub(super) struct ScheduleRunner(pub(super) Arc<ScheduleStore>);

impl ScheduleRunner {
    /// Recomputes the next instants of schedules that are too late, because they were computed while the store's clock
    /// was ahead of the true time. Returns the number of changed schedules. See
    /// [`Schedules::follow_clock`](super::Schedules::follow_clock).
    pub(super) fn follow_clock(&self) -> Result<u64, StoreError> {
        let counts = block_on(self.0.store.counts())?;
        let mut namespaces: Vec<&str> =
            counts.by_namespace.keys().filter_map(|(name, _)| name.strip_prefix(NAMESPACES)).collect();
        // The map is sorted by namespace, so equal names are neighbours.
        namespaces.dedup();
        let mut followed = 0;
        for namespace in namespaces {
            let mut cursor = None;
            loop {
                // The list has the order of keys. A correction does not change the key, so no schedule is on two pages.
                let page = self.0.list(namespace, "", cursor, LIST)?;
                for view in page.schedules {
                    match self.follow_clock_of(&view.at) {
                        Ok(true) => followed += 1,
                        Err(ScheduleFault::Store(error)) => return Err(error),
                        // If a plan is no longer valid, the next decision parks the schedule. A schedule that was
                        // removed since the list needs no correction.
                        Ok(false) | Err(_) => {}
                    }
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(followed)
    }

    /// Recomputes the next instant of a schedule, if this instant was computed while the store's clock was ahead of the
    /// true time. Also brings back a decision that was put off then. Returns true if the schedule has changed.
    fn follow_clock_of(&self, at: &ScheduleKey) -> Result<bool, ScheduleFault> {
        let is_ahead = |timer: &Timer, stored: &Stored, now| -> Result<_, ScheduleFault> {
            match stored.progress {
                // When such a schedule is resumed, its next instant is recomputed.
                Progress { paused: true, .. } | Progress { fault: Some(_), .. } => Ok(None),
                _ => {
                    let offset = at.jitter(stored.schedule.jitter);
                    let followed = stored.progress.followed(&stored.schedule, offset, now)?;
                    let is_put_off = followed.is_none() && stored.is_put_off(at, timer, now);
                    Ok(if is_put_off { Some(stored.progress.clone().without_future(now)) } else { followed })
                }
            }
        };
        let (timer, stored) = self.0.load(at)?;
        if is_ahead(&timer, &stored, self.0.store.now())?.is_none() {
            return Ok(false);
        }
        let from = Cell::new(None);
        let changed = self.0.replace(at, |now| {
            let (timer, stored) = self.0.load_to_change(at)?;
            from.set(stored.progress.next);
            let mut progress = is_ahead(&timer, &stored, now)?.ok_or(ScheduleFault::NotFound)?;
            self.0.forget_put_off(at, &timer, &stored, &mut progress, now)?;
            Ok((Stored { progress, ..stored }, IfPresent::ReplaceOnly(timer.id)))
        });
        let view = match changed {
            // Another process has already removed or corrected the schedule.
            Err(ScheduleFault::NotFound) => return Ok(false),
            // The change corrects only the next instant, so it need not wait for a decision of another process.
            changed => changed?.0,
        };
        if let Some(to) = view.progress.next.filter(|to| from.get() != Some(*to)) {
            self.0.tell(at, &ScheduleEvent::Followed { from: from.get(), to });
        }
        Ok(true)
    }

    /// Handles the delivery of a timer that stores a schedule. Decides which of the instants that have come get
    /// occurrences, and stores these occurrences and the schedule's new state.
    pub(super) fn deliver(&self, delivery: &Delivery) -> Verdict {
        let name = delivery.namespace.strip_prefix(NAMESPACES).zip(delivery.key.as_deref());
        let Some((namespace, key)) = name else { return Verdict::Dead("this is not a schedule".into()) };
        let at = ScheduleKey::new(namespace, key);
        let _lock = self.0.lock(&at);
        match self.0.load(&at) {
            // If the schedule was changed after the claim of this timer, it has a new timer, and this delivery does
            // nothing.
            Ok((timer, stored)) if timer.id == delivery.id => {
                self.act(&at, &timer, stored).unwrap_or_else(|error| Verdict::Retry {
                    error: error.to_string().into(),
                    after: Some(PAUSE),
                })
            }
            Ok(_) | Err(ScheduleFault::NotFound) => Verdict::Done,
            Err(error) => Verdict::Retry { error: error.to_string().into(), after: Some(PAUSE) },
        }
    }

    /// Decides which of the schedule's instants get occurrences, and stores these occurrences and the schedule's new
    /// state. `timer` is the timer that stores the schedule and is being delivered. If another process changes the
    /// schedule at the same time, the schedule gets another timer, and the new state is not stored.
    fn act(&self, at: &ScheduleKey, timer: &Timer, stored: Stored) -> Result<Verdict, StoreError> {
        let mode = IfPresent::ReplaceOnly(timer.id);
        let now = self.0.store.now();
        let is_under_way = self.is_under_way(&stored, now)?;
        let offset = at.jitter(stored.schedule.jitter);
        let decision = match stored.progress.decide(&stored.schedule, offset, now, is_under_way) {
            Ok(decision) => decision,
            Err(error) => {
                let reason: Box<str> = error.to_string().into();
                let fault = Some(reason.clone());
                let stored = Stored { progress: Progress { fault, ..stored.progress }, ..stored };
                let park = vec![self.0.op(&stored, at, None, mode)];
                if has_replaced(&self.0.apply(park, Durability::PowerLoss)?) {
                    self.0.tell(at, &ScheduleEvent::Parked(reason));
                }
                // The delivered timer has been withdrawn, by this process or by another process. So this verdict does
                // not end the schedule.
                return Ok(Verdict::Done);
            }
        };
        // A timer whose delivery has failed would count as late for ever, see `wake_of`.
        let keeps_timer = decision.progress == stored.progress && timer.failures == 0;
        if let (true, Some(wake)) = (keeps_timer, decision.wake) {
            // Nothing has changed, for example because the queued instant still waits for the end of the last
            // occurrence.
            return Ok(Verdict::Snooze(wake));
        }
        let occurrences: Vec<_> = decision
            .fire
            .iter()
            .map(|instant| {
                let due = *instant + offset;
                Op::Place(Box::new(stored.occurrence(at, *instant, due)), IfPresent::Reject)
            })
            .collect();
        // After a loss of power, an occurrence that is delivered at least once may be made again, under the same id. So
        // it may be stored with less durability. An occurrence that is delivered at most once must not be made again.
        let durability = match stored.template.policy.guarantee {
            Guarantee::AtLeastOnce => Durability::ProcessCrash,
            Guarantee::AtMostOnce => Durability::PowerLoss,
        };
        let guarantee = stored.template.policy.guarantee;
        let mut formers = stored.formers;
        self.0.forget_ended(&mut formers);
        let is_kept_first = guarantee == Guarantee::AtMostOnce && !self.0.store.is_transactional();
        if is_kept_first && self.0.store.is_shared() && !occurrences.is_empty() {
            // These occurrences are stored after the new state, so a change of the new state must wait for them.
            formers.push(timer.id);
        }
        let ahead = stored.progress.ahead;
        let stored = Stored { progress: decision.progress, formers, ..stored };
        let keep = self.0.op(&stored, at, decision.wake, mode);
        // After this call, the delivered timer is withdrawn: this process has replaced it, or another process has
        // replaced or cancelled it. So the verdict `Done` does not end the schedule.
        let Some(outcomes) = self.follow(occurrences, keep, durability, guarantee)? else {
            return Ok(Verdict::Done);
        };
        let mut repeated = 0;
        for (instant, outcome) in decision.fire.into_iter().zip(outcomes) {
            let id = TimerId::of_occurrence(stored.progress.id, instant);
            let is_new = matches!(outcome, Outcome::Created(_));
            // An instant of the time in which the clock was ahead was counted then. Any other occurrence that the store
            // knows is of an attempt of this decision, which has counted nothing.
            if !is_new && ahead.is_some_and(|ahead| instant <= ahead) {
                repeated += 1;
            } else {
                self.0.tell(at, &ScheduleEvent::Fired { id, instant });
            }
        }
        if repeated > 0 {
            // The decision is stored, so an error must not let it be repeated. The counter is then too great.
            drop(self.0.count(at, |progress| progress.fired = progress.fired.saturating_sub(repeated)));
        }
        self.0.tell_left_out(at, (decision.missed, decision.skipped));
        if decision.wake.is_none() {
            self.0.tell(at, &ScheduleEvent::Ended);
        }
        Ok(Verdict::Done)
    }

    /// Returns true if the schedule's last occurrence has not ended. Three kinds of occurrences count as ended: a dead
    /// occurrence, a waiting occurrence that was made while the store's clock was ahead of the true time, and a
    /// delivered occurrence at most once, because the store removes it when its delivery begins.
    fn is_under_way(&self, stored: &Stored, now: UtcMillis) -> Result<bool, StoreError> {
        let Some(id) = stored.progress.last_occurrence else { return Ok(false) };
        let last = block_on(self.0.store.get(id.into()))?;
        // An occurrence whose moment is still in the future was made while the clock was ahead. It may stay pending or
        // parked until its moment.
        let is_ahead = |last: &Timer| {
            matches!(last.state, State::Pending | State::Parked(_)) && last.scheduled > now + SLACK
        };
        Ok(last.is_some_and(|last| !matches!(last.state, State::Dead(_)) && !is_ahead(&last)))
    }

    /// Stores the occurrences of a decision and the schedule's new state. Returns the outcomes of the occurrences, or
    /// `None` if the new state was not stored, because another process has changed the schedule.
    ///
    /// A store without transactions makes two changes, and a process may end between them. Occurrences that are
    /// delivered at least once are stored before the new state. A repeated decision then finds them by their ids.
    /// Occurrences that are delivered at most once are stored after the new state, so that they are not made twice.
    fn follow(
        &self,
        occurrences: Vec<Op>,
        keep: Op,
        durability: Durability,
        guarantee: Guarantee,
    ) -> Result<Option<Vec<Outcome>>, StoreError> {
        if occurrences.is_empty() || self.0.store.is_transactional() {
            // If the store already knows the id of an occurrence, the instant has had its occurrence.
            let ops = occurrences.into_iter().chain([keep]).collect();
            let mut outcomes = self.0.apply(ops, durability)?;
            let is_kept = has_replaced(&outcomes);
            drop(outcomes.pop());
            return Ok(is_kept.then_some(outcomes));
        }
        match guarantee {
            Guarantee::AtLeastOnce => {
                let outcomes = self.0.apply(occurrences, durability)?;
                let is_kept = has_replaced(&self.0.apply(vec![keep], durability)?);
                Ok(is_kept.then_some(outcomes))
            }
            Guarantee::AtMostOnce => {
                let is_kept = has_replaced(&self.0.apply(vec![keep], durability)?);
                if is_kept { self.0.apply(occurrences, durability).map(Some) } else { Ok(None) }
            }
        }
    }
}
