//! Reports the ends of deliveries to the store.
//!
//! An *end* is the decided result of a delivery, as an operation for the store. The calls that report ends are futures
//! of one [`FuturesUnordered`]. The loop polls these futures between its other steps, and while it waits for a claim.
//! If a part of the store does not answer, only the ends for this part have to wait. Claims go on, except on a store
//! without parts (C4).
//!
//! # Held ends
//! A store on a server may answer that a transaction of another program holds the timer of an end
//! ([`Outcome::Held`]). Such an end is *held*. Nothing is known about the length of that transaction, so a held end
//! holds up no other end: the held ends are a part of their own, [`HELD`], beside the parts of the store.
//!
//! A store may also *refuse* an end for now, because its server does not confirm changes at present. The answer is that
//! the timer stays leased. A store refuses an [`Op::Skip`](crate::store::Op::Skip) with the durability of a removal in
//! this way ([`removals`](super::removals)). The skip of a late timer has this durability if the program demands it for
//! all ends. Such an end is held, too: its lease is renewed, and the skip is sent until the store has made it.
//!
//! # Parts
//! Some stores have parts: a part may fail while other parts answer ([`TimerStore::parts`]). A store without parts is
//! treated as a single part. The ends for a part are sent in their order, in one batch at a time. Ends that are decided
//! before the answer form the next batch. A part without ends is removed from the map.
//!
//! | state of a part | begins with | ends with |
//! |---|---|---|
//! | `AtStore` | an end, or the end of a pause | the answer: the next batch is sent, or the part is removed; an error: `Resting` |
//! | `Resting` | an error, a panic of the store; in `HELD` also an end that is held again, or the first held end | the end of the pause: the same batch again, or all held ends; the stop of the runtime: the same at once |
//!
//! After an error that is not transient, the batch is not repeated. After a pause its ends are sent one by one, since a
//! single end may have caused the error. An end that fails alone is *lost*: its lease expires, and the timer is
//! delivered again. If the store is closed, the whole batch is lost. During a stop, a batch is lost in two more cases:
//! the pauses have reached their greatest length, or the leases have expired. An end that is held after the patience of
//! the stop is lost, too.
//!
//! # Invariants
//! C1. At any moment an end is in a single place: in the state under the runtime's lock, in a queue of this module, in
//!     a call at the store, or among the answers. It leaves this module once, as stored or as lost.
//! C2. If a timer is claimed while ends of its deliveries are in this module, the new delivery begins after the
//!     answers to all these ends. So the store can accept at most one of the timer's ends in this module. The store
//!     gets the ends of a timer in their order. An observer gets the timer's deliveries in their order, too.
//! C3. While an end or a claimed timer is in this module, its lease is renewed. So no reap of expired leases ends this
//!     lease. A claimed timer whose lease is lost is dropped, because another claim has the timer.
//! C4. In a store without parts, such as a file, claims and ends wait for the same disk. So nothing is claimed while
//!     this module has ends for such a store. Held ends do not count: other programs decide how long they wait.
//!
//! # Races
//! - *The end took effect, and its answer is lost.* The end is sent again. The store refuses it, since the lease has
//!   already ended. The runtime counts a lost lease. Nothing is delivered a second time.
//! - *The lease expires during the pause before the end is sent again.* Another holder delivers the timer. The store
//!   refuses the end by its token.
//! - *A renewal and an end of the same lease are at the store.* If the store handles the end first, the renewal finds
//!   the lease lost. The delivery is no longer under way, so no lost lease is counted.
//! - *The stop comes while an end is at the store.* The stop waits for the answer.

use super::backoff::Backoff;
use super::call::Call;
use super::renewals::Answer;
use crate::panics::survive;
use crate::runtime::shared::DeliveryEnd;
use crate::state::{Phase, Refusal, State, Token};
use crate::store::{Durability, Leased, Outcome, StoreError, StoreErrorKind, TimerStore};
use crate::timer::TimerId;
use core::future::Future;
use core::task::{Context, Poll};
use core::time::Duration;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tourbillon_words::UtcMillis;

/// The greatest number of results of deliveries in a batch. A single call reports a batch to the store.
const BATCH: usize = 4_096;

/// The number of the part that has the held results ([`Outcome::Held`]), of all parts of the store.
const HELD: u32 = u32::MAX;

/// The pause before held results ([`Outcome::Held`]) are sent to the store again.
const HELD_PAUSE: Duration = Duration::from_millis(50);

/// A delivery whose result the store has confirmed, with the outcome in the store.
pub(super) struct Stored {
    pub(super) end: DeliveryEnd,
    pub(super) outcome: Outcome,
    /// The due moment of the timer's next delivery. `None` without an observer, because only events for an observer
    /// contain the moment.
    pub(super) next_due: Option<UtcMillis>,
}

/// A batch of results of deliveries. `Ok` holds results that the store has confirmed. `Err` holds lost results (which
/// the loop no longer tries to report).
pub(super) type BatchAnswer = Result<Vec<Stored>, Vec<DeliveryEnd>>;

/// Results of deliveries that the store has confirmed, and lost results (which the loop no longer tries to report).
#[derive(Default)]
pub(super) struct Answered {
    /// The batches of results of deliveries, in order.
    pub(super) batches: Vec<BatchAnswer>,
    /// Claimed timers whose new deliveries waited for results in `batches`. The new deliveries may begin now (invariant
    /// C2 of [`ends`](super::ends)).
    pub(super) free: Vec<Leased>,
}

/// The results of deliveries for one part of the store (a part can fail while other parts answer). Also has the state
/// of the call that reports these results.
struct Part {
    waiting: VecDeque<DeliveryEnd>,
    /// The results in the present call to the store. During the pause after a failed call, these are the results that
    /// the next call sends again.
    batch: Vec<DeliveryEnd>,
    state: PartState,
    /// The moment at which the last call for this part of the store began. The pause after a failed call does not
    /// change it. From this moment, [`Health::StoreHangs`](crate::Health::StoreHangs) counts the time without an answer
    /// from the store.
    since: Instant,
    backoff: Backoff,
    /// The number of results that must still be sent alone, each in a call of its own. When the store refuses a batch,
    /// the loop sends the results of this batch alone, to find the result that causes the error.
    alone: usize,
}

impl Part {
    /// Makes a part whose first call to the store begins at once.
    fn new(lease: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            batch: Vec::new(),
            state: PartState::AtStore,
            since: Instant::now(),
            backoff: Backoff::new(lease),
            alone: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    AtStore,
    Resting { until: Instant },
}

/// The store's answers to a batch of results of deliveries. Each answer has the outcome in the store for one result,
/// and the due moment of the timer's next delivery.
type Answers = Vec<(Outcome, Option<UtcMillis>)>;

/// The call that reports a batch of results of deliveries to one part of the store. The parts of a store confirm
/// results independently of each other ([`TimerStore::parts`]).
struct Report {
    part: u32,
    call: Call<Answers>,
}

impl Future for Report {
    type Output = (u32, Result<Answers, StoreError>);

    fn poll(mut self: core::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let part = self.part;
        core::pin::Pin::new(&mut self.call).poll(context).map(|result| (part, result))
    }
}

/// Reports the results of deliveries to the store. In the code, such a result is an *end* ([`DeliveryEnd`]). The
/// delivery loop hands the results over to this value, and later takes the store's answers from this value.
pub(super) struct Ends {
    store: Arc<dyn TimerStore>,
    /// The number of parts of the store ([`TimerStore::parts`]), read once at the start. The loop needs the number
    /// while it holds the runtime's lock, and must not call the store under this lock.
    store_parts: u32,
    durability: Durability,
    lease: Duration,
    parts: HashMap<u32, Part>,
    reports: FuturesUnordered<Report>,
    /// The batches that the loop has not taken yet, each with the number of its part.
    answered: Vec<(u32, BatchAnswer)>,
    errors: Vec<StoreError>,
    /// The number of results of deliveries in this value. The delivery loop has handed these results over, and has not
    /// yet taken the store's answers to them.
    count: usize,
    /// The number of results of deliveries in this value for each timer that has any. If such a timer is claimed again,
    /// its new delivery must wait (invariant C2 of [`ends`](super::ends)). A timer has two results if its lease was
    /// lost, and both its old delivery and its new delivery have ended. If the store has no parts
    /// ([`TimerStore::parts`]), counts only the held results ([`Outcome::Held`]). The delivery loop claims no timers of
    /// such a store until the store has answered all other results (invariant C4 of [`ends`](super::ends)).
    ids: HashMap<TimerId, usize>,
    /// The claimed timers whose new deliveries must wait, by id. A new delivery waits until the result of the timer's
    /// last delivery is confirmed or lost (invariant C2 of [`ends`](super::ends)).
    kept: HashMap<TimerId, Leased>,
    /// The moment until which a stop waits for deliveries. `None` while the runtime does not stop.
    stop: Option<Instant>,
}

impl Ends {
    pub(super) fn new(store: Arc<dyn TimerStore>, durability: Durability, lease: Duration) -> Self {
        // The loop catches panics of the store only within its steps. This call comes before the first step.
        let store_parts = survive(|| store.parts()).unwrap_or_default();
        Self {
            store,
            store_parts,
            durability,
            lease,
            parts: HashMap::new(),
            reports: FuturesUnordered::new(),
            answered: Vec::new(),
            errors: Vec::new(),
            count: 0,
            ids: HashMap::new(),
            kept: HashMap::new(),
            stop: None,
        }
    }

    /// Returns true if the store has parts ([`TimerStore::parts`]), which confirm results of deliveries independently
    /// of each other. The delivery loop may claim timers of such a store while results still wait for the store's
    /// answer. Claims of timers from a store without parts must wait for this answer (invariant C4 of
    /// [`ends`](super::ends)).
    pub(super) fn has_parts(&self) -> bool {
        self.store_parts > 0
    }

    /// Returns true if a result of a delivery waits for the store's answer, and is not held ([`is_held`]).
    fn is_reporting(&self) -> bool {
        self.parts.keys().any(|number| *number != HELD)
    }

    /// Returns true if the delivery loop must not claim timers, nor renew leases, before the store has answered
    /// (invariant C4 of [`ends`](super::ends)).
    pub(super) fn holds_up_claims(&self) -> bool {
        !self.has_parts() && self.is_reporting()
    }

    /// Returns true if a new result of a delivery may be sent to the store before the store has answered the earlier
    /// results. Each part of a store ([`TimerStore::parts`]) gets only one batch of results at a time. If the store has
    /// several parts, the new result may belong to a part without a batch, so the method returns true.
    pub(super) fn sends_at_once(&self) -> bool {
        !self.is_reporting() || self.store_parts > 1
    }

    /// Returns the number of results of deliveries in this value. The delivery loop has handed these results over, and
    /// has not yet taken the store's answers to them.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of claimed timers whose new deliveries must wait. A new delivery waits until the result of
    /// the timer's last delivery is confirmed or lost.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Returns the moment at which the oldest unfinished report of results to the store began. The pause after a failed
    /// report is a part of this report. Returns `None` if no report waits for an answer and there is no pause.
    pub(super) fn since(&self) -> Option<Instant> {
        self.parts.values().map(|part| part.since).min()
    }

    /// Returns the moment at which the next failed report of results must be sent again. Each part of the store
    /// ([`TimerStore::parts`]) has its own pause after a failed report. The moment is the end of the pause that ends
    /// first. Returns `None` if there is no pause.
    pub(super) fn first_rest(&self) -> Option<Instant> {
        let rest = |part: &Part| match part.state {
            PartState::AtStore => None,
            PartState::Resting { until } => Some(until),
        };
        self.parts.values().filter_map(rest).min()
    }

    /// Returns the leases that must be renewed although no delivery is under way (invariant C3 of
    /// [`ends`](super::ends)): those of deliveries whose results the store has not answered yet, and those of claimed
    /// timers whose new deliveries wait for these results.
    pub(super) fn leases(&self) -> impl Iterator<Item = (TimerId, Token)> {
        let ends = self.parts.values().flat_map(|part| part.batch.iter().chain(&part.waiting));
        let kept = self.kept.values().map(|leased| (leased.timer.id, leased.token));
        ends.map(|end| (end.delivery.id, end.delivery.token)).chain(kept)
    }

    /// Notes the store's answer to a renewal of leases. The renewed leases last until the moment `until`. Without this
    /// note, a handler of a timer that has waited for longer than a lease would not be called. Drops the claimed timers
    /// whose leases are lost, and returns their number. Held results whose leases are lost count as refused.
    pub(super) fn renewed(&mut self, answer: &Answer, until: UtcMillis) -> usize {
        if let Some(part) = self.parts.get_mut(&HELD) {
            let is_lost = |end: &DeliveryEnd| answer.lost.contains(&(end.delivery.id, end.delivery.token));
            let (lost, waiting) = part.waiting.drain(..).partition::<Vec<_>, _>(is_lost);
            part.waiting = waiting.into();
            let stale = |end| Stored { end, outcome: Outcome::Refused(Refusal::Stale), next_due: None };
            if !lost.is_empty() {
                self.answered.push((HELD, Ok(lost.into_iter().map(stale).collect())));
            }
        }
        let mut dropped = 0;
        self.kept.retain(|id, Leased { timer, token }| {
            // A timer that was claimed during the renewal is in neither set.
            if answer.renewed.contains(&(*id, *token))
                && let State::Leased(lease) = &mut timer.state
            {
                lease.until = until;
            }
            let is_lost = answer.lost.contains(&(*id, *token));
            dropped += usize::from(is_lost);
            !is_lost
        });
        dropped
    }

    /// Takes over results of deliveries, and adds each result to the queue for its part of the store
    /// ([`TimerStore::parts`]). If a part has neither an unanswered call nor a pause after an error, prepares a call
    /// that sends the results in the queue to this part. The prepared calls reach the store at the next
    /// [`poll`](Self::poll).
    pub(super) fn take(&mut self, ends: Vec<DeliveryEnd>) {
        let has_parts = self.has_parts();
        let mut idle = Vec::new();
        for end in ends {
            let id = end.delivery.id;
            let number = match has_parts {
                // The loop makes this call between its steps, where a panic of the store would end the loop.
                true => survive(|| self.store.part_of(id)).unwrap_or_default(),
                false => 0,
            };
            if has_parts {
                *self.ids.entry(id).or_default() += 1;
            }
            self.count += 1;
            let part = self.parts.entry(number).or_insert_with(|| {
                idle.push(number);
                Part::new(self.lease)
            });
            part.waiting.push_back(end);
        }
        idle.into_iter().for_each(|number| self.send(number));
    }

    /// Prepares the call that reports the next batch of results to the part `number` of the store
    /// ([`TimerStore::parts`]). After a failed call, this may be the same batch again. If there is no further result
    /// for this part, removes its entry from `parts`.
    fn send(&mut self, number: u32) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        if part.batch.is_empty() {
            let most = if part.alone > 0 { 1 } else { BATCH };
            part.alone = part.alone.saturating_sub(1);
            part.batch.extend(part.waiting.drain(..most.min(part.waiting.len())));
        }
        if part.batch.is_empty() {
            self.parts.remove(&number);
            return;
        }
        (part.state, part.since) = (PartState::AtStore, Instant::now());
        let call = report(Arc::clone(&self.store), &part.batch, self.durability);
        self.reports.push(Report { part: number, call });
    }

    /// Polls the calls that report results to the store, and handles the answers. First, a part of the store
    /// ([`TimerStore::parts`]) whose pause after a failed call is over gets a new call. After each successful call, the
    /// next batch of results is sent to the same part at once.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let now = Instant::now();
        self.end_rests(|until| until <= now);
        while let Poll::Ready(Some((number, result))) = self.reports.poll_next_unpin(context) {
            self.answer(number, result);
        }
    }

    fn answer(&mut self, number: u32, result: Result<Answers, StoreError>) {
        // A part with a call at the store is always in the map, so this method never returns here.
        let Some(part) = self.parts.get_mut(&number) else { return };
        let error = match result {
            Ok(answers) => {
                part.backoff.reset();
                let (mut stored, mut held) = (Vec::with_capacity(answers.len()), Vec::new());
                for (end, (outcome, next_due)) in core::mem::take(&mut part.batch).into_iter().zip(answers) {
                    match is_held(&outcome) {
                        true => held.push(end),
                        false => stored.push(Stored { end, outcome, next_due }),
                    }
                }
                if !stored.is_empty() {
                    self.answered.push((number, Ok(stored)));
                }
                if !self.hold(number, held) {
                    self.send(number);
                }
                return;
            }
            Err(error) => error,
        };
        let rest = part.backoff.next();
        let is_over = self.stop.is_some() && part.backoff.is_longest();
        if error.is_transient() && !is_over {
            // The same batch is sent again after the pause.
        } else if part.batch.len() > 1 && error.kind() != StoreErrorKind::Closed && !error.is_transient() {
            // The ends return to the front of the queue in their order, because `alone` counts from the front.
            part.alone += part.batch.len();
            part.batch.drain(..).rev().for_each(|end| part.waiting.push_front(end));
        } else {
            self.answered.push((number, Err(core::mem::take(&mut part.batch))));
        }
        part.state = PartState::Resting { until: Instant::now() + rest };
        self.errors.push(error);
    }

    /// Adds results to the part [`HELD`]. The part `from` has just got the answer that these results are held
    /// ([`is_held`]). Returns true if `from` is [`HELD`], and now rests. Once the stop no longer waits for
    /// deliveries, counts the results as lost instead: their leases expire.
    fn hold(&mut self, from: u32, held: Vec<DeliveryEnd>) -> bool {
        let now = Instant::now();
        if held.is_empty() {
            return false;
        }
        if self.stop.is_some_and(|until| until <= now) {
            self.answered.push((from, Err(held)));
            return false;
        }
        if from != HELD && !self.has_parts() {
            held.iter().for_each(|end| *self.ids.entry(end.delivery.id).or_default() += 1);
        }
        let resting = PartState::Resting { until: now + HELD_PAUSE };
        let part = self.parts.entry(HELD).or_insert_with(|| Part { state: resting, ..Part::new(self.lease) });
        part.waiting.extend(held);
        if from == HELD {
            part.state = resting;
        }
        from == HELD
    }

    fn end_rests(&mut self, is_over: impl Fn(Instant) -> bool) {
        let has_rested = |part: &Part| match part.state {
            PartState::AtStore => false,
            PartState::Resting { until } => is_over(until),
        };
        let rested = self.parts.iter().filter(|(_, part)| has_rested(part)).map(|(number, _)| *number);
        rested.collect::<Vec<_>>().into_iter().for_each(|number| self.send(number));
    }

    /// Ends all pauses after errors, so that the failed batches of results are sent again at once. From now on, a
    /// failed batch is sent again only while the pauses still grow. If the next pause would have the greatest length,
    /// the batch is given up. Held results ([`Outcome::Held`]) are sent again until the moment `until`. Further calls
    /// of this method only set this moment.
    pub(super) fn stop(&mut self, until: Instant) {
        if self.stop.replace(until).is_none() {
            self.end_rests(|_| true);
        }
    }

    /// Counts all results of deliveries as lost if the store has not answered them, and no longer tries to report them.
    /// Drops the claimed timers whose new deliveries wait for these results.
    pub(super) fn give_up(&mut self) {
        self.reports.clear();
        for (number, mut part) in self.parts.drain() {
            part.batch.extend(part.waiting);
            self.answered.push((number, Err(part.batch)));
        }
        // No lease was renewed for the length of a lease, so the lease of such a timer has expired by now.
        self.kept.clear();
    }

    /// Removes and returns the results of deliveries that the store has confirmed or that are lost. Also returns the
    /// claimed timers whose new deliveries waited for these results.
    pub(super) fn take_answered(&mut self) -> Answered {
        let (answered, has_parts) = (core::mem::take(&mut self.answered), self.has_parts());
        let mut free = Vec::new();
        let mut forget = |number: u32, id: TimerId| {
            self.count -= 1;
            if !has_parts && number != HELD {
                return;
            }
            let left = self.ids.get_mut(&id).map_or(0, |left| {
                *left -= 1;
                *left
            });
            if left == 0 {
                self.ids.remove(&id);
                free.extend(self.kept.remove(&id));
            }
        };
        for (number, batch) in &answered {
            match batch {
                Ok(stored) => stored.iter().for_each(|stored| forget(*number, stored.end.delivery.id)),
                Err(lost) => lost.iter().for_each(|end| forget(*number, end.delivery.id)),
            }
        }
        Answered { batches: answered.into_iter().map(|(_, batch)| batch).collect(), free }
    }

    /// Removes and returns the errors that the store has returned.
    pub(super) fn take_errors(&mut self) -> Vec<StoreError> {
        core::mem::take(&mut self.errors)
    }

    /// Keeps a claimed timer in this value if the result of the timer's last delivery still waits here for the store's
    /// answer, or if the delivery loop has not taken this answer yet. The new delivery must then wait. Otherwise
    /// returns the timer, because the new delivery may begin.
    pub(super) fn keep(&mut self, leased: Leased) -> Option<Leased> {
        if !self.ids.contains_key(&leased.timer.id) {
            return Some(leased);
        }
        // If an earlier claim of the timer waits here, the store has leased the timer again, and that lease is lost.
        self.kept.insert(leased.timer.id, leased);
        None
    }
}

/// Returns true if the store has not made an end, and will make it later: a transaction of another program holds the
/// timer, or the server does not confirm changes at present. Before it confirms changes, it need not look at the lease:
/// [`Ends::renewed`] finds that the lease is lost.
fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held | Outcome::Refused(Refusal::State(Phase::Leased)))
}

/// Makes the call that reports results of deliveries to the store. For an observer, the call also reads when the next
/// deliveries are due.
fn report(store: Arc<dyn TimerStore>, ends: &[DeliveryEnd], durability: Durability) -> Call<Answers> {
    let ops = ends.iter().map(|end| end.op.clone()).collect();
    let observed: Vec<Option<TimerId>> =
        ends.iter().map(|end| end.delivery.observed.is_some().then_some(end.delivery.id)).collect();
    Call::new(async move {
        let outcomes = store.apply(ops, durability).await?;
        // An end without an outcome would never leave this module, and a stop would wait for it.
        if outcomes.len() != observed.len() {
            return Err(StoreError::new(
                StoreErrorKind::Corrupt,
                "the store gave another number of outcomes",
            ));
        }
        let mut answers = Vec::with_capacity(outcomes.len());
        for (outcome, observed) in outcomes.into_iter().zip(observed) {
            let mut next_due = None;
            if let Some(next) = observed.and_then(|id| next_delivery(id, &outcome)) {
                // The store has accepted the end. If this read fails, only the event for the observer lacks the moment.
                next_due = store.get(next.into()).await.ok().flatten().map(|timer| timer.due);
            }
            answers.push((outcome, next_due));
        }
        Ok(answers)
    })
}

/// Returns the timer that is delivered next after a delivery has ended: the same timer, or the next occurrence of its
/// series. Returns `None` if no delivery follows.
fn next_delivery(id: TimerId, outcome: &Outcome) -> Option<TimerId> {
    let Outcome::Ended { phase, next, .. } = outcome else { return None };
    next.or((*phase == Phase::Pending).then_some(id))
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;
