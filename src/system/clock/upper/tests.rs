//! Tests of the clock in a simulated world with its own counter and true time.
//!
//! One thread plays several threads: wherever the clock reads the counter or the time, the reading thread may be off
//! its core for a while. Other threads call the clock meanwhile, also while that thread holds the right to write.

use super::*;
use crate::base::sync::{Mutex, OnceLock};

const SECOND: u64 = 1_000_000_000;

/// A small generator of numbers (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

struct World {
    chance: Chance,
    truth: u64,
    /// The value of the simulated counter, in units of 2^-20 counts. The counter of each core differs from it by an
    /// offset.
    counts: u128,
    /// The counter's rate in counts per nanosecond, in units of 2^-20.
    rate: u64,
    nominal_rate: u64,
    /// The difference between the counter of each core and `counts`.
    offsets: Vec<i64>,
    core: usize,
    depth: u32,
    /// The range of rates, in parts per million, to which the system sets its clock at random moments. `None` if it
    /// never does.
    slews: Option<(u64, u64)>,
    latest: u64,
    calls: u64,
    early: u64,
    worst_early: u64,
    back: u64,
    too_late: u64,
}

impl World {
    fn pass(&mut self, nanos: u64) {
        self.truth += nanos;
        self.counts += u128::from(nanos) * u128::from(self.rate);
        if let Some((slowest, fastest)) = self.slews
            && self.chance.one_in(1_000)
        {
            // The ends of the range come as often as all between them.
            let ppm = match self.chance.below(4) {
                0 => slowest,
                1 => fastest,
                _ => slowest + self.chance.below(fastest - slowest + 1),
            };
            self.slew_to(ppm);
        }
    }

    /// Sets the rate of the system's clock, in parts per million of its nominal rate.
    fn slew_to(&mut self, ppm: u64) {
        self.rate = self.nominal_rate * 1_000_000 / ppm;
    }

    /// Lets the time of a clock read pass, and sometimes much more time.
    fn dawdle(&mut self) {
        let nanos = 5 + self.chance.below(40);
        self.pass(nanos);
        if self.chance.one_in(400) {
            let off = self.chance.below(3_000_000);
            self.pass(off);
        }
        self.core = usize::try_from(self.chance.below(self.offsets.len() as u64)).unwrap();
    }

    fn read_counter(&self) -> u64 {
        u64::try_from(self.counts >> 20).unwrap().wrapping_add_signed(self.offsets[self.core])
    }
}

#[derive(Clone, Copy)]
struct Reader {
    world: &'static Mutex<World>,
    clock: &'static OnceLock<UpperClock<Reader>>,
}

/// All simulated worlds. They live as long as the process. This list keeps them reachable for tools that search for
/// leaks.
static WORLDS: Mutex<Vec<Reader>> = Mutex::new(Vec::new());

impl Reader {
    fn new(seed: u64, rate: u64) -> Self {
        let world = World {
            chance: Chance(seed | 1),
            truth: 86_400 * SECOND,
            counts: u128::from(seed) << 20,
            rate,
            nominal_rate: rate,
            offsets: vec![0],
            core: 0,
            depth: 0,
            slews: None,
            latest: 0,
            calls: 0,
            early: 0,
            worst_early: 0,
            back: 0,
            too_late: 0,
        };
        let reader = Self {
            world: Box::leak(Box::new(Mutex::new(world))),
            clock: Box::leak(Box::new(OnceLock::new())),
        };
        reader.clock.get_or_init(|| UpperClock::new(reader));
        WORLDS.lock().unwrap().push(reader);
        reader
    }

    fn world<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        f(&mut self.world.lock().unwrap())
    }

    fn clock(&self) -> &'static UpperClock<Reader> {
        self.clock.get().unwrap()
    }

    /// Calls the clock. Compares the result with the true time, and with the results of all calls that ended before
    /// this call began.
    fn call(&self) -> u64 {
        let (began, latest) = self.world(|world| (world.truth, world.latest));
        let now = self.clock().now();
        self.world(|world| {
            world.calls += 1;
            world.latest = world.latest.max(now);
            world.early += u64::from(now < began);
            world.worst_early = world.worst_early.max(began.saturating_sub(now));
            world.back += u64::from(now < latest);
            world.too_late += u64::from(now > world.truth + AHEAD_NANOS);
        });
        now
    }

    /// Makes the calls that other threads make while the calling thread is off its core.
    fn meanwhile(&self) {
        let others = self.world(|world| {
            world.dawdle();
            let may = world.depth < 3 && world.chance.one_in(20);
            world.depth += u32::from(may);
            may
        });
        if others {
            self.call();
            if self.world(|world| world.chance.one_in(4)) {
                self.clock().true_now();
            }
            self.world(|world| world.depth -= 1);
        }
    }

    fn run(&self, steps: u32, busy: bool) {
        for _ in 0..steps {
            self.call();
            self.world(|world| {
                let gap = if busy || !world.chance.one_in(50) { 200 } else { 30_000_000 };
                let gap = world.chance.below(gap);
                world.pass(gap);
            });
            // A shard's turn.
            if self.world(|world| world.chance.one_in(200)) {
                self.clock().true_now();
            }
        }
    }
}

impl Source for Reader {
    fn counter(&self) -> u64 {
        self.meanwhile();
        let count = self.world(|world| world.read_counter());
        self.meanwhile();
        count
    }

    fn truth(&self) -> u64 {
        self.meanwhile();
        let truth = self.world(|world| world.truth);
        self.meanwhile();
        truth
    }
}

/// Rates of counters from 24 MHz to 5 GHz, in units of 2^-20 counts per nanosecond.
const RATES_OF_COUNTERS: [u64; 4] = [25_166, 1 << 20, 3_040_870, 5 << 20];

/// Ranges of rates, in parts per million. In the first, the system steers its clock by a little all the time. In the
/// second, it slews by the tick as chrony does. The third is the full range of the system.
const SLEWS: [(u64, u64); 3] = [(999_000, 1_001_000), (916_667, 1_083_333), RATES];

#[test]
fn it_is_never_behind_the_truth_nor_goes_back_while_the_rate_changes_at_any_moment() {
    let mut calls = 0;
    for (slews, seed) in SLEWS.into_iter().flat_map(|slews| (1..=12).map(move |seed| (slews, seed))) {
        for (busy, rate) in [(true, RATES_OF_COUNTERS[seed % 4]), (false, RATES_OF_COUNTERS[(seed + 1) % 4])]
        {
            let reader = Reader::new(seed as u64 * 7_919, rate);
            reader.world(|world| world.slews = Some(slews));
            reader.run(20_000, busy);
            reader.world(|world| {
                let found = (world.early, world.back, world.too_late);
                let early = world.worst_early;
                assert_eq!(found, (0, 0, 0), "seed {seed}, rate {rate}, {slews:?}: early by {early}");
                calls += world.calls;
            });
            let seen = reader.clock().seen();
            assert_eq!((seen.steps, seen.behind_nanos), (0, 0), "seed {seed}, {slews:?}");
        }
    }
    assert!(calls >= 1_000_000, "{calls} calls");
}

#[test]
fn a_slew_that_begins_and_ends_twice_makes_nothing_early_and_costs_no_trust() {
    for (ppm, busy) in [20_000, 83_333, 100_000].into_iter().flat_map(|ppm| [(ppm, true), (ppm, false)]) {
        for slewed in [1_000_000 + ppm, 1_000_000 - ppm] {
            let reader = Reader::new(ppm, RATES_OF_COUNTERS[2]);
            for ppm in [1_000_000, slewed, 1_000_000, slewed, 1_000_000] {
                reader.world(|world| world.slew_to(ppm));
                reader.run(10_000, busy);
            }
            reader.world(|world| {
                assert_eq!(
                    (world.early, world.back, world.too_late),
                    (0, 0, 0),
                    "{slewed}: {}",
                    world.worst_early
                );
            });
            let seen = reader.clock().seen();
            assert_eq!((seen.steps, seen.given_up), (0, false), "{slewed}");
        }
    }
}

#[test]
fn most_calls_read_the_counter_only() {
    let reader = Reader::new(3, RATES_OF_COUNTERS[2]);
    reader.run(20_000, true);
    let piece = reader.clock().piece();
    let length = (u128::from(piece.len) * u128::from(piece.slope)) >> SLOPE_BITS;
    assert!(length > u128::from(PIECE_NANOS * 9 / 10), "{piece:?}");
}

#[test]
fn rare_calls_read_the_true_clock_and_publish_nothing() {
    let reader = Reader::new(3, RATES_OF_COUNTERS[2]);
    reader.run(20_000, true);
    let turn = || reader.clock().line.turn.load(Ordering::Relaxed);
    let (before, began) = (turn(), reader.world(|world| world.calls));
    for _ in 0..10_000 {
        reader.world(|world| world.pass(20_000));
        reader.call();
        reader.call();
    }
    reader.world(|world| assert_eq!((world.early, world.back, world.too_late), (0, 0, 0)));
    // Other threads may call within a call, so a few calls are frequent.
    let calls = reader.world(|world| world.calls) - began;
    assert!(turn() - before < calls / 20, "{} pieces for {calls} calls", turn() - before);
    reader.run(2_000, true);
    assert!(
        reader.clock().piece().at(reader.world(|world| world.read_counter())).is_some(),
        "calls are frequent"
    );
}

#[test]
fn cores_that_differ_by_less_than_the_margin_do_no_harm() {
    for seed in 1..=10 {
        let reader = Reader::new(seed, RATES_OF_COUNTERS[2]);
        // 300 counts are 0.1 µs.
        reader.world(|world| world.offsets = vec![0, 300, -300]);
        reader.run(10_000, true);
        reader.world(|world| assert_eq!(world.early, 0));
        assert_eq!(reader.clock().seen().steps, 0);
    }
}

#[test]
fn cores_that_differ_by_more_cost_the_counter_its_trust() {
    let reader = Reader::new(12, RATES_OF_COUNTERS[2]);
    reader.world(|world| world.offsets = vec![0, 60_000]);
    reader.run(20_000, true);
    assert!(reader.clock().seen().given_up);
    reader.world(|world| (world.early, world.too_late) = (0, 0));
    reader.run(20_000, true);
    reader.world(|world| assert_eq!((world.early, world.too_late), (0, 0)));
}

/// Steps the counter, or changes its rate, and continues to call. Afterwards the clock may be behind the true time only
/// for the rest of a piece. Both a change that counts as a step and a change that counts as a slew keep to this.
fn disturb(seed: u64, disturbance: impl Fn(&mut World)) -> Reader {
    let reader = Reader::new(seed, RATES_OF_COUNTERS[2]);
    reader.run(20_000, true);
    reader.world(|world| assert_eq!((world.early, world.back, world.too_late), (0, 0, 0)));
    let begin = reader.world(|world| {
        disturbance(world);
        world.truth
    });
    while reader.world(|world| world.truth) < begin + 20_000_000 {
        reader.run(100, true);
    }
    reader.world(|world| {
        assert_eq!(world.back, 0);
        world.early = 0;
    });
    reader.run(20_000, true);
    reader.world(|world| assert_eq!((world.early, world.back), (0, 0), "early 20 ms later"));
    reader
}

#[test]
fn a_counter_that_steps_forward_is_noticed_and_makes_nothing_early() {
    for seed in 1..=5 {
        let reader = disturb(seed, |world| world.counts += 3_000_000_000_000 << 20);
        let seen = reader.clock().seen();
        assert!(seen.steps > 0 && !seen.given_up, "{seen:?}");
        reader.world(|world| assert_eq!(world.worst_early, 0));
    }
}

/// The counter steps back by more than the length of a piece, so that no piece is valid afterwards.
#[test]
fn a_counter_that_steps_back_is_followed_from_the_next_piece_on() {
    for seed in 1..=5 {
        let reader = disturb(seed, |world| world.counts -= 400_000 << 20);
        assert!(!reader.clock().seen().given_up);
    }
}

#[test]
fn a_counter_at_half_speed_is_noticed_within_a_piece_and_followed_then() {
    for seed in 1..=5 {
        let reader = disturb(seed, |world| world.rate /= 2);
        reader.world(|world| assert!(world.worst_early <= PIECE_NANOS + 3_000_000, "{}", world.worst_early));
    }
}

#[test]
fn a_counter_that_stops_is_noticed_by_the_next_true_read_and_given_up() {
    let reader = Reader::new(5, RATES_OF_COUNTERS[2]);
    reader.run(20_000, true);
    reader.world(|world| world.rate = 0);
    reader.run(2_000, true);
    assert!(reader.clock().seen().steps > 0 && reader.clock().seen().behind_nanos > 0);
    reader.world(|world| world.early = 0);
    reader.run(2_000, true);
    reader.world(|world| assert_eq!((world.early, world.back), (0, 0)));
}

#[test]
fn three_steps_within_a_minute_end_the_trust_and_three_in_a_day_do_not() {
    for (gap, given_up) in [(SECOND, true), (3_600 * SECOND, false)] {
        let reader = Reader::new(17, RATES_OF_COUNTERS[2]);
        for _ in 0..3 {
            reader.run(5_000, true);
            reader.world(|world| {
                world.pass(gap);
                world.counts += 1 << 80;
            });
        }
        reader.run(5_000, true);
        assert_eq!(reader.clock().seen().given_up, given_up, "{gap}");
        assert!(reader.clock().seen().steps >= 3);
    }
}

/// Passes an hour in which shards read the true time once a second.
fn an_hour(reader: Reader) {
    for _ in 0..3_601 {
        reader.world(|world| world.pass(SECOND));
        reader.clock().true_now();
    }
}

#[test]
fn a_counter_that_was_given_up_is_trusted_again_after_a_quiet_hour() {
    let reader = Reader::new(12, RATES_OF_COUNTERS[2]);
    reader.world(|world| world.offsets = vec![0, 60_000]);
    reader.run(20_000, true);
    assert!(reader.clock().seen().given_up);
    an_hour(reader);
    assert!(reader.clock().seen().given_up, "the cores differ all the time");
    reader.world(|world| world.offsets = vec![0]);
    an_hour(reader);
    an_hour(reader);
    assert!(!reader.clock().seen().given_up);
    reader.world(|world| (world.early, world.back, world.too_late) = (0, 0, 0));
    reader.run(20_000, true);
    reader.world(|world| assert_eq!((world.early, world.back, world.too_late), (0, 0, 0)));
    assert!(reader.clock().piece().len > 0, "the line goes on");
}
