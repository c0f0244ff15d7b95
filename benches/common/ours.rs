//! This crate's contestants.

use super::{Caller, Payload, Service, Timers};
use std::time::Duration;
use tourbillon::wheel::{Progress, Wheel};
use tourbillon::{Builder, Engine, Handle, Tick, TimerId, Timestamp};

pub(crate) type Wheel256 = Wheel<Payload, 8>;
pub(crate) type Wheel64 = Wheel<Payload, 6>;

impl<const BITS: u32> Timers for Wheel<Payload, BITS> {
    const NAME: &'static str = if BITS == 8 { "wheel, radix 256" } else { "wheel, radix 64" };
    type Id = TimerId;

    fn new() -> Self {
        Self::new(Tick(0))
    }

    #[inline]
    fn schedule(&mut self, tick: u64, payload: Payload) -> TimerId {
        self.insert(Tick(tick), payload)
    }

    #[inline]
    fn cancel(&mut self, id: TimerId) -> Option<Payload> {
        self.cancel(id)
    }

    fn expire(&mut self, to: u64, mut fire: impl FnMut(Payload)) {
        let progress = self.advance(Tick(to), usize::MAX, |_, timer| fire(timer.payload));
        assert_eq!(progress, Progress::Settled);
    }

    fn len(&self) -> usize {
        self.len()
    }
}

fn engine(on_fire: impl Fn(Payload) + Send + Sync + 'static) -> Engine<Payload> {
    Builder::new().start(move |timer| on_fire(timer.payload)).expect("the system gives us threads")
}

/// Declares contestants of the benchmark. Each contestant calls the engine in its own way.
macro_rules! way_in {
    ($(#[$doc:meta])* $service:ident, $name:literal, $caller:ty, $make:expr) => {
        $(#[$doc])*
        pub(crate) struct $service(Engine<Payload>);

        impl Service for $service {
            const NAME: &'static str = $name;
            type Caller = $caller;

            fn start(on_fire: impl Fn(Payload) + Send + Sync + 'static) -> Self {
                Self(engine(on_fire))
            }

            fn caller(&self) -> $caller {
                let make: fn(&Handle<Payload>) -> $caller = $make;
                make(self.0.handle())
            }

            fn pending(&self) -> usize {
                self.0.handle().len()
            }

            fn wakes(&self) -> Option<u64> {
                Some(self.0.handle().stats().total.wakes)
            }
        }
    };
}

way_in!(
    /// Calls the engine through a handle. Each call looks up the thread's state in a thread-local variable.
    ThroughHandle,
    "engine, Handle",
    Handle<Payload>,
    Handle::clone
);
way_in!(
    /// Calls the engine through a handle. The caller reads `now` once in each iteration of its loop.
    OwnNow,
    "engine, Handle, caller's now",
    OwnNowCaller,
    OwnNowCaller::new
);

const MUST: &str = "there is room, and the engine is not shut down";

impl Caller for Handle<Payload> {
    type Id = TimerId;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> TimerId {
        Handle::schedule(self, delay, payload).expect(MUST)
    }

    #[inline]
    fn cancel(&mut self, id: TimerId) -> Option<Payload> {
        Handle::cancel(self, id).payload()
    }

    #[inline]
    fn reschedule(&mut self, id: TimerId, delay: Duration, payload: Payload) -> TimerId {
        Handle::reschedule(self, id, delay).unwrap_or_else(|_| Caller::schedule(self, delay, payload))
    }
}

/// The number of timers that an event loop arms in one iteration.
const ARMED_PER_ITERATION: u32 = 64;

pub(crate) struct OwnNowCaller {
    handle: Handle<Payload>,
    now: Timestamp,
    armed: u32,
}

impl OwnNowCaller {
    fn new(handle: &Handle<Payload>) -> Self {
        Self { handle: handle.clone(), now: handle.now(), armed: 0 }
    }
}

impl Caller for OwnNowCaller {
    type Id = TimerId;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> TimerId {
        self.armed += 1;
        if self.armed == ARMED_PER_ITERATION {
            self.armed = 0;
            self.now = self.handle.now();
        }
        self.handle.schedule_at(self.now + delay, payload).expect(MUST)
    }

    #[inline]
    fn cancel(&mut self, id: TimerId) -> Option<Payload> {
        self.handle.cancel(id).payload()
    }
}
