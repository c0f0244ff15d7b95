//! Tests one-shots that are named by keys.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
mod support;

use std::ffi::{CStr, CString, c_void};
use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance, without_provenance_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::*;
use tb_outcome::*;
use tb_status::*;
use tourbillon_c::*;

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

fn cancel(engine: *const tb_engine, key: &CStr) -> (tb_outcome, *mut c_void) {
    let (mut outcome, mut user) = (TB_GONE, null_mut());
    assert_eq!(unsafe { tb_cancel_keyed(engine, key.as_ptr(), &mut outcome, &mut user) }, TB_OK);
    (outcome, user)
}

fn cancel_and_wait(engine: *const tb_engine, key: &CStr) -> tb_outcome {
    let mut outcome = TB_GONE;
    assert_eq!(unsafe { tb_cancel_keyed_and_wait(engine, key.as_ptr(), &mut outcome, null_mut()) }, TB_OK);
    outcome
}

// --- One thread, a clock of its own ---

#[test]
fn a_key_is_moved() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let log = Log::default();
    let key = c"order 17";
    unsafe {
        assert_eq!(tb_reschedule_keyed(driven.engine, key.as_ptr(), MS), TB_NOT_PENDING);
        assert_eq!(message(), "the key has no pending one-shot");
        let status =
            tb_schedule_keyed(driven.engine, key.as_ptr(), 10 * MS, Some(log_call), log.user(), null_mut());
        assert_eq!(status, TB_OK);
        assert_eq!(tb_reschedule_keyed(driven.engine, key.as_ptr(), 20 * MS), TB_OK);
        driven.advance(19 * MS);
        assert_eq!(log.len(), 0);
        assert_eq!(tb_reschedule_keyed(driven.engine, key.as_ptr(), 5 * MS), TB_OK);
        driven.advance(5 * MS);
        let deadlines: Vec<u64> = log.take().iter().map(|event| event.deadline_ns).collect();
        assert_eq!(deadlines, [24 * MS]);
        driven.advance(50 * MS);
        assert_eq!(tb_reschedule_keyed(driven.engine, key.as_ptr(), MS), TB_NOT_PENDING);
        assert_eq!(tb_reschedule_keyed(driven.engine, c"caf\xe9".as_ptr(), MS), TB_NOT_UTF8);
    }
    assert_eq!(log.len(), 0);
    assert_eq!(cancel(driven.engine, key), (TB_GONE, null_mut()));
    let stats = driven.stats();
    assert_eq!((stats.fired, stats.cancelled, stats.pending), (1, 2, 0));
}

/// The key of the last event that the callback `see_key` got. `None` before the first event.
static SEEN_KEY: Mutex<Option<CString>> = Mutex::new(None);

unsafe extern "C" fn see_key(_: *mut c_void, event: *const tb_event) {
    *SEEN_KEY.lock().unwrap() = Some(unsafe { CStr::from_ptr((*event).key) }.to_owned());
}

#[test]
fn an_event_has_its_key() {
    let schedule = |engine, key: &CStr| unsafe {
        assert_eq!(tb_schedule_keyed(engine, key.as_ptr(), MS, Some(see_key), null_mut(), null_mut()), TB_OK);
    };
    let driven = Driven::new(tb_delivery::TB_INLINE);
    schedule(driven.engine, c"called");
    driven.advance(5 * MS);
    assert_eq!(SEEN_KEY.lock().unwrap().take().as_deref(), Some(c"called"));
    schedule(driven.engine, c"unfired");
    assert_eq!(unsafe { tb_engine_shutdown(driven.engine, Some(see_key), null_mut()) }, TB_OK);
    assert_eq!(SEEN_KEY.lock().unwrap().take().as_deref(), Some(c"unfired"));

    let driven = Driven::new(tb_delivery::TB_POLLED);
    for key in [c"one", c"two"] {
        schedule(driven.engine, key);
        driven.advance(5 * MS);
    }
    assert_eq!(unsafe { tb_schedule(driven.engine, MS, None, null_mut(), null_mut()) }, TB_OK);
    driven.advance(5 * MS);
    let events = driven.poll(9);
    // The keys' strings live until this thread polls again.
    let keys: Vec<_> = events[..2].iter().map(|event| unsafe { CStr::from_ptr(event.key) }).collect();
    assert_eq!(keys, [c"one", c"two"]);
    assert!(events[2].key.is_null() && events.iter().all(|event| event.reserved == [0; 5]));
}

#[test]
fn a_shutdown_returns_keyed_one_shots_and_later_calls_are_refused() {
    let driven = Driven::new(tb_delivery::TB_INLINE);
    let (log, mut count) = (Log::default(), 0);
    unsafe {
        let schedule =
            || tb_schedule_keyed(driven.engine, c"k".as_ptr(), HOUR, Some(log_call), log.user(), null_mut());
        assert_eq!(schedule(), TB_OK);
        assert_eq!(tb_reschedule_keyed(driven.engine, c"k".as_ptr(), 2 * HOUR), TB_OK);
        assert_eq!(tb_engine_shutdown(driven.engine, Some(log_call), &mut count), TB_OK);
        assert_eq!((count, log.take()[0].deadline_ns), (1, 2 * HOUR));
        assert_eq!(schedule(), TB_SHUT_DOWN);
        assert_eq!(tb_reschedule_keyed(driven.engine, c"k".as_ptr(), HOUR), TB_SHUT_DOWN);
    }
    assert_eq!(cancel(driven.engine, c"k"), (TB_GONE, null_mut()));
}

// --- Callbacks that run ---

struct Gate {
    engine: *mut tb_engine,
    has_begun: AtomicBool,
    may_end: AtomicBool,
    has_ended: AtomicBool,
}

// SAFETY: engines may be used on any thread.
unsafe impl Sync for Gate {}

impl Gate {
    fn await_begin(&self) {
        let begin = Instant::now();
        while !self.has_begun.load(Ordering::Acquire) {
            assert!(begin.elapsed() < PATIENCE);
            thread::yield_now();
        }
    }
}

unsafe extern "C" fn pass_gate(user: *mut c_void, event: *const tb_event) {
    let gate = unsafe { &*user.cast::<Gate>() };
    // In a callback of the key, the cancel does not wait, since it would wait for itself.
    assert_eq!(cancel_and_wait(gate.engine, unsafe { CStr::from_ptr((*event).key) }), TB_RUNNING);
    gate.has_begun.store(true, Ordering::Release);
    while !gate.may_end.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    gate.has_ended.store(true, Ordering::Release);
}

#[test]
fn a_cancel_returns_running_for_a_keyed_callback_that_runs_and_can_wait_for_it() {
    for delivery in [tb_delivery::TB_POOL, tb_delivery::TB_INLINE] {
        let (mut engine, key) = (null_mut(), c"order 17");
        assert_eq!(unsafe { tb_engine_create(&options(delivery), &mut engine) }, TB_OK);
        let gate = Gate {
            engine,
            has_begun: AtomicBool::new(false),
            may_end: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        };
        let user = (&raw const gate).cast_mut().cast();
        let schedule = |delay| unsafe {
            assert_eq!(
                tb_schedule_keyed(engine, key.as_ptr(), delay, Some(pass_gate), user, null_mut()),
                TB_OK
            );
        };
        schedule(0);
        gate.await_begin();
        assert_eq!(cancel(engine, key), (TB_RUNNING, null_mut()));
        assert_eq!(unsafe { tb_reschedule_keyed(engine, key.as_ptr(), 0) }, TB_NOT_PENDING);
        // If the key is scheduled again while its callback runs, it has a pending one-shot.
        schedule(HOUR);
        assert_eq!(cancel(engine, key), (TB_CANCELLED, user));
        assert_eq!(cancel(engine, key), (TB_RUNNING, null_mut()));
        schedule(HOUR);
        thread::scope(|scope| {
            let gate = &gate;
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(5));
                gate.may_end.store(true, Ordering::Release);
            });
            assert_eq!(cancel_and_wait(gate.engine, key), TB_CANCELLED);
            assert!(gate.has_ended.load(Ordering::Acquire), "the cancel did not wait");
        });
        assert_eq!(cancel_and_wait(engine, key), TB_GONE);
        assert_eq!(cancel(engine, key), (TB_GONE, null_mut()));
        assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
    }
}

/// A one-shot, a timer or a task whose callback is running, and the call that ends it and waits.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Key,
    Id,
    Timer,
    Task,
}

unsafe extern "C" fn wait_at_gate(user: *mut c_void, _: *const tb_event) {
    let gate = unsafe { &*user.cast::<Gate>() };
    gate.has_begun.store(true, Ordering::Release);
    while !gate.may_end.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    gate.has_ended.store(true, Ordering::Release);
}

unsafe extern "C" fn shut_down_and_wait_at_gate(user: *mut c_void, event: *const tb_event) {
    let gate = unsafe { &*user.cast::<Gate>() };
    assert_eq!(unsafe { tb_engine_shutdown(gate.engine, None, null_mut()) }, TB_OK);
    unsafe { wait_at_gate(user, event) };
}

unsafe extern "C" fn shut_down(user: *mut c_void, _: *const tb_event) {
    let gate = unsafe { &*user.cast::<Gate>() };
    assert_eq!(unsafe { tb_engine_shutdown(gate.engine, None, null_mut()) }, TB_OK);
    gate.may_end.store(true, Ordering::Release);
}

fn gate(engine: *mut tb_engine) -> Gate {
    let [has_begun, may_end, has_ended] = [(); 3].map(|()| AtomicBool::new(false));
    Gate { engine, has_begun, may_end, has_ended }
}

/// Goal: a call that waits for a callback also waits after a callback has shut the engine down, for each kind of timer.
/// Method: a callback waits at a gate. It or another callback shuts the engine down, and does not wait. Then another
/// thread ends the first callback's timer, with and without a wait.
fn a_wait_outlasts_a_shutdown(kind: Kind, is_shut_down_by_itself: bool) {
    let (mut engine, mut timer, mut task) = (null_mut(), null_mut(), null_mut());
    let options = tb_options { workers: 3, ..options(tb_delivery::TB_POOL) };
    assert_eq!(unsafe { tb_engine_create(&options, &mut engine) }, TB_OK);
    let (running, ended) = (gate(engine), gate(engine));
    let user = |gate: &Gate| (&raw const *gate).cast_mut().cast();
    let callback: tb_callback =
        if is_shut_down_by_itself { Some(shut_down_and_wait_at_gate) } else { Some(wait_at_gate) };
    let (key, mut id) = (c"order 17".as_ptr(), 0);
    unsafe {
        let scheduled = match kind {
            Kind::Key => tb_schedule_keyed(engine, key, 0, callback, user(&running), null_mut()),
            Kind::Id => tb_schedule(engine, 0, callback, user(&running), &mut id),
            Kind::Timer => {
                assert_eq!(tb_timer_create(engine, callback, user(&running), &mut timer), TB_OK);
                tb_timer_arm(timer, 0)
            }
            Kind::Task => tb_every(engine, MS, callback, user(&running), &mut task),
        };
        assert_eq!(scheduled, TB_OK);
        running.await_begin();
        if !is_shut_down_by_itself {
            assert_eq!(tb_schedule(engine, 0, Some(shut_down), user(&ended), null_mut()), TB_OK);
            let begin = Instant::now();
            while !ended.may_end.load(Ordering::Acquire) {
                assert!(begin.elapsed() < PATIENCE);
                thread::yield_now();
            }
        }
        let (mut first, mut second) = (TB_GONE, TB_CANCELLED);
        let end = |and_wait: bool, outcome: &mut tb_outcome| match (kind, and_wait) {
            (Kind::Key, false) => tb_cancel_keyed(engine, key, outcome, null_mut()),
            (Kind::Key, true) => tb_cancel_keyed_and_wait(engine, key, outcome, null_mut()),
            (Kind::Id, false) => tb_cancel(engine, id, outcome),
            (Kind::Id, true) => tb_cancel_and_wait(engine, id, outcome),
            (Kind::Timer, false) => tb_timer_disarm(timer, outcome),
            (Kind::Timer, true) => tb_timer_disarm_and_wait(timer, outcome),
            (Kind::Task, false) => tb_task_stop(task, outcome),
            (Kind::Task, true) => tb_task_stop_and_wait(task, outcome),
        };
        assert_eq!(end(false, &mut first), TB_OK);
        assert_eq!(first, TB_RUNNING, "{kind:?}");
        thread::scope(|scope| {
            let running = &running;
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(20));
                running.may_end.store(true, Ordering::Release);
            });
            assert_eq!(end(true, &mut second), TB_OK);
            assert!(running.has_ended.load(Ordering::Acquire), "{kind:?}: the call did not wait");
        });
        // A task has stopped when no run of it is under way any more.
        let expected = if matches!(kind, Kind::Task) { TB_CANCELLED } else { TB_GONE };
        assert_eq!(second, expected, "{kind:?}");
        assert_eq!(tb_engine_free(engine), TB_OK);
        if !timer.is_null() {
            assert_eq!(tb_timer_free(timer), TB_OK);
        }
        if !task.is_null() {
            assert_eq!(tb_task_free(task), TB_OK);
        }
    }
}

#[test]
fn a_call_that_waits_for_a_callback_also_waits_after_a_callback_has_shut_the_engine_down() {
    for kind in [Kind::Key, Kind::Id, Kind::Timer, Kind::Task] {
        a_wait_outlasts_a_shutdown(kind, false);
        a_wait_outlasts_a_shutdown(kind, true);
    }
}

// --- Counters ---

/// The numbers of what a program has seen of its one-shots by key.
#[derive(Debug, Default)]
struct Seen {
    scheduled: u64,
    cancelled: u64,
}

unsafe extern "C" fn count_in(user: *mut c_void, _: *const tb_event) {
    unsafe { &*user.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}

/// Schedules, moves and cancels one-shots under keys that another thread also uses, until the engine refuses a call.
fn use_keys_until_the_shutdown(engine: *const tb_engine, fired: &AtomicU64, seed: u64) -> Seen {
    const KEYS: [&CStr; 3] = [c"alpha", c"beta", c"gamma"];
    let (mut seen, mut random) = (Seen::default(), seed);
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = KEYS[(random >> 33) as usize % KEYS.len()].as_ptr();
        let delay = if random >> 60 == 0 { HOUR } else { 0 };
        let (mut user, mut outcome) = (null_mut(), TB_GONE);
        let callback: tb_callback = Some(count_in);
        let status = unsafe {
            match random >> 40 & 7 {
                0 => tb_cancel_keyed(engine, key, &mut outcome, &mut user),
                1 | 2 => {
                    let status = tb_reschedule_keyed(engine, key, delay);
                    seen.scheduled += u64::from(status == TB_OK);
                    seen.cancelled += u64::from(status == TB_OK);
                    status
                }
                _ => {
                    let counter = (&raw const *fired).cast_mut().cast();
                    let status = tb_schedule_keyed(engine, key, delay, callback, counter, &mut user);
                    seen.scheduled += u64::from(status == TB_OK);
                    status
                }
            }
        };
        seen.cancelled += u64::from(!user.is_null());
        if status == TB_SHUT_DOWN {
            return seen;
        }
        assert!(matches!(status, TB_OK | TB_NOT_PENDING), "{status:?}");
    }
}

/// Goal: each counter of one-shots equals what the program has seen, also for one-shots that were replaced, moved,
/// cancelled or returned just when they were due. Method: two threads use the same keys, with deadlines that have come,
/// until a third thread shuts the engine down.
#[test]
fn the_counters_are_what_a_program_has_seen_of_its_keys() {
    for (round, delivery) in
        [tb_delivery::TB_POOL, tb_delivery::TB_INLINE].into_iter().cycle().take(60).enumerate()
    {
        let (mut engine, mut returned, fired) = (null_mut(), 0, &AtomicU64::new(0));
        let options = tb_options { tick_ns: 1_000, workers: 2, ..options(delivery) };
        assert_eq!(unsafe { tb_engine_create(&options, &mut engine) }, TB_OK);
        let address = engine.expose_provenance();
        let seen = thread::scope(|scope| {
            let users = [1, 2].map(|n| {
                let seed = 2 * round as u64 + n;
                scope
                    .spawn(move || use_keys_until_the_shutdown(with_exposed_provenance(address), fired, seed))
            });
            thread::sleep(Duration::from_millis(10));
            assert_eq!(unsafe { tb_engine_shutdown(engine, None, &mut returned) }, TB_OK);
            users.map(|user| user.join().unwrap())
        });
        let [scheduled, cancelled] =
            [seen[0].scheduled + seen[1].scheduled, seen[0].cancelled + seen[1].cancelled];
        let mut stats = no_stats();
        assert_eq!(unsafe { tb_engine_stats(engine, &mut stats) }, TB_OK);
        assert_eq!(
            (stats.scheduled, stats.cancelled, stats.fired, stats.returned, stats.pending),
            (scheduled, cancelled, fired.load(Ordering::Relaxed), returned, 0),
            "round {round}, {delivery:?}"
        );
        assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
    }
}

#[test]
fn a_full_engine_replaces_and_moves_a_key_in_place() {
    let driven = Driven::with(&tb_options { capacity: 64, ..options(tb_delivery::TB_INLINE) });
    let log = Log::default();
    let schedule = |key: &CStr, delay| unsafe {
        tb_schedule_keyed(driven.engine, key.as_ptr(), delay, Some(log_call), log.user(), null_mut())
    };
    assert_eq!(schedule(c"order 17", HOUR), TB_OK);
    let others = (0..100).map(|n| schedule(&CString::new(format!("order {}", 100 + n)).unwrap(), HOUR));
    assert_eq!(others.filter(|&status| status == TB_FULL).count(), 100 - 63);
    assert_eq!(schedule(c"order 17", 20 * MS), TB_OK);
    assert_eq!(unsafe { tb_reschedule_keyed(driven.engine, c"order 17".as_ptr(), 10 * MS) }, TB_OK);
    driven.advance(10 * MS);
    assert_eq!(log.take().iter().map(|event| event.deadline_ns).collect::<Vec<_>>(), [10 * MS]);
}

// --- Shutdown ---

const SCHEDULERS: usize = 2;
const ROUNDS: usize = 400;
/// The greatest number of tokens that a scheduling thread may use in a round. A token is a number in place of a `user`
/// pointer.
const MOST: usize = 2_000;

/// For each token (a number in place of a `user`), the number of its endings. Token 0 is `NULL`, and no thread
/// schedules it.
static ENDS: [AtomicU8; SCHEDULERS * MOST * ROUNDS + 1] =
    [const { AtomicU8::new(0) }; SCHEDULERS * MOST * ROUNDS + 1];

fn end(token: *mut c_void) {
    ENDS[token.addr()].fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn end_unfired(user: *mut c_void, _: *const tb_event) {
    end(user);
}

/// Schedules tokens (numbers in place of `user` pointers) under keys that another thread also uses, until the engine
/// refuses a call. Returns the number of tokens used.
fn schedule_until_the_shutdown(
    engine: *const tb_engine,
    tokens: Range<usize>,
    progress: &AtomicUsize,
) -> usize {
    const KEYS: [&CStr; 3] = [c"alpha", c"beta", c"gamma"];
    let first = tokens.start;
    for (token, key) in tokens.zip(KEYS.into_iter().cycle()) {
        let (user, mut replaced) = (without_provenance_mut(token), null_mut());
        let status =
            unsafe { tb_schedule_keyed(engine, key.as_ptr(), HOUR, Some(end_unfired), user, &mut replaced) };
        progress.fetch_add(1, Ordering::Relaxed);
        if status != TB_OK {
            end(user);
            return token + 1 - first;
        }
        if !replaced.is_null() {
            end(replaced);
        }
    }
    MOST
}

/// Goal: a `user` that is scheduled by key ends in exactly one way while the engine is shut down: it is replaced,
/// returned by the shutdown, or refused. Method: two threads replace each other's tokens under three keys while a third
/// thread shuts the engine down; the test counts the endings of each token.
#[test]
fn a_keyed_user_ends_once_when_schedules_race_with_the_shutdown() {
    let mut endings = [0; 3];
    for round in 0..ROUNDS {
        let (mut engine, mut count, progress) = (null_mut(), 0, &AtomicUsize::new(0));
        let options = tb_options { capacity: 8_192, ..options(tb_delivery::TB_INLINE) };
        assert_eq!(unsafe { tb_engine_create_driven(&options, &mut engine) }, TB_OK);
        let address = engine.expose_provenance();
        let first = |scheduler: usize| 1 + (round * SCHEDULERS + scheduler) * MOST;
        let used = thread::scope(|scope| {
            let schedulers = [0, 1].map(|scheduler| {
                let tokens = first(scheduler)..first(scheduler) + MOST;
                scope.spawn(move || {
                    schedule_until_the_shutdown(with_exposed_provenance(address), tokens, progress)
                })
            });
            while progress.load(Ordering::Relaxed) < 20 + round % 50 {
                std::hint::spin_loop();
            }
            assert_eq!(unsafe { tb_engine_shutdown(engine, Some(end_unfired), &mut count) }, TB_OK);
            schedulers.map(|scheduler| scheduler.join().unwrap())
        });
        assert_eq!(unsafe { tb_engine_free(engine) }, TB_OK);
        for token in
            [0, 1].into_iter().flat_map(|scheduler| first(scheduler)..first(scheduler) + used[scheduler])
        {
            endings[usize::from(ENDS[token].load(Ordering::Relaxed).min(2))] += 1;
        }
    }
    let [lost, once, twice] = endings;
    assert!(once > 10 * ROUNDS && (lost, twice) == (0, 0), "{lost} lost, {once} ended once, {twice} twice");
}
