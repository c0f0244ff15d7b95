//! Whose timers a claim takes: those that are longest due, but of no namespace more than its share.
//!
//! The index has pending timers in the order of their due moments, whosever they are. If a namespace has hundreds of
//! thousands that are due, those of the others lie behind them. A namespace that has its share of the room, or
//! its rate of late timers, gets no more, and a claim goes past its timers to those of others. They stay in the index.
//!
//! So that each claim need not go past them again, [`Turns`] remembers how far claims have come:
//!
//! ```text
//!   index by due moment   a a a a b a a a c a a a a b a │ a a b c ...
//!                         └ taken, or waiting in `behind` │ not read yet
//!                                                      frontier
//! ```
//!
//! | the timer at the frontier | what becomes of it |
//! |---|---|
//! | its namespace may take it, and waits not | it is taken |
//! | its namespace may not take it, or waits | it waits: the frontier goes past it |
//!
//! # Invariants
//! T1. Each entry before the frontier is taken by the claim, or is found from what its namespace has in `behind`. An
//! entry that appears before the frontier is reported ([`Turns::made_due`]): a timer that is made, moved, given back,
//! put back or tried again. T2. Timers of one namespace are taken in the order of their due moments, as far as they are
//! known. T3. Nothing here is stored: without it, claims begin at the start of the index.
//!
//! A claim divides its timers, and the entries that it reads: half for the frontier, half for the namespaces that wait,
//! in equal parts and beginning one further each time. Which half comes first, and has the odd one, changes from claim
//! to claim.
//!
//! # Cost
//! A timer that waits is read twice: when the frontier goes past it and when it is taken; and once more a minute after
//! claims have come to the end of what is due. A namespace keeps up to
//! [`EXACT`] entries in memory; one that has more has the first of them, and its turn reads the index from there on,
//! with the entries of others between its own.

use super::entries::{id_at_end, id_bytes, moment_of};
use super::timers::{Ledger, MadeDue};
use crate::record;
use crate::store::Limit;
use crate::store::error::StoreError;
use crate::store::shares::{Late, Shares};
use crate::store::tables::{Table, Tables};
use crate::timer::TimerId;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_words::UtcMillis;

/// The entries that a claim reads besides those that it takes.
const LOOKS: usize = 8_192;
/// The entries that are read at once.
const PAGE: usize = 256;
/// The entries that a namespace keeps in memory.
const EXACT: usize = 1_024;
/// The time after which claims begin at the start of the index again, once they have come to its end.
const BELIEVED: Duration = Duration::from_secs(60);

/// An entry of the index by due moment.
type Key = Vec<u8>;

/// How far claims have come.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// All entries before it were read (T1).
    frontier: Key,
    behind: BTreeMap<Box<str>, Waiting>,
    /// The namespace with which the last claim began, of those that wait.
    first: Option<Box<str>>,
    /// The moment since which the frontier is where nothing further is due.
    arrived: Option<UtcMillis>,
    /// The last claim began with those that wait.
    was_behind_first: bool,
    /// The moment of the last claim.
    seen: UtcMillis,
}

/// The entries of a namespace before the frontier.
#[derive(Debug)]
enum Waiting {
    /// These.
    Exactly(BTreeSet<Key>),
    /// Any, from this one on.
    From(Key),
}

/// The timers that a claim wants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The due moments and ids, those of a namespace in order.
    pub(crate) timers: Vec<(UtcMillis, TimerId)>,
    /// The moment from which a claim with the same shares takes more.
    pub(crate) next: Option<UtcMillis>,
}

/// A choice that is being made.
struct Choice<'c> {
    chosen: Vec<(UtcMillis, TimerId)>,
    limit: Limit,
    bytes: u64,
    shares: &'c Shares,
    taken: BTreeMap<Box<str>, Taken>,
    looks: usize,
    now: UtcMillis,
    next: Option<UtcMillis>,
}

/// The part of a claim that a namespace gets.
#[derive(Default)]
struct Taken {
    all: usize,
    late: usize,
}

impl Turns {
    /// Begins at the start of the index again.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The moment up to which claims have come, if they have.
    pub(crate) fn moment(&self) -> Option<UtcMillis> {
        (!self.frontier.is_empty()).then(|| moment_of(&self.frontier))
    }

    /// Notes the timers that a transaction has made due (T1).
    pub(crate) fn note(&mut self, made_due: MadeDue) {
        for (namespace, entry) in made_due.entries {
            if entry < self.frontier {
                self.behind.entry(namespace).or_insert_with(Waiting::nothing).add(entry);
            }
        }
    }

    /// The namespaces that wait, beginning after the one with which the last claim began.
    fn in_turn(&self) -> Vec<Box<str>> {
        let is_later = |name: &str| self.first.as_ref().is_some_and(|first| *name > **first);
        let later = self.behind.keys().filter(|name| is_later(name));
        later.chain(self.behind.keys().filter(|name| !is_later(name))).cloned().collect()
    }
}

impl Waiting {
    fn nothing() -> Self {
        Self::Exactly(BTreeSet::new())
    }

    fn first(&self) -> Option<&Key> {
        match self {
            Self::Exactly(entries) => entries.first(),
            Self::From(first) => Some(first),
        }
    }

    fn add(&mut self, entry: Key) {
        match self {
            Self::Exactly(entries) => {
                entries.insert(entry);
                if entries.len() > EXACT
                    && let Some(first) = entries.pop_first()
                {
                    *self = Self::From(first);
                }
            }
            Self::From(first) if entry < *first => *first = entry,
            Self::From(_) => {}
        }
    }
}

impl Choice<'_> {
    fn is_full(&self, most: usize) -> bool {
        self.chosen.len() >= most || self.bytes > 0 && self.bytes >= self.limit.bytes
    }

    /// Whether a namespace may take one more timer, with this entry.
    fn permits(&self, namespace: &str, entry: &[u8]) -> bool {
        let taken = self.taken.get(namespace).map_or(0, |taken| taken.all);
        self.shares.left(self.limit.timers, namespace, taken, self.chosen.len()) > 0
            && self.is_in_time_or_has_permit(namespace, entry)
    }

    /// Whether the next claim may take a timer of a namespace, with this entry.
    fn leaves(&self, namespace: &str, entry: &[u8]) -> bool {
        let taken = self.taken.get(namespace).map_or(0, |taken| taken.all);
        self.shares.room(namespace, taken, self.chosen.len()) > 0
            && self.is_in_time_or_has_permit(namespace, entry)
    }

    fn is_in_time_or_has_permit(&self, namespace: &str, entry: &[u8]) -> bool {
        let late = self.taken.get(namespace).map_or(0, |taken| taken.late);
        let has_permit = |limit: &Late| !self.is_late(limit, entry) || limit.left(namespace) > late;
        self.shares.late.as_ref().is_none_or(has_permit)
    }

    fn is_late(&self, limit: &Late, entry: &[u8]) -> bool {
        self.now - moment_of(entry) > limit.after
    }

    fn take(&mut self, namespace: &str, entry: &[u8], bytes: usize) {
        if let Some(id) = id_at_end(entry) {
            self.chosen.push((moment_of(entry), id));
            self.bytes += bytes as u64;
            let is_late = self.shares.late.as_ref().is_some_and(|limit| self.is_late(limit, entry));
            let taken = self.taken.entry(namespace.into()).or_default();
            taken.all += 1;
            taken.late += usize::from(is_late);
        }
    }

    fn note_next(&mut self, moment: UtcMillis) {
        self.next = Some(self.next.map_or(moment, |next| next.min(moment)));
    }
}

/// The least key after an entry's.
fn after(entry: &[u8]) -> Key {
    [entry, &[0]].concat()
}

impl<T: Tables> Ledger<T> {
    /// Chooses the timers of a claim.
    pub(crate) fn choose(
        &mut self,
        turns: &mut Turns,
        limit: Limit,
        shares: &Shares,
    ) -> Result<Chosen, StoreError> {
        let is_old = turns.arrived.is_some_and(|arrived| self.now - arrived > BELIEVED);
        // A clock that went back has made timers pending again that claims have passed.
        if is_old || self.now < turns.seen {
            *turns = Turns { first: turns.first.take(), ..Turns::default() };
        }
        turns.seen = self.now;
        let chosen = self.choose_in(turns, limit, shares);
        self.follow(turns.moment());
        chosen
    }

    fn choose_in(&self, turns: &mut Turns, limit: Limit, shares: &Shares) -> Result<Chosen, StoreError> {
        let mut choice = Choice {
            chosen: Vec::new(),
            limit,
            bytes: 0,
            shares,
            taken: BTreeMap::new(),
            looks: LOOKS,
            now: self.now,
            next: None,
        };
        let most = limit.timers as usize;
        if turns.behind.is_empty() {
            self.choose_at_frontier(turns, &mut choice, most)?;
        } else {
            turns.was_behind_first = !turns.was_behind_first;
            // Each gets half, and the first the odd timer; the second gets the rest of the first.
            let half = most.div_ceil(2);
            if turns.was_behind_first {
                choice.looks = LOOKS / 2;
                self.choose_behind(turns, &mut choice, half)?;
                choice.looks += LOOKS / 2;
                self.choose_at_frontier(turns, &mut choice, most)?;
            } else {
                choice.looks = LOOKS / 2;
                self.choose_at_frontier(turns, &mut choice, half)?;
                choice.looks += LOOKS / 2;
                self.choose_behind(turns, &mut choice, most)?;
            }
        }
        let mut waiting = turns.behind.iter().filter_map(|(name, waiting)| Some((name, waiting.first()?)));
        if waiting.any(|(name, first)| choice.leaves(name, first)) {
            choice.note_next(choice.now);
        }
        Ok(Chosen { timers: choice.chosen, next: choice.next })
    }

    fn choose_at_frontier(
        &self,
        turns: &mut Turns,
        choice: &mut Choice<'_>,
        most: usize,
    ) -> Result<(), StoreError> {
        loop {
            let (page, later) = self.due_entries(&turns.frontier, choice.now)?;
            for entry in &page {
                if choice.is_full(most) || choice.looks == 0 {
                    choice.note_next(moment_of(entry));
                    return Ok(());
                }
                choice.looks -= 1;
                let record = self.record_of(entry)?;
                let namespace = record.as_deref().and_then(record::namespace);
                match (namespace, &record) {
                    (Some(namespace), Some(record))
                        if choice.permits(namespace, entry) && !turns.behind.contains_key(namespace) =>
                    {
                        choice.take(namespace, entry, record.len());
                    }
                    (Some(namespace), _) => {
                        let waiting = turns.behind.entry(namespace.into()).or_insert_with(Waiting::nothing);
                        waiting.add(entry.clone());
                    }
                    // The claim finds its fault.
                    (None, _) => choice.take("", entry, 0),
                }
                turns.frontier = after(entry);
            }
            if page.len() < PAGE {
                turns.arrived.get_or_insert(choice.now);
                later.into_iter().for_each(|moment| choice.note_next(moment));
                return Ok(());
            }
        }
    }

    fn choose_behind(
        &self,
        turns: &mut Turns,
        choice: &mut Choice<'_>,
        most: usize,
    ) -> Result<(), StoreError> {
        let permits = |name: &str| {
            let first = turns.behind.get(name).and_then(Waiting::first);
            first.is_some_and(|first| choice.permits(name, first))
        };
        let in_turn: Vec<_> = turns.in_turn().into_iter().filter(|name| permits(name)).collect();
        let part = most.saturating_sub(choice.chosen.len()) / in_turn.len().max(1);
        turns.first = in_turn.first().cloned().or(turns.first.take());
        for namespace in in_turn {
            if choice.is_full(most) || choice.looks == 0 {
                break;
            }
            let end = most.min(choice.chosen.len() + part.max(1));
            let Some(waiting) = turns.behind.remove(&namespace) else { continue };
            let left = match waiting {
                Waiting::Exactly(entries) => self.choose_of(&namespace, entries, choice, end)?,
                Waiting::From(first) => self.choose_from(&namespace, first, &turns.frontier, choice, end)?,
            };
            if let Some(left) = left {
                turns.behind.insert(namespace, left);
            }
        }
        Ok(())
    }

    /// Chooses of these entries of a namespace. Returns those that are left, if any are.
    fn choose_of(
        &self,
        namespace: &str,
        mut entries: BTreeSet<Key>,
        choice: &mut Choice<'_>,
        end: usize,
    ) -> Result<Option<Waiting>, StoreError> {
        while !choice.is_full(end)
            && choice.looks > 0
            && entries.first().is_some_and(|entry| choice.permits(namespace, entry))
            && let Some(entry) = entries.pop_first()
        {
            choice.looks -= 1;
            // The timer may have been cancelled or moved, or claimed by another way.
            if self.tables.get(Table::Due, &entry)?.is_some() {
                let bytes = self.record_of(&entry)?.map_or(0, |record| record.len());
                choice.take(namespace, &entry, bytes);
            }
        }
        Ok((!entries.is_empty()).then_some(Waiting::Exactly(entries)))
    }

    /// Chooses of the entries of a namespace from one on and before the frontier. Returns those that are left, if any
    /// are.
    fn choose_from(
        &self,
        namespace: &str,
        mut from: Key,
        frontier: &[u8],
        choice: &mut Choice<'_>,
        end: usize,
    ) -> Result<Option<Waiting>, StoreError> {
        loop {
            let (page, _) = self.due_entries(&from, choice.now)?;
            for entry in &page {
                if **entry >= *frontier {
                    return Ok(None);
                }
                if choice.is_full(end) || !choice.permits(namespace, entry) || choice.looks == 0 {
                    return Ok(Some(Waiting::From(entry.clone())));
                }
                choice.looks -= 1;
                if let Some(record) = self.record_of(entry)?
                    && record::namespace(&record) == Some(namespace)
                {
                    choice.take(namespace, entry, record.len());
                }
                from = after(entry);
            }
            if page.len() < PAGE {
                return Ok(None);
            }
        }
    }

    /// A page of the entries from one on whose moments have come, and the next moment if it is later.
    fn due_entries(&self, from: &[u8], now: UtcMillis) -> Result<(Vec<Key>, Option<UtcMillis>), StoreError> {
        let (mut page, mut later) = (Vec::new(), None);
        self.tables.scan(Table::Due, from, &mut |entry, _| {
            if moment_of(entry) > now {
                later = Some(moment_of(entry));
                return false;
            }
            page.push(entry.to_vec());
            page.len() < PAGE
        })?;
        Ok((page, later))
    }

    fn record_of(&self, entry: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        id_at_end(entry).map_or(Ok(None), |id| self.tables.get(Table::Timers, &id_bytes(id)))
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
