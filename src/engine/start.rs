//! Starts an engine on a set of shards, and ends it in the child of a fork.

use super::core::{Core, Handler, Settings};
use crate::base::sync::StdArc;
use crate::dispatch::Fire;
use crate::shard::{Owner, Station, StationShared};

impl<T: Send + 'static> Core<T> {
    /// Makes an engine on a set of shards, and adds the engine's stations (its parts of the shards) to the shards.
    pub(crate) fn start(owner: &StdArc<Owner>, settings: Settings, handler: Handler<T>) -> StdArc<Self> {
        let core = StdArc::new(Self::new(StdArc::clone(owner.set()), settings, handler));
        let child = StdArc::downgrade(&core);
        core.membership.begin(owner, move || drop(child.upgrade().inspect(|core| core.enter_child())));
        core.membership.join(core.make_stations());
        if core.membership.is_forked() {
            core.enter_child();
        }
        core
    }

    fn make_stations(self: &StdArc<Self>) -> Vec<Station> {
        let time = (self.tick(), self.clock().true_now());
        let station = |(shard, shared): (usize, &StdArc<StationShared>)| {
            let engine: StdArc<dyn Fire> = StdArc::<Self>::clone(self);
            let slots = StdArc::clone(self.admission().slots());
            Station::new(shard, (engine, self.membership.presence()), StdArc::clone(shared), slots, time)
        };
        self.admission().stations().all().iter().enumerate().map(station).collect()
    }

    /// Makes the engine refuse everything in the child of a fork. Uses only atomics, because a thread that does not
    /// exist in the child may hold a lock.
    fn enter_child(&self) {
        let stations = self.admission().stations();
        stations.close_in_child();
        if stations.totals().owned() > 0 {
            self.timers.shut_in_child();
        }
    }
}
