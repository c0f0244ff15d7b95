//! Limits how much of a shared resource one client may take. The store limits the deliveries of each namespace by the
//! same function.

pub(crate) use tourbillon_durable::store::free_for;

use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::HashMap;

/// The units of a limited resource that each client has, such as the open claims of each namespace. `K` identifies a
/// client. Clients without units take no memory.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    /// The number of units that all clients may have together.
    most: usize,
    /// The number of units that all clients have together.
    all: usize,
    by_client: HashMap<K, usize>,
}

impl<K: Eq + Hash> Shares<K> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, all: 0, by_client: HashMap::new() }
    }

    /// Returns the number of units that all clients have together.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Returns how many further units a client may have: see [`free_for`].
    pub(crate) fn free_for<Q: Eq + Hash + ?Sized>(&self, client: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let has = self.by_client.get(client).copied().unwrap_or(0);
        free_for(has, self.most.saturating_sub(self.all))
    }

    /// Gives a client further units. Returns false, and gives none, if the client may not have that many.
    pub(crate) fn take<Q: Eq + Hash + ToOwned + ?Sized>(&mut self, client: &Q, units: usize) -> bool
    where
        K: Borrow<Q> + From<Q::Owned>,
    {
        if units > self.free_for(client) {
            return false;
        }
        // An entry without units would never be removed.
        if units > 0 {
            *self.by_client.entry(client.to_owned().into()).or_default() += units;
            self.all += units;
        }
        true
    }

    /// Takes units of a client back.
    pub(crate) fn give_back<Q: Eq + Hash + ?Sized>(&mut self, client: &Q, units: usize)
    where
        K: Borrow<Q>,
    {
        let Some(has) = self.by_client.get_mut(client) else { return };
        (*has, self.all) = (*has - units, self.all - units);
        if *has == 0 {
            self.by_client.remove(client);
        }
    }

    /// Returns whether no client has a unit, and nothing is kept of former clients.
    #[cfg(test)]
    pub(crate) fn are_gone(&self) -> bool {
        self.all == 0 && self.by_client.is_empty()
    }
}
