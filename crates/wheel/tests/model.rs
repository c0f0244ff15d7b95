//! Compares the wheel with a sorted list, one operation after the other.
//!
//! After each operation the test makes five checks. Every fired timer was pending, is due, and fires once. A settled
//! advance leaves no due timer. `next_expiry` is never after the first timer. Lengths agree. Stale tickets stay within
//! their bound.

use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::env;
use std::thread;
use tourbillon_wheel::{Expired, Progress, Tick, TimerId, Wheel};

/// A simple model of a wheel: a list of the pending timers.
#[derive(Default)]
struct Reference {
    pending: HashMap<TimerId, (Tick, u64)>,
    by_tick: BTreeSet<(Tick, TimerId)>,
    /// All timer ids that the wheel has ever made. Most ids are stale.
    ids: Vec<TimerId>,
    payloads: u64,
}

impl Reference {
    fn next_payload(&mut self) -> u64 {
        self.payloads += 1;
        self.payloads
    }

    fn insert(&mut self, id: TimerId, tick: Tick, payload: u64) {
        assert!(self.pending.insert(id, (tick, payload)).is_none(), "{id:?} was given out twice");
        self.by_tick.insert((tick, id));
        self.ids.push(id);
    }

    fn take(&mut self, id: TimerId) -> Option<(Tick, u64)> {
        let taken = self.pending.remove(&id)?;
        assert!(self.by_tick.remove(&(taken.0, id)));
        Some(taken)
    }

    /// Moves a timer to `tick`. Returns whether the timer was pending.
    fn reschedule(&mut self, id: TimerId, tick: Tick) -> bool {
        let Some((before, payload)) = self.pending.get(&id).copied() else { return false };
        assert!(self.by_tick.remove(&(before, id)));
        self.by_tick.insert((tick, id));
        self.pending.insert(id, (tick, payload));
        true
    }

    fn any_id(&self, choice: u64) -> Option<TimerId> {
        let at = choice.checked_rem(self.ids.len() as u64)?;
        self.ids.get(usize::try_from(at).ok()?).copied()
    }

    fn first(&self) -> Option<Tick> {
        self.by_tick.first().map(|&(tick, _)| tick)
    }
}

/// The operation that the closure of `advance` makes on the wheel, besides recording the timer that fires.
#[derive(Clone, Copy, Debug)]
enum Callback {
    Nothing,
    /// Arms a new timer this number of ticks after the tick of the timer that fired. Does so only the first few times.
    Rearm(u64),
    /// Arms a new timer this number of ticks after the wheel's position. Does so only the first few times.
    Arm(u64),
    Cancel(u64),
    /// Moves a timer, chosen by the first number, to a tick after the wheel's position. The second number is the
    /// distance in ticks.
    Reschedule(u64, u64),
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert { ahead: u64 },
    InsertLate { ago: u64 },
    InsertMany { ahead: u64, span: u64, count: u64 },
    Cancel { choice: u64 },
    CancelMany { choice: u64, count: u64 },
    Reschedule { choice: u64, ahead: u64 },
    RescheduleLate { choice: u64, ago: u64 },
    RescheduleMany { choice: u64, count: u64, ahead: u64 },
    Advance { by: u64, budget: usize, callback: Callback },
    AdvanceToNext { budget: usize, callback: Callback },
    Settle { by: u64, budget: usize },
    StepBack { by: u64 },
}

struct Model<const BITS: u32> {
    wheel: Wheel<u64, BITS>,
    reference: Reference,
}

impl<const BITS: u32> Model<BITS> {
    const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

    fn new(start: u64) -> Self {
        Self { wheel: Wheel::new(Tick(start)), reference: Reference::default() }
    }

    fn apply(&mut self, op: Op) {
        let position = self.wheel.position();
        match op {
            Op::Insert { ahead } => self.insert(position.saturating_add(ahead)),
            Op::InsertLate { ago } => self.insert(Tick(position.0.saturating_sub(ago))),
            Op::InsertMany { ahead, span, count } => {
                for at in 0..count {
                    self.insert(position.saturating_add(ahead).saturating_add(at % (span.max(1))));
                }
            }
            Op::Cancel { choice } => self.cancel(choice),
            Op::CancelMany { choice, count } => {
                for at in 0..count {
                    self.cancel(choice.wrapping_add(at));
                }
            }
            Op::Reschedule { choice, ahead } => self.reschedule(choice, position.saturating_add(ahead)),
            Op::RescheduleLate { choice, ago } => {
                self.reschedule(choice, Tick(position.0.saturating_sub(ago)));
            }
            Op::RescheduleMany { choice, count, ahead } => {
                for at in 0..count {
                    self.reschedule(choice.wrapping_add(at), position.saturating_add(ahead));
                }
            }
            Op::Advance { by, budget, callback } => {
                let _ = self.advance(position.saturating_add(by), budget, callback);
            }
            Op::AdvanceToNext { budget, callback } => {
                if let Some(next) = self.wheel.next_expiry() {
                    let _ = self.advance(next, budget, callback);
                }
            }
            Op::Settle { by, budget } => self.settle(position.saturating_add(by), budget.max(1)),
            Op::StepBack { by } => {
                let to = Tick(position.0.saturating_sub(by));
                assert_eq!(self.advance(to, usize::MAX, Callback::Nothing), Progress::Settled);
                assert_eq!(self.wheel.position(), position);
            }
        }
        self.check();
    }

    fn insert(&mut self, tick: Tick) {
        let payload = self.reference.next_payload();
        let id = self.wheel.insert(tick, payload);
        self.reference.insert(id, tick, payload);
    }

    fn cancel(&mut self, choice: u64) {
        if let Some(id) = self.reference.any_id(choice) {
            let expected = self.reference.take(id).map(|(_, payload)| payload);
            assert_eq!(self.wheel.cancel(id), expected);
        }
    }

    fn reschedule(&mut self, choice: u64, tick: Tick) {
        if let Some(id) = self.reference.any_id(choice) {
            assert_eq!(self.wheel.reschedule(id, tick), self.reference.reschedule(id, tick), "{id:?}");
        }
    }

    fn advance(&mut self, to: Tick, budget: usize, callback: Callback) -> Progress {
        let Self { wheel, reference } = self;
        let before = wheel.position();
        let reached = to.max(before);
        let mut fired = 0;
        let mut armed = BTreeSet::new();
        let progress = wheel.advance(to, budget, |wheel, Expired { id, tick, payload }| {
            assert_eq!(reference.take(id), Some((tick, payload)), "{id:?} was not pending");
            assert!(tick <= reached, "{tick:?} fired early, at {reached:?}");
            assert!(!armed.contains(&id), "{id:?} was armed by this very advance");
            fired += 1;
            let arm_for = match callback {
                Callback::Rearm(after) if armed.len() < 8 => tick.saturating_add(after),
                Callback::Arm(after) if armed.len() < 8 => wheel.position().saturating_add(after),
                Callback::Cancel(choice) => {
                    if let Some(id) = reference.any_id(choice) {
                        let expected = reference.take(id).map(|(_, payload)| payload);
                        assert_eq!(wheel.cancel(id), expected);
                    }
                    return;
                }
                Callback::Reschedule(choice, after) => {
                    if let Some(id) = reference.any_id(choice) {
                        let tick = wheel.position().saturating_add(after);
                        let is_pending = reference.reschedule(id, tick);
                        assert_eq!(wheel.reschedule(id, tick), is_pending, "{id:?}");
                        // A moved timer waits for the next advance, even if it was due in this advance.
                        armed.extend(is_pending.then_some(id));
                    }
                    return;
                }
                _ => return,
            };
            let payload = reference.next_payload();
            let id = wheel.insert(arm_for, payload);
            reference.insert(id, arm_for, payload);
            armed.insert(id);
        });
        assert!(fired <= budget, "{fired} fired with a budget of {budget}");
        match progress {
            Progress::Settled => {
                assert_eq!(wheel.position(), reached);
                let mut left = reference.by_tick.range(..=(reached, TimerId::from_bits(u64::MAX)));
                assert!(left.all(|(_, id)| armed.contains(id)), "settled, and something due is left");
            }
            Progress::BudgetSpent => {
                assert!(budget < usize::MAX);
                assert!((before..=reached).contains(&wheel.position()));
            }
        }
        progress
    }

    /// Calls `advance` again and again until a call does not use up its budget. Checks that the calls come to an end.
    fn settle(&mut self, to: Tick, budget: usize) {
        let enough = (self.wheel.tickets() * Self::LEVELS).div_ceil(budget) + 1;
        let mut calls = 0;
        while self.advance(to, budget, Callback::Nothing) == Progress::BudgetSpent {
            calls += 1;
            assert!(calls <= enough, "{calls} calls with a budget of {budget}");
            self.check();
        }
    }

    /// Advances from one `next_expiry` to the next until no timer is pending.
    fn finish(&mut self) {
        let enough = self.wheel.tickets() * Self::LEVELS + 1;
        let mut calls = 0;
        while let Some(next) = self.wheel.next_expiry() {
            calls += 1;
            assert!(calls <= enough, "{calls} wake-ups");
            assert_eq!(self.advance(next, usize::MAX, Callback::Nothing), Progress::Settled);
            self.check();
        }
        assert!(self.reference.pending.is_empty());
    }

    fn check(&mut self) {
        let live = self.reference.pending.len();
        assert_eq!(self.wheel.len(), live);
        assert_eq!(self.wheel.is_empty(), live == 0);
        let tickets = self.wheel.tickets();
        assert!((live..=live * 5 / 2 + 2_048).contains(&tickets), "{tickets} tickets for {live} timers");
        let position = self.wheel.position();
        match (self.wheel.next_expiry(), self.reference.first()) {
            (None, None) => {}
            (Some(next), Some(first)) => assert!(
                position <= next && next <= first.max(position),
                "{next:?} at {position:?} where {first:?} is the first"
            ),
            (next, first) => panic!("{next:?} where {first:?} is the first"),
        }
    }
}

const STARTS: [u64; 6] = [0, 1 << 30, 1 << 36, 1 << 63, u64::MAX - 1_000, u64::MAX];

/// Distances in ticks at which a wheel could fail. They are around the edges of slots, revolutions and rings, and
/// beyond all edges.
const EDGES: [u64; 14] =
    [0, 1, 32, 64, 256, 512, 1 << 10, 1 << 16, 2 << 16, 1 << 24, 1 << 32, 1 << 36, 1 << 56, u64::MAX - 1];

fn distance() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..600_u64,
        4 => (prop::sample::select(&EDGES[..]), 0..3_u64)
            .prop_map(|(edge, offset)| edge.saturating_add(offset).saturating_sub(1)),
        2 => (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift),
    ]
}

fn budget() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(1), 2..100_usize, Just(usize::MAX)]
}

fn callback() -> impl Strategy<Value = Callback> {
    prop_oneof![
        3 => Just(Callback::Nothing),
        1 => distance().prop_map(Callback::Rearm),
        1 => distance().prop_map(Callback::Arm),
        1 => any::<u64>().prop_map(Callback::Cancel),
        1 => (any::<u64>(), distance()).prop_map(|(choice, after)| Callback::Reschedule(choice, after)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => distance().prop_map(|ahead| Op::Insert { ahead }),
        1 => distance().prop_map(|ago| Op::InsertLate { ago }),
        1 => (distance(), distance(), 1..200_u64)
            .prop_map(|(ahead, span, count)| Op::InsertMany { ahead, span, count }),
        3 => any::<u64>().prop_map(|choice| Op::Cancel { choice }),
        1 => (any::<u64>(), 1..200_u64).prop_map(|(choice, count)| Op::CancelMany { choice, count }),
        3 => (any::<u64>(), distance()).prop_map(|(choice, ahead)| Op::Reschedule { choice, ahead }),
        1 => (any::<u64>(), distance()).prop_map(|(choice, ago)| Op::RescheduleLate { choice, ago }),
        1 => (any::<u64>(), 1..200_u64, distance())
            .prop_map(|(choice, count, ahead)| Op::RescheduleMany { choice, count, ahead }),
        3 => (distance(), budget(), callback())
            .prop_map(|(by, budget, callback)| Op::Advance { by, budget, callback }),
        3 => (budget(), callback()).prop_map(|(budget, callback)| Op::AdvanceToNext { budget, callback }),
        1 => (distance(), budget()).prop_map(|(by, budget)| Op::Settle { by, budget }),
        1 => distance().prop_map(|by| Op::StepBack { by }),
    ]
}

fn run<const BITS: u32>(start: u64, ops: &[Op]) {
    let mut model = Model::<BITS>::new(start);
    for &op in ops {
        model.apply(op);
    }
    model.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_wheel_does_what_a_sorted_list_does(
        start in prop::sample::select(&STARTS[..]),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        run::<8>(start, &ops);
        run::<6>(start, &ops);
        run::<5>(start, &ops);
    }
}

/// The generator of random numbers splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn distance(&mut self) -> u64 {
        match self.below(8) {
            0..4 => self.below(2_000),
            4 | 5 => self.below(200_000),
            6 => EDGES[usize::try_from(self.below(14)).unwrap()]
                .saturating_add(self.below(3))
                .saturating_sub(1),
            _ => self.next() >> self.below(64),
        }
    }

    fn budget(&mut self) -> usize {
        match self.below(4) {
            0 => usize::MAX,
            _ => usize::try_from(self.below(500)).unwrap(),
        }
    }

    fn callback(&mut self) -> Callback {
        match self.below(7) {
            3 => Callback::Reschedule(self.next(), self.distance()),
            0 => Callback::Rearm(self.distance()),
            1 => Callback::Arm(self.distance()),
            2 => Callback::Cancel(self.next()),
            _ => Callback::Nothing,
        }
    }

    /// Returns a random operation. Of 1,000 operations that let time pass, `hasty` may let a long time pass.
    fn op(&mut self, hasty: u64) -> Op {
        let by = if self.below(1_000) < hasty { self.distance() } else { self.below(40) };
        match self.below(1_000) {
            0..380 => Op::Insert { ahead: self.distance() },
            380..445 => Op::Reschedule { choice: self.next(), ahead: self.distance() },
            445..448 => Op::RescheduleLate { choice: self.next(), ago: self.distance() },
            448..450 => {
                let (count, ahead) = (self.below(8_000), self.below(100_000));
                Op::RescheduleMany { choice: self.next(), count, ahead }
            }
            450..460 => Op::InsertLate { ago: self.distance() },
            460..463 => {
                let span = 1 << self.below(12);
                Op::InsertMany { ahead: self.below(100_000), span, count: self.below(8_000) }
            }
            463..750 => Op::Cancel { choice: self.next() },
            750..755 => Op::CancelMany { choice: self.next(), count: self.below(8_000) },
            755..900 => Op::Advance { by, budget: self.budget(), callback: self.callback() },
            900..980 => Op::AdvanceToNext { budget: self.budget(), callback: self.callback() },
            980..990 => Op::Settle { by, budget: self.budget() },
            _ => Op::StepBack { by: self.distance() },
        }
    }
}

/// The seed of a random run. If the test panics, the drop of this value prints the seed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("to run this again: TOURBILLON_SEED={}", self.0);
        }
    }
}

fn long_run<const BITS: u32>(seed: u64) {
    let mut random = Random(seed);
    let start = STARTS[usize::try_from(random.below(4)).unwrap()];
    // Some lives are long with small steps of time; in others time leaps.
    let hasty = [0, 5, 100][usize::try_from(random.below(3)).unwrap()];
    let mut model = Model::<BITS>::new(start);
    for _ in 0..10_000 {
        model.apply(random.op(hasty));
    }
    model.finish();
}

/// Compares the wheel with the model while tens of thousands of timers are pending. `TOURBILLON_SEED` repeats one run.
#[test]
fn a_long_life_is_the_same_for_the_wheel_and_the_list() {
    let seeds = match env::var("TOURBILLON_SEED") {
        Ok(seed) => vec![seed.parse().expect("TOURBILLON_SEED is a number")],
        Err(_) => Vec::from_iter(1..=12),
    };
    for seed in seeds {
        let seed = Seed(seed);
        long_run::<8>(seed.0);
        long_run::<5>(seed.0);
    }
}
