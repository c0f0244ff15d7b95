//! The meaning of the operations on ordered tables: which entries each timer has, and what an operation makes of them.
//!
//! A ledger lives as long as one transaction. A store that offers ordered tables gets its behaviour from here; it adds
//! the transaction, the durability and the clock.
//!
//! # Invariants
//! L1. A stored timer has the entries that [`entries`] lists, and no others: one record, one entry by its phase, one for
//!     each label, and one for its key if it owns the key.
//! L2. A timer owns its key unless it is dead or withdrawn. Of one key there is one owner.
//! L3. The counts are the numbers of records by namespace and phase.

use super::error::{StoreError, StoreErrorKind};
use super::fault::Fault;
use super::filter::{Cursor, Filter, Page};
use super::tables::{Table, Tables};
use super::{Claimant, Claimed, Counts, IfPresent, Leased, LeftOut, Limit, Op, Outcome, Reaped};
use crate::record::{self, Unreadable};
use crate::state::{
    Death, DeathReason, End, Event, Lease, Next, Phase, Refusal, State, Token, Withdrawal, step,
};
use crate::timer::{Address, Timer, TimerId};
use crate::utc::UtcMillis;
use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

/// The time for which the id of an ended timer is remembered, if its caller chose the id.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Ids that are forgotten in one transaction, so that none takes long.
const FORGOTTEN_AT_ONCE: usize = 100;
/// Entries that a list looks at for one page, for each timer that was asked for.
const LOOKS: usize = 10;
/// The reason for which paused timers are parked.
pub const PAUSED: &str = "paused";
/// The name of the number of records that were set aside.
const QUARANTINED: &[u8] = b"quarantined";
/// Faults after which a check stops.
const MOST_FAULTS: usize = 1_000;

/// The timers of a store within one transaction.
pub(crate) struct Ledger<T> {
    tables: T,
    now: UtcMillis,
    /// The changes of the counts.
    counted: BTreeMap<(Box<str>, Phase), i64>,
    quarantined: u32,
    /// The earliest moment for which the transaction has made a timer due.
    first_due: Option<UtcMillis>,
}

/// What a ledger had noted before a request, apart from the tables.
pub(crate) struct Noted {
    counted: BTreeMap<(Box<str>, Phase), i64>,
    quarantined: u32,
}

type Entry = (Table, Vec<u8>, Vec<u8>);

fn id_bytes(id: TimerId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

/// Moments in 6 bytes, which hold the year 9999.
fn moment_bytes(moment: UtcMillis) -> [u8; 6] {
    let bytes = moment.as_millis().to_be_bytes();
    [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

fn moment_of(bytes: &[u8]) -> UtcMillis {
    let mut all = [0; 8];
    for (to, from) in all[2..].iter_mut().zip(bytes) {
        *to = *from;
    }
    UtcMillis::from_millis(u64::from_be_bytes(all))
}

/// The id at the end of an entry's key.
fn id_at_end(key: &[u8]) -> Option<TimerId> {
    let (_, id) = key.split_last_chunk::<16>()?;
    Some(TimerId::from_u128(u128::from_be_bytes(*id)))
}

/// A text that is followed by other parts of a key: with its length, so that no text is the beginning of another one.
fn part(text: &str) -> Vec<u8> {
    let mut part = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
    part.extend_from_slice(text.as_bytes());
    part
}

fn key_key(namespace: &str, key: &str) -> Vec<u8> {
    [&part(namespace), key.as_bytes()].concat()
}

fn label_key(namespace: &str, label: &str) -> Vec<u8> {
    [part(namespace), part(label)].concat()
}

fn count_key(namespace: &str, phase: Phase) -> Vec<u8> {
    [namespace.as_bytes(), &[phase as u8]].concat()
}

/// Returns an error if the operation has an argument beyond a limit, or one that no store can keep. A store that
/// gathers operations of several callers into one transaction looks at them before: the error of one caller is not the
/// others'.
pub(crate) fn admit(op: &Op) -> Result<(), StoreError> {
    match op {
        Op::Place(timer, _) => match timer.state {
            State::Pending | State::Parked(_) => admit_timer(timer),
            _ => Err(StoreError::new(StoreErrorKind::Limit, "a new timer is pending or parked")),
        },
        Op::Park(_, _, reason) => admit_text("the reason to park", reason),
        _ => Ok(()),
    }
}

fn admit_timer(timer: &Timer) -> Result<(), StoreError> {
    admit_text("the namespace", &timer.namespace)?;
    if let State::Parked(reason) = &timer.state {
        admit_text("the reason to park", reason)?;
    }
    timer.labels.iter().try_for_each(|label| admit_text("a label", label))
}

/// Texts within the keys of tables have one byte for their lengths.
fn admit_text(what: &str, text: &str) -> Result<(), StoreError> {
    if text.len() > usize::from(u8::MAX) {
        let message = format!("{what} has {} bytes, the most are 255", text.len());
        return Err(StoreError::new(StoreErrorKind::Limit, message));
    }
    Ok(())
}

/// All entries of a timer (L1).
fn entries(timer: &Timer) -> Vec<Entry> {
    let id = id_bytes(timer.id);
    let mut entries = vec![(Table::Timers, id.to_vec(), record::encode(timer))];
    let (table, before) = match &timer.state {
        State::Pending => (Table::Due, moment_bytes(timer.due).to_vec()),
        State::Leased(lease) => (Table::Leases, moment_bytes(lease.until).to_vec()),
        State::Parked(reason) => (Table::Parked, [&part(reason)[..], &moment_bytes(timer.due)].concat()),
        State::Dead(death) => (Table::Dead, moment_bytes(death.at).to_vec()),
    };
    entries.push((table, [&before[..], &id].concat(), Vec::new()));
    for (nth, label) in timer.labels.iter().enumerate() {
        if timer.labels[..nth].contains(label) {
            continue;
        }
        entries.push((Table::Labels, [&label_key(&timer.namespace, label)[..], &id].concat(), Vec::new()));
    }
    if let Some(key) = timer.key.as_ref().filter(|_| timer.owns_key()) {
        entries.push((Table::Keys, key_key(&timer.namespace, key), id.to_vec()));
    }
    entries
}

impl<T: Tables> Ledger<T> {
    pub(crate) fn new(tables: T, now: UtcMillis) -> Self {
        Self { tables, now, counted: BTreeMap::new(), quarantined: 0, first_due: None }
    }

    /// Writes the counts. Returns the tables, and the earliest moment for which the transaction has made a timer due.
    pub(crate) fn finish(mut self) -> Result<(T, Option<UtcMillis>), StoreError> {
        for ((namespace, phase), change) in core::mem::take(&mut self.counted) {
            if change != 0 {
                let key = count_key(&namespace, phase);
                let count = self.count_at(&key)?.saturating_add_signed(change);
                if count == 0 {
                    self.tables.remove(Table::Counts, &key)?;
                } else {
                    self.tables.put(Table::Counts, &key, &count.to_be_bytes())?;
                }
            }
        }
        Ok((self.tables, self.first_due))
    }

    /// The tables, for a store that notes its own entries or takes back those of a request.
    pub(crate) fn tables(&mut self) -> &mut T {
        &mut self.tables
    }

    /// Begins a request of several in one transaction. [`keep`](Self::keep) or [`undo`](Self::undo) ends it.
    pub(crate) fn begin(&mut self) -> Noted {
        Noted {
            counted: core::mem::take(&mut self.counted),
            quarantined: core::mem::take(&mut self.quarantined),
        }
    }

    /// Ends a request that succeeded.
    pub(crate) fn keep(&mut self, before: Noted) {
        let counted = core::mem::replace(&mut self.counted, before.counted);
        for (of, change) in counted {
            *self.counted.entry(of).or_default() += change;
        }
        self.quarantined += before.quarantined;
    }

    /// Ends a request that failed. The store takes the request's entries back.
    pub(crate) fn undo(&mut self, before: Noted) {
        self.counted = before.counted;
        self.quarantined = before.quarantined;
    }

    fn count_at(&self, key: &[u8]) -> Result<u64, StoreError> {
        let count = self.tables.get(Table::Counts, key)?;
        Ok(count.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    fn count(&mut self, timer: &Timer, change: i64) {
        *self.counted.entry((timer.namespace.clone(), timer.state.phase())).or_default() += change;
    }

    // --- Timers ---

    /// Stores a new timer.
    fn insert(&mut self, timer: &Timer) -> Result<(), StoreError> {
        for (table, key, value) in entries(timer) {
            self.tables.put(table, &key, &value)?;
        }
        self.count(timer, 1);
        self.note_due(timer);
        Ok(())
    }

    /// Stores a changed timer.
    fn change(&mut self, old: &Timer, new: &Timer) -> Result<(), StoreError> {
        let (was, is) = (entries(old), entries(new));
        for (table, key, value) in &was {
            let is_same = |(of, at, with): &&Entry| of == table && at == key && with == value;
            let is_other = !is.iter().any(|entry| is_same(&entry));
            if is_other && *table != Table::Timers {
                self.remove(*table, key, value)?;
            }
        }
        for entry in &is {
            if !was.contains(entry) {
                self.tables.put(entry.0, &entry.1, &entry.2)?;
            }
        }
        self.count(old, -1);
        self.count(new, 1);
        self.note_due(new);
        Ok(())
    }

    fn delete(&mut self, timer: &Timer) -> Result<(), StoreError> {
        for (table, key, value) in entries(timer) {
            self.remove(table, &key, &value)?;
        }
        self.count(timer, -1);
        Ok(())
    }

    /// Removes an entry of a timer. The key's entry may be another timer's by now, and stays then.
    fn remove(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let removed = self.tables.remove(table, key)?;
        if let Some(others) = removed.filter(|removed| table == Table::Keys && removed != value) {
            self.tables.put(table, key, &others)?;
        }
        Ok(())
    }

    fn note_due(&mut self, timer: &Timer) {
        if timer.state == State::Pending {
            self.first_due = Some(self.first_due.map_or(timer.due, |first| first.min(timer.due)));
        }
    }

    /// A stored timer. A record that cannot be read is set aside in a transaction that writes.
    fn load(&mut self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let Some(record) = self.tables.get(Table::Timers, &id_bytes(id))? else { return Ok(None) };
        match record::decode(id, &record) {
            Ok(timer) => Ok(Some(timer)),
            Err(Unreadable) => {
                self.set_aside(id, &record)?;
                Ok(None)
            }
        }
    }

    fn set_aside(&mut self, id: TimerId, record: &[u8]) -> Result<(), StoreError> {
        self.tables.put(Table::Quarantine, &id_bytes(id), record)?;
        self.tables.remove(Table::Timers, &id_bytes(id))?;
        self.quarantined += 1;
        let count = self.number(QUARANTINED)? + 1;
        self.tables.put(Table::Meta, QUARANTINED, &count.to_be_bytes())
    }

    /// Removes the entry by a phase of a timer whose record was set aside.
    fn remove_orphan(&mut self, table: Table, key: &[u8], phase: Phase) -> Result<(), StoreError> {
        self.tables.remove(table, key)?;
        let Some(id) = id_at_end(key) else { return Ok(()) };
        let record = self.tables.get(Table::Quarantine, &id_bytes(id))?;
        if let Some(namespace) = record.as_deref().and_then(record::namespace) {
            *self.counted.entry((namespace.into(), phase)).or_default() -= 1;
        }
        Ok(())
    }

    /// A number of the table of names and values.
    fn number(&self, name: &[u8]) -> Result<u64, StoreError> {
        let number = self.tables.get(Table::Meta, name)?;
        Ok(number.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    /// A stored timer, in a transaction that only reads.
    pub(crate) fn peek(&self, id: TimerId) -> Result<Option<Timer>, StoreError> {
        let record = self.tables.get(Table::Timers, &id_bytes(id))?;
        Ok(record.and_then(|record| record::decode(id, &record).ok()))
    }

    pub(crate) fn find(&self, at: &Address) -> Result<Option<TimerId>, StoreError> {
        match at {
            Address::Id(id) => Ok(Some(*id)),
            Address::Key(key) => self.owner_of(&key.namespace, &key.key),
        }
    }

    /// The timer that owns a key. An entry that is no timer's is removed: a record that was set aside has left it behind.
    fn load_owner(&mut self, namespace: &str, key: &str) -> Result<Option<Timer>, StoreError> {
        let Some(id) = self.owner_of(namespace, key)? else { return Ok(None) };
        let owner = self.load(id)?;
        if owner.is_none() {
            self.tables.remove(Table::Keys, &key_key(namespace, key))?;
        }
        Ok(owner)
    }

    fn owner_of(&self, namespace: &str, key: &str) -> Result<Option<TimerId>, StoreError> {
        let owner = self.tables.get(Table::Keys, &key_key(namespace, key))?;
        Ok(owner.and_then(|id| id_at_end(&id)))
    }

    pub(crate) fn get(&self, at: &Address) -> Result<Option<Timer>, StoreError> {
        match self.find(at)? {
            Some(id) => self.peek(id),
            None => Ok(None),
        }
    }

    // --- Operations ---

    pub(crate) fn apply(&mut self, op: Op) -> Result<Outcome, StoreError> {
        admit(&op)?;
        match op {
            Op::Place(timer, if_present) => self.place(*timer, if_present),
            Op::Cancel(at, only) => self.cancel(&at, only),
            Op::CancelLabelled { namespace, label, limit } => self.cancel_labelled(&namespace, &label, limit),
            Op::Move(at, due) => self.change_by(&at, Event::Move(due)),
            Op::Pause(at) => self.pause(&at),
            Op::Resume(at) => self.resume(&at),
            Op::Ack(id, token) => self.end_delivery(id, Event::Ack(token)),
            Op::Skip(id, token) => self.end_delivery(id, Event::Skip(token)),
            Op::Fail(id, token, failure) => self.end_delivery(id, Event::Fail(token, failure)),
            Op::Snooze(id, token, due) => self.end_delivery(id, Event::Snooze(token, due)),
            Op::Release(id, token) => self.end_delivery(id, Event::Release(token)),
            Op::Return(timer) => self.put_back(*timer),
            Op::Park(id, token, reason) => self.end_delivery(id, Event::Park(reason, Some(token))),
            Op::Unpark(reason, limit) => self.unpark(&reason, limit),
            Op::Replay(id) => self.replay(id),
            Op::Fire(at) => self.fire(&at),
        }
    }

    fn place(&mut self, mut timer: Timer, if_present: IfPresent) -> Result<Outcome, StoreError> {
        let id = timer.id;
        self.forget()?;
        if self.tables.get(Table::Timers, &id_bytes(id))?.is_some() || self.is_remembered(id)? {
            return Ok(Outcome::Repeated(id));
        }
        timer.created = self.now;
        let old = match &timer.key {
            Some(key) => self.load_owner(&timer.namespace, key)?,
            None => None,
        };
        let Some(old) = old else {
            self.insert(&timer)?;
            return Ok(Outcome::Created(id));
        };
        match if_present {
            IfPresent::Reject => {
                return Ok(Outcome::KeyExists { holder: old.id, refused: Box::new(timer) });
            }
            IfPresent::Keep => return Ok(Outcome::Kept(old.id)),
            IfPresent::Replace => {}
            IfPresent::ReplaceKeepDue => (timer.due, timer.scheduled) = (old.due, old.scheduled),
        }
        let was = old.state.phase();
        self.withdraw(&old, Withdrawal::Replaced)?;
        self.insert(&timer)?;
        Ok(Outcome::Replaced { new: id, old: old.id, was })
    }

    fn put_back(&mut self, mut timer: Timer) -> Result<Outcome, StoreError> {
        let id = timer.id;
        if self.tables.get(Table::Timers, &id_bytes(id))?.is_some() {
            return Ok(Outcome::Repeated(id));
        }
        // The series has gone on, and has the key.
        timer.series = None;
        if let Some(key) = &timer.key
            && self.load_owner(&timer.namespace, key)?.is_some()
        {
            timer.key = None;
        }
        self.insert(&timer)?;
        Ok(Outcome::Created(id))
    }

    /// Withdraws a timer. Returns whether a delivery of it has begun.
    fn withdraw(&mut self, timer: &Timer, withdrawal: Withdrawal) -> Result<bool, StoreError> {
        match step(timer, Event::Withdraw(withdrawal), self.now) {
            Ok(Next::Stays(marked)) => self.change(timer, &marked).map(|()| true),
            Ok(Next::Ends(_)) => self.forget_later(timer).and_then(|()| self.delete(timer)).map(|()| false),
            Err(refusal) => Err(bug(refusal)),
        }
    }

    fn cancel(&mut self, at: &Address, only: Option<TimerId>) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load_at(at)? else { return Ok(Outcome::NotFound) };
        if only.is_some_and(|only| only != timer.id) {
            return Ok(Outcome::NotFound);
        }
        let id = timer.id;
        Ok(if self.withdraw(&timer, Withdrawal::Cancelled)? {
            Outcome::InFlight(id)
        } else {
            Outcome::Cancelled(Box::new(timer))
        })
    }

    fn load_at(&mut self, at: &Address) -> Result<Option<Timer>, StoreError> {
        match at {
            Address::Id(id) => self.load(*id),
            Address::Key(key) => self.load_owner(&key.namespace, &key.key),
        }
    }

    fn cancel_labelled(&mut self, namespace: &str, label: &str, limit: u32) -> Result<Outcome, StoreError> {
        let (prefix, limit) = (label_key(namespace, label), limit.max(1));
        // Timers in flight keep their labels, and were withdrawn by an earlier call perhaps: they are passed over.
        let (mut cancelled, mut in_flight, mut more) = (0, 0, false);
        let mut from = prefix.clone();
        'all: loop {
            let keys = self.keys(Table::Labels, &from, &prefix, 256)?;
            let Some(last) = keys.last() else { break };
            from = [&last[..], &[0]].concat();
            for key in keys {
                if cancelled == limit {
                    more = true;
                    break 'all;
                }
                let Some(id) = id_at_end(&key) else { continue };
                match self.load(id)? {
                    None => drop(self.tables.remove(Table::Labels, &key)?),
                    Some(timer) if !is_withdrawn(&timer) => {
                        cancelled += 1;
                        in_flight += u32::from(self.withdraw(&timer, Withdrawal::Cancelled)?);
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(Outcome::CancelledMany { cancelled, in_flight, more })
    }

    /// At most `limit` keys that begin with `prefix`, from `from` on.
    fn keys(
        &self,
        table: Table,
        from: &[u8],
        prefix: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut keys = Vec::new();
        self.tables.scan(table, from, &mut |key, _| {
            let goes_on = key.starts_with(prefix) && keys.len() < limit;
            if goes_on {
                keys.push(key.to_vec());
            }
            goes_on
        })?;
        Ok(keys)
    }

    fn change_by(&mut self, at: &Address, event: Event) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load_at(at)? else { return Ok(Outcome::NotFound) };
        match step(&timer, event, self.now) {
            Ok(Next::Stays(changed)) => {
                self.change(&timer, &changed)?;
                Ok(Outcome::Changed(timer.id))
            }
            Ok(Next::Ends(end)) => self.end(&timer, end),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn pause(&mut self, at: &Address) -> Result<Outcome, StoreError> {
        self.set_paused(at, true, |timer| match timer.state {
            State::Pending => Some(Event::Park(PAUSED.into(), None)),
            _ => None,
        })
    }

    fn resume(&mut self, at: &Address) -> Result<Outcome, StoreError> {
        self.set_paused(at, false, |timer| match &timer.state {
            State::Parked(reason) if **reason == *PAUSED => Some(Event::Unpark),
            _ => None,
        })
    }

    /// Marks a series as paused or not, and changes the timer by the event that fits its state. A timer that has neither
    /// a series nor such a state stays as it is.
    fn set_paused(
        &mut self,
        at: &Address,
        is_paused: bool,
        event_for: impl Fn(&Timer) -> Option<Event>,
    ) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load_at(at)? else { return Ok(Outcome::NotFound) };
        let mut changed = timer.clone();
        if let Some(series) = &mut changed.series {
            series.paused = is_paused;
        }
        match event_for(&timer).map(|event| step(&changed, event, self.now)) {
            Some(Ok(Next::Stays(next))) => changed = next,
            Some(Ok(Next::Ends(_)) | Err(_)) => return Err(bug("a pause ends no timer")),
            None if timer.series.is_none() => {
                return Ok(Outcome::Refused(Refusal::State(timer.state.phase())));
            }
            None => {}
        }
        self.change(&timer, &changed)?;
        Ok(Outcome::Changed(timer.id))
    }

    fn end_delivery(&mut self, id: TimerId, event: Event) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load(id)? else { return Ok(Outcome::Refused(Refusal::Stale)) };
        match step(&timer, event, self.now) {
            Ok(Next::Stays(next)) => self.settle(&timer, next),
            Ok(Next::Ends(end)) => self.end(&timer, end),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    /// Stores a timer whose delivery has ended and that stays.
    fn settle(&mut self, timer: &Timer, mut next: Timer) -> Result<Outcome, StoreError> {
        let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
        if is_paused && next.state == State::Pending {
            next.state = State::Parked(PAUSED.into());
        }
        let phase = next.state.phase();
        // The series goes on without its dead occurrence.
        let follows = phase == Phase::Dead && next.series.take().is_some();
        self.change(timer, &next)?;
        let (next, skipped) = if follows { self.place_following(timer)? } else { (None, 0) };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Removes a timer that has ended, and stores the next occurrence of its series.
    fn end(&mut self, timer: &Timer, end: End) -> Result<Outcome, StoreError> {
        let goes_on = matches!(end, End::Done | End::Skipped) && !is_withdrawn(timer);
        if goes_on && timer.series.as_ref().is_some_and(|series| series.plan.validate().is_err()) {
            // The series must not end unseen.
            let state = State::Dead(Death { reason: DeathReason::Plan, at: self.now });
            self.change(timer, &Timer { state, series: None, ..timer.clone() })?;
            return Ok(Outcome::Ended { id: timer.id, phase: Phase::Dead, next: None, skipped: 0 });
        }
        self.forget_later(timer)?;
        self.delete(timer)?;
        let (phase, (next, skipped)) = match end {
            End::Done | End::Skipped => (Phase::Done, self.place_following(timer)?),
            End::Withdrawn(_) => (Phase::Withdrawn, (None, 0)),
        };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// Stores the occurrence of the timer's series that follows the timer, unless the timer was withdrawn.
    fn place_following(&mut self, timer: &Timer) -> Result<(Option<TimerId>, u64), StoreError> {
        let Some(series) = timer.series.as_ref().filter(|_| !is_withdrawn(timer)) else {
            return Ok((None, 0));
        };
        let following = series.following(timer.scheduled, self.now);
        let Some(instant) = following.instant else { return Ok((None, following.skipped)) };
        let (mut instant, mut skipped) = (instant, following.skipped);
        let mut id = TimerId::of_occurrence(series.id, instant);
        // A series that was placed a second time finds the timers of its first life, dead ones for example. An instant
        // that has its timer gets no second one.
        while self.tables.get(Table::Timers, &id_bytes(id))?.is_some() {
            let following = series.following(instant, self.now);
            skipped += following.skipped + 1;
            let Some(next) = following.instant else { return Ok((None, skipped)) };
            (instant, id) = (next, TimerId::of_occurrence(series.id, next));
        }
        let jitter = timer.policy.jitter_of(id);
        let next = Timer {
            id,
            created: self.now,
            scheduled: instant,
            due: instant + jitter,
            deliveries: 0,
            failures: 0,
            last_error: None,
            state: if series.paused { State::Parked(PAUSED.into()) } else { State::Pending },
            has_chosen_id: false,
            ..timer.clone()
        };
        self.insert(&next)?;
        Ok((Some(id), skipped))
    }

    fn unpark(&mut self, reason: &str, limit: u32) -> Result<Outcome, StoreError> {
        let prefix = part(reason);
        let mut unparked = 0;
        for key in self.keys(Table::Parked, &prefix, &prefix, limit as usize)? {
            let Some(id) = id_at_end(&key) else { continue };
            match self.load(id)? {
                None => self.remove_orphan(Table::Parked, &key, Phase::Parked)?,
                Some(timer) => {
                    if let Ok(Next::Stays(mut next)) = step(&timer, Event::Unpark, self.now) {
                        let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
                        if reason == PAUSED {
                            next.series.iter_mut().for_each(|series| series.paused = false);
                        } else if is_paused {
                            next.state = State::Parked(PAUSED.into());
                        }
                        unparked += u32::from(next.state == State::Pending);
                        self.change(&timer, &next)?;
                    }
                }
            }
        }
        Ok(Outcome::Unparked(unparked))
    }

    fn replay(&mut self, id: TimerId) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load(id)? else { return Ok(Outcome::NotFound) };
        if let Some(key) = &timer.key
            && let Some(Timer { id: holder, .. }) = self.load_owner(&timer.namespace, key)?
            && holder != id
        {
            return Ok(Outcome::KeyExists { holder, refused: Box::new(timer) });
        }
        self.change_by(&Address::Id(id), Event::Replay)
    }

    fn fire(&mut self, at: &Address) -> Result<Outcome, StoreError> {
        let Some(timer) = self.load_at(at)? else { return Ok(Outcome::NotFound) };
        let id = timer.id;
        match timer.state {
            State::Dead(_) => self.replay(id),
            State::Parked(_) => {
                let now = Timer { due: timer.due.min(self.now), state: State::Pending, ..timer.clone() };
                self.change(&timer, &now)?;
                Ok(Outcome::Changed(id))
            }
            State::Pending => {
                // The scheduled instant stays: the next occurrence of a series follows from it.
                let now = Timer { due: timer.due.min(self.now), ..timer.clone() };
                self.change(&timer, &now)?;
                Ok(Outcome::Changed(id))
            }
            State::Leased(_) => Ok(Outcome::Refused(Refusal::State(Phase::Leased))),
        }
    }

    // --- Ids that are remembered ---

    fn forget_later(&mut self, timer: &Timer) -> Result<(), StoreError> {
        if timer.has_chosen_id {
            let until = self.now + REMEMBERED;
            let id = id_bytes(timer.id);
            self.tables.put(Table::Recent, &id, &moment_bytes(until))?;
            self.tables.put(Table::Forget, &[&moment_bytes(until)[..], &id].concat(), &[])?;
        }
        Ok(())
    }

    /// Whether the id of an ended timer is remembered. An id whose time is over is forgotten, lest a later end of its next
    /// timer be forgotten with it.
    fn is_remembered(&mut self, id: TimerId) -> Result<bool, StoreError> {
        let id = id_bytes(id);
        let Some(until) = self.tables.get(Table::Recent, &id)? else { return Ok(false) };
        let is_over = moment_of(&until) <= self.now;
        if is_over {
            self.tables.remove(Table::Recent, &id)?;
            self.tables.remove(Table::Forget, &[&until[..], &id].concat())?;
        }
        Ok(!is_over)
    }

    /// Forgets a few ids whose time is over.
    fn forget(&mut self) -> Result<(), StoreError> {
        let mut over = Vec::new();
        self.tables.scan(Table::Forget, &[], &mut |key, _| {
            let is_over = moment_of(key) <= self.now && over.len() < FORGOTTEN_AT_ONCE;
            if is_over {
                over.push(key.to_vec());
            }
            is_over
        })?;
        for key in over {
            self.tables.remove(Table::Forget, &key)?;
            if let Some(id) = id_at_end(&key) {
                self.tables.remove(Table::Recent, &id_bytes(id))?;
            }
        }
        Ok(())
    }

    // --- Claims and leases ---

    /// Claims timers that are due. Returns whether the claim must be durable before it is answered.
    pub(crate) fn claim(
        &mut self,
        by: Claimant,
        claim: u64,
        limit: Limit,
    ) -> Result<(Claimed, bool), StoreError> {
        let token = Token { incarnation: by.incarnation, claim };
        let mut claimed = Claimed { now: self.now, ..Claimed::default() };
        let (mut bytes, mut must_be_durable) = (0, false);
        let mut due = Vec::new();
        self.tables.scan(Table::Due, &[], &mut |key, _| {
            let is_due = moment_of(key) <= self.now && due.len() < limit.timers as usize;
            if is_due {
                due.push(key.to_vec());
            }
            is_due
        })?;
        for key in due {
            if bytes > 0 && bytes >= limit.bytes {
                break;
            }
            let timer = match id_at_end(&key) {
                Some(id) => self.load(id)?,
                None => None,
            };
            // An entry that is not its timer's is removed. It would stop every later claim.
            let is_its = |timer: &Timer| timer.state == State::Pending && timer.due == moment_of(&key);
            let Some(timer) = timer.filter(is_its) else {
                self.remove_orphan(Table::Due, &key, Phase::Pending)?;
                continue;
            };
            bytes += timer.payload.0.len() as u64;
            let event = Event::Claim { token, until: self.now + by.lease };
            match step(&timer, event, self.now) {
                Ok(Next::Stays(leased)) => {
                    self.change(&timer, &leased)?;
                    claimed.leased.push(Leased { timer: leased, token });
                }
                Ok(Next::Ends(end)) => {
                    must_be_durable = true;
                    let outcome = self.end(&timer, end)?;
                    claimed.left_out.extend(LeftOut::of(&timer, &outcome));
                    let deliveries = timer.deliveries.saturating_add(1);
                    claimed.leased.push(Leased { timer: Timer { deliveries, ..timer }, token });
                }
                Err(refusal) => return Err(bug(refusal)),
            }
        }
        claimed.next_due = self.next_due()?;
        claimed.quarantined = self.quarantined;
        Ok((claimed, must_be_durable))
    }

    pub(crate) fn next_due(&self) -> Result<Option<UtcMillis>, StoreError> {
        let mut next = None;
        self.tables.scan(Table::Due, &[], &mut |key, _| {
            next = Some(moment_of(key));
            false
        })?;
        Ok(next)
    }

    fn leases(&self, mut each: impl FnMut(UtcMillis, TimerId) -> bool) -> Result<(), StoreError> {
        self.tables
            .scan(Table::Leases, &[], &mut |key, _| id_at_end(key).is_none_or(|id| each(moment_of(key), id)))
    }

    pub(crate) fn recover(&self, by: Claimant, claim: u64) -> Result<Vec<Leased>, StoreError> {
        let token = Token { incarnation: by.incarnation, claim };
        let mut ids = Vec::new();
        self.leases(|_, id| {
            ids.push(id);
            true
        })?;
        let mut leased = Vec::new();
        for id in ids {
            if let Some(timer) = self.peek(id)?
                && matches!(timer.state, State::Leased(lease) if lease.token == token)
            {
                leased.push(Leased { timer, token });
            }
        }
        Ok(leased)
    }

    pub(crate) fn renew(
        &mut self,
        by: Claimant,
        leases: Vec<(TimerId, Token)>,
    ) -> Result<Vec<TimerId>, StoreError> {
        let mut lost = Vec::new();
        for (id, token) in leases {
            let event = Event::Renew { token, until: self.now + by.lease };
            let timer = self.load(id)?;
            match timer.map(|timer| (step(&timer, event, self.now), timer)) {
                Some((Ok(Next::Stays(renewed)), timer)) => self.change(&timer, &renewed)?,
                _ => lost.push(id),
            }
        }
        Ok(lost)
    }

    /// Ends at most `limit` leases: those whose end has come, or any, if all holders are gone.
    pub(crate) fn reap(&mut self, limit: u32, all: bool) -> Result<Reaped, StoreError> {
        let (now, mut over, mut reaped) = (self.now, Vec::new(), Reaped::default());
        let mut next = None;
        self.leases(|until, id| {
            let is_over = (until <= now || all) && over.len() < limit as usize;
            if is_over {
                over.push((until, id));
            } else {
                next = Some(until);
            }
            is_over
        })?;
        reaped.next = next;
        for (until, id) in over {
            let is_its = |timer: &Timer| matches!(timer.state, State::Leased(lease) if lease.until == until);
            let Some(timer) = self.load(id)?.filter(is_its) else {
                let key = [&moment_bytes(until)[..], &id_bytes(id)].concat();
                self.remove_orphan(Table::Leases, &key, Phase::Leased)?;
                continue;
            };
            match step(&timer, Event::Expire, now) {
                Ok(Next::Stays(next)) => {
                    let outcome = self.settle(&timer, next)?;
                    reaped.left_out.extend(LeftOut::of(&timer, &outcome));
                    match outcome {
                        Outcome::Ended { phase: Phase::Dead, .. } => reaped.dead.push(id),
                        _ => reaped.returned.push(id),
                    }
                }
                Ok(Next::Ends(end)) => {
                    self.end(&timer, end)?;
                    reaped.withdrawn += 1;
                }
                Err(refusal) => return Err(bug(refusal)),
            }
        }
        Ok(reaped)
    }

    // --- Reading ---

    pub(crate) fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Result<Vec<(UtcMillis, TimerId)>, StoreError> {
        let mut upcoming = Vec::new();
        self.tables.scan(Table::Due, &moment_bytes(from), &mut |key, _| {
            let due = moment_of(key);
            let is_wanted = due < until && upcoming.len() < limit as usize;
            if let Some(id) = id_at_end(key).filter(|_| is_wanted) {
                upcoming.push((due, id));
            }
            is_wanted
        })?;
        Ok(upcoming)
    }

    pub(crate) fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        let namespace = filter.namespace.as_deref().unwrap_or("");
        let (table, prefix) = match filter {
            Filter { label: Some(label), .. } => (Table::Labels, label_key(namespace, label)),
            Filter { key_prefix: Some(prefix), phase, .. } if *phase != Some(Phase::Dead) => {
                (Table::Keys, key_key(namespace, prefix))
            }
            Filter { phase: Some(Phase::Pending), .. } => (Table::Due, Vec::new()),
            Filter { phase: Some(Phase::Leased), .. } => (Table::Leases, Vec::new()),
            Filter { phase: Some(Phase::Parked), .. } => (Table::Parked, Vec::new()),
            Filter { phase: Some(Phase::Dead), .. } => (Table::Dead, Vec::new()),
            _ => (Table::Timers, Vec::new()),
        };
        let from = cursor.map_or_else(|| prefix.clone(), |Cursor(last)| [&last[..], &[0]].concat());
        let limit = (limit as usize).max(1);
        let (mut looked_at, mut is_end) = (Vec::new(), true);
        self.tables.scan(table, &from, &mut |key, value| {
            if !key.starts_with(&prefix) {
                return false;
            }
            is_end = looked_at.len() < limit.saturating_mul(LOOKS);
            if is_end {
                let id = if table == Table::Keys { id_at_end(value) } else { id_at_end(key) };
                looked_at.push((key.to_vec(), id));
            }
            is_end
        })?;
        let mut page = Page::default();
        let mut last = None;
        for (key, id) in looked_at {
            if page.timers.len() == limit {
                is_end = false;
                break;
            }
            if let Some(id) = id
                && let Some(timer) = self.peek(id)?
                && filter.admits(&timer)
            {
                page.timers.push(timer);
            }
            last = Some(key);
        }
        page.next = last.filter(|_| !is_end).map(|last| Cursor(last.into()));
        Ok(page)
    }

    pub(crate) fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        self.tables.scan(Table::Counts, &[], &mut |key, value| {
            let phase_of = |byte: &u8| {
                let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];
                phases.into_iter().find(|phase| *phase as u8 == *byte)
            };
            if let Some((phase, namespace)) = key.split_last()
                && let Some(phase) = phase_of(phase)
                && let Ok(count) = value.try_into().map(u64::from_be_bytes)
            {
                counts.by_namespace.insert((String::from_utf8_lossy(namespace).into(), phase), count);
            }
            true
        })?;
        counts.quarantined = self.number(QUARANTINED)?;
        Ok(counts)
    }

    /// Calls `each` for all timers that can be read, until it returns false.
    pub(crate) fn each(&self, mut each: impl FnMut(&Timer) -> bool) -> Result<(), StoreError> {
        self.tables.scan(Table::Timers, &[], &mut |key, record| match id_at_end(key) {
            Some(id) => record::decode(id, record).map_or(true, |timer| each(&timer)),
            None => true,
        })
    }

    /// Stores the timers of a backup. A timer whose id is stored, or whose key is another timer's, is an error.
    pub(crate) fn import(&mut self, timers: Vec<Timer>) -> Result<(), StoreError> {
        for mut timer in timers {
            admit_timer(&timer)?;
            if is_withdrawn(&timer) {
                continue;
            }
            if let State::Leased(_) = timer.state {
                let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
                timer.state = if is_paused { State::Parked(PAUSED.into()) } else { State::Pending };
            }
            let taken =
                |what: &str| StoreError::new(StoreErrorKind::Limit, format!("{what} is stored already"));
            if self.tables.get(Table::Timers, &id_bytes(timer.id))?.is_some() {
                return Err(taken(&format!("timer {}", timer.id)));
            }
            if let Some(key) = timer.key.as_ref().filter(|_| timer.owns_key())
                && self.load_owner(&timer.namespace, key)?.is_some()
            {
                return Err(taken(&format!("the key {key:?}")));
            }
            self.insert(&timer)?;
        }
        Ok(())
    }

    // --- The check ---

    /// The faults of the structure (L1 to L3).
    pub(crate) fn check(&self) -> Result<Vec<Fault>, StoreError> {
        let mut faults = Vec::new();
        let fault =
            |table: Table, timer, fault: String| Fault { table: table.name(), timer, fault: fault.into() };
        let mut counted: BTreeMap<(Box<str>, Phase), u64> = BTreeMap::new();
        let mut found: BTreeMap<Table, u64> = BTreeMap::new();
        let mut timers = Vec::new();
        self.tables.scan(Table::Timers, &[], &mut |key, record| {
            match id_at_end(key).map(|id| (id, record::decode(id, record))) {
                Some((_, Ok(timer))) => timers.push(timer),
                Some((id, Err(error))) => faults.push(fault(Table::Timers, Some(id), error.to_string())),
                None => faults.push(fault(Table::Timers, None, "a key is no id".to_owned())),
            }
            faults.len() < MOST_FAULTS
        })?;
        for timer in &timers {
            *counted.entry((timer.namespace.clone(), timer.state.phase())).or_default() += 1;
            for (table, key, value) in entries(timer) {
                *found.entry(table).or_default() += 1;
                if table != Table::Timers && self.tables.get(table, &key)? != Some(value) {
                    faults.push(fault(table, Some(timer.id), "the entry is missing".to_owned()));
                }
            }
            if faults.len() >= MOST_FAULTS {
                return Ok(faults);
            }
        }
        for table in [Table::Keys, Table::Due, Table::Leases, Table::Parked, Table::Dead, Table::Labels] {
            let mut stored = 0;
            self.tables.scan(table, &[], &mut |_, _| {
                stored += 1;
                true
            })?;
            let wanted = found.get(&table).copied().unwrap_or(0);
            if stored != wanted {
                faults.push(fault(table, None, format!("{stored} entries for {wanted} timers")));
                self.scan_others(table, &mut |timer, what| {
                    faults.push(fault(table, timer, what.to_owned()));
                    faults.len() < MOST_FAULTS
                })?;
            }
        }
        let counts = self.counts()?.by_namespace;
        if counts != counted {
            faults.push(fault(Table::Counts, None, format!("{counts:?} counted as {counted:?}")));
        }
        Ok(faults)
    }

    /// Calls `each` for the entries of an index that are no timer's, until it returns false. Records that were set aside leave
    /// such entries behind.
    fn scan_others(
        &self,
        table: Table,
        each: &mut dyn FnMut(Option<TimerId>, &str) -> bool,
    ) -> Result<(), StoreError> {
        let mut failure = None;
        self.tables.scan(table, &[], &mut |key, value| {
            let id = id_at_end(if table == Table::Keys { value } else { key });
            let timer = match id.map_or(Ok(None), |id| self.peek(id)) {
                Ok(timer) => timer,
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            };
            let is_its = |timer: &Timer| {
                entries(timer).iter().any(|(of, at, with)| *of == table && at == key && with == value)
            };
            match timer {
                Some(timer) if is_its(&timer) => true,
                Some(_) => each(id, "the entry is not its timer's"),
                None => each(id, "the entry is of a timer that cannot be read, or is not stored"),
            }
        })?;
        failure.map_or(Ok(()), Err)
    }
}

fn is_withdrawn(timer: &Timer) -> bool {
    matches!(timer.state, State::Leased(Lease { withdrawn: Some(_), .. }))
}

/// An error that only a fault of this crate can cause.
fn bug(refusal: impl fmt::Debug) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("a transition was refused: {refusal:?}"))
}
