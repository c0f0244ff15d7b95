//! Keeps the deliveries of a runtime, from the claim of a timer to the return of its handler.
//!
//! A delivery is *under way* until it is settled, which means that its end is decided. Its handler counts as *running*
//! from the moment at which an executor gets its work, until the handler returns or its future is dropped. The handler
//! may still run after the end of its delivery. For example, a handler that overruns its timeout still counts against
//! the limit of concurrent handlers.

use super::delivery::UnderWay;
use super::occupants::Occupants;
use crate::delivery::Settlement;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    under_way: HashMap<u64, UnderWay>,
    /// The deliveries that wait until the store has removed their timers
    /// ([`Removal::AtStore`](super::Removal::AtStore)). Each delivery itself is on its way to the store, as an end.
    beginning: HashMap<u64, Arc<Settlement>>,
    /// The number of handlers that have not returned.
    running: usize,
    /// The namespaces of the handlers that have not returned. Empty without the setting
    /// [`in_turn`](crate::Builder::in_turn).
    occupants: Occupants,
    next_number: u64,
}

impl Deliveries {
    /// Returns a number that no other delivery of the runtime has.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn insert(&mut self, delivery: UnderWay) {
        self.under_way.insert(delivery.number, delivery);
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut UnderWay> {
        self.under_way.get_mut(&number)
    }

    /// Removes a delivery from the deliveries under way, and returns it. The caller must settle the delivery, which
    /// means to decide how it ends. Returns `None` if the delivery is no longer under way.
    pub(crate) fn remove(&mut self, number: u64) -> Option<UnderWay> {
        self.under_way.remove(&number)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = UnderWay> + use<> {
        core::mem::take(&mut self.under_way).into_values()
    }

    /// Notes that a delivery waits until the store has removed its timer. The delivery is no longer under way until
    /// then.
    pub(crate) fn await_removal(&mut self, number: u64, settlement: Arc<Settlement>) {
        self.beginning.insert(number, settlement);
    }

    /// Returns true if the delivery waits until the store has removed its timer.
    pub(crate) fn awaits_removal(&self, number: u64) -> bool {
        self.beginning.contains_key(&number)
    }

    /// Notes that a delivery no longer waits until the store has removed its timer. Returns `None` if the delivery did
    /// not wait, for example because it was given up during the wait.
    pub(crate) fn stop_waiting(&mut self, number: u64) -> Option<Arc<Settlement>> {
        self.beginning.remove(&number)
    }

    /// Notes that no delivery waits any longer until the store has removed its timer.
    pub(crate) fn stop_all_waiting(&mut self) -> impl Iterator<Item = Arc<Settlement>> + use<> {
        core::mem::take(&mut self.beginning).into_values()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnderWay> {
        self.under_way.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut UnderWay> {
        self.under_way.values_mut()
    }

    /// Returns true if no delivery is under way, and none waits until the store has removed its timer. Handlers may
    /// still be running: a delivery ends before its handler returns if the handler's timeout passes, for example.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.beginning.is_empty()
    }

    /// Counts the handler of a delivery as running. If a namespace is given, the handler also counts for this
    /// namespace.
    pub(crate) fn enter(&mut self, number: u64, namespace: Option<&str>) {
        self.running += 1;
        if let Some(namespace) = namespace {
            self.occupants.enter(number, namespace);
        }
    }

    /// Records that the handler of the delivery `number` has returned.
    pub(crate) fn leave(&mut self, number: u64) {
        self.running -= 1;
        self.occupants.leave(number);
    }

    /// Returns the number of handlers that have not returned.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Returns the number of handlers that still run although their deliveries have already ended.
    pub(crate) fn overrun(&self) -> usize {
        self.running.saturating_sub(self.under_way.len() + self.beginning.len())
    }

    /// Returns the number of running handlers of each namespace. Empty without the setting
    /// [`in_turn`](crate::Builder::in_turn).
    pub(crate) fn by_namespace(&self) -> Arc<BTreeMap<Box<str>, usize>> {
        self.occupants.counts()
    }
}
