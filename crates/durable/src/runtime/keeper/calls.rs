//! What the loop has at the store while it goes on: the ends of deliveries, and a renewal of leases.
//!
//! These calls are futures that the loop drives: it polls one whose waker was called, between its other steps and while
//! it waits for a claim. So an end that the store does not answer delays the ends of its own part of the store, and no
//! claim.
//!
//! # Parts
//! A store has parts that may be away while others answer ([`TimerStore::parts`]), or none. The ends of a part are sent
//! in their order, in one batch at a time; what comes meanwhile makes the next batch. A part that has nothing is
//! forgotten.
//!
//! | state of a part | begins with | ends with |
//! |---|---|---|
//! | at the store | an end, or the end of a rest | the answer: the next batch is sent, or the part is forgotten; an error: resting |
//! | resting | an error, a panic of the store | the end of the pause: the same batch again; the stop of the runtime: the same batch at once |
//!
//! An error that is not transient has no second attempt. Its batch is sent end by end after the rest, since one of them
//! may be at fault, and an end that fails alone is *lost*: its lease ends by itself, and the timer is delivered again.
//! During a stop a batch is lost as well once its pauses have become long, or once the stop has waited for its lease's
//! length.
//!
//! # Invariants
//! C1. An end is in one place: noted under the loop's lock, waiting here, at the store, or answered. It leaves this
//!     module once, as stored or as lost. C2. At most one end of a timer is here that the store can accept. A delivery
//!     of a timer that is claimed while its end is here begins after the end's answer. So the store gets the ends of a
//!     timer in their order, and an observer sees its deliveries in their order. C3. While an end is here, its lease is
//!     renewed. It is not ended as that of a holder that is gone. C4. A store without parts answers as a whole: nothing
//!     is claimed while ends of it are here.
//!
//! # Races
//! - *The answer of an end is lost, and the end had its effect.* The repetition is refused, since the lease is over:
//!   the runtime counts a lost lease. Nothing is delivered a second time.
//! - *The lease ends while the end rests.* Another holder delivers the timer, and the end is refused by its token.
//! - *A renewal and an end of the same lease are at the store.* If the end comes first, the renewal finds the lease
//!   lost. The delivery is not under way any more, and nothing is counted.
//! - *The stop comes while an end is at the store.* The stop waits for the answer.

use super::pause::Pause;
use crate::runtime::under_way::UnderWay;
use crate::state::{Phase, Token};
use crate::store::{Claimant, Durability, Leased, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use crate::timer::TimerId;
use crate::utc::UtcMillis;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Wake;
use std::time::Instant;

/// The greatest number of ends that are reported in one batch.
const BATCH: usize = 4_096;

/// An end of a delivery: the delivery, and what becomes of its timer.
pub(super) type End = (UnderWay, Op);

/// The call that a waker has called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// The call for which the loop waits.
    Awaited,
    /// The renewal.
    Renewal,
    /// The ends of a part.
    Ends(u32),
}

/// Makes the loop poll a call.
pub(super) type Ring = Arc<dyn Fn(Called) + Send + Sync>;

struct Bell {
    ring: Ring,
    called: Called,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        (self.ring)(self.called);
    }
}

type Call<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// The outcomes of ends, and for an observer the moments from which the next deliveries are due.
type Stored = Vec<(Outcome, Option<UtcMillis>)>;

/// What became of some ends.
pub(super) enum Answered {
    /// The store has them.
    Stored(Vec<End>, Stored),
    /// The store has not answered, and is not asked again.
    Lost(Vec<End>),
}

/// A lease of a delivery that is under way: its number, the timer, the token.
pub(super) type Held = (u64, TimerId, Token);

/// A renewal that was answered: the leases of deliveries under way, the moment before it was sent, the leases that are
/// lost.
pub(super) struct Renewed {
    pub(super) leases: Vec<Held>,
    pub(super) begin: UtcMillis,
    pub(super) lost: Result<Vec<TimerId>, StoreError>,
}

struct Part {
    waiting: VecDeque<End>,
    /// What is at the store, or rests.
    batch: Vec<End>,
    call: Option<Call<Stored>>,
    /// The end of a rest.
    rest: Option<Instant>,
    pause: Pause,
    /// So many of the next ends are sent one by one.
    alone: usize,
    waker: Waker,
    /// Since when the batch is at the store or rests.
    since: Instant,
}

struct Renewal {
    leases: Vec<Held>,
    begin: UtcMillis,
    call: Call<Vec<TimerId>>,
    since: Instant,
}

/// The calls of a loop.
pub(super) struct Calls {
    store: Arc<dyn TimerStore>,
    durability: Durability,
    claimant: Claimant,
    ring: Ring,
    parts: HashMap<u32, Part>,
    /// The number of parts that rest.
    resting: usize,
    renewal: Option<Renewal>,
    renewed: Option<Renewed>,
    answered: Vec<Answered>,
    /// Errors that nobody has reported yet.
    pub(super) errors: Vec<StoreError>,
    /// The number of ends here, and their timers if the store has parts (C2).
    count: usize,
    ids: HashSet<TimerId>,
    /// Claimed timers whose ends are here (C2).
    waiting: HashMap<TimerId, Vec<Leased>>,
    is_stopping: bool,
}

impl Calls {
    pub(super) fn new(
        store: Arc<dyn TimerStore>,
        durability: Durability,
        claimant: Claimant,
        ring: Ring,
    ) -> Self {
        Self {
            store,
            durability,
            claimant,
            ring,
            parts: HashMap::new(),
            resting: 0,
            renewal: None,
            renewed: None,
            answered: Vec::new(),
            errors: Vec::new(),
            count: 0,
            ids: HashSet::new(),
            waiting: HashMap::new(),
            is_stopping: false,
        }
    }

    pub(super) fn waker(&self, called: Called) -> Waker {
        Waker::from(Arc::new(Bell { ring: Arc::clone(&self.ring), called }))
    }

    /// Whether the store has parts that may be away while others answer (C4).
    pub(super) fn has_parts(&self) -> bool {
        self.store.parts() > 0
    }

    /// Whether an end that comes now is sent at once, perhaps.
    pub(super) fn sends_at_once(&self) -> bool {
        self.parts.is_empty() || self.store.parts() > 1
    }

    /// The number of ends that are here.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(super) fn is_renewing(&self) -> bool {
        self.renewal.is_some() || self.renewed.is_some()
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Since when the longest call is at the store, or rests.
    pub(super) fn since(&self) -> Option<Instant> {
        let renewal = self.renewal.as_ref().map(|renewal| renewal.since);
        self.parts.values().map(|part| part.since).chain(renewal).min()
    }

    /// The first end of a rest.
    pub(super) fn rest(&self) -> Option<Instant> {
        if self.resting == 0 {
            return None;
        }
        self.parts.values().filter_map(|part| part.rest).min()
    }

    /// Takes ends over, and sends them if nothing of their parts is at the store.
    pub(super) fn take(&mut self, ends: Vec<End>) {
        let has_parts = self.has_parts();
        let mut idle = Vec::new();
        for end in ends {
            let id = end.0.id;
            let number = match has_parts {
                true => catch_unwind(AssertUnwindSafe(|| self.store.part_of(id))).unwrap_or_default(),
                false => 0,
            };
            if has_parts {
                self.ids.insert(id);
            }
            self.count += 1;
            if !self.parts.contains_key(&number) {
                let part = Part {
                    waiting: VecDeque::new(),
                    batch: Vec::new(),
                    call: None,
                    rest: None,
                    pause: Pause::new(self.claimant.lease),
                    alone: 0,
                    waker: self.waker(Called::Ends(number)),
                    since: Instant::now(),
                };
                self.parts.insert(number, part);
                idle.push(number);
            }
            if let Some(part) = self.parts.get_mut(&number) {
                part.waiting.push_back(end);
            }
        }
        idle.into_iter().for_each(|number| self.send(number));
    }

    /// Sends the next batch of a part that has nothing at the store, again and again while the store answers at once.
    fn send(&mut self, number: u32) {
        while let Some(part) = self.parts.get_mut(&number) {
            if part.batch.is_empty() {
                let most = if part.alone > 0 { 1 } else { BATCH };
                part.alone = part.alone.saturating_sub(1);
                part.batch = part.waiting.drain(..part.waiting.len().min(most)).collect();
            }
            if part.batch.is_empty() {
                self.parts.remove(&number);
                return;
            }
            part.since = Instant::now();
            part.call = Some(report(Arc::clone(&self.store), &part.batch, self.durability));
            if !self.poll(number) {
                return;
            }
        }
    }

    /// Polls the ends of a part. Returns whether the store has answered, so that the next batch may be sent.
    fn poll(&mut self, number: u32) -> bool {
        let Some(part) = self.parts.get_mut(&number) else { return false };
        let Some(call) = &mut part.call else { return false };
        let Some(result) = polled(call, &part.waker) else { return false };
        part.call = None;
        let error = match result {
            Ok(stored) => {
                part.pause.reset();
                self.answered.push(Answered::Stored(core::mem::take(&mut part.batch), stored));
                return true;
            }
            Err(error) => error,
        };
        let rest = part.pause.next();
        let is_over = self.is_stopping && part.pause.is_long();
        if error.is_transient() && !is_over {
            // The same batch again.
        } else if part.batch.len() > 1 && error.kind() != StoreErrorKind::Closed && !error.is_transient() {
            part.alone += part.batch.len();
            part.batch.drain(..).rev().for_each(|end| part.waiting.push_front(end));
        } else {
            self.answered.push(Answered::Lost(core::mem::take(&mut part.batch)));
        }
        part.rest = Some(Instant::now() + rest);
        self.resting += 1;
        self.errors.push(error);
        false
    }

    /// Polls the calls whose wakers were called, and sends what has rested.
    pub(super) fn advance(&mut self, called: Vec<Called>) {
        for called in called {
            match called {
                Called::Ends(number) => {
                    if self.poll(number) {
                        self.send(number);
                    }
                }
                Called::Renewal => self.poll_renewal(),
                Called::Awaited => {}
            }
        }
        if self.resting > 0 {
            let now = Instant::now();
            self.end_rests(|rest| rest <= now);
        }
    }

    fn end_rests(&mut self, is_over: impl Fn(Instant) -> bool) {
        let mut rested = Vec::new();
        for (number, part) in &mut self.parts {
            if part.rest.take_if(|rest| is_over(*rest)).is_some() {
                rested.push(*number);
            }
        }
        self.resting -= rested.len();
        rested.into_iter().for_each(|number| self.send(number));
    }

    /// Ends all rests, once: what rests is tried again at once, and given up once its pauses are long.
    pub(super) fn stop(&mut self) {
        if !core::mem::replace(&mut self.is_stopping, true) {
            self.end_rests(|_| true);
        }
    }

    /// Gives all ends up that are here, and the timers that wait for them.
    pub(super) fn give_up(&mut self) {
        for (_, mut part) in self.parts.drain() {
            let call = part.call.take();
            let _panic = catch_unwind(AssertUnwindSafe(|| drop(call)));
            part.batch.extend(part.waiting);
            self.answered.push(Answered::Lost(part.batch));
        }
        self.resting = 0;
        self.waiting.clear();
    }

    /// What has been answered since the last call.
    pub(super) fn take_answers(&mut self) -> Vec<Answered> {
        core::mem::take(&mut self.answered)
    }

    /// Lets ends go that were answered. Returns the claimed timers that waited for them (C2).
    pub(super) fn let_go(&mut self, ends: &[End]) -> Vec<Leased> {
        self.count -= ends.len();
        let mut free = Vec::new();
        for (under_way, _) in ends {
            self.ids.remove(&under_way.id);
            free.extend(self.waiting.remove(&under_way.id).unwrap_or_default());
        }
        free
    }

    /// Keeps a claimed timer until its end is answered. Returns it if no end of it is here.
    pub(super) fn keep(&mut self, leased: Leased) -> Option<Leased> {
        if !self.ids.contains(&leased.timer.id) {
            return Some(leased);
        }
        self.waiting.entry(leased.timer.id).or_default().push(leased);
        None
    }

    /// The number of claimed timers that are kept.
    pub(super) fn kept(&self) -> usize {
        self.waiting.len()
    }

    /// Sends a renewal of these leases, and of those whose ends are here (C3).
    pub(super) fn renew(&mut self, leases: Vec<Held>) {
        let ends = self.parts.values().flat_map(|part| part.batch.iter().chain(&part.waiting));
        let ends = ends.filter(|(under_way, _)| under_way.unstored.is_none());
        let ends = ends.map(|(under_way, _)| (under_way.id, under_way.token));
        let tokens: Vec<_> = leases.iter().map(|(_, id, token)| (*id, *token)).chain(ends).collect();
        let (store, claimant) = (Arc::clone(&self.store), self.claimant);
        let begin = self.store.now();
        let call: Call<_> = Box::pin(async move {
            if tokens.is_empty() { Ok(Vec::new()) } else { store.renew(claimant, tokens).await }
        });
        self.renewal = Some(Renewal { leases, begin, call, since: Instant::now() });
        self.poll_renewal();
    }

    fn poll_renewal(&mut self) {
        let waker = self.waker(Called::Renewal);
        let Some(renewal) = &mut self.renewal else { return };
        let Some(lost) = polled(&mut renewal.call, &waker) else { return };
        if let Some(Renewal { leases, begin, .. }) = self.renewal.take() {
            self.renewed = Some(Renewed { leases, begin, lost });
        }
    }

    /// The renewal that was answered since the last call.
    pub(super) fn take_renewed(&mut self) -> Option<Renewed> {
        self.renewed.take()
    }
}

/// The answer of a call, if it is there. A store that panics has failed.
fn polled<T>(call: &mut Call<T>, waker: &Waker) -> Option<Result<T, StoreError>> {
    let mut context = Context::from_waker(waker);
    match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut context))) {
        Ok(Poll::Pending) => None,
        Ok(Poll::Ready(result)) => Some(result),
        Err(_) => Some(Err(StoreError::new(StoreErrorKind::Unknown, "the store panicked"))),
    }
}

/// Reports ends to the store, and reads for an observer when the next deliveries are due.
fn report(store: Arc<dyn TimerStore>, ends: &[End], durability: Durability) -> Call<Stored> {
    let ops = ends.iter().map(|(_, op)| op.clone()).collect();
    let observed = |(its, op): &End| its.observed.is_some().then(|| (its.id, phase_of(op)));
    let observed: Vec<Option<(TimerId, Option<Phase>)>> = ends.iter().map(observed).collect();
    Box::pin(async move {
        let outcomes = store.apply(ops, durability).await?;
        let mut stored = Vec::with_capacity(outcomes.len());
        for (outcome, observed) in outcomes.into_iter().zip(observed) {
            let mut due = None;
            if let Some(next) = observed.and_then(|(id, returned)| next_delivery(id, returned, &outcome)) {
                due = store.get(next.into()).await.ok().flatten().map(|timer| timer.due);
            }
            stored.push((outcome, due));
        }
        Ok(stored)
    })
}

/// The phase of a timer that is stored again.
fn phase_of(op: &Op) -> Option<Phase> {
    match op {
        Op::Return(timer, _) => Some(timer.state.phase()),
        _ => None,
    }
}

/// The timer that is delivered next, after an end.
fn next_delivery(id: TimerId, returned: Option<Phase>, outcome: &Outcome) -> Option<TimerId> {
    let (phase, next) = match (returned, outcome) {
        (Some(phase), _) => (phase, None),
        (None, Outcome::Ended { phase, next, .. }) => (*phase, *next),
        (None, _) => return None,
    };
    next.or((phase == Phase::Pending).then_some(id))
}
