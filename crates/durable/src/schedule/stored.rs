//! Stores a schedule as the payload of a timer, and makes the timers of its occurrences.

use super::decide::LOOK;
use super::key::{ScheduleKey, namespace_of};
use super::progress::SLACK;
use super::words::{ScheduleView, Template};
use super::{Progress, Schedule};
use crate::id::TimerId;
use crate::policy::{Backoff, Misfire, Policy};
use crate::state::State;
use crate::store::{StoreError, StoreErrorKind};
use crate::texts::without_zero_bytes;
use crate::timer::{Payload, Timer};
use crate::verdict::Verdict;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The kind of the timers that store schedules.
pub(super) const KIND: &str = "tourbillon/schedule";
/// The pause before a failed decision of a schedule (choice of the instants that get occurrences) is tried again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

const PAUSED: &str = "schedule paused";
const ENDED: &str = "schedule ended";
/// The prefix of the text that says why a schedule's timer is parked (stored, but not delivered), if the schedule's
/// plan is no longer valid.
const FAULT: &str = "schedule: ";

/// The payload of the timer that stores a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) schedule: Schedule,
    pub(super) template: Template,
    pub(super) progress: Progress,
    /// The former timers of the schedule whose deliveries may go on. Such a delivery may still store occurrences by a
    /// former rule, so each change of the schedule waits for its end. So does a delivery that completes a decision.
    /// Empty in a store of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) formers: Vec<TimerId>,
}

impl Stored {
    pub(super) fn read(timer: &Timer) -> Result<Self, StoreError> {
        serde_json::from_slice(&timer.payload.0).map_err(|error| {
            StoreError::new(StoreErrorKind::Corrupt, format!("this is not a schedule: {error}"))
        })
    }

    /// Makes the timer that stores a schedule. Its decision is scheduled for `wake`. Each state of the schedule has a
    /// new `id`. By this id, `IfPresent::ReplaceOnly` notices that another process has changed the schedule.
    pub(super) fn timer(&self, id: TimerId, at: &ScheduleKey, wake: Option<UtcMillis>) -> Timer {
        let Progress { paused, fault, .. } = &self.progress;
        let state = match (fault, wake) {
            (Some(fault), _) => State::Parked(parked(fault)),
            _ if paused.is_some() => State::Parked(PAUSED.into()),
            (None, None) => State::Parked(ENDED.into()),
            (None, Some(_)) => State::Pending,
        };
        // JSON can express all values of these types, so the fallback is never used.
        let payload = serde_json::to_vec(self).unwrap_or_default();
        Timer {
            namespace: namespace_of(&at.namespace),
            key: Some(at.key.clone()),
            payload: Payload(payload.into()),
            // A schedule goes on although its decisions fail or their processes die, so its timer must never become
            // dead.
            policy: Policy {
                attempts: u32::MAX,
                deliveries: u32::MAX,
                backoff: Backoff::Fixed(PAUSE),
                ..Policy::default()
            },
            state,
            // Without a wake the timer is parked, so its due moment does not matter.
            ..Timer::new(id, KIND, wake.unwrap_or(UtcMillis::ZERO))
        }
    }

    /// Returns the moment of the schedule's next decision (choice of the instants that get occurrences). Returns `None`
    /// if no instant is left.
    pub(super) fn wake(&self, at: &ScheduleKey, now: UtcMillis) -> Option<UtcMillis> {
        self.progress.wake(at.jitter(self.schedule.jitter), now)
    }

    /// Returns whether the next decision of an active schedule was put off while the store's clock was ahead of the
    /// true time: by a failure, or by a look at the last occurrence. `timer` is the timer that stores the schedule.
    pub(super) fn is_put_off(&self, at: &ScheduleKey, timer: &Timer, now: UtcMillis) -> bool {
        let wake = self.wake(at, now).filter(|_| timer.state == State::Pending);
        wake.is_some_and(|wake| timer.due > wake.max(now) + LOOK.1 + SLACK)
    }

    /// Converts the stored schedule to the form that callers get. `wake` is the moment of the next decision, from which
    /// the lateness at `now` is computed. `failure` is the error of the last attempt of this decision.
    pub(super) fn view(
        self,
        at: ScheduleKey,
        wake: Option<UtcMillis>,
        failure: Option<Box<str>>,
        now: UtcMillis,
    ) -> ScheduleView {
        let Self { schedule, template, progress, .. } = self;
        let is_active = progress.paused.is_none() && progress.fault.is_none();
        let due = progress.next.filter(|_| is_active).map(|next| next + at.jitter(schedule.jitter));
        let overdue = wake.filter(|_| is_active).map_or(Duration::ZERO, |wake| now - wake);
        ScheduleView { at, schedule, template, progress, due, overdue, failure }
    }

    /// Makes the timer of a schedule's occurrence at `instant`. The timer is due at `due`, and is made at `now`.
    pub(super) fn occurrence(
        &self,
        at: &ScheduleKey,
        instant: UtcMillis,
        due: UtcMillis,
        now: UtcMillis,
    ) -> Timer {
        let Template { kind, payload, labels, policy } = self.template.clone();
        let mut labels = labels;
        labels.push(at.label());
        labels.sort();
        labels.dedup();
        Timer {
            namespace: at.namespace.clone(),
            payload,
            labels,
            policy: Policy { misfire: Misfire::Fire, jitter: Duration::ZERO, ..policy },
            scheduled: instant,
            due,
            // A missed or queued instant, and one of a backfill, may be older than the greatest age of the policy.
            age_from: Some(due.max(now)),
            // The store then remembers the id for an hour after the end, so a repeated decision makes no second
            // occurrence.
            has_chosen_id: true,
            ..Timer::new(TimerId::of_occurrence(self.progress.id, instant), kind, due)
        }
    }
}

/// Returns the moment for which a schedule's next decision (choice of the instants that get occurrences) is scheduled.
/// `timer` is the timer that stores the schedule. After a failed decision, its due moment is that of the next attempt.
/// Returns `None` if the schedule has ended.
pub(super) fn wake_of(timer: &Timer) -> Option<UtcMillis> {
    match &timer.state {
        State::Parked(reason) if **reason == *ENDED => None,
        _ => Some(timer.scheduled.min(timer.due)),
    }
}

/// Returns the error of the last attempt of a schedule's next decision. `timer` is the timer that stores the schedule.
/// Returns `None` if no attempt has failed.
pub(super) fn failure_of(timer: &Timer) -> Option<Box<str>> {
    timer.last_error.clone()
}

/// Returns the text that says why a schedule's timer is parked (stored, but not delivered). `fault` is the error of the
/// schedule's plan. A long text is cut to the permitted length of a reason.
fn parked(fault: &str) -> Box<str> {
    let mut reason = format!("{FAULT}{fault}");
    // The end of a shorter reason is a boundary, too, so such a reason stays whole.
    let most = (0..=Verdict::LONGEST_REASON).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(most.unwrap_or(0));
    without_zero_bytes(reason.into())
}
