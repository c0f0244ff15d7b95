//! Places: how many deliveries may run at a time in the service, in a namespace, and at a host.
//!
//! A delivery needs a place in each of its lanes and takes all of them at once, so that a delivery that waits for one
//! lane holds nothing in another. A delivery whose lane is full waits in memory if few others do, and is parked
//! otherwise:
//!
//! ```text
//!              all lanes have a place
//!   arrived ─────────────────────────► runs ── ends ──► its places are free: deliveries that wait come first, then the
//!      │                                ▲               board shows the lanes to the usher, which unparks as many
//!      └── a lane is full ──► waits ────┘               timers as have room
//!                 │             │ 5 s, or the lane is shut
//!                 └─────────────┴──► parked under the lane's reason, which costs no attempt
//! ```
//!
//! The room to wait bridges the time from an unpark to the delivery's arrival. It follows the lane's speed: as many as
//! the lane has ended within a twentieth of a second lately. So a fast host never runs out of work, and a host that
//! hangs keeps no deliveries in memory. All lanes together have a bounded room.
//!
//! A host whose breaker is open has a *shut* lane. Once it opens again it is *careful*: one delivery at a time, until
//! one succeeds.
//!
//! # Shares
//! A place is held for as long as a host does not answer, so hosts that hang must not get all places:
//!
//! - A host is *quick* if it answered its last delivery within two seconds, and no delivery has waited for it for
//!   longer since. The hosts that are not, slow or not known yet, share three quarters of the places, and each of them
//!   has a quarter of a host's places. So the hosts that are quick always have a quarter of the places, however many
//!   others hang.
//! - A namespace has a share ([`free_for`]) of all places, and one of those for hosts that are not quick. Namespaces
//!   that press for long come to have as many each. The backlog of a namespace is parked under the reason of that
//!   namespace, where no other one waits behind it.

use super::board::Board;
use super::reason::Reason;
use crate::share::free_for;
use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// The longest time for which a delivery waits for a place in memory.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The time in which an unparked timer should have arrived.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// The span over which a lane's ends are counted.
const SPAN: Duration = Duration::from_millis(50);
/// The least and the greatest number of deliveries that wait in one lane.
const ROOM: (usize, usize) = (16, 512);
/// The greatest number of deliveries that wait in all lanes.
pub(crate) const MOST_WAITING: usize = 1_024;
/// The time within which a quick host answers.
const QUICK: Duration = Duration::from_secs(2);
/// The time for which a quick host is remembered at which nothing happens, and the number of lanes up to which it is.
const REMEMBERED: (Duration, usize) = (Duration::from_secs(3_600), 10_000);
/// The number of namespaces without a place that are looked at when a place is free.
const LOOKS: usize = 4;

/// A lane that a delivery runs in, and the lane's limit. The limit of a share is that of all shares of its kind.
pub(crate) type LaneAt = (Reason, usize);

/// The places that hosts may have together that are slow or not known.
pub(crate) fn slow_places(all: usize) -> usize {
    all - all / 4
}

/// What the usher is to do about a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Unpark so many timers.
    Now(usize),
    /// Look again at this moment.
    At(Instant),
    /// Nothing, until something happens.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Places {
    state: Mutex<State>,
    board: Arc<Board>,
}

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<Reason, Lane>,
    waiters: HashMap<u64, Waiter>,
    next_waiter: u64,
    pools: [Pool; 2],
}

/// The places that the namespaces share: all of them, and those for hosts that are not quick.
#[derive(Debug, Default)]
struct Pool {
    limit: usize,
    running: usize,
    /// The namespaces' lanes that had no place when they were last looked at, each of them once.
    starved: VecDeque<Reason>,
}

/// The pool of a lane, if the lane is a namespace's share of one.
fn pool_of(reason: &Reason) -> Option<usize> {
    match reason {
        Reason::Share(_) => Some(0),
        Reason::Slow(_) => Some(1),
        _ => None,
    }
}

/// How a host answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Unknown,
    Quick,
    Slow,
}

#[derive(Debug)]
struct Waiter {
    lanes: Vec<Reason>,
    /// Gets the news that the places are taken for the waiter. Dropped if there will be none.
    sender: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Lane {
    limit: usize,
    running: usize,
    /// The deliveries that wait, by their numbers, in order. Some may have gone.
    waiting: VecDeque<u64>,
    /// The timers that were unparked and have not arrived, until that moment.
    coming: usize,
    coming_until: Instant,
    shut_until: Option<Instant>,
    is_careful: bool,
    /// How the host answers. `None` if the lane is not that of a host.
    pace: Option<Pace>,
    /// The last end, or the last start of a delivery beside which none ran.
    moved: Instant,
    /// The lane is in the list of its pool.
    is_starved: bool,
    /// The start of the present span, and the ends in it and in the one before.
    span: Instant,
    ends: (usize, usize),
}

impl Lane {
    fn new(reason: &Reason, limit: usize, now: Instant) -> Self {
        Self {
            limit,
            running: 0,
            waiting: VecDeque::new(),
            coming: 0,
            coming_until: now,
            shut_until: None,
            is_careful: false,
            pace: matches!(reason, Reason::Host(_)).then_some(Pace::Unknown),
            moved: now,
            is_starved: false,
            span: now,
            ends: (0, 0),
        }
    }

    fn is_shut(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|until| now < until)
    }

    /// How the host answers. A delivery that waits for long is a sign, too.
    fn pace(&self, now: Instant) -> Option<Pace> {
        let hangs = self.running > 0 && now.saturating_duration_since(self.moved) > QUICK;
        self.pace.map(|pace| if hangs && pace == Pace::Quick { Pace::Slow } else { pace })
    }

    /// The number of deliveries that may run, if the lane is no share.
    fn most(&self, now: Instant) -> usize {
        match (self.is_shut(now), self.is_careful, self.pace(now)) {
            (true, _, _) => 0,
            (_, true, _) => 1,
            (_, _, Some(Pace::Unknown | Pace::Slow)) => self.limit.div_ceil(4),
            _ => self.limit,
        }
    }

    fn coming(&self, now: Instant) -> usize {
        if now < self.coming_until { self.coming } else { 0 }
    }

    /// Moves the count of ends to the present span.
    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.span);
        if passed >= SPAN {
            self.ends = (0, if passed < 2 * SPAN { self.ends.0 } else { 0 });
            self.span = now;
        }
    }

    /// The number of deliveries that may wait.
    fn room(&self, now: Instant) -> usize {
        let is_slow = matches!(self.pace(now), Some(Pace::Unknown | Pace::Slow));
        if is_slow || self.is_shut(now) || self.is_careful {
            return 0;
        }
        self.ends.0.max(self.ends.1).clamp(ROOM.0, ROOM.1)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.coming(now) == 0 && !self.is_shut(now)
    }
}

impl State {
    /// The number of deliveries that may run in a lane.
    fn most(&self, reason: &Reason, lane: &Lane, now: Instant) -> usize {
        let Some(at) = pool_of(reason) else { return lane.most(now) };
        let pool = &self.pools[at];
        let free = pool.limit.saturating_sub(pool.running);
        lane.running + free_for(lane.running, free)
    }

    fn has_place(&self, reason: &Reason, now: Instant) -> bool {
        self.lanes.get(reason).is_none_or(|lane| lane.running < self.most(reason, lane, now))
    }

    /// Whether all lanes have a place. Otherwise the first that has none.
    fn full<'r>(&self, of: &'r [Reason], now: Instant) -> Option<&'r Reason> {
        of.iter().find(|reason| !self.has_place(reason, now))
    }

    /// The number of deliveries that may wait in a lane.
    fn room(&self, lane: &Lane, now: Instant) -> usize {
        lane.room(now).min(lane.waiting.len() + MOST_WAITING.saturating_sub(self.waiters.len()))
    }

    fn take(&mut self, reasons: &[Reason], now: Instant) {
        for reason in reasons {
            if let Some(lane) = self.lanes.get_mut(reason) {
                if lane.running == 0 {
                    lane.moved = now;
                }
                lane.running += 1;
                if let Some(at) = pool_of(reason) {
                    self.pools[at].running += 1;
                }
            }
        }
    }

    /// Notes that a lane has no place. If the lane is a share, the places of other namespaces concern it.
    fn starve(&mut self, reason: &Reason) {
        if let Some(at) = pool_of(reason)
            && let Some(lane) = self.lanes.get_mut(reason)
            && !lane.is_starved
        {
            lane.is_starved = true;
            self.pools[at].starved.push_back(reason.clone());
        }
    }

    /// Gives the free places of a lane to the deliveries that wait for it.
    fn pump(&mut self, reason: &Reason, now: Instant) {
        while self.has_place(reason, now)
            && let Some(lane) = self.lanes.get_mut(reason)
            && let Some(number) = lane.waiting.pop_front()
        {
            let Some(waiter) = self.waiters.remove(&number) else { continue };
            if let Some(other) = self.full(&waiter.lanes, now).cloned() {
                if let Some(lane) = self.lanes.get_mut(&other) {
                    lane.waiting.push_back(number);
                }
                self.starve(&other);
                self.waiters.insert(number, waiter);
                continue;
            }
            let Waiter { lanes, sender } = waiter;
            self.take(&lanes, now);
            if sender.send(()).is_err() {
                self.give_back(&lanes);
            }
        }
        if self.lanes.get(reason).is_some_and(|lane| !lane.waiting.is_empty()) {
            self.starve(reason);
        }
    }

    fn give_back(&mut self, reasons: &[Reason]) {
        for reason in reasons {
            if let Some(lane) = self.lanes.get_mut(reason) {
                lane.running = lane.running.saturating_sub(1);
                if let Some(at) = pool_of(reason) {
                    self.pools[at].running = self.pools[at].running.saturating_sub(1);
                }
            }
        }
    }

    /// Gives places back that were used, and pumps. Returns the shares of other namespaces that have a place now.
    fn end(&mut self, reasons: &[Reason], outcome: Noted, now: Instant) -> Vec<Reason> {
        self.give_back(reasons);
        for reason in reasons {
            let Some(lane) = self.lanes.get_mut(reason) else { continue };
            lane.turn(now);
            lane.ends.0 += 1;
            lane.moved = now;
            if let (Some(pace), Some(is_quick)) = (&mut lane.pace, outcome.is_quick) {
                *pace = if is_quick { Pace::Quick } else { Pace::Slow };
            }
            if outcome.works == Some(true) {
                (lane.is_careful, lane.shut_until) = (false, None);
            }
        }
        for reason in reasons {
            self.pump(reason, now);
        }
        let mut others = Vec::new();
        for at in reasons.iter().filter_map(pool_of) {
            for _ in 0..self.pools[at].starved.len().min(LOOKS) {
                let Some(other) = self.pools[at].starved.pop_front() else { break };
                if let Some(lane) = self.lanes.get_mut(&other) {
                    lane.is_starved = false;
                }
                self.pump(&other, now);
                others.push(other);
            }
        }
        others
    }
}

impl Places {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        Self { state: Mutex::default(), board }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in each of these lanes, or the reason for which the timer is to be parked.
    ///
    /// The lane for hosts that are not quick is left out if the host in another lane is quick.
    pub(crate) async fn enter(self: &Arc<Self>, mut lanes: Vec<LaneAt>) -> Result<Place, Reason> {
        let (number, news, lane, reasons) = {
            let now = Instant::now();
            let mut state = self.lock();
            let is_quick = |(reason, _): &LaneAt| {
                state.lanes.get(reason).is_some_and(|lane| lane.pace(now) == Some(Pace::Quick))
            };
            if lanes.iter().any(is_quick) {
                lanes.retain(|(reason, _)| !matches!(reason, Reason::Slow(_)));
            }
            let reasons: Vec<Reason> = lanes.iter().map(|(reason, _)| reason.clone()).collect();
            for (reason, limit) in lanes {
                if let Some(at) = pool_of(&reason) {
                    state.pools[at].limit = limit;
                }
                let new = Lane::new(&reason, limit, now);
                let lane = state.lanes.entry(reason).or_insert(new);
                lane.limit = limit;
                lane.coming = lane.coming.saturating_sub(1);
                lane.turn(now);
            }
            let queue = reasons.iter().find(|reason| {
                !state.has_place(reason, now)
                    || state.lanes.get(reason).is_some_and(|lane| !lane.waiting.is_empty())
            });
            let Some(queue) = queue else {
                state.take(&reasons, now);
                return Ok(Place::new(self, reasons));
            };
            state.starve(queue);
            let number = state.next_waiter;
            let has_room =
                state.lanes.get(queue).is_some_and(|lane| lane.waiting.len() < state.room(lane, now));
            let Some(lane) = state.lanes.get_mut(queue).filter(|_| has_room) else {
                return Err(queue.clone());
            };
            lane.waiting.push_back(number);
            state.next_waiter += 1;
            let (sender, news) = oneshot::channel();
            state.waiters.insert(number, Waiter { lanes: reasons.clone(), sender });
            // A lane that is behind another one's queue may have a place.
            state.pump(queue, now);
            (number, news, queue.clone(), reasons)
        };
        let mut wait = Wait { places: self, number, news: Some(news), reasons };
        match wait.await_news().await {
            true => Ok(Place::new(self, wait.defuse())),
            false => Err(lane),
        }
    }

    /// Shuts a host's lane for a while. The deliveries that wait in it are parked.
    pub(crate) fn shut(&self, reason: &Reason, rest: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        let waiting = {
            let lane = state.lanes.entry(reason.clone()).or_insert_with(|| Lane::new(reason, 1, now));
            (lane.shut_until, lane.is_careful) = (Some(now + rest), true);
            core::mem::take(&mut lane.waiting)
        };
        for number in waiting {
            state.waiters.remove(&number);
        }
        drop(state);
        self.board.look_at(reason);
    }

    /// How many timers that are parked for a lane have room now.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let mut state = self.lock();
        let Some(lane) = state.lanes.get(reason) else { return Wanted::Now(ROOM.0) };
        if let Some(until) = lane.shut_until.filter(|until| now < *until) {
            return Wanted::At(until);
        }
        let taken = lane.running + lane.waiting.len() + lane.coming(now);
        let (most, room) = (state.most(reason, lane, now), state.room(lane, now));
        let (coming, coming_until) = (lane.coming(now), lane.coming_until);
        match (most + room).saturating_sub(taken) {
            0 => {
                state.starve(reason);
                if coming > 0 { Wanted::At(coming_until) } else { Wanted::Nothing }
            }
            room => Wanted::Now(room),
        }
    }

    /// Notes that so many timers are about to be unparked for a lane.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        let now = Instant::now();
        let mut state = self.lock();
        let lane = state.lanes.entry(reason.clone()).or_insert_with(|| Lane::new(reason, ROOM.0, now));
        lane.coming = lane.coming(now) + timers;
        lane.coming_until = now + ON_THE_WAY;
    }

    /// Notes that so many timers fewer were unparked than expected.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(lane) = self.lock().lanes.get_mut(reason) {
            lane.coming = lane.coming.saturating_sub(timers);
        }
    }

    /// Forgets the lanes in which nothing happens, but for those of quick hosts.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let State { lanes, waiters, .. } = &mut *state;
        let remembers = lanes.len() <= REMEMBERED.1;
        // A delivery that waits in one lane counts in its other lanes once it runs.
        let needed: HashSet<&Reason> = waiters.values().flat_map(|waiter| &waiter.lanes).collect();
        lanes.retain(|reason, lane| {
            let is_known = lane.pace == Some(Pace::Quick)
                && now.saturating_duration_since(lane.moved) < REMEMBERED.0
                && remembers;
            is_known
                || needed.contains(reason)
                || lane.is_starved
                || !lane.is_idle(now)
                || self.board.count(reason) > 0
        });
    }

    fn end(&self, reasons: &[Reason], outcome: Noted) {
        let others = self.lock().end(reasons, outcome, Instant::now());
        reasons.iter().chain(&others).for_each(|reason| self.board.look_at(reason));
    }
}

/// A delivery that waits.
struct Wait<'p> {
    places: &'p Places,
    number: u64,
    news: Option<oneshot::Receiver<()>>,
    reasons: Vec<Reason>,
}

impl Wait<'_> {
    /// Whether places were taken for this delivery in time.
    async fn await_news(&mut self) -> bool {
        let Some(news) = &mut self.news else { return false };
        match tokio::time::timeout(LONGEST_WAIT, &mut *news).await {
            Ok(taken) => {
                let _it_has_come = self.news.take();
                taken.is_ok()
            }
            Err(_) => false,
        }
    }

    fn defuse(mut self) -> Vec<Reason> {
        core::mem::take(&mut self.reasons)
    }
}

/// A delivery that waits no more may have got places at that moment.
impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(mut news) = self.news.take() else { return };
        let mut state = self.places.lock();
        state.waiters.remove(&self.number);
        let number = self.number;
        for reason in &self.reasons {
            if let Some(lane) = state.lanes.get_mut(reason) {
                lane.waiting.retain(|waiting| *waiting != number);
            }
        }
        drop(state);
        if news.try_recv().is_ok() {
            self.places.end(&self.reasons, Noted::default());
        }
    }
}

/// What a delivery has shown of its host.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    works: Option<bool>,
    is_quick: Option<bool>,
}

/// Places in all lanes of a delivery, which are free when this value is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    reasons: Vec<Reason>,
    since: Instant,
    noted: Noted,
}

impl Place {
    fn new(places: &Arc<Places>, reasons: Vec<Reason>) -> Self {
        Self { places: Arc::clone(places), reasons, since: Instant::now(), noted: Noted::default() }
    }

    /// Notes whether the host answered as a host does that works, and whether the host answered at all, if it was
    /// dialled.
    pub(crate) fn note(&mut self, works: bool, has_answered: Option<bool>) {
        let is_quick = has_answered.map(|has_answered| has_answered && self.since.elapsed() <= QUICK);
        self.noted = Noted { works: Some(works), is_quick };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.end(&self.reasons, self.noted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Arc<Places> {
        Arc::new(Places::new(Arc::default()))
    }

    fn host(name: &str) -> Reason {
        Reason::host(name)
    }

    /// Makes the host one that is known to be quick.
    async fn answer(places: &Arc<Places>, host: &Reason) {
        enter(places, &[(host, 1)]).await.unwrap().note(true, Some(true));
    }

    async fn enter(places: &Arc<Places>, lanes: &[(&Reason, usize)]) -> Result<Place, Reason> {
        places.enter(lanes.iter().map(|(reason, limit)| ((*reason).clone(), *limit)).collect()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_waits_holds_nothing_in_other_lanes() {
        let places = places();
        let (a, b, ns) = (host("a"), host("b"), Reason::Concurrency("n".into()));
        answer(&places, &a).await;
        let first = enter(&places, &[(&a, 1), (&ns, 2)]).await.unwrap();
        let second = tokio::spawn({
            let (places, a, ns) = (Arc::clone(&places), a.clone(), ns.clone());
            async move { enter(&places, &[(&a, 1), (&ns, 2)]).await }
        });
        tokio::task::yield_now().await;
        let other = enter(&places, &[(&b, 1), (&ns, 2)]).await.unwrap();
        drop(first);
        // The host has a place now, and the namespace has none.
        tokio::task::yield_now().await;
        assert_eq!(places.lock().lanes[&ns].running, 2, "the second delivery has got the place of the first");
        let second = second.await.unwrap().unwrap();
        drop((second, other));
        assert!(places.lock().lanes.values().all(|lane| lane.running == 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_waits_too_long_is_parked() {
        let places = places();
        let a = host("a");
        answer(&places, &a).await;
        let first = enter(&places, &[(&a, 1)]).await.unwrap();
        assert_eq!(enter(&places, &[(&a, 1)]).await.unwrap_err(), a);
        assert!(places.lock().waiters.is_empty() && places.lock().lanes[&a].waiting.is_empty());
        drop(first);
        drop(enter(&places, &[(&a, 1)]).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn few_wait_and_the_rest_is_parked_at_once() {
        let places = places();
        let a = host("a");
        answer(&places, &a).await;
        let _first = enter(&places, &[(&a, 1)]).await.unwrap();
        let spawn = || {
            let (places, a) = (Arc::clone(&places), a.clone());
            tokio::spawn(async move { enter(&places, &[(&a, 1)]).await.map(drop) })
        };
        let waiting: Vec<_> = (0..ROOM.0).map(|_| spawn()).collect();
        tokio::task::yield_now().await;
        assert_eq!(places.wanted(&a, Instant::now()), Wanted::Nothing);
        assert_eq!(spawn().await.unwrap(), Err(a.clone()));
        places.shut(&a, Duration::from_secs(60));
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), Err(a.clone()), "parked since the lane is shut");
        }
        assert!(matches!(places.wanted(&a, Instant::now()), Wanted::At(_)));
        assert_eq!(places.wanted(&a, Instant::now() + Duration::from_secs(61)), Wanted::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shut_lane_opens_for_one_until_that_succeeds() {
        let places = places();
        let a = host("a");
        places.shut(&a, Duration::ZERO);
        let mut first = enter(&places, &[(&a, 4)]).await.unwrap();
        assert_eq!(enter(&places, &[(&a, 4)]).await.unwrap_err(), a);
        first.note(true, Some(true));
        drop(first);
        let _both = (enter(&places, &[(&a, 4)]).await.unwrap(), enter(&places, &[(&a, 4)]).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_a_waiting_delivery_needs_is_not_forgotten() {
        let places = places();
        let (a, ns) = (host("a"), Reason::Concurrency("n".into()));
        let first = enter(&places, &[(&ns, 1)]).await.unwrap();
        let second = tokio::spawn({
            let (places, a, ns) = (Arc::clone(&places), a.clone(), ns.clone());
            async move { enter(&places, &[(&a, 1), (&ns, 1)]).await }
        });
        tokio::task::yield_now().await;
        places.sweep();
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert_eq!(places.lock().lanes.get(&a).map(|lane| lane.running), Some(1));
        drop(second);
        assert!(places.lock().lanes.values().all(|lane| lane.running == 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_is_dropped_while_it_waits_leaves_no_trace() {
        use core::future::Future;
        use core::task::{Context, Waker};
        let places = places();
        let a = Reason::Concurrency("a".into());
        for has_got_a_place in [false, true] {
            let first = enter(&places, &[(&a, 1)]).await.unwrap();
            let lanes = [(&a, 1)];
            let mut second = Box::pin(enter(&places, &lanes));
            assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            if has_got_a_place {
                drop(first);
                assert_eq!(places.lock().lanes[&a].running, 1);
                drop(second);
            } else {
                drop(second);
                drop(first);
            }
            places.sweep();
            assert!(places.lock().lanes.is_empty() && places.lock().waiters.is_empty());
        }
    }

    /// The lanes of a callback to a host, as the gates make them.
    async fn call(places: &Arc<Places>, of: &str, to: &Reason, all: usize) -> Result<Place, Reason> {
        let (slow, share) = (Reason::Slow(of.into()), Reason::Share(of.into()));
        enter(places, &[(to, 16), (&slow, slow_places(all)), (&share, all)]).await
    }

    /// Calls a host until that is refused at once. Returns the places and the reason of the refusal.
    async fn press(places: &Arc<Places>, of: &str, to: &Reason, all: usize) -> (Vec<Place>, Reason) {
        let mut taken = Vec::new();
        loop {
            let answer = core::pin::pin!(call(places, of, to, all));
            match tokio::time::timeout(Duration::ZERO, answer).await {
                Ok(Ok(place)) => taken.push(place),
                Ok(Err(reason)) => return (taken, reason),
                // It waits in memory.
                Err(_) => return (taken, Reason::Share(of.into())),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn t14_hosts_that_hang_leave_a_quarter_to_those_that_answer() {
        let places = places();
        let quick = host("quick");
        answer(&places, &quick).await;
        let mut held = Vec::new();
        for number in 0..100 {
            let (taken, reason) = press(&places, "n", &host(&number.to_string()), 64).await;
            assert!(taken.len() <= 4, "a host that is not known has a quarter of a host's places");
            assert!(taken.len() == 4 || reason != host(&number.to_string()), "{reason:?}");
            held.extend(taken);
        }
        // Three quarters of three quarters: other namespaces may have slow hosts, too.
        assert_eq!((held.len(), places.lock().pools[1].running), (36, 36));
        let (taken, _) = press(&places, "other", &host("new"), 64).await;
        assert!(!taken.is_empty(), "another namespace calls a host that is not known");
        let (taken, reason) = press(&places, "n", &quick, 64).await;
        assert!(taken.len() >= 9, "{reason:?}");
        // Each place comes back.
        drop((held, taken));
        assert!(places.lock().pools[1].running <= 4);
    }

    #[tokio::test(start_paused = true)]
    async fn t14_namespaces_leave_places_to_others_and_share_when_they_press() {
        let places = places();
        let mut held = Vec::new();
        for number in 0..20 {
            let busy = host(&number.to_string());
            answer(&places, &busy).await;
            held.extend(press(&places, "a", &busy, 64).await.0);
        }
        assert_eq!(held.len(), 48, "three quarters");
        let mut others = Vec::new();
        for number in 0..20 {
            others.extend(press(&places, "b", &host(&number.to_string()), 64).await.0);
        }
        assert_eq!(others.len(), 12, "three quarters of the rest");
        // A delivery of the second namespace waits for the end of one of the first, which has more than its share.
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { call(&places, "b", &host("19"), 64).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(places.lock().waiters.len(), 1);
        held.truncate(47);
        assert_eq!(waits.await.unwrap(), Ok(()), "the place of another namespace wakes it");
        // Both press, and deliveries of both end: they come to have as many.
        for _ in 0..40 {
            held.pop();
            others.pop();
            for number in 0..20 {
                let to = host(&number.to_string());
                held.extend(press(&places, "a", &to, 64).await.0);
                others.extend(press(&places, "b", &to, 64).await.0);
            }
            assert!(held.len() + others.len() <= 64);
        }
        assert!(held.len().abs_diff(others.len()) <= 6, "{} and {}", held.len(), others.len());
        assert!(held.len() + others.len() >= 52, "{} and {}", held.len(), others.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_host_that_begins_to_hang_is_slow_before_its_first_timeout() {
        let places = places();
        let a = host("a");
        answer(&places, &a).await;
        let first = call(&places, "n", &a, 64).await.unwrap();
        assert_eq!(first.reasons.len(), 2, "no place among those for slow hosts");
        let moved = places.lock().lanes[&a].moved;
        let most = |after| places.lock().lanes[&a].most(moved + after);
        assert_eq!((most(QUICK), most(QUICK + Duration::from_millis(1))), (16, 4));
        drop(first);
        assert_eq!(most(QUICK * 2), 16);
        let mut silent = call(&places, "n", &a, 64).await.unwrap();
        silent.note(false, Some(false));
        drop(silent);
        assert_eq!(call(&places, "n", &a, 64).await.unwrap().reasons.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_room_to_wait_is_bounded_over_all_lanes() {
        let places = places();
        let (mut all, mut waiting) = (Vec::new(), Vec::new());
        for number in 0..MOST_WAITING {
            let lane = Reason::Concurrency(number.to_string().into());
            all.push(enter(&places, &[(&lane, 1)]).await.unwrap());
            let mut waits = Box::pin({
                let (places, lane) = (Arc::clone(&places), lane.clone());
                async move { enter(&places, &[(&lane, 1)]).await.map(drop) }
            });
            assert!(tokio::time::timeout(Duration::ZERO, waits.as_mut()).await.is_err());
            waiting.push(waits);
        }
        let lane = Reason::Concurrency("last".into());
        let _place = enter(&places, &[(&lane, 1)]).await.unwrap();
        let refused = tokio::time::timeout(Duration::ZERO, enter(&places, &[(&lane, 1)])).await;
        assert_eq!(refused.expect("at once").unwrap_err(), lane);
        assert_eq!(places.wanted(&lane, Instant::now()), Wanted::Nothing);
    }
}
