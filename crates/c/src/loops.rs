//! Loops of a program that run an engine's shards.
//!
//! C has no types that keep two threads from running the same loop. So a loop belongs to the thread that created it.
//! Each call compares the number of the calling thread with the owner's, which costs a load from thread-local storage.
//! A lock would cost more. It would also hide a mistake of the program: the timers of the second thread would go to the
//! loop of the first thread.
//!
//! # Invariants
//! O1. Only the thread whose number is `owner` touches `shard`; the call that frees the loop does so when no other call
//!     uses the loop, by the contract. No two threads of a process get one number.
//! O2. `shard` is borrowed for the length of a turn: calls from its callbacks for the same loop are refused.

use crate::delivery::id_of;
use crate::engine::tb_engine;
use crate::event::tb_callback;
use crate::handles::{self, Handle};
use crate::notifier::Notifier;
use crate::origin::Origin;
use crate::shot::{self, Place};
use crate::status::{Failure, guard, tb_status};
use crate::timer::tb_timer;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tourbillon::{LoopLeft, LoopShard, Shards, Timestamp};

/// The function that ends the poll in which an event loop waits: see `tb_loop_wake_by`.
pub type tb_wake = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// An event loop of the program. The loop runs one shard of its engine, by calls of `tb_loop_turn`.
pub struct tb_loop {
    /// The number of the thread that created the loop, and that may use the loop's shard.
    owner: NonZeroU64,
    shard: RefCell<LoopShard>,
    notifier: Arc<Notifier>,
    origin: Origin,
}

// SAFETY: O1: the other fields are `Sync`, and `lend` gives the shard to the owner's thread alone.
unsafe impl Sync for tb_loop {}

impl Handle for tb_loop {
    const NAME: &'static str = "tb_loop";

    fn origin(&self) -> Origin {
        self.origin
    }
}

/// Returns the number of the calling thread. No other thread has the same number.
fn here() -> NonZeroU64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static HERE: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
    }
    #[cold]
    fn number() -> NonZeroU64 {
        // Ordering: Relaxed. The numbers only have to differ.
        let number = NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU64::MAX);
        HERE.set(Some(number));
        number
    }
    HERE.get().unwrap_or_else(number)
}

impl tb_loop {
    fn new(engine: &tb_engine, index: u32) -> Result<Self, Failure> {
        let (shards, _) = engine.loops()?;
        let index = index_of(shards, index)?;
        let refused = |error| Failure::new(tb_status::TB_SYSTEM, format!("no eventfd: {error}"));
        let notifier = Arc::new(Notifier::new().map_err(refused)?);
        let taken = || Failure::new(tb_status::TB_BUSY, format!("loop {index} was created and not freed"));
        let mut shard = shards.take_loop(index).ok_or_else(taken)?;
        let signal = Arc::clone(&notifier);
        shard.wake_by(move || signal.signal());
        // The loop comes to this thread now, and not with its first turn: the thread's next timer goes to it.
        let _at_once = shard.next_deadline();
        Ok(Self { owner: here(), shard: RefCell::new(shard), notifier, origin: engine.origin() })
    }

    /// Calls `f` with the loop's shard. Fails if the calling thread has not created the loop. Also fails while
    /// `tb_loop_turn` runs for this loop, because a turn borrows the shard: a callback cannot use its own loop.
    #[inline]
    fn lend<R>(&self, f: impl FnOnce(&mut LoopShard) -> R) -> Result<R, Failure> {
        if self.owner != here() {
            let message = "the loop belongs to the thread that created it";
            return Err(Failure::new(tb_status::TB_WRONG_THREAD, message));
        }
        match self.shard.try_borrow_mut() {
            Ok(mut shard) => Ok(f(&mut shard)),
            Err(_) => Err(Failure::new(tb_status::TB_BUSY, "the loop is being turned")),
        }
    }
}

impl fmt::Debug for tb_loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tb_loop")
    }
}

/// Converts the number of a loop, as the C program gives it, into the index of the loop's shard. Fails if the engine
/// has no loop with this number.
fn index_of(shards: &Shards, index: u32) -> Result<usize, Failure> {
    let (index, count) = (index as usize, shards.count());
    if index >= count {
        let message = format!("loop {index} is not one of the {count} of options.loops");
        return Err(Failure::new(tb_status::TB_INVALID, message));
    }
    Ok(index)
}

/// Creates one of the loops of an engine. `options.loops` of the engine is the number of its loops, and `index` is the
/// number of this loop, counted from 0. The loop belongs to the calling thread: only this thread may call
/// `tb_loop_turn` for it, and timers that this thread schedules or arms go to the loop's shard. If a thread has several
/// loops of one engine, its timers go to the loop with the lowest index; when that loop is freed, they go to the next.
/// If another thread frees it, this begins with the next turn of a loop on the owner's thread. Fails with `TB_BUSY` if
/// a loop with this index was created and not freed. Timers may be pending at the shard already: they were scheduled
/// before the shard's first loop, or for a loop that was freed. These timers fire when this loop turns.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_create(
    engine: *const tb_engine,
    index: u32,
    event_loop: *mut *mut tb_loop,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(event_loop, "event_loop") }?;
        place.write(handles::give(tb_loop::new(engine, index)?));
        Ok(())
    })
}

/// Gets a descriptor that becomes readable when another thread arms a timer for an earlier moment than
/// `tb_loop_next_deadline` gave. The loop must then call `tb_loop_turn`. The descriptor belongs to the loop: do not
/// read, write or close it. `tb_loop_turn` makes it unreadable. Linux only: elsewhere `TB_UNSUPPORTED`; see
/// `tb_loop_wake_by`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_fd(event_loop: *const tb_loop, fd: *mut c_int) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let event_loop = unsafe { handles::lend(event_loop) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(fd, "fd") }?;
        let none = || Failure::new(tb_status::TB_UNSUPPORTED, "this system has no eventfd");
        place.write(event_loop.notifier.descriptor().ok_or_else(none)?);
        Ok(())
    })
}

/// A function that wakes a loop, and the `user` pointer that the function gets.
struct Waker {
    wake: unsafe extern "C" fn(user: *mut c_void),
    user: *mut c_void,
}

// SAFETY: the contract: the function and its `user` may be used on any thread.
unsafe impl Send for Waker {}
// SAFETY: as above.
unsafe impl Sync for Waker {}

impl Waker {
    fn wake(&self) {
        // SAFETY: the contract: a function of this type, and its `user`.
        unsafe { (self.wake)(self.user) };
    }
}

/// Sets a function that wakes the loop in place of the descriptor of `tb_loop_fd`. It is for event libraries that have
/// a wake-up call of their own, such as `uv_async_send`. If a thread arms a timer for an earlier moment than
/// `tb_loop_next_deadline` gave, this thread calls the function, once for each such moment. The function must make the
/// present or the next poll of the loop return at once, must not block, and must not use this loop. If the poll does
/// not return, the timer is not lost: it fires in the first turn of the loop after its deadline. Threads may call the
/// function until `tb_loop_free` has returned. There is one exception: a thread that is arming a timer while the loop
/// is freed may call the function shortly after `tb_loop_free` has returned.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_wake_by(
    event_loop: *const tb_loop,
    wake: tb_wake,
    user: *mut c_void,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let event_loop = unsafe { handles::lend(event_loop) }?;
        let waker = Waker { wake: wake.ok_or_else(|| Failure::null("wake"))?, user };
        event_loop.lend(|shard| shard.wake_by(move || waker.wake()))
    })
}

/// Gets the latest moment, on the engine's clock, at which the program must call `tb_loop_turn`. The moment is in the
/// past if the loop must turn at once, and `UINT64_MAX` if nothing is pending. It may be the deadline of a timer that
/// was cancelled or disarmed: a program that ends when nothing is pending counts its timers itself. Call
/// `tb_loop_next_deadline` or `tb_loop_timeout` before each poll, after the last call that arms a timer.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_next_deadline(
    event_loop: *const tb_loop,
    deadline_ns: *mut u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let event_loop = unsafe { handles::lend(event_loop) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(deadline_ns, "deadline_ns") }?;
        let next = event_loop.lend(|shard| shard.next_deadline())?;
        place.write(next.map_or(u64::MAX, Timestamp::as_nanos));
        Ok(())
    })
}

/// As `tb_loop_next_deadline`, but gives a timeout for `poll` or `epoll_wait` that counts from `now_ns`: in
/// milliseconds, rounded up, and -1 if nothing is pending. `epoll_pwait2` takes finer timeouts. If slow callbacks have
/// run since `now_ns` was read, read the clock again. Otherwise the poll ends too late, because the timeout then
/// includes the time that the callbacks took.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_timeout(
    event_loop: *const tb_loop,
    now_ns: u64,
    timeout_ms: *mut c_int,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let event_loop = unsafe { handles::lend(event_loop) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(timeout_ms, "timeout_ms") }?;
        let next = event_loop.lend(|shard| shard.next_deadline())?;
        place.write(next.map_or(-1, |next| {
            let rest = next.as_nanos().saturating_sub(now_ns).div_ceil(1_000_000);
            c_int::try_from(rest).unwrap_or(c_int::MAX)
        }));
        Ok(())
    })
}

/// Fires the timers that are due at `now_ns`: calls their callbacks on this thread. One such call is a turn of the
/// loop. A turn fires or moves at most `budget` timers, or a few dozen more; a budget of 0 counts as 1. One-shots by
/// key and periodic tasks are counted separately, with a budget of the same size. `more` gets 1 if work is left, and 0
/// otherwise. `more` may be NULL, since `tb_loop_next_deadline` gives a moment in the past while work is left. A turn
/// at which nothing is due takes no lock.
///
/// A one-shot is due by `now_ns` alone. A timer is due only if the engine's clock has also reached its deadline.
/// `now_ns` may be less than in an earlier turn. Then no timer becomes due in this turn, nor in the next turns, until
/// `now_ns` has reached its value from the earlier turn again. A callback may use the engine, but must not use this
/// loop (`TB_BUSY`).
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_turn(
    event_loop: *const tb_loop,
    now_ns: u64,
    budget: usize,
    more: *mut c_int,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let event_loop = unsafe { handles::lend(event_loop) }?;
        let left = event_loop.lend(|shard| {
            // This must come before the shard checks for work: see `Notifier::acknowledge`.
            event_loop.notifier.acknowledge();
            shard.turn(Timestamp::from_nanos(now_ns), budget)
        })?;
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(more, c_int::from(left == LoopLeft::More)) };
        Ok(())
    })
}

/// Frees a loop. Any thread may free it while no other thread uses the loop. A callback that runs in a turn of this
/// loop cannot free it: `tb_loop_free` then fails with `TB_BUSY`. The timers of the loop's shard stay pending until
/// they are cancelled, or the shutdown returns them, or a new loop with the same index fires them. To move a loop to
/// another thread, free it, and call `tb_loop_create` on the other thread. A loop may also be freed after
/// `tb_engine_free`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_loop_free(event_loop: *mut tb_loop) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        match unsafe { handles::lend(event_loop) } {
            Ok(event_loop) if event_loop.owner == here() => event_loop.lend(|_| ())?,
            Ok(_) => {}
            Err(failure) if failure.status == tb_status::TB_FORKED => {}
            Err(failure) => return Err(failure),
        }
        // SAFETY: the contract.
        unsafe { handles::take(event_loop) }.map(drop)
    })
}

/// As `tb_schedule_at`, but on the shard of loop `index`, whose thread calls the callback. Any thread may schedule in
/// this way for another thread's loop.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_schedule_on(
    engine: *const tb_engine,
    index: u32,
    deadline_ns: u64,
    callback: tb_callback,
    user: *mut c_void,
    id: *mut u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        let place = Place::Loop(index_of(engine.loops()?.0, index)?);
        let id_of_shot = shot::place(engine, place, Timestamp::from_nanos(deadline_ns), (callback, user))?;
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(id, id_of_shot) };
        Ok(())
    })
}

/// Moves a pending one-shot to the shard of loop `index` and to another deadline: see `tb_reschedule`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_reschedule_on(
    engine: *const tb_engine,
    index: u32,
    id: u64,
    deadline_ns: u64,
    new_id: *mut u64,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let new_id = unsafe { handles::place(new_id, "new_id") }?;
        let (shards, direct) = engine.loops()?;
        let (index, timer) = (index_of(shards, index)?, shot::timer_to_move(id)?);
        let moved = direct.handle().on(index).reschedule_at(timer, Timestamp::from_nanos(deadline_ns));
        new_id.write(id_of(moved.map_err(Failure::from)?));
        Ok(())
    })
}

/// As `tb_timer_arm_at`, but also moves the timer to the shard of loop `index`, whose thread calls the callback from
/// then on. Use it when a connection moves to another loop. In two cases the timer is armed, but stays at its present
/// shard: the timer's callback is running, or the shard's thread is checking at this moment whether the timer is due.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_arm_on(timer: *const tb_timer, index: u32, deadline_ns: u64) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        unsafe { handles::lend(timer) }?.arm_on(index, Timestamp::from_nanos(deadline_ns))
    })
}
