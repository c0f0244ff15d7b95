//! Claims in turn: a claim takes the timers with the earliest due moments, but of no namespace more than its share.
//!
//! The index has the pending timers of all namespaces in the order of their due moments. If a namespace has hundreds of
//! thousands of due timers, the timers of other namespaces lie behind them. A namespace has a share of the places for
//! deliveries, and a rate of late timers. It gets no more timers once one of the two is used up. A claim then passes
//! over its timers, which stay in the index, and goes on to those of others.
//!
//! To pass over such timers only once, [`Turns`] remembers how far claims have come. This place is the *frontier*:
//!
//! ```text
//!   index by due moment   a a a a b a a a c a a a a b a │ a a b c ...
//!                         └ taken, or waiting in `behind` │ not read yet
//!                                                      frontier
//! ```
//!
//! | the timer at the frontier | its fate |
//! |---|---|
//! | its namespace may take it, and does not wait | it is taken |
//! | its namespace may not take it, or waits | it waits: the frontier goes past it |
//!
//! # Invariants
//! T1. An entry before the frontier was taken by a claim, or is found from its namespace's entries in `behind`. An
//!     entry that appears before the frontier is reported ([`Turns::note`], L7): its timer is made, moved, released,
//!     unparked or tried again.
//! T2. Timers of one namespace are taken in the order of their due moments, as far as they are known.
//! T3. Nothing here is stored. After a loss of this state, claims begin at the start of the index.
//!
//! A claim divides its timers, and the entries that it reads, into two halves. One half is for the frontier, and the
//! other half for the namespaces that wait, in equal parts. Each claim begins with the next namespace. The two halves
//! alternate in being first. The first half has the odd timer.
//!
//! # Cost
//! A timer that waits is read twice: when the frontier passes it, and when it is taken. A minute after claims have come
//! to the end of the due timers, they begin at the start again. Then waiting timers are read once more. A namespace
//! keeps up to `EXACT` entries in memory ([`waiting`](super::waiting)). A namespace with more entries keeps only the
//! first of them. When it is served, the index is read from that entry on, with the entries of other namespaces in
//! between.

use super::choice::{Choice, Chosen, LOOKS, PAGE, after};
use super::entries::moment_of;
use super::made_due::MadeDue;
use super::waiting::{Key, Waiting};
use crate::record;
use crate::store::Limit;
use crate::store::error::StoreError;
use crate::store::shares::Shares;
use crate::store::tables::Tables;
use core::time::Duration;
use std::collections::BTreeMap;
use tourbillon_words::UtcMillis;

/// The time for which claims skip the part of the index that they have already read. The time begins when claims first
/// come to the end of the due timers. After this time, claims begin at the start of the index again.
const BELIEVED: Duration = Duration::from_secs(60);

/// Remembers how far claims have read the index by due moment. Also remembers the index entries that claims passed
/// over, because their namespaces had used up their shares (parts of a claim).
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The key in the index by due moment up to which claims have read all entries (T1). Empty before the first read.
    frontier: Key,
    behind: BTreeMap<Box<str>, Waiting>,
    /// The namespace that the last claim served first among the namespaces whose timers claims had passed over. `None`
    /// before such a claim.
    first: Option<Box<str>>,
    /// The moment at which claims first came to the end of the due timers. `None` before that moment.
    arrived: Option<UtcMillis>,
    /// Whether the last claim first served the timers that earlier claims had passed over. If false, the last claim
    /// first served the unread part of the index.
    was_behind_first: bool,
    /// The moment of the last claim, by the store's time. Zero before the first claim.
    seen: UtcMillis,
}

impl Turns {
    /// Forgets how far claims have read the index. The next claim begins at the start of the index.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the due moment up to which claims have read the index. `None` if no claim has read an entry yet.
    pub(crate) fn moment(&self) -> Option<UtcMillis> {
        (!self.frontier.is_empty()).then(|| moment_of(&self.frontier))
    }

    /// Adds the timers that a transaction has made due in the part of the index that claims have already read (T1).
    pub(crate) fn note(&mut self, made_due: MadeDue) {
        for (namespace, entry) in made_due.entries {
            if entry < self.frontier {
                self.behind.entry(namespace).or_default().add(entry);
            }
        }
    }

    /// Chooses the timers of a claim, and moves the frontier, the place up to which claims have read the index.
    pub(super) fn choose<T: Tables>(
        &mut self,
        tables: &T,
        now: UtcMillis,
        limit: Limit,
        shares: &Shares,
    ) -> Result<Chosen, StoreError> {
        let is_old = self.arrived.is_some_and(|arrived| now - arrived > BELIEVED);
        // If the clock went back, timers before the frontier may not be due any more.
        if is_old || now < self.seen {
            *self = Self { first: self.first.take(), ..Self::default() };
        }
        self.seen = now;
        let mut choice = Choice::new(tables, now, limit, shares);
        let most = limit.timers as usize;
        if self.behind.is_empty() {
            self.choose_at_frontier(&mut choice, most)?;
        } else {
            self.choose_by_halves(&mut choice, most)?;
        }
        let mut waiting = self.behind.iter().filter_map(|(name, waiting)| Some((name, waiting.first()?)));
        if waiting.any(|(name, first)| choice.leaves(name, first)) {
            choice.note_next(now);
        }
        Ok(choice.finish())
    }

    /// Chooses half of the timers from the unread part of the index, and half from the namespaces with passed-over
    /// timers. The halves take turns in being chosen first. The half that is chosen first gets the odd timer. The other
    /// half also gets the timers that the first half leaves.
    fn choose_by_halves<T: Tables>(
        &mut self,
        choice: &mut Choice<'_, T>,
        most: usize,
    ) -> Result<(), StoreError> {
        self.was_behind_first = !self.was_behind_first;
        let half = most.div_ceil(2);
        choice.looks = LOOKS / 2;
        if self.was_behind_first {
            self.choose_behind(choice, half)?;
            choice.looks += LOOKS / 2;
            self.choose_at_frontier(choice, most)
        } else {
            self.choose_at_frontier(choice, half)?;
            choice.looks += LOOKS / 2;
            self.choose_behind(choice, most)
        }
    }

    fn choose_at_frontier<T: Tables>(
        &mut self,
        choice: &mut Choice<'_, T>,
        most: usize,
    ) -> Result<(), StoreError> {
        loop {
            let (page, later) = choice.due_page(&self.frontier)?;
            for entry in &page {
                if choice.is_over(most) {
                    choice.note_next(moment_of(entry));
                    return Ok(());
                }
                choice.looks -= 1;
                let record = choice.record_of(entry)?;
                let namespace = record.as_deref().and_then(record::namespace);
                match (namespace, &record) {
                    (Some(namespace), Some(record))
                        if choice.permits(namespace, entry) && !self.behind.contains_key(namespace) =>
                    {
                        choice.take(namespace, entry, record.len());
                    }
                    (Some(namespace), _) => {
                        self.behind.entry(namespace.into()).or_default().add(entry.clone());
                    }
                    // The record cannot be read. The claim finds the damage.
                    (None, _) => choice.take("", entry, 0),
                }
                self.frontier = after(entry);
            }
            if page.len() < PAGE {
                self.arrived.get_or_insert(choice.now);
                later.into_iter().for_each(|moment| choice.note_next(moment));
                return Ok(());
            }
        }
    }

    fn choose_behind<T: Tables>(
        &mut self,
        choice: &mut Choice<'_, T>,
        most: usize,
    ) -> Result<(), StoreError> {
        let permits = |name: &str| {
            let first = self.behind.get(name).and_then(Waiting::first);
            first.is_some_and(|first| choice.permits(name, first))
        };
        let in_turn: Vec<_> = self.in_turn().into_iter().filter(|name| permits(name)).collect();
        let part = most.saturating_sub(choice.len()) / in_turn.len().max(1);
        self.first = in_turn.first().cloned().or(self.first.take());
        for namespace in in_turn {
            if choice.is_over(most) {
                break;
            }
            let end = most.min(choice.len() + part.max(1));
            let Some(waiting) = self.behind.remove(&namespace) else { continue };
            let left = match waiting {
                Waiting::Exactly(entries) => choice.take_of(&namespace, entries, end)?,
                Waiting::From(first) => choice.take_from(&namespace, first, &self.frontier, end)?,
            };
            if let Some(left) = left {
                self.behind.insert(namespace, left);
            }
        }
        Ok(())
    }

    /// Returns the namespaces with passed-over timers in alphabetical order. The order begins after the namespace that
    /// the last claim served first. After the last namespace it goes on with the first.
    fn in_turn(&self) -> Vec<Box<str>> {
        let is_later = |name: &str| self.first.as_ref().is_some_and(|first| *name > **first);
        let later = self.behind.keys().filter(|name| is_later(name));
        later.chain(self.behind.keys().filter(|name| !is_later(name))).cloned().collect()
    }
}
