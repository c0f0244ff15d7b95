//! Chooses the timers with the earliest due moments for a claim, but from each namespace at most its share.
//!
//! The index has the pending timers of all namespaces in the order of their due moments. If a namespace has hundreds of
//! thousands of due timers, the timers of other namespaces come after them in the index. Each namespace has a share of
//! the deliveries that may be under way at the same time ([`Shares`]), and a rate for late timers. Once a namespace has
//! used up its share or its rate, a claim skips its timers. The skipped timers stay in the index, and the claim
//! continues with the timers of other namespaces.
//!
//! To skip such timers only once, [`Turns`] remembers how far claims have read the index. This place is the *frontier*.
//! The map `behind` has the skipped index entries of each namespace:
//!
//! ```text
//!   index by due moment   a a a a b a a a c a a a a b a │ a a b c ...
//!                         └ taken, or waiting in `behind` │ not read yet
//!                                                      frontier
//! ```
//!
//! | the timer at the frontier | result |
//! |---|---|
//! | the share and the rate of its namespace permit the timer, and no earlier timer of the namespace waits | it is taken |
//! | its namespace has used up its share or its rate, or an earlier timer of the namespace waits | it waits in `behind` |
//!
//! In both cases, the frontier moves past the timer.
//!
//! # Invariants
//! T1. Each entry before the frontier was either taken by a claim, or can be found through `behind`. A transaction that
//!     adds an entry before the frontier reports the entry ([`Turns::note`], L7). Such an entry belongs to a timer that
//!     was created, moved, released or unparked, or that is retried.
//! T2. Timers of one namespace are taken in the order of their due moments, as far as claims know these timers.
//! T3. This state is only in memory. If it is lost, claims begin at the start of the index.
//!
//! A claim divides the timers that it may take, and the entries that it may read, into two halves. One half is for the
//! entries after the frontier. The other half is for the entries that wait, and is divided equally among their
//! namespaces. Each claim begins with the namespace after the first namespace of the last claim. Successive claims
//! begin with alternating halves. If the number of timers is odd, the half with which a claim begins gets one timer
//! more.
//!
//! # Cost
//! A timer that waits is read twice: when the frontier passes it, and when it is taken. A minute after claims have
//! reached the end of the due timers, they begin at the start of the index again, and read the waiting timers once
//! more. For each namespace, up to `EXACT` entries are kept in memory ([`waiting`](super::waiting)). Of a namespace
//! with more entries, only the first is kept. When such a namespace is served, a claim reads the index from that entry
//! on, with the entries of other namespaces in between.

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

/// The time for which claims trust the frontier (the key up to which they have read the index by due moment). The time
/// begins when a claim first reads the index up to the last due timer. Until the time has passed, claims continue from
/// the frontier. The next claim after that begins at the start of the index again.
const BELIEVED: Duration = Duration::from_secs(60);

/// Remembers how far claims have read the index by due moment, and which entries they have skipped because the
/// namespaces had used up their shares ([`Shares`]).
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The key in the index by due moment at which the next claim continues. Claims have read all entries whose keys
    /// are less than this key. Empty before the first read.
    frontier: Key,
    behind: BTreeMap<Box<str>, Waiting>,
    /// When claims take skipped timers, they serve the namespaces in turn. The last claim that took skipped timers has
    /// served this namespace first. The next claim first serves the namespace that follows in alphabetical order.
    /// `None` if no claim has taken skipped timers yet.
    first: Option<Box<str>>,
    /// The moment at which a claim first read the index up to the last due timer. `None` if no claim has read that far.
    arrived: Option<UtcMillis>,
    /// Whether the last claim took skipped timers before timers of the unread part of the index.
    was_behind_first: bool,
    /// The moment of the last claim, by the store's time. Zero before the first claim.
    seen: UtcMillis,
}

impl Turns {
    /// Forgets all state, so that the next claim begins at the start of the index.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the due moment up to which claims have read the index. `None` if no claim has read an entry yet.
    pub(crate) fn moment(&self) -> Option<UtcMillis> {
        (!self.frontier.is_empty()).then(|| moment_of(&self.frontier))
    }

    /// Adds timers of `made_due`, which a transaction has stored, to the skipped timers. Adds only timers whose index
    /// entries are before the frontier (the key up to which claims have read the index). Without this method, claims
    /// would find these timers only when they next read the index from its start.
    pub(crate) fn note(&mut self, made_due: MadeDue) {
        for (namespace, entry) in made_due.entries {
            if entry < self.frontier {
                self.behind.entry(namespace).or_default().add(entry);
            }
        }
    }

    /// Chooses the timers of a claim, from the index by due moment and from the skipped timers. Moves the frontier (the
    /// key up to which claims have read the index) past the index entries that it has read.
    pub(super) fn choose<T: Tables>(
        &mut self,
        tables: &T,
        now: UtcMillis,
        limit: Limit,
        shares: &Shares,
    ) -> Result<Chosen, StoreError> {
        let is_old = self.arrived.is_some_and(|arrived| now - arrived > BELIEVED);
        // If the clock went back, timers before the frontier might no longer be due.
        if is_old || now < self.seen {
            // The turn of the namespaces does not depend on the index, so the turn stays.
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
        // This claim has left such a timer only because of its own limits. The next claim may take the timer at once.
        if waiting.any(|(name, first)| choice.leaves(name, first)) {
            choice.note_next(now);
        }
        Ok(choice.finish())
    }

    /// Chooses half of the timers from the unread part of the index, and half from the skipped timers. Each call begins
    /// with the half with which the last call ended. If the number of timers is odd, the first half gets one timer
    /// more. If the first half takes fewer timers than it may, the second half may take more.
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
                    // The record is unreadable. The claim will set it aside.
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
            // With more namespaces than timers to take, `part` is zero. Then the namespaces get one timer each, until
            // the claim is full.
            let end = most.min(choice.len() + part.max(1));
            // If a read below fails, the removed entries are lost. For this reason, a store resets the turns after an
            // error.
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

    /// Returns the namespaces with skipped timers in cyclic alphabetical order, beginning after the namespace that the
    /// last claim served first.
    fn in_turn(&self) -> Vec<Box<str>> {
        let is_later = |name: &str| self.first.as_ref().is_some_and(|first| *name > **first);
        let later = self.behind.keys().filter(|name| is_later(name));
        later.chain(self.behind.keys().filter(|name| !is_later(name))).cloned().collect()
    }
}
