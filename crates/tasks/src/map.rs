//! A map that many threads change at the same time. It consists of shards. Each shard is a table behind its own lock.
//!
//! A thread that waits for a lock sleeps. Spinning would be fast until the holder is preempted. With few keys and more
//! threads than cores, some holder is always preempted. There are many shards, so that each table is small. A table
//! grows under its lock, and a small table grows fast.
//!
//! # Under a lock
//! Keys are hashed, compared and cloned under a lock. Closures that are passed to a method run under a lock, too.
//! Entries that are taken out are returned, so that the caller drops them when nothing is locked.
//!
//! # Synchronisation
//! A method on a key takes the lock of the key's shard. A method on the whole map takes the locks of all shards, one
//! after the other, even if a shard is empty. So a [`take_all`](LockedMap::take_all) that begins after an insertion
//! finds the entry. If a `take_all` does not find an entry, the insertion comes later. Then the inserting thread sees
//! everything that happened before the `take_all`.
//!
//! In the child of a fork, a shard stays locked for ever if another thread of the parent held its lock at the fork. A
//! drop must end all the same, so methods for drops get a [`Patience`], and leave such a shard out.

use crate::sync::{Losable, Patience, RwLock, RwLockReadGuard, RwLockWriteGuard, ignore_poison};
use core::borrow::Borrow;
use core::hash::{BuildHasher, Hash};
use hashbrown::HashTable;
use std::hash::RandomState;

/// The default number of shards of a map. Threads that use different shards do not wait for each other.
const SHARDS: usize = 256;

type Table<K, V> = HashTable<(K, V)>;

/// A shard of the map: a table behind a lock. Locking a shard writes to its cache line. No two shards share a cache
/// line, so threads that lock different shards do not slow each other down.
#[repr(align(64))]
struct Shard<K, V>(Losable<RwLock<Table<K, V>>>);

pub(crate) struct LockedMap<K, V> {
    hasher: RandomState,
    shards: Box<[Shard<K, V>]>,
}

/// A guard that gives access to a key's entry. The key's shard stays locked until the guard is dropped.
pub(crate) struct Entry<'a, K, V> {
    table: RwLockWriteGuard<'a, Table<K, V>>,
    hasher: &'a RandomState,
    hash: u64,
}

impl<K: Eq + Hash, V> LockedMap<K, V> {
    pub(crate) fn new() -> Self {
        Self::with_shards(SHARDS)
    }

    /// Makes a map with `shards` shards, which must be a power of two. A map that is rarely used needs only a few
    /// shards.
    pub(crate) fn with_shards(shards: usize) -> Self {
        assert!(shards.is_power_of_two());
        let shards = (0..shards).map(|_| Shard(Losable::new(RwLock::new(HashTable::new())))).collect();
        Self { hasher: RandomState::new(), shards }
    }

    /// Locks the shard of a key, to read or insert the key's entry.
    pub(crate) fn entry<Q: Hash + ?Sized>(&self, key: &Q) -> Entry<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        Entry { table: self.shard(hash).write(), hasher: &self.hasher, hash }
    }

    /// Works as [`entry`](Self::entry), but returns `None` if the shard stays locked for ever in the child of a fork.
    fn entry_unless_lost<Q: Hash + ?Sized>(&self, patience: Patience, key: &Q) -> Option<Entry<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let table = self.shard(hash).write_unless_lost(patience)?;
        Some(Entry { table, hasher: &self.hasher, hash })
    }

    /// Calls `f` with the value of a key, and returns the result of `f`; `None` if the key has no entry. Other threads
    /// may read the entry during the call.
    pub(crate) fn read<Q: Hash + Eq + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let table = self.shard(hash).read();
        table.find(hash, |(other, _)| other.borrow() == key).map(|(_, value)| f(value))
    }

    pub(crate) fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.read(key, |_| ()).is_some()
    }

    /// Removes and returns the entry of a key, if `is_wanted` returns true for its value.
    pub(crate) fn remove_if<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        is_wanted: impl FnOnce(&mut V) -> bool,
    ) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.entry(key).remove_if(key, is_wanted)
    }

    /// Works as [`remove_if`](Self::remove_if), for a drop. If the key's shard stays locked for ever in the child of a
    /// fork, leaves the entry in the map and returns `None`.
    pub(crate) fn remove_if_unless_lost<Q: Hash + Eq + ?Sized>(
        &self,
        patience: Patience,
        key: &Q,
        is_wanted: impl FnOnce(&mut V) -> bool,
    ) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.entry_unless_lost(patience, key)?.remove_if(key, is_wanted)
    }

    pub(crate) fn extract_if(&self, mut is_wanted: impl FnMut(&K, &V) -> bool) -> Vec<(K, V)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            taken.extend(shard.write().extract_if(|(key, value)| is_wanted(key, value)));
        }
        taken
    }

    /// Removes and returns all entries. Leaves out shards that stay locked for ever in the child of a fork.
    pub(crate) fn take_all(&self, patience: Patience) -> Vec<(K, V)> {
        let tables = self.shards.iter().filter_map(|shard| shard.write_unless_lost(patience));
        tables.flat_map(|mut table| core::mem::take(&mut *table)).collect()
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            shard.read().iter().for_each(|(key, value)| f(key, value));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.read().is_empty())
    }

    /// Returns the shard for a hash. The choice uses bits of the hash that the tables ignore. A table uses the lowest
    /// bits and the seven highest.
    fn shard(&self, hash: u64) -> &Shard<K, V> {
        &self.shards[(hash >> 48) as usize & (self.shards.len() - 1)]
    }
}

impl<K: Eq + Hash, V> Entry<'_, K, V> {
    pub(crate) fn get<Q: Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.get_with_key(key).map(|(_, value)| value)
    }

    pub(crate) fn get_with_key<Q: Eq + ?Sized>(&mut self, key: &Q) -> Option<(&K, &mut V)>
    where
        K: Borrow<Q>,
    {
        let entry = self.table.find_mut(self.hash, |(other, _)| other.borrow() == key);
        entry.map(|(key, value)| (&*key, value))
    }

    /// Inserts an entry for a key that has no entry yet.
    pub(crate) fn insert(mut self, key: K, value: V) {
        let Self { table, hasher, hash } = &mut self;
        table.insert_unique(*hash, (key, value), |(key, _)| hasher.hash_one(key));
    }

    fn remove_if<Q: Eq + ?Sized>(mut self, key: &Q, is_wanted: impl FnOnce(&mut V) -> bool) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let mut found = self.table.find_entry(self.hash, |(other, _)| other.borrow() == key).ok()?;
        is_wanted(&mut found.get_mut().1).then(|| found.remove().0)
    }
}

impl<K, V> Shard<K, V> {
    fn read(&self) -> RwLockReadGuard<'_, Table<K, V>> {
        ignore_poison(self.0.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<K, V>> {
        ignore_poison(self.0.write())
    }

    fn write_unless_lost(&self, patience: Patience) -> Option<RwLockWriteGuard<'_, Table<K, V>>> {
        self.0.unless_lost(patience, RwLock::write, RwLock::try_write)
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    fn filled(count: u32) -> LockedMap<u32, u32> {
        let map = LockedMap::new();
        for key in 0..count {
            let mut entry = map.entry(&key);
            assert!(entry.get(&key).is_none());
            entry.insert(key, key + 1);
        }
        map
    }

    #[test]
    fn entries_are_found_changed_and_taken_out() {
        let map = filled(10_000);
        assert_eq!((map.len(), map.is_empty(), map.read(&7, |value| *value)), (10_000, false, Some(8)));
        *map.entry(&7).get(&7).unwrap() = 70;
        assert_eq!(map.remove_if(&7, |value| *value == 8), None);
        assert_eq!(map.remove_if(&7, |value| *value == 70), Some((7, 70)));
        assert!(!map.contains(&7) && map.contains(&8));
        assert_eq!(map.extract_if(|key, _| key % 2 == 0).len(), 5_000);
        let mut sum = 0;
        map.for_each(|_, _| sum += 1);
        assert_eq!(
            (sum, map.take_all(Patience::Endless).len(), map.len(), map.is_empty()),
            (4_999, 4_999, 0, true)
        );
    }

    #[test]
    fn keys_are_spread_over_the_shards() {
        let map = filled(100_000);
        let largest = map.shards.iter().map(|shard| shard.read().len()).max();
        assert!(largest < Some(2 * 100_000 / SHARDS), "{largest:?}");
    }
}
