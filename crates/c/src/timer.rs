//! Timers that are used through handles.

use crate::annotate;
use crate::engine::{no_loops, tb_engine};
use crate::event::{Target, tb_callback};
use crate::handles::{self, Handle};
use crate::origin::Origin;
use crate::outcome::tb_outcome;
use crate::status::{Failure, guard, tb_status};
use std::ffi::c_void;
use std::fmt;
use std::time::Duration;
use tourbillon::{Timer, Timestamp};
use tourbillon_tasks::{Moment, TaskTimer};

/// A timer that its handle owns, and that can be armed and disarmed any number of times. For example, a connection has
/// one timer, and arms it again with each message.
pub struct tb_timer {
    kind: Kind,
    origin: Origin,
}

enum Kind {
    /// A timer whose payload is its target. It needs no closure: its engine calls the target's callback, or makes the
    /// event.
    Direct(Timer<Target>),
    /// A timer whose closure calls the callback of its target (the callback and its `user`). An engine whose own
    /// threads call the callbacks has such timers. The second field is a copy of the target.
    Closure(TaskTimer, Target),
}

impl Handle for tb_timer {
    const NAME: &'static str = "tb_timer";

    fn origin(&self) -> Origin {
        self.origin
    }
}

impl tb_timer {
    fn new(engine: &tb_engine, target: Target) -> Result<Self, Failure> {
        let kind = match engine.direct() {
            Some(direct) => Kind::Direct(direct.timer(target)?),
            None => {
                let call = move |moment: &Moment<'_>| {
                    target.call(&target.event(0, moment.deadline, moment.lateness(), 1));
                };
                Kind::Closure(engine.tasks().timer_with(call)?, target)
            }
        };
        Ok(Self { kind, origin: engine.origin() })
    }

    fn target(&self) -> &Target {
        match &self.kind {
            Kind::Direct(timer) => timer.payload(),
            Kind::Closure(_, target) => target,
        }
    }

    fn arm(&self, delay: Duration) -> Result<(), Failure> {
        match &self.kind {
            Kind::Direct(timer) => timer.arm(delay).map(drop).map_err(Failure::from),
            Kind::Closure(timer, _) => timer.arm(delay).map(drop).map_err(Failure::from),
        }
    }

    #[inline]
    fn arm_at(&self, deadline: Timestamp) -> Result<(), Failure> {
        match &self.kind {
            Kind::Direct(timer) => timer.arm_at(deadline).map(drop).map_err(Failure::from),
            Kind::Closure(timer, _) => timer.arm_at(deadline).map(drop).map_err(Failure::from),
        }
    }

    /// Arms the timer on the shard that the loop `index` runs. Fails for an engine without loops.
    pub(crate) fn arm_on(&self, index: u32, deadline: Timestamp) -> Result<(), Failure> {
        let (Kind::Direct(timer), true) = (&self.kind, self.origin.has_loops) else {
            return Err(no_loops());
        };
        let (engine, index) = (timer.engine(), index as usize);
        if index >= engine.shards() {
            let message = format!("loop {index} is not one of the {} of options.loops", engine.shards());
            return Err(Failure::new(tb_status::TB_INVALID, message));
        }
        engine.on(index).arm_at(timer, deadline).map(drop).map_err(Failure::from)
    }

    #[inline]
    fn disarm(&self, and_wait: bool) -> tb_outcome {
        let means = self.origin.means;
        let and_wait = and_wait && means.has_callbacks();
        let outcome = match &self.kind {
            Kind::Direct(timer) if and_wait => timer.disarm_and_wait(),
            Kind::Direct(timer) => timer.disarm(),
            Kind::Closure(timer, _) if and_wait => timer.disarm_and_wait(),
            Kind::Closure(timer, _) => timer.disarm(),
        };
        means.outcome(outcome)
    }
}

impl fmt::Debug for tb_timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Direct(_) => "tb_timer",
            Kind::Closure(..) => "tb_timer, a closure",
        })
    }
}

/// Creates a timer, which is not armed. `tb_timer_free` frees it, before or after the engine.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_create(
    engine: *const tb_engine,
    callback: tb_callback,
    user: *mut c_void,
    timer: *mut *mut tb_timer,
) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let engine = unsafe { handles::lend(engine) }?;
        // SAFETY: the contract.
        let place = unsafe { handles::place(timer, "timer") }?;
        let target = engine.delivery().target(callback, user)?;
        place.write(handles::give(tb_timer::new(engine, target)?));
        Ok(())
    })
}

/// Gets the `user` that was given to `tb_timer_create`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_user(timer: *const tb_timer, user: *mut *mut c_void) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let timer = unsafe { handles::lend(timer) }?;
        // SAFETY: the contract.
        unsafe { handles::place(user, "user") }?.write(timer.target().user);
        Ok(())
    })
}

/// Arms a timer, which is then due no earlier than `delay_ns` from now. If the timer was armed already, the new
/// deadline replaces the old deadline, even if the old deadline has passed and its event was not polled. If a callback
/// for an earlier deadline has begun, the timer fires again for the new deadline, but not before that callback has
/// returned. Fails after a shutdown.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_arm(timer: *const tb_timer, delay_ns: u64) -> tb_status {
    // SAFETY: the contract.
    guard(|| unsafe { handles::lend(timer) }?.arm(Duration::from_nanos(delay_ns)))
}

/// As `tb_timer_arm`, but `deadline_ns` is a time on the engine's clock instead of a delay. The function does not read
/// the clock. So it is the cheaper choice for an event loop that has read the time with `tb_now`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_arm_at(timer: *const tb_timer, deadline_ns: u64) -> tb_status {
    // SAFETY: the contract.
    guard(|| unsafe { handles::lend(timer) }?.arm_at(Timestamp::from_nanos(deadline_ns)))
}

/// Disarms a timer. The timer may be armed again. `outcome` may be NULL.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_disarm(timer: *const tb_timer, outcome: *mut tb_outcome) -> tb_status {
    // SAFETY: the contract.
    unsafe { disarm(timer, outcome, false) }
}

/// As `tb_timer_disarm`, but waits until a callback that has begun has returned. In a callback of this engine, in a
/// turn of a loop and in the child of a fork it does not wait, and may return `TB_RUNNING`. Elsewhere it never returns
/// `TB_RUNNING`.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_disarm_and_wait(
    timer: *const tb_timer,
    outcome: *mut tb_outcome,
) -> tb_status {
    // SAFETY: the contract.
    unsafe { disarm(timer, outcome, true) }
}

/// Disarms a timer. If `and_wait` is true, waits for a running callback as [`tb_timer_disarm_and_wait`] does.
///
/// # Safety
///
/// The [contract](crate#contract).
unsafe fn disarm(timer: *const tb_timer, outcome: *mut tb_outcome, and_wait: bool) -> tb_status {
    guard(|| {
        // SAFETY: the contract.
        let disarmed = unsafe { handles::lend(timer) }?.disarm(and_wait);
        if and_wait {
            annotate::waited_for_callbacks();
        }
        // SAFETY: the contract.
        unsafe { handles::put_if_wanted(outcome, disarmed) };
        Ok(())
    })
}

/// Disarms a timer and frees it. The timer's own callback may call this function. The function does not wait for a
/// callback that runs on another thread. So call `tb_timer_disarm_and_wait` before you free the memory behind `user`.
/// The event of a freed timer is not polled any more.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_free(timer: *mut tb_timer) -> tb_status {
    // SAFETY: the contract.
    guard(|| unsafe { handles::take(timer) }.map(drop))
}
