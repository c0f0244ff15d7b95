//! kestrel-timer's `TimerWheel` on tokio's default runtime. Each timer has a callback. Its handle cancels or postpones
//! it.
//!
//! The crate's wheels are behind one mutex. A task with tokio's `interval` turns them, and each due timer gets a task.
//! The default tick is 10 ms, and 5 ms in the "high precision" example. Here the tick is 1 ms as for the others, with
//! slots for 8 s, while the default has slots for 5 s. A timer further ahead waits in the upper level, whose slots have
//! a second by default. It may fire up to a second late. A schedule takes the mutex twice.
//!
//! The caller's thread does not belong to the runtime.

use super::handlers::Handlers;
use super::{Caller, Clock, Connections, Contestant, OnFire, OneShots, Owned, Reads};
use crate::common::{Payload, payload};
use kestrel_timer::config::{BatchConfig, WheelConfig};
use kestrel_timer::{CallbackWrapper, TimerHandleWithCompletion, TimerTask, TimerWheel};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

pub(crate) struct KestrelTimer {
    caller: Registrar,
    /// The runtime that runs the wheel's task and the callbacks.
    _runtime: Runtime,
}

const TICK: Duration = Duration::from_millis(1);
const SLOTS: usize = 8_192;

impl Contestant for KestrelTimer {
    const NAME: &'static str = "kestrel-timer";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        let runtime = Builder::new_multi_thread().enable_time().build();
        let runtime = runtime.expect("the system gives us threads");
        let config = WheelConfig::builder().l0_tick_duration(TICK).l0_slot_count(SLOTS).build();
        let wheel = {
            let _inside = runtime.enter();
            config.and_then(|config| TimerWheel::new(config, BatchConfig::default()))
        };
        let wheel = Arc::new(wheel.expect("what it asks for"));
        Self { caller: Registrar { wheel, handlers: Handlers::new(on_fire) }, _runtime: runtime }
    }
}

impl OneShots for KestrelTimer {
    type Caller = Registrar;

    fn caller(&self) -> Registrar {
        self.caller.clone()
    }

    /// Returns the number of pending timers. Waits while the number falls, because a fired timer is dropped a little
    /// later.
    fn pending(&self) -> Option<usize> {
        const A_WHILE: Duration = Duration::from_millis(20);
        let mut pending = self.caller.handlers.timers();
        while pending > 0 {
            thread::sleep(A_WHILE);
            let now = self.caller.handlers.timers();
            if now == pending {
                break;
            }
            pending = now;
        }
        Some(pending)
    }
}

#[derive(Clone)]
pub(crate) struct Registrar {
    wheel: Arc<TimerWheel>,
    handlers: Handlers,
}

impl Caller for Registrar {
    type Id = TimerHandleWithCompletion;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> TimerHandleWithCompletion {
        let on_fire = self.handlers.of_timer();
        let callback = CallbackWrapper::new(move || {
            let on_fire = Arc::clone(&on_fire);
            async move { on_fire(payload) }
        });
        let handle = self.wheel.allocate_handle();
        let registered = self.wheel.register(handle, TimerTask::new_oneshot(delay, Some(callback)));
        registered.expect("nobody shuts it down")
    }

    #[inline]
    fn cancel(&mut self, timer: TimerHandleWithCompletion) -> bool {
        timer.cancel().expect("its own wheel")
    }
}

impl Owned for KestrelTimer {
    type Connections = Handles;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> Handles {
        Handles { caller: self.caller.clone(), timers: (0..count).map(|_| None).collect() }
    }

    fn pending(&self, _all: &mut [Handles]) -> usize {
        self.caller.handlers.timers()
    }
}

pub(crate) struct Handles {
    caller: Registrar,
    timers: Vec<Option<TimerHandleWithCompletion>>,
}

impl Connections for Handles {
    const BYTES_OF_HANDLE: usize = size_of::<Option<TimerHandleWithCompletion>>();

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        let timer = &mut self.timers[at as usize];
        let was_pending =
            timer.as_ref().is_some_and(|timer| timer.postpone(delay, None).expect("its own wheel"));
        if !was_pending {
            *timer = Some(self.caller.schedule(delay, payload(u64::from(at))));
        }
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        let timer = self.timers[at as usize].take().expect("it was armed");
        assert!(self.caller.cancel(timer), "armed just now, and not pending");
    }
}
