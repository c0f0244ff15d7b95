//! Handles the deliveries of the timers that store schedules. Each such delivery is a decision of a schedule: it
//! determines which of the instants that have come get occurrences.

use super::Progress;
use super::instants::ScheduleInstants;
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
use crate::store::{Durability, IfPresent, Op, Outcome, StoreError, StoreErrorKind};
use crate::texts::without_zero_bytes;
use crate::timer::Timer;
use crate::verdict::Verdict;
use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// The number of times that the pause doubles before a decision is tried again whose time zone is unknown here. The
/// pause then is about a minute.
const MOST_DOUBLED: u32 = 6;

/// The time after which another delivery completes a decision that is storing its occurrences.
const STORING: Duration = Duration::from_secs(5);

/// The handler of the timers in which schedules are stored.
pub(super) struct ScheduleRunner(pub(super) Arc<ScheduleStore>);

impl ScheduleRunner {
    /// Recomputes the next instants of all schedules. They differ after a time in which the store's clock was ahead of
    /// the true time, and after a change of the rules of a time zone. Returns the number of changed schedules. See
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

    /// Recomputes the next instant of a schedule. It differs if it was computed while the store's clock was ahead of
    /// the true time, or before a change of the rules of a time zone. Also brings back a decision that was put off
    /// then. Returns true if the schedule has changed.
    fn follow_clock_of(&self, at: &ScheduleKey) -> Result<bool, ScheduleFault> {
        let correction = |timer: &Timer, stored: &Stored, now| -> Result<_, ScheduleFault> {
            match stored.progress {
                // When such a schedule is resumed, its next instant is recomputed.
                Progress { paused: Some(_), .. } | Progress { fault: Some(_), .. } => Ok(None),
                _ => {
                    let offset = at.jitter(stored.schedule.jitter);
                    let followed = stored.progress.followed(&stored.schedule, offset, now)?;
                    let is_put_off = followed.is_none() && stored.is_put_off(at, timer, now);
                    Ok(if is_put_off {
                        Some(stored.progress.clone().without_future(offset, now))
                    } else {
                        followed
                    })
                }
            }
        };
        let (timer, stored) = self.0.load(at)?;
        if correction(&timer, &stored, self.0.store.now())?.is_none() {
            return Ok(false);
        }
        let from = Cell::new(None);
        let changed = self.0.replace(at, |now| {
            let (timer, stored) = self.0.load_to_change(at)?;
            from.set(stored.progress.next);
            let mut progress = correction(&timer, &stored, now)?.ok_or(ScheduleFault::NotFound)?;
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
        if !stored.progress.storing.is_empty() {
            return self.complete(at, timer, stored);
        }
        let now = self.0.store.now();
        let is_under_way = self.is_under_way(&stored, now)?;
        let offset = at.jitter(stored.schedule.jitter);
        let decision = match stored.progress.decide(&stored.schedule, offset, now, is_under_way) {
            Ok(decision) => decision,
            // Another machine may have the rules of the zone, and this machine may find them at another attempt.
            Err(error) if error.is_about_unknown_zone() => {
                let after = PAUSE * 2_u32.pow(timer.failures.min(MOST_DOUBLED));
                return Ok(Verdict::Retry { error: error.to_string().into(), after: Some(after) });
            }
            Err(error) => {
                let reason: Box<str> = error.to_string().into();
                let fault = Some(reason.clone());
                let stored = Stored { progress: Progress { fault, ..stored.progress }, ..stored };
                let park = vec![self.0.op(&stored, at, None, IfPresent::ReplaceOnly(timer.id))];
                if has_replaced(&self.0.apply(park, Durability::PowerLoss)?) {
                    self.0.tell(at, &ScheduleEvent::Parked(reason));
                }
                // The delivered timer has been withdrawn, by this process or by another process. So this verdict does
                // not end the schedule.
                return Ok(Verdict::Done);
            }
        };
        let mut formers = stored.formers.clone();
        self.0.forget_ended(&mut formers);
        if self.0.store.is_shared() && !self.0.store.is_transactional() && !decision.fire.is_empty() {
            // The occurrences are stored after the new state, so a change of the new state must wait for them.
            formers.push(timer.id);
        }
        let after = Stored { progress: decision.progress, formers, ..stored.clone() };
        // After this call, the delivered timer is withdrawn: this process has replaced it, or another process has
        // replaced or cancelled it. So the verdict `Done` does not end the schedule.
        let Some(outcomes) = self.follow(at, timer, (&stored, &after), &decision.fire, decision.wake)? else {
            return Ok(Verdict::Done);
        };
        let mut repeated = 0;
        for (instant, outcome) in decision.fire.into_iter().zip(outcomes) {
            let id = TimerId::of_occurrence(stored.progress.id, instant);
            let is_new = matches!(outcome, Outcome::Created(_));
            // An instant of the time in which the clock was ahead was counted then. A backfill leaves out the instants
            // that wait, so any other occurrence that the store knows is of an attempt of this decision, which has
            // counted nothing.
            if !is_new && stored.progress.ahead.is_some_and(|ahead| instant <= ahead) {
                repeated += 1;
            } else {
                self.0.tell(at, &ScheduleEvent::Fired { id, instant });
            }
        }
        if repeated > 0 {
            // The decision is stored, so an error must not let it be repeated. The counter is then too great.
            drop(self.0.count(at, |Stored { progress, .. }| {
                progress.fired = progress.fired.saturating_sub(repeated);
            }));
        }
        self.tell_end(at, (decision.missed, decision.skipped), decision.wake);
        Ok(Verdict::Done)
    }

    /// Tells the observer how many instants a decision has left out, and whether the schedule has ended.
    fn tell_end(&self, at: &ScheduleKey, left_out: (u64, u64), wake: Option<UtcMillis>) {
        self.0.tell_left_out(at, left_out);
        if wake.is_none() {
            self.0.tell(at, &ScheduleEvent::Ended);
        }
    }

    /// Returns true if the schedule's last occurrence has not ended. Three kinds of occurrences count as ended: a dead
    /// occurrence, a waiting occurrence that was made while the store's clock was ahead of the true time, and a
    /// delivered occurrence at most once, because the store removes it when its delivery begins.
    fn is_under_way(&self, stored: &Stored, now: UtcMillis) -> Result<bool, StoreError> {
        let Some(id) = stored.progress.last_occurrence else { return Ok(false) };
        let last = block_on(self.0.store.get(id.into()))?;
        // An occurrence that was made while the clock was ahead may stay pending or parked until its moment.
        let is_ahead = |last: &Timer| {
            matches!(last.state, State::Pending | State::Parked(_)) && last.created > now + SLACK
        };
        Ok(last.is_some_and(|last| !matches!(last.state, State::Dead(_)) && !is_ahead(&last)))
    }

    /// Stores the occurrences of a decision, and the schedule's state `after` it, which replaces the state `before`.
    /// Returns the outcomes of the occurrences, or `None` if the new state was not stored, because another process has
    /// changed the schedule.
    ///
    /// A store without transactions makes several changes, and a process may end between them. So the new state first
    /// names the instants whose occurrences are being stored ([`Progress::storing`]), and is due again soon. When the
    /// occurrences are stored, the new state no longer names them.
    fn follow(
        &self,
        at: &ScheduleKey,
        timer: &Timer,
        (before, after): (&Stored, &Stored),
        fire: &[UtcMillis],
        wake: Option<UtcMillis>,
    ) -> Result<Option<Vec<Outcome>>, StoreError> {
        let now = self.0.store.now();
        let (durability, mode) = (durability_of(after, fire), IfPresent::ReplaceOnly(timer.id));
        let occurrences = occurrences(at, after, fire, now);
        if fire.is_empty() || self.0.store.is_transactional() {
            // If the store already knows the id of an occurrence, the instant has had its occurrence.
            let ops = occurrences.into_iter().chain([self.0.op(after, at, wake, mode)]).collect();
            let mut outcomes = self.0.apply(ops, durability)?;
            let is_kept = has_replaced(&outcomes);
            drop(outcomes.pop());
            if !is_kept {
                self.note_fired(at, before, fire, &outcomes);
            }
            return Ok(is_kept.then_some(outcomes));
        }
        let mut noted = after.clone();
        noted.progress.storing = fire.to_vec();
        noted.progress.fired = noted.progress.fired.saturating_sub(fire.len() as u64);
        let note = self.0.attempt(&noted, at, timer, now + STORING);
        let noted = IfPresent::ReplaceOnly(note.id);
        if !has_replaced(&self.0.apply(vec![Op::Place(Box::new(note), mode)], durability)?) {
            return Ok(None);
        }
        // After an error, nobody knows which operations of a batch have had effects. An occurrence at most once is lost
        // then, so each one is a batch of its own.
        let is_at_most_once = after.template.policy.guarantee == Guarantee::AtMostOnce;
        let at_once = if is_at_most_once { 1 } else { fire.len() };
        let (mut outcomes, mut occurrences) = (Vec::new(), occurrences.into_iter());
        loop {
            let batch: Vec<_> = occurrences.by_ref().take(at_once).collect();
            if batch.is_empty() {
                break;
            }
            match self.0.apply(batch, durability) {
                Ok(stored) => outcomes.extend(stored),
                // The next delivery completes the decision: it stores the same occurrences.
                Err(error) if !is_at_most_once && error.kind() == StoreErrorKind::Unknown => {
                    return Err(error);
                }
                Err(error) => {
                    // The other instants wait for a later attempt, which decides by the rule, and counts them.
                    let (stored, others) = fire.split_at(outcomes.len());
                    let unknown = others.first().filter(|_| error.kind() == StoreErrorKind::Unknown);
                    let rest = self.0.attempt(&rest_of(before, stored, unknown, now), at, timer, now + PAUSE);
                    let last_error = Some(without_zero_bytes(error.to_string().into()));
                    let rest = Op::Place(Box::new(Timer { last_error, ..rest }), noted);
                    drop(self.0.apply(vec![rest], durability)?);
                    return Err(error);
                }
            }
        }
        // If another process has changed the schedule meanwhile, its state names the occurrences, too.
        let is_kept = has_replaced(&self.0.apply(vec![self.0.op(after, at, wake, noted)], durability)?);
        Ok(is_kept.then_some(outcomes))
    }

    /// Completes a decision that was storing its occurrences when its process died, or when the store's answer was
    /// lost.
    fn complete(&self, at: &ScheduleKey, timer: &Timer, stored: Stored) -> Result<Verdict, StoreError> {
        let (now, mut stored) = (self.0.store.now(), stored);
        let mut fire = core::mem::take(&mut stored.progress.storing);
        let id_of = |instant: &UtcMillis| TimerId::of_occurrence(stored.progress.id, *instant);
        let number = fire.len();
        match stored.template.policy.guarantee {
            Guarantee::AtLeastOnce => {
                // Each instant whose id the store knows has its occurrence.
                let occurrences = occurrences(at, &stored, &fire, now);
                drop(self.0.apply(occurrences, Durability::ProcessCrash)?);
            }
            // An occurrence that is not stored may have been delivered, so it must not be made again.
            Guarantee::AtMostOnce => {
                let mut known = Vec::new();
                for instant in fire {
                    known.extend(block_on(self.0.store.get(id_of(&instant).into()))?.map(|_| instant));
                }
                fire = known;
            }
        }
        let missed = (number - fire.len()) as u64;
        let fired: Vec<_> = fire.iter().map(|instant| (id_of(instant), *instant)).collect();
        stored.progress.fired = stored.progress.fired.saturating_add(fire.len() as u64);
        stored.progress.missed = stored.progress.missed.saturating_add(missed);
        let wake = stored.wake(at, now);
        let keep = self.0.op(&stored, at, wake, IfPresent::ReplaceOnly(timer.id));
        if has_replaced(&self.0.apply(vec![keep], durability_of(&stored, &fire))?) {
            for (id, instant) in fired {
                self.0.tell(at, &ScheduleEvent::Fired { id, instant });
            }
            self.tell_end(at, (missed, 0), wake);
        }
        Ok(Verdict::Done)
    }

    /// Notes in the present state of a schedule which instants have got their occurrences by a decision whose result
    /// was not stored, because another process had changed the schedule. A removed schedule notes nothing.
    fn note_fired(&self, at: &ScheduleKey, before: &Stored, fire: &[UtcMillis], outcomes: &[Outcome]) {
        let created = fire.iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Created(_)));
        let created: Vec<_> = created.map(|(instant, _)| *instant).collect();
        if created.is_empty() {
            return;
        }
        let now = self.0.store.now();
        // The occurrences are stored, so an error must not let the decision be repeated. The counters are then wrong.
        drop(self.0.count(at, |stored| {
            // Another schedule may have the name by now.
            if stored.progress.id == before.progress.id
                && let Ok(moments) = ScheduleInstants::new(&stored.schedule, stored.progress.created)
            {
                stored.progress.note_fired(&moments, &before.progress, &created, now);
            }
        }));
        for instant in created {
            let id = TimerId::of_occurrence(before.progress.id, instant);
            self.0.tell(at, &ScheduleEvent::Fired { id, instant });
        }
    }
}

/// Returns the state `before` a decision without the instants whose occurrences are `stored`, and without the one whose
/// occurrence may be stored (`unknown`). The next delivery decides about the others.
fn rest_of(before: &Stored, stored: &[UtcMillis], unknown: Option<&UtcMillis>, now: UtcMillis) -> Stored {
    let mut rest = before.clone();
    let instants: Vec<_> = stored.iter().chain(unknown).copied().collect();
    if let Ok(moments) = ScheduleInstants::new(&rest.schedule, rest.progress.created) {
        rest.progress.note_fired(&moments, &before.progress, &instants, now);
    }
    if let Some(unknown) = unknown {
        rest.progress.storing.push(*unknown);
        rest.progress.fired = rest.progress.fired.saturating_sub(1);
    }
    rest
}

/// Returns the operations that store the occurrences of these instants.
fn occurrences(at: &ScheduleKey, stored: &Stored, fire: &[UtcMillis], now: UtcMillis) -> Vec<Op> {
    let offset = at.jitter(stored.schedule.jitter);
    let place = |instant: &UtcMillis| {
        let occurrence = stored.occurrence(at, *instant, *instant + offset, now);
        Op::Place(Box::new(occurrence), IfPresent::Reject)
    };
    fire.iter().map(place).collect()
}

/// Returns the durability with which a decision stores the occurrences of these instants, and its result. After a loss
/// of power, an occurrence that is delivered at least once may be made again, under the same id. So it may be stored
/// with less durability. An occurrence that is delivered at most once must not be made again.
fn durability_of(stored: &Stored, fire: &[UtcMillis]) -> Durability {
    match stored.template.policy.guarantee {
        Guarantee::AtMostOnce if !fire.is_empty() => Durability::PowerLoss,
        Guarantee::AtMostOnce | Guarantee::AtLeastOnce => Durability::ProcessCrash,
    }
}
