//! Our owned timers: one for each connection, or one for each timer of a volley (timers that all come due in a turn).

use super::{Caller, Clock, Connections, Contestant, OnFire, OneShots, Owned, Reads};
use crate::common::{Payload, payload};
use std::time::Duration;
use tourbillon::{Disarm, Engine, Handle, Timer, Timestamp};

pub(crate) struct OursTimer<const OWN_NOW: bool> {
    engine: Engine<Payload>,
}

const MUST: &str = "there is room, and the engine is not shut down";

impl<const OWN_NOW: bool> Contestant for OursTimer<OWN_NOW> {
    const NAME: &'static str = if OWN_NOW { "engine, Timer, caller's now" } else { "engine, Timer" };
    const READS: Reads = if OWN_NOW { Reads::EachIteration(Clock::Tsc) } else { Reads::EachArm(Clock::Tsc) };
    const IS_OURS: bool = true;

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        Self { engine: Engine::new(move |timer| on_fire(timer.payload)).expect(MUST) }
    }
}

impl<const OWN_NOW: bool> Owned for OursTimer<OWN_NOW> {
    type Connections = TimerEach<OWN_NOW>;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> TimerEach<OWN_NOW> {
        let handle = self.engine.handle().clone();
        let timers = (0..count as u64).map(|at| handle.timer(payload(at)).expect(MUST)).collect();
        TimerEach { now: handle.now(), handle, timers }
    }

    fn pending(&self, all: &mut [TimerEach<OWN_NOW>]) -> usize {
        all.iter().flat_map(|each| &each.timers).filter(|timer| timer.is_armed()).count()
    }
}

pub(crate) struct TimerEach<const OWN_NOW: bool> {
    handle: Handle<Payload>,
    timers: Vec<Timer<Payload>>,
    now: Timestamp,
}

impl<const OWN_NOW: bool> Connections for TimerEach<OWN_NOW> {
    const BYTES_OF_HANDLE: usize = size_of::<Timer<Payload>>();

    #[inline]
    fn begin_iteration(&mut self) {
        if OWN_NOW {
            self.now = self.handle.now();
        }
    }

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        let timer = &self.timers[at as usize];
        let armed = if OWN_NOW { timer.arm_at(self.now + delay) } else { timer.arm(delay) };
        armed.expect(MUST);
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        assert_eq!(self.timers[at as usize].disarm(), Disarm::Disarmed);
    }
}

/// A contestant of owned timers that replace one-shots. Each payload number has its own timer, which is armed once.
pub(crate) struct OursTimerEach(OursTimer<false>);

impl Contestant for OursTimerEach {
    const NAME: &'static str = OursTimer::<false>::NAME;
    const READS: Reads = OursTimer::<false>::READS;
    const IS_OURS: bool = true;

    fn start(threads: usize, on_fire: impl OnFire) -> Self {
        Self(OursTimer::start(threads, on_fire))
    }
}

impl OneShots for OursTimerEach {
    type Caller = Timers;

    fn caller(&self) -> Timers {
        Timers { handle: self.0.engine.handle().clone(), timers: Vec::new() }
    }
}

/// The owned timers. The index is the number in a timer's payload.
pub(crate) struct Timers {
    handle: Handle<Payload>,
    timers: Vec<Timer<Payload>>,
}

impl Caller for Timers {
    type Id = u64;

    fn prepare(&mut self, count: usize) {
        self.timers = (0..count as u64).map(|at| self.handle.timer(payload(at)).expect(MUST)).collect();
    }

    #[inline]
    fn schedule(&mut self, delay: Duration, [number, _]: Payload) -> u64 {
        self.timers[index(number)].arm(delay).expect(MUST);
        number
    }

    #[inline]
    fn cancel(&mut self, number: u64) -> bool {
        self.timers[index(number)].disarm() == Disarm::Disarmed
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}
