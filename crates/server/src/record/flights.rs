//! Deliveries under way, and what becomes of them.

use super::cut;
use super::pasts::{Entry, Known, Pasts};
use super::seconds::Seconds;
use super::tally::{Tally, cause_name};
use crate::work::BLOCKED;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_api::{AttemptOutcome, EndKind, Moment, PastAttempt, RepeatCause, SecondLateness};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Attempt, Delivery, Ending, Event, UtcMillis, Verdict};

/// The greatest number of deliveries under way that are known. There are fewer places for deliveries by default.
const MOST: usize = 100_000;
/// The greatest length of an error that is shown.
const LONGEST_ERROR: usize = 200;
/// The error of a timer whose receiver wants no more callbacks.
pub(crate) const GONE: &str = "the receiver answered 410";

/// The deliveries under way, and the pasts of timers.
pub(crate) struct Flights {
    store: Arc<dyn TimerStore>,
    tally: Arc<Tally>,
    seconds: Seconds,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    flights: HashMap<TimerId, Flight>,
    pasts: Pasts,
    last_fire: Option<UtcMillis>,
}

/// A delivery under way.
#[derive(Debug)]
struct Flight {
    namespace: Box<str>,
    shown: PastAttempt,
    /// The receiver has not answered, although it may have got the delivery.
    has_no_answer: bool,
    /// The change that ends the timer whatever becomes of the delivery.
    withdrawn: Option<(EndKind, Option<Box<str>>)>,
}

/// An answer to a callback, or the lack of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered<'a> {
    pub(crate) status: Option<u16>,
    /// The beginning of the answer, if it is to be kept.
    pub(crate) head: Option<&'a str>,
    /// No answer came, and the receiver may have got the callback.
    pub(crate) is_missing: bool,
}

fn shown(moment: UtcMillis) -> Moment {
    Moment::from_millis(moment.as_millis())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// What an event says of its timer.
fn known(of: &Attempt) -> Known {
    Known {
        namespace: of.namespace.clone(),
        key: of.key.clone(),
        created: Some(of.created),
        scheduled: Some(of.scheduled),
        deliveries: of.delivery,
    }
}

/// What a stored timer says of itself.
fn known_of(timer: &Timer) -> Known {
    Known {
        namespace: timer.namespace.clone(),
        key: timer.key.clone(),
        created: Some(timer.created),
        scheduled: Some(timer.scheduled),
        deliveries: timer.deliveries,
    }
}

impl Flights {
    pub(crate) fn new(store: Arc<dyn TimerStore>, tally: Arc<Tally>) -> Self {
        Self { store, tally, seconds: Seconds::default(), inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's time.
    pub(crate) fn now(&self) -> UtcMillis {
        self.store.now()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Notes that a delivery starts now: its request is sent, or a receiver has it. Returns its lateness.
    pub(crate) fn started(&self, delivery: &Delivery) -> Duration {
        let now = self.store.now();
        let late = now - delivery.due;
        self.tally.to_start.note(late);
        self.seconds.note(delivery.due, now);
        let mut inner = self.lock();
        inner.last_fire = Some(now);
        if inner.flights.len() >= MOST {
            return late;
        }
        let shown = PastAttempt {
            attempt: delivery.attempt,
            delivery: delivery.delivery,
            due: shown(delivery.due),
            claimed: shown(delivery.due + delivery.lateness),
            started: shown(now),
            ended: None,
            late_ms: millis(late),
            took_ms: None,
            outcome: None,
            status: None,
            error: None,
            answer: None,
            may_repeat: None,
        };
        let namespace = delivery.namespace.clone();
        let flight = Flight { namespace, shown, has_no_answer: false, withdrawn: None };
        inner.flights.insert(delivery.id, flight);
        late
    }

    /// Notes the answer to a delivery under way.
    pub(crate) fn answered(&self, id: TimerId, answered: Answered<'_>) {
        if let Some(flight) = self.lock().flights.get_mut(&id) {
            flight.shown.status = answered.status;
            flight.shown.answer = answered.head.map(|head| cut(head, LONGEST_ERROR));
            flight.has_no_answer = answered.is_missing;
        }
    }

    /// Notes that a dead timer was replayed at this moment.
    pub(crate) fn replayed(&self, timer: &Timer, at: UtcMillis) {
        self.lock().pasts.replayed(timer.id, known_of(timer), at);
    }

    /// Notes that a timer was cancelled that no delivery had.
    pub(crate) fn cancelled(&self, timer: &Timer) {
        let known = known_of(timer);
        let now = self.now();
        self.lock().pasts.ended(timer.id, known, now, EndKind::Cancelled, None);
    }

    /// Notes that a timer was replaced by another one.
    pub(crate) fn replaced(&self, namespace: &str, key: Option<&str>, id: TimerId, by: &str) {
        let now = self.now();
        let mut inner = self.lock();
        if let Some(flight) = inner.flights.get_mut(&id) {
            flight.withdrawn = Some((EndKind::Replaced, Some(by.into())));
            return;
        }
        let known = Known { namespace: namespace.into(), key: key.map(Into::into), ..Known::default() };
        inner.pasts.ended(id, known, now, EndKind::Replaced, Some(by));
    }

    /// Takes an event of the runtime. Returns the status of the receiver's answer if a delivery has ended by it.
    pub(crate) fn observe(&self, event: &Event) -> Option<u16> {
        match event {
            Event::Ended { attempt: of, at, ending, took, phase, .. } => {
                self.ended(of, *at, ending, *took, *phase)
            }
            Event::LeaseLost { attempt: of, at } => self.lost(of, *at, RepeatCause::LeaseLost),
            Event::EndLost { attempt: of, at } => self.lost(of, *at, RepeatCause::EndLost),
            Event::Expired { id, at, phase } => {
                self.expired(*id, *at, *phase);
                None
            }
            _ => None,
        }
    }

    fn ended(
        &self,
        of: &Attempt,
        at: UtcMillis,
        ending: &Ending,
        took: Option<Duration>,
        phase: Phase,
    ) -> Option<u16> {
        let mut inner = self.lock();
        let flight = inner.flights.remove(&of.id);
        let outcome = outcome(ending, phase);
        let is_put_off = matches!(outcome, None | Some(AttemptOutcome::Parked | AttemptOutcome::GivenBack));
        let word = outcome.map_or("skipped", outcome_name);
        self.tally.fired.of(word).add(1);
        self.tally.tenants.of(&of.namespace).fired.of(word).add(1);
        if phase == Phase::Done && *ending == Ending::Answered(Verdict::Done) {
            self.tally.to_ack.note(at - of.due);
        }
        if let Ending::Answered(Verdict::Park(reason)) = ending {
            inner.pasts.parked(of.id, reason);
        }
        let (withdrawn, has_no_answer) = match &flight {
            Some(flight) => (flight.withdrawn.clone(), flight.has_no_answer),
            None => (None, false),
        };
        let is_repeated = matches!(phase, Phase::Pending | Phase::Parked);
        let may_repeat = match outcome {
            _ if !is_repeated || flight.is_none() => None,
            Some(AttemptOutcome::Failed) if has_no_answer => Some(RepeatCause::NoAnswer),
            Some(AttemptOutcome::GivenBack) => Some(RepeatCause::GivenBack),
            _ => None,
        };
        if let Some(cause) = may_repeat {
            self.tally.duplicates.of(cause_name(cause)).add(1);
        }
        let error = match ending {
            Ending::Answered(Verdict::Retry { error, .. } | Verdict::Dead(error)) => Some(&**error),
            _ => None,
        };
        let status = flight.as_ref().and_then(|flight| flight.shown.status);
        // A delivery that was put off before its start is no attempt.
        if !is_put_off || may_repeat.is_some() {
            let mut attempt = flight.map_or_else(|| without_start(of, at, took), |flight| flight.shown);
            attempt.ended = Some(shown(at));
            attempt.took_ms = took.map(millis);
            attempt.outcome = outcome;
            attempt.error = error.map(|error| cut(error, LONGEST_ERROR));
            attempt.may_repeat = may_repeat;
            inner.pasts.attempted(of.id, known(of), attempt);
        }
        let (how, detail) = match (phase, withdrawn) {
            (Phase::Done, _) if *ending == Ending::Skipped => (EndKind::Skipped, None),
            (Phase::Done, _) => (EndKind::Delivered, None),
            (Phase::Dead, _) => {
                self.tally.dead.of(death(ending)).add(1);
                (EndKind::Dead, error.map(|error| cut(error, LONGEST_ERROR).into()))
            }
            (Phase::Withdrawn, Some((how, detail))) => (how, detail),
            (Phase::Withdrawn, None) => (EndKind::Cancelled, None),
            _ => return status,
        };
        inner.pasts.ended(of.id, known(of), at, how, detail.as_deref());
        status
    }

    fn lost(&self, of: &Attempt, at: UtcMillis, cause: RepeatCause) -> Option<u16> {
        let mut inner = self.lock();
        self.tally.fired.of("lost").add(1);
        self.tally.tenants.of(&of.namespace).fired.of("lost").add(1);
        let flight = inner.flights.remove(&of.id)?;
        self.tally.duplicates.of(cause_name(cause)).add(1);
        let mut attempt = flight.shown;
        attempt.ended = Some(shown(at));
        attempt.outcome = Some(AttemptOutcome::Lost);
        attempt.may_repeat = Some(cause);
        let status = attempt.status;
        inner.pasts.attempted(of.id, known(of), attempt);
        status
    }

    /// The lease of a holder that is gone has ended: of a process before this one, unless this one could not store an
    /// end, which was noted then.
    fn expired(&self, id: TimerId, at: UtcMillis, phase: Phase) {
        if phase == Phase::Dead {
            self.tally.dead.of("deliveries").add(1);
        }
        let mut inner = self.lock();
        let is_own = inner
            .pasts
            .get(id)
            .and_then(|entry| entry.attempts.back())
            .is_some_and(|attempt| attempt.outcome == Some(AttemptOutcome::Lost));
        if is_own {
            return;
        }
        if phase != Phase::Dead {
            self.tally.duplicates.of(cause_name(RepeatCause::ProcessDied)).add(1);
        }
        inner.pasts.interrupted(id, at);
    }

    /// Forgets the pasts of a namespace.
    pub(crate) fn forget(&self, namespace: &str) {
        self.lock().pasts.forget(namespace);
    }

    // --- What is shown ---

    /// The past of a timer, and its attempt under way.
    pub(crate) fn past(&self, namespace: &str, id: TimerId) -> (Option<Entry>, Option<PastAttempt>) {
        let inner = self.lock();
        let under_way = inner.flights.get(&id).filter(|flight| *flight.namespace == *namespace);
        (inner.pasts.get(id).cloned(), under_way.map(|flight| flight.shown.clone()))
    }

    /// The namespace of a remembered timer.
    pub(crate) fn namespace_of(&self, id: TimerId) -> Option<Box<str>> {
        self.lock().pasts.get(id).map(|entry| entry.known.namespace.clone())
    }

    /// Remembered timers that have ended, the latest first, a page at a time: see [`Pasts::ended_lately`].
    pub(crate) fn ended_lately(
        &self,
        before: Option<u64>,
        limit: usize,
        is_wanted: impl Fn(&Known, EndKind) -> bool,
    ) -> (Vec<(TimerId, Entry)>, Option<u64>) {
        self.lock().pasts.ended_lately(before, limit, is_wanted)
    }

    /// The last remembered timer of a namespace that had the key.
    pub(crate) fn last_of(&self, namespace: &str, key: &str) -> Option<TimerId> {
        self.lock().pasts.last_of(namespace, key)
    }

    /// The lateness by second of the minute.
    pub(crate) fn seconds(&self) -> Vec<SecondLateness> {
        self.seconds.show(self.now())
    }

    /// The moment of the last start of a delivery.
    pub(crate) fn last_fire(&self) -> Option<UtcMillis> {
        self.lock().last_fire
    }
}

impl core::fmt::Debug for Flights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Flights").field("under_way", &self.lock().flights.len()).finish_non_exhaustive()
    }
}

/// What became of a delivery; none if the delivery was left out.
fn outcome(ending: &Ending, phase: Phase) -> Option<AttemptOutcome> {
    Some(match (ending, phase) {
        (Ending::Skipped, _) => return None,
        (_, Phase::Dead) => AttemptOutcome::Dead,
        (Ending::Answered(Verdict::Done), _) => AttemptOutcome::Delivered,
        (Ending::Answered(Verdict::Retry { .. } | Verdict::Dead(_)), _) => AttemptOutcome::Failed,
        (Ending::Answered(_) | Ending::NoHandler, _) => AttemptOutcome::Parked,
        _ => AttemptOutcome::GivenBack,
    })
}

fn outcome_name(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Delivered => "delivered",
        AttemptOutcome::Failed => "failed",
        AttemptOutcome::Dead => "dead",
        AttemptOutcome::Parked => "parked",
        AttemptOutcome::GivenBack => "given-back",
        _ => "lost",
    }
}

/// The word of the reason for which deliveries were given up.
fn death(ending: &Ending) -> &'static str {
    match ending {
        Ending::Answered(Verdict::Dead(error)) if error.starts_with(BLOCKED) => BLOCKED,
        Ending::Answered(Verdict::Dead(error)) if error.starts_with(GONE) => "gone",
        Ending::Answered(Verdict::Retry { .. }) => "failures",
        Ending::Answered(Verdict::Done) => "plan",
        _ => "refused",
    }
}

/// An attempt that has ended before anything was sent.
fn without_start(of: &Attempt, at: UtcMillis, took: Option<Duration>) -> PastAttempt {
    let begun = UtcMillis::from_millis(at.as_millis().saturating_sub(millis(took.unwrap_or_default())));
    PastAttempt {
        attempt: of.attempt,
        delivery: of.delivery,
        due: shown(of.due),
        claimed: shown(begun),
        started: shown(begun),
        ended: None,
        late_ms: millis(begun - of.due),
        took_ms: None,
        outcome: None,
        status: None,
        error: None,
        answer: None,
        may_repeat: None,
    }
}
