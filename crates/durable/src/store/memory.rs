//! Keeps timers in memory, for tests.

use super::error::StoreError;
use super::fault::Fault;
use super::horizon::Horizon;
use super::ledger::{LOOKS, Ledger, Turns};
use super::tables::{Table, Tables};
use super::{
    Claimant, Claimed, Counts, Cursor, Durability, Filter, Leased, Limit, Op, Outcome, Page, Reaped, Reasons,
    Renewal, Shares, StoreFuture, TimerStore,
};
use crate::clock::WallClock;
use crate::state::Token;
use crate::timer::{Address, Timer, TimerId};
use core::fmt;
use core::ops::Bound;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tourbillon::Clock;
use tourbillon_words::UtcMillis;

/// A store in memory, for tests. With a manual clock, a test can advance the store's time by years at once. All timers
/// are lost when the store is dropped. The store ignores the requested durability.
pub struct MemoryStore {
    tables: Mutex<InMemory>,
    clock: Arc<dyn Clock>,
    wakers: Arc<Wakers>,
}

/// The functions that a store calls when a timer may be due earlier than the last claim has reported.
#[derive(Default)]
pub(crate) struct Wakers(RwLock<Vec<Box<dyn Fn() + Send + Sync>>>);

impl Wakers {
    pub(crate) fn add(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    pub(crate) fn wake(&self) {
        for wake in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }
}

type Sorted = BTreeMap<Vec<u8>, Vec<u8>>;

/// The tables of a store in memory. For a rollback, `changed` has the old values of the entries that the current
/// transaction has changed.
#[derive(Default)]
struct InMemory {
    tables: [Sorted; Table::ALL.len()],
    changed: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
    turns: Turns,
}

impl InMemory {
    fn roll_back(&mut self) {
        while let Some((table, key, value)) = self.changed.pop() {
            // The last change is undone first, so an entry that has changed several times gets its first value.
            let _changed = match value {
                Some(value) => self.tables[table as usize].insert(key, value),
                None => self.tables[table as usize].remove(&key),
            };
        }
    }
}

impl Tables for &mut InMemory {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.tables[table as usize].get(key).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let from = (Bound::Included(from), Bound::Unbounded);
        let _stopped =
            self.tables[table as usize].range::<[u8], _>(from).all(|(key, value)| each(key, value));
        Ok(())
    }

    fn scan_back(
        &self,
        table: Table,
        below: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let below = (Bound::Unbounded, below.map_or(Bound::Unbounded, Bound::Excluded));
        let mut entries = self.tables[table as usize].range::<[u8], _>(below).rev();
        let _stopped = entries.all(|(key, value)| each(key, value));
        Ok(())
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let before = self.tables[table as usize].insert(key.to_vec(), value.to_vec());
        let existed = before.is_some();
        self.changed.push((table, key.to_vec(), before));
        Ok(existed)
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let before = self.tables[table as usize].remove(key);
        self.changed.push((table, key.to_vec(), before.clone()));
        Ok(before)
    }
}

/// Makes an empty store on the [`WallClock`].
impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(WallClock::new())
    }
}

impl MemoryStore {
    /// Makes an empty store with a clock that counts from the start of 1970.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::ManualClock;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::store::{MemoryStore, TimerStore as _};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::new(clock.clone());
    /// let before = store.now();
    /// clock.advance(Duration::from_secs(365 * 86_400));
    /// assert_eq!(store.now() - before, Duration::from_secs(365 * 86_400));
    /// ```
    pub fn new(clock: impl Clock + 'static) -> Self {
        let wakers = Arc::new(Wakers::default());
        let on_step = Arc::downgrade(&wakers);
        // The clock may outlive the store. The clock drops the function once the function has returned false.
        clock.subscribe(Box::new(move || on_step.upgrade().inspect(|wakers| wakers.wake()).is_some()));
        Self { tables: Mutex::default(), clock: Arc::new(clock), wakers }
    }

    fn lock(&self) -> MutexGuard<'_, InMemory> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the transaction `act`, which does not claim timers with shares. Only such a claim needs the store's
    /// [`Turns`] (the record of how far claims have read the index).
    fn transact<R>(
        &self,
        act: impl FnOnce(&mut Ledger<&mut InMemory>) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.transact_in_turn(|ledger, _| act(ledger))
    }

    /// Runs the transaction `act` with the store's [`Turns`] (the record of how far claims have read the index). If
    /// `act` fails, undoes the changes of `act` and resets the turns.
    fn transact_in_turn<R>(
        &self,
        act: impl FnOnce(&mut Ledger<&mut InMemory>, &mut Turns) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let mut tables = self.lock();
        // If the last transaction panicked, its changes are undone here.
        tables.roll_back();
        // If `act` panics, the turns stay empty, and the next claim reads the index from its start.
        let mut turns = core::mem::take(&mut tables.turns);
        let mut ledger = Ledger::new(&mut *tables, self.now());
        ledger.follow(turns.moment());
        let result = act(&mut ledger, &mut turns).and_then(|result| Ok((result, ledger.finish()?.1)));
        match result {
            Ok((result, made_due)) => {
                let wakes = made_due.first.is_some();
                turns.note(made_due);
                tables.turns = turns;
                tables.changed.clear();
                // A waker is foreign code and may call the store, so the lock is released first.
                drop(tables);
                if wakes {
                    self.wakers.wake();
                }
                Ok(result)
            }
            // The turns stay empty, so the next claim reads the index from its start.
            Err(error) => {
                tables.roll_back();
                Err(error)
            }
        }
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(core::future::ready(result))
}

impl TimerStore for MemoryStore {
    fn now(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.clock.true_now().as_nanos())
    }

    fn apply(&self, ops: Vec<Op>, _: Durability) -> StoreFuture<'_, Vec<Outcome>> {
        ready(self.transact(|ledger| ops.into_iter().map(|op| ledger.apply(op)).collect()))
    }

    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed> {
        ready(self.transact_in_turn(|ledger, turns| {
            let chosen = ledger.choose(turns, limit, shares.as_ref())?;
            let claimed = ledger.claim(by, claim, &chosen.entries, limit.bytes)?;
            Ok(Claimed { next_claim: chosen.next, ..claimed })
        }))
    }

    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>> {
        ready(self.transact(|ledger| ledger.recover(by, claim)))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal> {
        ready(self.transact(|ledger| ledger.renew(by, leases)))
    }

    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped> {
        ready(self.transact(|ledger| ledger.reap(limit)))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>> {
        ready(self.transact(|ledger| ledger.upcoming(from, until, limit)))
    }

    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>> {
        ready(self.transact(|ledger| ledger.get(&at)))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page> {
        ready(self.transact(|ledger| ledger.list(&filter, cursor.as_ref(), limit)))
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        ready(self.transact(|ledger| ledger.reasons(after.as_ref(), limit)))
    }

    fn counts(&self) -> StoreFuture<'_, Counts> {
        ready(self.transact(|ledger| ledger.counts()))
    }

    fn horizon(&self) -> StoreFuture<'_, Horizon> {
        ready(self.transact(|ledger| ledger.horizon(LOOKS)))
    }

    fn check(&self) -> StoreFuture<'_, Vec<Fault>> {
        ready(self.transact(|ledger| ledger.check()))
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()> {
        ready(self.transact(|ledger| ledger.each(each)))
    }

    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()> {
        ready(self.transact(|ledger| ledger.import(timers)))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.wakers.add(wake);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("timers", &self.lock().tables[Table::Timers as usize].len())
            .finish()
    }
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "horizon_tests.rs"]
mod horizon_tests;
