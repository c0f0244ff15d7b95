//! One-shots by key.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]
mod support;

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance, without_provenance_mut};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use support::*;
use tb_status::*;
use tourbillon_c::*;

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

// --- Shutdown ---

const SCHEDULERS: usize = 2;
const ROUNDS: usize = 400;
/// As many tokens as a scheduler may use in a round.
const MOST: usize = 2_000;

/// How often each token has ended. Token 0 is nobody's: it is `NULL`.
static ENDS: [AtomicU8; SCHEDULERS * MOST * ROUNDS + 1] =
    [const { AtomicU8::new(0) }; SCHEDULERS * MOST * ROUNDS + 1];

fn end(token: *mut c_void) {
    ENDS[token.addr()].fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn end_unfired(user: *mut c_void, _: *const tb_event) {
    end(user);
}

/// Schedules tokens under keys that the other scheduler uses too, until the engine refuses one. How many it used.
fn schedule_until_the_shutdown(engine: *const tb_engine, tokens: Range<usize>, progress: &AtomicUsize) -> usize {
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

/// Goal: a `user` that is scheduled by key ends in exactly one way while the engine is shut down: it is replaced, given back by
/// the shutdown, or refused. Method: two threads replace each other's tokens under three keys while a third shuts the engine
/// down; each token's endings are counted.
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
        for token in [0, 1].into_iter().flat_map(|scheduler| first(scheduler)..first(scheduler) + used[scheduler]) {
            endings[usize::from(ENDS[token].load(Ordering::Relaxed).min(2))] += 1;
        }
    }
    let [lost, once, twice] = endings;
    assert!(once > 10 * ROUNDS && (lost, twice) == (0, 0), "{lost} lost, {once} ended once, {twice} twice");
}
