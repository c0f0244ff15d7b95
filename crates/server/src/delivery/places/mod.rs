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
//! the host answers. A path whose breaker has opened has a lane of its own, which is careful until the path works.
//!
//! # Shares
//! A place is held for as long as a host does not answer, so hosts that hang must not get all places:
//!
//! - The lane of a host is that of one namespace: how a host answers another one does not matter. The namespaces share
//!   the host's places: one alone has as many as a host may have, and several have a third more together.
//! - A host that answers within a tenth of a second *grows*: each such answer adds a place while all are taken, up to a
//!   limit. An answer that takes longer takes half of what was added away, and silence takes all.
//! - A host is *quick* if it answered its last delivery within two seconds, and no delivery has waited for it for
//!   longer since. A namespace that has not called it yet begins with what the last answer to another one has shown.
//!   The hosts that are not, slow or not known yet, share three quarters of the places, and each of them
//!   has a quarter of a host's places. So the hosts that are quick always have a quarter of the places, however many
//!   others hang.
//! - A namespace has a share ([`free_for`]) of all places, and one of those for hosts that are not quick. Namespaces
//!   that press for long come to have as many each. The backlog of a namespace is parked under the reason of that
//!   namespace, where no other one waits behind it.

mod lane;
mod pool;
#[cfg(test)]
mod tests;

use super::board::Board;
use super::reason::Reason;
use core::time::Duration;
use lane::{Lane, Pace, ROOM};
use pool::{PROMPT, Pool, PoolName, QUICK, Took};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// The longest time for which a delivery waits for a place in memory.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The time in which an unparked timer should have arrived.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// The greatest number of deliveries that wait in all lanes.
pub(crate) const MOST_WAITING: usize = 1_024;
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
    pools: HashMap<PoolName, Pool>,
    /// The greatest number of places of a namespace at a host that answers promptly.
    most_at_host: usize,
}

#[derive(Debug)]
struct Waiter {
    lanes: Vec<Reason>,
    /// Gets the news that the places are taken for the waiter. Dropped if there will be none.
    sender: oneshot::Sender<()>,
}

impl State {
    /// The number of deliveries that may run in a lane.
    fn most(&self, reason: &Reason, lane: &Lane, now: Instant) -> usize {
        let pool = PoolName::of(reason).and_then(|name| self.pools.get_key_value(&name));
        let Some((name, pool)) = pool else { return lane.most(0, now) };
        let share = lane.running + pool.free_for(name, lane.running);
        match name {
            PoolName::All | PoolName::Slow => share,
            PoolName::Host(_) => share.min(lane.most(pool.grown, now)),
        }
    }

    fn pool(&self, reason: &Reason) -> Option<&Pool> {
        PoolName::of(reason).and_then(|name| self.pools.get(&name))
    }

    fn pool_mut(&mut self, reason: &Reason) -> Option<&mut Pool> {
        PoolName::of(reason).and_then(|name| self.pools.get_mut(&name))
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
                if let Some(pool) = self.pool_mut(reason) {
                    pool.running += 1;
                }
            }
        }
    }

    /// Notes that a lane has no place. If the lane is a share, the places of other namespaces concern it.
    fn starve(&mut self, reason: &Reason) {
        let State { lanes, pools, .. } = self;
        if let Some(pool) = PoolName::of(reason).and_then(|name| pools.get_mut(&name))
            && let Some(lane) = lanes.get_mut(reason)
            && !lane.is_starved
        {
            lane.is_starved = true;
            pool.starved.push_back(reason.clone());
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
                if let Some(pool) = self.pool_mut(reason) {
                    pool.running = pool.running.saturating_sub(1);
                }
            }
        }
    }

    /// Gives places back that were used, and pumps. Returns the shares of other namespaces that have a place now.
    fn end(&mut self, reasons: &[Reason], outcome: Noted, now: Instant) -> Vec<Reason> {
        self.note(reasons, outcome, now);
        self.give_back(reasons);
        for reason in reasons {
            self.pump(reason, now);
        }
        let mut others = Vec::new();
        for reason in reasons {
            let starved = self.pool_mut(reason).map_or(0, |pool| pool.starved.len());
            for _ in 0..starved.min(LOOKS) {
                let other = self.pool_mut(reason).and_then(|pool| pool.starved.pop_front());
                let Some(other) = other else { break };
                if let Some(lane) = self.lanes.get_mut(&other) {
                    lane.is_starved = false;
                }
                self.pump(&other, now);
                others.push(other);
            }
        }
        others
    }

    /// Notes an end, and what it has shown, while its places are not free yet.
    fn note(&mut self, reasons: &[Reason], outcome: Noted, now: Instant) {
        for reason in reasons {
            let most = self.lanes.get(reason).map_or(0, |lane| self.most(reason, lane, now));
            let Some(lane) = self.lanes.get_mut(reason) else { continue };
            let Some(took) = outcome.took else { continue };
            lane.turn(now);
            lane.ends.0 += 1;
            lane.moved = now;
            let shows_recovery = match reason {
                Reason::Host(..) => outcome.has_answered,
                _ => outcome.works,
            };
            if shows_recovery {
                (lane.is_careful, lane.shut_until) = (false, None);
            }
            let Some(pace) = &mut lane.pace else { continue };
            let was_full = *pace == Pace::Quick && lane.running >= most;
            *pace = if took == Took::Slow { Pace::Slow } else { Pace::Quick };
            let most_at_host = self.most_at_host;
            if let Some(pool) = self.pool_mut(reason) {
                pool.grow(took, was_full, most_at_host);
            }
        }
    }
}

impl Places {
    /// Places of which a namespace has at most so many at a host that answers promptly.
    pub(crate) fn new(board: Arc<Board>, most_at_host: usize) -> Self {
        Self { state: Mutex::new(State { most_at_host, ..State::default() }), board }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in each of these lanes, or the reason for which the timer is to be parked.
    ///
    /// The lane for hosts that are not quick is left out if the host in another lane is quick, and that of a path if
    /// the path has not failed lately.
    pub(crate) async fn enter(self: &Arc<Self>, mut lanes: Vec<LaneAt>) -> Result<Place, Reason> {
        let (number, news, lane, reasons) = {
            let now = Instant::now();
            let mut state = self.lock();
            let is_quick = |(reason, _): &LaneAt| match state.lanes.get(reason) {
                Some(lane) => lane.pace(now) == Some(Pace::Quick),
                None => state.pool(reason).is_some_and(|pool| pool.is_quick),
            };
            let is_slow = !lanes.iter().any(is_quick);
            lanes.retain(|(reason, _)| match reason {
                Reason::Slow(_) => is_slow,
                Reason::Path(..) => state.lanes.get(reason).is_some_and(|lane| lane.holds_back(now)),
                _ => true,
            });
            let reasons: Vec<Reason> = lanes.iter().map(|(reason, _)| reason.clone()).collect();
            for (reason, limit) in lanes {
                if let Some(name) = PoolName::of(&reason) {
                    state.pools.entry(name).or_default().limit = limit;
                }
                let is_quick = state.pool(&reason).is_some_and(|pool| pool.is_quick);
                let new = Lane::new(&reason, limit, now).known_as(is_quick);
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

    /// Opens the lanes of a host and of its paths that are shut, for one delivery each until that succeeds.
    pub(crate) fn reopen(&self, host: &str) {
        let of_host: Vec<Reason> = {
            let state = self.lock();
            state.lanes.keys().filter(|reason| reason.is_of_host(host)).cloned().collect()
        };
        of_host.iter().for_each(|reason| self.shut(reason, Duration::ZERO));
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
        let State { lanes, waiters, pools, .. } = &mut *state;
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
        let used: HashSet<PoolName> = lanes.keys().filter_map(PoolName::of).collect();
        pools.retain(|name, pool| pool.running > 0 || used.contains(name));
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
    works: bool,
    has_answered: bool,
    took: Option<Took>,
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

    /// Notes how a host that was dialled has answered, if it has: as one that works, or not.
    pub(crate) fn note(&mut self, works: Option<bool>) {
        let time = self.since.elapsed();
        let took = match works {
            None => Took::Slow,
            Some(_) if time > QUICK => Took::Slow,
            Some(works) if time > PROMPT || !works => Took::Quick,
            Some(_) => Took::Prompt,
        };
        let has_answered = works.is_some();
        self.noted = Noted { works: works == Some(true), has_answered, took: Some(took) };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.end(&self.reasons, self.noted);
    }
}
