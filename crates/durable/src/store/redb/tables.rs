//! The ledger's tables in transactions of redb.

use super::error::converted;
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use core::cell::{Cell, OnceCell};
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

type Bytes = &'static [u8];

pub(super) fn definition(table: Table) -> TableDefinition<'static, Bytes, Bytes> {
    TableDefinition::new(table.name())
}

/// The tables in a transaction that writes. Each is opened when it is first used.
pub(super) struct Writing<'t> {
    transaction: &'t WriteTransaction,
    tables: [OnceCell<redb::Table<'t, Bytes, Bytes>>; Table::ALL.len()],
    /// The entries that the present request has changed, as they were.
    undo: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
    has_changed: bool,
    has_failed: Cell<bool>,
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

    /// Makes all tables.
    pub(super) fn open_all(&self) -> Result<(), StoreError> {
        Table::ALL.into_iter().try_for_each(|table| self.table(table).map(drop))
    }

    /// Whether the transaction has changed an entry.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether redb has failed, after which the transaction is of no use.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Begins a request, or keeps the entries of the last one.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Takes the entries of the present request back.
    pub(super) fn undo(&mut self) -> Result<(), StoreError> {
        for (table, key, value) in core::mem::take(&mut self.undo).into_iter().rev() {
            match value {
                Some(value) => self.put(table, &key, &value)?,
                None => drop(self.remove(table, &key)?),
            }
        }
        self.undo.clear();
        Ok(())
    }

    fn noted<R>(&self, result: Result<R, impl Into<redb::Error>>) -> Result<R, StoreError> {
        result.map_err(|error| {
            self.has_failed.set(true);
            converted(error)
        })
    }

    fn table(&self, table: Table) -> Result<&redb::Table<'t, Bytes, Bytes>, StoreError> {
        let place = &self.tables[table as usize];
        if let Some(opened) = place.get() {
            return Ok(opened);
        }
        let opened = self.noted(self.transaction.open_table(definition(table)))?;
        Ok(place.get_or_init(|| opened))
    }

    fn table_mut(&mut self, table: Table) -> Result<&mut redb::Table<'t, Bytes, Bytes>, StoreError> {
        self.table(table)?;
        self.tables[table as usize].get_mut().ok_or_else(super::error::lost)
    }
}

impl Tables for Writing<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.noted(self.table(table)?.get(key))?;
        Ok(found.map(|value| value.value().to_vec()))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.noted(scan(self.table(table)?, from, each))
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let before = self.table_mut(table)?.insert(key, value).map(|old| old.map(|old| old.value().to_vec()));
        let before = self.noted(before)?;
        self.has_changed = true;
        self.undo.push((table, key.to_vec(), before));
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        let before = self.table_mut(table)?.remove(key).map(|old| old.map(|old| old.value().to_vec()));
        let before = self.noted(before)?;
        let was_there = before.is_some();
        if was_there {
            self.has_changed = true;
            self.undo.push((table, key.to_vec(), before));
        }
        Ok(was_there)
    }
}

/// The tables in a transaction that reads.
pub(super) struct Reading {
    tables: [OnceCell<Option<ReadOnlyTable<Bytes, Bytes>>>; Table::ALL.len()],
    transaction: ReadTransaction,
}

impl Reading {
    pub(super) fn new(transaction: ReadTransaction) -> Self {
        Self { tables: Default::default(), transaction }
    }

    /// Whether the database has any table.
    pub(super) fn has_tables(&self) -> Result<bool, StoreError> {
        Ok(self.transaction.list_tables().map_err(converted)?.next().is_some())
    }

    fn table(&self, table: Table) -> Result<Option<&ReadOnlyTable<Bytes, Bytes>>, StoreError> {
        let place = &self.tables[table as usize];
        if let Some(opened) = place.get() {
            return Ok(opened.as_ref());
        }
        let opened = match self.transaction.open_table(definition(table)) {
            Ok(opened) => Some(opened),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(converted(error)),
        };
        Ok(place.get_or_init(|| opened).as_ref())
    }
}

impl Tables for Reading {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(table) = self.table(table)? else { return Ok(None) };
        let found = table.get(key).map_err(converted)?;
        Ok(found.map(|value| value.value().to_vec()))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        match self.table(table)? {
            Some(table) => scan(table, from, each).map_err(converted),
            None => Ok(()),
        }
    }

    fn put(&mut self, _: Table, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Err(read_only())
    }

    fn remove(&mut self, _: Table, _: &[u8]) -> Result<bool, StoreError> {
        Err(read_only())
    }
}

fn read_only() -> StoreError {
    StoreError::new(crate::store::StoreErrorKind::ReadOnly, "the transaction reads only")
}

fn scan(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), redb::StorageError> {
    for entry in table.range::<&[u8]>(from..)? {
        let (key, value) = entry?;
        if !each(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}
