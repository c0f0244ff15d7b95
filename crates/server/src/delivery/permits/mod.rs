//! Limits how many deliveries run at a time in the service, in a namespace, and at a host. Each of these limits has a
//! *limiter*, which gives out permits. Namespaces that share permits draw them from a *pool*.
//!
//! A delivery needs a permit of each limiter that applies to it, and takes all these permits at once. So a delivery
//! that waits for one limiter holds no permit of another limiter. If a limiter is full, the delivery waits in memory.
//! If too many deliveries already wait for that limiter, the delivery is parked:
//!
//! ```text
//!              all limiters have a permit
//!   arrived ─────────────────────────► runs ── ends ──► its permits are free: first for those that wait, then the
//!      │                                ▲               parked index shows the limiters to the unparker, which unparks
//!      └── a limiter is full ──► waits ─┘               as many timers as have room
//!                 │                │ 5 s, or the limiter is shut
//!                 └────────────────┴──► parked under the limiter's reason, which costs no attempt
//! ```
//!
//! The waiting deliveries bridge the time from an unpark to the arrival of the unparked timers. Their number follows
//! the speed of the limiter: as many deliveries may wait as have lately ended within 50 ms. So a fast host never runs
//! out of work, and a host that hangs keeps no deliveries in memory. A further limit bounds the waiting deliveries of
//! all limiters together.
//!
//! While the breaker of a host is open, the limiter of the host is *shut*: no delivery runs. When the limiter opens
//! again, it is *careful*: one delivery runs at a time, until the host answers. A path whose breaker has opened has its
//! own limiter, which is careful until the path works.
//!
//! # Shares
//! A delivery holds its permits until its host answers, so hosts that hang must not get all permits:
//!
//! - A limiter of a host belongs to one namespace, so it ignores the host's answers to other namespaces. The namespaces
//!   share the permits of the host: a single namespace may have the host's limit, and several namespaces together may
//!   have a third more. Once these are taken, each namespace without a permit at the host may still have one.
//! - A host that answers within 100 ms *grows*: each such answer adds a permit if all permits are taken, up to a limit.
//!   A slower answer removes half of the added permits, and a missing answer removes all of them.
//! - A host is *quick* if it answered its last delivery within two seconds, and no later delivery has waited longer. If
//!   a namespace has not called the host yet, the last answer to another namespace decides. Slow and unknown hosts
//!   share three quarters of the permits, and each of them may have a quarter of a host's permits. The rest is for
//!   quick hosts. First permits of further namespaces at hosts that are not quick take at most a part of the rest, so
//!   more than an eighth of all permits always remains for quick hosts, even if all other hosts hang.
//! - A namespace may have only a part ([`share`](crate::share)) of all permits, and only a part of the permits for
//!   hosts that are not quick. Namespaces that always want more permits come to have equally many. A namespace without
//!   a permit gets a first one from the reserve, although others have taken all permits and do not give them back. The
//!   backlog of a namespace is parked under the namespace's own reason, so no other namespace waits behind that
//!   backlog.

mod limiter;
mod pool;
#[cfg(test)]
mod tests;

use super::parked_index::ParkedIndex;
use super::reason::Reason;
use core::time::Duration;
use limiter::{Limiter, Pace, ROOM};
use pool::{PROMPT, Pool, PoolName, QUICK, Took};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// The longest time for which a delivery waits in memory for its permits.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// For this time after parked timers were made due again, the service expects their arrival at their handler, and
/// reserves permits for them. For each timer, it reserves a permit of the limiter that had no free permit when the
/// timer was parked. If further timers of the limiter are made due again, the time starts anew.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// The greatest number of deliveries that may wait in memory for permits, summed over all limiters.
pub(crate) const MOST_WAITING: usize = 1_024;
/// The bounds for keeping the unused limiter of a quick host (a host that answered its last delivery within two
/// seconds). The limiter is kept for a time after its last delivery, which is the first value. If there are more
/// limiters than the second value, the limiter is removed like any other unused limiter, so the memory is bounded.
const REMEMBERED: (Duration, usize) = (Duration::from_secs(3_600), 10_000);
/// When a delivery ends, its permit is offered to at most this number of other limiters. These limiters had no free
/// permit, and share a pool of permits with the delivery's limiter ([`Pool::starved`]).
const LOOKS: usize = 4;

/// A delivery's request for a permit of a limiter. `reason` names the limiter: a timer that gets no permit of the
/// limiter is parked for this reason.
#[derive(Clone, Debug)]
pub(crate) struct PermitRequest {
    pub(crate) reason: Reason,
    /// The number of permits that the limiter has. For [`Reason::Share`] and [`Reason::Slow`], the limiters of all
    /// namespaces together have only this number of permits, and a reserve for namespaces without a permit
    /// ([`share`](crate::share)).
    pub(crate) limit: usize,
}

/// Returns the number of permits that slow and unknown hosts share. `all` is the number of the service's permits.
pub(crate) fn slow_permits(all: usize) -> usize {
    all - all / 4
}

/// The answer to the unparker (the task that makes parked timers due again). The unparker asks how many of the timers
/// that are parked for one [`Reason`] it should make due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The unparker should make this number of timers due again now.
    Now(usize),
    /// The unparker should make no timer due again before this moment. At this moment it must ask again.
    At(Instant),
    /// The unparker should make no timer due again. A later event, such as the end of a delivery, makes the unparker
    /// ask again.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<State>,
    parked: Arc<ParkedIndex>,
}

#[derive(Debug, Default)]
struct State {
    limiters: HashMap<Reason, Limiter>,
    waiters: HashMap<u64, Waiter>,
    next_waiter: u64,
    pools: HashMap<PoolName, Pool>,
    /// The greatest number of permits that one namespace can have at a host that answers promptly.
    most_at_host: usize,
}

#[derive(Debug)]
struct Waiter {
    limiters: Vec<Reason>,
    /// Sends a message to the waiting delivery once the delivery has its permits. Dropped if the timer must be parked.
    sender: oneshot::Sender<()>,
}

impl State {
    /// Returns the number of deliveries that may run under a limiter now: the limiter's own limit, or less if the pool
    /// of permits that it shares with other limiters permits less.
    fn most(&self, reason: &Reason, limiter: &Limiter, now: Instant) -> usize {
        let pool = PoolName::of(reason).and_then(|name| self.pools.get_key_value(&name));
        let Some((name, pool)) = pool else { return limiter.most(0, now) };
        let share = limiter.running + pool.free_for(name, limiter.running);
        match name {
            PoolName::All | PoolName::Slow => share,
            PoolName::Host(_) => share.min(limiter.most(pool.grown, now)),
        }
    }

    fn pool(&self, reason: &Reason) -> Option<&Pool> {
        PoolName::of(reason).and_then(|name| self.pools.get(&name))
    }

    fn pool_mut(&mut self, reason: &Reason) -> Option<&mut Pool> {
        PoolName::of(reason).and_then(|name| self.pools.get_mut(&name))
    }

    /// Returns the limiter `reason`. If the limiter is missing, first makes it with the limit `limit`, and with the
    /// pace that the host showed to other namespaces.
    fn limiter_or_new(&mut self, reason: Reason, limit: usize, now: Instant) -> &mut Limiter {
        let is_quick = self.pool(&reason).is_some_and(|pool| pool.is_quick);
        let new = Limiter::new(&reason, limit, now).known_as(is_quick);
        self.limiters.entry(reason).or_insert(new)
    }

    fn has_permit(&self, reason: &Reason, now: Instant) -> bool {
        self.limiters.get(reason).is_none_or(|limiter| limiter.running < self.most(reason, limiter, now))
    }

    /// Returns the first limiter in `reasons` without a free permit, or `None` if each limiter has one.
    fn full<'r>(&self, reasons: &'r [Reason], now: Instant) -> Option<&'r Reason> {
        reasons.iter().find(|reason| !self.has_permit(reason, now))
    }

    /// Returns the number of deliveries that may wait for a limiter. Both the limiter's own bound ([`Limiter::room`])
    /// and the bound on the waiting deliveries of all limiters ([`MOST_WAITING`]) apply.
    fn room(&self, limiter: &Limiter, now: Instant) -> usize {
        limiter.room(now).min(limiter.waiting.len() + MOST_WAITING.saturating_sub(self.waiters.len()))
    }

    fn take(&mut self, reasons: &[Reason], now: Instant) {
        for reason in reasons {
            if let Some(limiter) = self.limiters.get_mut(reason) {
                if limiter.running == 0 {
                    limiter.moved = now;
                }
                limiter.running += 1;
                if let Some(pool) = self.pool_mut(reason) {
                    pool.running += 1;
                }
            }
        }
    }

    /// Lists a limiter without a free permit in its pool, a set of permits that several namespaces share. The listed
    /// limiters may take the permits that other namespaces give back. Does nothing for a limiter without a pool.
    fn starve(&mut self, reason: &Reason) {
        let State { limiters, pools, .. } = self;
        if let Some(pool) = PoolName::of(reason).and_then(|name| pools.get_mut(&name))
            && let Some(limiter) = limiters.get_mut(reason)
            && !limiter.is_starved
        {
            limiter.is_starved = true;
            pool.starved.push_back(reason.clone());
        }
    }

    /// Gives the free permits of a limiter to the deliveries that wait for them.
    fn pump(&mut self, reason: &Reason, now: Instant) {
        while self.has_permit(reason, now)
            && let Some(limiter) = self.limiters.get_mut(reason)
            && let Some(number) = limiter.waiting.pop_front()
        {
            // A delivery that gives up removes its number from the list, so each number in the list has its waiter.
            let Some(waiter) = self.waiters.remove(&number) else { continue };
            // A delivery takes all its permits at once. If another limiter of this delivery is full, the delivery now
            // waits for that limiter.
            if let Some(other) = self.full(&waiter.limiters, now).cloned() {
                if let Some(limiter) = self.limiters.get_mut(&other) {
                    limiter.waiting.push_back(number);
                }
                self.starve(&other);
                self.waiters.insert(number, waiter);
                continue;
            }
            let Waiter { limiters, sender } = waiter;
            self.take(&limiters, now);
            if sender.send(()).is_err() {
                self.give_back(&limiters);
            }
        }
        if self.limiters.get(reason).is_some_and(|limiter| !limiter.waiting.is_empty()) {
            self.starve(reason);
        }
    }

    fn give_back(&mut self, reasons: &[Reason]) {
        for reason in reasons {
            if let Some(limiter) = self.limiters.get_mut(reason) {
                limiter.running = limiter.running.saturating_sub(1);
                if let Some(pool) = self.pool_mut(reason) {
                    pool.running = pool.running.saturating_sub(1);
                }
            }
        }
    }

    /// Gives back the permits of an ended delivery: first to the waiting deliveries of the same limiters, then to
    /// limiters of other namespaces. Returns the limiters of other namespaces to which permits were offered.
    fn end(&mut self, reasons: &[Reason], outcome: Noted, now: Instant) -> Vec<Reason> {
        self.note(reasons, outcome, now);
        self.give_back(reasons);
        for reason in reasons {
            self.pump(reason, now);
        }
        let mut others = Vec::new();
        for reason in reasons {
            let starved = self.pool_mut(reason).map_or(0, |pool| pool.starved.len());
            // A limiter that still gets no permit goes to the end of the list, so the ends of deliveries offer permits
            // to all limiters in turn.
            for _ in 0..starved.min(LOOKS) {
                let other = self.pool_mut(reason).and_then(|pool| pool.starved.pop_front());
                let Some(other) = other else { break };
                // The limiter has left the list, and `pump` may have to list it again.
                if let Some(limiter) = self.limiters.get_mut(&other) {
                    limiter.is_starved = false;
                }
                self.pump(&other, now);
                others.push(other);
            }
        }
        others
    }

    /// Notes how the host behaved in an ended delivery. Must be called before the delivery's permits are given back,
    /// because a host's permits grow only while all of them are taken.
    fn note(&mut self, reasons: &[Reason], outcome: Noted, now: Instant) {
        for reason in reasons {
            let most = self.limiters.get(reason).map_or(0, |limiter| self.most(reason, limiter, now));
            let Some(limiter) = self.limiters.get_mut(reason) else { continue };
            // A delivery that did not call a host shows nothing about the host's speed.
            let Some(took) = outcome.took else { continue };
            limiter.turn(now);
            limiter.ends.0 += 1;
            limiter.moved = now;
            // Any answer shows that a host has recovered. A path has recovered once a delivery succeeds.
            let shows_recovery = match reason {
                Reason::Host(..) => outcome.has_answered,
                _ => outcome.works,
            };
            if shows_recovery {
                (limiter.is_careful, limiter.shut_until) = (false, None);
            }
            let Some(pace) = &mut limiter.pace else { continue };
            let was_full = *pace == Pace::Quick && limiter.running >= most;
            *pace = if took == Took::Slow { Pace::Slow } else { Pace::Quick };
            let most_at_host = self.most_at_host;
            if let Some(pool) = self.pool_mut(reason) {
                pool.grow(took, was_full, most_at_host);
            }
        }
    }
}

impl Permits {
    /// Makes the permits of a service. `most_at_host` is the greatest number of permits that one namespace can have at
    /// a host that answers promptly.
    pub(crate) fn new(parked: Arc<ParkedIndex>, most_at_host: usize) -> Self {
        Self { state: Mutex::new(State { most_at_host, ..State::default() }), parked }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the permits that a delivery requests. If permits are not free, waits for them up to [`LONGEST_WAIT`].
    /// Fails if that time is over, or if too many deliveries already wait. The error is the reason for which the timer
    /// must be parked.
    ///
    /// A delivery to a quick host needs no permit for slow hosts, and a delivery to a path that has not failed lately
    /// needs no permit of the path. This call ignores such requests.
    pub(crate) async fn enter(self: &Arc<Self>, mut requests: Vec<PermitRequest>) -> Result<Permit, Reason> {
        let (number, news, limiter, reasons) = {
            let now = Instant::now();
            let mut state = self.lock();
            let is_quick = |PermitRequest { reason, .. }: &PermitRequest| match state.limiters.get(reason) {
                Some(limiter) => limiter.pace(now) == Some(Pace::Quick),
                None => state.pool(reason).is_some_and(|pool| pool.is_quick),
            };
            let is_slow = !requests.iter().any(is_quick);
            requests.retain(|PermitRequest { reason, .. }| match reason {
                Reason::Slow(_) => is_slow,
                Reason::Path(..) => state.limiters.get(reason).is_some_and(|limiter| limiter.holds_back(now)),
                _ => true,
            });
            let reasons: Vec<Reason> = requests.iter().map(|request| request.reason.clone()).collect();
            for PermitRequest { reason, limit } in requests {
                if let Some(name) = PoolName::of(&reason) {
                    state.pools.entry(name).or_default().limit = limit;
                }
                let limiter = state.limiter_or_new(reason, limit, now);
                // The limit may be provisional (see `shut` and `expect`), and a namespace may change its limit.
                limiter.limit = limit;
                // Any arrival counts, because a delivery does not show whether its timer was parked.
                limiter.coming = limiter.coming.saturating_sub(1);
                limiter.turn(now);
            }
            // A delivery must not overtake deliveries that already wait, so it joins them even if a permit is free.
            let queue = reasons.iter().find(|reason| {
                !state.has_permit(reason, now)
                    || state.limiters.get(reason).is_some_and(|limiter| !limiter.waiting.is_empty())
            });
            let Some(queue) = queue else {
                state.take(&reasons, now);
                return Ok(Permit::new(self, reasons));
            };
            // The limiter is listed even if this delivery's timer is parked. The end of another namespace's delivery
            // then makes the unparker check the limiter.
            state.starve(queue);
            let number = state.next_waiter;
            let has_room = state
                .limiters
                .get(queue)
                .is_some_and(|limiter| limiter.waiting.len() < state.room(limiter, now));
            let Some(limiter) = state.limiters.get_mut(queue).filter(|_| has_room) else {
                return Err(queue.clone());
            };
            limiter.waiting.push_back(number);
            state.next_waiter += 1;
            let (sender, news) = oneshot::channel();
            state.waiters.insert(number, Waiter { limiters: reasons.clone(), sender });
            // The deliveries that already wait for this limiter may wait for other limiters, too, so this limiter may
            // have free permits.
            state.pump(queue, now);
            (number, news, queue.clone(), reasons)
        };
        let mut wait = Wait { permits: self, number, news: Some(news), reasons };
        match wait.await_news().await {
            true => Ok(Permit::new(self, wait.defuse())),
            false => Err(limiter),
        }
    }

    /// Returns the limiters of the namespaces that limit their concurrent deliveries.
    pub(crate) fn concurrency_limiters(&self) -> Vec<Reason> {
        let state = self.lock();
        state.limiters.keys().filter(|reason| matches!(reason, Reason::Concurrency(_))).cloned().collect()
    }

    /// Changes the limit of a limiter. If the limit grows, deliveries that wait for permits get the added permits.
    pub(crate) fn set_limit(&self, reason: &Reason, limit: usize) {
        let mut state = self.lock();
        if let Some(limiter) = state.limiters.get_mut(reason) {
            limiter.limit = limit;
            state.pump(reason, Instant::now());
        }
    }

    /// Shuts a limiter: for the time `rest`, no delivery that needs a permit of the limiter can begin. Parks the timers
    /// whose deliveries wait for such a permit. Running deliveries go on. After `rest`, the limiter has only a single
    /// permit. The limiter of a host gets its other permits back once the host answers. The limiter of a path (the path
    /// of a callback's URL) gets them back once the path answers with a status other than 429 and 5xx.
    pub(crate) fn shut(&self, reason: &Reason, rest: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        let waiting = {
            let limiter = state.limiter_or_new(reason.clone(), 1, now);
            (limiter.shut_until, limiter.is_careful) = (Some(now + rest), true);
            core::mem::take(&mut limiter.waiting)
        };
        for number in waiting {
            state.waiters.remove(&number);
        }
        drop(state);
        // The unparker asks again, and so learns the end of the pause.
        self.parked.look_at(reason);
    }

    /// Ends the pause of deliveries to a host and to its paths. Afterwards the deliveries are limited as after
    /// [`shut`](Self::shut): one delivery runs at a time to the host until the host answers, and to a path (the path of
    /// a callback's URL) until the path answers with a status other than 429 and 5xx.
    pub(crate) fn reopen(&self, host: &str) {
        // The reasons are copied, because `shut` takes the lock itself.
        let reasons: Vec<Reason> = {
            let state = self.lock();
            state.limiters.keys().filter(|reason| reason.is_of_host(host)).cloned().collect()
        };
        reasons.iter().for_each(|reason| self.shut(reason, Duration::ZERO));
    }

    /// Returns how many of the timers that are parked for a permit of the limiter `reason` the caller should make due
    /// again now.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let mut state = self.lock();
        let Some(limiter) = state.limiters.get(reason) else { return Wanted::Now(ROOM.0) };
        if let Some(until) = limiter.shut_until.filter(|until| now < *until) {
            return Wanted::At(until);
        }
        let taken = limiter.running + limiter.waiting.len() + limiter.coming(now);
        let (most, room) = (state.most(reason, limiter, now), state.room(limiter, now));
        let (coming, coming_until) = (limiter.coming(now), limiter.coming_until);
        match (most + room).saturating_sub(taken) {
            0 => {
                state.starve(reason);
                if coming > 0 { Wanted::At(coming_until) } else { Wanted::Nothing }
            }
            room => Wanted::Now(room),
        }
    }

    /// Notes that timers that were parked for `reason` are about to become due again. `timers` is their number. Until
    /// these timers arrive at their handler, [`wanted`](Self::wanted) subtracts their number from its result.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        let now = Instant::now();
        let mut state = self.lock();
        let limiter = state.limiter_or_new(reason.clone(), ROOM.0, now);
        limiter.coming = limiter.coming(now) + timers;
        limiter.coming_until = now + ON_THE_WAY;
    }

    /// Corrects an earlier call of [`expect`](Self::expect): the store made fewer timers due again than expected.
    /// `timers` is the difference.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        if let Some(limiter) = self.lock().limiters.get_mut(reason) {
            limiter.coming = limiter.coming.saturating_sub(timers);
        }
    }

    /// Removes the limiters without deliveries and without parked timers. Keeps the limiters of quick hosts for an
    /// hour, if there are not too many limiters (see [`REMEMBERED`]).
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let State { limiters, waiters, pools, .. } = &mut *state;
        let remembers = limiters.len() <= REMEMBERED.1;
        // A waiting delivery counts only in the limiter for which it waits. Its other limiters must stay, too.
        let needed: HashSet<&Reason> = waiters.values().flat_map(|waiter| &waiter.limiters).collect();
        limiters.retain(|reason, limiter| {
            let is_known = limiter.pace == Some(Pace::Quick)
                && now.saturating_duration_since(limiter.moved) < REMEMBERED.0
                && remembers;
            is_known || needed.contains(reason) || !limiter.is_idle(now) || self.parked.count(reason) > 0
        });
        let used: HashSet<PoolName> = limiters.keys().filter_map(PoolName::of).collect();
        pools.retain(|name, pool| {
            // Only the ends of deliveries take limiters from this list, and no further delivery may end.
            pool.starved.retain(|reason| limiters.contains_key(reason));
            pool.running > 0 || used.contains(name)
        });
    }

    fn end(&self, reasons: &[Reason], outcome: Noted) {
        let others = self.lock().end(reasons, outcome, Instant::now());
        reasons.iter().chain(&others).for_each(|reason| self.parked.look_at(reason));
    }
}

/// A delivery that waits for its permits. Dropping the value ends the wait, and gives back permits that the delivery
/// has just got.
struct Wait<'p> {
    permits: &'p Permits,
    number: u64,
    news: Option<oneshot::Receiver<()>>,
    reasons: Vec<Reason>,
}

impl Wait<'_> {
    /// Waits until the delivery has its permits. Returns false if this takes longer than [`LONGEST_WAIT`], or if the
    /// limiter for which the delivery waits is shut ([`Permits::shut`]).
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

/// Removes the delivery from the waiting deliveries. If the delivery has just got its permits, but
/// [`await_news`](Wait::await_news) has not returned true, gives the permits back.
impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(mut news) = self.news.take() else { return };
        let mut state = self.permits.lock();
        state.waiters.remove(&self.number);
        let number = self.number;
        for reason in &self.reasons {
            if let Some(limiter) = state.limiters.get_mut(reason) {
                limiter.waiting.retain(|waiting| *waiting != number);
            }
        }
        drop(state);
        // The delivery no longer waits, so no permit can come after this check.
        if news.try_recv().is_ok() {
            self.permits.end(&self.reasons, Noted::default());
        }
    }
}

/// A host's behaviour in one delivery. `took` is `None` if the host was not called.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    works: bool,
    has_answered: bool,
    took: Option<Took>,
}

/// The permits of a running delivery. Dropping this value gives the permits back.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    reasons: Vec<Reason>,
    since: Instant,
    noted: Noted,
}

impl Permit {
    fn new(permits: &Arc<Permits>, reasons: Vec<Reason>) -> Self {
        Self { permits: Arc::clone(permits), reasons, since: Instant::now(), noted: Noted::default() }
    }

    /// Notes how a called host answered the delivery. `works` is `None` if the host gave no answer, and otherwise says
    /// whether the host works.
    pub(crate) fn note(&mut self, works: Option<bool>) {
        let time = self.since.elapsed();
        let took = match works {
            None => Took::Slow,
            Some(_) if time > QUICK => Took::Slow,
            // A host that answers promptly but with faults must not gain permits.
            Some(works) if time > PROMPT || !works => Took::Quick,
            Some(_) => Took::Prompt,
        };
        let has_answered = works.is_some();
        self.noted = Noted { works: works == Some(true), has_answered, took: Some(took) };
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.end(&self.reasons, self.noted);
    }
}
