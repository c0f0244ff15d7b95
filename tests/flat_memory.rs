//! Threads arm and cancel timers at full rate, with deadlines an hour away. Memory does not grow with time. The test is
//! alone in its process, whose resident memory it measures.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use support::{HOUR, MS, assert_settled};
use tourbillon::{Armed, Builder, Cancel, Disarm, Engine, Fired, Timer, TimerId};

const THREADS: usize = 2;
/// The number of operations that each thread makes.
const OPERATIONS: usize = 3_000_000;
/// The number of timers that each thread has at the same time.
const RING: usize = 500;
const LANE: usize = 4_096;
/// The largest permitted number of tickets (entries of timers). The crate's page states the bound for the wheels. The
/// tickets in the lanes (threads' queues) are added, because a shard may drain them into the wheels while it sweeps.
const TICKETS: usize = 2 * THREADS * RING + 65_536 + THREADS * (4_096 + LANE + 64);
/// The permitted growth of resident memory after the first tenth, in KiB. The permitted growth is twice the memory of
/// the permitted tickets, and some pages. A growth of one byte for each operation would exceed it.
const GROWTH_KIB: usize = 4 * 1_024;

/// Returns this process's resident memory, in KiB. `None` if the system does not show it.
fn resident_kib() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// A way to use timers. `step` makes one operation with one of a thread's timers.
trait Usage: Sync {
    type Slot: Send;
    fn begin(&self, engine: &Engine<usize>) -> Self::Slot;
    fn step(&self, engine: &Engine<usize>, slot: &mut Self::Slot, n: usize);
}

/// Returns a delay of more than an hour. Each `n` gives another delay.
fn far(n: usize) -> Duration {
    HOUR + Duration::from_micros(n as u64)
}

/// A usage in which owned timers are armed and disarmed in turn.
struct ArmAndDisarm;

impl Usage for ArmAndDisarm {
    type Slot = Timer<usize>;

    fn begin(&self, engine: &Engine<usize>) -> Timer<usize> {
        engine.handle().timer(0).unwrap()
    }

    fn step(&self, _: &Engine<usize>, timer: &mut Timer<usize>, n: usize) {
        // Every tenth deadline is earlier than the deadline of the queued ticket.
        let delay = if n.is_multiple_of(10) { far(0) - Duration::from_micros(n as u64) } else { far(n) };
        assert_eq!(timer.arm(delay), Ok(Armed::Pending));
        if n.is_multiple_of(2) {
            assert_eq!(timer.disarm(), Disarm::Disarmed);
        }
    }
}

/// A usage in which owned timers are made, armed and dropped.
struct MakeAndDrop;

impl Usage for MakeAndDrop {
    type Slot = Timer<usize>;

    fn begin(&self, engine: &Engine<usize>) -> Timer<usize> {
        engine.handle().timer(0).unwrap()
    }

    fn step(&self, engine: &Engine<usize>, slot: &mut Timer<usize>, n: usize) {
        let timer = engine.handle().timer(n).unwrap();
        assert_eq!(timer.arm(far(n)), Ok(Armed::Pending));
        *slot = timer;
    }
}

/// A usage in which one-shot timers are scheduled and cancelled.
struct ScheduleAndCancel;

impl Usage for ScheduleAndCancel {
    type Slot = TimerId;

    fn begin(&self, engine: &Engine<usize>) -> TimerId {
        engine.handle().schedule(HOUR, 0).unwrap()
    }

    fn step(&self, engine: &Engine<usize>, slot: &mut TimerId, n: usize) {
        let old = std::mem::replace(slot, engine.handle().schedule(far(n), n).unwrap());
        assert!(matches!(engine.handle().cancel(old), Cancel::Cancelled(_)));
    }
}

fn assert_flat<U: Usage>(name: &str, usage: &U) {
    let engine = Builder::new()
        .shards(1)
        .lane_capacity(LANE as u64)
        .start(|_: Fired<'_, usize>| panic!("an hour has passed"))
        .unwrap();
    let (done, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (mut most_tickets, mut after_a_tenth, mut most_memory) = (0, None, 0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut slots: Vec<U::Slot> = (0..RING).map(|_| usage.begin(&engine)).collect();
                for n in 0..OPERATIONS {
                    usage.step(&engine, &mut slots[n % RING], n);
                    if n.is_multiple_of(1_000) {
                        done.fetch_add(1_000, Ordering::Relaxed);
                    }
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        loop {
            let is_over = ended.load(Ordering::Relaxed) == THREADS;
            most_tickets = most_tickets.max(engine.handle().stats().total.tickets);
            if done.load(Ordering::Relaxed) >= THREADS * OPERATIONS / 10 {
                let memory = resident_kib().unwrap_or(0);
                most_memory = most_memory.max(memory);
                after_a_tenth.get_or_insert(memory);
            }
            if is_over {
                break;
            }
            thread::sleep(MS / 4);
        }
    });
    assert!(most_tickets <= TICKETS as u64, "{name}: {most_tickets} tickets, of at most {TICKETS}");
    let growth = most_memory - after_a_tenth.expect("they are through");
    assert!(growth <= GROWTH_KIB, "{name}: {growth} KiB more after the first tenth");
    drop(engine.handle().shutdown());
    assert_settled(&engine.handle().stats());
    assert_eq!(engine.handle().stats().total.fired, 0);
}

#[test]
fn arming_and_cancelling_at_full_rate_takes_no_more_memory_the_longer_it_goes_on() {
    // The usages run one after the other, on engines of their own. Resident memory is that of the whole process.
    assert_flat("arm and disarm", &ArmAndDisarm);
    assert_flat("make, arm and drop", &MakeAndDrop);
    assert_flat("schedule and cancel", &ScheduleAndCancel);
}
