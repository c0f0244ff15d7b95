//! Stores the ledger's tables in redb.
//!
//! For each key or value of variable length, redb stores the offset of its end in 4 bytes. The keys of most tables, and
//! the values of some, have a fixed length and need no such offset.

use super::error::converted;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::tables::{Table, Tables};
use core::cell::{Cell, OnceCell};
use core::ops::Bound;
use redb::{
    AccessGuard, Key, ReadOnlyTable, ReadTransaction, ReadableTable, StorageError, TableDefinition,
    TableError, Value, WriteTransaction,
};
use std::sync::Arc;

type Bytes = &'static [u8];
/// The bytes of a timer's id.
type Id = &'static [u8; 16];
/// The bytes of a moment and of a timer's id.
type MomentAndId = &'static [u8; 22];

/// A transaction that can open tables of the database.
trait Open {
    type Opened;

    fn open<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Self::Opened, TableError>;
}

/// Opens a table of the database with the right types of keys and values.
fn open<O: Open>(transaction: &O, table: Table) -> Result<O::Opened, TableError> {
    fn definition<K: Key, V: Value>(table: Table) -> TableDefinition<'static, K, V> {
        TableDefinition::new(table.name())
    }
    // redb stores these types in the file, and opens a table only with the same types. A change needs a new schema.
    match table {
        Table::Timers | Table::Quarantine => transaction.open(definition::<Id, Bytes>(table)),
        Table::Keys => transaction.open(definition::<Bytes, Id>(table)),
        Table::Due | Table::Leases | Table::Dead | Table::Forget => {
            transaction.open(definition::<MomentAndId, ()>(table))
        }
        Table::Parked | Table::Labels | Table::Keyless | Table::Stopped => {
            transaction.open(definition::<Bytes, ()>(table))
        }
        Table::Recent => transaction.open(definition::<Id, &'static [u8; 6]>(table)),
        Table::Counts => transaction.open(definition::<Bytes, &'static [u8; 8]>(table)),
        Table::Hours => transaction.open(definition::<&'static [u8; 4], &'static [u8; 8]>(table)),
        Table::Meta => transaction.open(definition::<Bytes, Bytes>(table)),
    }
}

/// Returns whether the length of `bytes` is right for a key or value of the type `T`.
fn fits<T: Value>(bytes: &[u8]) -> bool {
    T::fixed_width().is_none_or(|width| width == bytes.len())
}

fn bytes_of<T: Value>(value: &T::SelfType<'_>) -> Vec<u8> {
    T::as_bytes(value).as_ref().to_vec()
}

/// Reads the entries of an open table, with keys and values as bytes.
trait Entries {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    fn scan(&self, from: &[u8], each: &mut Each<'_>) -> Result<(), StorageError>;

    fn scan_back(&self, below: Option<&[u8]>, each: &mut Each<'_>) -> Result<(), StorageError>;
}

/// The function that a scan calls with each key and value. The scan stops once the function returns false.
type Each<'e> = dyn FnMut(&[u8], &[u8]) -> bool + 'e;

/// Changes the entries of an open table, with keys and values as bytes.
trait EntriesMut: Entries {
    /// Returns whether the lengths of a key and a value are right for the table.
    fn takes(&self, key: &[u8], value: &[u8]) -> bool;

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;
}

fn get<K: Key + 'static, V: Value + 'static>(
    table: &impl ReadableTable<K, V>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StorageError> {
    // redb panics on a key of another length. The table cannot have such a key.
    if !fits::<K>(key) {
        return Ok(None);
    }
    let found = table.get(K::from_bytes(key))?;
    Ok(found.map(|value| bytes_of::<V>(&value.value())))
}

/// Truncates or pads a key to the length of the table's keys. Also returns whether the key was longer. A longer key
/// sorts directly after its truncated form.
fn fitted<K: Key + 'static>(key: &[u8]) -> (Vec<u8>, bool) {
    let width = K::fixed_width().unwrap_or(key.len());
    let mut padded = key.to_vec();
    // The zeros make the least key that begins with these bytes.
    padded.resize(width, 0);
    (padded, key.len() > width)
}

fn scan<K: Key + 'static, V: Value + 'static>(
    table: &impl ReadableTable<K, V>,
    from: &[u8],
    each: &mut Each<'_>,
) -> Result<(), StorageError> {
    let (from, is_longer) = fitted::<K>(from);
    let first = K::from_bytes(&from);
    let first = if is_longer { Bound::Excluded(first) } else { Bound::Included(first) };
    visit(table.range::<K::SelfType<'_>>((first, Bound::Unbounded))?, each)
}

fn scan_back<K: Key + 'static, V: Value + 'static>(
    table: &impl ReadableTable<K, V>,
    below: Option<&[u8]>,
    each: &mut Each<'_>,
) -> Result<(), StorageError> {
    let below = below.map(fitted::<K>);
    let last = match &below {
        Some((below, true)) => Bound::Included(K::from_bytes(below)),
        Some((below, false)) => Bound::Excluded(K::from_bytes(below)),
        None => Bound::Unbounded,
    };
    visit(table.range::<K::SelfType<'_>>((Bound::Unbounded, last))?.rev(), each)
}

fn visit<'t, K: Key + 'static, V: Value + 'static>(
    entries: impl Iterator<Item = Result<(AccessGuard<'t, K>, AccessGuard<'t, V>), StorageError>>,
    each: &mut Each<'_>,
) -> Result<(), StorageError> {
    for entry in entries {
        let (key, value) = entry?;
        let (key, value) = (key.value(), value.value());
        if !each(K::as_bytes(&key).as_ref(), V::as_bytes(&value).as_ref()) {
            break;
        }
    }
    Ok(())
}

impl<K: Key + 'static, V: Value + 'static> Entries for ReadOnlyTable<K, V> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        get(self, key)
    }

    fn scan(&self, from: &[u8], each: &mut Each<'_>) -> Result<(), StorageError> {
        scan(self, from, each)
    }

    fn scan_back(&self, below: Option<&[u8]>, each: &mut Each<'_>) -> Result<(), StorageError> {
        scan_back(self, below, each)
    }
}

impl<K: Key + 'static, V: Value + 'static> Entries for redb::Table<'_, K, V> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        get(self, key)
    }

    fn scan(&self, from: &[u8], each: &mut Each<'_>) -> Result<(), StorageError> {
        scan(self, from, each)
    }

    fn scan_back(&self, below: Option<&[u8]>, each: &mut Each<'_>) -> Result<(), StorageError> {
        scan_back(self, below, each)
    }
}

impl<K: Key + 'static, V: Value + 'static> EntriesMut for redb::Table<'_, K, V> {
    fn takes(&self, key: &[u8], value: &[u8]) -> bool {
        fits::<K>(key) && fits::<V>(value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let before = self.insert(K::from_bytes(key), V::from_bytes(value))?;
        Ok(before.map(|value| bytes_of::<V>(&value.value())))
    }

    fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        if !fits::<K>(key) {
            return Ok(None);
        }
        let before = self.remove(K::from_bytes(key))?;
        Ok(before.map(|value| bytes_of::<V>(&value.value())))
    }
}

/// The tables of the database in a transaction that writes. Each table is opened at its first use.
pub(super) struct Writing<'t> {
    transaction: &'t WriteTransaction,
    tables: [OnceCell<Box<dyn EntriesMut + 't>>; Table::ALL.len()],
    /// The entries that the current request has changed, with their old values. The value is `None` for an entry that
    /// did not exist.
    undo: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
    has_changed: bool,
    has_failed: Cell<bool>,
}

impl<'t> Open for &'t WriteTransaction {
    type Opened = Box<dyn EntriesMut + 't>;

    fn open<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Self::Opened, TableError> {
        Ok(Box::new(self.open_table(definition)?))
    }
}

impl<'t> Writing<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self {
            transaction,
            tables: Default::default(),
            undo: Vec::new(),
            has_changed: false,
            has_failed: Cell::new(false),
        }
    }

    /// Opens all tables, and creates those that do not exist.
    pub(super) fn open_all(&self) -> Result<(), StoreError> {
        Table::ALL.into_iter().try_for_each(|table| self.table(table).map(drop))
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Returns whether redb has failed in this transaction, which then cannot continue.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Keeps the changes so far: [`undo`](Self::undo) reverts only later changes.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Reverts the changes since the last [`keep`](Self::keep): all changed entries get their old values.
    pub(super) fn undo(&mut self) -> Result<(), StoreError> {
        // In the reverse order, an entry that was changed twice gets its oldest value last.
        for (table, key, value) in core::mem::take(&mut self.undo).into_iter().rev() {
            match value {
                Some(value) => drop(self.put(table, &key, &value)?),
                None => drop(self.remove(table, &key)?),
            }
        }
        // `put` and `remove` have noted the reversal itself as changes.
        self.undo.clear();
        Ok(())
    }

    fn noted<R>(&self, result: Result<R, impl Into<redb::Error>>) -> Result<R, StoreError> {
        result.map_err(|error| {
            self.has_failed.set(true);
            converted(error)
        })
    }

    fn table(&self, table: Table) -> Result<&(dyn EntriesMut + 't), StoreError> {
        let place = &self.tables[table as usize];
        if let Some(opened) = place.get() {
            return Ok(&**opened);
        }
        let opened = self.noted(open(&self.transaction, table))?;
        Ok(&**place.get_or_init(|| opened))
    }

    fn table_mut(&mut self, table: Table) -> Result<&mut Box<dyn EntriesMut + 't>, StoreError> {
        self.table(table)?;
        // The error does not occur, because the line above has opened the table.
        self.tables[table as usize].get_mut().ok_or_else(super::error::lost)
    }
}

impl Tables for Writing<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.noted(self.table(table)?.get(key))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.noted(self.table(table)?.scan(from, each))
    }

    fn scan_back(
        &self,
        table: Table,
        below: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.noted(self.table(table)?.scan_back(below, each))
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let opened = self.table_mut(table)?;
        // redb has not failed here, so `has_failed` stays false, and only the present request is undone.
        if !opened.takes(key, value) {
            let message = format!("an entry of {} and {} bytes in table {table:?}", key.len(), value.len());
            return Err(StoreError::new(StoreErrorKind::Corrupt, message));
        }
        let before = opened.put(key, value);
        let before = self.noted(before)?;
        let existed = before.is_some();
        self.has_changed = true;
        self.undo.push((table, key.to_vec(), before));
        Ok(existed)
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let before = self.table_mut(table)?.remove(key);
        let before = self.noted(before)?;
        if before.is_some() {
            self.has_changed = true;
            self.undo.push((table, key.to_vec(), before.clone()));
        }
        Ok(before)
    }
}

/// The tables of the database in a transaction that only reads.
pub(super) struct Reading {
    tables: [OnceCell<Option<Box<dyn Entries>>>; Table::ALL.len()],
    transaction: Arc<ReadTransaction>,
}

impl Open for ReadTransaction {
    type Opened = Box<dyn Entries>;

    fn open<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Self::Opened, TableError> {
        Ok(Box::new(self.open_table(definition)?))
    }
}

impl Reading {
    pub(super) fn new(transaction: ReadTransaction) -> Self {
        Self::of(Arc::new(transaction))
    }

    /// Makes the tables of a read transaction that may be shared with other readers.
    pub(super) fn of(transaction: Arc<ReadTransaction>) -> Self {
        Self { tables: Default::default(), transaction }
    }

    pub(super) fn has_tables(&self) -> Result<bool, StoreError> {
        Ok(self.transaction.list_tables().map_err(converted)?.next().is_some())
    }

    fn table(&self, table: Table) -> Result<Option<&dyn Entries>, StoreError> {
        let place = &self.tables[table as usize];
        if let Some(opened) = place.get() {
            return Ok(opened.as_deref());
        }
        let opened = match open(&*self.transaction, table) {
            Ok(opened) => Some(opened),
            // A new database has no tables yet.
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(converted(error)),
        };
        Ok(place.get_or_init(|| opened).as_deref())
    }
}

impl Tables for Reading {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(table) = self.table(table)? else { return Ok(None) };
        table.get(key).map_err(converted)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        match self.table(table)? {
            Some(table) => table.scan(from, each).map_err(converted),
            None => Ok(()),
        }
    }

    fn scan_back(
        &self,
        table: Table,
        below: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        match self.table(table)? {
            Some(table) => table.scan_back(below, each).map_err(converted),
            None => Ok(()),
        }
    }

    fn put(&mut self, _: Table, _: &[u8], _: &[u8]) -> Result<bool, StoreError> {
        Err(read_only())
    }

    fn remove(&mut self, _: Table, _: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Err(read_only())
    }
}

fn read_only() -> StoreError {
    StoreError::new(StoreErrorKind::ReadOnly, "the transaction reads only")
}
