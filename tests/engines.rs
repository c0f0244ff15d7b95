//! Threads that use several engines, and sets with many engines. The tests measure the cost of changing from an engine
//! to another, the memory that ended engines leave behind, and the memory of a pending timer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Cancel, Engine, Fired, Shards};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// The bytes that this thread has allocated and not freed. It is negative in a thread that frees what others
    /// allocate.
    static BYTES: Cell<isize> = const { Cell::new(0) };
}
/// The bytes of all threads together.
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);
/// A lock that each test holds, because the tests count the bytes of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The system's allocator with counts.
struct Counting;

fn count(bytes: isize) {
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let _ = BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call goes to the system's allocator, whose results are returned unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`. The system zeroes the memory, so that pages without
        // use stay untouched.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const FAR: Duration = Duration::from_secs(3_600);

fn engines(shards: &Shards, number: usize) -> Vec<Engine<usize>> {
    (0..number).map(|_| shards.engine().capacity(64).start(|_: Fired<'_, usize>| {}).unwrap()).collect()
}

/// On each engine in turn, schedules a timer and cancels it at once.
fn a_pair_of_each(engines: &[Engine<usize>]) {
    for (n, engine) in engines.iter().enumerate() {
        let id = engine.handle().schedule(FAR, n).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(n));
    }
}

/// An engine that has a timer in each tick. The engine reports each firing.
struct Ticking {
    _engine: Engine<u64>,
    firings: mpsc::Receiver<()>,
}

impl Ticking {
    fn start(shards: &Shards) -> Self {
        let (fired, firings) = mpsc::channel();
        let engine = shards
            .engine()
            .start(move |timer: Fired<'_, u64>| {
                // At the end of the test nobody receives, and the engine is shut down.
                let _ = fired.send(());
                let _ = timer.engine().schedule(Duration::from_millis(1), 0);
            })
            .unwrap();
        let _ = engine.handle().schedule(Duration::from_millis(1), 0).unwrap();
        Self { _engine: engine, firings }
    }

    /// Waits until the engine has fired `firings` more timers.
    fn wait_for(&self, firings: usize) {
        self.firings.try_iter().for_each(drop);
        for _ in 0..firings {
            self.firings.recv_timeout(Duration::from_secs(10)).expect("it fires in each tick");
        }
    }
}

/// A thread schedules and cancels on 2, 8 and 100 engines in turn. After its first use of each engine, the thread
/// allocates nothing. With 100 engines, the thread has more parts (its data about an engine) than fixed places for
/// parts.
#[test]
fn a_thread_that_changes_its_engine_allocates_nothing() {
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    for number in [2, 8, 100] {
        let engines = engines(&shards, number);
        // The shard drains the lane between some rounds only. So these rounds make all blocks that the lanes need
        // later.
        (0..100).for_each(|_| a_pair_of_each(&engines));
        let before = ALLOCATIONS.get();
        (0..10).for_each(|_| a_pair_of_each(&engines));
        assert_eq!(ALLOCATIONS.get() - before, 0, "{number} engines");
    }
}

/// Engines come and go, some hundred at a time, and one thread uses all of them. After the first rounds the process's
/// memory stays the same.
#[test]
fn a_thread_keeps_no_more_memory_the_more_engines_it_has_used() {
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    let live_after_a_round = || {
        a_pair_of_each(&engines(&shards, 300));
        LIVE_BYTES.load(Ordering::Relaxed)
    };
    let first = (0..3).map(|_| live_after_a_round()).max().unwrap();
    let last = (0..12).map(|_| live_after_a_round()).min().unwrap();
    assert!(last < first + (1 << 20), "{first} and then {last} bytes");
}

/// Engines are made, used and dropped one after the other. A thread's parts (its data) of at most a few engines stay in
/// memory.
#[test]
fn engines_that_end_one_after_the_other_leave_no_parts() {
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    a_pair_of_each(&engines(&shards, 1));
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    (0..1_000).for_each(|_| a_pair_of_each(&engines(&shards, 1)));
    // The shard's thread drops the stations of engines that have ended. On a busy machine it may do so late.
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let after = LIVE_BYTES.load(Ordering::Relaxed);
        if after < before + (1 << 20) {
            break;
        }
        assert!(Instant::now() < until, "{before} and then {after} bytes");
        std::thread::yield_now();
    }
}

/// A thread used many engines and ends. The thread's parts (its data) of all engines are given back, so another thread
/// gets all slots.
#[test]
fn a_thread_that_used_many_engines_leaves_no_slots_behind() {
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    let engines = engines(&shards, 100);
    std::thread::scope(|scope| {
        // A scope does not wait for the destructors of thread-locals, but a join does.
        scope.spawn(|| (0..3).for_each(|_| a_pair_of_each(&engines))).join().unwrap();
    });
    for engine in &engines {
        for n in 0..64 {
            let _ = engine.handle().schedule(FAR, n).expect("a slot that the other thread has left");
        }
    }
}

/// The turns (passes of the loop) of a busy engine's shard do not visit the stations (shard parts) of idle engines.
#[test]
fn a_turn_visits_no_engine_that_has_nothing_to_do() {
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    let idle = engines(&shards, 20);
    a_pair_of_each(&idle);
    let busy = Ticking::start(&shards);
    let turns = || idle.iter().map(|engine| engine.handle().stats().total.turns).max().unwrap();
    busy.wait_for(100);
    let before = turns();
    busy.wait_for(200);
    let more = turns() - before;
    assert!(more <= 2, "{more} turns of an idle engine");
}

/// An engine at rest fires its timers in time. This holds for timers from before the rest, for timers that come during
/// the rest, and for timers after it. How late a timer may be, and which of two fires first, is up to the machine.
#[test]
fn an_engine_at_rest_fires_in_time() {
    const LATE: Duration = Duration::from_secs(20);
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    let busy = Ticking::start(&shards);
    let (fired, firings) = mpsc::channel();
    let engine = shards
        .engine()
        .start(move |timer: Fired<'_, Instant>| {
            let due = timer.payload;
            fired.send((due, Instant::now())).unwrap();
        })
        .unwrap();
    let schedule = |delay| {
        let due = Instant::now() + delay;
        let _ = engine.handle().schedule(delay, due).unwrap();
        due
    };
    for _ in 0..5 {
        let from_before = schedule(Duration::from_millis(120));
        // By now the engine rests until its timer.
        busy.wait_for(40);
        let from_the_rest = schedule(Duration::from_millis(10));
        let mut dues = [(); 2].map(|()| {
            let (due, fired) = firings.recv_timeout(LATE).expect("a timer that fires");
            assert!(fired >= due, "early by {:?}", due - fired);
            due
        });
        dues.sort_unstable();
        let mut expected = [from_before, from_the_rest];
        expected.sort_unstable();
        assert_eq!(dues, expected, "each fires once");
    }
}

/// Engines are shut down at rest, and return their timers. Other engines of the set go on.
#[test]
fn an_engine_that_is_shut_down_at_rest_returns_its_timers() {
    let _alone = alone();
    let shards = Builder::new().shards(1).workers(1).start_shards().unwrap();
    let busy = Ticking::start(&shards);
    let idle = engines(&shards, 50);
    for engine in &idle {
        let _ = engine.handle().schedule(FAR, 7).unwrap();
    }
    busy.wait_for(40);
    for engine in idle {
        let unfired = engine.handle().shutdown();
        assert_eq!(unfired.iter().map(|timer| timer.payload).collect::<Vec<_>>(), [7]);
    }
    busy.wait_for(20);
}

/// A pending timer takes its two words, its payload, and a ticket in a block of sixteen that has a link. The rest of
/// the memory does not grow with the timers: the rings of the wheel, and the blocks of the thread's lane. A lane keeps
/// the blocks that it has needed once, which are as many as the most tickets that have waited in it. The bytes are
/// those of this thread alone: threads of earlier tests may still free theirs.
#[test]
fn a_pending_timer_takes_its_words_its_payload_and_a_ticket() {
    const TIMERS: u64 = 1 << 18;
    const WORDS: f64 = 16.0;
    const PAYLOAD: f64 = size_of::<[u64; 2]>() as f64;
    const TICKET: f64 = 8.0 + 4.0 / 16.0;
    const LANE: u64 = 65_536;
    let _alone = alone();
    let each = |waiting: u64| {
        let mut engine = Builder::new().driven(|_: Fired<'_, [u64; 2]>| {}).unwrap();
        let before = BYTES.get();
        for number in 0..TIMERS {
            let delay = FAR + Duration::from_micros(number);
            let _ = engine.handle().schedule(delay, [number; 2]).unwrap();
            if (number + 1).is_multiple_of(waiting) {
                engine.advance(Duration::ZERO);
            }
        }
        assert_eq!(engine.handle().len() as u64, TIMERS);
        (BYTES.get() - before) as f64 / TIMERS as f64
    };
    let (short, long) = (each(512), each(LANE));
    let fixed = WORDS + PAYLOAD + TICKET;
    assert!((fixed..fixed + 0.3).contains(&short), "{short} bytes, {fixed} without the rest");
    // A ticket in the lane has the whole deadline, and its block a link.
    let of_lane = (LANE * 16 + LANE / 64 * 8) as f64 / TIMERS as f64;
    assert!((long - short - of_lane).abs() < 0.1, "{long} bytes, of which the lane has {of_lane}");
}
