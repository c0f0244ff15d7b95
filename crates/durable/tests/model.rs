//! The crash model: every order of a user's, a worker's, a disk's and a clock's steps over one or two timers, with a
//! crash possible before and after each of them.
//!
//! A store is what its transactions have made of it. They become durable in order, each at some later moment, and an
//! answer to the user is given when its transaction is durable. A crash throws away what is not durable, and the
//! worker. The restart ends all leases. The transitions are those of [`step`]; all orders are searched, breadth first,
//! so the first counterexample is a shortest one. From each world that is reached a run without further faults must
//! come to the end that was promised.
//!
//! | | |
//! |---|---|
//! | I1 | an accepted timer that was not withdrawn is delivered, or dead |
//! | I2 | no delivery starts before the timer is due |
//! | I3 | after a cancel returned `Cancelled` no delivery starts, and after `InFlight` none but the present one |
//! | I4 | without faults a timer is delivered once; after a durable acknowledgement it is not delivered |
//! | I5 | after a replacement returned, the old timer is not delivered, but for the delivery that was in flight |
//! | I6 | each instant of a series has one id, and none is left out |
//! | I7 | at most once is at most once |
//!
//! Eleven wrong variants show that the search finds what it is for.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{
    Death, DeathReason, End, Event, Failure, Lease, Next, State, Token, Withdrawal, step,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

// --- The worlds ---

/// A stored timer, without what never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mini {
    id: u128,
    due: u8,
    scheduled: u8,
    deliveries: u8,
    failures: u8,
    state: MiniState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MiniState {
    Pending,
    Leased { token: u8, until: u8, withdrawn: Option<Withdrawal> },
    Dead,
}

type Store = Vec<Mini>;

/// What the user, or the worker, learns when a transaction is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Said {
    Nothing,
    Placed(u128),
    Cancelled(u128),
    /// With the claim that delivers the timer.
    InFlight(u128, u8),
    /// With the claim that delivers the old timer, if there is one.
    Replaced {
        new: u128,
        old: Option<(u128, Option<u8>)>,
    },
    Acked(u128),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    timer: Mini,
    token: u8,
    /// The number of transactions that must become durable before the claim is.
    waits: u8,
    /// The end of the lease, as the claim has it.
    until: u8,
    begun: bool,
}

/// What an observer of the deliveries knows about a timer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    due: u8,
    scheduled: u8,
    accepted: bool,
    /// No delivery may start.
    cancelled: bool,
    /// No delivery may start but that of this claim.
    last: Option<u8>,
    acked: bool,
    begun: u8,
    succeeded: bool,
    dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    tokens: u8,
    crashes: u8,
    failures: u8,
    user: u8,
    fresh: u8,
    expired: bool,
    /// The store as the next transaction sees it.
    store: Store,
    /// The store as a crash leaves it.
    disk: Store,
    /// The store after each transaction that is not durable yet.
    log: VecDeque<(Store, Said)>,
    worker: Option<Held>,
    seen: BTreeMap<u128, Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    User,
    Sync,
    Claim,
    Begin,
    Succeed,
    Fail,
    Release,
    Reap,
    Crash,
}

const STEPS: [Step; 10] = [
    Step::Tick,
    Step::User,
    Step::Sync,
    Step::Claim,
    Step::Begin,
    Step::Succeed,
    Step::Fail,
    Step::Release,
    Step::Reap,
    Step::Crash,
];

#[derive(Clone, Copy, Debug)]
enum UserOp {
    Place(u128, u8),
    /// Takes the key of the timer that has it.
    Replace(u128, u8),
    Cancel(u128),
}

/// The bounds of a search.
#[derive(Clone, Debug)]
struct Scenario {
    user: Vec<UserOp>,
    guarantee: Guarantee,
    /// The last instant of a series with an occurrence at every second moment.
    series_until: Option<u8>,
    crashes: u8,
    failures: u8,
    last_tick: u8,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            user: vec![UserOp::Place(1, 1)],
            guarantee: Guarantee::AtLeastOnce,
            series_until: None,
            crashes: 2,
            failures: 1,
            last_tick: 3,
        }
    }
}

/// What is wrong with the store or the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    DeleteBeforeDelivery,
    NextInATransactionOfItsOwn,
    CancelForgetsTheLease,
    RestartForgetsTheWithdrawal,
    AnswerBeforeDurable,
    OnceBeginsBeforeDurable,
    ClaimIgnoresTheDueMoment,
    NextFromTheEndOfTheDelivery,
    FreshIds,
    ReplaceKeepsTheOld,
    BeginsAfterTheLease,
}

const LEASE: u8 = 2;
const PERIOD: u8 = 2;

fn at(moment: u8) -> UtcMillis {
    UtcMillis::from_millis(moment.into())
}

fn back(moment: UtcMillis) -> u8 {
    moment.as_millis().try_into().unwrap()
}

/// The claim that delivers a timer.
fn claim_of(timer: &Mini) -> Option<u8> {
    match timer.state {
        MiniState::Leased { token, .. } => Some(token),
        _ => None,
    }
}

struct Model {
    scenario: Scenario,
    wrong: Wrong,
}

impl Model {
    fn series(&self) -> Option<Series> {
        let end = Some(at(self.scenario.series_until?));
        let plan = Plan::Every(PERIOD.into());
        Some(Series { id: TimerId::from_u128(99), plan, missed: MissedInstants::All, end, paused: false })
    }

    fn timer(&self, mini: &Mini) -> Timer {
        Timer {
            id: TimerId::from_u128(mini.id),
            namespace: "".into(),
            key: None,
            kind: "".into(),
            payload: Payload::default(),
            labels: Vec::new(),
            policy: Policy {
                attempts: 2,
                deliveries: 5,
                guarantee: self.scenario.guarantee,
                ..Policy::default()
            },
            series: self.series(),
            created: at(0),
            scheduled: at(mini.scheduled),
            due: at(mini.due),
            deliveries: mini.deliveries.into(),
            failures: mini.failures.into(),
            last_error: None,
            state: match mini.state {
                MiniState::Pending => State::Pending,
                MiniState::Leased { token, until, withdrawn } => {
                    let token = Token { incarnation: 0, claim: token.into() };
                    State::Leased(Lease { token, until: at(until), withdrawn })
                }
                MiniState::Dead => State::Dead(Death { reason: DeathReason::Attempts, at: at(0) }),
            },
            trace: None,
            has_chosen_id: false,
        }
    }

    fn mini(timer: &Timer) -> Mini {
        Mini {
            id: timer.id.as_u128(),
            due: back(timer.due),
            scheduled: back(timer.scheduled),
            deliveries: timer.deliveries.try_into().unwrap(),
            failures: timer.failures.try_into().unwrap(),
            state: match &timer.state {
                State::Pending => MiniState::Pending,
                State::Leased(lease) => MiniState::Leased {
                    token: lease.token.claim.try_into().unwrap(),
                    until: back(lease.until),
                    withdrawn: lease.withdrawn,
                },
                State::Dead(_) => MiniState::Dead,
                State::Parked(_) => panic!("nobody parks a timer"),
            },
        }
    }

    fn is_once(&self) -> bool {
        self.scenario.guarantee == Guarantee::AtMostOnce
    }

    // --- Transactions ---

    /// Commits the world's store.
    fn commit(&self, world: &mut World, said: Said) {
        world.log.push_back((world.store.clone(), said.clone()));
        if self.wrong == Wrong::AnswerBeforeDurable {
            Self::say(world, &said);
        }
    }

    /// The answer reaches the user.
    fn say(world: &mut World, said: &Said) {
        match said {
            Said::Nothing => {}
            Said::Placed(id) => world.seen.entry(*id).or_default().accepted = true,
            Said::Cancelled(id) => world.seen.entry(*id).or_default().cancelled = true,
            Said::InFlight(id, token) => world.seen.entry(*id).or_default().last = Some(*token),
            Said::Replaced { new, old } => {
                world.seen.entry(*new).or_default().accepted = true;
                if let Some((old, in_flight)) = old {
                    let seen = world.seen.entry(*old).or_default();
                    match in_flight {
                        Some(token) => seen.last = Some(*token),
                        None => seen.cancelled = true,
                    }
                }
            }
            Said::Acked(id) => world.seen.entry(*id).or_default().acked = true,
        }
    }

    /// Stores the occurrence after a timer that has ended.
    fn follow(&self, world: &mut World, ended: &Mini) {
        let Some(series) = self.series() else { return };
        let from = match self.wrong {
            Wrong::NextFromTheEndOfTheDelivery => world.now,
            _ => ended.scheduled,
        };
        let Some(instant) = series.following(at(from), at(world.now)).instant else { return };
        world.fresh += 1;
        let id = match self.wrong {
            Wrong::FreshIds => 1_000 + u128::from(world.fresh),
            _ => TimerId::of_occurrence(series.id, instant).as_u128(),
        };
        let instant = back(instant);
        let (deliveries, failures) = (0, 0);
        world.store.push(Mini {
            id,
            due: instant,
            scheduled: instant,
            deliveries,
            failures,
            state: MiniState::Pending,
        });
        let seen = world.seen.entry(id).or_default();
        (seen.due, seen.scheduled) = (instant, instant);
    }

    /// What the world's store has after an event of a timer. Returns how the timer ended, if it did.
    fn apply(&self, world: &mut World, nth: usize, event: Event) -> Option<Option<End>> {
        let mini = world.store[nth];
        let now = at(match self.wrong {
            Wrong::ClaimIgnoresTheDueMoment => world.now.max(mini.due),
            _ => world.now,
        });
        match step(&self.timer(&mini), event, now).ok()? {
            Next::Stays(next) => {
                world.store[nth] = Self::mini(&next);
                Some(None)
            }
            Next::Ends(end) => {
                world.store.remove(nth);
                Some(Some(end))
            }
        }
    }

    fn user(&self, world: &mut World, op: UserOp) {
        let (id, due, replaces) = match op {
            UserOp::Place(id, due) => (id, due, false),
            UserOp::Replace(id, due) => (id, due, true),
            UserOp::Cancel(id) => return self.cancel(world, id),
        };
        // The only timer that is not withdrawn has the key.
        let is_owner = |timer: &Mini| {
            !matches!(timer.state, MiniState::Dead | MiniState::Leased { withdrawn: Some(_), .. })
        };
        let old = world.store.iter().position(is_owner).filter(|_| replaces);
        let old = old.map(|nth| {
            let old = world.store[nth];
            if self.wrong != Wrong::ReplaceKeepsTheOld {
                self.apply(world, nth, Event::Withdraw(Withdrawal::Replaced)).unwrap();
            }
            (old.id, claim_of(&old))
        });
        world.store.push(Mini {
            id,
            due,
            scheduled: due,
            deliveries: 0,
            failures: 0,
            state: MiniState::Pending,
        });
        let seen = world.seen.entry(id).or_default();
        (seen.due, seen.scheduled) = (due, due);
        let said = if replaces { Said::Replaced { new: id, old } } else { Said::Placed(id) };
        self.commit(world, said);
    }

    fn cancel(&self, world: &mut World, id: u128) {
        // Of a series, the occurrence that there is.
        let is_meant = |timer: &Mini| timer.id == id || self.scenario.series_until.is_some();
        let is_live = |timer: &Mini| is_meant(timer) && timer.state != MiniState::Dead;
        let Some(nth) = world.store.iter().position(is_live) else { return };
        let Mini { id, .. } = world.store[nth];
        let claim = claim_of(&world.store[nth]);
        if self.wrong == Wrong::CancelForgetsTheLease {
            world.store.remove(nth);
            return self.commit(world, Said::Cancelled(id));
        }
        self.apply(world, nth, Event::Withdraw(Withdrawal::Cancelled)).unwrap();
        let said = claim.map_or(Said::Cancelled(id), |claim| Said::InFlight(id, claim));
        self.commit(world, said);
    }

    /// The end of the worker's delivery.
    fn finish(&self, world: &mut World, event: impl Fn(Token) -> Event) {
        let Held { timer, token, .. } = world.worker.take().unwrap();
        let event = event(Token { incarnation: 0, claim: token.into() });
        let is_ack = matches!(event, Event::Ack(_));
        let Some(nth) = world.store.iter().position(|stored| stored.id == timer.id) else { return };
        let before = world.store[nth];
        let was_withdrawn = matches!(before.state, MiniState::Leased { withdrawn: Some(_), .. });
        let Some(end) = self.apply(world, nth, event) else { return };
        let said = if is_ack { Said::Acked(timer.id) } else { Said::Nothing };
        self.settle(world, &before, end.is_some(), was_withdrawn, said);
    }

    /// Goes on with the series of a timer that has ended or died, and commits.
    fn settle(&self, world: &mut World, before: &Mini, ended: bool, was_withdrawn: bool, said: Said) {
        let is_dead =
            !ended && world.store.iter().any(|timer| timer.id == before.id && timer.state == MiniState::Dead);
        if is_dead {
            world.seen.entry(before.id).or_default().dead = true;
        }
        let goes_on = (ended || is_dead) && !was_withdrawn;
        if goes_on && self.wrong == Wrong::NextInATransactionOfItsOwn {
            self.commit(world, Said::Nothing);
        }
        if goes_on {
            self.follow(world, before);
        }
        self.commit(world, said);
    }

    // --- Steps ---

    /// The world after a step, `None` if the step is not possible, or the invariant that it breaks.
    fn step(&self, world: &World, step: Step) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let scenario = &self.scenario;
        let full = world.log.len() >= 2;
        match step {
            Step::Tick if world.now < scenario.last_tick => next.now += 1,
            Step::User if !full => {
                let Some(op) = scenario.user.get(usize::from(world.user)) else { return Ok(None) };
                next.user += 1;
                self.user(&mut next, *op);
            }
            Step::Sync => {
                let Some((disk, said)) = next.log.pop_front() else { return Ok(None) };
                next.disk = disk;
                Self::say(&mut next, &said);
                if let Some(held) = &mut next.worker {
                    held.waits = held.waits.saturating_sub(1);
                }
            }
            Step::Claim if !full && world.worker.is_none() => {
                let is_due = |timer: &Mini| {
                    let is_ready = timer.due <= world.now || self.wrong == Wrong::ClaimIgnoresTheDueMoment;
                    timer.state == MiniState::Pending && is_ready
                };
                let mut due: Vec<usize> = (0..world.store.len()).collect();
                due.retain(|nth| is_due(&world.store[*nth]));
                due.sort_by_key(|nth| (world.store[*nth].due, world.store[*nth].id));
                let Some(nth) = due.first().copied() else { return Ok(None) };
                let timer = next.store[nth];
                next.tokens += 1;
                let token = next.tokens;
                let claim = Token { incarnation: 0, claim: token.into() };
                let end =
                    self.apply(&mut next, nth, Event::Claim { token: claim, until: at(world.now + LEASE) });
                let ended = end == Some(Some(End::Done));
                if self.wrong == Wrong::DeleteBeforeDelivery && !ended {
                    next.store.remove(nth);
                }
                let seen = next.seen.entry(timer.id).or_default();
                if seen.cancelled {
                    return Err(format!("I3, I5: {} is claimed after it was cancelled", timer.id));
                }
                self.settle(&mut next, &timer, ended, false, Said::Nothing);
                let waits = next.log.len().try_into().unwrap();
                next.worker = Some(Held { timer, token, waits, until: world.now + LEASE, begun: false });
            }
            Step::Begin if world.worker.as_ref().is_some_and(|held| !held.begun) => {
                let held = next.worker.as_mut().unwrap();
                if self.is_once() && held.waits > 0 && self.wrong != Wrong::OnceBeginsBeforeDurable {
                    return Ok(None);
                }
                // A lease that has ended may be another holder's, or its timer withdrawn.
                if !self.is_once() && world.now >= held.until && self.wrong != Wrong::BeginsAfterTheLease {
                    next.worker = None;
                    return Ok(Some(next));
                }
                held.begun = true;
                let (id, token) = (held.timer.id, held.token);
                self.begin(&mut next, id, token)?;
            }
            Step::Succeed if world.worker.as_ref().is_some_and(|held| held.begun) && !full => {
                let id = world.worker.as_ref().unwrap().timer.id;
                next.seen.entry(id).or_default().succeeded = true;
                self.finish(&mut next, Event::Ack);
            }
            Step::Fail if world.worker.as_ref().is_some_and(|held| held.begun) && !full => {
                if world.failures == scenario.failures {
                    return Ok(None);
                }
                next.failures += 1;
                let failure = Failure { retry_after: Some(Duration::ZERO), ..Failure::default() };
                self.finish(&mut next, |token| Event::Fail(token, failure.clone()));
            }
            Step::Release if world.worker.as_ref().is_some_and(|held| !held.begun) && !full => {
                // A timer that is delivered at most once cannot be given back.
                if self.is_once() || world.failures == scenario.failures {
                    return Ok(None);
                }
                next.failures += 1;
                self.finish(&mut next, Event::Release);
            }
            Step::Reap if !full => {
                let is_over = |timer: &Mini| matches!(timer.state, MiniState::Leased { until, .. } if until <= world.now);
                let Some(nth) = world.store.iter().position(is_over) else { return Ok(None) };
                next.expired = true;
                self.expire(&mut next, nth);
            }
            Step::Crash if world.crashes < scenario.crashes => {
                next.crashes += 1;
                next.worker = None;
                next.log.clear();
                next.store = next.disk.clone();
                while let Some(nth) =
                    next.store.iter().position(|timer| matches!(timer.state, MiniState::Leased { .. }))
                {
                    if self.wrong == Wrong::RestartForgetsTheWithdrawal {
                        next.store[nth].state = MiniState::Pending;
                    } else {
                        self.expire(&mut next, nth);
                    }
                }
                // The restart's transaction is durable before anything else begins.
                next.log.clear();
                next.disk = next.store.clone();
            }
            _ => return Ok(None),
        }
        Ok(Some(next))
    }

    fn expire(&self, world: &mut World, nth: usize) {
        let before = world.store[nth];
        let was_withdrawn = matches!(before.state, MiniState::Leased { withdrawn: Some(_), .. });
        let end = self.apply(world, nth, Event::Expire).unwrap();
        self.settle(world, &before, end.is_some(), was_withdrawn, Said::Nothing);
    }

    /// A delivery starts.
    fn begin(&self, world: &mut World, id: u128, token: u8) -> Result<(), String> {
        let now = world.now;
        let is_calm = world.crashes == 0 && world.failures == 0 && !world.expired;
        let seen = world.seen.entry(id).or_default();
        seen.begun += 1;
        let Seen { scheduled, .. } = *seen;
        if now < seen.due {
            return Err(format!("I2: {id} starts at {now}, and is due at {}", seen.due));
        }
        if seen.cancelled {
            return Err(format!("I3, I5: {id} starts after it was withdrawn"));
        }
        if seen.last.is_some_and(|last| last != token) {
            return Err(format!("I3, I5: {id} starts again after its last delivery"));
        }
        if seen.acked {
            return Err(format!("I4: {id} starts after a durable acknowledgement"));
        }
        if seen.begun > 1 && is_calm {
            return Err(format!("I4: {id} starts twice without a fault"));
        }
        if seen.begun > 1 && self.is_once() {
            return Err(format!("I7: {id} starts twice"));
        }
        let is_same =
            |(other, seen): &(&u128, &Seen)| **other != id && seen.scheduled == scheduled && seen.begun > 0;
        if self.scenario.series_until.is_some() && world.seen.iter().any(|pair| is_same(&pair)) {
            return Err(format!("I6: the instant {scheduled} has two ids"));
        }
        Ok(())
    }

    /// The run without further faults.
    fn drain(&self, world: &World) -> Result<(), String> {
        let mut world = world.clone();
        let calm = Model {
            scenario: Scenario { last_tick: 60, crashes: 0, failures: 0, ..self.scenario.clone() },
            wrong: self.wrong,
        };
        for _ in 0..400 {
            // The user does not go on: each prefix of the user's operations is a world of its own.
            let order = [Step::Sync, Step::Begin, Step::Succeed, Step::Claim, Step::Reap, Step::Tick];
            let mut goes_on = false;
            for step in order {
                if let Some(next) = calm.step(&world, step)? {
                    (world, goes_on) = (next, true);
                    break;
                }
            }
            if !goes_on {
                break;
            }
        }
        if world.store.iter().any(|timer| timer.state != MiniState::Dead) {
            return Err("I1: a timer stays without an end".into());
        }
        let withdrawn = |seen: &Seen| seen.cancelled || seen.last.is_some();
        for (id, seen) in &world.seen {
            if seen.accepted && !withdrawn(seen) {
                let is_lost_once = self.is_once() && world.crashes > 0;
                let is_delivered = if self.is_once() { seen.begun == 1 } else { seen.succeeded };
                if !is_delivered && !seen.dead && !is_lost_once {
                    return Err(format!("I1: {id} was accepted and is lost"));
                }
            }
        }
        if let Some(until) = self.scenario.series_until {
            let was_withdrawn = world.seen.values().any(withdrawn) || world.user > 1;
            let is_accepted = world.seen.values().any(|seen| seen.accepted);
            for instant in (1..=until).step_by(PERIOD.into()) {
                let is_it = |seen: &&Seen| seen.scheduled == instant && (seen.begun > 0 || seen.dead);
                if is_accepted && !was_withdrawn && world.seen.values().filter(is_it).count() != 1 {
                    return Err(format!("I6: the instant {instant} is left out"));
                }
            }
        }
        Ok(())
    }

    /// All worlds. Returns their number, or the steps to the first that breaks an invariant.
    fn search(&self) -> Result<usize, String> {
        let first = World {
            now: 0,
            tokens: 0,
            crashes: 0,
            failures: 0,
            user: 0,
            fresh: 0,
            expired: false,
            store: Vec::new(),
            disk: Vec::new(),
            log: VecDeque::new(),
            worker: None,
            seen: BTreeMap::new(),
        };
        let mut ways: Vec<(usize, Option<Step>)> = vec![(0, None)];
        let mut found = HashSet::from([first.clone()]);
        let mut open = VecDeque::from([(0, first)]);
        let way = |ways: &[(usize, Option<Step>)], mut at: usize| {
            let mut steps = Vec::new();
            while let (before, Some(step)) = ways[at] {
                steps.push(step);
                at = before;
            }
            steps.reverse();
            steps
        };
        while let Some((at, world)) = open.pop_front() {
            self.drain(&world).map_err(|broken| format!("{broken}, after {:?}", way(&ways, at)))?;
            for step in STEPS {
                let next = self.step(&world, step);
                let next =
                    next.map_err(|broken| format!("{broken}, after {:?}, {step:?}", way(&ways, at)))?;
                if let Some(next) = next.filter(|next| !found.contains(next)) {
                    found.insert(next.clone());
                    ways.push((at, Some(step)));
                    open.push_back((ways.len() - 1, next));
                }
            }
        }
        Ok(found.len())
    }
}

fn search(scenario: &Scenario, wrong: Wrong) -> Result<usize, String> {
    Model { scenario: scenario.clone(), wrong }.search()
}

// --- The scenarios ---

fn one_timer() -> Scenario {
    Scenario { user: vec![UserOp::Place(1, 1), UserOp::Cancel(1)], ..Scenario::default() }
}

fn two_timers() -> Scenario {
    Scenario {
        user: vec![UserOp::Place(1, 1), UserOp::Place(2, 0), UserOp::Cancel(1)],
        crashes: 1,
        last_tick: 2,
        ..Scenario::default()
    }
}

fn one_key() -> Scenario {
    Scenario {
        user: vec![UserOp::Place(1, 0), UserOp::Replace(2, 1), UserOp::Cancel(2)],
        crashes: 1,
        last_tick: 2,
        ..Scenario::default()
    }
}

fn at_most_once() -> Scenario {
    let user = vec![UserOp::Place(1, 1), UserOp::Place(2, 1), UserOp::Cancel(1)];
    Scenario { guarantee: Guarantee::AtMostOnce, user, ..Scenario::default() }
}

fn series() -> Scenario {
    Scenario {
        user: vec![UserOp::Place(1, 1), UserOp::Cancel(1)],
        series_until: Some(5),
        crashes: 1,
        last_tick: 6,
        ..Scenario::default()
    }
}

#[test]
fn no_crash_breaks_a_promise() {
    let scenarios = [
        ("one timer", one_timer()),
        ("two timers", two_timers()),
        ("one key", one_key()),
        ("at most once", at_most_once()),
        ("a series", series()),
    ];
    for (name, scenario) in scenarios {
        let worlds = search(&scenario, Wrong::Nothing).unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert!(worlds > 1_000, "{name} has {worlds} worlds: the search does not get far");
        eprintln!("{name}: {worlds} worlds");
    }
}

/// The search finds the fault, by one of these invariants.
#[track_caller]
fn goes_red(scenario: &Scenario, wrong: Wrong, invariants: &[&str]) {
    let broken = search(scenario, wrong).expect_err("the search does not find the fault");
    eprintln!("{wrong:?}: {broken}");
    assert!(invariants.iter().any(|name| broken.starts_with(name)), "{wrong:?} breaks another one: {broken}");
}

#[test]
fn red_if_a_timer_is_deleted_before_its_delivery() {
    goes_red(&one_timer(), Wrong::DeleteBeforeDelivery, &["I1"]);
}

#[test]
fn red_if_the_next_occurrence_has_a_transaction_of_its_own() {
    goes_red(&series(), Wrong::NextInATransactionOfItsOwn, &["I6"]);
}

#[test]
fn red_if_a_cancel_forgets_the_lease() {
    goes_red(&one_timer(), Wrong::CancelForgetsTheLease, &["I3"]);
}

#[test]
fn red_if_a_restart_forgets_the_withdrawal() {
    goes_red(&one_timer(), Wrong::RestartForgetsTheWithdrawal, &["I3"]);
    goes_red(&one_key(), Wrong::RestartForgetsTheWithdrawal, &["I3, I5"]);
}

#[test]
fn red_if_an_answer_comes_before_its_change_is_durable() {
    goes_red(&one_timer(), Wrong::AnswerBeforeDurable, &["I1"]);
}

#[test]
fn red_if_at_most_once_begins_before_the_claim_is_durable() {
    goes_red(&at_most_once(), Wrong::OnceBeginsBeforeDurable, &["I7"]);
}

#[test]
fn red_if_a_claim_ignores_the_due_moment() {
    goes_red(&one_timer(), Wrong::ClaimIgnoresTheDueMoment, &["I2"]);
}

#[test]
fn red_if_the_next_occurrence_follows_the_end_of_the_delivery() {
    goes_red(&series(), Wrong::NextFromTheEndOfTheDelivery, &["I6"]);
}

#[test]
fn red_if_ids_are_made_anew() {
    goes_red(&series(), Wrong::FreshIds, &["I6"]);
}

#[test]
fn red_if_a_delivery_begins_after_its_lease() {
    goes_red(&one_timer(), Wrong::BeginsAfterTheLease, &["I3", "I4"]);
}

#[test]
fn red_if_a_replacement_keeps_the_old_timer() {
    goes_red(&one_key(), Wrong::ReplaceKeepsTheOld, &["I3, I5"]);
}
