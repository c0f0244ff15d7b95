//! Handles the deliveries of the timers that store schedules. Each such delivery is a decision of a schedule: it
//! determines which of the instants that have come get occurrences.

use super::Progress;
use super::decide::Decision;
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

/// The time after which another delivery completes a decision that was storing its occurrences, unless the decision's
/// own delivery still goes on.
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
        let mut formers = stored.formers.clone();
        self.0.forget_ended(&mut formers);
        if self.0.store.is_shared() && self.0.store.is_transactional() && !formers.is_empty() {
            // The transaction of that decision may still come, and would then count its instants a second time.
            let error = "another process is deciding about the schedule".into();
            return Ok(Verdict::Retry { error, after: Some(PAUSE) });
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
        if self.0.store.is_shared() && !self.0.store.is_transactional() && !decision.fire.is_empty() {
            // The occurrences are stored after the new state, so a change of the new state must wait for them.
            formers.push(timer.id);
        }
        let after = Stored { progress: decision.progress.clone(), formers, ..stored.clone() };
        let made = Made { at, timer, before: &stored, after: &after, decision: &decision, now };
        // After this call, the delivered timer is withdrawn: this process has replaced it, or another process has
        // replaced or cancelled it. So the verdict `Done` does not end the schedule.
        if decision.fire.is_empty() || self.0.store.is_transactional() {
            self.follow_at_once(&made)?;
        } else {
            self.follow_in_steps(&made)?;
        }
        Ok(Verdict::Done)
    }

    /// Tells the observer which of a decision's occurrences are new. `outcomes` holds the outcomes of the first ones.
    /// The decision's result is stored.
    fn tell_made(&self, made: &Made<'_>, outcomes: &[Outcome]) {
        let mut repeated = 0;
        for (instant, outcome) in made.decision.fire.iter().zip(outcomes) {
            let is_new = matches!(outcome, Outcome::Created(_));
            // An instant of the time in which the clock was ahead was counted then. A backfill leaves out the instants
            // that wait, so any other occurrence that the store knows is of an attempt of this decision, which has
            // counted nothing.
            if !is_new && made.before.progress.ahead.is_some_and(|ahead| *instant <= ahead) {
                repeated += 1;
            } else {
                self.tell_fired(made.at, made.before.progress.id, &[*instant]);
            }
        }
        if repeated > 0 {
            // The decision is stored, so an error must not let it be repeated. The counter is then too great.
            drop(self.0.count(made.at, |Stored { progress, .. }| {
                progress.fired = progress.fired.saturating_sub(repeated);
            }));
        }
    }

    /// Tells the observer that these instants of the schedule `id` have their occurrences.
    fn tell_fired(&self, at: &ScheduleKey, id: TimerId, instants: &[UtcMillis]) {
        for instant in instants {
            let id = TimerId::of_occurrence(id, *instant);
            self.0.tell(at, &ScheduleEvent::Fired { id, instant: *instant });
        }
    }

    /// Tells the observer if the schedule has ended: its next decision has no moment.
    fn tell_end(&self, at: &ScheduleKey, wake: Option<UtcMillis>) {
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

    /// Stores the occurrences of a decision together with the schedule's state after it. If another process has changed
    /// the schedule, the occurrences are stored and the state is not.
    fn follow_at_once(&self, made: &Made<'_>) -> Result<(), StoreError> {
        let Made { at, after, decision, .. } = *made;
        let durability = durability_of(after, &decision.fire);
        let state = self.0.state(after, at, decision.wake);
        let id = state.id;
        let state = Op::Place(Box::new(state), IfPresent::ReplaceOnly(made.timer.id));
        // If the store already knows the id of an occurrence, the instant has had its occurrence.
        let ops = occurrences(at, after, &decision.fire, made.now).into_iter().chain([state]).collect();
        match self.0.apply(ops, durability) {
            Ok(outcomes) if has_replaced(&outcomes) => self.tell_made(made, &outcomes),
            Ok(outcomes) => {
                self.note_decided(made, &outcomes);
                return Ok(());
            }
            // The answer is lost, so nobody knows which occurrences the store knew already.
            Err(error) if self.0.is_present(at, id, &error) => {
                self.tell_fired(at, after.progress.id, &decision.fire);
            }
            Err(error) => return Err(error),
        }
        self.0.tell_left_out(at, (decision.missed, decision.skipped));
        self.tell_end(at, decision.wake);
        Ok(())
    }

    /// Stores the occurrences of a decision, and the schedule's state after it, in a store without transactions.
    ///
    /// Such a store makes several changes, and a process may end between them. So the new state first names the
    /// instants whose occurrences are being stored ([`Progress::storing`]), and is due again soon. When the occurrences
    /// are stored, the new state no longer names them. The observer gets the event of an occurrence from the process
    /// that has stored the state in which its instant counts.
    fn follow_in_steps(&self, made: &Made<'_>) -> Result<(), StoreError> {
        let Made { at, timer, before, after, decision, now } = *made;
        let (fire, durability) = (&decision.fire, durability_of(after, &decision.fire));
        let noted = Stored { progress: decision.storing(now), ..after.clone() };
        let note = self.0.attempt(&noted, at, timer, now + STORING);
        let noted = IfPresent::ReplaceOnly(note.id);
        let (id, note) = (note.id, Op::Place(Box::new(note), IfPresent::ReplaceOnly(timer.id)));
        let left_out = (decision.missed, decision.skipped);
        match self.0.apply(vec![note], durability) {
            Ok(outcomes) if has_replaced(&outcomes) => self.0.tell_left_out(at, left_out),
            Ok(_) => return Ok(()),
            Err(error) => {
                // A loss of power may take back this state. An occurrence that is stored now might then be made again.
                if self.0.is_present(at, id, &error) {
                    self.0.tell_left_out(at, left_out);
                }
                return Err(error);
            }
        }
        // After an error, nobody knows which operations of a batch have had effects. An occurrence at most once is lost
        // then, so each one is a batch of its own.
        let is_at_most_once = after.template.policy.guarantee == Guarantee::AtMostOnce;
        let at_once = if is_at_most_once { 1 } else { fire.len() };
        let (mut outcomes, mut occurrences) = (Vec::new(), occurrences(at, after, fire, now).into_iter());
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
                    let mut rest = after.clone();
                    if let Ok(moments) = ScheduleInstants::new(&rest.schedule, rest.progress.created) {
                        let (offset, parts) = (at.jitter(rest.schedule.jitter), (stored, unknown.copied()));
                        rest.progress = decision.in_part(&moments, &before.progress, parts, offset, now);
                    }
                    let last_error = Some(without_zero_bytes(error.to_string().into()));
                    let rest = Timer { last_error, ..self.0.attempt(&rest, at, timer, now + PAUSE) };
                    if self.0.keep(at, rest, noted, durability)? {
                        self.tell_fired(at, after.progress.id, stored);
                    } else {
                        self.note_stored(at, after.progress.id, stored);
                    }
                    return Err(error);
                }
            }
        }
        if self.0.keep(at, self.0.state(after, at, decision.wake), noted, durability)? {
            self.tell_made(made, &outcomes);
            self.tell_end(at, decision.wake);
        } else {
            // Another process has changed the schedule since then. The changed state names the occurrences, too.
            self.note_stored(at, after.progress.id, fire);
        }
        Ok(())
    }

    /// Completes a decision that was storing its occurrences when its process died, or when the store's answer was
    /// lost. Does nothing while another process still stores them.
    ///
    /// Each instant is stored and counted by itself, so an occurrence that cannot be stored holds up no other one of
    /// the same decision. The next decision waits for all.
    fn complete(&self, at: &ScheduleKey, timer: &Timer, mut stored: Stored) -> Result<Verdict, StoreError> {
        self.0.forget_ended(&mut stored.formers);
        if !stored.formers.is_empty() {
            let error = "another process is storing the occurrences of a decision".into();
            return Ok(Verdict::Retry { error, after: Some(PAUSE) });
        }
        let (mut fired, mut missed, mut failure) = (Vec::new(), Vec::new(), None);
        for instant in &stored.progress.storing {
            match self.has_occurrence(at, &stored, *instant) {
                Ok(true) => fired.push(*instant),
                Ok(false) => missed.push(*instant),
                Err(error) => {
                    failure = Some((*instant, error));
                    break;
                }
            }
        }
        let failed = failure.as_ref().map(|(instant, _)| *instant);
        stored.progress.note_completed(&fired, &missed, failed);
        let now = self.0.store.now();
        let wake = stored.wake(at, now);
        let state = match &failure {
            None => self.0.state(&stored, at, wake),
            Some((_, error)) => {
                let last_error = Some(without_zero_bytes(error.to_string().into()));
                Timer { last_error, ..self.0.attempt(&stored, at, timer, now + PAUSE) }
            }
        };
        let mode = IfPresent::ReplaceOnly(timer.id);
        if self.0.keep(at, state, mode, durability_of(&stored, &fired))? {
            self.tell_fired(at, stored.progress.id, &fired);
            self.0.tell_left_out(at, (missed.len() as u64, 0));
            self.tell_end(at, wake);
        } else {
            // Another process has changed the schedule.
            self.note_stored(at, stored.progress.id, &fired);
        }
        failure.map_or(Ok(Verdict::Done), |(_, error)| Err(error))
    }

    /// Returns whether an instant whose occurrence was being stored has its occurrence, and stores the occurrence if
    /// this makes no second one. Returns false if the occurrence is not in the store, although it may have run.
    fn has_occurrence(
        &self,
        at: &ScheduleKey,
        stored: &Stored,
        instant: UtcMillis,
    ) -> Result<bool, StoreError> {
        let now = self.0.store.now();
        let is_at_least_once = stored.template.policy.guarantee == Guarantee::AtLeastOnce;
        if is_at_least_once && stored.progress.knows_stored(now) {
            // An instant whose id the store knows has its occurrence.
            drop(self.0.apply(occurrences(at, stored, &[instant], now), Durability::ProcessCrash)?);
            return Ok(true);
        }
        let id = TimerId::of_occurrence(stored.progress.id, instant);
        Ok(block_on(self.0.store.get(id.into()))?.is_some())
    }

    /// Notes in the present state of a schedule what a decision has decided whose result was not stored, because
    /// another process had changed the schedule. The decision's occurrences are stored, with these `outcomes`. A
    /// removed schedule notes nothing.
    fn note_decided(&self, made: &Made<'_>, outcomes: &[Outcome]) {
        let Made { at, before, decision, now, .. } = *made;
        let all = decision.fire.iter().zip(outcomes);
        let created = all.filter(|(_, outcome)| matches!(outcome, Outcome::Created(_)));
        let created: Vec<_> = created.map(|(instant, _)| *instant).collect();
        if created.is_empty() {
            return;
        }
        let left_out = Cell::new((0, 0));
        // The occurrences are stored, so an error must not let the decision be repeated. The counters are then wrong.
        let noted = self.0.count(at, |Stored { schedule, progress, .. }| {
            left_out.set((0, 0));
            // Another schedule may have the name by now.
            if progress.id == before.progress.id
                && let Ok(moments) = ScheduleInstants::new(schedule, progress.created)
            {
                let offset = at.jitter(schedule.jitter);
                let before = &before.progress;
                left_out.set(progress.note_decided(&moments, before, decision, &created, offset, now));
            }
        });
        self.tell_fired(at, before.progress.id, &created);
        if noted.is_ok_and(|is_noted| is_noted) {
            self.0.tell_left_out(at, left_out.get());
        }
    }

    /// Notes in the present state of the schedule `id` that the occurrences of these instants are stored. The result of
    /// their decision was not stored, because another process had changed the schedule, whose state then has the
    /// instants in [`Progress::storing`].
    fn note_stored(&self, at: &ScheduleKey, id: TimerId, stored: &[UtcMillis]) {
        if stored.is_empty() {
            return;
        }
        let taken = Cell::new(Vec::new());
        let noted = self.0.count(at, |Stored { progress, .. }| {
            // Another schedule may have the name by now. Another delivery may have counted the instants.
            let found = if progress.id == id { progress.take_stored(stored) } else { Vec::new() };
            progress.fired = progress.fired.saturating_add(found.len() as u64);
            taken.set(found);
        });
        match noted {
            Ok(true) => self.tell_fired(at, id, &taken.take()),
            // The schedule was removed, and its occurrences stay.
            Ok(false) => self.tell_fired(at, id, stored),
            // A later delivery finds the instants, counts them, and calls the observer.
            Err(_) => {}
        }
    }
}

/// A decision of a schedule that is being carried out.
#[derive(Clone, Copy)]
struct Made<'a> {
    at: &'a ScheduleKey,
    /// The timer that stores the schedule, and is being delivered.
    timer: &'a Timer,
    before: &'a Stored,
    after: &'a Stored,
    decision: &'a Decision,
    /// The moment of the decision.
    now: UtcMillis,
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
