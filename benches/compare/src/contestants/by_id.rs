//! Timers of connections, by id. Each arm schedules a new timer, and each disarm cancels it.
//!
//! An arm of a pending timer moves the timer, if the contestant can do that. A locked queue does so within one critical
//! section.

use super::{Caller, Connections, Contestant, OnFire, OneShots, Owned, Reads};
use crate::common::payload;
use std::time::Duration;

pub(crate) struct ById<S>(S);

impl<S: OneShots> Contestant for ById<S> {
    const NAME: &'static str = S::NAME;
    const READS: Reads = S::READS;
    const IS_OURS: bool = S::IS_OURS;

    fn start(threads: usize, on_fire: impl OnFire) -> Self {
        Self(S::start(threads, on_fire))
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        self.0.run(jobs)
    }

    fn settle(&self, time: Duration) {
        self.0.settle(time);
    }
}

impl<S: OneShots> Owned for ById<S> {
    type Connections = IdEach<S::Caller>;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> Self::Connections {
        IdEach { caller: self.0.caller(), ids: Ids::none(count) }
    }

    fn pending(&self, all: &mut [Self::Connections]) -> usize {
        let armed = || all.iter().map(|each| each.ids.armed()).sum();
        self.0.pending().unwrap_or_else(armed)
    }
}

pub(crate) struct IdEach<C: Caller> {
    caller: C,
    ids: Ids<C>,
}

impl<C: Caller> Connections for IdEach<C> {
    const BYTES_OF_HANDLE: usize = size_of::<Option<C::Id>>();

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        let payload = payload(u64::from(at));
        let id = match self.ids.take(at) {
            Some(id) => self.caller.reschedule(id, delay, payload),
            None => self.caller.schedule(delay, payload),
        };
        self.ids.set(at, id);
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        self.ids.disarm(at, &mut self.caller);
    }
}

/// The id of each connection's timer, if the connection has a timer.
pub(super) struct Ids<C: Caller>(Vec<Option<C::Id>>);

impl<C: Caller> Ids<C> {
    pub(super) fn none(count: usize) -> Self {
        Self((0..count).map(|_| None).collect())
    }

    pub(super) fn armed(&self) -> usize {
        self.0.iter().flatten().count()
    }

    #[inline]
    pub(super) fn set(&mut self, at: u32, id: C::Id) {
        self.0[at as usize] = Some(id);
    }

    /// Removes and returns the id of the timer for connection `at`. The timer may be pending or may have fired.
    #[inline]
    pub(super) fn take(&mut self, at: u32) -> Option<C::Id> {
        self.0[at as usize].take()
    }

    /// Cancels the timer of connection `at`, which was armed just before.
    #[inline]
    pub(super) fn disarm(&mut self, at: u32, caller: &mut C) {
        let id = self.take(at).expect("it was armed");
        assert!(caller.cancel(id), "armed just now, and not pending");
    }
}
