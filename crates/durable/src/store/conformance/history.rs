//! Random lives of stores, with a checker that follows them.
//!
//! The checker knows which timers are stored: a timer appears or disappears only by an outcome that says so. It knows
//! which timers a claim must return, and in which order. A timer that was withdrawn or acknowledged is not claimed
//! again, none is claimed early, and an instant of a series has one id. At the end of a life everything is
//! delivered, dead or withdrawn.

use super::bench::{LEASE, Make, START, all, audit, timer};
use super::faults::{Faults, Faulty};
use crate::plan::{MissedInstants, Plan, Series};
use crate::policy::{Backoff, Guarantee, Policy};
use crate::state::{Failure, Phase, Refusal, State, Token};
use crate::store::{
    Answer, Claimant, Claimed, Durability, Filter, IfPresent, Leased, Limit, Op, Outcome, PAUSED, Reaped,
    StoreErrorKind, TimerStore,
};
use crate::timer::{Address, KeyOf, Payload, Timer, TimerId};
use crate::utc::UtcMillis;
use core::fmt::Debug;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tourbillon::{Clock, ManualClock, Timestamp};

/// The length and the hardships of a random life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The number of steps. A step is a batch of operations, a claim, a reap, a renewal or a move of the clock.
    pub steps: u32,
    /// The faults of the store's answers, after which the caller repeats its operations. Only for [`histories`].
    pub faults: Option<Faults>,
}

impl Default for Life {
    fn default() -> Self {
        Self { steps: 120, faults: None }
    }
}

/// How often each operation had each outcome, by their names.
pub type Tally = BTreeMap<(&'static str, &'static str), u64>;

/// Gives a store one random life for each seed, and follows it with a checker. Returns how often each operation had each
/// outcome.
///
/// # Panics
///
/// Panics if the store deviates. The message names the seed.
pub fn histories(make: Make<'_>, seeds: Range<u64>, life: &Life) -> Tally {
    let mut tally = Tally::new();
    for seed in seeds {
        let mut player = Player::new(&[make], seed, life.faults);
        player.live(life.steps);
        player.end();
        for (what, count) in core::mem::take(&mut player.tally) {
            *tally.entry(what).or_default() += count;
        }
    }
    tally
}

/// Gives two stores the same random life for each seed, and compares all that is visible: outcomes, claims, lists, stored
/// timers and counts.
///
/// # Panics
///
/// Panics if the stores differ. The message names the seed.
pub fn differential(one: Make<'_>, other: Make<'_>, seeds: Range<u64>, life: &Life) {
    for seed in seeds {
        let mut player = Player::new(&[one, other], seed, None);
        player.live(life.steps);
        player.end();
    }
}

/// One life.
struct Player {
    seed: u64,
    step: u32,
    rng: fastrand::Rng,
    clock: ManualClock,
    /// The stores; the first one is around [`raw`](Self::raw).
    stores: Vec<Arc<dyn TimerStore>>,
    faulty: Option<Arc<Faulty>>,
    /// The first store, without faults.
    raw: Arc<dyn TimerStore>,
    claims: u64,
    ids: Vec<TimerId>,
    series: Vec<TimerId>,
    held: Vec<(TimerId, Token)>,
    /// Creations whose answers were lost, and which the caller repeats later.
    unsure: Vec<Op>,
    seen: Seen,
    tally: Tally,
}

/// All that the checker remembers.
#[derive(Default)]
struct Seen {
    stored: BTreeMap<TimerId, Timer>,
    /// Timers of which no delivery may begin.
    withdrawn: BTreeSet<TimerId>,
    /// Timers of which a delivery was acknowledged.
    done: BTreeSet<TimerId>,
}

/// Prints the seed of a life that fails.
impl Drop for Player {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the life with seed {} failed in step {}", self.seed, self.step);
        }
    }
}

const NAMESPACES: [&str; 2] = ["", "n"];
const LABELS: [&str; 3] = ["l", "la", "m"];
const REASONS: [&str; 3] = ["limit", "lim", PAUSED];

impl Player {
    fn new(makes: &[Make<'_>], seed: u64, faults: Option<Faults>) -> Self {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(START * 1_000_000));
        let mut stores: Vec<Arc<dyn TimerStore>> = makes.iter().map(|make| make(clock.clone())).collect();
        let raw = Arc::clone(&stores[0]);
        let faulty = faults.map(|faults| Arc::new(Faulty::new(Arc::clone(&raw), seed, faults)));
        if let Some(faulty) = &faulty {
            stores[0] = Arc::clone(faulty) as Arc<dyn TimerStore>;
        }
        Self {
            seed,
            step: 0,
            rng: fastrand::Rng::with_seed(seed),
            clock,
            stores,
            faulty,
            raw,
            claims: 0,
            ids: Vec::new(),
            series: Vec::new(),
            held: Vec::new(),
            unsure: Vec::new(),
            seen: Seen::default(),
            tally: Tally::new(),
        }
    }

    fn now(&self) -> UtcMillis {
        UtcMillis::from_timestamp(self.clock.now())
    }

    /// All stores' answer, and whether an earlier answer to the same question was lost.
    #[track_caller]
    fn ask<T: PartialEq + Debug>(&self, ask: impl Fn(&dyn TimerStore) -> Answer<'_, T>) -> (T, bool) {
        let mut answer: Option<T> = None;
        let mut was_lost = false;
        for store in &self.stores {
            let its = loop {
                match pollster::block_on(ask(&**store)) {
                    Ok(its) => break its,
                    Err(error) if self.faulty.is_some() && error.is_transient() => {
                        was_lost |= error.kind() == StoreErrorKind::Unknown;
                    }
                    Err(error) => panic!("a store failed: {error}"),
                }
            };
            match &answer {
                None => answer = Some(its),
                Some(first) => assert_eq!(its, *first, "the stores differ"),
            }
        }
        (answer.expect("there is a store"), was_lost)
    }

    fn live(&mut self, steps: u32) {
        for step in 0..steps {
            self.step = step;
            match self.rng.u32(0..100) {
                0..55 => {
                    let most = if self.faulty.is_some() { 1 } else { 4 };
                    let mut ops: Vec<Op> = (0..self.rng.u32(1..=most)).map(|_| self.op()).collect();
                    // The outcome does not name the timers, so the checker wants nothing else to happen with them.
                    let is_bulk = |op: &Op| matches!(op, Op::CancelLabelled { .. });
                    if let Some(bulk) = ops.iter().position(is_bulk) {
                        ops = vec![ops.swap_remove(bulk)];
                    }
                    match self.unsure.pop().filter(|_| self.rng.bool()) {
                        Some(again) => self.apply(vec![again]),
                        None => self.apply(ops),
                    }
                }
                55..72 => {
                    let limit = Limit {
                        timers: self.rng.choice([1, 3, 100]).unwrap_or(1),
                        bytes: self.rng.choice([1, 20, u64::MAX]).unwrap_or(1),
                    };
                    self.claim(limit);
                }
                72..77 => self.renew(),
                77..83 => {
                    let limit = self.rng.choice([1, 3, 100]).unwrap_or(1);
                    self.reap(limit);
                }
                83..98 => {
                    let by = match self.rng.u32(0..20) {
                        // A caller repeats its creations within the hour for which ids are remembered.
                        0 if self.faulty.is_none() => super::bench::HOUR,
                        1..5 => LEASE / 2,
                        _ => self.rng.u64(0..1_500),
                    };
                    self.clock.advance(Duration::from_millis(by));
                }
                _ => {
                    let back = self.now().as_millis() - self.rng.u64(0..500);
                    self.clock.set(Timestamp::from_nanos(back * 1_000_000));
                }
            }
            if step % 16 == 0 {
                self.compare();
            }
        }
        self.compare();
    }

    /// All that is visible of the stores.
    #[track_caller]
    fn compare(&self) {
        for store in self.stores.iter().skip(1).chain([&self.raw]) {
            audit(&**store);
            let stored: Vec<Timer> = all(&**store);
            assert!(
                stored.iter().eq(self.seen.stored.values()),
                "the stores differ in what they have stored"
            );
        }
        for timer in self.seen.stored.values().filter(|timer| !self.ids.contains(&timer.id)) {
            let of = timer.series.as_ref().map(|series| TimerId::of_occurrence(series.id, timer.scheduled));
            let is_its = of.is_none_or(|of| of == timer.id);
            assert!(is_its, "{} is not the id of the instant for which it was made", timer.id);
        }
        if self.stores.len() < 2 {
            return;
        }
        let _same = self.ask(|store| store.counts());
        let _same = self.ask(|store| store.horizon());
        let _same = self.ask(|store| store.upcoming(UtcMillis::ZERO, UtcMillis::MAX, 1_000));
        let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead].map(Some);
        for phase in phases.into_iter().chain([None]) {
            for (label, key) in [(None, None), (Some("l"), None), (None, Some("k")), (Some("m"), Some("k1"))]
            {
                let filter = Filter {
                    label: label.map(Into::into),
                    key_prefix: key.map(Into::into),
                    phase,
                    ..Filter::default()
                };
                let _same = self.ask(|store| Box::pin(core::future::ready(Ok(pages(store, &filter)))));
            }
        }
    }

    // --- Random operations ---

    fn some_id(&mut self) -> TimerId {
        if self.rng.u32(0..3) == 0
            && let Some((held, _)) = self.rng.choice(&self.held)
        {
            return *held;
        }
        let ids = core::mem::take(&mut self.ids);
        let recent = ids.len().saturating_sub(40);
        let id = self.rng.choice(&ids[recent..]).copied().unwrap_or(TimerId::from_u128(9));
        self.ids = ids;
        id
    }

    fn key(&mut self) -> Box<str> {
        format!("k{}", self.rng.u32(0..8)).into()
    }

    fn namespace(&mut self) -> Box<str> {
        NAMESPACES[self.rng.usize(0..NAMESPACES.len())].into()
    }

    fn address(&mut self) -> Address {
        // A repeated operation by key may find another timer.
        if self.faulty.is_some() || self.rng.bool() {
            Address::Id(self.some_id())
        } else {
            Address::Key(KeyOf { namespace: self.namespace(), key: self.key() })
        }
    }

    fn moment(&mut self) -> UtcMillis {
        UtcMillis::from_millis(self.now().as_millis() + self.rng.u64(0..3_000) - 200)
    }

    fn policy(&mut self) -> Policy {
        let rng = &mut self.rng;
        Policy {
            attempts: rng.u32(1..4),
            deliveries: rng.u32(1..5),
            max_age: (rng.u32(0..5) == 0).then(|| Duration::from_millis(rng.u64(0..60_000))),
            backoff: match rng.u32(0..4) {
                0 => Backoff::Standard,
                1 => Backoff::Fixed(Duration::from_millis(100)),
                2 => Backoff::Exponential {
                    first: Duration::from_millis(50),
                    max: Duration::from_millis(1_000),
                },
                _ => Backoff::Ladder(vec![Duration::ZERO, Duration::from_millis(10)]),
            },
            jitter: Duration::from_millis(rng.u64(0..3) * 70),
            guarantee: if rng.u32(0..6) == 0 { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce },
            ..Policy::default()
        }
    }

    fn series(&mut self) -> Series {
        let id = match self.rng.choice(&self.series).copied() {
            Some(used) if self.rng.u32(0..6) == 0 => used,
            _ => TimerId::from_u128(self.rng.u128(..)),
        };
        self.series.push(id);
        let missed = if self.rng.bool() { MissedInstants::All } else { MissedInstants::Skip };
        let end = (self.rng.u32(0..3) == 0).then(|| self.moment() + Duration::from_millis(3_000));
        let plan = Plan::Every(self.rng.choice([100, 700, 5_000]).unwrap_or(1));
        Series { id, plan, missed, end, paused: false }
    }

    fn timer(&mut self) -> Timer {
        let id =
            if self.rng.u32(0..10) == 0 { self.some_id() } else { TimerId::from_u128(self.rng.u128(..)) };
        self.ids.push(id);
        let due = self.moment();
        let is_series = self.rng.u32(0..4) == 0;
        Timer {
            namespace: self.namespace(),
            key: (self.rng.u32(0..5) < 3).then(|| self.key()),
            payload: Payload(vec![1; self.rng.usize(0..30)].into()),
            labels: LABELS.into_iter().filter(|_| self.rng.u32(0..3) == 0).map(Into::into).collect(),
            policy: self.policy(),
            series: is_series.then(|| self.series()),
            has_chosen_id: self.faulty.is_some() || self.rng.bool(),
            ..timer(id, due)
        }
    }

    fn op(&mut self) -> Op {
        let modes = [IfPresent::Reject, IfPresent::Keep, IfPresent::Replace, IfPresent::ReplaceKeepDue];
        match self.rng.u32(0..100) {
            0..40 => Op::Place(Box::new(self.timer()), modes[self.rng.usize(0..4)]),
            40..50 => {
                let only = (self.rng.u32(0..4) == 0).then(|| self.some_id());
                Op::Cancel(self.address(), only)
            }
            50..52 => Op::CancelLabelled {
                namespace: self.namespace(),
                label: LABELS[self.rng.usize(0..3)].into(),
                limit: self.rng.u32(1..4),
            },
            52..56 => Op::Move(self.address(), self.moment()),
            56..60 => Op::Pause(self.address()),
            60..65 => Op::Resume(self.address()),
            65..68 => Op::Unpark(REASONS[self.rng.usize(0..3)].into(), self.rng.u32(0..4)),
            68..71 => Op::Replay(self.some_id()),
            71..74 => Op::Fire(self.address()),
            _ => {
                let nth = self.rng.usize(0..self.held.len().max(1));
                let Some((id, token)) = self.held.get(nth).copied() else {
                    return Op::Replay(self.some_id());
                };
                if self.rng.u32(0..10) > 0 {
                    let _ended = self.held.swap_remove(nth);
                }
                match self.rng.u32(0..12) {
                    0..5 => Op::Ack(id, token),
                    5 => Op::Skip(id, token),
                    6..9 => {
                        let pause = Duration::from_millis(self.rng.u64(0..500));
                        let failure = Failure {
                            error: "no".into(),
                            retry_after: self.rng.bool().then_some(pause),
                            is_final: self.rng.u32(0..4) == 0,
                        };
                        Op::Fail(id, token, failure)
                    }
                    9 => Op::Snooze(id, token, self.moment()),
                    10 => Op::Release(id, token),
                    _ => Op::Park(id, token, REASONS[self.rng.usize(0..2)].into()),
                }
            }
        }
    }

    // --- Steps, and what follows from their answers ---

    #[track_caller]
    fn apply(&mut self, ops: Vec<Op>) {
        let answer = match (&self.faulty, &ops[..]) {
            (Some(faulty), [Op::Place(timer, IfPresent::Reject)]) if self.step.is_multiple_of(2) => {
                match pollster::block_on(faulty.apply(ops.clone(), Durability::PowerLoss)) {
                    Ok(outcomes) => Some((outcomes, false)),
                    Err(error) if error.kind() == StoreErrorKind::Unknown => {
                        self.unsure.extend(ops.iter().cloned());
                        Some((vec![Outcome::Repeated(timer.id)], true))
                    }
                    Err(_) => None,
                }
            }
            _ => None,
        };
        let (outcomes, was_lost) =
            answer.unwrap_or_else(|| self.ask(|store| store.apply(ops.clone(), Durability::PowerLoss)));
        assert_eq!(outcomes.len(), ops.len());
        let mut expected: BTreeSet<TimerId> = self.seen.stored.keys().copied().collect();
        // Timers that a cancel by label removed: the outcome does not name them.
        let mut unnamed = Vec::new();
        for (op, outcome) in ops.iter().zip(&outcomes) {
            *self.tally.entry((name_of(op), name_of_outcome(outcome))).or_default() += 1;
            self.follow(op, outcome, &mut expected, &mut unnamed);
        }
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        let ids: BTreeSet<TimerId> = stored.keys().copied().collect();
        if was_lost {
            self.follow_lost(&ops[0], &outcomes[0], &ids);
        } else {
            let appeared: Vec<_> = ids.difference(&expected).collect();
            assert!(appeared.is_empty(), "{ops:?}: {outcomes:?}: {appeared:?} appeared");
            let missing: Vec<TimerId> = expected.difference(&ids).copied().collect();
            let removed: u32 = unnamed.iter().map(|(_, _, removed)| *removed).sum();
            let is_meant = |id: &TimerId| {
                let labelled = |timer: &Timer| {
                    unnamed
                        .iter()
                        .any(|(space, label, _)| *space == timer.namespace && timer.labels.contains(label))
                };
                self.seen.stored.get(id).is_some_and(labelled)
            };
            assert!(
                missing.len() == removed as usize && missing.iter().all(is_meant),
                "{ops:?}: {outcomes:?}: {missing:?} are lost"
            );
            self.seen.withdrawn.extend(missing);
        }
        for timer in stored.values() {
            if matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some()) {
                self.seen.withdrawn.insert(timer.id);
            }
        }
        self.seen.stored = stored;
    }

    #[track_caller]
    fn follow(
        &mut self,
        op: &Op,
        outcome: &Outcome,
        expected: &mut BTreeSet<TimerId>,
        unnamed: &mut Vec<(Box<str>, Box<str>, u32)>,
    ) {
        let seen = &mut self.seen;
        let mut remove = |id: &TimerId| {
            // It may have been removed by label in the same batch.
            let _was_there = expected.remove(id);
        };
        match outcome {
            Outcome::Replaced { old, was, .. } => {
                seen.withdrawn.insert(*old);
                if *was != Phase::Leased {
                    remove(old);
                }
            }
            Outcome::Cancelled(timer) => {
                seen.withdrawn.insert(timer.id);
                remove(&timer.id);
            }
            Outcome::InFlight(id) => drop(seen.withdrawn.insert(*id)),
            Outcome::Ended { id, phase, .. } => {
                let is_withdrawn = seen.withdrawn.contains(id);
                if *phase == Phase::Withdrawn {
                    assert!(is_withdrawn, "{id} is withdrawn, but nobody withdrew it");
                }
                if *phase == Phase::Done {
                    seen.done.insert(*id);
                }
                if matches!(phase, Phase::Done | Phase::Withdrawn) {
                    remove(id);
                } else {
                    assert!(!is_withdrawn, "{id} was withdrawn, and is {phase:?}");
                }
            }
            Outcome::NotFound => match op {
                Op::Cancel(Address::Id(id), None) | Op::Move(Address::Id(id), _) | Op::Replay(id) => {
                    let is_removed = unnamed.iter().any(|(_, _, removed)| *removed > 0);
                    assert!(is_removed || !expected.contains(id) || self.faulty.is_some(), "{id} is lost");
                }
                _ => {}
            },
            Outcome::CancelledMany { cancelled, in_flight, .. } => {
                if let Op::CancelLabelled { namespace, label, limit } = op {
                    assert!(cancelled <= limit && in_flight <= cancelled);
                    unnamed.push((namespace.clone(), label.clone(), cancelled - in_flight));
                }
            }
            _ => {}
        }
        let new = match outcome {
            Outcome::Created(id) | Outcome::Replaced { new: id, .. } => {
                assert!(!expected.contains(id), "{id} is created a second time");
                // The id of a timer that ended, and that is not remembered any more.
                let was_there = seen.withdrawn.remove(id) | seen.done.remove(id);
                assert!(!was_there || self.faulty.is_none(), "{id} is doubled by a repeated creation");
                Some(*id)
            }
            Outcome::Ended { next, .. } => *next,
            _ => None,
        };
        if let Some(new) = new {
            assert!(expected.insert(new), "{new} is stored a second time");
        }
    }

    /// An operation with a lost answer was repeated. Its effect is that of one operation.
    #[track_caller]
    fn follow_lost(&mut self, op: &Op, outcome: &Outcome, ids: &BTreeSet<TimerId>) {
        let seen = &mut self.seen;
        let gone: Vec<&Timer> = seen.stored.values().filter(|timer| !ids.contains(&timer.id)).collect();
        let come: Vec<&TimerId> = ids.iter().filter(|id| !seen.stored.contains_key(id)).collect();
        let mut withdrawn = Vec::new();
        match op {
            Op::Place(timer, mode) => {
                if matches!(outcome, Outcome::Created(_) | Outcome::Replaced { .. } | Outcome::Repeated(_)) {
                    let ended = seen.withdrawn.contains(&timer.id) || seen.done.contains(&timer.id);
                    let is_stored = ids.contains(&timer.id);
                    // The lost answer may have been that the key is another timer's.
                    let is_open = timer.key.is_some() && self.unsure.contains(op);
                    assert!(is_stored || ended || is_open, "{} is lost", timer.id);
                    if is_stored && !seen.stored.contains_key(&timer.id) {
                        seen.withdrawn.remove(&timer.id);
                        seen.done.remove(&timer.id);
                    }
                }
                assert!(come.iter().all(|id| **id == timer.id), "{come:?} appeared");
                let replaces = matches!(mode, IfPresent::Replace | IfPresent::ReplaceKeepDue);
                for old in &gone {
                    assert!(replaces && old.key == timer.key && old.namespace == timer.namespace);
                    withdrawn.push(old.id);
                }
            }
            Op::Cancel(Address::Id(id), _) => {
                assert!(come.is_empty() && gone.iter().all(|timer| timer.id == *id));
                withdrawn.extend(gone.iter().map(|timer| timer.id));
            }
            Op::CancelLabelled { label, namespace, .. } => {
                assert!(come.is_empty());
                for old in &gone {
                    assert!(old.labels.contains(label) && old.namespace == *namespace, "{} is lost", old.id);
                    withdrawn.push(old.id);
                }
            }
            Op::Ack(id, _) | Op::Skip(id, _) => {
                assert!(come.len() <= 1 && gone.iter().all(|timer| timer.id == *id));
                assert!(
                    matches!(outcome, Outcome::Ended { .. } | Outcome::Refused(Refusal::Stale)),
                    "{outcome:?}"
                );
                seen.done.extend(gone.iter().map(|timer| timer.id));
            }
            Op::Fail(id, ..) | Op::Snooze(id, ..) | Op::Release(id, ..) | Op::Park(id, ..) => {
                assert!(come.len() <= 1);
                for old in &gone {
                    assert!(old.id == *id && seen.withdrawn.contains(id), "{id} is lost");
                }
            }
            _ => assert!(come.is_empty() && gone.is_empty(), "{op:?}: {come:?} appeared, {gone:?} are lost"),
        }
        seen.withdrawn.extend(withdrawn);
    }

    /// The timers that a claim must return, in order.
    fn due(&self, limit: Limit) -> Vec<TimerId> {
        let now = self.now();
        let mut due: Vec<&Timer> = self
            .seen
            .stored
            .values()
            .filter(|timer| timer.state == State::Pending && timer.due <= now)
            .collect();
        due.sort_by_key(|timer| (timer.due, timer.id));
        let mut bytes = 0;
        let mut ids = Vec::new();
        for timer in due {
            if ids.len() == limit.timers as usize || bytes > 0 && bytes >= limit.bytes {
                break;
            }
            bytes += timer.payload.0.len() as u64;
            ids.push(timer.id);
        }
        ids
    }

    #[track_caller]
    fn claim(&mut self, limit: Limit) {
        let by = Claimant { incarnation: self.rng.u64(1..3), lease: Duration::from_millis(LEASE) };
        let wanted = self.due(limit);
        self.claims += 1;
        let number = self.claims;
        let (leased, was_lost) = match &self.faulty {
            None => {
                let (Claimed { leased, next_due, now, .. }, _) =
                    self.ask(|store| store.claim(by, number, limit));
                assert_eq!(now, self.now());
                let pending = |timer: &&Timer| timer.state == State::Pending;
                let next = all(&*self.raw).iter().filter(pending).map(|timer| timer.due).min();
                assert_eq!(next_due, next);
                (leased, false)
            }
            Some(faulty) => match pollster::block_on(faulty.claim(by, number, limit)) {
                Ok(claimed) => (claimed.leased, false),
                Err(error) if error.kind() == StoreErrorKind::Io => return,
                Err(_) => (self.ask(|store| store.recover(by, number)).0, true),
            },
        };
        let mut ids: Vec<TimerId> = leased.iter().map(|leased| leased.timer.id).collect();
        let is_once = |id: &TimerId| {
            self.seen.stored.get(id).is_some_and(|timer| timer.policy.guarantee == Guarantee::AtMostOnce)
        };
        let mut wanted = wanted;
        if was_lost {
            // A lost answer loses what may be delivered only once. The rest comes back, in any order.
            wanted.retain(|id| !is_once(id));
            wanted.sort_unstable();
            ids.sort_unstable();
        }
        assert_eq!(ids, wanted, "a claim returns what is due, the longest due first");
        let token = Token { incarnation: by.incarnation, claim: number };
        for Leased { timer, token: its } in &leased {
            let (id, seen) = (timer.id, &self.seen);
            assert_eq!(*its, token);
            assert!(timer.due <= self.now(), "{id} is early");
            assert!(!seen.withdrawn.contains(&id), "{id} was withdrawn before it was claimed");
            assert!(!seen.done.contains(&id), "{id} was acknowledged before it was claimed");
            if !is_once(&id) {
                self.held.push((id, token));
            }
        }
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        for id in self.seen.stored.keys().filter(|id| !stored.contains_key(id)) {
            assert!(is_once(id) && (was_lost || ids.contains(id)), "{id} is lost");
            self.seen.done.insert(*id);
        }
        let series: BTreeSet<TimerId> = self.occurrences_of(|timer| is_once(&timer.id));
        self.appeared(&stored, &series);
        self.seen.stored = stored;
        let recovered = self.ask(|store| {
            Box::pin(async move {
                let mut leased = store.recover(by, number).await?;
                leased.sort_by_key(|leased| leased.timer.id);
                Ok(leased)
            })
        });
        let at_least: Vec<&Leased> = {
            let mut all: Vec<&Leased> = leased.iter().filter(|leased| !is_done(&self.seen, leased)).collect();
            all.sort_by_key(|leased| leased.timer.id);
            all
        };
        assert!(recovered.0.iter().eq(at_least), "a recovery returns what the claim returned");
    }

    /// The series of timers.
    fn occurrences_of(&self, is_meant: impl Fn(&Timer) -> bool) -> BTreeSet<TimerId> {
        let meant = self.seen.stored.values().filter(|timer| is_meant(timer));
        meant.filter_map(|timer| timer.series.as_ref()).map(|series| series.id).collect()
    }

    /// New timers are occurrences of these series.
    #[track_caller]
    fn appeared(&self, stored: &BTreeMap<TimerId, Timer>, series: &BTreeSet<TimerId>) {
        for timer in stored.values().filter(|timer| !self.seen.stored.contains_key(&timer.id)) {
            let its = timer.series.as_ref().map(|series| series.id);
            assert!(its.is_some_and(|its| series.contains(&its)), "{} appeared", timer.id);
        }
    }

    #[track_caller]
    fn renew(&mut self) {
        let by = Claimant { incarnation: 1, lease: Duration::from_millis(LEASE / 2) };
        let held = self.held.clone();
        let (lost, _) = self.ask(|store| store.renew(by, held.clone()));
        for (id, token) in &held {
            let timer = self.seen.stored.get(id);
            let has = timer
                .is_some_and(|timer| matches!(timer.state, State::Leased(lease) if lease.token == *token));
            assert_eq!(
                lost.contains(id),
                held.iter().any(|(other, with)| {
                    other == id
                        && !timer.is_some_and(
                            |timer| matches!(timer.state, State::Leased(lease) if lease.token == *with),
                        )
                })
            );
            assert!(has || lost.contains(id));
        }
        self.held.retain(|(id, _)| !lost.contains(id) || self.rng.u32(0..4) == 0);
        self.seen.stored = all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
    }

    #[track_caller]
    fn reap(&mut self, limit: u32) {
        let (reaped, was_lost) = self.ask(|store| {
            Box::pin(async move {
                let mut reaped = store.reap(limit).await?;
                reaped.returned.sort_unstable();
                reaped.dead.sort_unstable();
                Ok(reaped)
            })
        });
        let Reaped { returned, dead, withdrawn, .. } = reaped;
        let now = self.now();
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        let is_over = |timer: &Timer| matches!(timer.state, State::Leased(lease) if lease.until <= now);
        let over: Vec<&Timer> = self.seen.stored.values().filter(|timer| is_over(timer)).collect();
        let count = returned.len() + dead.len() + withdrawn as usize;
        if !was_lost {
            assert_eq!(count, over.len().min(limit as usize), "a reap ends the leases that are over");
        }
        for id in returned.iter().chain(&dead) {
            assert!(self.seen.stored.get(id).is_some_and(is_over), "{id} was reaped early");
        }
        for id in self.seen.stored.keys().filter(|id| !stored.contains_key(id)) {
            assert!(self.seen.withdrawn.contains(id), "{id} is lost");
        }
        let series = self.occurrences_of(is_over);
        self.appeared(&stored, &series);
        self.seen.stored = stored;
    }

    /// Everything comes to its end.
    #[track_caller]
    fn end(&mut self) {
        if let Some(faulty) = &self.faulty {
            faulty.heal();
        }
        let series: Vec<TimerId> =
            self.seen.stored.values().filter(|timer| timer.series.is_some()).map(|timer| timer.id).collect();
        self.apply(series.into_iter().map(|id| Op::Cancel(id.into(), None)).collect());
        for _ in 0..200 {
            self.step += 1;
            self.clock.advance(Duration::from_secs(86_400));
            self.reap(u32::MAX);
            self.apply(REASONS.map(|reason| Op::Unpark(reason.into(), u32::MAX)).into());
            self.held.clear();
            self.claim(Limit { timers: u32::MAX, bytes: u64::MAX });
            let held = core::mem::take(&mut self.held);
            self.apply(held.into_iter().map(|(id, token)| Op::Ack(id, token)).collect());
            if self.seen.stored.values().all(|timer| timer.state.phase() == Phase::Dead) {
                break;
            }
        }
        self.compare();
        let left: Vec<&Timer> =
            self.seen.stored.values().filter(|timer| timer.state.phase() != Phase::Dead).collect();
        assert!(left.is_empty(), "timers without an end: {left:#?}");
    }
}

fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Place(_, IfPresent::Reject) => "place, reject",
        Op::Place(_, IfPresent::Keep) => "place, keep",
        Op::Place(_, IfPresent::Replace) => "place, replace",
        Op::Place(_, IfPresent::ReplaceKeepDue) => "place, replace but keep due",
        Op::Cancel(..) => "cancel",
        Op::CancelLabelled { .. } => "cancel by label",
        Op::Move(..) => "move",
        Op::Pause(_) => "pause",
        Op::Resume(_) => "resume",
        Op::Ack(..) => "ack",
        Op::Skip(..) => "skip",
        Op::Fail(..) => "fail",
        Op::Snooze(..) => "snooze",
        Op::Release(..) => "release",
        Op::Park(..) => "park",
        Op::Unpark(..) => "unpark",
        Op::Replay(_) => "replay",
        Op::Fire(_) => "fire",
        Op::Return(_) => "return",
    }
}

fn name_of_outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Created(_) => "created",
        Outcome::Repeated(_) => "repeated",
        Outcome::Kept(_) => "kept",
        Outcome::Replaced { was: Phase::Leased, .. } => "replaced in flight",
        Outcome::Replaced { .. } => "replaced",
        Outcome::KeyExists { .. } => "key exists",
        Outcome::Cancelled(_) => "cancelled",
        Outcome::InFlight(_) => "in flight",
        Outcome::CancelledMany { more, .. } => ["cancelled many", "cancelled many, more"][usize::from(*more)],
        Outcome::Changed(_) => "changed",
        Outcome::Ended { next: Some(_), .. } => "ended, next",
        Outcome::Ended { phase, .. } => match phase {
            Phase::Pending => "ended: pending",
            Phase::Leased => "ended: leased",
            Phase::Parked => "ended: parked",
            Phase::Dead => "ended: dead",
            Phase::Done => "ended: done",
            Phase::Withdrawn => "ended: withdrawn",
        },
        Outcome::Unparked(_) => "unparked",
        Outcome::NotFound => "not found",
        Outcome::Refused(Refusal::Stale) => "refused: stale",
        Outcome::Refused(_) => "refused: state",
    }
}

fn is_done(seen: &Seen, leased: &Leased) -> bool {
    seen.done.contains(&leased.timer.id)
}

/// The ids of all pages of a list, in order of the ids: not every list has a given order.
fn pages(store: &dyn TimerStore, filter: &Filter) -> Vec<TimerId> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = pollster::block_on(store.list(filter.clone(), cursor, 7)).expect("a read failed");
        ids.extend(page.timers.iter().map(|timer| timer.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    ids.sort_unstable();
    ids
}
