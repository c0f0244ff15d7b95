//! Computes the effect of operations without access to the stored data, for stores on a server.
//!
//! A store on a server cannot lock the server's data while it computes the effect of an operation. So the store reads
//! the few timers that the operation names, and gives them to a [`DryRun`]. The dry run computes the effect, and the
//! store sends the [`Changes`] to the server. The server makes the changes only if the given timers have not changed
//! since they were read. If a timer has changed, the store reads the timers again and repeats the dry run. So the same
//! code computes the effect of an operation in every store.
//!
//! A dry run assumes that timers which it was not given do not exist. The changes list these assumptions, and the
//! server verifies them.
//!
//! ```
//! use tourbillon_durable::store::dry_run::DryRun;
//! use tourbillon_durable::store::{Op, Outcome};
//! use tourbillon_durable::timer::{Timer, TimerId};
//! use tourbillon_durable::UtcMillis;
//!
//! let now = UtcMillis::from_millis(1_800_000_000_000);
//! let timer = Timer::new(TimerId::from_u128(7), "mail", now);
//! let mut dry_run = DryRun::new(now);
//! dry_run.know(&timer);
//! let (outcome, changes) = dry_run.apply(Op::Cancel(timer.id.into(), None))?;
//! assert_eq!(outcome, Outcome::Cancelled(Box::new(timer.clone())));
//! let [change] = &changes.timers[..] else { panic!("one timer changes") };
//! assert_eq!((change.before.as_ref(), change.after.as_ref()), (Some(&timer), None));
//! # Ok::<(), tourbillon_durable::store::StoreError>(())
//! ```

use super::error::StoreError;
use super::ledger::{Ledger, entries, key_of, moment_of};
use super::tables::{Table, Tables};
use super::{Op, Outcome, Reaped};
use crate::record;
use crate::timer::{KeyOf, Timer, TimerId};
use core::cell::RefCell;
use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_words::UtcMillis;

/// The version of the records (encoded timers) that [`encode`] writes. [`decode`] reads no other version. If processes
/// of several versions share a store, the store must keep the records of each version in a separate place.
pub const RECORD_VERSION: u8 = record::VERSION;

/// Encodes a timer as a record, the bytes that a store keeps. The record does not contain the timer's id.
///
/// ```
/// # use tourbillon_durable::UtcMillis;
/// # use tourbillon_durable::store::dry_run;
/// # use tourbillon_durable::timer::{Timer, TimerId};
/// # let due = UtcMillis::from_millis(1_900_000_000_000);
/// # let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", due) };
/// let record = dry_run::encode(&timer);
/// assert_eq!(dry_run::decode(timer.id, &record), Some(timer));
/// ```
#[must_use]
pub fn encode(timer: &Timer) -> Vec<u8> {
    record::encode(timer)
}

/// Decodes the record of the timer `id`. `None` if the record is not readable.
#[must_use]
pub fn decode(id: TimerId, record: &[u8]) -> Option<Timer> {
    record::decode(id, record).ok()
}

/// Checks the arguments of an operation. A store calls this function for all operations of a batch before it applies
/// the first operation.
///
/// # Errors
///
/// Fails with [`StoreErrorKind::Limit`](super::StoreErrorKind::Limit) if an argument exceeds a limit, if a text has a
/// zero byte, or if a new timer is neither pending nor parked.
pub fn admit(op: &Op) -> Result<(), StoreError> {
    super::ledger::admit(op)
}

/// Checks a timer of a backup. A store calls this function for all timers of an import before it sends their texts to a
/// server.
///
/// # Errors
///
/// Fails with [`StoreErrorKind::Limit`](super::StoreErrorKind::Limit) if a field exceeds a limit, or if a text has a
/// zero byte. The error names the timer.
pub fn admit_import(timer: &Timer) -> Result<(), StoreError> {
    super::ledger::admit_import(timer)
}

/// Computes the outcomes of operations on a store, and the changes that they make. The caller supplies the stored
/// timers that the operations name.
#[derive(Debug)]
pub struct DryRun {
    now: UtcMillis,
    tables: KnownTables,
    before: BTreeMap<TimerId, Timer>,
    remembered: BTreeMap<TimerId, UtcMillis>,
}

/// The changes that operations make to a store, and the assumptions under which these changes are correct. The store
/// sends this value to its server. The server verifies the assumptions, and then makes the changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The timers that the server must change. First, the server must verify that the timers given to the dry run have
    /// not changed since the store read them. It must verify all given timers, including the timers that the operations
    /// do not change. Such timers are not in this list.
    pub timers: Vec<Change>,
    /// The ids of timers that the dry run assumes not to exist. The server must verify that no timer has such an id.
    pub absent: Vec<TimerId>,
    /// The keys that the dry run assumes to be free. The server must verify that no timer owns such a key.
    pub free: Vec<KeyOf>,
    /// Ids of ended timers. The dry run assumes that the server does not remember them, and the server must verify
    /// this.
    pub forgotten: Vec<TimerId>,
    /// The ids of ended timers that the server must remember, each until the given moment.
    pub remember: Vec<(TimerId, UtcMillis)>,
    /// The ids of ended timers that the server must forget.
    pub forget: Vec<TimerId>,
}

/// The change of one timer.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The timer before the change, as the caller gave it to the dry run. `None` for a new timer.
    pub before: Option<Timer>,
    /// The timer that the server must store. `None` if the server must remove the timer.
    pub after: Option<Timer>,
}

impl DryRun {
    /// Starts a dry run at the store's time `now`. The dry run knows no stored timers yet.
    #[must_use]
    pub fn new(now: UtcMillis) -> Self {
        Self { now, tables: KnownTables::default(), before: BTreeMap::new(), remembered: BTreeMap::new() }
    }

    /// Gives a stored timer to the dry run.
    pub fn know(&mut self, timer: &Timer) {
        for (table, key, value) in entries(timer) {
            self.tables.entries[table as usize].insert(key, value);
        }
        self.before.insert(timer.id, timer.clone());
    }

    /// Gives the dry run the id of an ended timer. The store remembers the id until the moment `until`.
    pub fn know_remembered(&mut self, id: TimerId, until: UtcMillis) {
        let key = id.as_u128().to_be_bytes();
        // The ledger stores a moment in six bytes.
        let moment = until.as_millis().to_be_bytes();
        self.tables.entries[Table::Recent as usize].insert(key.to_vec(), moment[2..].to_vec());
        self.remembered.insert(id, until);
    }

    /// Computes the outcome of an operation, and the changes that it makes.
    ///
    /// # Errors
    ///
    /// Fails if an argument of the operation exceeds a limit.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::store::dry_run;
    /// # use tourbillon_durable::timer::{Timer, TimerId};
    /// # let due = UtcMillis::from_millis(1_900_000_000_000);
    /// # let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", due) };
    /// use tourbillon_durable::store::dry_run::DryRun;
    /// use tourbillon_durable::store::{Op, Outcome};
    ///
    /// let mut dry_run = DryRun::new(due);
    /// dry_run.know(&timer);
    /// let (outcome, changes) = dry_run.apply(Op::Cancel("order 17".into(), None))?;
    /// assert!(matches!(outcome, Outcome::Cancelled(_)));
    /// assert_eq!((&changes.timers[0].before, &changes.timers[0].after), (&Some(timer), &None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply(mut self, op: Op) -> Result<(Outcome, Changes), StoreError> {
        // The end of a transaction (`Ledger::finish`) would only write counts, and `Changes` has no counts.
        let outcome = Ledger::new(&mut self.tables, self.now).apply(op)?;
        Ok((outcome, self.changes()))
    }

    /// Computes the outcomes of several operations, and the changes that they make together. The operations are applied
    /// in order, as one transaction.
    ///
    /// # Errors
    ///
    /// Fails if an argument of an operation exceeds a limit.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::store::dry_run;
    /// # use tourbillon_durable::timer::{Timer, TimerId};
    /// # let due = UtcMillis::from_millis(1_900_000_000_000);
    /// # let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", due) };
    /// use tourbillon_durable::store::dry_run::DryRun;
    /// use tourbillon_durable::store::{IfPresent, Op};
    ///
    /// let id = timer.id;
    /// let ops = vec![Op::Place(Box::new(timer), IfPresent::Reject), Op::Cancel(id.into(), None)];
    /// let (outcomes, changes) = DryRun::new(due).apply_all(ops)?;
    /// assert_eq!(outcomes.len(), 2);
    /// assert_eq!(changes.free.len(), 1, "the dry run took for granted that the key is free");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply_all(mut self, ops: Vec<Op>) -> Result<(Vec<Outcome>, Changes), StoreError> {
        let mut ledger = Ledger::new(&mut self.tables, self.now);
        let outcomes: Result<Vec<_>, StoreError> = ops.into_iter().map(|op| ledger.apply(op)).collect();
        drop(ledger);
        Ok((outcomes?, self.changes()))
    }

    /// Computes the changes that end the expired leases of the timers that the dry run was given.
    ///
    /// # Errors
    ///
    /// Fails only because of a bug in this crate.
    pub fn reap(mut self) -> Result<(Reaped, Changes), StoreError> {
        let reaped = Ledger::new(&mut self.tables, self.now).reap(u32::MAX)?;
        Ok((reaped, self.changes()))
    }

    /// Computes the changes that import the timers of a backup, as [`TimerStore::import`](super::TimerStore::import)
    /// describes.
    ///
    /// # Errors
    ///
    /// Fails if a field of a timer exceeds a limit, or if a timer has the id or the key of a timer that the dry run
    /// knows.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::store::dry_run;
    /// # use tourbillon_durable::timer::{Timer, TimerId};
    /// # let due = UtcMillis::from_millis(1_900_000_000_000);
    /// # let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", due) };
    /// use tourbillon_durable::store::dry_run::DryRun;
    ///
    /// let changes = DryRun::new(due).import(vec![timer.clone()])?;
    /// assert_eq!(changes.timers[0].after, Some(timer));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn import(mut self, timers: Vec<Timer>) -> Result<Changes, StoreError> {
        Ledger::new(&mut self.tables, self.now).import(timers)?;
        Ok(self.changes())
    }

    fn changes(self) -> Changes {
        let asked = self.tables.asked.take();
        let mut after: BTreeMap<TimerId, Timer> = BTreeMap::new();
        for (key, record) in &self.tables.entries[Table::Timers as usize] {
            let id = id_of(key);
            if let Some(timer) = decode(id, record) {
                after.insert(id, timer);
            }
        }
        let mut timers = Vec::new();
        for (id, timer) in &self.before {
            let after = after.remove(id);
            if after.as_ref() != Some(timer) {
                timers.push(Change { before: Some(timer.clone()), after });
            }
        }
        // An operation may look for a timer that an earlier operation has removed. The server still has this timer.
        let mut absent: BTreeSet<TimerId> =
            asked.timers.into_iter().filter(|id| !self.before.contains_key(id)).collect();
        for (id, timer) in after {
            // A new timer must not overwrite a stored timer, even if no operation has looked for its id.
            absent.insert(id);
            timers.push(Change { before: None, after: Some(timer) });
        }
        // An earlier operation may have taken the key from a given timer. The server verifies the given timer, so it
        // need not verify the key.
        let is_known = |key: &KeyOf| {
            self.before.values().any(|timer| timer.owns_key() && timer.key_of().as_ref() == Some(key))
        };
        let free = asked.keys.into_iter().filter(|key| !is_known(key)).collect();
        let is_remembered = |id: &TimerId| self.remembered.contains_key(id);
        let forgotten = asked.remembered.into_iter().filter(|id| !is_remembered(id)).collect();
        let recent: BTreeMap<TimerId, UtcMillis> = self.tables.entries[Table::Recent as usize]
            .iter()
            .map(|(key, until)| (id_of(key), moment_of(until)))
            .collect();
        let is_new = |(id, until): &(&TimerId, &UtcMillis)| self.remembered.get(id) != Some(until);
        let remember = recent.iter().filter(is_new).map(|(id, until)| (*id, *until)).collect();
        let mut forget: Vec<TimerId> =
            self.remembered.keys().filter(|id| !recent.contains_key(id)).copied().collect();
        // The dry run has removed these ids without reading them. The server may still remember them, so it must forget
        // them.
        forget.extend(asked.removed.into_iter().filter(|id| !recent.contains_key(id)));
        forget.sort_unstable();
        forget.dedup();
        Changes { timers, absent: absent.into_iter().collect(), free, forgotten, remember, forget }
    }
}

fn id_of(key: &[u8]) -> TimerId {
    let bytes: [u8; 16] = key.try_into().unwrap_or_default();
    TimerId::from_u128(u128::from_be_bytes(bytes))
}

/// The table entries that the dry run works on. At first, `entries` has the entries of the timers and ids that the dry
/// run was given. The operations change these entries. `asked` has the entries that the operations have looked for and
/// not found.
#[derive(Debug, Default)]
struct KnownTables {
    entries: [BTreeMap<Vec<u8>, Vec<u8>>; Table::ALL.len()],
    asked: RefCell<Missed>,
}

/// The table entries that the dry run has looked for and not found. `timers`, `keys` and `remembered` are the entries
/// that the dry run tried to read. The dry run assumes that the store does not have these entries, and [`Changes`]
/// lists the assumptions. `remembered` and `removed` are about the table of the ids of ended timers, which a store
/// remembers for some time. `removed` has the ids that the dry run tried to remove from this table.
/// [`Changes::forget`] includes these ids, because the server may still remember them.
#[derive(Debug, Default)]
struct Missed {
    timers: BTreeSet<TimerId>,
    keys: BTreeSet<KeyOf>,
    remembered: BTreeSet<TimerId>,
    removed: Vec<TimerId>,
}

impl Tables for &mut KnownTables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.entries[table as usize].get(key).cloned();
        if found.is_none() {
            let mut asked = self.asked.borrow_mut();
            match table {
                Table::Timers => drop(asked.timers.insert(id_of(key))),
                Table::Keys => drop(key_of(key).map(|key| asked.keys.insert(key))),
                Table::Recent => drop(asked.remembered.insert(id_of(key))),
                _ => {}
            }
        }
        Ok(found)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        // A scan adds no assumption. An operation on a label or a reason applies to the timers that the caller has
        // found for it.
        let from = (Bound::Included(from), Bound::Unbounded);
        let mut entries = self.entries[table as usize].range::<[u8], _>(from);
        let _stopped = entries.all(|(key, value)| each(key, value));
        Ok(())
    }

    fn scan_back(
        &self,
        table: Table,
        below: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let below = (Bound::Unbounded, below.map_or(Bound::Unbounded, Bound::Excluded));
        let mut entries = self.entries[table as usize].range::<[u8], _>(below).rev();
        let _stopped = entries.all(|(key, value)| each(key, value));
        Ok(())
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        Ok(self.entries[table as usize].insert(key.to_vec(), value.to_vec()).is_some())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let removed = self.entries[table as usize].remove(key);
        if table == Table::Recent && removed.is_none() {
            self.asked.get_mut().removed.push(id_of(key));
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MissedInstants, Plan, Series};
    use crate::state::{Lease, Phase, State, Token};
    use crate::store::IfPresent;
    use core::time::Duration;

    const NOW: UtcMillis = UtcMillis::from_millis(1_800_000_000_000);
    const TOKEN: Token = Token { incarnation: 1, claim: 2 };

    fn timer(id: u128) -> Timer {
        Timer { key: Some("k".into()), ..Timer::new(TimerId::from_u128(id), "test", NOW) }
    }

    fn key() -> KeyOf {
        KeyOf { namespace: "".into(), key: "k".into() }
    }

    #[test]
    fn a_creation_guesses_that_id_key_and_memory_are_free() {
        let new = timer(1);
        let op = Op::Place(Box::new(new.clone()), IfPresent::Reject);
        let (outcome, changes) = DryRun::new(NOW).apply(op).unwrap();
        assert_eq!(outcome, Outcome::Created(new.id));
        let after = Some(Timer { created: NOW, ..new.clone() });
        assert_eq!(changes.timers, [Change { before: None, after }]);
        assert_eq!((&changes.absent[..], &changes.free[..]), (&[new.id][..], &[key()][..]));
        assert_eq!(changes.forgotten, [new.id]);
    }

    #[test]
    fn what_is_known_is_no_guess() {
        let (old, new) = (timer(1), timer(2));
        let mut dry_run = DryRun::new(NOW);
        dry_run.know(&old);
        let (outcome, changes) = dry_run.apply(Op::Place(Box::new(new.clone()), IfPresent::Replace)).unwrap();
        assert_eq!(outcome, Outcome::Replaced { new: new.id, old: old.id, was: Phase::Pending });
        assert_eq!((changes.timers.len(), &changes.absent[..], changes.free), (2, &[new.id][..], vec![]));
        let mut dry_run = DryRun::new(NOW);
        dry_run.know_remembered(new.id, NOW + Duration::from_secs(1));
        let (outcome, changes) = dry_run.apply(Op::Place(Box::new(new.clone()), IfPresent::Reject)).unwrap();
        assert_eq!((outcome, changes.timers, changes.forget), (Outcome::Repeated(new.id), vec![], vec![]));
    }

    #[test]
    fn an_end_stores_the_next_occurrence_and_remembers_a_chosen_id() {
        let lease = Lease { token: TOKEN, until: NOW, withdrawn: None };
        let series = Series {
            id: TimerId::from_u128(9),
            plan: Plan::Every(1_000),
            missed: MissedInstants::Skip,
            end: None,
            paused: false,
        };
        let leased = Timer {
            series: Some(series),
            has_chosen_id: true,
            deliveries: 1,
            state: State::Leased(lease),
            ..timer(1)
        };
        let mut dry_run = DryRun::new(NOW);
        dry_run.know(&leased);
        let (outcome, changes) = dry_run.apply(Op::Ack(leased.id, TOKEN)).unwrap();
        let Outcome::Ended { next: Some(next), .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(changes.absent, [next]);
        assert_eq!(changes.remember, [(leased.id, NOW + Duration::from_secs(3_600))]);
        assert_eq!(changes.timers.len(), 2);
        let mut dry_run = DryRun::new(NOW);
        dry_run.know(&leased);
        let (reaped, _) = dry_run.reap().unwrap();
        assert_eq!(reaped.returned, [leased.id]);
    }
}
