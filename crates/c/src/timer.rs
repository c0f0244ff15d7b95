//! Timers that a handle owns.

use crate::annotate;
use crate::delivery::Delivery;
use crate::engine::{no_loops, tb_engine, tb_outcome};
use crate::event::{Target, tb_callback, tb_event};
use crate::events::{Events, Source};
use crate::handles::{self, Handle};
use crate::status::{Failure, guard, tb_status};
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tourbillon::{Disarm, Timer, Timestamp};
use tourbillon_tasks::{Moment, TaskTimer, Tasks};

/// A timer that its handle owns, armed and disarmed any number of times: for example one for each connection, armed
/// anew with each message.
pub struct tb_timer {
    kind: Kind,
    user: *mut c_void,
}

// SAFETY: the contract: `user` may be used on any thread.
unsafe impl Send for tb_timer {}
// SAFETY: as above.
unsafe impl Sync for tb_timer {}

enum Kind {
    /// Of an engine with loops.
    Direct(Timer<Target>),
    Called(TaskTimer),
    Polled(Arc<Polled>),
}

impl Handle for tb_timer {
    const NAME: &'static str = "tb_timer";
}

impl tb_timer {
    fn new(engine: &tb_engine, target: Target) -> Result<Self, Failure> {
        let tasks = engine.tasks();
        if let Some(direct) = engine.direct() {
            return Ok(Self { kind: Kind::Direct(direct.timer(target)?), user: target.user });
        }
        let kind = match engine.delivery() {
            Delivery::Call => Kind::Called(tasks.timer_with(move |moment| {
                target.call(&target.event(0, moment.deadline, moment.lateness, 1));
            })?),
            Delivery::Queue(events) => Kind::Polled(Polled::new(tasks, Arc::clone(events), target)?),
        };
        Ok(Self { kind, user: target.user })
    }

    fn arm(&self, delay: Duration) -> Result<(), Failure> {
        match &self.kind {
            Kind::Direct(timer) => timer.arm(delay).map(drop).map_err(Failure::from),
            Kind::Called(timer) => timer.arm(delay).map(drop).map_err(Failure::from),
            Kind::Polled(polled) => polled.arm_at(polled.tasks.now() + delay),
        }
    }

    #[inline]
    fn arm_at(&self, deadline: Timestamp) -> Result<(), Failure> {
        match &self.kind {
            Kind::Direct(timer) => timer.arm_at(deadline).map(drop).map_err(Failure::from),
            Kind::Called(timer) => timer.arm_at(deadline).map(drop).map_err(Failure::from),
            Kind::Polled(polled) => polled.arm_at(deadline),
        }
    }

    /// Arms the timer on the shard of loop `index`.
    pub(crate) fn arm_on(&self, index: u32, deadline: Timestamp) -> Result<(), Failure> {
        let Kind::Direct(timer) = &self.kind else { return Err(no_loops()) };
        let (engine, index) = (timer.engine(), index as usize);
        if index >= engine.shards() {
            let message = format!("loop {index} is not one of the {} of options.loops", engine.shards());
            return Err(Failure::new(tb_status::TB_INVALID, message));
        }
        engine.on(index).arm_at(timer, deadline).map(drop).map_err(Failure::from)
    }

    #[inline]
    fn disarm(&self, and_wait: bool) -> tb_outcome {
        match &self.kind {
            Kind::Direct(timer) if and_wait => timer.disarm_and_wait().into(),
            Kind::Direct(timer) => timer.disarm().into(),
            Kind::Called(timer) if and_wait => timer.disarm_and_wait().into(),
            Kind::Called(timer) => timer.disarm().into(),
            Kind::Polled(polled) => polled.disarm(),
        }
    }
}

impl Drop for tb_timer {
    fn drop(&mut self) {
        if let Kind::Polled(polled) = &self.kind {
            polled.end();
        }
    }
}

impl From<Disarm> for tb_outcome {
    fn from(outcome: Disarm) -> Self {
        match outcome {
            Disarm::Disarmed => Self::TB_CANCELLED,
            Disarm::Idle => Self::TB_GONE,
            // `Running`, and every outcome that a later engine may add: a caller that frees nothing is safe with each.
            _ => Self::TB_RUNNING,
        }
    }
}

/// The word of a timer that is neither armed nor due.
const IDLE: u64 = u64::MAX;
/// The bit in the word for a deadline that has come and was not polled.
const DUE: u64 = 1 << 63;
/// The latest deadline: 292 years after the clock's origin.
const LATEST: u64 = DUE - 2;

/// A timer whose events are polled: see [`crate::events`].
struct Polled {
    /// `IDLE`, a deadline, or `DUE` and a deadline.
    word: AtomicU64,
    queued: AtomicBool,
    /// The engine's timer, until this timer is freed. Its handler refers back to this value.
    timer: Mutex<Option<TaskTimer>>,
    tasks: Tasks,
    events: Arc<Events>,
    target: Target,
}

impl Polled {
    fn new(tasks: &Tasks, events: Arc<Events>, target: Target) -> Result<Arc<Self>, Failure> {
        let polled = Arc::new(Self {
            word: AtomicU64::new(IDLE),
            queued: AtomicBool::new(false),
            timer: Mutex::new(None),
            tasks: tasks.clone(),
            events,
            target,
        });
        let fired = Arc::clone(&polled);
        *polled.lock() = Some(tasks.timer_with(move |moment| Self::fire(&fired, moment))?);
        Ok(polled)
    }

    fn lock(&self) -> MutexGuard<'_, Option<TaskTimer>> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm_at(&self, deadline: Timestamp) -> Result<(), Failure> {
        let timer = self.lock();
        let deadline = deadline.as_nanos().min(LATEST);
        // Ordering: Release [P2]. The engine's store of the deadline follows.
        self.word.store(deadline, Ordering::Release);
        let armed = timer.as_ref().map(|timer| timer.arm_at(Timestamp::from_nanos(deadline)));
        if let Some(Err(error)) = armed {
            self.word.store(IDLE, Ordering::Release);
            return Err(error.into());
        }
        Ok(())
    }

    fn disarm(&self) -> tb_outcome {
        let timer = self.lock();
        // Ordering: AcqRel. One CAS or swap takes an event out of the word (P1).
        let was = self.word.swap(IDLE, Ordering::AcqRel);
        if let Some(timer) = &*timer {
            timer.disarm();
        }
        if was == IDLE { tb_outcome::TB_GONE } else { tb_outcome::TB_CANCELLED }
    }

    fn end(&self) {
        let timer = {
            let mut timer = self.lock();
            self.word.store(IDLE, Ordering::Release);
            timer.take()
        };
        drop(timer);
    }

    /// The handler of the engine's timer. The timer is due for the deadline in the word, or for an earlier one.
    fn fire(polled: &Arc<Self>, moment: &Moment) {
        let now = moment.deadline + moment.lateness;
        // Ordering: Acquire [P2]. The engine has read the deadline.
        fence(Ordering::Acquire);
        let has_come = |word: u64| (word <= now.as_nanos()).then_some(word | DUE);
        // Ordering: AcqRel. The update publishes nothing but the word, and reads the latest one.
        let fired = polled.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, has_come);
        if fired.is_ok() {
            let source: Arc<dyn Source> = Arc::clone(polled) as _;
            polled.events.queue_check(source);
        }
    }
}

impl Source for Polled {
    fn queued(&self) -> &AtomicBool {
        &self.queued
    }

    fn claim(&self) -> Option<tb_event> {
        let is_due = |word: u64| (word != IDLE && word & DUE != 0).then_some(IDLE);
        // Ordering: AcqRel (P1). The word was written before its check was queued (P3).
        let word = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_due).ok()?;
        Some(self.target.event(0, Timestamp::from_nanos(word & !DUE), Duration::ZERO, 1))
    }
}

impl fmt::Debug for tb_timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Direct(_) => "tb_timer, of loops",
            Kind::Called(_) => "tb_timer, called",
            Kind::Polled(_) => "tb_timer, polled",
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
        unsafe { handles::place(user, "user") }?.write(timer.user);
        Ok(())
    })
}

/// Arms a timer: it is due `delay_ns` from now or later, and never earlier. A timer that is armed gets the new deadline
/// in place of the old one. If a timer is due and was not polled, its event is withdrawn. A callback for an earlier
/// deadline may have begun; the timer is then due again once that callback has returned. Fails after a shutdown.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_arm(timer: *const tb_timer, delay_ns: u64) -> tb_status {
    // SAFETY: the contract.
    guard(|| unsafe { handles::lend(timer) }?.arm(Duration::from_nanos(delay_ns)))
}

/// As `tb_timer_arm`, for a moment on the engine's clock. The call does not read the clock: it is for loops that have
/// the time from `tb_now`.
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

/// As `tb_timer_disarm`, but waits until a callback that has begun has returned. It never returns `TB_RUNNING`, except
/// in a callback of this engine: there it does not wait, since the callback would wait for itself.
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

/// Disarms a timer and frees it. The timer's own callback may call it. A callback that runs on another thread is not
/// waited for: before you free the memory behind `user`, call `tb_timer_disarm_and_wait`. No event of the timer is
/// polled afterwards.
///
/// # Safety
///
/// The [contract](crate#contract).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_timer_free(timer: *mut tb_timer) -> tb_status {
    // SAFETY: the contract.
    guard(|| unsafe { handles::take(timer) }.map(drop))
}
