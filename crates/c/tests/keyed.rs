//! Tests one-shots that are named by keys.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
mod support;

use std::ffi::{CStr, CString, c_void};
use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance, without_provenance_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
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
