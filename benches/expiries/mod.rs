//! Expiries whose steps are counted: of one-shots, of owned timers, and of a cascading wheel behind a mutex.
//!
//! Timers are due in ticks that follow each other, [`TIMERS_PER_TURN`] in each, at random moments of the tick. A turn
//! fires the timers of a tick, as a loop's thread or a shard's thread does. The timers were armed about a second
//! before, so each moves once from a coarse slot to a slot of the finest level. They lie in slots of which three in
//! four are not due, so no two of them share a cache line. A first round of the same timers is not counted.

use crate::baselines::{CascadingStep, CascadingWheel};
use crate::callgrind::{Step, count};
use crate::common::{Chance, Payload, Timers as _, payload};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, Fired, Handle, LoopLeft, LoopShard, Timer, Timestamp};

pub(crate) const TIMERS_PER_TURN: u64 = 512;
const TICK_NANOS: u64 = 1_000_000;
const TICK: Duration = Duration::from_nanos(TICK_NANOS);
/// The number of ticks in a coarse slot of the wheel.
const COARSE: u64 = 256;
/// The time from the arming to the first deadline, in ticks: more than the finest level's ring of 511 ticks reaches.
const LEAD: u64 = 600;
const BUDGET: usize = 16_384;
/// The number of slots for each slot of a due timer.
const SPREAD: u64 = 4;

/// The kinds of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OneShots,
    Owned,
    List,
}

/// The handlers: one does nothing, the other adds the payload to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Nothing,
    Adds,
}

/// Fires the timers of `turns` turns.
pub(crate) fn fire(kind: Kind, work: Work, turns: u64) {
    let sum = Arc::new(AtomicU64::new(0));
    match (kind, work) {
        (Kind::List, Work::Nothing) => from_list(turns, |_| {}),
        (Kind::List, Work::Adds) => from_list(turns, |payload| add(&sum, payload)),
        (_, Work::Nothing) => from_engine(kind, turns, |_: Fired<'_, Payload>| {}),
        (_, Work::Adds) => {
            let sum = Arc::clone(&sum);
            from_engine(kind, turns, move |fired: Fired<'_, Payload>| add(&sum, fired.payload));
        }
    }
    let numbers = 0..turns * TIMERS_PER_TURN;
    let each: u64 = if work == Work::Adds { numbers.sum() } else { 0 };
    assert_eq!(sum.load(Ordering::Relaxed), 2 * each, "a timer has fired twice or never");
}

/// Adds a timer's number to a sum that only this thread writes.
fn add(sum: &AtomicU64, [number, _]: Payload) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
}

/// Returns the deadline of each timer, in nanoseconds from the start of the first tick in which timers are due.
fn deadlines(turns: u64) -> Vec<u64> {
    let mut chance = Chance::new(turns);
    let within = move |number: u64| number / TIMERS_PER_TURN * TICK_NANOS + chance.within(&(1..TICK_NANOS));
    (0..turns * TIMERS_PER_TURN).map(within).collect()
}

/// An event loop with an engine.
struct Loop {
    shard: LoopShard,
    engine: Engine<Payload>,
    /// The moment of the last turn.
    now: Timestamp,
}

impl Loop {
    fn handle(&self) -> &Handle<Payload> {
        self.engine.handle()
    }

    fn turn(&mut self, now: Timestamp) {
        self.now = now;
        while black_box(self.shard.turn(now, BUDGET)) == LoopLeft::More {}
    }

    /// Makes a turn that moves the tickets in the thread's lane to the wheel. A loop looks at its lanes when a timer is
    /// due, so it gets a timer for this turn.
    fn drain(&mut self) {
        let _ = self.handle().schedule_at(self.now, payload(0)).expect("room");
        self.turn(self.now + TICK);
    }
}

/// The owned timers of a round, and timers that are never armed. These lie in the slots between those of due timers.
struct Slots {
    timers: Vec<Timer<Payload>>,
    _others: Vec<Timer<Payload>>,
}

impl Slots {
    /// Gives each of `number` timers a slot. One-shots do not keep their slots, but one-shots that come later get them.
    fn take(kind: Kind, handle: &Handle<Payload>, number: u64) -> Self {
        let far = handle.now() + Duration::from_secs(3_600);
        let (mut ids, mut timers, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..number {
            if kind == Kind::Owned {
                timers.push(handle.timer(payload(number)).expect("room"));
            } else {
                ids.push(handle.schedule_at(far, payload(number)).expect("room"));
            }
            others.extend((1..SPREAD).map(|_| handle.timer(payload(0)).expect("room")));
        }
        for id in ids {
            assert!(handle.cancel(id).payload().is_some());
        }
        Self { timers, _others: others }
    }
}

fn from_engine(kind: Kind, turns: u64, handler: impl Fn(Fired<'_, Payload>) + Send + Sync + 'static) {
    let (shards, mut loops) = Builder::new().loops(1).expect("a loop");
    let engine = shards.engine().start(handler).expect("an engine");
    let mut this = Loop { shard: loops.remove(0), engine, now: Timestamp::ZERO };
    let deadlines = deadlines(turns);
    let slots = Slots::take(kind, this.handle(), deadlines.len() as u64);
    for is_counted in [false, true] {
        // A turn at a later moment than the present takes the wheel ahead of the clock.
        this.turn(this.now.max(Instant::now().into()));
        let lead = this.now + TICK * u32::try_from(LEAD).expect("short");
        // The ticks begin within a coarse slot.
        let first = Timestamp::from_nanos(lead.as_nanos().next_multiple_of(COARSE * TICK_NANOS)) + 100 * TICK;
        for (number, &offset) in (0..).zip(&deadlines) {
            let at = first + Duration::from_nanos(offset);
            match slots.timers.get(number) {
                Some(timer) => drop(timer.arm_at(at).expect("open")),
                None => _ = this.handle().schedule_at(at, payload(number as u64)).expect("room"),
            }
        }
        this.drain();
        let last = Instant::from(first + TICK * u32::try_from(turns + 1).expect("few"));
        thread::sleep(last.saturating_duration_since(Instant::now()));
        let mut run =
            || (1..=turns).for_each(|turn| this.turn(first + TICK * u32::try_from(turn).expect("few")));
        if is_counted { count(run) } else { run() }
    }
    let fired = this.handle().stats().fired + this.handle().stats().owned.fired;
    // Two of them were for the turns that drain the lane.
    assert_eq!(fired, 2 * deadlines.len() as u64 + 2, "each timer fires");
}

/// The number of timers that the thread of `baselines::sharded` takes while it holds the lock once.
const BATCH: usize = 256;

/// Fires timers as the thread of `baselines::sharded` does.
fn from_list(turns: u64, handler: impl Fn(Payload)) {
    let wheel = Mutex::new(CascadingWheel::new());
    let deadlines = deadlines(turns);
    let mut due = Vec::with_capacity(BATCH);
    // The wheel of radix 64 has a coarse slot from here on.
    let mut first = 0;
    for is_counted in [false, true] {
        first = (first + LEAD).next_multiple_of(64) + 16;
        for (number, &offset) in (0..).zip(&deadlines) {
            let mut wheel = wheel.lock().expect("no panic");
            let tick = offset / TICK_NANOS;
            wheel.schedule(first + tick, payload(number));
            if !is_counted {
                for _ in 1..SPREAD {
                    wheel.schedule(u64::MAX / 2, payload(0));
                }
            }
        }
        let mut run = || {
            for tick in first..first + turns {
                turn(&wheel, tick, &mut due, &handler);
            }
        };
        if is_counted {
            count(run)
        } else {
            run()
        }
        first += turns;
    }
}

/// Fires the timers of a tick: takes them out under the lock, a batch at a time, and calls their handlers without it.
fn turn(wheel: &Mutex<CascadingWheel>, to: u64, due: &mut Vec<Payload>, handler: &impl Fn(Payload)) {
    loop {
        let mut wheel = wheel.lock().expect("no panic");
        let is_settled = (0..BATCH).any(|_| {
            match wheel.step(to) {
                CascadingStep::Fire(payload) => due.push(payload),
                CascadingStep::Move => {}
                CascadingStep::Settled => return true,
            }
            false
        });
        drop(wheel);
        if is_settled && due.is_empty() {
            return;
        }
        due.drain(..).for_each(handler);
    }
}

/// The step of [`STEPS`] in which a session reads the clock. Its instructions depend on the time that passes, and
/// valgrind slows the program down.
pub(crate) const CLOCK: &str = "the clock";

/// The steps of an expiry. The functions of the engine and those of the list stand side by side. Tickets are put into
/// slots only when they move to a finer level, since the lanes are empty.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: CLOCK,
        whole: &["system::clock", "end_row", "Pace begin", "time::Timespec", "time::Instant"],
        functions: &[],
    },
    Step {
        name: "to a finer level of the wheel",
        whole: &[
            "cascade_",
            "slot::Slot append",
            "slot::Slot push",
            "level::Level push",
            "move_down",
            "move_first",
        ],
        functions: &[],
    },
    Step {
        name: "out of the wheel, into chunks",
        whole: &[],
        functions: &[
            "tourbillon_wheel",
            "baselines::cascading",
            "baselines::lists",
            "shard::output",
            "batch::Batch",
            "DueChunk new",
            "__rdl_",
            "__rust_",
            "raw_vec",
            "push_mut",
        ],
    },
    Step { name: "check of owned timers", whole: &["shard::check", "begin_check"], functions: &["retain"] },
    Step { name: "in order of the deadlines", whole: &["shard::order"], functions: &[] },
    Step { name: "lines fetched ahead", whole: &[], functions: &["prefetch"] },
    Step { name: "claim", whole: &[], functions: &["claim_if", "owned begin", "decide", "consume"] },
    Step {
        name: "counts and lateness",
        whole: &[],
        functions: &["base::counters", "base::buckets", "engine::pace"],
    },
    Step {
        name: "call of the handler",
        whole: &[],
        functions: &[
            "expiries::add",
            "from_engine",
            "from_list",
            "dispatch::panics",
            "engine::due",
            "Slab",
            "api::",
            "Box Fn",
            "Session call",
            "fire_scheduled {{closure}}",
            "clone",
        ],
    },
    Step {
        name: "end of the run",
        whole: &[],
        functions: &["Control finish", "announce_end", "waiters", "end_with", "after_run"],
    },
    Step { name: "slot given back", whole: &[], functions: &["vacate", "Magazine"] },
    Step {
        name: "loop over the chunks",
        whole: &[],
        functions: &["engine::fire", "DueChunk", "expiries::turn"],
    },
];
