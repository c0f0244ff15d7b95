//! Records running deliveries and the ends of deliveries.

use super::idempotency::Idempotency;
use super::lateness::LatenessBySecond;
use super::metrics::{Metrics, cause_name};
use super::timer_history::{Entry, Known, TimerHistory};
use crate::clock::millis;
use crate::text::cut;
use crate::work::{self, BLOCKED};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_api::{AttemptOutcome, EndKind, PastAttempt, RepeatCause, SecondLateness};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Attempt, Delivery, Ending, Event, Incident, UtcMillis, Verdict};

/// The greatest number of running deliveries of which the service keeps a record. Further deliveries run without a
/// record. The number is higher than the default limit of deliveries.
const MOST: usize = 100_000;
/// The greatest length of a remembered error or answer, in bytes.
const LONGEST_ERROR: usize = 200;
/// The error of a timer that is delivered at most once, if the store has removed it and its delivery did not go on.
pub(crate) const LOST: &str = "the timer was removed for its delivery, and the delivery did not go on";
/// The error of a timer that is delivered at most once, if the store no longer has it, and this node does not know for
/// whose delivery it was removed.
pub(crate) const PERHAPS_LOST: &str =
    "the timer was removed, and no delivery is known here: it is lost, unless another node has delivered it";
/// The first words of the error of a timer whose receiver wants no further callbacks.
pub(crate) const GONE: &str = "the receiver answered 410";

/// The record of running deliveries, and the histories of timers.
pub(crate) struct InFlight {
    store: Arc<dyn TimerStore>,
    metrics: Arc<Metrics>,
    lateness: LatenessBySecond,
    idempotency: Idempotency,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<TimerId, Running>,
    /// The fingerprints of the requests with idempotency keys, by the timers that they created. Kept until the event
    /// about the end of the timer's delivery, because this event does not contain the timer's payload.
    fingerprints: HashMap<TimerId, u128>,
    history: TimerHistory,
    last_fire: Option<UtcMillis>,
}

impl State {
    fn has_ended(&self, id: TimerId) -> bool {
        self.history.get(id).is_some_and(|entry| entry.end.is_some())
    }

    /// Keeps the fingerprint of the request that created a timer until the end of the timer's delivery.
    fn remember(&mut self, id: TimerId, fingerprint: Option<u128>) {
        if let Some(fingerprint) = fingerprint.filter(|_| self.fingerprints.len() < MOST) {
            self.fingerprints.insert(id, fingerprint);
        }
    }
}

/// The delivery of a timer at most once that the store was asked to remove, without a known outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MayBeRemoved {
    pub(crate) attempt: Arc<Attempt>,
    /// The moment at which the delivery ended.
    pub(crate) at: UtcMillis,
    /// The fingerprint of the request that created the timer.
    fingerprint: Option<u128>,
}

/// The record of a running delivery.
#[derive(Debug)]
struct Running {
    /// The facts about the timer that its history will keep. The timer may be neither in the store nor in a history,
    /// for example because it is delivered at most once, and this is its first attempt.
    known: Known,
    shown: PastAttempt,
    /// Whether the receiver gave no answer, although it may have got the delivery.
    has_no_answer: bool,
    /// Set if a new timer has replaced this timer during the delivery. If the delivery then fails, the timer ends, and
    /// its history records these values: the kind of the end, and the id of the new timer.
    withdrawn: Option<(EndKind, Option<Box<str>>)>,
}

/// The receiver's answer to a callback. Without an answer, `status` and `head` are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered<'a> {
    pub(crate) status: Option<u16>,
    /// The first bytes of the answer. `None` if the namespace does not keep answers.
    pub(crate) head: Option<&'a str>,
    /// Whether the receiver gave no answer, although it may have got the callback.
    pub(crate) is_missing: bool,
}

/// Returns the facts that a timer's history keeps about the timer, from the description of one of its deliveries.
fn known(attempt: &Attempt) -> Known {
    Known {
        namespace: attempt.namespace.clone(),
        key: attempt.key.clone(),
        created: Some(attempt.created),
        scheduled: Some(attempt.scheduled),
        deliveries: attempt.delivery,
    }
}

/// Returns the facts that a timer's history keeps about the timer, from the timer in the store.
fn known_of(timer: &Timer) -> Known {
    Known {
        namespace: timer.namespace.clone(),
        key: timer.key.clone(),
        created: Some(timer.created),
        scheduled: Some(timer.scheduled),
        deliveries: timer.deliveries,
    }
}

impl InFlight {
    pub(crate) fn new(store: Arc<dyn TimerStore>, metrics: Arc<Metrics>) -> Self {
        let (lateness, idempotency) = (LatenessBySecond::default(), Idempotency::default());
        Self { store, metrics, lateness, idempotency, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present moment by the clock of the store.
    pub(crate) fn now(&self) -> UtcMillis {
        self.store.now()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the memory of the requests with idempotency keys.
    pub(crate) fn idempotency(&self) -> &Idempotency {
        &self.idempotency
    }

    /// Records that a delivery starts now, because the callback is about to be sent or a receiver has got the timer.
    /// Returns how late the delivery is.
    pub(crate) fn started(&self, delivery: &Delivery) -> Duration {
        let now = self.store.now();
        let late = now - delivery.due;
        self.metrics.to_start.record(late);
        self.lateness.note(delivery.due, now);
        let mut state = self.lock();
        state.last_fire = Some(now);
        if state.running.len() >= MOST {
            return late;
        }
        let claimed = delivery.due + delivery.lateness;
        let shown = begun_attempt(delivery.attempt, delivery.delivery, [delivery.due, claimed, now]);
        let known = Known {
            namespace: delivery.namespace.clone(),
            key: delivery.key.clone(),
            created: None,
            scheduled: Some(delivery.scheduled),
            deliveries: delivery.delivery,
        };
        let running = Running { known, shown, has_no_answer: false, withdrawn: None };
        state.running.insert(delivery.id, running);
        late
    }

    /// Records the receiver's answer to a running delivery of the timer `id`.
    pub(crate) fn answered(&self, id: TimerId, answered: Answered<'_>) {
        if let Some(running) = self.lock().running.get_mut(&id) {
            running.shown.status = answered.status;
            running.shown.answer = answered.head.map(|head| cut(head, LONGEST_ERROR));
            running.has_no_answer = answered.is_missing;
        }
    }

    /// Called before a delivery begins. If the timer is delivered at most once, keeps the fingerprint of the request
    /// that created it, because an event about a withdrawal before the delivery does not contain the timer's payload.
    pub(crate) fn begins(&self, delivery: &Delivery, work: &[u8]) {
        if delivery.is_once() {
            self.lock().remember(delivery.id, work::head(work).fingerprint);
        }
    }

    /// Called after a delivery has begun. If the timer is delivered at most once, the store has just removed it, so the
    /// fingerprint of the request that created it is remembered for an hour from now on.
    pub(crate) fn begun(&self, delivery: &Delivery, work: &[u8]) {
        if delivery.is_removed() {
            self.idempotency.ended(&delivery.namespace, delivery.id, work::head(work).fingerprint);
        }
    }

    /// Records the verdict on a delivery of a timer. `work` is the stored form of the timer's work.
    pub(crate) fn handled(&self, delivery: &Delivery, work: &[u8], verdict: &Verdict) {
        if delivery.is_removed() {
            // The end of the timer was recorded when the store removed it.
            return;
        }
        let fingerprint = work::head(work).fingerprint;
        if *verdict == Verdict::Done {
            // The timer may have left the store before the event about its end.
            self.idempotency.ended(&delivery.namespace, delivery.id, fingerprint);
        } else if fingerprint.is_some() {
            // The timer stays in the store, unless it was withdrawn.
            self.lock().remember(delivery.id, fingerprint);
        }
    }

    /// Records the end of a delivery that another node has begun.
    pub(crate) fn handled_remotely(&self, timer: &Timer, phase: Phase) {
        if matches!(phase, Phase::Done | Phase::Withdrawn) {
            self.idempotency.ended(&timer.namespace, timer.id, work::head(&timer.payload.0).fingerprint);
        }
    }

    /// Records that a dead timer was replayed at the moment `at`, which makes it pending again.
    pub(crate) fn replayed(&self, timer: &Timer, at: UtcMillis) {
        self.lock().history.replayed(timer.id, known_of(timer), at);
    }

    /// Records that a timer without a running delivery was cancelled.
    pub(crate) fn cancelled(&self, timer: &Timer) {
        self.idempotency.ended(&timer.namespace, timer.id, work::head(&timer.payload.0).fingerprint);
        let known = known_of(timer);
        let now = self.now();
        self.lock().history.ended(timer.id, known, now, EndKind::Cancelled, None);
    }

    /// Records that a new timer with the id `by` has replaced the timer `id`.
    pub(crate) fn replaced(&self, namespace: &str, key: Option<&str>, id: TimerId, by: &str) {
        let now = self.now();
        let mut state = self.lock();
        if let Some(running) = state.running.get_mut(&id) {
            running.withdrawn = Some((EndKind::Replaced, Some(by.into())));
            return;
        }
        let known = Known { namespace: namespace.into(), key: key.map(Into::into), ..Known::default() };
        state.history.ended(id, known, now, EndKind::Replaced, Some(by));
    }

    /// Records an event of the runtime that delivers timers. If the event ends a delivery, returns the HTTP status of
    /// the receiver's answer.
    pub(crate) fn observe(&self, event: &Event) -> Option<u16> {
        match event {
            Event::Ended { attempt, at, ending, took, phase, .. } => {
                self.ended(attempt, *at, ending, *took, *phase)
            }
            Event::LeaseLost { attempt, at, may_be_removed } => {
                self.lost(attempt, *at, RepeatCause::LeaseLost, *may_be_removed)
            }
            Event::EndLost { attempt, at, may_be_removed } => {
                self.lost(attempt, *at, RepeatCause::EndLost, *may_be_removed)
            }
            Event::Expired { id, at, phase } => {
                self.expired(*id, *at, *phase);
                None
            }
            // The event about the end follows, and has no payload.
            Event::Incident(Incident::Skipped { id, payload, .. }) => {
                self.lock().remember(*id, work::head(&payload.0).fingerprint);
                None
            }
            _ => None,
        }
    }

    fn ended(
        &self,
        attempt: &Attempt,
        at: UtcMillis,
        ending: &Ending,
        took: Option<Duration>,
        phase: Phase,
    ) -> Option<u16> {
        let mut state = self.lock();
        let running = state.running.remove(&attempt.id);
        let fingerprint = state.fingerprints.remove(&attempt.id);
        if matches!(phase, Phase::Done | Phase::Withdrawn) {
            self.idempotency.ended(&attempt.namespace, attempt.id, fingerprint);
        }
        let outcome = outcome(ending, phase);
        let is_put_off = matches!(outcome, None | Some(AttemptOutcome::Parked | AttemptOutcome::GivenBack));
        let word = outcome.map_or("skipped", outcome_name);
        self.metrics.fired.of(word).add(1);
        self.metrics.tenants.of(&attempt.namespace).fired.of(word).add(1);
        if is_lost(ending, phase) {
            self.metrics.lost.add(1);
        }
        if phase == Phase::Done && *ending == Ending::Answered(Verdict::Done) {
            self.metrics.to_ack.record(at - attempt.due);
        }
        if let (Ending::Answered(Verdict::Park(reason)), false) = (ending, is_lost(ending, phase)) {
            state.history.parked(attempt.id, reason);
        }
        let (withdrawn, has_no_answer) = match &running {
            Some(running) => (running.withdrawn.clone(), running.has_no_answer),
            None => (None, false),
        };
        let is_repeated = matches!(phase, Phase::Pending | Phase::Parked);
        let may_repeat = match outcome {
            // A delivery that had not started has not reached its receiver.
            _ if !is_repeated || running.is_none() => None,
            Some(AttemptOutcome::Failed) if has_no_answer => Some(RepeatCause::NoAnswer),
            Some(AttemptOutcome::GivenBack) => Some(RepeatCause::GivenBack),
            _ => None,
        };
        if let Some(cause) = may_repeat {
            self.metrics.duplicates.of(cause_name(cause)).add(1);
        }
        let error = match ending {
            Ending::Answered(Verdict::Retry { error, .. } | Verdict::Dead(error)) => Some(&**error),
            _ if is_lost(ending, phase) => Some(LOST),
            _ => None,
        };
        let status = running.as_ref().and_then(|running| running.shown.status);
        // Parked and skipped deliveries do not count as attempts. A delivery that was given back counts only if the
        // receiver may get the timer twice.
        if !is_put_off || may_repeat.is_some() {
            let mut past = running.map_or_else(|| without_start(attempt, at, took), |running| running.shown);
            past.ended = Some(at.into());
            past.took_ms = took.map(millis);
            past.outcome = outcome;
            past.error = error.map(|error| cut(error, LONGEST_ERROR));
            past.may_repeat = may_repeat;
            state.history.attempted(attempt.id, known(attempt), past);
        }
        let detail = error.map(|error| cut(error, LONGEST_ERROR).into());
        let (how, detail) = match (phase, withdrawn) {
            (Phase::Done, _) if *ending == Ending::Skipped => (EndKind::Skipped, None),
            // A timer that is delivered at most once is done even if its delivery failed.
            (Phase::Done, _) if error.is_some() => (EndKind::Failed, detail),
            (Phase::Done, _) => (EndKind::Delivered, None),
            (Phase::Dead, _) => {
                self.metrics.dead.of(death(ending)).add(1);
                (EndKind::Dead, detail)
            }
            (Phase::Withdrawn, Some((how, detail))) => (how, detail),
            // A replacement through this node before the start of the delivery is recorded already.
            (Phase::Withdrawn, None) if state.has_ended(attempt.id) => return status,
            // A replacement through another node is not known here, so it counts as a cancellation.
            (Phase::Withdrawn, None) => (EndKind::Cancelled, None),
            _ => return status,
        };
        // The end is recorded after the attempt, because each new attempt removes the recorded end.
        state.history.ended(attempt.id, known(attempt), at, how, detail.as_deref());
        status
    }

    /// Records the end of a delivery whose result is not known. If the timer may be removed, the fingerprint of its
    /// request stays until the next call of [`may_be_removed`](Self::may_be_removed).
    fn lost(
        &self,
        attempt: &Attempt,
        at: UtcMillis,
        cause: RepeatCause,
        may_be_removed: bool,
    ) -> Option<u16> {
        let mut state = self.lock();
        if !may_be_removed {
            state.fingerprints.remove(&attempt.id);
        }
        self.metrics.fired.of("lost").add(1);
        self.metrics.tenants.of(&attempt.namespace).fired.of("lost").add(1);
        // A delivery that had not started has not reached its receiver, so it is neither an attempt nor a duplicate.
        let running = state.running.remove(&attempt.id)?;
        self.metrics.duplicates.of(cause_name(cause)).add(1);
        let mut past = running.shown;
        past.ended = Some(at.into());
        past.outcome = Some(AttemptOutcome::Lost);
        past.may_repeat = Some(cause);
        let status = past.status;
        state.history.attempted(attempt.id, known(attempt), past);
        status
    }

    /// Describes a delivery that has just ended, for the reconciler, which finds out whether its timer is stored. Takes
    /// the fingerprint of the timer's request out of this record, since no event about an end of the timer may follow
    /// here: another node may deliver it.
    pub(crate) fn may_be_removed(&self, attempt: &Arc<Attempt>, at: UtcMillis) -> MayBeRemoved {
        let fingerprint = self.lock().fingerprints.remove(&attempt.id);
        MayBeRemoved { attempt: Arc::clone(attempt), at, fingerprint }
    }

    /// Records the end of a timer that is delivered at most once, and that the store no longer has: it was asked to
    /// remove the timer, and its answer was lost. Nobody here knows whether it was removed for this delivery, or for
    /// one of another node, after the lease had ended. Returns false if an end of the timer is known.
    pub(crate) fn removed(&self, removed: &MayBeRemoved) -> bool {
        let (attempt, at) = (&*removed.attempt, removed.at);
        let mut state = self.lock();
        if state.has_ended(attempt.id) || state.running.contains_key(&attempt.id) {
            return false;
        }
        self.idempotency.ended(&attempt.namespace, attempt.id, removed.fingerprint);
        self.metrics.lost.add(1);
        let past = PastAttempt {
            ended: Some(at.into()),
            outcome: Some(AttemptOutcome::Lost),
            error: Some(PERHAPS_LOST.into()),
            ..without_start(attempt, at, None)
        };
        state.history.attempted(attempt.id, known(attempt), past);
        state.history.ended(attempt.id, known(attempt), at, EndKind::Failed, Some(PERHAPS_LOST));
        true
    }

    /// Records that a timer's lease (the exclusive right to deliver the timer) expired before the delivery ended.
    /// Usually the process that delivered the timer has died, so the timer's history gets an interruption. The history
    /// gets no interruption if its last attempt has the outcome [`AttemptOutcome::Lost`]. Then the process that runs
    /// this method made the attempt, and lost the lease or could not store the attempt's end.
    fn expired(&self, id: TimerId, at: UtcMillis, phase: Phase) {
        if phase == Phase::Dead {
            self.metrics.dead.of("deliveries").add(1);
        }
        let mut state = self.lock();
        let is_own = state
            .history
            .get(id)
            .and_then(|entry| entry.attempts.back())
            .is_some_and(|attempt| attempt.outcome == Some(AttemptOutcome::Lost));
        if is_own {
            return;
        }
        if phase != Phase::Dead {
            self.metrics.duplicates.of(cause_name(RepeatCause::ProcessDied)).add(1);
        }
        state.history.interrupted(id, at);
    }

    /// Returns the number of remembered fingerprints.
    #[cfg(test)]
    pub(crate) fn fingerprints(&self) -> usize {
        self.lock().fingerprints.len()
    }

    /// Forgets the histories of all timers in a namespace.
    pub(crate) fn forget(&self, namespace: &str) {
        self.lock().history.forget(namespace);
    }

    // --- Reports ---

    /// Returns the remembered history of a timer, and the timer's running attempt. Each of the two values is `None` if
    /// it does not exist. A timer whose first attempt is running has a history without attempts.
    pub(crate) fn past(&self, namespace: &str, id: TimerId) -> (Option<Entry>, Option<PastAttempt>) {
        let state = self.lock();
        // An id may name a timer of another namespace, whose attempts the caller must not see.
        let under_way = state.running.get(&id).filter(|running| *running.known.namespace == *namespace);
        let without_attempts = || Some(Entry::of(under_way?.known.clone()));
        let entry = state.history.get(id).cloned().or_else(without_attempts);
        (entry, under_way.map(|running| running.shown.clone()))
    }

    /// Returns the namespace of a timer whose history is remembered or whose delivery is running, or `None`.
    pub(crate) fn namespace_of(&self, id: TimerId) -> Option<Box<str>> {
        let state = self.lock();
        let remembered = state.history.get(id).map(|entry| &entry.known);
        let known = remembered.or_else(|| state.running.get(&id).map(|running| &running.known));
        known.map(|known| known.namespace.clone())
    }

    /// Returns a page of the remembered timers that have ended, the latest first, as [`TimerHistory::ended_lately`]
    /// describes.
    pub(crate) fn ended_lately(
        &self,
        before: Option<u64>,
        limit: usize,
        is_wanted: impl Fn(&Known, EndKind) -> bool,
    ) -> (Vec<(TimerId, Entry)>, Option<u64>) {
        self.lock().history.ended_lately(before, limit, is_wanted)
    }

    /// Returns the timer of a namespace that last had this key, if its history is remembered or its delivery is
    /// running. A cancelled timer gives up its key, although its delivery goes on.
    pub(crate) fn last_of(&self, namespace: &str, key: &str) -> Option<TimerId> {
        let state = self.lock();
        let is_it = |known: &Known| *known.namespace == *namespace && known.key.as_deref() == Some(key);
        // No index by key is kept, since few requests come here and each delivery would change it.
        let running = state.running.iter().filter(|(_, running)| is_it(&running.known));
        let running = running.max_by_key(|(_, running)| running.shown.started);
        let remembered = state.history.last_of(namespace, key);
        let ended = |id: TimerId| Some(state.history.get(id)?.end.as_ref()?.at);
        match (running, remembered) {
            (Some((_, running)), Some(id)) if ended(id) >= Some(running.shown.started) => Some(id),
            (Some((id, _)), _) => Some(*id),
            (None, remembered) => remembered,
        }
    }

    /// Returns how late the deliveries of the last hour began, for each second of a minute. A delivery counts in the
    /// second in which it was due.
    pub(crate) fn lateness_by_second(&self) -> Vec<SecondLateness> {
        self.lateness.show(self.now())
    }

    /// Returns the moment at which the last delivery started, or `None` before the first delivery.
    pub(crate) fn last_fire(&self) -> Option<UtcMillis> {
        self.lock().last_fire
    }
}

impl core::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InFlight").field("under_way", &self.lock().running.len()).finish_non_exhaustive()
    }
}

/// Returns whether a timer was removed from the store for its only delivery, and the delivery then ended without
/// showing that the receiver has got the timer. Such a timer can be neither given back nor parked.
pub(crate) fn is_lost(ending: &Ending, phase: Phase) -> bool {
    let has_no_end =
        matches!(ending, Ending::GivenBack | Ending::Answered(Verdict::Park(_) | Verdict::Snooze(_)));
    phase == Phase::Done && has_no_end
}

/// Returns the outcome of a delivery for the timer's history, or `None` if the timer's policy made the runtime skip the
/// delivery.
fn outcome(ending: &Ending, phase: Phase) -> Option<AttemptOutcome> {
    Some(match (ending, phase) {
        (Ending::Skipped, _) => return None,
        _ if is_lost(ending, phase) => AttemptOutcome::Lost,
        // The last permitted attempt also answers `Retry`. Only the phase shows that the timer has died.
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

/// Returns the metrics' label for the reason why a timer died. `ending` says how the timer's last delivery ended.
fn death(ending: &Ending) -> &'static str {
    match ending {
        Ending::Answered(Verdict::Dead(error)) if error.starts_with(BLOCKED) => BLOCKED,
        Ending::Answered(Verdict::Dead(error)) if error.starts_with(GONE) => "gone",
        // The event does not tell apart too many failures and too great an age. A snooze can lead to too great an age.
        Ending::Answered(Verdict::Retry { .. } | Verdict::Snooze(_)) => "failures",
        // After a success, a timer dies only if the plan of its series is invalid.
        Ending::Answered(Verdict::Done) => "plan",
        _ => "refused",
    }
}

/// Makes the record of an attempt whose start was not recorded.
fn without_start(attempt: &Attempt, at: UtcMillis, took: Option<Duration>) -> PastAttempt {
    let begun = UtcMillis::from_millis(at.as_millis().saturating_sub(millis(took.unwrap_or_default())));
    begun_attempt(attempt.attempt, attempt.delivery, [attempt.due, begun, begun])
}

/// Makes the record of an attempt that has begun. `attempt` and `delivery` are the attempt's numbers. `moments` has the
/// moments at which the attempt was due, was claimed, and started.
fn begun_attempt(attempt: u32, delivery: u32, moments: [UtcMillis; 3]) -> PastAttempt {
    let [due, claimed, started] = moments;
    PastAttempt {
        attempt,
        delivery,
        due: due.into(),
        claimed: claimed.into(),
        started: started.into(),
        ended: None,
        late_ms: millis(started - due),
        took_ms: None,
        outcome: None,
        status: None,
        error: None,
        answer: None,
        may_repeat: None,
    }
}
