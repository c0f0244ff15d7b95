//! The start of an engine on a set of shards, and its end in the child of a fork.

use super::core::{Core, Handler, Settings};
use crate::base::sync::{StdArc, ignore_poison};
use crate::dispatch::Fire;
use crate::shard::{Owner, Station, StationShared};
use crate::system::forks;

impl<T: Send + 'static> Core<T> {
    /// Makes an engine on a set's shards, and adds its stations to them.
    pub(crate) fn start(owner: &StdArc<Owner>, settings: Settings, handler: Handler<T>) -> StdArc<Self> {
        let core = StdArc::new(Self::new(StdArc::clone(owner.set()), settings, handler));
        *ignore_poison(core.owner.lock()) = Some(StdArc::clone(owner));
        if core.set.is_served() {
            let child = StdArc::downgrade(&core);
            let action = move || drop(child.upgrade().inspect(|core| core.enter_child()));
            core.forks.get_or_init(|| forks::watch(Box::new(action)));
        }
        if core.dispatcher.is_inline() {
            core.set.note_inline_handlers();
        }
        core.set.join(core.make_stations());
        if core.set.is_forked() {
            core.enter_child();
        }
        core
    }

    fn make_stations(self: &StdArc<Self>) -> Vec<Station> {
        let time = (self.tick(), self.clock.true_now());
        let station = |(shard, shared): (usize, &StdArc<StationShared>)| {
            let engine: StdArc<dyn Fire> = StdArc::<Self>::clone(self);
            let slots = StdArc::clone(self.slab.slots());
            Station::new(shard, (engine, &self.presence), StdArc::clone(shared), slots, time)
        };
        self.stations.iter().enumerate().map(station).collect()
    }

    /// Makes the engine refuse everything from now on, in the child of a fork. Uses atomics only, since locks may be
    /// held by threads that do not exist in the child.
    fn enter_child(&self) {
        for station in &self.stations {
            station.parker.close_in_child();
        }
        if self.totals().owned() > 0 {
            self.shut_owned_in_child();
        }
    }
}
