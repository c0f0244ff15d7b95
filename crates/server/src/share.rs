//! Limits how much of a shared resource one client may take.
//!
//! A resource has *units*, such as the permits of a pool. Two rules divide them:
//!
//! - A client may take one more unit if it has fewer than three times as many as are free
//!   ([`free_for`](tourbillon_durable::store::free_for)). The store limits the deliveries of each namespace by the same
//!   rule. A client alone gets three quarters of the units. Clients that always want more units, and give units back,
//!   come to have equally many.
//! - A client that has no unit may take a first one, even if the first rule permits none. Such first units come from a
//!   *reserve*, which is an eighth of the units, beyond them. The first unit of each further client is a unit of the
//!   reserve, until clients give units back.
//!
//! The second rule is for clients that do not give their units back, such as namespaces whose receivers hang. By the
//! first rule alone, each of them takes three quarters of the units that are left: four clients take all of 64 units,
//! and the fifth gets none. With the reserve, each further client always gets a unit, up to the size of the reserve. A
//! unit serves one delivery after another, so a client whose deliveries are short needs no second unit. A fixed part
//! for each client would need no reserve, but a single client could then use only its part.
//!
//! | resource | a client | the first unit |
//! |---|---|---|
//! | permits of the service, and those for slow and unknown hosts | a namespace | from the reserve |
//! | permits at a host | a namespace | always: the permits of the service limit their number |
//! | open claims, and receivers that wait | a namespace | from the reserve |
//! | operations | a namespace | from the reserve |
//! | streams of events | a token | from the reserve |
//! | connections whose requests wait | a token | from the reserve |
//! | bytes of bodies | a token | from the reserve, up to an eighth of it for one client |
//! | bodies that wait for memory | a token | from the reserve |
//! | places of the runtime | a namespace | needs none: there are more places than all deliveries can take |
//! | deliveries that wait for a permit | | needs none: a delivery that finds no room is parked, and waits in the store |

use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::HashMap;
use tourbillon_durable::store;

/// The number of further units in the reserve, which are only for clients without units, is the number of all other
/// units divided by this number.
const RESERVE: usize = 8;

/// Returns the number of all units of a resource: `most`, and the reserve for clients that have no unit.
pub(crate) fn with_reserve(most: usize) -> usize {
    most.saturating_add(most / RESERVE)
}

/// Returns the number of further units that a client may take. The client already has `has` units, and all clients
/// together have `all`. The resource has `most` units, without the reserve.
pub(crate) fn free_for(has: usize, most: usize, all: usize) -> usize {
    let first = usize::from(has == 0 && all < with_reserve(most));
    store::free_for(has, most.saturating_sub(all)).max(first)
}

/// The units of a limited resource that each client has, such as the open claims of each namespace. `K` identifies a
/// client. Clients without units take no memory.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    /// The number of units, without the reserve.
    most: usize,
    /// The number of units that a client without units may take from the reserve.
    first: usize,
    /// The number of units that all clients have together.
    all: usize,
    by_client: HashMap<K, usize>,
}

impl<K: Eq + Hash> Shares<K> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, first: 1, all: 0, by_client: HashMap::new() }
    }

    /// Makes the shares of a resource of which a client takes many units at once, such as bytes. A client without units
    /// may take an eighth of the reserve.
    pub(crate) fn of_many(most: usize) -> Self {
        Self { first: most / RESERVE / RESERVE, ..Self::new(most) }
    }

    /// Returns the number of units that all clients have together.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Returns how many further units a client may have, by the rules of [this module](self).
    pub(crate) fn free_for<Q: Eq + Hash + ?Sized>(&self, client: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let has = self.by_client.get(client).copied().unwrap_or(0);
        let reserve = with_reserve(self.most).saturating_sub(self.all);
        let first = if has == 0 { self.first.min(reserve) } else { 0 };
        store::free_for(has, self.most.saturating_sub(self.all)).max(first)
    }

    /// Gives `units` further units to a client. If the client may not have that many, returns false and gives none.
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

    /// Returns `units` units of a client to the resource.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_give_nothing_back_leave_a_first_unit_to_many_others() {
        for most in [8, 22, 64, 1_024, 10_000] {
            let mut shares = Shares::<usize>::new(most);
            let mut greedy = 0;
            while shares.all() < most {
                while shares.take(&greedy, 1) {}
                greedy += 1;
            }
            assert!(greedy < 10, "a few clients have taken all units, {greedy} of {most}");
            for client in greedy..greedy + most / RESERVE {
                assert_eq!(shares.free_for(&client), 1);
                assert!(shares.take(&client, 1), "a client without units, {client} of {most}");
                assert!(!shares.take(&client, 1), "a second unit, {client} of {most}");
            }
            assert_eq!(shares.all(), with_reserve(most));
            assert!(!shares.take(&usize::MAX, 1), "the reserve is empty");
            // A client whose unit is short gets it again, and no client that has a unit gets it.
            let last = greedy + most / RESERVE - 1;
            shares.give_back(&last, 1);
            assert!(!shares.take(&0, 1) && shares.take(&last, 1));
        }
    }

    #[test]
    fn a_client_without_bytes_gets_an_eighth_of_the_reserve() {
        let mut shares = Shares::<u8>::of_many(6_400);
        let mut greedy = 0;
        while shares.all() < 6_400 {
            while shares.take(&greedy, 1) {}
            greedy += 1;
        }
        for client in 20..28 {
            assert!(!shares.take(&client, 101) && shares.take(&client, 100) && !shares.take(&client, 1));
        }
        assert!(!shares.take(&28, 1), "the reserve is empty");
    }
}
