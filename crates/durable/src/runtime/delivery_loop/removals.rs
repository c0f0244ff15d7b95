//! Has timers removed from the store that are delivered at most once, before their deliveries begin.
//!
//! A *removal* is an [`Op::Skip`] with [`Durability::PowerLoss`], sent when the handler is about to be called or asks
//! to begin. The handler may act only after the answer that this removal took effect. Each removal is sent once. If it
//! does not take effect, the timer is given back by an [`Op::Release`] and keeps its due moment, and a later claim
//! delivers it. So a cancellation, a late delivery and a step of the clock are judged anew, as for any timer.
//!
//! # The states of a delivery at most once
//! All of these deliveries have a lease, which is renewed, except in the state *begun*.
//!
//! | state | [`Removal`](crate::runtime::shared::Removal) | place, thread, permit, slot of a rate | the delivery is | ends with |
//! |---|---|---|---|---|
//! | claimed | `BeforeTheCall`, `ByTheHandler` | held from the call of the executor on | under way | the handler is about to be called, or asks to begin: *waiting*. The lane is shut: *put off* |
//! | waiting | `Asked` | held, until the call of its lane is *long* | under way | the next call of its lane: *at the store*. The lane shuts, or the handler's time passes: *put off*. The handler answers: its operation ends the lease |
//! | at the store | `AtStore`, `AtStoreForLong` | held until the answer. If its call is long, a handler that was not called leaves its place and its thread | under way | the removal took effect: *begun*. It did not, or nobody knows: *put off*. The timer was withdrawn, or the lease was lost: over. The delivery is settled, by its handler, its timeout or the stop: *left* |
//! | left | `AtStore`, `AtStoreForLong` | free | settled | the removal took effect: *lost*. Otherwise the operation of the answer ends the lease, or the delivery is *put off* |
//! | put off | `Asked` or as claimed | free | settled | the end of the pause, or a stop: an `Op::Release`. The lease is lost: over |
//! | begun | `Done` | held | under way | as a delivery at least once, but nothing is stored. Without an answer of the handler: *lost* |
//! | lost | `Done` | free | over | |
//!
//! [`Stats::lost`](crate::Stats::lost) counts *lost*. A removal whose answer is lost may have taken effect. Its timer
//! is put off, and the release finds no lease. The event about this lost lease says that the timer may be removed.
//!
//! # Lanes
//! Removals have lanes of their own, one for each part of the store, beside the ends of deliveries. They wait for a
//! disk or for replicas, which ends and claims do not. So a removal holds up no claim, no end and no renewal. A lane
//! has one call at the store, with at most [`REMOVALS`] removals: if the answer to a call is lost, all its timers may
//! be lost.
//!
//! | gate of a lane | a delivery that asks | begins with | ends with |
//! |---|---|---|---|
//! | `Open` | waits for the next call | the start; a call that was answered | a call fails, is refused, or is long: `Shut`, and all that wait are put off |
//! | `Shut` | is put off; so is a timer that is claimed, without a place | | the call is answered: `Open`. The end of the pause: `Ajar` |
//! | `Ajar` | is the next try, a call of its own: `Shut` | the end of a pause. It gives back the timer that is due first | a try; [`AJAR`] without a try: the next timer is given back |
//!
//! A call is *long* after [`LEAST_LONG`], or after twice the time of the last answers of its lane if that is more
//! ([`Usual`]). A server that syncs its disk once a second needs up to four seconds for a removal: it is asked whether
//! it confirms changes, and then confirms the removal, and each of the two may wait for the end of one sync and for the
//! next. Such answers must not shut a lane, or most timers would be put off for no fault.
//!
//! The pauses grow up to [`Backoff::new`]. When the gate opens, all timers of the lane are given back that were put
//! off. So a part that cannot remove timers costs one delivery for each pause, however many timers wait for it.
//!
//! The timer of a removal that is held by another program ([`Outcome::Held`](crate::store::Outcome::Held)) is put off
//! for [`HELD`]. Its release is then held, too, until that program's transaction ends.

use super::backoff::Backoff;
use super::call::Call;
use crate::panics::survive;
use crate::runtime::shared::{AskedRemoval, RemovalAnswer, Runtime, Until};
use crate::state::{Phase, Refusal};
use crate::store::{Durability, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use crate::supervise::Kept;
use crate::timer::TimerId;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The greatest number of removals in a call.
const REMOVALS: usize = 128;
/// The least time after which a call shuts its lane. The deliveries that wait for the next call are then put off.
const LEAST_LONG: Duration = Duration::from_secs(1);
/// The greatest time after which a call shuts its lane, however long the last answers have taken.
const MOST_LONG: Duration = Duration::from_secs(5);
/// The time for which a delivery may try the first removal of a lane after a pause.
const AJAR: Duration = Duration::from_secs(1);
/// The pause before the timer of a held removal is given back.
const HELD: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Deliveries are put off. If no call is at the store, until this moment.
    Shut(Instant),
    /// One delivery may try a removal. If none does, the next timer is given back at this moment.
    Ajar(Instant),
}

/// The removals for one part of the store.
struct Lane {
    gate: Gate,
    /// The deliveries that wait for the next call, in the order in which they asked.
    waiting: VecDeque<u64>,
    call: Option<AtStore>,
    backoff: Backoff,
}

/// The call of a lane that the store has not answered.
struct AtStore {
    since: Instant,
    /// The time after which the call is long.
    longest: Duration,
    /// The numbers of the deliveries whose timers the call removes.
    batch: Vec<u64>,
    /// True once the call has taken longer than `longest`.
    is_long: bool,
}

/// The times that the last answers of each lane have taken. A lane without work is forgotten, and its time stays.
#[derive(Default)]
struct Usual(HashMap<u32, Duration>);

impl Usual {
    /// Notes the time of an answer. A shorter time counts slowly, since the answers of one server differ by a sync. A
    /// time beyond the greatest is that of an outage, and does not count.
    fn note(&mut self, lane: u32, took: Duration) {
        if took > MOST_LONG {
            return;
        }
        let before = self.0.get(&lane).copied().unwrap_or_default();
        let usual = took.max(before * 7 / 8);
        // The time makes no difference if it is this short.
        if usual * 2 <= LEAST_LONG {
            self.0.remove(&lane);
        } else {
            self.0.insert(lane, usual);
        }
    }

    fn longest(&self, lane: u32) -> Duration {
        self.0.get(&lane).map_or(LEAST_LONG, |usual| (*usual * 2).clamp(LEAST_LONG, MOST_LONG))
    }
}

impl Lane {
    fn new(lease: Duration) -> Self {
        Self { gate: Gate::Open, waiting: VecDeque::new(), call: None, backoff: Backoff::new(lease) }
    }

    /// Returns the moment at which the lane needs its next step without an answer.
    fn next(&self) -> Option<Instant> {
        match (&self.call, self.gate) {
            (Some(call), _) => (!call.is_long).then_some(call.since + call.longest),
            (None, Gate::Open) => None,
            (None, Gate::Shut(until) | Gate::Ajar(until)) => Some(until),
        }
    }
}

/// The call that removes timers from one part of the store.
struct Remove {
    lane: u32,
    call: Call<Vec<Outcome>>,
}

impl Future for Remove {
    type Output = (u32, Result<Vec<Outcome>, StoreError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lane = self.lane;
        Pin::new(&mut self.call).poll(context).map(|result| (lane, result))
    }
}

/// Has the store remove the timers of deliveries at most once that are about to begin.
pub(super) struct Removals {
    store: Arc<dyn TimerStore>,
    store_parts: u32,
    lease: Duration,
    lanes: HashMap<u32, Lane>,
    usual: Usual,
    calls: FuturesUnordered<Remove>,
    errors: Vec<StoreError>,
    /// The works of handlers that have not waited on their threads, and whose deliveries begin now.
    begun: Vec<Kept>,
}

impl Removals {
    pub(super) fn new(store: Arc<dyn TimerStore>, lease: Duration) -> Self {
        // The loop catches panics of the store only within its steps. This call comes before the first step.
        let store_parts = survive(|| store.parts()).unwrap_or_default();
        let (lanes, calls) = (HashMap::new(), FuturesUnordered::new());
        let (errors, begun) = (Vec::new(), Vec::new());
        Self { store, store_parts, lease, lanes, usual: Usual::default(), calls, errors, begun }
    }

    fn lane_of(&self, id: TimerId) -> u32 {
        match self.store_parts {
            0 => 0,
            // The loop makes this call between its steps, where a panic of the store would end the loop.
            _ => survive(|| self.store.part_of(id)).unwrap_or_default(),
        }
    }

    /// Returns the lane of a timer if deliveries of the lane are put off at present.
    pub(super) fn shut_lane(&self, id: TimerId) -> Option<u32> {
        let number = self.lane_of(id);
        self.lanes.get(&number).filter(|lane| matches!(lane.gate, Gate::Shut(_))).map(|_| number)
    }

    /// Returns true if a delivery that asks for a removal now must not wait until a call is answered.
    pub(super) fn wants_requests(&self) -> bool {
        let is_busy = |lane: &Lane| lane.gate == Gate::Open && lane.call.is_some();
        self.store_parts > 1 || !self.lanes.values().any(is_busy)
    }

    /// Returns the moment at which the oldest unanswered call began.
    pub(super) fn since(&self) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| Some(lane.call.as_ref()?.since)).min()
    }

    /// Returns the moment of the next step that needs no answer of the store.
    pub(super) fn first_rest(&self) -> Option<Instant> {
        self.lanes.values().filter_map(Lane::next).min()
    }

    pub(super) fn take_errors(&mut self) -> Vec<StoreError> {
        core::mem::take(&mut self.errors)
    }

    /// Removes and returns the works that must be handed to executors again, because their deliveries begin now.
    pub(super) fn take_begun(&mut self) -> Vec<Kept> {
        core::mem::take(&mut self.begun)
    }

    /// Takes over deliveries that want to begin.
    pub(super) fn take(&mut self, runtime: &Runtime, asked: Vec<AskedRemoval>) {
        for AskedRemoval { number, id } in asked {
            let of_lane = self.lane_of(id);
            let lane = self.lanes.entry(of_lane).or_insert_with(|| Lane::new(self.lease));
            match lane.gate {
                Gate::Shut(_) => runtime.put_off_asked([number], Until::Lane(of_lane)),
                Gate::Open => lane.waiting.push_back(number),
                Gate::Ajar(until) => {
                    lane.gate = Gate::Shut(until);
                    lane.waiting.push_back(number);
                }
            }
        }
        let idle: Vec<u32> =
            self.lanes.iter().filter(|(_, lane)| lane.call.is_none()).map(|(n, _)| *n).collect();
        idle.into_iter().for_each(|number| self.send(runtime, number));
    }

    /// Sends the next removals of a lane whose last call was answered.
    fn send(&mut self, runtime: &Runtime, number: u32) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let (mut batch, mut ops) = (Vec::new(), Vec::new());
        {
            let mut state = runtime.lock();
            while batch.len() < REMOVALS
                && let Some(delivery) = lane.waiting.pop_front()
            {
                if let Some((id, token)) = state.deliveries.send_removal(delivery) {
                    batch.push(delivery);
                    ops.push(Op::Skip(id, token));
                }
            }
        }
        if batch.is_empty() {
            return;
        }
        let longest = self.usual.longest(number);
        lane.call = Some(AtStore { since: Instant::now(), longest, batch, is_long: false });
        self.calls.push(Remove { lane: number, call: remove(Arc::clone(&self.store), ops) });
    }

    /// Polls the calls, handles the answers, and makes the steps of the lanes that need no answer.
    pub(super) fn poll(&mut self, runtime: &Runtime, context: &mut Context<'_>) {
        while let Poll::Ready(Some((number, result))) = self.calls.poll_next_unpin(context) {
            self.answer(runtime, number, result);
        }
        let now = Instant::now();
        let is_over = |lane: &Lane| lane.next().is_some_and(|next| next <= now);
        let over: Vec<u32> = self.lanes.iter().filter(|(_, lane)| is_over(lane)).map(|(n, _)| *n).collect();
        over.into_iter().for_each(|number| self.step(runtime, number, now));
    }

    /// Makes the step of a lane whose call takes long, or whose pause is over.
    fn step(&mut self, runtime: &Runtime, number: u32, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if let Some(call) = &mut lane.call {
            call.is_long = true;
            runtime.note_long_removals(&call.batch);
            if lane.gate == Gate::Open {
                shut(runtime, number, lane, now);
            }
            return;
        }
        let is_given_back = runtime.lock().release_first(number);
        match is_given_back {
            true => lane.gate = Gate::Ajar(now + AJAR),
            // No timer waits for the lane. The next delivery tries it.
            false => drop(self.lanes.remove(&number)),
        }
    }

    fn answer(&mut self, runtime: &Runtime, number: u32, result: Result<Vec<Outcome>, StoreError>) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some(AtStore { since, batch, .. }) = lane.call.take() else { return };
        let (until, now) = (Until::Lane(number), Instant::now());
        let refused = Outcome::Refused(Refusal::State(Phase::Leased));
        match result {
            Ok(outcomes) => {
                runtime.reporter.store_answered();
                let is_refused = outcomes.contains(&refused);
                match is_refused {
                    true => shut(runtime, number, lane, now),
                    false => {
                        lane.gate = Gate::Open;
                        lane.backoff.reset();
                        self.usual.note(number, now.duration_since(since));
                    }
                }
                for (delivery, outcome) in batch.into_iter().zip(outcomes) {
                    let until = if outcome == Outcome::Held { Until::Moment(now + HELD) } else { until };
                    let outcome = RemovalAnswer::Outcome(outcome);
                    self.begun.extend(runtime.removal_answered(delivery, outcome, until).map(|work| *work));
                }
                if !is_refused {
                    runtime.lock().release_lane(number);
                }
            }
            Err(error) => {
                shut(runtime, number, lane, now);
                // A timer that alone causes an error is given up: its lease expires. Others are tried one by one.
                let is_lost =
                    !error.is_transient() && batch.len() == 1 || error.kind() == StoreErrorKind::Closed;
                for delivery in batch {
                    let answer = if is_lost { RemovalAnswer::GivenUp } else { RemovalAnswer::Unknown };
                    let _nothing_begins = runtime.removal_answered(delivery, answer, until);
                }
                self.errors.push(error);
            }
        }
        self.send(runtime, number);
        if self.lanes.get(&number).is_some_and(|lane| lane.gate == Gate::Open && lane.call.is_none()) {
            self.lanes.remove(&number);
        }
    }

    /// Gives up the calls that the store has not answered.
    pub(super) fn give_up(&mut self, runtime: &Runtime) {
        self.calls.clear();
        for (number, lane) in self.lanes.drain() {
            for delivery in lane.call.into_iter().flat_map(|call| call.batch) {
                let until = Until::Lane(number);
                let _nothing_begins = runtime.removal_answered(delivery, RemovalAnswer::GivenUp, until);
            }
        }
    }
}

/// Shuts a lane, and puts off the deliveries that wait for its next call.
fn shut(runtime: &Runtime, number: u32, lane: &mut Lane, now: Instant) {
    lane.gate = Gate::Shut(now + lane.backoff.next());
    runtime.put_off_asked(lane.waiting.drain(..), Until::Lane(number));
}

fn remove(store: Arc<dyn TimerStore>, ops: Vec<Op>) -> Call<Vec<Outcome>> {
    Call::new(async move {
        let count = ops.len();
        let outcomes = store.apply(ops, Durability::PowerLoss).await?;
        // A removal without an outcome would never leave this module, and a stop would wait for it.
        match outcomes.len() == count {
            true => Ok(outcomes),
            false => {
                Err(StoreError::new(StoreErrorKind::Corrupt, "the store gave another number of outcomes"))
            }
        }
    })
}
