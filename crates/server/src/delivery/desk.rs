//! The desk at which receivers fetch timers.
//!
//! A timer with a queue is handed to the receiver that has waited longest, and is parked if none waits. A receiver that
//! comes has parked timers unparked, as many as it wants. A timer that is handed over stays leased, by the future of
//! its handler, until the receiver acknowledges or refuses it, or its time is over.
//!
//! ```text
//!   timer is due ── a receiver waits ──► open claim ── ack ──► done
//!       │    ▲                            │   │  └──── nack, time over ──► failed: again after the pause
//!       │    └───── unpark ◄──────┐       │   └─── renew: more time, up to an hour in all
//!       └── none waits ──► parked ┴───────┘ the receiver has gone before it got the claim; the service stops
//! ```
//!
//! # Beside other nodes
//! A receiver's queue has parked timers in shards of all nodes. So a receiver that comes has them *fetched*: claimed by
//! the queue, at whatever node they are ([`Timers::fetch`](tourbillon_durable::Timers::fetch)), and a park at any node
//! makes the nodes with receivers fetch again. A fetch takes more than the receivers want if many are parked, since a
//! larger one costs the server less for each timer. A fetched timer that finds no receiver waits at the *shelf* for the
//! next one, the longest due first, and is parked again a second after it has come. A receiver that does not want to
//! wait is sent away as soon as a fetch has found nothing.
//!
//! ```text
//!   fetched ── a receiver waits ──► open claim
//!      │                             ▲   │ another timer was quicker, or the receiver has gone
//!      │                             │   ▼
//!      └─────── none waits ────────► shelf ── a second is over, the service stops ──► parked: all nodes learn
//! ```
//!
//! Whether a receiver waits and the place at the shelf are found under one lock, so no timer waits there beside a
//! receiver that wants more than those that are about to be handed over. One of these that goes wakes the first one at
//! the shelf.
//!
//! An `ack` and a `nack` are answered once the store has the end of the delivery. The claim is *ending* until then:
//!
//! ```text
//!   open ── ack, nack ──► ending ── the store has this end ──► answered: done
//!                           │  ├─── the lease was lost, or another end came first ──► answered: the claim had ended
//!                           │  ├─── the store did not answer ──► answered: the outcome is not known
//!                           │  └─── the handler was dropped ──► no claim of this desk
//!                           └── the same order again ──► waits for the same answer; another order: the claim has ended
//! ```
//!
//! A caller that has waited for [`PATIENCE`] gets the answer that the outcome is not known. The end goes on.
//!
//! A namespace has a share ([`free_for`]) of the open claims and of the receivers that wait.
//!
//! No wake-up is lost between a timer that is about to be parked and a receiver that has just come: see
//! [`Board`](super::board).

use super::board::Board;
use super::places::Wanted;
use super::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};
use tourbillon_api::{Claim, Moment, Problem, ProblemKind};
use tourbillon_durable::{UtcMillis, Verdict};

/// The time in which an unparked timer should have arrived.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// The time for which a receiver that does not want to wait gets timers that are parked: they are unparked first.
const PARKED_WAIT: Duration = Duration::from_millis(500);
/// The time for which a receiver that has got a timer and wants more waits for them.
const GATHERING: Duration = Duration::from_millis(20);
/// The time within which a fetch ends.
const LONGEST_FETCH: Duration = Duration::from_secs(30);
/// The time for which a fetched timer waits for a receiver.
const SHELF: Duration = Duration::from_secs(1);
/// A fetch takes this many times the largest request beyond what receivers want, and this many timers beyond it at
/// most.
const SPARE: (usize, usize) = (7, 350);
/// The greatest number of receivers that wait.
const MOST_WAITING: usize = 10_000;
/// The pause after which a receiver may ask again if a limit was reached.
const AGAIN_MS: u64 = 1_000;

/// The time for which the end of a claim waits for the store: less than a client waits for an answer, which says more
/// than that there was none.
const PATIENCE: Duration = Duration::from_secs(8);

/// What a receiver wants of an open claim.
#[derive(Debug)]
pub(crate) enum Order {
    /// The delivery's end. The receiver gets its answer once the store has the end.
    End(Verdict, Ticket),
    /// More time. The sender gets the moment at which the time is over.
    Renew(oneshot::Sender<Moment>),
}

#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    board: Arc<Board>,
    most_open: usize,
    /// Other nodes park timers of the same queues.
    has_others: bool,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    queues: HashMap<Reason, Queue>,
    open: HashMap<Box<str>, Open>,
    ending: HashMap<Box<str>, Ending>,
    waiting: usize,
    next_receiver: u64,
    tenants: HashMap<Box<str>, Tenant>,
    /// The queues whose receivers could not get all that they want.
    starved: HashSet<Reason>,
    shelves: HashMap<Reason, Shelf>,
    next_on_shelf: u64,
}

/// Timers that are on their way to the desk, and are expected until that moment.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    timers: usize,
    until: Option<Instant>,
}

impl Coming {
    fn at(&self, now: Instant) -> usize {
        if self.until.is_some_and(|until| now < until) { self.timers } else { 0 }
    }

    fn more(&mut self, timers: usize, within: Duration) {
        let now = Instant::now();
        *self = Self { timers: self.at(now) + timers, until: Some(now + within) };
    }

    fn fewer(&mut self, timers: usize) {
        self.timers = self.timers.saturating_sub(timers);
    }
}

/// The fetched timers of a queue for which no receiver waits.
#[derive(Debug, Default)]
struct Shelf {
    /// The fetched timers that have not come yet.
    coming: Coming,
    /// Those that wait, by their due moments: the one that is woken by its sender has a receiver.
    waiting: BTreeMap<Place, oneshot::Sender<()>>,
}

/// The due moment of a timer at a shelf, and its number.
type Place = (UtcMillis, u64);

/// What a receiver gets.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is on its way from a timer to a receiver, and nowhere stored"
)]
enum Got {
    /// A claim, and the due moment of its timer.
    Claim(Claim, UtcMillis),
    /// Nothing is parked for the queue at any node.
    Nothing,
}

/// What a namespace has of the desk.
#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    open: usize,
    waiting: usize,
}

impl State {
    fn tenant(&self, namespace: &str) -> Tenant {
        self.tenants.get(namespace).copied().unwrap_or_default()
    }

    /// Changes what a namespace has, which is forgotten once it is nothing.
    fn change(&mut self, namespace: &str, change: impl FnOnce(&mut Tenant)) {
        let mut tenant = self.tenant(namespace);
        change(&mut tenant);
        if tenant.open == 0 && tenant.waiting == 0 {
            self.tenants.remove(namespace);
        } else {
            self.tenants.insert(namespace.into(), tenant);
        }
    }

    /// The number of claims that a namespace may open.
    fn free(&self, namespace: &str, most_open: usize) -> usize {
        free_for(self.tenant(namespace).open, most_open.saturating_sub(self.open.len()))
    }

    /// Wakes the first timer at a shelf, if a receiver waits.
    fn wake_one(&mut self, reason: &Reason) {
        let Some(queue) = self.queues.get_mut(reason).filter(|queue| !queue.receivers.is_empty()) else {
            return;
        };
        while let Some(shelf) = self.shelves.get_mut(reason)
            && let Some((_, waiting)) = shelf.waiting.pop_first()
        {
            if waiting.send(()).is_ok() {
                queue.coming.more(1, ON_THE_WAY);
                return;
            }
        }
    }

    /// Removes an open claim.
    fn remove(&mut self, claim: &str) -> Option<Open> {
        let open = self.open.remove(claim)?;
        self.change(&open.namespace, |tenant| tenant.open = tenant.open.saturating_sub(1));
        Some(open)
    }
}

/// The receivers that wait at a queue, and the timers that were unparked for them and have not arrived.
#[derive(Debug, Default)]
struct Queue {
    receivers: VecDeque<Receiver>,
    coming: Coming,
    /// The timers that have found a receiver and are not handed over yet.
    arriving: usize,
}

#[derive(Debug)]
struct Receiver {
    number: u64,
    max: usize,
    /// Those of `max` that it has not got.
    wants: usize,
    sender: mpsc::UnboundedSender<Got>,
}

#[derive(Debug)]
struct Open {
    namespace: Box<str>,
    orders: mpsc::UnboundedSender<Order>,
}

/// What became of an end that a receiver has ordered. `None` as long as that is not known.
type Answer = Option<Result<(), Problem>>;

/// A claim whose end is on its way to the store.
#[derive(Debug)]
struct Ending {
    namespace: Box<str>,
    verdict: Verdict,
    answer: watch::Receiver<Answer>,
}

/// The right to answer a receiver that has ordered the end of a claim. Without an answer the claim counts as one that
/// is not of this desk.
#[derive(Debug)]
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    claim: Box<str>,
    answer: watch::Sender<Answer>,
}

impl Ticket {
    /// The store has the end.
    pub(crate) fn stored(self) {
        self.answer.send_replace(Some(Ok(())));
    }

    /// The delivery had ended before.
    pub(crate) fn came_late(self) {
        self.answer.send_replace(Some(Err(ended())));
    }

    /// The store did not answer, and is not asked again.
    pub(crate) fn lost(self) {
        let detail =
            "the store did not say whether it has the end; if it has not, the timer is delivered again";
        self.answer.send_replace(Some(Err(unknown(detail))));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.desk.lock().ending.remove(&self.claim);
    }
}

impl Queue {
    fn wants(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.wants).sum()
    }
}

/// The problem of a claim that is not open.
pub(super) fn ended() -> Problem {
    Problem::new(ProblemKind::ClaimEnded, "it was acknowledged or refused, or its time is over")
}

fn unknown(detail: &str) -> Problem {
    Problem::new(ProblemKind::StoreUnavailable, detail).with_unknown_outcome().with_retry_after_ms(AGAIN_MS)
}

impl Desk {
    pub(crate) fn new(board: Arc<Board>, most_open: usize, has_others: bool) -> Self {
        Self { state: Mutex::default(), board, most_open, has_others }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- Receivers ---

    /// Fetches at most `max` timers of a queue. Waits for the first one for at most `wait`.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the timers that it has got are parked again, which is no attempt.
    pub(crate) async fn fetch(
        &self,
        namespace: &str,
        queue: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Claim>, Problem> {
        let reason = Reason::Queue(namespace.into(), queue.into());
        let has_parked = match self.has_others {
            true => self.board.may_have(&reason),
            false => self.board.count(&reason) > 0,
        };
        let (sender, claims) = mpsc::unbounded_channel();
        let (number, has_parked) = {
            let mut state = self.lock();
            let full = |what: &str| {
                let problem = Problem::new(ProblemKind::LimitReached, what);
                Err(problem.with_retry_after_ms(AGAIN_MS))
            };
            if state.is_closed {
                return Err(Problem::new(ProblemKind::Stopping, ""));
            }
            if state.free(namespace, self.most_open) == 0 {
                return full(
                    "as many claims are open as the service permits, or as the namespace's share of them",
                );
            }
            let free = MOST_WAITING.saturating_sub(state.waiting);
            if free_for(state.tenant(namespace).waiting, free) == 0 {
                return full(
                    "as many receivers wait as the service permits, or as the namespace's share of them",
                );
            }
            let number = state.next_receiver;
            (state.next_receiver, state.waiting) = (number + 1, state.waiting + 1);
            state.change(namespace, |tenant| tenant.waiting += 1);
            let queue = state.queues.entry(reason.clone()).or_default();
            queue.receivers.push_back(Receiver { number, max, wants: max, sender });
            // What is on the shelf comes at once.
            let mut woken = 0;
            while woken < max
                && let Some(shelf) = state.shelves.get_mut(&reason)
                && let Some((_, waiting)) = shelf.waiting.pop_first()
            {
                woken += usize::from(waiting.send(()).is_ok());
            }
            let is_coming =
                state.shelves.get(&reason).is_some_and(|shelf| shelf.coming.at(Instant::now()) > 0);
            if let Some(queue) = state.queues.get_mut(&reason).filter(|_| woken > 0) {
                queue.coming.more(woken, ON_THE_WAY);
            }
            (number, has_parked || woken > 0 || is_coming)
        };
        let mut visit = Visit { desk: self, namespace, reason: &reason, number, claims, got: Vec::new() };
        match self.has_others {
            true if has_parked => self.board.want(&reason),
            true => {}
            false => self.board.look_at(&reason),
        }
        let first = if has_parked { wait.max(PARKED_WAIT) } else { wait };
        visit.gather(max, (wait, first)).await;
        Ok(visit.leave())
    }

    /// Ends the delivery of an open claim, and waits until the store has the end. `None` if no such claim is open here.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the end goes on.
    pub(crate) async fn end(
        self: &Arc<Self>,
        namespace: &str,
        claim: &str,
        verdict: Verdict,
    ) -> Option<Result<(), Problem>> {
        let mut answer = match self.begin_end(namespace, claim, &verdict)? {
            Begun::Ordered(open, ticket, answer) => {
                // Outside of the lock, which a ticket that nobody takes wants.
                let _the_handler_has_gone = open.orders.send(Order::End(verdict, ticket));
                answer
            }
            Begun::Before(answer) => answer,
            Begun::Otherwise => return Some(Err(ended())),
        };
        let answered = tokio::time::timeout(PATIENCE, answer.wait_for(Option::is_some)).await;
        match answered {
            Ok(Ok(answer)) => answer.clone(),
            Ok(Err(_)) => None,
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let detail = format!(
                    "the store has not answered within {seconds} s; the timer is delivered again unless it gets the end"
                );
                Some(Err(unknown(&detail)))
            }
        }
    }

    fn begin_end(self: &Arc<Self>, namespace: &str, claim: &str, verdict: &Verdict) -> Option<Begun> {
        let mut state = self.lock();
        if let Some(ending) = state.ending.get(claim) {
            let is_the_same = *ending.namespace == *namespace && ending.verdict == *verdict;
            return Some(if is_the_same { Begun::Before(ending.answer.clone()) } else { Begun::Otherwise });
        }
        state.open.get(claim).filter(|open| *open.namespace == *namespace)?;
        let open = state.remove(claim)?;
        let (sender, answer) = watch::channel(None);
        let claim: Box<str> = claim.into();
        let ending = Ending { namespace: namespace.into(), verdict: verdict.clone(), answer: answer.clone() };
        state.ending.insert(claim.clone(), ending);
        Some(Begun::Ordered(open, Ticket { desk: Arc::clone(self), claim, answer: sender }, answer))
    }

    /// Prolongs an open claim. Returns the moment at which its time is over.
    pub(crate) async fn renew(&self, namespace: &str, claim: &str) -> Result<Moment, Problem> {
        let (sender, until) = oneshot::channel();
        {
            let state = self.lock();
            let open =
                state.open.get(claim).filter(|open| *open.namespace == *namespace).ok_or_else(ended)?;
            open.orders.send(Order::Renew(sender)).map_err(|_| ended())?;
        }
        until.await.map_err(|_| ended())
    }

    // --- Timers ---

    /// Takes a timer that is due.
    pub(crate) fn arrive<'d>(
        self: &'d Arc<Self>,
        reason: &'d Reason,
        namespace: &'d str,
        due: UtcMillis,
    ) -> Arrival<'d> {
        let mut state = self.lock();
        let number = state.next_on_shelf;
        state.next_on_shelf += 1;
        let place = (due, number);
        Arrival { desk: self, reason, namespace, place, shelf_until: None, counted: Counted::Coming }
    }

    /// How many of the timers that are parked for a queue its receivers want.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let mut state = self.lock();
        let Some(queue) = state.queues.get(reason).filter(|_| !state.is_closed) else {
            return Wanted::Nothing;
        };
        let free = match reason {
            Reason::Queue(namespace, _) => state.free(namespace, self.most_open),
            _ => 0,
        };
        let (asked, arriving, unparked) = (queue.wants(), queue.arriving, queue.coming);
        let fetched = state.shelves.get(reason).map_or_else(Coming::default, |shelf| shelf.coming);
        if free < asked {
            state.starved.insert(reason.clone());
        }
        let wants = asked.min(free);
        let coming = [unparked, fetched].into_iter().filter(|coming| coming.at(now) > 0);
        let until = coming.filter_map(|coming| coming.until).min();
        match (wants.saturating_sub(arriving + unparked.at(now) + fetched.at(now)), until) {
            (0, Some(until)) if wants > 0 => Wanted::At(until),
            (0, _) => Wanted::Nothing,
            (timers, _) => Wanted::Now(timers),
        }
    }

    // --- Beside other nodes ---

    /// Notes that a fetch begins, whose timers may come before its answer. Returns the greatest number that it takes.
    pub(crate) fn begin_fetch(&self, reason: &Reason, wanted: usize) -> usize {
        let now = Instant::now();
        let mut state = self.lock();
        let is_of_use = |shelf: &Shelf| shelf.coming.at(now) > 0 || !shelf.waiting.is_empty();
        state.shelves.retain(|_, shelf| is_of_use(shelf));
        let receivers = state.queues.get(reason).into_iter().flat_map(|queue| &queue.receivers);
        let largest = receivers.map(|receiver| receiver.max).max().unwrap_or(0);
        // What the namespace could not open would be parked again.
        let free = match reason {
            Reason::Queue(namespace, _) => state.free(namespace, self.most_open),
            _ => 0,
        };
        let spare = largest.saturating_mul(SPARE.0).min(SPARE.1).min(free.saturating_sub(wanted));
        let most = wanted + spare;
        if !state.is_closed {
            state.shelves.entry(reason.clone()).or_default().coming.more(most, LONGEST_FETCH);
        }
        most
    }

    /// Notes how many timers a fetch has taken, of the greatest number.
    pub(crate) fn end_fetch(&self, reason: &Reason, most: usize, taken: usize) {
        if let Some(shelf) = self.lock().shelves.get_mut(reason) {
            shelf.coming.fewer(most.saturating_sub(taken));
            shelf.coming.more(0, ON_THE_WAY);
        }
    }

    /// Whether timers that were unparked for the receivers of a queue have not arrived, or are about to be handed over.
    fn awaits(&self, reason: &Reason) -> bool {
        let state = self.lock();
        state.queues.get(reason).is_some_and(|queue| queue.coming.at(Instant::now()) + queue.arriving > 0)
    }

    /// The numbers of receivers that wait, by queue.
    pub(crate) fn receivers(&self) -> Vec<(Reason, u64)> {
        let state = self.lock();
        let queues = state.queues.iter().filter(|(_, queue)| !queue.receivers.is_empty());
        queues.map(|(reason, queue)| (reason.clone(), queue.receivers.len() as u64)).collect()
    }

    /// The queues at which receivers wait.
    pub(crate) fn awaited(&self) -> Vec<Reason> {
        let state = self.lock();
        let awaited = state.queues.iter().filter(|(_, queue)| !queue.receivers.is_empty());
        awaited.map(|(reason, _)| reason.clone()).collect()
    }

    /// Takes the news that a timer was parked for this reason by any node; without a reason, that such news may have
    /// been missed.
    pub(crate) fn heard(&self, reason: Option<&Reason>) {
        match reason {
            Some(reason) => {
                self.board.heard(reason);
                let is_awaited =
                    self.lock().queues.get(reason).is_some_and(|queue| !queue.receivers.is_empty());
                if is_awaited {
                    self.board.want(reason);
                }
            }
            None => {
                self.board.heard_all();
                self.awaited().iter().for_each(|reason| self.board.want(reason));
            }
        }
    }

    /// Tells the receivers of a queue that nothing is parked for it: those that do not want to wait go.
    pub(crate) fn nothing_is_parked(&self, reason: &Reason) {
        let (state, now) = (self.lock(), Instant::now());
        let coming = state.shelves.get(reason).map_or(0, |shelf| shelf.coming.at(now));
        let is_coming = |queue: &Queue| coming + queue.coming.at(now) + queue.arriving > 0;
        if let Some(queue) = state.queues.get(reason).filter(|queue| !is_coming(queue)) {
            for receiver in &queue.receivers {
                let _has_gone = receiver.sender.send(Got::Nothing);
            }
        }
    }

    /// Notes that so many timers are about to be unparked for a queue.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().queues.get_mut(reason) {
            queue.coming.more(timers, ON_THE_WAY);
        }
    }

    /// Notes that so many timers fewer were unparked than expected.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(queue) = self.lock().queues.get_mut(reason) {
            queue.coming.fewer(timers);
        }
    }

    /// The number of open claims.
    pub(crate) fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Sends all receivers away and gives the timers of open claims back.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let (queues, open) = (core::mem::take(&mut state.queues), core::mem::take(&mut state.open));
        let shelves = core::mem::take(&mut state.shelves);
        for open in open.values() {
            state.change(&open.namespace, |tenant| tenant.open = tenant.open.saturating_sub(1));
        }
        drop(state);
        // The handlers see that nobody can end their claims any more.
        drop((queues, open, shelves));
    }
}

/// A timer that has come to the desk.
#[derive(Debug)]
pub(crate) struct Arrival<'d> {
    desk: &'d Arc<Desk>,
    reason: &'d Reason,
    namespace: &'d str,
    place: Place,
    /// The moment until which it may wait at the shelf, if it was fetched.
    shelf_until: Option<tokio::time::Instant>,
    counted: Counted,
}

/// Among what the desk counts a timer, so that no other one is fetched for the same receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Among those that are on their way.
    Coming,
    /// The same, after it was woken at the shelf.
    Woken,
    /// Among those that have found a receiver.
    Arriving,
    Nowhere,
}

/// What a timer finds at the desk.
enum Found {
    /// A receiver, and the namespace may open a claim.
    Receiver,
    /// A place at the shelf, at which it is woken for a receiver.
    Shelf(oneshot::Receiver<()>, tokio::time::Instant),
    Nobody,
}

impl Arrival<'_> {
    /// Waits for a receiver, a fetched timer for a second from its arrival on, another one not at all. Returns whether
    /// one waits and the namespace may open a claim.
    pub(crate) async fn is_awaited(&mut self) -> bool {
        loop {
            match self.find() {
                Found::Receiver => return true,
                Found::Nobody => return false,
                Found::Shelf(woken, until) => {
                    let mut at_shelf = OnShelf { arrival: self, has_left: false };
                    let woken = tokio::time::timeout_at(until, woken).await;
                    // Somebody may have woken it in the moment of its timeout.
                    let was_there = at_shelf.leave();
                    drop(at_shelf);
                    if matches!(woken, Ok(Err(_))) || was_there {
                        return false;
                    }
                    self.counted = Counted::Woken;
                }
            }
        }
    }

    fn find(&mut self) -> Found {
        let mut state = self.desk.lock();
        self.leave(&mut state);
        let has_room = !state.is_closed && state.free(self.namespace, self.desk.most_open) > 0;
        let is_fetched = self.shelf_until.is_some();
        let queue = state.queues.get_mut(self.reason).filter(|queue| !queue.receivers.is_empty());
        match (queue, has_room) {
            // The others that are about to be handed over are enough.
            (Some(queue), true) if is_fetched && queue.arriving >= queue.wants() => {}
            (Some(queue), true) => {
                queue.arriving += 1;
                self.counted = Counted::Arriving;
                return Found::Receiver;
            }
            (Some(_), false) => {
                state.starved.insert(self.reason.clone());
                return Found::Nobody;
            }
            (None, _) => {}
        }
        let until = self.shelf_until.filter(|until| tokio::time::Instant::now() < *until);
        let Some(until) = until.filter(|_| !state.is_closed) else { return Found::Nobody };
        let (sender, woken) = oneshot::channel();
        state.shelves.entry(self.reason.clone()).or_default().waiting.insert(self.place, sender);
        Found::Shelf(woken, until)
    }

    /// Hands the timer to the receiver that has waited longest. Returns `None` if none waits.
    pub(crate) fn hand_over(&mut self, claim: &Claim) -> Option<OpenClaim> {
        let mut state = self.desk.lock();
        self.leave(&mut state);
        if state.is_closed || state.free(self.namespace, self.desk.most_open) == 0 {
            state.starved.insert(self.reason.clone());
            return None;
        }
        let queue = state.queues.get_mut(self.reason)?;
        loop {
            let receiver = queue.receivers.front_mut()?;
            let is_there = receiver.sender.send(Got::Claim(claim.clone(), self.place.0)).is_ok();
            receiver.wants -= usize::from(is_there);
            if !is_there || receiver.wants == 0 {
                queue.receivers.pop_front();
            }
            if is_there {
                break;
            }
        }
        let name: Box<str> = claim.claim.as_str().into();
        let (sender, orders) = mpsc::unbounded_channel();
        state.open.insert(name.clone(), Open { namespace: self.namespace.into(), orders: sender });
        state.change(self.namespace, |tenant| tenant.open += 1);
        Some(OpenClaim { desk: Arc::clone(self.desk), name, orders })
    }

    /// Takes the timer out of the count in which it is.
    fn leave(&mut self, state: &mut State) {
        let counted = core::mem::replace(&mut self.counted, Counted::Nowhere);
        let fetched = state.shelves.get_mut(self.reason).filter(|shelf| shelf.coming.at(Instant::now()) > 0);
        let queue = state.queues.get_mut(self.reason);
        match (counted, fetched, queue) {
            (Counted::Coming, Some(shelf), _) => {
                shelf.coming.fewer(1);
                self.shelf_until = Some(tokio::time::Instant::now() + SHELF);
            }
            (Counted::Coming, None, Some(queue)) | (Counted::Woken, _, Some(queue)) => queue.coming.fewer(1),
            (Counted::Arriving, _, Some(queue)) => queue.arriving = queue.arriving.saturating_sub(1),
            _ => {}
        }
    }
}

/// A timer that goes although it has found a receiver leaves it to the first one at the shelf.
impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let was_arriving = self.counted == Counted::Arriving;
        if self.counted != Counted::Nowhere {
            let mut state = self.desk.lock();
            self.leave(&mut state);
            if was_arriving {
                state.wake_one(self.reason);
            }
        }
    }
}

/// A timer at the shelf. It is gone from there once this is dropped.
struct OnShelf<'a, 'd> {
    arrival: &'a Arrival<'d>,
    has_left: bool,
}

impl OnShelf<'_, '_> {
    /// Takes the timer from the shelf. Returns whether it was there: otherwise it was woken, or the desk is closed.
    fn leave(&mut self) -> bool {
        self.has_left = true;
        let mut state = self.arrival.desk.lock();
        let shelf = state.shelves.get_mut(self.arrival.reason);
        shelf.is_some_and(|shelf| shelf.waiting.remove(&self.arrival.place).is_some())
    }
}

/// A timer that is given up, though it was woken perhaps, leaves its receiver to the next one.
impl Drop for OnShelf<'_, '_> {
    fn drop(&mut self) {
        if !self.has_left && !self.leave() {
            let mut state = self.arrival.desk.lock();
            if let Some(queue) = state.queues.get_mut(self.arrival.reason) {
                queue.coming.fewer(1);
            }
            state.wake_one(self.arrival.reason);
        }
    }
}

/// The beginning of an end.
enum Begun {
    /// The end was not ordered before.
    Ordered(Open, Ticket, watch::Receiver<Answer>),
    /// The same end was ordered before.
    Before(watch::Receiver<Answer>),
    /// Another end was ordered before.
    Otherwise,
}

/// A receiver that waits, and what it has got.
struct Visit<'d> {
    desk: &'d Desk,
    namespace: &'d str,
    reason: &'d Reason,
    number: u64,
    claims: mpsc::UnboundedReceiver<Got>,
    /// The claims, with the due moments of their timers.
    got: Vec<(UtcMillis, Claim)>,
}

impl Visit<'_> {
    /// Waits for the first timer, and shortly for more: for the first span, or for the second one until it is known
    /// that nothing is parked.
    async fn gather(&mut self, max: usize, (wait, first): (Duration, Duration)) {
        let begun = tokio::time::Instant::now();
        let mut until = begun + first;
        while self.got.len() < max {
            match tokio::time::timeout_at(until, self.claims.recv()).await {
                Ok(Some(Got::Claim(claim, due))) => {
                    if self.got.is_empty() {
                        until = tokio::time::Instant::now() + GATHERING;
                    }
                    self.got.push((due, claim));
                }
                Ok(Some(Got::Nothing)) => until = until.min(begun + wait.max(GATHERING)),
                // What was unparked for this receiver would be behind what the next receiver gets.
                Err(_)
                    if !self.got.is_empty()
                        && begun.elapsed() < ON_THE_WAY
                        && self.desk.awaits(self.reason) =>
                {
                    until = tokio::time::Instant::now() + GATHERING;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// What the receiver has got, which is the receiver's from now on: in the order of the due moments, whichever
    /// handler was the quickest.
    fn leave(mut self) -> Vec<Claim> {
        self.close();
        let mut got = core::mem::take(&mut self.got);
        got.sort_by(|(due, claim), (other_due, other)| (due, &claim.id).cmp(&(other_due, &other.id)));
        got.into_iter().map(|(_, claim)| claim).collect()
    }

    /// Takes no more, and takes what came at the last moment.
    fn close(&mut self) {
        self.claims.close();
        while let Ok(got) = self.claims.try_recv() {
            if let Got::Claim(claim, due) = got {
                self.got.push((due, claim));
            }
        }
    }
}

/// A receiver that has gone leaves its place, and what it has got is given back.
impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.close();
        let mut state = self.desk.lock();
        state.waiting -= 1;
        state.change(self.namespace, |tenant| tenant.waiting = tenant.waiting.saturating_sub(1));
        if let Some(queue) = state.queues.get_mut(self.reason) {
            queue.receivers.retain(|receiver| receiver.number != self.number);
            if queue.receivers.is_empty() {
                state.queues.remove(self.reason);
            }
        }
        for (_, claim) in &self.got {
            state.remove(&claim.claim);
        }
    }
}

/// An open claim, on the side of its delivery.
#[derive(Debug)]
pub(crate) struct OpenClaim {
    desk: Arc<Desk>,
    name: Box<str>,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl OpenClaim {
    /// The next order, or `None` if the timer is to be given back.
    pub(crate) async fn order(&mut self) -> Option<Order> {
        self.orders.recv().await
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        let starved = {
            let mut state = self.desk.lock();
            state.remove(&self.name);
            core::mem::take(&mut state.starved)
        };
        starved.iter().for_each(|reason| self.desk.board.look_at(reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(number: usize) -> Claim {
        let name = format!("{number:032x}");
        serde_json::from_value(serde_json::json!({
            "claim": name, "id": name, "labels": [], "scheduled": "2026-01-01T00:00:00Z", "attempt": 1,
            "until": "2026-01-01T00:00:00Z", "body": "",
        }))
        .unwrap()
    }

    /// Opens claims of a namespace until the desk permits no more.
    fn fill(desk: &Arc<Desk>, namespace: &str, number: &mut usize) -> Vec<OpenClaim> {
        let reason = Reason::Queue(namespace.into(), "q".into());
        let (sender, _claims) = mpsc::unbounded_channel();
        let receiver = Receiver { number: 0, max: 1_000, wants: 1_000, sender };
        desk.lock().queues.entry(reason.clone()).or_default().receivers = VecDeque::from([receiver]);
        let mut open = Vec::new();
        loop {
            *number += 1;
            let is_wanted = desk.wanted(&reason, Instant::now()) != Wanted::Nothing;
            let mut arrival = desk.arrive(&reason, namespace, UtcMillis::default());
            assert_eq!(matches!(arrival.find(), Found::Receiver), is_wanted);
            match arrival.hand_over(&claim(*number)) {
                Some(claim) => open.push(claim),
                None => {
                    assert!(!is_wanted && desk.lock().starved.contains(&reason));
                    return open;
                }
            }
        }
    }

    #[test]
    fn t14_a_namespace_whose_receivers_hang_leaves_claims_to_others() {
        let desk = Arc::new(Desk::new(Arc::default(), 64, false));
        let mut number = 0;
        let first = fill(&desk, "a", &mut number);
        let second = fill(&desk, "b", &mut number);
        let third = fill(&desk, "c", &mut number);
        assert_eq!((first.len(), second.len(), third.len()), (48, 12, 3));
        assert_eq!(desk.open(), 63);
        drop(first);
        assert!(desk.lock().starved.is_empty(), "the end of a claim shows the others that there is room");
        assert!(!fill(&desk, "c", &mut number).is_empty());
        drop((second, third));
        assert!(
            desk.lock().tenants.is_empty() && desk.open() == 0,
            "nothing is kept of those that have gone"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetched_timer_whose_receiver_was_taken_waits_for_the_next_one_and_another_timer_does_not() {
        let desk = Arc::new(Desk::new(Arc::default(), 64, true));
        let reason = Reason::Queue("a".into(), "q".into());
        let receiver = |wants: usize| {
            let (at, reason) = (Arc::clone(&desk), reason.clone());
            let Reason::Queue(namespace, queue) = reason else { unreachable!() };
            tokio::spawn(async move { at.fetch(&namespace, &queue, wants, Duration::from_secs(5)).await })
        };
        let moment = UtcMillis::from_millis;
        let first = receiver(1);
        tokio::task::yield_now().await;
        let most = desk.begin_fetch(&reason, 1);
        desk.end_fetch(&reason, most, 2);
        let (mut one, mut two) = (desk.arrive(&reason, "a", moment(1)), desk.arrive(&reason, "a", moment(2)));
        let mut other = desk.arrive(&reason, "a", moment(3));
        let began = tokio::time::Instant::now();
        assert!(one.is_awaited().await);
        let soon = Duration::from_millis(10);
        let waits = tokio::time::timeout(soon, two.is_awaited()).await;
        assert!(waits.is_err(), "another one is about to be handed over");
        assert!(other.is_awaited().await, "it was not fetched, and does not wait");
        assert!(other.hand_over(&claim(3)).is_some());
        assert!(one.hand_over(&claim(1)).is_none(), "the receiver has what it wants");
        assert_eq!(first.await.unwrap().unwrap().len(), 1);
        let mut late = desk.arrive(&reason, "a", moment(4));
        assert!(!late.is_awaited().await, "it was not fetched");
        let waits = async {
            assert!(one.is_awaited().await);
            assert!(one.hand_over(&claim(1)).is_some());
            began.elapsed()
        };
        let comes = async {
            tokio::time::sleep_until(began + Duration::from_millis(600)).await;
            receiver(1).await.unwrap().unwrap()
        };
        let (waited, claims) = tokio::join!(waits, comes);
        assert_eq!((waited, claims.len()), (Duration::from_millis(600), 1));
        assert!(!two.is_awaited().await, "nobody comes");
        assert_eq!(began.elapsed(), SHELF, "it waits for a second from its arrival on");
        // One that has found a receiver, and goes without it, wakes the next one.
        let most = desk.begin_fetch(&reason, 1);
        desk.end_fetch(&reason, most, 2);
        let last = receiver(1);
        tokio::task::yield_now().await;
        let (mut goes, mut next) =
            (desk.arrive(&reason, "a", moment(5)), desk.arrive(&reason, "a", moment(6)));
        assert!(goes.is_awaited().await);
        let comes = async {
            assert!(next.is_awaited().await);
            assert!(next.hand_over(&claim(6)).is_some());
        };
        let leaves = async {
            tokio::time::sleep(soon).await;
            drop(goes);
        };
        tokio::join!(comes, leaves);
        assert_eq!(last.await.unwrap().unwrap().len(), 1);
        assert!(desk.lock().shelves.values().all(|shelf| shelf.waiting.is_empty()), "nothing is left there");
    }

    #[test]
    fn no_timer_waits_at_the_shelf_beside_a_receiver() {
        for round in 0..2_000 {
            let desk = Arc::new(Desk::new(Arc::default(), 64, true));
            let reason = Reason::Queue("a".into(), "q".into());
            desk.begin_fetch(&reason, 1);
            let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let claims = std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    runtime().block_on(desk.fetch("a", "q", 1, Duration::from_millis(900))).unwrap()
                });
                runtime().block_on(async {
                    let mut arrival = desk.arrive(&reason, "a", UtcMillis::default());
                    if round % 2 == 1 {
                        std::thread::yield_now();
                    }
                    assert!(arrival.is_awaited().await, "round {round}");
                    assert!(arrival.hand_over(&claim(1)).is_some());
                });
                receiver.join().unwrap()
            });
            assert_eq!(claims.len(), 1, "round {round}");
        }
    }

    /// The claim of a receiver that ends it with this order, and the order as its handler gets it.
    async fn ordered(desk: &Arc<Desk>, open: &mut OpenClaim, verdict: &Verdict) -> (Waiting, Ticket) {
        let (at, name, wanted) = (Arc::clone(desk), open.name.clone(), verdict.clone());
        let waiting = tokio::spawn(async move { at.end("a", &name, wanted).await });
        let Some(Order::End(got, ticket)) = open.order().await else { panic!("an end") };
        assert_eq!(got, *verdict);
        (waiting, ticket)
    }

    type Waiting = tokio::task::JoinHandle<Option<Result<(), Problem>>>;

    #[tokio::test]
    async fn an_end_is_answered_once_the_store_has_it_and_the_same_end_again_with_it() {
        let desk = Arc::new(Desk::new(Arc::default(), 64, false));
        let mut number = 0;
        let mut claims = fill(&desk, "a", &mut number).into_iter();
        let mut open = claims.next().unwrap();
        let (first, ticket) = ordered(&desk, &mut open, &Verdict::Done).await;
        let (at, name) = (Arc::clone(&desk), open.name.clone());
        let again = tokio::spawn(async move { at.end("a", &name, Verdict::Done).await });
        let dead = desk.end("a", &open.name, Verdict::Dead("no".into())).await;
        assert_eq!(dead.unwrap().unwrap_err().kind, ProblemKind::ClaimEnded, "another end came first");
        assert!(
            desk.end("b", &open.name, Verdict::Done).await.unwrap().is_err(),
            "another namespace's claim"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!first.is_finished() && !again.is_finished(), "the store does not have the end");
        let name = open.name.clone();
        drop(open);
        ticket.stored();
        assert!(matches!(first.await.unwrap(), Some(Ok(()))));
        assert!(matches!(again.await.unwrap(), Some(Ok(()))));
        assert!(desk.end("a", &name, Verdict::Done).await.is_none(), "the claim has gone");

        let mut open = claims.next().unwrap();
        let (waiting, ticket) = ordered(&desk, &mut open, &Verdict::Done).await;
        ticket.came_late();
        assert_eq!(waiting.await.unwrap().unwrap().unwrap_err().kind, ProblemKind::ClaimEnded);
        let mut open = claims.next().unwrap();
        let (waiting, ticket) = ordered(&desk, &mut open, &Verdict::Done).await;
        ticket.lost();
        let problem = waiting.await.unwrap().unwrap().unwrap_err();
        assert_eq!((problem.status, problem.outcome.as_deref()), (503, Some("unknown")));
        let mut open = claims.next().unwrap();
        let (waiting, ticket) = ordered(&desk, &mut open, &Verdict::Done).await;
        drop(ticket);
        assert!(waiting.await.unwrap().is_none(), "its handler was dropped");
        assert!(desk.lock().ending.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_does_not_wait_for_ever_for_a_store_that_does_not_answer() {
        let desk = Arc::new(Desk::new(Arc::default(), 64, false));
        let mut open = fill(&desk, "a", &mut 0).remove(0);
        let (waiting, ticket) = ordered(&desk, &mut open, &Verdict::Done).await;
        let problem = waiting.await.unwrap().unwrap().unwrap_err();
        assert_eq!((problem.status, problem.outcome.as_deref()), (503, Some("unknown")), "{problem}");
        let (at, name) = (Arc::clone(&desk), open.name.clone());
        let again = tokio::spawn(async move { at.end("a", &name, Verdict::Done).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        ticket.stored();
        assert!(matches!(again.await.unwrap(), Some(Ok(()))), "a receiver that asks again learns of it");
    }
}
