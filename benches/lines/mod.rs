//! A simulation with up to 64 producers and the same number of shards, or with up to 128 loops that are producers as
//! well. It counts the cache lines that move between cores for each operation, which a machine of two cores cannot
//! show. It also counts the read-modify-writes of a producer, and those of a shard. On x86 each is a locked
//! instruction.
//!
//! `RUSTFLAGS="--cfg tourbillon_lines" cargo test --lib lines:: -- --nocapture` prints the figures, which differ by
//! less than a tenth from run to run.
//!
//! Each core is a thread, and one core runs at a time. The cores take turns after each operation, so a line that two
//! cores use moves as often as possible. [`record`] counts the moves. Deadlines are given as moments, so no core reads
//! a clock.

use crate::base::record::{self, MOST_CORES, Transfers};
use crate::{Builder, Fired, Handle, LoopLeft, LoopShard, Timer, Timestamp};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, atomic};
use std::thread;
use std::time::Duration;

/// The number of counted operations on each core. Half as many uncounted operations come before.
const ROUNDS: u64 = 512;
/// Each loop fires its due timers once in this number of rounds.
const ROUNDS_PER_TURN: u64 = 16;
/// The largest number of additional cache lines that may move for each operation with many cores, compared with two
/// cores. A line that moves once in each turn of a loop adds some tenths.
const TOLERANCE: f64 = 0.4;
/// The number of owned timers that each producer has.
const TIMERS: u64 = 64;

/// The data of a simulated core: a handle, an event loop's shard and timers.
struct Place {
    handle: Handle<u64>,
    shard: Option<LoopShard>,
    timers: Vec<Timer<u64>>,
    now: Timestamp,
}

type Step = Box<dyn FnOnce(&mut Place) + Send>;

/// A thread that stands for a simulated core and runs one step at a time.
struct Core {
    steps: Sender<Step>,
    done: Receiver<()>,
    thread: thread::JoinHandle<()>,
}

impl Core {
    fn start(number: u32, make: impl FnOnce() -> Place + Send + 'static) -> Self {
        let (steps, inbox) = channel::<Step>();
        let (tell, done) = channel();
        let thread = thread::spawn(move || {
            record::run_on(number);
            let mut place = make();
            for step in inbox {
                step(&mut place);
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
        Self { steps, done, thread }
    }

    /// Runs a step on the core's thread, and waits for its end.
    fn run(&self, step: impl FnOnce(&mut Place) + Send + 'static) {
        self.steps.send(Box::new(step)).expect("the core waits for steps");
        self.done.recv().expect("the step does not panic");
    }

    /// Drops the core's data on its thread, and waits until it is dropped.
    fn stop(self) {
        drop(self.steps);
        self.thread.join().expect("what the core has is dropped");
    }
}

/// An operation of a producer. The argument is the number of the round.
type Operation = fn(&mut Place, u64);

fn schedule_and_cancel(place: &mut Place, round: u64) {
    let id = place.handle.schedule_at(far(place), round).expect("room");
    assert_eq!(place.handle.cancel(id).payload(), Some(round));
}

fn arm_and_disarm(place: &mut Place, _round: u64) {
    let timer = &place.timers[0];
    timer.arm_at(far(place)).expect("an open engine");
    timer.disarm();
}

fn refresh(place: &mut Place, round: u64) {
    let timer = &place.timers[usize::try_from(round % TIMERS).expect("a small number")];
    timer.arm_at(far(place) + Duration::from_millis(round)).expect("an open engine");
}

fn schedule_due(place: &mut Place, round: u64) {
    place.handle.schedule_at(place.now, round).expect("room");
}

fn arm_due(place: &mut Place, round: u64) {
    let timer = &place.timers[usize::try_from(round % TIMERS).expect("a small number")];
    timer.arm_at(place.now).expect("an open engine");
}

fn far(place: &Place) -> Timestamp {
    place.now + Duration::from_secs(60)
}

/// The threads on which the producers run their operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Producers {
    /// The producers run on the loops' threads. Each uses its own loop's shard.
    OnLoops,
    /// The producers have their own threads. Each uses another shard.
    Beside,
    /// The producers have their own threads, and all of them use the first shard.
    AtOneShard,
}

/// The counts of a case: transfers of cache lines and other counts for each operation of a producer.
struct Counted {
    producers: f64,
    loops: f64,
    /// The number of atomic read-modify-writes that the producers make for each operation.
    updates: f64,
    /// The number of atomic read-modify-writes that the shards make for each operation.
    updates_at_loops: f64,
    places: BTreeMap<(&'static str, u32), f64>,
}

fn count(transfers: &Transfers) -> u64 {
    transfers.values().sum()
}

/// Measures an operation on `number` producers beside the same number of event loops.
fn measure(operation: Operation, producers: Producers, number: u32) -> Counted {
    let (shards, loops) = Builder::new().capacity(1 << 16).loops(number as usize).expect("a small set");
    let fired = Arc::new(atomic::AtomicU64::new(0));
    let counter = Arc::clone(&fired);
    let count_one = move |_: Fired<'_, u64>| {
        counter.fetch_add(1, atomic::Ordering::Relaxed);
    };
    let engine = shards.engine().start(count_one).expect("an engine");
    let now = engine.handle().now();
    let place = |shard: Option<LoopShard>, home: Option<usize>| {
        let handle = engine.handle().clone();
        move || {
            if let Some(shard) = &shard {
                let _ = shard.next_deadline();
            }
            if let Some(home) = home {
                handle.use_shard(home);
            }
            let timers = (0..TIMERS).map(|number| handle.timer(number).expect("room")).collect();
            Place { handle, shard, timers, now }
        }
    };
    let loops: Vec<Core> =
        loops.into_iter().zip(0..).map(|(shard, core)| Core::start(core, place(Some(shard), None))).collect();
    let beside: Vec<Core> = match producers {
        Producers::OnLoops => Vec::new(),
        Producers::Beside => {
            (0..number).map(|core| Core::start(number + core, place(None, Some(core as usize)))).collect()
        }
        Producers::AtOneShard => {
            (0..number).map(|core| Core::start(number + core, place(None, Some(0)))).collect()
        }
    };
    let actors = if producers == Producers::OnLoops { &loops } else { &beside };
    let (mut at_producers, mut at_loops, mut places) = (0, 0, BTreeMap::<_, u64>::new());
    let (mut turns, mut updates, mut updates_at_loops) = (0, 0, 0);
    for round in 0..ROUNDS + ROUNDS / 2 {
        if round == ROUNDS / 2 {
            drop(record::take_transfers());
        }
        let is_counted = round >= ROUNDS / 2;
        let mut note = |sum: &mut u64| {
            if is_counted {
                let transfers = record::take_transfers();
                *sum += count(&transfers);
                for (place, transfers) in transfers {
                    *places.entry(place).or_default() += transfers;
                }
            }
        };
        record::take_updates();
        for actor in actors {
            actor.run(move |place| operation(place, round));
        }
        if is_counted {
            updates += record::take_updates();
        }
        note(&mut at_producers);
        if round % ROUNDS_PER_TURN == 0 {
            turns += 1;
            // A shard looks at its lanes when a timer is due. So it gets its own timer for each turn.
            for one in &loops {
                one.run(|place| {
                    place.handle.schedule_at(place.now, 0).expect("room");
                });
            }
            record::take_updates();
            for one in &loops {
                one.run(|place| {
                    let now = place.now + Duration::from_millis(5);
                    let shard = place.shard.as_mut().expect("the shard of a loop");
                    while shard.turn(now, 4_096) == LoopLeft::More {}
                });
            }
            if is_counted {
                updates_at_loops += record::take_updates();
            }
            note(&mut at_loops);
        }
    }
    let operations = (ROUNDS * u64::from(number)) as f64;
    let per_operation = |transfers: u64| transfers as f64 / operations;
    let places = places.into_iter().map(|(place, transfers)| (place, per_operation(transfers))).collect();
    // The drops of these values must not count in the next case.
    loops.into_iter().chain(beside).for_each(Core::stop);
    assert!(
        fired.load(atomic::Ordering::Relaxed) >= turns * u64::from(number),
        "each turn fires its own timer"
    );
    Counted {
        producers: per_operation(at_producers),
        loops: per_operation(at_loops),
        updates: per_operation(updates),
        updates_at_loops: per_operation(updates_at_loops),
        places,
    }
}

/// A lock that each test holds, because all tests share one record.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn transfers_per_operation() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The last figures are the read-modify-writes of the producer and of the shard. Arming or disarming an owned timer
    // is a store and a load, unless a ticket is posted for it. A cancel is one compare-and-swap. A thread that only
    // schedules takes a magazine of slots from the depot now and then. A turn that fires makes some dozen, for the turn
    // and for its batch, and claims each one-shot by a compare-and-swap.
    let cases: [(&str, Operation, Producers, [f64; 2]); 10] = [
        ("schedule + cancel, on the loop's thread", schedule_and_cancel, Producers::OnLoops, [1.1, 2.0]),
        ("arm + disarm, on the loop's thread", arm_and_disarm, Producers::OnLoops, [0.01, 2.0]),
        ("refresh, on the loop's thread", refresh, Producers::OnLoops, [0.01, 2.0]),
        ("schedule and fire, on the loop's thread", schedule_due, Producers::OnLoops, [0.3, 3.0]),
        ("arm and fire, on the loop's thread", arm_due, Producers::OnLoops, [2.0, 7.0]),
        ("schedule + cancel, a shard for each producer", schedule_and_cancel, Producers::Beside, [1.1, 2.0]),
        ("arm + disarm, a shard for each producer", arm_and_disarm, Producers::Beside, [0.01, 2.0]),
        ("schedule and fire, a shard for each producer", schedule_due, Producers::Beside, [0.3, 3.0]),
        ("arm and fire, a shard for each producer", arm_due, Producers::Beside, [2.0, 7.0]),
        ("schedule + cancel, all at one shard", schedule_and_cancel, Producers::AtOneShard, [1.1, 2.0]),
    ];
    println!(
        "transfers of lines for each operation: at the producer / at the shard; read-modify-writes of the producer / \
         of the shard"
    );
    for (name, operation, producers, [most_updates, most_at_loops]) in cases {
        println!("{name}");
        let mut of_two = None;
        let cores_each = if producers == Producers::OnLoops { 1 } else { 2 };
        for number in [1, 2, 4, 16, 64, 128] {
            if cores_each * number > MOST_CORES {
                continue;
            }
            let Counted { producers, loops, updates, updates_at_loops, places } =
                measure(operation, producers, number);
            println!(
                "  {number:3} producers  {producers:7.3} / {loops:7.3}; {updates:7.3} / {updates_at_loops:7.3}"
            );
            assert!(updates <= most_updates, "{updates} read-modify-writes for an operation");
            assert!(updates_at_loops <= most_at_loops, "{updates_at_loops} of the shard for an operation");
            if number >= 2 {
                let (few, most) = (of_two.get_or_insert((producers, loops)), TOLERANCE);
                assert!(producers <= few.0 + most && loops <= few.1 + most, "a line is shared by all cores");
            }
            if number == 16 {
                let mut places: Vec<_> =
                    places.into_iter().filter(|&(_, transfers)| transfers >= 0.01).collect();
                places.sort_by(|(_, one), (_, other)| other.total_cmp(one));
                for ((file, line), transfers) in places.into_iter().take(6) {
                    println!("                  {transfers:7.3} at {file}:{line}");
                }
            }
        }
    }
}

/// The recorder notices shared cache lines. If all cores add to one counter, its cache line moves with each addition.
/// If each core has its own counter, no line moves.
#[test]
fn a_shared_line_is_seen() {
    use crate::base::sync::{AtomicU64, Ordering};
    use crossbeam_utils::CachePadded;

    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (is_shared, expected) in [(true, 400), (false, 0)] {
        let counters: Arc<[CachePadded<AtomicU64>; 4]> = Arc::default();
        record::forget();
        thread::scope(|scope| {
            for _ in 0..100 {
                for core in 0..4 {
                    let counters = &counters;
                    let add = move || {
                        record::run_on(core);
                        counters[if is_shared { 0 } else { core as usize }].fetch_add(1, Ordering::Relaxed);
                    };
                    scope.spawn(add).join().expect("an addition");
                }
            }
        });
        let transfers: u64 = record::take_transfers()
            .iter()
            .filter(|((file, _), _)| file.ends_with("mod.rs"))
            .map(|(_, n)| n)
            .sum();
        assert_eq!(transfers, if is_shared { expected - 1 } else { 0 });
    }
}
