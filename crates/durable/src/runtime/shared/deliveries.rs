//! Keeps the deliveries of a runtime, from the claim of a timer to the return of its handler.
//!
//! A delivery is *under way* until it is settled, which means that its end is decided. Two kinds of settled deliveries
//! stay here until the store may get their ends: those that are *put off* ([`PutOff`]), and those that were settled
//! while the store was asked to remove their timers.
//!
//! A handler counts as *running* from the moment at which an executor gets its work, until the handler returns or its
//! future is dropped. The handler may still run after the end of its delivery. For example, a handler that overruns its
//! timeout still counts against the limit of concurrent handlers.

use super::delivery::{Removal, UnderWay};
use super::occupants::Occupants;
use super::put_off::PutOff;
use crate::delivery::Settlement;
use crate::state::Token;
use crate::store::Op;
use crate::timer::TimerId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tourbillon_words::UtcMillis;

#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    under_way: HashMap<u64, UnderWay>,
    /// The deliveries that were settled while the store was asked to remove their timers ([`Removal::is_at_store`]).
    left: HashMap<u64, Left>,
    pub(crate) put_off: PutOff,
    /// The number of timers that the store has removed, and whose deliveries did not go on.
    pub(crate) lost: u64,
    /// The number of handlers that have not returned.
    running: usize,
    /// The namespaces of the handlers that have not returned. Empty without the setting
    /// [`in_turn`](crate::Builder::in_turn).
    occupants: Occupants,
    next_number: u64,
}

/// A delivery that was settled while the store was asked to remove its timer.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) delivery: UnderWay,
    /// The operation that ends the lease if the store has not removed the timer. `None` if the delivery is put off
    /// then.
    pub(crate) instead: Option<Op>,
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

    /// Removes and returns a delivery that is under way or put off, and whose lease is lost. `due` is the due moment of
    /// its timer. Returns `None` if its removal has been sent since.
    pub(crate) fn remove_leased(&mut self, number: u64, due: UtcMillis) -> Option<UnderWay> {
        match self.under_way.get(&number) {
            Some(delivery) if delivery.removal.is_sent() => None,
            Some(_) => self.under_way.remove(&number),
            None => self.put_off.remove(number, due),
        }
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = UnderWay> + use<> {
        core::mem::take(&mut self.under_way).into_values()
    }

    /// Asks for the removal of the timer of a delivery that wants to begin. Returns the lease of the timer, or `None`
    /// if the delivery has been settled since it wanted to begin.
    pub(crate) fn send_removal(&mut self, number: u64) -> Option<(TimerId, Token)> {
        let delivery = self.under_way.get_mut(&number)?;
        if delivery.removal != Removal::Asked {
            return None;
        }
        delivery.removal = Removal::AtStore;
        Some((delivery.id, delivery.token))
    }

    /// Notes that the store takes long to remove a timer. Returns the [`Settlement`] of the delivery, whose wakers the
    /// caller must wake without the lock.
    pub(crate) fn note_long_removal(&mut self, number: u64) -> Option<Arc<Settlement>> {
        let delivery = self.under_way.get_mut(&number)?;
        delivery.removal = Removal::AtStoreForLong;
        Some(Arc::clone(&delivery.settlement))
    }

    /// Keeps a settled delivery until the store has answered whether it has removed the timer.
    pub(crate) fn leave_at_store(&mut self, delivery: UnderWay, instead: Option<Op>) {
        self.left.insert(delivery.number, Left { delivery, instead });
    }

    /// Removes and returns a delivery that was settled while the store was asked to remove its timer.
    pub(crate) fn take_left(&mut self, number: u64) -> Option<Left> {
        self.left.remove(&number)
    }

    /// Returns the leases that must be renewed, without those of timers that the store has removed.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (TimerId, Token)> {
        let left = self.left.values().map(|left| &left.delivery);
        let all = self.under_way.values().chain(left).chain(self.put_off.iter());
        let stored = all.filter(|delivery| delivery.removal != Removal::Done);
        stored.map(|delivery| (delivery.id, delivery.token))
    }

    /// Returns the deliveries whose leases a renewal may find lost. While a removal is at the store, only its answer
    /// says whether the lease was lost: a removal that takes effect ends the lease.
    pub(crate) fn leased_mut(&mut self) -> impl Iterator<Item = &mut UnderWay> {
        let all = self.under_way.values_mut().chain(self.put_off.iter_mut());
        all.filter(|delivery| !delivery.removal.is_sent())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnderWay> {
        self.under_way.values()
    }

    /// Returns true if no delivery is under way. Deliveries that were settled early may still be here.
    pub(crate) fn are_settled(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns true if no delivery is here. Handlers may still be running: a delivery ends before its handler returns
    /// if the handler's timeout passes, for example.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.left.is_empty() && self.put_off.len() == 0
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
        let kept = self.under_way.values().filter(|delivery| delivery.kept.is_some()).count();
        self.running.saturating_sub(self.under_way.len() - kept)
    }

    /// Returns the number of running handlers of each namespace. Empty without the setting
    /// [`in_turn`](crate::Builder::in_turn).
    pub(crate) fn by_namespace(&self) -> Arc<BTreeMap<Box<str>, usize>> {
        self.occupants.counts()
    }
}
