//! The contestants of each workload. Workloads that need the same abilities have the same entrants.

/// The names of contestants, for the lists in this file.
pub(crate) mod names {
    pub(crate) use crate::baselines::{LazyHeap, Locked, ShardedWheel, Tree};
    pub(crate) use crate::common::{OwnNow, ThroughHandle};
    pub(crate) use crate::contestants::*;
    pub(crate) use crate::foreign;
    pub(crate) use crate::workload::Entrant;
}

/// Makes an [`Entrant`](crate::workload::Entrant) for each contestant. `$turn::<Contestant>` is the function that
/// measures it.
macro_rules! entrants {
    ($turn:ident: $($contestant:ty),* $(,)?) => {
        vec![$($crate::workload::Entrant::new::<$contestant>($turn::<$contestant>)),*]
    };
}

/// Lists the contestants whose timers are scheduled and cancelled. Nothing must happen when a timer fires.
macro_rules! schedule_and_cancel {
    ($turn:ident) => {{
        use $crate::roster::names::*;
        let mut entrants = $crate::roster::entrants![$turn:
            Of<ThroughHandle>,
            Of<ThroughHandleOnInstant>,
            Of<OwnNow>,
            Of<Locked<LazyHeap>>,
            Of<Locked<Tree>>,
            Of<ShardedWheel>,
            TokioOneShots,
            Alternative<TokioOneShots>,
            DelayQueues<false>,
            Pingora,
            HashWheelTimer,
            KestrelTimer,
            AsyncIo,
            FuturesOneShot,
        ];
        entrants.extend(foreign::PROGRAMS.iter().map(Entrant::foreign));
        entrants
    }};
}

/// Lists the contestants that call a handler for each timer that fires. Timers of the entrant `$pingora` may be early,
/// so the list is for workloads that permit early timers.
macro_rules! fire {
    ($turn:ident) => {
        $crate::roster::fire!($turn, $crate::roster::entrants![$turn: Tasks<PingoraSleeps>])
    };
    ($turn:ident, never_early) => {
        $crate::roster::fire!($turn, [Entrant::never("pingora-timeout", "fires up to 1 ms early")])
    };
    ($turn:ident, $pingora:expr) => {{
        use $crate::roster::names::*;
        let mut entrants = $crate::roster::entrants![$turn:
            Of<OwnWorkers>,
            Of<Inline>,
            Of<Locked<LazyHeap>>,
            Of<Locked<Tree>>,
            Of<ShardedWheel>,
            Tasks<TokioSleeps>,
            Tasks<AlternativeSleeps>,
            DelayQueues<true>,
        ];
        entrants.extend($pingora);
        entrants.extend($crate::roster::entrants![$turn:
            HashWheelTimer,
            KestrelTimer,
            SmolTasks<AsyncIoSleep>,
            SmolTasks<FuturesSleep>,
        ]);
        entrants.extend(foreign::PROGRAMS.iter().map(Entrant::foreign));
        entrants
    }};
}

/// Lists the contestants with a timer for each connection. Some read the clock at each request, others once for an
/// iteration of their loop.
macro_rules! rearm {
    ($turn:ident) => {{
        use $crate::roster::names::*;
        let mut entrants = $crate::roster::entrants![$turn:
            OursTimer<false>,
            OursTimer<true>,
            ById<Of<ThroughHandle>>,
            ById<Of<Locked<LazyHeap>>>,
            LockedOwnNow<LazyHeap>,
            ById<Of<Locked<Tree>>>,
            LockedOwnNow<Tree>,
            ById<Of<ShardedWheel>>,
            TokioSleep<false>,
            TokioSleep<true>,
            TokioFar<false>,
            TokioFar<true>,
            Alternative<TokioSleep<false>>,
            Alternative<TokioFar<false>>,
            DelayQueues<false>,
            ById<HashWheelTimer>,
            KestrelTimer,
            AsyncIo,
            FuturesDelay,
        ];
        entrants.push(Entrant::never("pingora-timeout", "cannot be reset: each timeout is made anew"));
        entrants.extend(foreign::PROGRAMS.iter().map(Entrant::foreign));
        entrants
    }};
}

/// Lists the contestants whose pending timers can get another deadline.
macro_rules! refresh {
    ($turn:ident) => {{
        use $crate::roster::names::*;
        let mut entrants = $crate::roster::entrants![$turn:
            OursTimer<false>,
            ById<Of<ThroughHandle>>,
            ById<Of<Locked<LazyHeap>>>,
            ById<Of<Locked<Tree>>>,
            ById<Of<ShardedWheel>>,
            TokioSleep<false>,
            Alternative<TokioSleep<false>>,
            DelayQueues<false>,
            ById<HashWheelTimer>,
            KestrelTimer,
            AsyncIo,
            FuturesDelay,
        ];
        entrants.push(Entrant::never("pingora-timeout", "cannot be reset: each timeout is made anew"));
        entrants.extend(foreign::PROGRAMS.iter().map(Entrant::foreign));
        entrants
    }};
}

pub(crate) use {entrants, fire, rearm, refresh, schedule_and_cancel};
