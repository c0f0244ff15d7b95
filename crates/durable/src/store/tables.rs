//! Ordered tables of bytes: all that the ledger needs of a store's transaction.

use super::error::StoreError;

/// The tables of the ledger. Each variant shows an entry as "key: value", or as the key alone if its value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Table {
    /// Id: record.
    Timers,
    /// Namespace, key: id.
    Keys,
    /// Due moment, id, of pending timers.
    Due,
    /// End of the lease, id.
    Leases,
    /// Reason, due moment, id, of parked timers.
    Parked,
    /// Moment of death, id.
    Dead,
    /// Namespace, label, id.
    Labels,
    /// Namespace, id, of timers that own no key and are not dead. With the keys they are all timers of a namespace but
    /// the dead.
    Keyless,
    /// Namespace, phase, and the key in the table of the phase, of parked and dead timers.
    Stopped,
    /// Id, of ended timers whose callers chose their ids: the moment until which the id is remembered.
    Recent,
    /// Moment until which an id is remembered, id.
    Forget,
    /// Namespace, phase: number of timers.
    Counts,
    /// Hour of UTC: number of pending timers that are due in it.
    Hours,
    /// Id: the bytes of a record that could not be read.
    Quarantine,
    /// Name: a value of the store itself, such as its version.
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

/// Reads and writes the tables within one transaction.
pub(crate) trait Tables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Calls `each` for the entries with keys from `from` on, in order, until it returns false.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Calls `each` for the entries with keys below `below`, all if it is `None`, from the last entry back, until it
    /// returns false.
    fn scan_back(
        &self,
        table: Table,
        below: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;

    /// Stores an entry, in place of an older entry with this key.
    ///
    /// # Panics
    ///
    /// May panic in a transaction that only reads.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Removes an entry. Returns its value, if there was one.
    ///
    /// # Panics
    ///
    /// May panic in a transaction that only reads.
    fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
}
