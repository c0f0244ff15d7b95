//! Makes occurrences on request: by a trigger, or by a backfill of past instants.

use super::key::ScheduleKey;
use super::progress::less;
use super::schedules::Schedules;
use super::store::{TURNS, contended, has_replaced};
use super::stored::{Stored, wake_of};
use super::words::{BackfillStep, ScheduleEvent, ScheduleFault};
use crate::id::TimerId;
use crate::store::{Durability, IfPresent, Op, Outcome};
use crate::timer::Timer;
use core::time::Duration;
use tourbillon_words::UtcMillis;

impl Schedules {
    /// Makes an occurrence that is due now, in addition to the occurrences of the plan. The call also works if the
    /// schedule is paused, or if another occurrence has not ended. Returns the id of the new occurrence.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let id = schedules.trigger(&at)?;
    /// let view = schedules.get(&at)?;
    /// assert_eq!((view.progress.asked, view.progress.fired), (1, 0));
    /// # let _ = id;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trigger(&self, at: &ScheduleKey) -> Result<TimerId, ScheduleFault> {
        let _lock = self.0.lock(at);
        // The id is not computed from the moment, because two triggers in the same millisecond make two occurrences.
        let id = TimerId::fresh();
        let mut is_stored = false;
        for _ in 0..TURNS {
            let (timer, mut stored) = match self.0.load_to_change(at) {
                // For example, another process has removed the schedule. A caller that got an error would trigger the
                // schedule again, although the occurrence is stored.
                Err(_) if is_stored => return Ok(id),
                loaded => loaded?,
            };
            let now = self.0.store.now();
            // One attempt stores the occurrence, which may be delivered before a later attempt.
            let mut ops = Vec::new();
            if !is_stored {
                let occurrence = Timer { id, ..stored.occurrence(at, now, now, now) };
                ops.push(Op::Place(Box::new(occurrence), IfPresent::Reject));
            }
            // If a store without transactions has no room for the occurrence, the trigger has surely had no effect.
            if !is_stored && !self.0.store.is_transactional() {
                let outcomes = self.0.apply(core::mem::take(&mut ops), Durability::PowerLoss)?;
                is_stored = self.note_trigger(at, id, now, &outcomes);
            }
            stored.progress.asked += 1;
            stored.progress.last_fired = Some(now);
            ops.push(self.0.op(&stored, at, wake_of(&timer), IfPresent::ReplaceOnly(timer.id)));
            let outcomes = match self.0.apply(ops, Durability::PowerLoss) {
                Err(_) if is_stored => return Ok(id),
                applied => applied?,
            };
            is_stored = is_stored || self.note_trigger(at, id, now, &outcomes);
            if has_replaced(&outcomes) {
                return Ok(id);
            }
        }
        if is_stored { Ok(id) } else { Err(contended().into()) }
    }

    /// Returns whether the first of the outcomes shows that the occurrence `id` of a trigger is stored. If so, tells
    /// the observer.
    fn note_trigger(&self, at: &ScheduleKey, id: TimerId, now: UtcMillis, outcomes: &[Outcome]) -> bool {
        // The id is fresh, so a store that knows it has repeated this call after a lost answer.
        let is_stored = matches!(outcomes.first(), Some(Outcome::Created(_) | Outcome::Repeated(_)));
        if is_stored {
            self.0.tell(at, &ScheduleEvent::Fired { id, instant: now });
        }
        is_stored
    }

    /// Counts the instants of a schedule that are not before `from`, and not later than `until`. Stops counting at
    /// `limit`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, if its plan is not valid, or if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let (june, july) = (UtcMillis::from_millis(1_780_272_000_000), UtcMillis::from_millis(1_782_864_000_000));
    /// assert_eq!(schedules.count(&at, june, july, 100)?, 30, "30 days in UTC");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(
        &self,
        at: &ScheduleKey,
        from: UtcMillis,
        until: UtcMillis,
        limit: usize,
    ) -> Result<usize, ScheduleFault> {
        let (_, stored) = self.0.load(at)?;
        Ok(stored.progress.instants(&stored.schedule, from, until, limit)?.len())
    }

    /// Makes occurrences for instants of a schedule: for the first `limit` instants that are not before `from`, and not
    /// later than `until`. The occurrences are due at once. Instants that have not come yet are left out: an instant
    /// has come when its occurrence would be due. Instants that wait for a decision or for their occurrences are left
    /// out, too, because they get their occurrences by the schedule's own rule.
    ///
    /// The id of an occurrence is computed from its instant, and the store remembers this id for an hour after the
    /// occurrence has ended. Until then, a repeated call makes no second occurrence for the instant. With `only`, the
    /// call makes occurrences only if the schedule has this id ([`Progress::id`](super::Progress::id)), and otherwise
    /// fails with [`ScheduleFault::NotFound`]. Another schedule under the same name has another id.
    ///
    /// # Errors
    ///
    /// Fails if there is no such schedule, if its plan is not valid, or if the store fails. After a failure the call
    /// can be repeated. If the store fails after the occurrences are stored, [`asked`](super::Progress::asked) does not
    /// count them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::plan::Plan;
    /// # use tourbillon_durable::policy::Policy;
    /// # use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::timer::Payload;
    /// # let schedules = Schedules::new(Arc::new(MemoryStore::default()));
    /// # let report = || Template { kind: "report".into(), payload: Payload((*b"all").into()), labels: Vec::new(), policy: Policy::default() };
    /// # let daily = Schedule::new(Plan::cron("0 9 * * *", "Europe/Zurich")?);
    /// # let at = ScheduleKey::new("shop", "daily report");
    /// # schedules.put(&at, daily, report())?;
    /// let from = UtcMillis::from_millis(1_577_836_800_000);
    /// let step = schedules.backfill(&at, from, from + Duration::from_secs(3 * 86_400), 100, None)?;
    /// assert_eq!((step.stored, step.repeated, step.next), (3, 0, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backfill(
        &self,
        at: &ScheduleKey,
        from: UtcMillis,
        until: UtcMillis,
        limit: usize,
        only: Option<TimerId>,
    ) -> Result<BackfillStep, ScheduleFault> {
        let _lock = self.0.lock(at);
        let (_, stored) = self.0.load(at)?;
        if only.is_some_and(|only| only != stored.progress.id) {
            return Err(ScheduleFault::NotFound);
        }
        let now = self.0.store.now();
        let offset = at.jitter(stored.schedule.jitter);
        let progress = stored.progress.through(&stored.schedule, offset, now)?;
        let instants =
            stored.progress.instants(&stored.schedule, from, until.min(less(now, offset)), limit)?;
        let next = instants.last().filter(|_| instants.len() == limit.max(1));
        let next = next.map(|last| *last + Duration::from_millis(1));
        let mut step = BackfillStep { next, ..BackfillStep::default() };
        let (waiting, instants): (Vec<_>, Vec<_>) =
            instants.into_iter().partition(|instant| progress.has_waiting_instant(*instant));
        step.waiting = waiting.len() as u64;
        if instants.is_empty() {
            return Ok(step);
        }
        let place = |instant: &UtcMillis| {
            Op::Place(Box::new(stored.occurrence(at, *instant, now, now)), IfPresent::Reject)
        };
        let outcomes = self.0.apply(instants.iter().map(place).collect(), Durability::PowerLoss)?;
        for (outcome, instant) in outcomes.iter().zip(&instants) {
            match outcome {
                Outcome::Created(id) => {
                    step.stored += 1;
                    self.0.tell(at, &ScheduleEvent::Fired { id: *id, instant: *instant });
                }
                _ => step.repeated += 1,
            }
        }
        if step.stored > 0 {
            // The occurrences are stored, so an error must not let the call be repeated. The counter is then too small.
            drop(self.0.count(at, |Stored { progress, .. }| {
                progress.asked += step.stored;
                progress.last_fired = Some(now);
            }));
        }
        Ok(step)
    }
}
