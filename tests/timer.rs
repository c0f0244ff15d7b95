//! Owned timers, seen from outside: what their calls answer, when they fire, what becomes of their payloads.
//!
//! Mostly on the threadless engine, whose time is exact; with threads where it takes threads.

mod support;

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use support::{
    Gate, HOUR, Log, MS, PATIENCE, Rng, Shot, assert_settled, lock, payloads, recording, wait_until,
    within_patience,
};
use tourbillon::{
    ArmError, Armed, Builder, Cancel, Clock, Disarm, DrivenEngine, Engine, Fired, Handle, Job, ManualClock,
    MonotonicClock, RescheduleError, ScheduleErrorKind, Timer, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(31_557_600);
/// The unit in which a timer's word says when its ticket is looked at.
const UNIT: u64 = 1 << 20;

fn at(since_origin: Duration) -> Timestamp {
    Timestamp::ZERO + since_origin
}

fn nanos(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// The moment at which a deadline is due.
fn due(deadline: Timestamp, tick: Duration) -> Timestamp {
    let tick = u64::try_from(tick.as_nanos()).expect("a short tick");
    nanos(deadline.as_nanos().div_ceil(tick).saturating_mul(tick))
}

/// A shot on its deadline.
fn on_time(payload: u64, deadline: Timestamp) -> Shot {
    Shot { at: deadline, deadline, payload }
}

/// A timer that handlers can reach; `None` once it was dropped.
type Place<T> = Arc<Mutex<Option<Timer<T>>>>;

/// A payload that counts its clones and drops, and panics there when told to.
struct Tracked {
    book: Arc<Book>,
    is_original: bool,
}

#[derive(Default)]
struct Book {
    clones: AtomicUsize,
    clone_drops: AtomicUsize,
    original_drops: AtomicUsize,
    /// The thread that dropped the original.
    dropped_by: Mutex<Option<String>>,
    clone_panics: AtomicBool,
    drop_panics: AtomicBool,
}

impl Tracked {
    fn new() -> (Self, Arc<Book>) {
        let book = Arc::new(Book::default());
        (Self { book: Arc::clone(&book), is_original: true }, book)
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        if self.book.clone_panics.swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("a clone"));
        }
        self.book.clones.fetch_add(1, Ordering::SeqCst);
        Self { book: Arc::clone(&self.book), is_original: false }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if !self.is_original {
            self.book.clone_drops.fetch_add(1, Ordering::SeqCst);
            return;
        }
        self.book.original_drops.fetch_add(1, Ordering::SeqCst);
        *lock(&self.book.dropped_by) = thread::current().name().map(String::from);
        if self.book.drop_panics.swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("a drop"));
        }
    }
}

impl Book {
    fn original_drops(&self) -> usize {
        self.original_drops.load(Ordering::SeqCst)
    }

    /// The original and its clones are gone, each once.
    fn assert_gone(&self) {
        assert_eq!(self.original_drops(), 1);
        assert_eq!(self.clone_drops.load(Ordering::SeqCst), self.clones.load(Ordering::SeqCst));
    }
}

/// A threadless engine that counts what it fires and looks at no payload.
fn counting() -> (DrivenEngine<Tracked>, Arc<AtomicUsize>) {
    let fired = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&fired);
    let engine = Builder::new()
        .build_driven(move |_: Fired<'_, Tracked>| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    (engine, fired)
}

/// An engine with one shard thread, on a clock that moves by hand, whose due timers wait in the list of jobs until the
/// test runs them.
fn with_held_jobs(log: &Log<Shot>) -> (Engine<u64>, ManualClock, Arc<Mutex<Vec<Job>>>) {
    let (clock, jobs, sink) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())), log.clone());
    let queue = Arc::clone(&jobs);
    let engine = Builder::new()
        .shards(1)
        .clock(clock.clone())
        .executor(move |job| lock(&queue).push(job))
        .build(move |fired: Fired<'_, u64>| sink.push(Shot::of(&fired)))
        .unwrap();
    (engine, clock, jobs)
}

/// Every way to run handlers, each on two threads or fewer.
fn every_dispatch() -> [Builder; 3] {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || queue.into_iter().for_each(Job::run));
    [
        Builder::new().workers(2),
        Builder::new().inline(),
        Builder::new().executor(move |job| jobs.send(job).unwrap()),
    ]
    .map(|builder| builder.shards(2))
}

// --- Putting off, moving ahead ---

#[test]
fn a_timer_that_is_postponed_fires_once_at_its_last_deadline() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for _ in 0..1_000 {
        assert_eq!(timer.arm(100 * MS), Ok(Armed::Pending));
        engine.advance(MS);
    }
    assert_eq!(engine.handle().stats().owned.posted, 1);
    assert_eq!(timer.deadline(), Some(at(1_099 * MS)));
    engine.advance(SECOND);
    assert_eq!(log.take(), [on_time(7, at(1_099 * MS))]);
    assert_eq!(timer.disarm(), Disarm::Idle);
    drop(timer);
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_deadline_before_the_ticket_is_kept_and_the_later_one_is_forgotten() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(10 * SECOND).unwrap();
    engine.turn();
    timer.arm(SECOND).unwrap();
    assert_eq!(engine.handle().stats().owned.posted, 2);
    engine.advance(20 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(SECOND))]);
    assert!(!timer.is_armed());
}

#[test]
fn a_deadline_moved_ahead_and_back_again_fires_there() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for seconds in [10, 1, 5, 2, 8, 3] {
        timer.arm(seconds * SECOND).unwrap();
        engine.turn();
    }
    engine.advance(20 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(3 * SECOND))]);
    assert_eq!(engine.handle().stats().owned.posted, 2);
}

/// A clock of one's own may have its origin anywhere: in 1970, or as far back as a clock can show.
#[test]
fn a_clock_with_an_origin_long_ago_costs_no_ticket_per_arming() {
    for years in [0, 30, 57, 126, 583] {
        let (clock, log) = (ManualClock::new(), Log::new());
        clock.set(at(years * 365 * 24 * HOUR));
        let sink = log.clone();
        let engine = Builder::new()
            .clock(clock.clone())
            .shards(1)
            .unpinned()
            .inline()
            .build(move |fired: Fired<'_, u64>| sink.push(Shot::of(&fired)))
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        let last = engine.handle().now() + 1_000 * MS + SECOND;
        for n in 1..=1_000 {
            timer.arm_at(engine.handle().now() + n * MS + SECOND).unwrap();
            if n == 1 {
                // Time for a shard to look, if it was asked to look at once.
                thread::sleep(5 * MS);
            }
        }
        assert_eq!(engine.handle().stats().owned.posted, 1, "{years} years");
        // What has passed, also before the engine's start, comes at once, and so does what is armed then.
        timer.arm_at(nanos(1)).unwrap();
        clock.advance(MS);
        wait_until("the past comes", || log.len() == 1);
        timer.arm_at(last).unwrap();
        clock.advance(SECOND);
        assert_eq!(log.take()[0].deadline, nanos(1));
        clock.advance(1_000 * MS);
        wait_until("it fires", || log.len() == 1);
        assert_eq!(log.take()[0].deadline, last);
    }
}

#[test]
fn short_and_long_timeouts_in_turn_cost_no_ticket_per_turn() {
    // A connection: 30 s for each request, 60 s idle between them; 10,000 requests of 10 ms and 10 ms apart.
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for _ in 0..10_000 {
        timer.arm(30 * SECOND).unwrap();
        engine.advance(10 * MS);
        timer.arm(60 * SECOND).unwrap();
        engine.advance(10 * MS);
    }
    assert_eq!(log.len(), 0);
    let owned = engine.handle().stats().owned;
    // 200 s: a check each 30 s, and after one that found the long timeout a ticket for the short one.
    assert!(owned.posted <= 8 && owned.postponed <= 8, "{owned:?}");
    assert!(engine.handle().stats().total.tickets <= 16);
    engine.advance(120 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(199_990 * MS + 60 * SECOND))]);
}

#[test]
fn one_deadline_again_and_again_posts_once() {
    // As of a caller that caches the time. Around the units and the ticks.
    for offset in [0, 1, 17, 500_000, UNIT - 1, UNIT, UNIT + 1, 999_999, 1_000_000, 1_000_001] {
        for units in [0, 1, 10_000] {
            let (mut engine, log) = recording(Builder::new());
            let (timer, deadline) = (engine.handle().timer(7).unwrap(), nanos(units * UNIT + offset));
            for round in 0..100 {
                timer.arm_at(deadline).unwrap();
                if round % 3 == 0 {
                    assert_eq!(timer.disarm(), Disarm::Disarmed);
                    timer.arm_at(deadline).unwrap();
                }
                assert_eq!(timer.deadline(), Some(deadline));
            }
            assert_eq!(engine.handle().stats().owned.posted, 1, "{deadline}");
            engine.advance(HOUR);
            let shots = log.take();
            assert_eq!((shots.len(), shots[0].deadline), (1, deadline));
            assert_eq!(shots[0].at, due(deadline, MS));
        }
    }
}

#[test]
fn one_far_deadline_again_and_again_posts_once() {
    // Beyond what the timer's word can tell apart. "A store and a load while a ticket is out, whatever the deadlines."
    for delay in [50 * YEAR, Duration::MAX] {
        let (engine, _log) = recording(Builder::new());
        let timer = engine.handle().timer(7).unwrap();
        for _ in 0..100 {
            timer.arm(delay).unwrap();
        }
        assert_eq!(engine.handle().stats().owned.posted, 1, "{delay:?}");
    }
}

#[test]
fn a_disarmed_timer_whose_ticket_comes_due_fires_nothing_and_is_armed_again() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(SECOND).unwrap();
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    assert_eq!(timer.deadline(), None);
    engine.advance(2 * SECOND);
    assert_eq!((log.len(), engine.handle().stats().total.tickets), (0, 0));
    assert_eq!(timer.disarm(), Disarm::Idle);
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    engine.advance(2 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(3 * SECOND))]);
    assert_eq!(engine.handle().stats().owned.posted, 2);
}

#[test]
fn a_timer_armed_again_before_its_ticket_is_due_uses_that_ticket() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    for n in 0..500 {
        timer.arm(SECOND).unwrap();
        engine.advance(MS);
        assert_eq!(timer.disarm(), Disarm::Disarmed, "{n}");
        engine.advance(MS / 2);
    }
    assert_eq!((engine.handle().stats().owned.posted, log.len()), (1, 0));
    timer.arm(SECOND).unwrap();
    engine.advance(10 * SECOND);
    assert_eq!(log.take(), [on_time(7, at(1_750 * MS))]);
}

// --- Answers ---

#[test]
fn the_answers_tell_whether_the_timer_was_armed() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    let is = |deadline: Option<Timestamp>| {
        assert_eq!((timer.deadline(), timer.is_armed()), (deadline, deadline.is_some()));
    };
    assert_eq!(*timer.payload(), 7);
    is(None);
    // New.
    assert_eq!((timer.disarm(), timer.disarm_and_wait()), (Disarm::Idle, Disarm::Idle));
    // Armed; its ticket in the lane, then in the wheel.
    for _ in 0..2 {
        assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
        is(Some(at(SECOND)));
        assert_eq!(timer.arm_at(at(2 * SECOND)), Ok(Armed::Pending));
        is(Some(at(2 * SECOND)));
        assert_eq!(timer.disarm(), Disarm::Disarmed);
        is(None);
        // Disarmed, its ticket still out.
        assert_eq!((timer.disarm(), timer.disarm_and_wait()), (Disarm::Idle, Disarm::Idle));
        engine.turn();
    }
    // Disarmed, no ticket out.
    engine.advance(5 * SECOND);
    assert_eq!((timer.disarm(), timer.disarm()), (Disarm::Idle, Disarm::Idle));
    is(None);
    // Fired.
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    engine.advance(SECOND);
    assert_eq!(log.take().len(), 1);
    is(None);
    assert_eq!((timer.disarm(), timer.disarm_and_wait()), (Disarm::Idle, Disarm::Idle));
    // And again.
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    assert_eq!(timer.disarm_and_wait(), Disarm::Disarmed);
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    engine.advance(SECOND);
    assert_eq!(log.take().len(), 1);
}

#[test]
fn the_answers_while_its_own_handler_runs() {
    // By what the handler gets, and by the shared timer itself.
    let shared: Arc<OnceLock<Timer<u64>>> = Arc::default();
    let (in_handler, log) = (Arc::downgrade(&shared), Log::new());
    let sink = log.clone();
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            let now = fired.engine().now();
            let shared = in_handler.upgrade().unwrap();
            let (by_ref, timer) = (fired.timer().unwrap(), shared.get().unwrap());
            assert_eq!(fired.id, timer.id());
            // Running: it is not armed until it is armed again.
            assert_eq!((by_ref.deadline(), timer.deadline()), (None, None));
            assert_eq!([by_ref.disarm(), timer.disarm(), timer.disarm_and_wait()], [Disarm::Running; 3]);
            assert_eq!(by_ref.arm(2 * SECOND), Ok(Armed::Running));
            assert_eq!(timer.deadline(), Some(now + 2 * SECOND));
            assert_eq!(timer.disarm(), Disarm::Running);
            assert_eq!(by_ref.deadline(), None);
            assert_eq!(timer.arm_at(now + SECOND), Ok(Armed::Running));
            assert_eq!(by_ref.arm_at(now + 3 * SECOND), Ok(Armed::Running));
            assert!(timer.is_armed());
            if fired.payload == 1 {
                assert_eq!(by_ref.disarm(), Disarm::Running);
            }
            sink.push(Shot::of(&fired));
        })
        .unwrap();
    assert!(shared.set(engine.handle().timer(0).unwrap()).is_ok());
    let timer = shared.get().unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(8 * SECOND);
    let expected = [1, 4, 7].map(|second| on_time(0, at(second * SECOND)));
    assert_eq!(log.take(), expected);
    assert_eq!(engine.handle().stats().total.panics, 0);
    assert_eq!(timer.disarm(), Disarm::Disarmed);
}

#[test]
fn a_timer_disarmed_by_its_own_handler_stays_at_rest() {
    let (mut engine, log) = {
        let log = Log::new();
        let sink = log.clone();
        let engine = Builder::new().build_driven(move |fired: Fired<'_, u64>| {
            let timer = fired.timer().unwrap();
            timer.arm(SECOND).unwrap();
            assert_eq!(timer.disarm(), Disarm::Running);
            sink.push(Shot::of(&fired));
        });
        (engine.unwrap(), log)
    };
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(10 * SECOND);
    assert_eq!(log.take().len(), 1);
    assert_eq!((timer.disarm(), engine.handle().stats().total.tickets), (Disarm::Idle, 0));
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(log.take().len(), 1);
}

#[test]
fn the_answers_while_a_handler_runs_on_a_worker() {
    let (gate, log) = (Gate::new(), Log::new());
    let (at_gate, sink) = (gate.clone(), log.clone());
    let engine = Builder::new()
        .workers(1)
        .build(move |fired: Fired<'_, u64>| {
            sink.push(Shot::of(&fired));
            at_gate.pass();
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(MS).unwrap();
    gate.await_arrival();
    assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Running));
    assert_eq!(timer.arm(HOUR), Ok(Armed::Running));
    assert!(timer.is_armed());
    assert_eq!(timer.disarm(), Disarm::Running);
    assert!(!timer.is_armed());
    let again = engine.handle().now() + MS;
    assert_eq!(timer.arm_at(again), Ok(Armed::Running));
    assert_eq!(timer.deadline(), Some(again));
    assert_eq!(log.len(), 1);
    gate.open();
    wait_until("it has fired again", || log.len() == 2);
    let shots = log.take();
    assert_eq!(shots[1].deadline, again);
    assert!(shots[1].at >= again);
    wait_until("it is at rest", || timer.disarm() == Disarm::Idle);
}

#[test]
fn a_due_timer_that_waits_for_a_worker_is_armed_and_may_be_postponed_and_disarmed() {
    let log = Log::new();
    let (engine, clock, jobs) = with_held_jobs(&log);
    let timer = engine.handle().timer(7).unwrap();
    let fall_due = || {
        timer.arm(MS).unwrap();
        let deadline = timer.deadline();
        clock.advance(MS);
        wait_until("it is handed over", || lock(&jobs).len() == 1);
        assert_eq!(timer.deadline(), deadline);
    };
    let run_jobs = || std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
    // Disarmed.
    fall_due();
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    assert_eq!((timer.disarm_and_wait(), timer.is_armed()), (Disarm::Idle, false));
    run_jobs();
    assert_eq!((log.len(), timer.disarm()), (0, Disarm::Idle));
    // Put off.
    fall_due();
    assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    let later = timer.deadline().unwrap();
    run_jobs();
    assert_eq!((log.len(), timer.deadline()), (0, Some(later)));
    let turns = engine.handle().stats().total.turns;
    clock.set(nanos(later.as_nanos() - 1));
    wait_until("the shard has looked", || engine.handle().stats().total.turns > turns);
    assert_eq!((lock(&jobs).len(), timer.deadline()), (0, Some(later)));
    // Disarmed and armed again, for a moment that has come.
    clock.set(later);
    wait_until("it is handed over", || lock(&jobs).len() == 1);
    assert_eq!(timer.disarm(), Disarm::Disarmed);
    assert_eq!(timer.arm_at(at(MS)), Ok(Armed::Pending));
    run_jobs();
    assert_eq!(log.take(), [Shot { at: later, deadline: at(MS), payload: 7 }]);
    assert_eq!(timer.disarm(), Disarm::Idle);
}

// --- Deadlines ---

#[test]
fn zero_and_past_deadlines_fire_on_the_next_turn() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(5 * SECOND);
    let timers: Vec<_> = (0..4).map(|n| engine.handle().timer(n).unwrap()).collect();
    timers[0].arm(Duration::ZERO).unwrap();
    timers[1].arm_at(engine.handle().now()).unwrap();
    timers[2].arm_at(at(SECOND)).unwrap();
    timers[3].arm_at(Timestamp::ZERO).unwrap();
    assert_eq!(timers[3].deadline(), Some(Timestamp::ZERO));
    assert_eq!(log.len(), 0);
    engine.turn();
    let shots = log.take();
    assert_eq!(payloads(&shots), [0, 1, 2, 3]);
    assert!(shots.iter().all(|shot| shot.at == at(5 * SECOND)));
    assert!(engine.handle().stats().total.lateness.max >= 5 * SECOND);
    // With a ticket out for later, too.
    for timer in &timers {
        timer.arm(HOUR).unwrap();
    }
    engine.advance(SECOND);
    timers[0].arm(Duration::ZERO).unwrap();
    timers[1].arm_at(engine.handle().now()).unwrap();
    timers[2].arm_at(at(SECOND)).unwrap();
    timers[3].arm_at(Timestamp::ZERO).unwrap();
    engine.turn();
    let shots = log.take();
    assert_eq!(payloads(&shots), [0, 1, 2, 3]);
    assert!(shots.iter().all(|shot| shot.at == at(6 * SECOND)));
    engine.advance(2 * HOUR);
    assert_eq!(log.len(), 0);
}

#[test]
fn a_timer_armed_for_never_does_not_fire_and_may_be_armed_for_sooner() {
    let (mut engine, log) = recording(Builder::new().tick(Duration::from_micros(1)));
    let timers: Vec<_> = (0..3).map(|n| engine.handle().timer(n).unwrap()).collect();
    timers[0].arm(Duration::MAX).unwrap();
    timers[1].arm_at(Timestamp::MAX).unwrap();
    timers[2].arm(Duration::MAX).unwrap();
    for timer in &timers {
        assert!(timer.deadline().unwrap() >= nanos(u64::MAX - 1), "{timer:?}");
    }
    engine.advance(500 * YEAR);
    assert_eq!(log.len(), 0);
    assert_eq!(timers[0].disarm(), Disarm::Disarmed);
    timers[1].arm(SECOND).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(log.take(), [on_time(1, at(500 * YEAR + SECOND))]);
    assert_eq!((timers[0].is_armed(), timers[1].is_armed(), timers[2].is_armed()), (false, false, true));
}

#[test]
fn a_timer_armed_for_the_end_of_time_reads_as_armed_for_it() {
    // As a scheduled one does.
    let (engine, _log) = recording(Builder::new());
    let timer = engine.handle().timer(7).unwrap();
    timer.arm_at(Timestamp::MAX).unwrap();
    assert_eq!(timer.deadline(), Some(Timestamp::MAX));
}

#[test]
fn a_century_is_kept_to_the_tick_in_any_order_and_however_the_clock_jumps() {
    let deadlines = [10, 36, 37, 100, 101, 400].map(|years| at(years * YEAR + 12_345 * MS));
    for tick in [Duration::from_micros(1), MS, HOUR] {
        for from in deadlines {
            for to in deadlines {
                for jump in [false, true] {
                    let (mut engine, log) = recording(Builder::new().tick(tick));
                    let timer = engine.handle().timer(7).unwrap();
                    timer.arm_at(from).unwrap();
                    engine.turn();
                    timer.arm_at(to).unwrap();
                    let mut go_to = |moment| {
                        if jump {
                            engine.clock().set(moment);
                            engine.turn();
                        } else {
                            engine.advance_to(moment);
                        }
                    };
                    go_to(nanos(to.as_nanos() - 1));
                    assert_eq!(log.len(), 0, "{from} {to} {tick:?}");
                    go_to(due(to, tick));
                    // A look at an earlier ticket may find it due before its tick ends.
                    let shots = log.take();
                    assert_eq!((shots.len(), shots[0].deadline), (1, to), "{from} {tick:?} {jump}");
                    assert!(shots[0].at >= to && shots[0].at <= due(to, tick));
                    assert!(!timer.is_armed());
                    go_to(at(500 * YEAR));
                    assert_eq!(log.len(), 0);
                }
            }
        }
    }
}

#[test]
fn deadlines_around_the_units_of_the_timers_word_fire_on_their_ticks() {
    // Goal: no order of deadlines within a unit, or on its edges, is taken for another. Method: all triples of deadlines
    // around one multiple of a unit, of which the last is in force, each for a timer of its own; disarmed in between or
    // not; the ticket in the lane or in the wheel.
    let ticks = [Duration::from_micros(1), Duration::from_micros(100), MS, HOUR];
    for tick in ticks {
        for units in [1, 2, 1_000, 3_433_200, (1 << 40) - 2, (1 << 40) - 1, 1 << 40, (1 << 40) + 5] {
            let middle: u64 = units * UNIT;
            let mut deadlines = vec![
                middle - UNIT / 2,
                middle - 2,
                middle - 1,
                middle,
                middle + 1,
                middle + 2,
                middle + UNIT / 2,
                middle + UNIT - 1,
            ];
            if tick < Duration::from_nanos(UNIT / 2) || tick == MS {
                // A tick's edge inside a unit, where a nanosecond makes a tick's difference.
                let tick = u64::try_from(tick.as_nanos()).unwrap();
                let edge = (middle + UNIT / 4).next_multiple_of(tick);
                deadlines.extend([edge - 1, edge, edge + 1]);
            }
            let (mut engine, log) = recording(Builder::new().tick(tick).lane_capacity(1 << 20));
            let (mut timers, mut expected) = (Vec::new(), Vec::new());
            let mut rng = Rng::new(units);
            for &first in &deadlines {
                for &second in &deadlines {
                    for &third in &deadlines {
                        let timer = engine.handle().timer(expected.len() as u64).unwrap();
                        for deadline in [first, second, third] {
                            assert_eq!(timer.arm_at(nanos(deadline)), Ok(Armed::Pending));
                            match rng.below(4) {
                                0 => assert_eq!(timer.disarm(), Disarm::Disarmed),
                                1 => engine.turn(),
                                _ => {}
                            }
                        }
                        timer.arm_at(nanos(third)).unwrap();
                        timers.push(timer);
                        expected.push(nanos(third));
                    }
                }
            }
            engine.advance_to(due(nanos(middle + 4 * UNIT), tick));
            let mut shots = log.take();
            shots.sort_unstable_by_key(|shot| shot.payload);
            assert_eq!(shots.len(), expected.len(), "{tick:?} {units}");
            for (shot, deadline) in shots.iter().zip(expected) {
                assert_eq!(shot.deadline, deadline);
                assert!(shot.at >= deadline && shot.at <= due(deadline, tick), "{shot:?} {tick:?}");
            }
        }
    }
}

#[test]
fn random_deadlines_at_random_phases_fire_on_their_ticks() {
    // Moves of all lengths from all phases of a tick; time passes in steps of all lengths.
    let mut rng = Rng::new(20);
    for _ in 0..60 {
        let tick = Duration::from_nanos(1_000 << rng.below(22));
        let (mut engine, log) = recording(Builder::new().tick(tick));
        let timers: Vec<_> = (0..20).map(|n| engine.handle().timer(n).unwrap()).collect();
        let mut armed: Vec<Option<Timestamp>> = vec![None; timers.len()];
        let length = |rng: &mut Rng| Duration::from_nanos(rng.next() >> (20 + rng.below(40)));
        for _ in 0..500 {
            let which = rng.index(timers.len());
            match rng.below(5) {
                0 => {
                    let expected = if armed[which].is_some() { Disarm::Disarmed } else { Disarm::Idle };
                    assert_eq!(timers[which].disarm(), expected);
                    armed[which] = None;
                }
                1..4 => {
                    let deadline = engine.handle().now() + length(&mut rng);
                    timers[which].arm_at(deadline).unwrap();
                    armed[which] = Some(deadline);
                }
                _ => {
                    let start = engine.handle().now();
                    engine.advance(length(&mut rng));
                    for shot in log.take() {
                        let which = usize::try_from(shot.payload).unwrap();
                        assert_eq!(armed[which].take(), Some(shot.deadline));
                        assert!(shot.at >= shot.deadline, "early: {shot:?}");
                        assert!(shot.at <= due(shot.deadline, tick).max(start), "late: {shot:?} {tick:?}");
                    }
                }
            }
            assert!(timers.iter().map(Timer::deadline).eq(armed.iter().copied()));
        }
    }
}

#[test]
fn many_timers_postponed_again_and_again_fire_on_their_ticks_once_nobody_does() {
    // As a server's connections: each talks for a while at its own pace, and then no more. Looks gather, firings do not.
    for count in [10, 300, 5_000] {
        let (mut engine, log) = recording(Builder::new());
        let mut rng = Rng::new(count);
        let timers: Vec<_> = (0..count).map(|n| engine.handle().timer(n).unwrap()).collect();
        let mut deadlines = vec![Timestamp::ZERO; timers.len()];
        for step in 0..2_000 {
            for (which, timer) in timers.iter().enumerate() {
                if step == 0 || rng.below(step) < 20 {
                    deadlines[which] = engine.handle().now() + 5 * SECOND + rng.nanos_below(SECOND);
                    timer.arm_at(deadlines[which]).unwrap();
                }
            }
            engine.advance(5 * MS + rng.nanos_below(MS));
            for shot in log.take() {
                let which = usize::try_from(shot.payload).unwrap();
                assert_eq!(shot.deadline, std::mem::take(&mut deadlines[which]));
                assert!(shot.at >= shot.deadline && shot.at <= due(shot.deadline, MS), "{shot:?}");
            }
        }
        engine.advance(10 * SECOND);
        let shots = log.take();
        for shot in &shots {
            assert!(shot.at >= shot.deadline && shot.at <= due(shot.deadline, MS), "{shot:?}");
        }
        let mut fired: Vec<Timestamp> = shots.iter().map(|shot| shot.deadline).collect();
        fired.sort_unstable();
        deadlines.retain(|&deadline| deadline > Timestamp::ZERO);
        deadlines.sort_unstable();
        assert_eq!(fired, deadlines);
        let owned = engine.handle().stats().owned;
        assert!(owned.postponed < 20 * count, "{owned:?}");
        assert_eq!(engine.handle().stats().total.tickets, 0);
    }
}

// --- From inside its handler ---

#[test]
fn a_handler_arms_its_own_timer_again() {
    // By what it gets, and by the timer that it shares.
    for shared in [false, true] {
        let place: Arc<OnceLock<Arc<Timer<u64>>>> = Arc::default();
        let (in_handler, log) = (Arc::downgrade(&place), Log::new());
        let sink = log.clone();
        let mut engine = Builder::new()
            .build_driven(move |fired: Fired<'_, u64>| {
                sink.push(Shot::of(&fired));
                let again = fired.deadline + SECOND;
                let outcome = if shared {
                    in_handler.upgrade().unwrap().get().unwrap().arm_at(again)
                } else {
                    fired.timer().unwrap().arm_at(again)
                };
                assert_eq!(outcome, Ok(Armed::Running));
            })
            .unwrap();
        let timer = Arc::new(engine.handle().timer(7).unwrap());
        assert!(place.set(Arc::clone(&timer)).is_ok());
        timer.arm(SECOND).unwrap();
        engine.advance(10 * SECOND);
        let expected: Vec<_> = (1..=10).map(|second| on_time(7, at(second * SECOND))).collect();
        assert_eq!(log.take(), expected);
        assert_eq!(timer.deadline(), Some(at(11 * SECOND)));
        assert_eq!(timer.disarm(), Disarm::Disarmed);
        engine.advance(10 * SECOND);
        assert_eq!((log.len(), engine.handle().stats().total.panics), (0, 0));
    }
}

#[test]
fn a_handler_that_arms_without_delay_comes_once_a_tick() {
    for past in [false, true] {
        let log = Log::new();
        let sink = log.clone();
        let mut engine = Builder::new()
            .build_driven(move |fired: Fired<'_, u64>| {
                sink.push(fired.engine().now());
                let timer = fired.timer().unwrap();
                if past { timer.arm_at(Timestamp::ZERO) } else { timer.arm(Duration::ZERO) }.unwrap();
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        timer.arm(SECOND).unwrap();
        engine.advance(SECOND + 10 * MS);
        assert_eq!(log.take(), (1_000..=1_010).map(|n| at(n * MS)).collect::<Vec<_>>());
        drop(timer);
        engine.advance(SECOND);
        assert_eq!(log.len(), 0);
    }
}

#[test]
fn a_turn_ends_though_every_timer_arms_itself_again_at_once() {
    let fired = within_patience(|| {
        let mut engine = Builder::new()
            .build_driven(|fired: Fired<'_, u64>| {
                fired.timer().unwrap().arm(Duration::ZERO).unwrap();
            })
            .unwrap();
        let timers: Vec<_> = (0..20_000).map(|n| engine.handle().timer(n).unwrap()).collect();
        for timer in &timers {
            timer.arm(Duration::ZERO).unwrap();
        }
        engine.turn();
        engine.handle().stats().owned.fired
    });
    assert_eq!(fired, 20_000);
}

#[test]
fn only_an_owned_timer_is_there_to_be_armed_again() {
    let mut engine = Builder::new()
        .build_driven(|fired: Fired<'_, u64>| assert_eq!(fired.timer().is_some(), fired.payload == 1))
        .unwrap();
    let timer = engine.handle().timer(1).unwrap();
    timer.arm(MS).unwrap();
    engine.handle().schedule(MS, 2).unwrap();
    engine.advance(MS);
    assert_eq!((engine.handle().stats().total.fired, engine.handle().stats().total.panics), (2, 0));
}

#[test]
fn every_dispatch_lets_a_handler_arm_its_timer() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (sender, done) = mpsc::channel();
            let count = AtomicU64::new(0);
            let engine = builder
                .build(move |fired: Fired<'_, u64>| {
                    assert!(fired.engine().now() >= fired.deadline);
                    let timer = fired.timer().unwrap();
                    assert_eq!(timer.disarm(), Disarm::Running);
                    if count.fetch_add(1, Ordering::Relaxed) < 20 {
                        assert_eq!(timer.arm(Duration::ZERO), Ok(Armed::Running));
                    } else {
                        sender.send(()).unwrap();
                    }
                })
                .unwrap();
            let timer = engine.handle().timer(7).unwrap();
            timer.arm(MS).unwrap();
            done.recv().unwrap();
            timer.disarm_and_wait();
            let stats = engine.handle().stats();
            assert_eq!((stats.owned.fired, stats.total.panics), (21, 0));
        });
    }
}

// --- Dropping ---

#[test]
fn a_dropped_timer_does_not_fire_and_its_payload_goes_at_once() {
    let (mut engine, fired) = counting();
    let make = || {
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        (timer, book)
    };
    // At rest, never armed.
    let (timer, book) = make();
    drop(timer);
    book.assert_gone();
    // Armed, its ticket in the lane.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    drop(timer);
    book.assert_gone();
    // Disarmed, its ticket still out.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    timer.disarm();
    drop(timer);
    book.assert_gone();
    // Armed, its ticket in the wheel.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    engine.turn();
    drop(timer);
    book.assert_gone();
    engine.advance(2 * SECOND);
    assert_eq!(fired.load(Ordering::SeqCst), 0);
    // At rest after it has fired.
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(fired.load(Ordering::SeqCst), 1);
    assert_eq!((book.clones.load(Ordering::SeqCst), book.original_drops()), (1, 0));
    drop(timer);
    book.assert_gone();
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.alive, stats.total.tickets), (0, 0));
}

#[test]
fn the_payload_of_a_timer_dropped_while_its_handler_runs_goes_when_that_has_ended() {
    let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
    let engine = Builder::new()
        .workers(1)
        .build(move |fired: Fired<'_, Tracked>| {
            at_gate.pass();
            assert_eq!(fired.payload.book.original_drops(), 0);
            drop(fired);
            sets.store(true, Ordering::SeqCst);
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(MS).unwrap();
    gate.await_arrival();
    // Not waited for; and though it was armed again, it does not fire again.
    assert_eq!(timer.arm(Duration::ZERO), Ok(Armed::Running));
    drop(timer);
    assert_eq!((book.original_drops(), engine.handle().stats().owned.alive), (0, 1));
    gate.open();
    wait_until("the payload is dropped", || book.original_drops() == 1);
    assert!(ended.load(Ordering::SeqCst));
    // By a thread of the engine: the one that ran the handler, or the one that found the ticket of the second arming.
    assert!(lock(&book.dropped_by).as_deref().is_some_and(|name| name.starts_with("tb-")));
    book.assert_gone();
    wait_until("it is not counted any more", || engine.handle().stats().owned.alive == 0);
    thread::sleep(5 * MS);
    assert_eq!((engine.handle().stats().owned.fired, engine.handle().stats().total.panics), (1, 0));
}

#[test]
fn a_timer_dropped_inside_its_own_handler_is_armed_no_more() {
    let place: Place<Tracked> = Place::default();
    let in_handler = Arc::clone(&place);
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, Tracked>| {
            let by_ref = fired.timer().unwrap();
            assert_eq!(by_ref.arm(Duration::ZERO), Ok(Armed::Running));
            drop(lock(&in_handler).take());
            assert_eq!(fired.payload.book.original_drops(), 0);
            assert_eq!(by_ref.arm(Duration::ZERO), Err(ArmError::Dropped));
            assert_eq!(by_ref.arm_at(Timestamp::MAX), Err(ArmError::Dropped));
            assert_eq!(by_ref.disarm(), Disarm::Running);
            assert_eq!(ArmError::Dropped.to_string(), "the timer was dropped");
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(SECOND);
    book.assert_gone();
    engine.advance(10 * SECOND);
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.fired, stats.owned.alive, stats.total.panics), (1, 0, 0));
}

#[test]
fn a_handler_drops_disarms_and_puts_off_a_timer_that_is_due_with_its_own() {
    // All are due in one tick: 100 timers of which each takes one other out of the way, whichever is first.
    for way in 0..3 {
        let places: Arc<Vec<Place<Tracked>>> = Arc::new((0..100).map(|_| Place::default()).collect());
        let (in_handler, fired) = (Arc::clone(&places), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&fired);
        let mut engine = Builder::new()
            .build_driven(move |fired: Fired<'_, Tracked>| {
                count.fetch_add(1, Ordering::SeqCst);
                let is_me = |place: &&Place<Tracked>| {
                    lock(place).as_ref().is_some_and(|timer| timer.id() == fired.id)
                };
                let me = in_handler.iter().position(|place| is_me(&place)).unwrap();
                let mut other = lock(&in_handler[me ^ 1]);
                let Some(timer) = other.as_ref() else { return };
                match way {
                    0 => *other = None,
                    1 => assert_eq!(timer.disarm(), Disarm::Disarmed),
                    _ => assert_eq!(timer.arm(SECOND), Ok(Armed::Pending)),
                }
            })
            .unwrap();
        let mut books = Vec::new();
        for place in &*places {
            let (payload, book) = Tracked::new();
            let timer = engine.handle().timer(payload).unwrap();
            timer.arm(SECOND).unwrap();
            *lock(place) = Some(timer);
            books.push(book);
        }
        engine.advance(SECOND);
        assert_eq!(fired.swap(0, Ordering::SeqCst), 50);
        assert_eq!(engine.handle().stats().total.panics, 0);
        assert_eq!(engine.handle().stats().owned.alive, if way == 0 { 50 } else { 100 });
        engine.advance(SECOND - MS);
        assert_eq!(fired.load(Ordering::SeqCst), 0);
        // Those that were postponed fire now, and postpone the others again, which are at rest.
        engine.advance(MS);
        assert_eq!(fired.load(Ordering::SeqCst), if way == 2 { 50 } else { 0 });
        for place in &*places {
            drop(lock(place).take());
        }
        books.iter().for_each(|book| book.assert_gone());
        assert_eq!(engine.handle().stats().owned.alive, 0);
    }
}

#[test]
fn a_due_timer_dropped_before_a_worker_takes_it_goes_with_the_job_or_with_the_engine() {
    for shut_down in [false, true] {
        let (clock, jobs) = (ManualClock::new(), Arc::new(Mutex::new(Vec::<Job>::new())));
        let queue = Arc::clone(&jobs);
        let engine = Builder::new()
            .shards(1)
            .clock(clock.clone())
            .executor(move |job| lock(&queue).push(job))
            .build(|_: Fired<'_, Tracked>| panic!("it was dropped"))
            .unwrap();
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        timer.arm(MS).unwrap();
        clock.advance(MS);
        wait_until("it is handed over", || lock(&jobs).len() == 1);
        drop(timer);
        assert_eq!(engine.handle().stats().owned.alive, 1);
        if shut_down {
            assert!(engine.handle().shutdown().is_empty());
            book.assert_gone();
        }
        std::mem::take(&mut *lock(&jobs)).into_iter().for_each(Job::run);
        book.assert_gone();
        let stats = engine.handle().stats();
        assert_eq!((stats.owned.alive, stats.owned.fired, stats.total.panics), (0, 0, 0));
    }
}

#[test]
fn a_payloads_drop_may_use_the_engine_and_drop_another_timer_of_it() {
    /// A chain of timers, each in the payload of the next.
    #[derive(Clone)]
    struct Link {
        previous: Option<Arc<Timer<Link>>>,
    }

    within_patience(|| {
        let engine = Engine::new(|fired: Fired<'_, Link>| drop(fired.payload.previous)).unwrap();
        let mut payload = Link { previous: None };
        for _ in 0..50 {
            let timer = engine.handle().timer(payload).unwrap();
            timer.arm(HOUR).unwrap();
            payload = Link { previous: Some(Arc::new(timer)) };
        }
        assert_eq!(engine.handle().stats().owned.alive, 50);
        drop(payload);
        assert_eq!(engine.handle().stats().owned.alive, 0);
    });
}

// --- Panics ---

#[test]
fn a_timer_whose_handler_panics_is_armed_again() {
    let mut engine = Builder::new()
        .build_driven(|fired: Fired<'_, u64>| {
            if fired.payload == 1 {
                fired.timer().unwrap().arm(SECOND).unwrap();
            }
            resume_unwind(Box::new("a handler"));
        })
        .unwrap();
    // From outside, and by the handler before it panics.
    let (outside, inside) = (engine.handle().timer(0).unwrap(), engine.handle().timer(1).unwrap());
    outside.arm(SECOND).unwrap();
    inside.arm(SECOND).unwrap();
    for round in 1..=5 {
        engine.advance(SECOND);
        assert_eq!(engine.handle().stats().total.panics, 2 * round);
        assert_eq!(outside.disarm(), Disarm::Idle);
        assert_eq!(outside.arm(SECOND), Ok(Armed::Pending));
        assert!(inside.is_armed());
    }
    assert_eq!(engine.handle().stats().owned.fired, 10);
}

#[test]
fn a_payload_whose_clone_panics_costs_one_firing() {
    let (mut engine, fired) = counting();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    book.clone_panics.store(true, Ordering::SeqCst);
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!((fired.load(Ordering::SeqCst), engine.handle().stats().total.panics), (0, 1));
    assert_eq!(timer.disarm(), Disarm::Idle);
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!((fired.load(Ordering::SeqCst), engine.handle().stats().total.panics), (1, 1));
    drop(timer);
    book.assert_gone();
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_payload_whose_drop_panics_costs_nobody_else_anything() {
    let place: Place<Tracked> = Place::default();
    let (in_handler, hooked) = (Arc::clone(&place), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&hooked);
    let mut engine = Builder::new()
        .on_panic(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .build_driven(move |_: Fired<'_, Tracked>| drop(lock(&in_handler).take()))
        .unwrap();
    let make = || {
        let (payload, book) = Tracked::new();
        book.drop_panics.store(true, Ordering::SeqCst);
        (engine.handle().timer(payload).unwrap(), book)
    };
    // Dropped here: it unwinds here.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(timer))).is_err());
    book.assert_gone();
    // Dropped inside its handler: it ends there, like another one that fires in the same tick.
    let (timer, book) = make();
    timer.arm(SECOND).unwrap();
    let (another, another_book) = make();
    another.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(SECOND);
    book.assert_gone();
    assert_eq!((hooked.load(Ordering::SeqCst), engine.handle().stats().owned.fired), (1, 2));
    another_book.drop_panics.store(false, Ordering::SeqCst);
    another.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(engine.handle().stats().owned.fired, 3);
    drop(another);
    another_book.assert_gone();
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

// --- The end of the engine ---

#[test]
fn a_shutdown_forgets_armed_timers_and_leaves_them_to_their_owners() {
    let (mut engine, fired) = counting();
    let mut timers = Vec::new();
    let mut books = Vec::new();
    for _ in 0..5 {
        let (payload, book) = Tracked::new();
        timers.push(engine.handle().timer(payload).unwrap());
        books.push(book);
    }
    // Never armed, armed, disarmed with its ticket out, fired, disarmed with no ticket out.
    timers[3].arm(SECOND).unwrap();
    timers[4].arm(SECOND).unwrap();
    timers[4].disarm();
    engine.advance(SECOND);
    timers[1].arm(SECOND).unwrap();
    timers[2].arm(SECOND).unwrap();
    timers[2].disarm();
    let (payload, scheduled) = Tracked::new();
    engine.handle().schedule(SECOND, payload).unwrap();
    // Only what was scheduled is returned.
    assert_eq!(engine.handle().shutdown().len(), 1);
    scheduled.assert_gone();
    assert_settled(&engine.handle().stats());
    let posted = engine.handle().stats().owned.posted;
    for timer in &timers {
        assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
        assert_eq!(timer.arm(SECOND), Err(ArmError::ShutDown));
        assert_eq!(timer.arm_at(Timestamp::ZERO), Err(ArmError::ShutDown));
        assert_eq!(timer.arm_at(Timestamp::MAX), Err(ArmError::ShutDown));
        assert_eq!((timer.is_armed(), timer.disarm_and_wait()), (false, Disarm::Idle));
        assert_eq!(timer.payload().book.original_drops(), 0);
    }
    assert_eq!(engine.handle().stats().owned.posted, posted);
    assert_eq!(ArmError::ShutDown.to_string(), "the engine was shut down");
    engine.advance(10 * SECOND);
    assert_eq!((fired.load(Ordering::SeqCst), engine.handle().stats().owned.alive), (1, 5));
    drop(timers);
    books.iter().for_each(|book| book.assert_gone());
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn timers_outlive_their_engine() {
    for builder in every_dispatch() {
        let engine = builder.build(|_: Fired<'_, Tracked>| {}).unwrap();
        let (payload, book) = Tracked::new();
        let timer = engine.handle().timer(payload).unwrap();
        timer.arm(HOUR).unwrap();
        drop(engine);
        assert_eq!((timer.arm(MS), timer.disarm()), (Err(ArmError::ShutDown), Disarm::Idle));
        let handle = timer.engine();
        assert!(handle.is_shut_down());
        assert_eq!((book.original_drops(), handle.stats().owned.alive), (0, 1));
        drop(timer);
        book.assert_gone();
        assert_eq!(handle.stats().owned.alive, 0);
    }
}

#[test]
fn a_refused_timer_hands_its_payload_back() {
    let (engine, _log) = recording(Builder::new().capacity(2));
    let scheduled = engine.handle().schedule(HOUR, 0).unwrap();
    let timer = engine.handle().timer(1).unwrap();
    // Full of both kinds, for both kinds.
    let error = engine.handle().timer(2).unwrap_err();
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::EngineFull, 2));
    assert_eq!(engine.handle().schedule(HOUR, 2).unwrap_err().kind, ScheduleErrorKind::EngineFull);
    drop(timer);
    let timer = engine.handle().timer(3).unwrap();
    assert_eq!(engine.handle().cancel(scheduled), Cancel::Cancelled(0));
    let another = engine.handle().timer(4).unwrap();
    assert_eq!((timer.arm(HOUR), another.arm(HOUR)), (Ok(Armed::Pending), Ok(Armed::Pending)));
    assert_eq!(engine.handle().stats().owned.alive, 2);
    assert!(engine.handle().shutdown().is_empty());
    let error = engine.handle().timer(5).unwrap_err();
    assert_eq!((error.kind, error.payload), (ScheduleErrorKind::ShutDown, 5));
    let (tracked_engine, _) = counting();
    drop(tracked_engine.handle().shutdown());
    let (payload, book) = Tracked::new();
    drop(tracked_engine.handle().timer(payload).map_err(|error| error.payload));
    book.assert_gone();
    assert_eq!(tracked_engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_handler_that_shuts_the_engine_down_finds_every_other_timer_forgotten() {
    let place: Arc<OnceLock<[Timer<u64>; 2]>> = Arc::default();
    let in_handler = Arc::downgrade(&place);
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            assert!(fired.engine().shutdown().is_empty());
            for other in in_handler.upgrade().unwrap().get().unwrap() {
                assert_eq!((other.is_armed(), other.disarm()), (false, Disarm::Idle));
                assert_eq!(other.arm(MS), Err(ArmError::ShutDown));
            }
        })
        .unwrap();
    // One that is due with it, and one that is not.
    let timer = engine.handle().timer(0).unwrap();
    assert!(place.set([1, 2].map(|n| engine.handle().timer(n).unwrap())).is_ok());
    let [with_it, later] = place.get().unwrap();
    timer.arm(SECOND).unwrap();
    with_it.arm(SECOND).unwrap();
    later.arm(2 * SECOND).unwrap();
    engine.advance(5 * SECOND);
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.fired, stats.total.panics), (1, 0));
    assert_eq!((timer.arm(MS), timer.disarm()), (Err(ArmError::ShutDown), Disarm::Idle));
    drop(timer);
    assert_eq!(engine.handle().stats().owned.alive, 2);
}

#[test]
fn a_handler_that_shut_the_engine_down_cannot_arm_its_own_timer() {
    let log = Log::new();
    let sink = log.clone();
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            drop(fired.engine().shutdown());
            sink.push((fired.timer().unwrap().arm(MS), fired.timer().unwrap().deadline()));
        })
        .unwrap();
    let timer = engine.handle().timer(0).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(5 * SECOND);
    assert_eq!((timer.deadline(), timer.arm(MS)), (None, Err(ArmError::ShutDown)));
    assert_eq!(engine.handle().stats().owned.fired, 1);
    assert_eq!(log.take(), [(Err(ArmError::ShutDown), None)]);
}

#[test]
fn a_timer_armed_by_its_handler_that_then_shuts_the_engine_down_is_forgotten() {
    let mut engine = Builder::new()
        .build_driven(|fired: Fired<'_, u64>| {
            assert_eq!(fired.timer().unwrap().arm(MS), Ok(Armed::Running));
            assert!(fired.engine().shutdown().is_empty());
        })
        .unwrap();
    let timer = engine.handle().timer(0).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
    engine.advance(SECOND);
    assert_eq!(timer.arm(MS), Err(ArmError::ShutDown));
    assert_eq!((engine.handle().stats().owned.fired, engine.handle().stats().total.panics), (1, 0));
}

#[test]
fn a_timer_dropped_by_the_handler_that_shut_the_engine_down_drops_its_payload_once() {
    let place: Place<Tracked> = Place::default();
    let in_handler = Arc::clone(&place);
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, Tracked>| {
            assert!(fired.engine().shutdown().is_empty());
            drop(lock(&in_handler).take());
            assert_eq!(fired.payload.book.original_drops(), 0);
        })
        .unwrap();
    let (payload, book) = Tracked::new();
    let timer = engine.handle().timer(payload).unwrap();
    timer.arm(SECOND).unwrap();
    *lock(&place) = Some(timer);
    engine.advance(2 * SECOND);
    book.assert_gone();
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().total.panics), (0, 0));
}

#[test]
fn a_shutdown_waits_for_the_handler_and_the_timer_armed_meanwhile_is_forgotten() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
        let engine = Builder::new()
            .workers(1)
            .build(move |fired: Fired<'_, u64>| {
                at_gate.pass();
                // Heard that it is shut down, or acknowledged and forgotten.
                let _either = fired.timer().unwrap().arm(Duration::ZERO);
                sets.store(true, Ordering::SeqCst);
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        timer.arm(MS).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            scope.spawn(|| {
                wait_until("the shutdown has begun", || engine.handle().is_shut_down());
                thread::sleep(5 * MS);
                gate.open();
            });
            assert!(engine.handle().shutdown().is_empty());
            assert!(ended.load(Ordering::SeqCst));
        });
        assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
        assert_eq!(timer.arm(MS), Err(ArmError::ShutDown));
        assert_eq!(engine.handle().stats().owned.fired, 1);
    });
}

#[test]
fn timers_that_race_with_a_shutdown_end_armed_no_more_and_drop_their_payloads_once() {
    // Threads make, arm, postpone and drop timers until they hear of the shutdown.
    for round in 0..30 {
        let (sender, books) = mpsc::channel();
        let engine = Builder::new()
            .tick(Duration::from_micros(100))
            .shards(2)
            .workers(2)
            .build(|fired: Fired<'_, Tracked>| {
                let _either = fired.timer().unwrap().arm(Duration::ZERO);
            })
            .unwrap();
        let kept = thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|number| {
                    let (engine, sender) = (&engine, sender.clone());
                    scope.spawn(move || {
                        let mut rng = Rng::new(100 * round + number);
                        let mut timers: Vec<Timer<Tracked>> = Vec::new();
                        loop {
                            let (payload, book) = Tracked::new();
                            sender.send(book).unwrap();
                            let Ok(timer) = engine.handle().timer(payload) else { break };
                            timers.push(timer);
                            let at = rng.index(timers.len());
                            match timers[at].arm(rng.nanos_below(MS)) {
                                Ok(_) => {}
                                Err(error) => {
                                    assert_eq!(error, ArmError::ShutDown);
                                    break;
                                }
                            }
                            if rng.chance(60) {
                                drop(timers.swap_remove(at));
                            }
                        }
                        timers
                    })
                })
                .collect();
            thread::sleep(2 * MS);
            assert!(engine.handle().shutdown().is_empty());
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for timer in &kept {
            assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
            assert_eq!(timer.arm(Duration::ZERO), Err(ArmError::ShutDown));
        }
        assert_eq!(engine.handle().stats().owned.alive, kept.len() as u64);
        drop(kept);
        assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().total.panics), (0, 0));
        drop(sender);
        books.into_iter().for_each(|book| book.assert_gone());
    }
}

// --- Waiting for a handler ---

#[test]
fn disarm_and_wait_returns_when_the_handler_has_ended() {
    within_patience(|| {
        let (gate, ended) = (Gate::new(), Arc::new(AtomicBool::new(false)));
        let (at_gate, sets) = (gate.clone(), Arc::clone(&ended));
        let engine = Builder::new()
            .workers(1)
            .build(move |_: Fired<'_, u64>| {
                at_gate.pass();
                thread::sleep(5 * MS);
                sets.store(true, Ordering::SeqCst);
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        timer.arm(MS).unwrap();
        gate.await_arrival();
        thread::scope(|scope| {
            // Two that wait.
            let another = scope.spawn(|| (timer.disarm_and_wait(), ended.load(Ordering::SeqCst)));
            scope.spawn(|| {
                thread::sleep(10 * MS);
                gate.open();
            });
            assert_eq!(timer.disarm_and_wait(), Disarm::Idle);
            assert!(ended.load(Ordering::SeqCst));
            assert_eq!(another.join().unwrap(), (Disarm::Idle, true));
        });
        assert_eq!(timer.disarm_and_wait(), Disarm::Idle);
    });
}

/// Armed again while its handler runs, and disarmed then: the disarm that waits says that it took an arming away, though the
/// handler of the one before ran meanwhile.
#[test]
fn disarm_and_wait_tells_whether_the_timer_was_armed_again_during_the_run() {
    within_patience(|| {
        for was_armed_again in [false, true] {
            let (gate, log) = (Gate::new(), Log::new());
            let (at_gate, sink) = (gate.clone(), log.clone());
            let engine = Builder::new()
                .workers(1)
                .build(move |fired: Fired<'_, u64>| {
                    if was_armed_again {
                        fired.timer().unwrap().arm(HOUR).unwrap();
                    }
                    at_gate.pass();
                    sink.push(fired.payload);
                })
                .unwrap();
            let timer = engine.handle().timer(7).unwrap();
            timer.arm(MS).unwrap();
            gate.await_arrival();
            assert_eq!(timer.is_armed(), was_armed_again);
            let outcome = thread::scope(|scope| {
                let waits = scope.spawn(|| (timer.disarm_and_wait(), log.len()));
                if was_armed_again {
                    wait_until("it is disarmed", || !timer.is_armed());
                } else {
                    thread::sleep(5 * MS);
                }
                gate.open();
                waits.join().unwrap()
            });
            let expected = if was_armed_again { Disarm::Disarmed } else { Disarm::Idle };
            assert_eq!(outcome, (expected, 1));
            assert!(!timer.is_armed());
        }
    });
}

#[test]
fn no_handler_runs_after_disarm_and_wait_has_returned() {
    // A timer that arms itself at once, stopped at any moment: after the answer its handler neither runs nor, once it has
    // been stopped twice, comes again.
    within_patience(|| {
        let (inside, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (in_handler, is_stopped) = (Arc::clone(&inside), Arc::clone(&stopped));
        let engine = Builder::new()
            .tick(Duration::from_micros(100))
            .workers(2)
            .build(move |fired: Fired<'_, u64>| {
                in_handler.fetch_add(1, Ordering::SeqCst);
                if !is_stopped.load(Ordering::SeqCst) {
                    fired.timer().unwrap().arm(Duration::ZERO).unwrap();
                }
                in_handler.fetch_sub(1, Ordering::SeqCst);
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        let mut rng = Rng::new(9);
        for _ in 0..300 {
            stopped.store(false, Ordering::SeqCst);
            timer.arm(Duration::ZERO).unwrap();
            thread::sleep(rng.nanos_below(MS / 2));
            stopped.store(true, Ordering::SeqCst);
            // The handler that ran may have armed it just before.
            assert_ne!(timer.disarm_and_wait(), Disarm::Running);
            assert_ne!(timer.disarm_and_wait(), Disarm::Running);
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            let fired = engine.handle().stats().owned.fired;
            assert!(!timer.is_armed());
            thread::sleep(MS / 4);
            assert_eq!((inside.load(Ordering::SeqCst), engine.handle().stats().owned.fired), (0, fired));
        }
        assert!(engine.handle().stats().owned.fired > 0);
        assert_eq!(engine.handle().stats().total.panics, 0);
    });
}

#[test]
fn disarm_and_wait_does_not_wait_inside_a_handler() {
    // For its own timer, and for another one that runs at the time and waits for it in turn.
    for builder in [Builder::new().workers(2), Builder::new().workers(4)] {
        within_patience(move || {
            let place: Arc<OnceLock<[Timer<usize>; 2]>> = Arc::default();
            let (in_handler, meet) = (Arc::downgrade(&place), Barrier::new(2));
            let (sender, answers) = mpsc::channel();
            let engine = builder
                .shards(1)
                .build(move |fired: Fired<'_, usize>| {
                    let place = in_handler.upgrade().unwrap();
                    let timers = place.get().unwrap();
                    meet.wait();
                    let own = timers[fired.payload].disarm_and_wait();
                    let other = timers[1 - fired.payload].disarm_and_wait();
                    meet.wait();
                    sender.send((own, other)).unwrap();
                })
                .unwrap();
            assert!(place.set([0, 1].map(|n| engine.handle().timer(n).unwrap())).is_ok());
            for timer in place.get().unwrap() {
                timer.arm(MS).unwrap();
            }
            for _ in 0..2 {
                assert_eq!(answers.recv().unwrap(), (Disarm::Running, Disarm::Running));
            }
        });
    }
}

// --- Several threads ---

#[test]
fn threads_that_arm_one_timer_fire_it_for_deadlines_of_theirs_and_never_early() {
    let log = Log::new();
    let (sink, busy) = (log.clone(), AtomicBool::new(false));
    let engine = Builder::new()
        .tick(Duration::from_micros(100))
        .shards(2)
        .workers(2)
        .build(move |fired: Fired<'_, u64>| {
            assert!(!busy.swap(true, Ordering::SeqCst), "twice at a time");
            sink.push(Shot::of(&fired));
            busy.store(false, Ordering::SeqCst);
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    let armed: HashSet<Timestamp> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (engine, timer) = (&engine, &timer);
                scope.spawn(move || {
                    let mut rng = Rng::new(number);
                    let mut armed = Vec::new();
                    for n in 0..30_000 {
                        let deadline = engine.handle().now() + rng.nanos_below(2 * MS);
                        armed.push(deadline);
                        timer.arm_at(deadline).unwrap();
                        match n % 1_000 {
                            // Lets it come due now and then.
                            0 => thread::sleep(MS),
                            1..50 => drop(timer.disarm()),
                            _ => {}
                        }
                    }
                    armed
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    wait_until("it is at rest", || !timer.is_armed());
    assert_ne!(timer.disarm_and_wait(), Disarm::Running);
    let last = engine.handle().now() + MS;
    timer.arm_at(last).unwrap();
    wait_until("it has fired", || !timer.is_armed());
    assert_eq!(timer.disarm_and_wait(), Disarm::Idle);
    let shots = log.take();
    assert_eq!(engine.handle().stats().total.panics, 0);
    assert!(shots.len() > 1);
    assert_eq!(shots.last().unwrap().deadline, last);
    for shot in &shots {
        assert!(shot.at >= shot.deadline, "early: {shot:?}");
        assert!(shot.deadline == last || armed.contains(&shot.deadline), "nobody's: {shot:?}");
    }
}

#[test]
fn an_arming_fires_once_though_its_deadline_has_come_when_it_is_told_to_the_handler() {
    // A timer is armed for now while its handler begins for what it was armed for before, again and again. No two armings
    // have the same deadline, so no deadline may be fired for twice.
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(Duration::from_micros(10))
        .shards(1)
        .inline()
        .build(move |fired: Fired<'_, u64>| sink.push(fired.deadline))
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    let (mut rng, mut last) = (Rng::new(2), engine.handle().now());
    for _ in 0..20_000 {
        for _ in 0..20 {
            let deadline = (engine.handle().now() + rng.nanos_below(Duration::from_micros(30)))
                .max(last + Duration::from_nanos(1));
            last = deadline;
            timer.arm_at(deadline).unwrap();
        }
        // At rest now and then, so that the next one takes a ticket.
        if rng.chance(10) {
            wait_until("it is at rest", || !timer.is_armed());
        }
    }
    wait_until("it is at rest", || !timer.is_armed());
    assert_ne!(timer.disarm_and_wait(), Disarm::Running);
    let fired = log.take();
    let distinct: HashSet<Timestamp> = fired.iter().copied().collect();
    assert_eq!(distinct.len(), fired.len(), "fired twice for one arming");
    assert!(fired.len() > 100, "{}", fired.len());
}

#[test]
fn handlers_of_one_timer_never_overlap() {
    // Ten timers that their handlers arm again at once, on four workers, while another thread arms them too.
    let inside: Arc<Vec<AtomicBool>> = Arc::new((0..10).map(|_| AtomicBool::new(false)).collect());
    let (in_handler, overlaps) = (Arc::clone(&inside), Arc::new(AtomicUsize::new(0)));
    let (count, stop) = (Arc::clone(&overlaps), Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&stop);
    let engine = Builder::new()
        .tick(Duration::from_micros(100))
        .shards(2)
        .workers(4)
        .build(move |fired: Fired<'_, usize>| {
            if in_handler[fired.payload].swap(true, Ordering::SeqCst) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            if !is_over.load(Ordering::SeqCst) {
                fired.timer().unwrap().arm(Duration::ZERO).unwrap();
            }
            thread::yield_now();
            in_handler[fired.payload].store(false, Ordering::SeqCst);
        })
        .unwrap();
    let timers: Vec<_> = (0..10).map(|n| engine.handle().timer(n).unwrap()).collect();
    wait_until("they have fired often", || {
        let mut rng = Rng::new(engine.handle().stats().owned.fired);
        for timer in &timers {
            timer.arm(rng.nanos_below(MS / 4)).unwrap();
        }
        engine.handle().stats().owned.fired > 5_000
    });
    stop.store(true, Ordering::SeqCst);
    wait_until("they are at rest", || timers.iter().all(|timer| timer.disarm() == Disarm::Idle));
    assert_eq!((overlaps.load(Ordering::SeqCst), engine.handle().stats().total.panics), (0, 0));
}

#[test]
fn a_timer_may_be_made_armed_and_dropped_by_different_threads() {
    // Threads that end meanwhile: their lanes and slots go to others.
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |fired: Fired<'_, u64>| sink.push(fired.payload)).unwrap();
    for n in 0..50 {
        let timer = thread::scope(|scope| scope.spawn(|| engine.handle().timer(n).unwrap()).join().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| timer.arm(HOUR).unwrap());
        });
        thread::scope(|scope| {
            scope.spawn(|| timer.arm(MS).unwrap());
        });
        wait_until("it has fired", || log.len() as u64 == n + 1);
        assert_eq!(timer.disarm_and_wait(), Disarm::Idle);
        thread::spawn(move || drop(timer)).join().unwrap();
        assert_eq!(engine.handle().stats().owned.alive, 0);
    }
    assert_eq!(log.take(), (0..50).collect::<Vec<u64>>());
}

#[test]
fn a_real_engine_fires_owned_timers_not_early() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Builder::new()
        .tick(Duration::from_micros(100))
        .build(move |fired: Fired<'_, u64>| sink.push(Shot::of(&fired)))
        .unwrap();
    let timers: Vec<_> = (0..2_000).map(|n| engine.handle().timer(n).unwrap()).collect();
    let mut rng = Rng::new(8);
    let mut deadlines = Vec::new();
    for timer in &timers {
        // Moved ahead and postponed before it settles; never due before it does.
        for _ in 0..3 {
            timer.arm(HOUR + rng.nanos_below(HOUR)).unwrap();
        }
        let deadline = engine.handle().now() + 20 * MS + rng.nanos_below(30 * MS);
        assert_eq!(timer.arm_at(deadline), Ok(Armed::Pending));
        deadlines.push(deadline);
    }
    wait_until("all have fired", || log.len() == timers.len());
    let mut shots = log.take();
    shots.sort_unstable_by_key(|shot| shot.payload);
    assert!(shots.iter().map(|shot| shot.deadline).eq(deadlines));
    assert!(shots.iter().all(|shot| shot.at >= shot.deadline));
}

#[test]
fn arming_again_and_again_wakes_no_shard() {
    let engine = Builder::new().shards(1).build(|_: Fired<'_, u64>| {}).unwrap();
    let timers: Vec<_> = (0..10).map(|n| engine.handle().timer(n).unwrap()).collect();
    for timer in &timers {
        timer.arm(HOUR).unwrap();
    }
    wait_until("the shard has turned", || engine.handle().stats().total.turns > 0);
    let before = engine.handle().stats();
    for n in 0..10_000_u32 {
        for timer in &timers {
            if n % 3 == 0 {
                assert_eq!(timer.disarm(), Disarm::Disarmed);
            }
            assert_eq!(timer.arm(HOUR), Ok(Armed::Pending));
        }
    }
    let after = engine.handle().stats();
    assert_eq!((after.total.unparks, after.owned.posted), (before.total.unparks, 10));
    assert!(after.total.tickets <= 10, "{after:?}");
    assert_eq!(after.owned.postponed, 0);
}

#[test]
fn arming_for_later_than_the_next_wake_up_wakes_nobody() {
    let engine = Builder::new().shards(1).build(|_: Fired<'_, u64>| {}).unwrap();
    engine.handle().schedule(HOUR, 0).unwrap();
    wait_until("the shard sleeps on it", || engine.handle().stats().total.tickets == 1);
    thread::sleep(5 * MS);
    let timers: Vec<_> = (0..100).map(|n| engine.handle().timer(n).unwrap()).collect();
    let before = engine.handle().stats().total.unparks;
    for timer in &timers {
        timer.arm(2 * HOUR).unwrap();
    }
    assert_eq!((engine.handle().stats().total.unparks, engine.handle().stats().owned.posted), (before, 100));
    // And for sooner, one does.
    timers[0].arm(HOUR / 2).unwrap();
    assert_eq!(engine.handle().stats().total.unparks, before + 1);
}

#[test]
fn arming_waits_for_no_shard_where_that_would_be_for_itself() {
    // More arms that each take a ticket than the lane holds, without a turn in between.
    let (mut engine, log) = recording(Builder::new().lane_capacity(64));
    let timers: Vec<_> = (0..1_024).map(|n| engine.handle().timer(n).unwrap()).collect();
    for timer in &timers {
        assert_eq!(timer.arm(SECOND), Ok(Armed::Pending));
    }
    assert_eq!(engine.handle().schedule(SECOND, 0).unwrap_err().kind, ScheduleErrorKind::LaneFull);
    engine.advance(SECOND);
    assert_eq!(payloads(&log.take()), (0..1_024).collect::<Vec<u64>>());
    // Inside a handler that runs on the shard's own thread.
    within_patience(|| {
        let place: Arc<OnceLock<Vec<Timer<u64>>>> = Arc::default();
        let (in_handler, (sender, fired)) = (Arc::downgrade(&place), mpsc::channel());
        let engine = Builder::new()
            .shards(1)
            .lane_capacity(64)
            .inline()
            .build(move |fired: Fired<'_, u64>| {
                if fired.timer().is_none() {
                    for timer in in_handler.upgrade().unwrap().get().unwrap() {
                        assert_eq!(timer.arm(MS), Ok(Armed::Pending));
                    }
                } else {
                    sender.send(fired.payload).unwrap();
                }
            })
            .unwrap();
        assert!(place.set((0..1_000).map(|n| engine.handle().timer(n).unwrap()).collect()).is_ok());
        engine.handle().schedule(MS, 0).unwrap();
        let mut payloads: Vec<u64> = (0..1_000).map(|_| fired.recv_timeout(PATIENCE).unwrap()).collect();
        payloads.sort_unstable();
        assert_eq!(payloads, (0..1_000).collect::<Vec<u64>>());
    });
}

#[test]
fn arming_waits_for_a_shard_that_is_behind_until_it_is_not_or_is_shut_down() {
    for shut_down in [false, true] {
        within_patience(move || {
            let (gate, log) = (Gate::new(), Log::new());
            let (at_gate, sink) = (gate.clone(), log.clone());
            let engine = Builder::new()
                .shards(1)
                .lane_capacity(64)
                .inline()
                .build(move |fired: Fired<'_, u64>| {
                    if fired.timer().is_none() {
                        at_gate.pass();
                    } else {
                        sink.push(fired.payload);
                    }
                })
                .unwrap();
            engine.handle().schedule(Duration::ZERO, 0).unwrap();
            gate.await_arrival();
            let timers: Vec<_> = (0..500).map(|n| engine.handle().timer(n).unwrap()).collect();
            let opened = AtomicBool::new(false);
            thread::scope(|scope| {
                let opener = scope.spawn(|| {
                    thread::sleep(20 * MS);
                    if shut_down {
                        // It waits for the handler, which waits for the gate.
                        scope.spawn(|| assert!(engine.handle().shutdown().is_empty()));
                        wait_until("the shutdown has begun", || engine.handle().is_shut_down());
                    } else {
                        opened.store(true, Ordering::SeqCst);
                        gate.open();
                    }
                });
                let refused = timers.iter().find_map(|timer| timer.arm(MS).err());
                assert_eq!(refused, shut_down.then_some(ArmError::ShutDown));
                assert!(shut_down || opened.load(Ordering::SeqCst), "it did not wait");
                opener.join().unwrap();
                gate.open();
            });
            if !shut_down {
                wait_until("all have fired", || log.len() == 500);
            }
        });
    }
}

// --- Ids and slots ---

#[test]
fn a_timers_id_is_good_for_nothing_that_takes_scheduled_timers() {
    let (sender, ids) = mpsc::channel();
    let check = |engine: &Handle<u64>, id| {
        assert_eq!((engine.cancel(id), engine.cancel_and_wait(id)), (Cancel::Gone, Cancel::Gone));
        assert!(matches!(engine.reschedule(id, SECOND), Err(RescheduleError::Gone)));
        assert!(matches!(engine.producer().reschedule_at(id, at(SECOND)), Err(RescheduleError::Gone)));
        assert_eq!((engine.deadline(id), engine.remaining(id)), (None, None));
    };
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            check(&fired.engine(), fired.id);
            sender.send(fired.id).unwrap();
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    let id = timer.id();
    check(engine.handle(), id);
    timer.arm(SECOND).unwrap();
    check(engine.handle(), id);
    engine.turn();
    check(engine.handle(), id);
    timer.disarm();
    check(engine.handle(), id);
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    check(engine.handle(), id);
    timer.arm(2 * SECOND).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!(ids.try_iter().collect::<Vec<_>>(), [id, id]);
    assert_eq!((timer.id(), timer.arm(SECOND)), (id, Ok(Armed::Pending)));
    drop(timer);
    check(engine.handle(), id);
    let stats = engine.handle().stats();
    assert_eq!((stats.scheduled, stats.cancelled, stats.total.panics), (0, 0, 0));
}

#[test]
fn stale_ids_and_tickets_of_one_kind_never_reach_the_other_kind_in_their_slot() {
    // One slot, which the two kinds use in turn; what the last one left behind comes due in the time of the next.
    let (mut engine, log) = recording(Builder::new().capacity(1));
    let mut stale = Vec::new();
    let assert_all_stale = |engine: &DrivenEngine<u64>, stale: &[_]| {
        for &id in stale {
            assert_eq!((engine.handle().cancel(id), engine.handle().deadline(id)), (Cancel::Gone, None));
            assert!(matches!(engine.handle().reschedule(id, SECOND), Err(RescheduleError::Gone)));
        }
    };
    for round in 0..40 {
        let start = engine.handle().now();
        // Scheduled and cancelled, once its ticket is in the wheel.
        let id = engine.handle().schedule(SECOND, round).unwrap();
        assert_all_stale(&engine, &stale);
        engine.turn();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(round));
        stale.push(id);
        // Owned and armed, past the other's deadline; or dropped before that.
        let timer = engine.handle().timer(1_000 + round).unwrap();
        assert!(!stale.contains(&timer.id()));
        assert_all_stale(&engine, &stale);
        timer.arm(2 * SECOND).unwrap();
        assert_all_stale(&engine, &stale);
        assert_eq!(timer.deadline(), Some(start + 2 * SECOND));
        if round % 2 == 0 {
            engine.advance(2 * SECOND);
            assert_eq!(log.take(), [on_time(1_000 + round, start + 2 * SECOND)]);
        } else {
            engine.turn();
        }
        stale.push(timer.id());
        drop(timer);
        // Scheduled again, past the timer's deadline.
        let id = engine.handle().schedule(3 * SECOND, 2_000 + round).unwrap();
        assert!(!stale.contains(&id));
        assert_all_stale(&engine, &stale);
        let deadline = engine.handle().deadline(id).unwrap();
        engine.advance(4 * SECOND);
        assert_eq!(log.take(), [on_time(2_000 + round, deadline)]);
        stale.push(id);
        assert_eq!(engine.handle().stats().owned.alive, 0);
    }
    assert_eq!(engine.handle().stats().pending, 0);
}

#[test]
fn tickets_of_a_timers_predecessors_in_its_slot_fire_nothing() {
    // Owned timers one after the other in one slot, with deadlines that stamp their tickets alike.
    let (mut engine, log) = recording(Builder::new().capacity(1));
    for n in 0..200 {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm_at(at(SECOND)).unwrap();
        engine.turn();
    }
    let timer = engine.handle().timer(1_000).unwrap();
    timer.arm_at(at(SECOND)).unwrap();
    engine.turn();
    timer.arm_at(at(3 * SECOND)).unwrap();
    engine.advance(2 * SECOND);
    assert_eq!((log.len(), timer.deadline()), (0, Some(at(3 * SECOND))));
    engine.advance(2 * SECOND);
    assert_eq!(log.take(), [on_time(1_000, at(3 * SECOND))]);
    assert_eq!(engine.handle().stats().total.tickets, 0);
}

// --- Books ---

#[test]
fn the_books_of_both_kinds_are_kept_apart() {
    let (mut engine, log) = recording(Builder::new());
    let stats = |engine: &DrivenEngine<u64>| {
        let stats = engine.handle().stats();
        assert_eq!(
            stats.scheduled,
            stats.cancelled + stats.fired + stats.returned + stats.pending,
            "{stats:?}"
        );
        assert_eq!(stats.total.fired, stats.fired + stats.owned.fired);
        stats
    };
    let timers: Vec<_> = (0..10).map(|n| engine.handle().timer(n).unwrap()).collect();
    let ids: Vec<_> = (0..10).map(|n| engine.handle().schedule(SECOND, 100 + n).unwrap()).collect();
    assert_eq!((stats(&engine).owned.alive, stats(&engine).owned.posted), (10, 0));
    for timer in &timers {
        timer.arm(SECOND).unwrap();
    }
    assert_eq!((stats(&engine).owned.posted, stats(&engine).scheduled, engine.handle().len()), (10, 10, 10));
    for timer in &timers[..5] {
        timer.arm(2 * SECOND).unwrap();
    }
    assert_eq!(timers[5].disarm(), Disarm::Disarmed);
    assert_eq!(engine.handle().cancel(ids[0]), Cancel::Cancelled(100));
    engine.advance(SECOND);
    let now = stats(&engine);
    assert_eq!((now.scheduled, now.cancelled, now.fired, now.pending), (10, 1, 9, 0));
    assert_eq!((now.owned.fired, now.owned.postponed, now.owned.posted, now.owned.alive), (4, 5, 10, 10));
    assert_eq!((now.total.tickets, now.total.stale_tickets), (5, 2));
    assert!(engine.handle().is_empty());
    // Ahead of their tickets: posted again.
    for timer in &timers[..5] {
        timer.arm(MS).unwrap();
    }
    assert_eq!((stats(&engine).owned.posted, stats(&engine).scheduled), (15, 10));
    engine.advance(SECOND);
    let now = stats(&engine);
    assert_eq!((now.owned.fired, now.owned.postponed, now.total.tickets), (9, 5, 0));
    assert_eq!(now.total.stale_tickets, 7);
    drop(timers);
    let now = stats(&engine);
    assert_eq!((now.owned.alive, now.pending, now.scheduled), (0, 0, 10));
    assert_eq!(log.take().len(), 18);
    assert!(engine.handle().shutdown().is_empty());
    assert_settled(&engine.handle().stats());
}

#[test]
fn tickets_of_dropped_timers_go_though_their_deadlines_are_far() {
    let (mut engine, _log) = recording(Builder::new());
    for n in 0..300_000 {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm(HOUR + Duration::from_millis(n)).unwrap();
        if n % 100 == 0 {
            engine.turn();
        }
    }
    engine.turn();
    let stats = engine.handle().stats();
    assert!(stats.total.tickets <= 65_536 + 4_096 + 2, "{stats:?}");
}

#[test]
fn tickets_of_dropped_timers_go_though_their_slot_is_armed_for_the_same_deadline_again() {
    // Connections that come and go, one at a time, each with the same hour in which all is closed.
    let (mut engine, _log) = recording(Builder::new());
    let closing = at(10 * HOUR);
    for n in 0..300_000 {
        let timer = engine.handle().timer(n).unwrap();
        timer.arm_at(closing).unwrap();
        engine.turn();
    }
    let stats = engine.handle().stats();
    assert!(stats.total.tickets <= 65_536 + 4_096 + 2, "{} tickets", stats.total.tickets);
}

#[test]
fn timers_and_what_handlers_get_of_them_can_be_printed() {
    let (sender, printed) = mpsc::channel();
    let mut engine = Builder::new()
        .build_driven(move |fired: Fired<'_, u64>| {
            sender.send(format!("{:?}", fired.timer().unwrap())).unwrap()
        })
        .unwrap();
    let timer = engine.handle().timer(7).unwrap();
    assert!(format!("{timer:?}").contains("deadline: None"));
    timer.arm(SECOND).unwrap();
    assert!(format!("{timer:?}").contains("1000000000"));
    engine.advance(SECOND);
    assert!(printed.recv().unwrap().contains("TimerRef"));
}

thread_local! {
    /// Times that this thread read the clock below.
    static READINGS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that knows who reads it.
struct Watched(MonotonicClock);

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        READINGS.set(READINGS.get() + 1);
        self.0.now()
    }
}

#[test]
fn who_brings_the_time_along_reads_no_clock() {
    let engine = Builder::new().clock(Watched(MonotonicClock::new())).build(|_: Fired<'_, u64>| {}).unwrap();
    let now = engine.handle().now();
    let timer = engine.handle().timer(1).unwrap();
    let mut producer = engine.handle().producer();
    READINGS.set(0);
    for n in 0..1_000 {
        let deadline = now + HOUR + n * MS;
        timer.arm_at(deadline).unwrap();
        timer.arm_at(now + (HOUR - n * MS)).unwrap();
        assert!(timer.is_armed());
        timer.disarm();
        let id = engine.handle().schedule_at(deadline, 2).unwrap();
        let id = engine.handle().reschedule_at(id, deadline + MS).unwrap();
        assert_eq!(engine.handle().cancel(id), Cancel::Cancelled(2));
        let id = producer.try_schedule_at(deadline, 3).unwrap();
        let id = producer.reschedule_at(id, deadline + MS).unwrap();
        assert_eq!(producer.cancel(id), Cancel::Cancelled(3));
    }
    drop(timer);
    assert_eq!(READINGS.get(), 0);
    // What is counted is counted.
    assert!(engine.handle().now() > now && READINGS.get() == 1);
}
