//! Services that schedule a timer anew each time and cancel it by its id.
//!
//! An arm of a timer that is pending is a cancel and a schedule, and of a locked queue two turns of its lock.

use super::{Clock, Connections, Contestant, Counts, Fires, Owned, Reads};
use crate::baselines::{Locked, Queue};
use crate::common::{Caller, Service, ThroughHandle, payload};
use std::time::Duration;

pub(crate) struct ById<S> {
    service: S,
    fires: Fires,
}

/// The clock that a service reads when a timer is scheduled.
pub(crate) trait ReadsClock: Service {
    const CLOCK: Clock;
}

impl<Q: Queue> ReadsClock for Locked<Q> {
    const CLOCK: Clock = Clock::Instant;
}

impl ReadsClock for ThroughHandle {
    const CLOCK: Clock = Clock::Tsc;
}

impl<S: ReadsClock> Contestant for ById<S> {
    const NAME: &'static str = S::NAME;
    const READS: Reads = Reads::EachArm(S::CLOCK);

    fn start(_threads: usize) -> Self {
        let fires = Fires::default();
        Self { service: S::start(fires.handler()), fires }
    }
}

impl<S: ReadsClock<Caller: Caller<Id: Send> + Send + 'static>> Owned for ById<S> {
    type Connections = IdEach<S::Caller>;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> Self::Connections {
        IdEach { caller: self.service.caller(), ids: Ids::none(count) }
    }

    fn count(&self, _all: &mut [Self::Connections]) -> Counts {
        Counts { pending: self.service.pending() as u64, fired: self.fires.count() }
    }
}

pub(crate) struct IdEach<C: Caller> {
    caller: C,
    ids: Ids<C>,
}

impl<C: Caller<Id: Send> + Send + 'static> Connections for IdEach<C> {
    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        self.ids.take_back(at, &mut self.caller);
        let id = self.caller.schedule(delay, payload(u64::from(at)));
        self.ids.set(at, id);
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        self.ids.disarm(at, &mut self.caller);
    }
}

/// The id of each connection's timer.
pub(super) struct Ids<C: Caller>(Vec<Option<C::Id>>);

impl<C: Caller> Ids<C> {
    pub(super) fn none(count: usize) -> Self {
        Self(vec![None; count])
    }

    #[inline]
    pub(super) fn set(&mut self, at: u32, id: C::Id) {
        self.0[at as usize] = Some(id);
    }

    /// Cancels what may be pending; it may have fired as well.
    #[inline]
    pub(super) fn take_back(&mut self, at: u32, caller: &mut C) {
        if let Some(id) = self.0[at as usize].take()
            && let Some(cancelled) = caller.cancel(id)
        {
            assert_eq!(cancelled, payload(u64::from(at)));
        }
    }

    /// Cancels what was armed just now.
    #[inline]
    pub(super) fn disarm(&mut self, at: u32, caller: &mut C) {
        let id = self.0[at as usize].take().expect("it was armed");
        assert_eq!(caller.cancel(id), Some(payload(u64::from(at))));
    }
}
