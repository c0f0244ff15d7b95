//! Defines the ordered tables of bytes that a store's transaction offers to the ledger.

use super::error::StoreError;

/// The tables in which a store keeps its timers. The doc of each variant names the parts of a key in their order, and
/// the value of an entry. If no value is named, the value is empty. [`State`](crate::state::State) describes the
/// pending, leased, parked and dead timers. A timer's [`Phase`](crate::state::Phase) is the name of its state, without
/// the data of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Table {
    /// The table of all stored timers. Key: id. Value: record.
    Timers,
    /// The table of the timers that own keys. Key: namespace, key. Value: id.
    Keys,
    /// The table of pending timers. Key: due moment, id.
    Due,
    /// The table of leased timers. Key: end of the lease, id.
    Leases,
    /// The table of parked timers, which are set aside for a reason. Key: reason, due moment, id.
    Parked,
    /// The table of dead timers. Key: the moment at which the timer became dead, id.
    Dead,
    /// The table of timers by their labels. Key: namespace, label, id.
    Labels,
    /// The table of timers that own no key and are not dead. Key: namespace, id. `Keyless` and `Keys` together list all
    /// timers of a namespace except the dead timers.
    Keyless,
    /// The table of parked and dead timers by namespace. Key: namespace, phase (parked or dead), and the key of the
    /// timer's entry in `Parked` or `Dead`.
    Stopped,
    /// The table of ended timers whose callers chose their ids. Key: id. Value: the moment until which the id is
    /// remembered.
    Recent,
    /// The table of the remembered ids of ended timers, by time. Key: the moment until which the id is remembered, id.
    Forget,
    /// The table of the counts of timers. Key: namespace, phase. Value: the number of the namespace's timers in this
    /// phase.
    Counts,
    /// The table of the counts of pending timers. Key: hour of UTC in which the timers are due. Value: count.
    Hours,
    /// The table of records that could not be read. Key: id. Value: the bytes of the record.
    Quarantine,
    /// The table of values of the store itself, such as its version. Key: name.
    Meta,
}

impl Table {
    pub(crate) const ALL: [Self; 15] = [
        Self::Timers,
        Self::Keys,
        Self::Due,
        Self::Leases,
        Self::Parked,
        Self::Dead,
        Self::Labels,
        Self::Keyless,
        Self::Stopped,
        Self::Recent,
        Self::Forget,
        Self::Counts,
        Self::Hours,
        Self::Quarantine,
        Self::Meta,
    ];

    pub(crate) fn name(self) -> &'static str {
        // The files of existing stores have these names, so a name must not change.
        match self {
            Self::Timers => "timers",
            Self::Keys => "keys",
            Self::Due => "due",
            Self::Leases => "leases",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Labels => "labels",
            Self::Keyless => "keyless",
            Self::Stopped => "stopped",
            Self::Recent => "recent",
            Self::Forget => "forget",
            Self::Counts => "counts",
            Self::Hours => "hours",
            Self::Quarantine => "quarantine",
            Self::Meta => "meta",
        }
    }
}

/// Reads and writes the tables of a store within one transaction.
pub(crate) trait Tables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Calls `each` with the key and the value of each entry of a table, in the order of the keys, from the key `from`
    /// on. Stops once `each` returns false.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Calls `each` with the key and the value of each entry of a table, in the reverse order of the keys, from the
    /// last key below `below`. If `below` is `None`, begins with the last entry of the table. Stops once `each` returns
    /// false.
    fn scan_back(
        &self,
        table: Table,
        below: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Stores an entry, in place of an older entry with the same key. Returns whether there was an older entry.
    ///
    /// # Panics
    ///
    /// May panic in a transaction that only reads.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, StoreError>;

    /// Removes the entry with the key `key` from a table. Returns the entry's value, or `None` if no entry has the key.
    ///
    /// # Panics
    ///
    /// May panic in a transaction that only reads.
    fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
}
