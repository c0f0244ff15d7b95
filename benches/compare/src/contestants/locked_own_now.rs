//! A queue behind a mutex. Its caller passes deadlines that count from the caller's own `now`.

use super::by_id::Ids;
use super::{Clock, Connections, Contestant, OnFire, Owned, Reads};
use crate::baselines::{LazyHeap, Locked, Queue, Tree};
use crate::common::{Service, payload};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct LockedOwnNow<Q: Queue> {
    service: Arc<Locked<Q>>,
}

/// The name of a contestant that has the queue behind a lock and passes the caller's own `now`.
pub(crate) trait OwnNowName: Queue {
    const OWN_NOW_NAME: &'static str;
}

impl OwnNowName for LazyHeap {
    const OWN_NOW_NAME: &'static str = "Mutex<BinaryHeap>, caller's now";
}

impl OwnNowName for Tree {
    const OWN_NOW_NAME: &'static str = "Mutex<BTreeMap>, caller's now";
}

impl<Q: OwnNowName> Contestant for LockedOwnNow<Q> {
    const NAME: &'static str = Q::OWN_NOW_NAME;
    const READS: Reads = Reads::EachIteration(Clock::Instant);

    fn start(_threads: usize, on_fire: impl OnFire) -> Self {
        Self { service: Arc::new(Locked::start(on_fire)) }
    }
}

impl<Q: OwnNowName> Owned for LockedOwnNow<Q> {
    type Connections = IdEach<Q>;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> IdEach<Q> {
        let service = Arc::clone(&self.service);
        IdEach { caller: service.caller(), now: service.now(), service, ids: Ids::none(count) }
    }

    fn pending(&self, _all: &mut [IdEach<Q>]) -> usize {
        self.service.pending()
    }
}

pub(crate) struct IdEach<Q: Queue> {
    service: Arc<Locked<Q>>,
    caller: <Locked<Q> as Service>::Caller,
    /// The caller's present moment, in nanoseconds after the service's start.
    now: u64,
    ids: Ids<<Locked<Q> as Service>::Caller>,
}

impl<Q: OwnNowName> Connections for IdEach<Q> {
    const BYTES_OF_HANDLE: usize = size_of::<Option<Q::Id>>();

    #[inline]
    fn begin_iteration(&mut self) {
        self.now = self.service.now();
    }

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        let delay = delay.as_secs() * 1_000_000_000 + u64::from(delay.subsec_nanos());
        let (deadline, payload) = (self.now + delay, payload(u64::from(at)));
        let id = match self.ids.take(at) {
            Some(id) => self.service.reschedule_at(id, deadline, payload),
            None => self.service.schedule_at(deadline, payload),
        };
        self.ids.set(at, id);
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        self.ids.disarm(at, &mut self.caller);
    }
}
