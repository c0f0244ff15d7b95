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
//! The room to wait bridges the time from an unpark to the delivery's arrival. It follows the lane's speed: as many as the
//! lane has ended within a twentieth of a second lately. So a fast host never runs out of work, and a host that hangs keeps
//! few deliveries in memory.
//!
//! A host whose breaker is open has a *shut* lane. Once it opens again it is *careful*: one delivery at a time, until one
//! succeeds.

use super::board::Board;
use super::reason::Reason;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
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

/// A lane that a delivery runs in, and the lane's limit.
pub(crate) type LaneAt = (Reason, usize);

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
    /// The start of the present span, and the ends in it and in the one before.
    span: Instant,
    ends: (usize, usize),
}

impl Lane {
    fn new(limit: usize, now: Instant) -> Self {
        Self {
            limit,
            running: 0,
            waiting: VecDeque::new(),
            coming: 0,
            coming_until: now,
            shut_until: None,
            is_careful: false,
            span: now,
            ends: (0, 0),
        }
    }

    fn is_shut(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|until| now < until)
    }

    /// The number of deliveries that may run.
    fn most(&self, now: Instant) -> usize {
        match (self.is_shut(now), self.is_careful) {
            (true, _) => 0,
            (_, true) => 1,
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
        if self.is_shut(now) || self.is_careful {
            return 0;
        }
        self.ends.0.max(self.ends.1).clamp(ROOM.0, ROOM.1)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.coming(now) == 0 && !self.is_shut(now)
    }
}

/// Whether all lanes have a place. Otherwise the first that has none.
fn full<'r>(lanes: &HashMap<Reason, Lane>, of: &'r [Reason], now: Instant) -> Option<&'r Reason> {
    of.iter().find(|reason| lanes.get(reason).is_some_and(|lane| lane.running >= lane.most(now)))
}

impl State {
    fn take(&mut self, reasons: &[Reason]) {
        for reason in reasons {
            if let Some(lane) = self.lanes.get_mut(reason) {
                lane.running += 1;
            }
        }
    }

    /// Gives the free places of a lane to the deliveries that wait for it.
    fn pump(&mut self, reason: &Reason, now: Instant) {
        while let Some(lane) = self.lanes.get_mut(reason)
            && lane.running < lane.most(now)
            && let Some(number) = lane.waiting.pop_front()
        {
            let Some(waiter) = self.waiters.remove(&number) else { continue };
            if let Some(other) = full(&self.lanes, &waiter.lanes, now).cloned() {
                if let Some(lane) = self.lanes.get_mut(&other) {
                    lane.waiting.push_back(number);
                }
                self.waiters.insert(number, waiter);
                continue;
            }
            let Waiter { lanes, sender } = waiter;
            self.take(&lanes);
            if sender.send(()).is_err() {
                self.give_back(&lanes);
            }
        }
    }

    fn give_back(&mut self, reasons: &[Reason]) {
        for reason in reasons {
            if let Some(lane) = self.lanes.get_mut(reason) {
                lane.running = lane.running.saturating_sub(1);
            }
        }
    }

    /// Gives places back that were used, and pumps.
    fn end(&mut self, reasons: &[Reason], works: Option<bool>, now: Instant) {
        self.give_back(reasons);
        for reason in reasons {
            let Some(lane) = self.lanes.get_mut(reason) else { continue };
            lane.turn(now);
            lane.ends.0 += 1;
            if works == Some(true) {
                (lane.is_careful, lane.shut_until) = (false, None);
            }
        }
        for reason in reasons {
            self.pump(reason, now);
        }
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
    pub(crate) async fn enter(self: &Arc<Self>, lanes: Vec<LaneAt>) -> Result<Place, Reason> {
        let reasons: Vec<Reason> = lanes.iter().map(|(reason, _)| reason.clone()).collect();
        let (number, news, lane) = {
            let now = Instant::now();
            let mut state = self.lock();
            for (reason, limit) in lanes {
                let lane = state.lanes.entry(reason).or_insert_with(|| Lane::new(limit, now));
                lane.limit = limit;
                lane.coming = lane.coming.saturating_sub(1);
                lane.turn(now);
            }
            let queue = reasons.iter().find(|reason| {
                state
                    .lanes
                    .get(reason)
                    .is_some_and(|lane| lane.running >= lane.most(now) || !lane.waiting.is_empty())
            });
            let Some(queue) = queue else {
                state.take(&reasons);
                return Ok(Place { places: Arc::clone(self), reasons, works: None });
            };
            let number = state.next_waiter;
            let Some(lane) = state.lanes.get_mut(queue) else { return Err(queue.clone()) };
            if lane.waiting.len() >= lane.room(now) {
                return Err(queue.clone());
            }
            lane.waiting.push_back(number);
            state.next_waiter += 1;
            let (sender, news) = oneshot::channel();
            state.waiters.insert(number, Waiter { lanes: reasons.clone(), sender });
            // A lane that is behind another one's queue may have a place.
            state.pump(queue, now);
            (number, news, queue.clone())
        };
        let mut wait = Wait { places: self, number, news: Some(news), reasons };
        match wait.await_news().await {
            true => Ok(Place { places: Arc::clone(self), reasons: wait.defuse(), works: None }),
            false => Err(lane),
        }
    }

    /// Shuts a host's lane for a while. The deliveries that wait in it are parked.
    pub(crate) fn shut(&self, reason: &Reason, rest: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        let waiting = {
            let lane = state.lanes.entry(reason.clone()).or_insert_with(|| Lane::new(1, now));
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
        let state = self.lock();
        let Some(lane) = state.lanes.get(reason) else { return Wanted::Now(ROOM.0) };
        if let Some(until) = lane.shut_until.filter(|until| now < *until) {
            return Wanted::At(until);
        }
        let taken = lane.running + lane.waiting.len() + lane.coming(now);
        match (lane.most(now) + lane.room(now)).saturating_sub(taken) {
            0 if lane.coming(now) > 0 => Wanted::At(lane.coming_until),
            0 => Wanted::Nothing,
            room => Wanted::Now(room),
        }
    }

    /// Notes that so many timers are about to be unparked for a lane.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        let now = Instant::now();
        let mut state = self.lock();
        let lane = state.lanes.entry(reason.clone()).or_insert_with(|| Lane::new(ROOM.0, now));
        lane.coming = lane.coming(now) + timers;
        lane.coming_until = now + ON_THE_WAY;
    }

    /// Notes that so many timers fewer were unparked than expected.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(lane) = self.lock().lanes.get_mut(reason) {
            lane.coming = lane.coming.saturating_sub(timers);
        }
    }

    /// Forgets the lanes in which nothing happens.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.lock().lanes.retain(|reason, lane| !lane.is_idle(now) || self.board.count(reason) > 0);
    }

    fn end(&self, reasons: &[Reason], works: Option<bool>) {
        self.lock().end(reasons, works, Instant::now());
        reasons.iter().for_each(|reason| self.board.look_at(reason));
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
            self.places.end(&self.reasons, None);
        }
    }
}

/// Places in all lanes of a delivery, which are free when this value is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    reasons: Vec<Reason>,
    works: Option<bool>,
}

impl Place {
    /// Notes whether the host answered as a host does that works.
    pub(crate) fn note(&mut self, works: bool) {
        self.works = Some(works);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.end(&self.reasons, self.works);
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

    async fn enter(places: &Arc<Places>, lanes: &[(&Reason, usize)]) -> Result<Place, Reason> {
        places.enter(lanes.iter().map(|(reason, limit)| ((*reason).clone(), *limit)).collect()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_waits_holds_nothing_in_other_lanes() {
        let places = places();
        let (a, b, ns) = (host("a"), host("b"), Reason::Concurrency("n".into()));
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
        first.note(true);
        drop(first);
        let _both = (enter(&places, &[(&a, 4)]).await.unwrap(), enter(&places, &[(&a, 4)]).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_is_dropped_while_it_waits_leaves_no_trace() {
        use core::future::Future;
        use core::task::{Context, Waker};
        let places = places();
        let a = host("a");
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
}
