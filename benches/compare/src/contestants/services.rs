//! Services with their own threads: the engine in several ways, and queues and wheels behind mutexes.

use super::{Caller, Clock, Contestant, OnFire, OneShots, Reads};
use crate::baselines::{Locked, Queue, ShardedWheel};
use crate::common::{self, OwnNow, Payload, Service, ThroughHandle};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock as _, Engine, Handle, MonotonicClock, SystemClock, Timestamp};

/// A wrapper that makes a [`Service`] a contestant of the benchmark book.
pub(crate) struct Of<S>(S);

/// A service whose number of shards the caller chooses.
pub(crate) trait Sharded: OneShots {
    fn with_shards(shards: usize, on_fire: impl OnFire) -> Self;
}

impl Sharded for Of<ShardedWheel> {
    fn with_shards(shards: usize, on_fire: impl OnFire) -> Self {
        Self(ShardedWheel::start_from(Instant::now(), shards, on_fire))
    }
}

impl Sharded for Of<OwnWorkers> {
    fn with_shards(shards: usize, on_fire: impl OnFire) -> Self {
        Self(OwnWorkers::of(Builder::new().shards(shards), on_fire))
    }
}

/// A service that says which clock its calls read, and how often.
pub(crate) trait ReadsClock: Service {
    const READS: Reads;
    const IS_OURS: bool = false;
}

impl<Q: Queue> ReadsClock for Locked<Q> {
    const READS: Reads = Reads::EachArm(Clock::Instant);
}

impl ReadsClock for ShardedWheel {
    const READS: Reads = Reads::EachArm(Clock::Instant);
}

/// Declares our engine's contestants. Each line says which clock a contestant's calls read, and how often.
macro_rules! ours {
    ($($service:ty: $reads:expr;)*) => {
        $(impl ReadsClock for $service {
            const READS: Reads = $reads;
            const IS_OURS: bool = true;
        })*
    };
}

ours! {
    ThroughHandle: Reads::EachArm(Clock::Tsc);
    OwnNow: Reads::EachIteration(Clock::Tsc);
    OwnWorkers: Reads::EachArm(Clock::Tsc);
    Inline: Reads::EachArm(Clock::Tsc);
    AcrossBoundary: Reads::EachArm(Clock::Tsc);
    Fine: Reads::EachArm(Clock::Tsc);
    FineInline: Reads::EachArm(Clock::Tsc);
    CoarseInline: Reads::EachArm(Clock::Tsc);
    CoarserInline: Reads::EachArm(Clock::Tsc);
    ThroughHandleOnInstant: Reads::EachArm(Clock::Instant);
    DefaultSlice: Reads::EachArm(Clock::Tsc);
    Unpinned: Reads::EachArm(Clock::Tsc);
    UnpinnedInline: Reads::EachArm(Clock::Tsc);
}

impl<S: ReadsClock> Contestant for Of<S> {
    const NAME: &'static str = S::NAME;
    const READS: Reads = S::READS;
    const IS_OURS: bool = S::IS_OURS;

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        Self(S::start(on_fire))
    }
}

impl<S: ReadsClock> OneShots for Of<S> {
    type Caller = S::Caller;

    fn caller(&self) -> S::Caller {
        self.0.caller()
    }

    fn pending(&self) -> Option<usize> {
        Some(self.0.pending())
    }
}

impl<C: common::Caller + Send + 'static> Caller for C {
    type Id = C::Id;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> Self::Id {
        common::Caller::schedule(self, delay, payload)
    }

    #[inline]
    fn cancel(&mut self, id: Self::Id) -> bool {
        common::Caller::cancel(self, id).is_some_and(|[n, check]| n == !check)
    }

    #[inline]
    fn reschedule(&mut self, id: Self::Id, delay: Duration, payload: Payload) -> Self::Id {
        common::Caller::reschedule(self, id, delay, payload)
    }
}

/// Declares a contestant: an engine that runs its handlers in a certain way, on workers or on its shards.
macro_rules! dispatch {
    ($(#[$doc:meta])* $service:ident, $name:literal, $builder:expr) => {
        $(#[$doc])*
        pub(crate) struct $service(Engine<Payload>);

        impl $service {
            fn of(builder: Builder, on_fire: impl OnFire) -> Self {
                let engine = builder.start(move |timer| on_fire(timer.payload));
                Self(engine.expect("the system gives us threads"))
            }
        }

        impl Service for $service {
            const NAME: &'static str = $name;
            type Caller = Handle<Payload>;

            fn start(on_fire: impl OnFire) -> Self {
                Self::of($builder, on_fire)
            }

            fn caller(&self) -> Handle<Payload> {
                Handle::clone(self.0.handle())
            }

            fn pending(&self) -> usize {
                self.0.handle().len()
            }
        }
    };
}

dispatch!(
    /// The engine's shards give due timers to a pool of workers.
    OwnWorkers,
    "engine, own workers",
    Builder::new()
);
dispatch!(
    /// The engine's shards call the handlers themselves, as the timer threads of other contestants do.
    Inline,
    "engine, inline",
    Builder::new().inline()
);
dispatch!(
    /// The engine has ticks of 0.1 ms.
    Fine,
    "engine, own workers, tick 0.1 ms",
    Builder::new().tick(TENTH_OF_A_MILLI)
);
dispatch!(
    /// The engine has ticks of 0.1 ms, and calls the handlers on its shards.
    FineInline,
    "engine, inline, tick 0.1 ms",
    Builder::new().tick(TENTH_OF_A_MILLI).inline()
);
dispatch!(
    /// The engine has ticks of 4 ms, and calls the handlers on its shards.
    CoarseInline,
    "engine, inline, tick 4 ms",
    Builder::new().tick(Duration::from_millis(4)).inline()
);
dispatch!(
    /// The engine has ticks of 16 ms, and calls the handlers on its shards.
    CoarserInline,
    "engine, inline, tick 16 ms",
    Builder::new().tick(Duration::from_millis(16)).inline()
);
dispatch!(
    /// The engine has the system's clock, and calls `Instant::now` for each arming.
    ThroughHandleOnInstant,
    "engine, Handle, Instant::now",
    Builder::new().clock(SystemClock::new())
);
dispatch!(
    /// The engine's threads have the scheduler slice that the system gives to every thread.
    DefaultSlice,
    "engine, own workers, the system's slice",
    Builder::new().slice(None)
);
dispatch!(
    /// The engine's shards are not pinned to cores: the system's scheduler may move their threads.
    Unpinned,
    "engine, own workers, unpinned",
    Builder::new().unpinned()
);
dispatch!(
    /// The engine's shards are not pinned to cores, and call the handlers themselves.
    UnpinnedInline,
    "engine, inline, unpinned",
    Builder::new().unpinned().inline()
);
dispatch!(
    /// An engine whose wheels cross a boundary of their third level four seconds after the start.
    AcrossBoundary,
    "engine, own workers, across tick 65,536",
    Builder::new().clock(Ahead::by(Duration::from_millis(65_536 - 4_000)))
);

const TENTH_OF_A_MILLI: Duration = Duration::from_micros(100);

/// The default clock with another origin, so that a new engine starts at a late tick.
struct Ahead {
    clock: MonotonicClock,
    origin: Duration,
}

impl Ahead {
    fn by(start: Duration) -> Self {
        let clock = MonotonicClock::new();
        Self { origin: clock.now() - Timestamp::ZERO - start, clock }
    }
}

impl tourbillon::Clock for Ahead {
    #[inline]
    fn now(&self) -> Timestamp {
        self.clock.now() - self.origin
    }

    fn true_now(&self) -> Timestamp {
        self.clock.true_now() - self.origin
    }
}
