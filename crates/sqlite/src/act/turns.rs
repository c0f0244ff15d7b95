//! Claims timers in turn, which divides the concurrent deliveries between namespaces.
//!
//! A claim reads the first due timer of each namespace by an index. Each namespace gets an equal part of the claim,
//! within its share of the concurrent deliveries. The rest of the claim goes to the namespaces with the earliest
//! timers. Only the order of the namespaces is kept from one claim to the next. So a claim finds each due timer that
//! another connection has stored, whatever the timer's due moment.

use super::Act;
use super::leases::{Leases, is_due};
use super::lists::Lists;
use crate::error::{Result, failed};
use crate::row::{id_of, millis, moment};
use core::time::Duration;
use rusqlite::params;
use std::collections::BTreeSet;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Claimant, Claimed, Limit, Shares};
use tourbillon_durable::timer::{Timer, TimerId};

/// A claim considers all namespaces with pending timers, if there are at most `LOOKED_AT` of them. If there are more,
/// the claim considers the namespaces of the first [`FIRST`] due timers. If at least [`FIRST`] timers are due, the
/// claim also considers at most `LOOKED_AT` other namespaces with pending timers.
const LOOKED_AT: usize = 256;
/// The number of due timers whose namespaces a claim considers, if more than [`LOOKED_AT`] namespaces have pending
/// timers.
const FIRST: u32 = 1_024;
/// The longest time to the next claim, after a claim that has not considered all namespaces with due timers.
const SOON: Duration = Duration::from_millis(10);

/// The order of the namespaces in the next claim.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// The namespace after which the next claim begins, in the order of the names. `None` if no claim has used that
    /// order yet.
    last: Option<Box<str>>,
    /// True if the next claim takes the namespaces in the order of their names, beginning after `last`. False if it
    /// takes the namespace with the earliest due timer first. Claims alternate between the two orders.
    is_by_turn: bool,
}

/// A namespace with due timers, during a claim.
struct Waiting {
    namespace: Box<str>,
    /// The due moment of the namespace's first due timer that the claim has not taken, or `None` if no due timer is
    /// left.
    head: Option<UtcMillis>,
    /// The due moment and the id of the last timer that the claim has taken from this namespace. The index by
    /// namespaces has the timers in this order, so the claim goes on after this timer.
    after: (i64, Vec<u8>),
    taken: usize,
    late: usize,
}

/// Claims due timers within a transaction. A claim takes a part of its timers from each namespace, so that it divides
/// the concurrent deliveries between the namespaces.
pub(crate) struct Turns<'a>(pub(crate) &'a Act<'a>);

impl Turns<'_> {
    pub(crate) fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: &Shares,
        rotation: &mut Rotation,
    ) -> Result<Claimed> {
        let (mut waiting, is_all) = self.waiting(rotation)?;
        if rotation.is_by_turn {
            rotation.last = waiting.first().map(|first| first.namespace.clone()).or(rotation.last.take());
        } else {
            // The sort is stable: namespaces with the same moment stay in the order of their names.
            waiting.sort_by_key(|waiting| waiting.head);
        }
        rotation.is_by_turn = !rotation.is_by_turn;
        let mut choice = Choice { limit, shares, now: self.0.now, timers: Vec::new(), bytes: 0 };
        let part = (limit.timers as usize / waiting.len().max(1)).max(1);
        for waiting in &mut waiting {
            self.take(&mut choice, waiting, part)?;
        }
        waiting.sort_by_key(|waiting| waiting.head);
        for waiting in &mut waiting {
            self.take(&mut choice, waiting, usize::MAX)?;
        }
        let all = choice.timers.len();
        let leaves = waiting.iter().any(|waiting| waiting.head.is_some() && choice.leaves(waiting, all));
        let mut next = if leaves { Some(self.0.now) } else { Lists(self.0).first_after_now()? };
        if !is_all {
            let soon = self.0.now + SOON;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        let claimed = Leases(self.0).lease(by, claim, choice.timers)?;
        Ok(Claimed { next_claim: next, ..claimed })
    }

    /// Returns the namespaces with due timers that the claim considers, in the order of their names, beginning after
    /// [`Rotation::last`]. Also returns true if no other namespace has due timers.
    fn waiting(&self, rotation: &Rotation) -> Result<(Vec<Waiting>, bool)> {
        let sql = "SELECT namespace FROM tourbillon_counts WHERE phase = 0 ORDER BY namespace";
        let mut names = self.names(sql, params![])?;
        let split = match &rotation.last {
            Some(last) => names.partition_point(|name| **name <= **last),
            None => 0,
        };
        names.rotate_left(split);
        let mut is_all = true;
        if names.len() > LOOKED_AT {
            let sql = "SELECT namespace FROM tourbillon_timers INDEXED BY tourbillon_by_due
                       WHERE phase = 0 AND due <= ? ORDER BY due, id LIMIT ?";
            let first = self.names(sql, params![millis(self.0.now), FIRST])?;
            is_all = first.len() < FIRST as usize;
            let first: BTreeSet<Box<str>> = first.into_iter().collect();
            let mut others = if is_all { 0 } else { LOOKED_AT };
            names.retain(|name| {
                let is_other = !first.contains(name);
                let is_chosen = !is_other || others > 0;
                others -= usize::from(is_other && is_chosen);
                is_chosen
            });
        }
        let mut waiting = Vec::new();
        for namespace in names {
            if let Some(head) = self.head(&namespace, (i64::MIN, &[]))? {
                let after = (i64::MIN, Vec::new());
                waiting.push(Waiting { namespace, head: Some(head), after, taken: 0, late: 0 });
            }
        }
        Ok((waiting, is_all))
    }

    fn names(&self, sql: &str, with: impl rusqlite::Params) -> Result<Vec<Box<str>>> {
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let names = query.query_map(with, |row| row.get::<_, String>(0).map(Into::into));
        names.and_then(Iterator::collect).map_err(failed)
    }

    /// Returns the due moment of the namespace's next due timer, or `None` if no due timer is left. The timers are in
    /// the order of their due moments and ids, and `after` is the due moment and the id of the timer before.
    fn head(&self, namespace: &str, after: (i64, &[u8])) -> Result<Option<UtcMillis>> {
        let sql = "SELECT due FROM tourbillon_timers INDEXED BY tourbillon_by_namespace
                   WHERE namespace = ? AND phase = 0 AND (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT 1";
        let with = params![namespace, after.0, after.1, millis(self.0.now)];
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let mut rows = query.query(with).map_err(failed)?;
        match rows.next().map_err(failed)? {
            Some(row) => Ok(Some(moment(row.get(0).map_err(failed)?))),
            None => Ok(None),
        }
    }

    /// Takes at most `part` due timers from a namespace into the claim, beginning after the namespace's last taken
    /// timer. Takes fewer timers if the namespace has used up its share (of the concurrent deliveries), or if the claim
    /// has reached its limits.
    fn take(&self, choice: &mut Choice<'_>, waiting: &mut Waiting, part: usize) -> Result<()> {
        let end = waiting.taken.saturating_add(part);
        while waiting.head.is_some() && waiting.taken < end {
            let permitted = choice.permitted(waiting).min(end - waiting.taken);
            if permitted == 0 {
                return Ok(());
            }
            let wanted = u32::try_from(permitted).unwrap_or(u32::MAX).min(256);
            let rows = self.due_of(&waiting.namespace, &waiting.after, wanted)?;
            let is_end = rows.len() < wanted as usize;
            for (due, id, timer) in rows {
                if choice.is_over() || !choice.permits(waiting, due) {
                    waiting.head = Some(due);
                    return Ok(());
                }
                waiting.after = (millis(due), crate::row::id_bytes(id).to_vec());
                match timer {
                    None => self.0.put_aside(id)?,
                    Some(timer) if is_due(&timer, self.0.now) => choice.take(waiting, timer),
                    // The columns of the row are damaged and the record is not, so the columns are written again.
                    Some(timer) => self.0.write(&timer)?,
                }
            }
            waiting.head = if is_end {
                None
            } else {
                self.head(&waiting.namespace, (waiting.after.0, &waiting.after.1))?
            };
        }
        Ok(())
    }

    fn due_of(
        &self,
        namespace: &str,
        after: &(i64, Vec<u8>),
        limit: u32,
    ) -> Result<Vec<(UtcMillis, TimerId, Option<Timer>)>> {
        let sql = "SELECT id, record, due FROM tourbillon_timers INDEXED BY tourbillon_by_namespace
                   WHERE namespace = ? AND phase = 0 AND (due, id) > (?, ?) AND due <= ? ORDER BY due, id LIMIT ?";
        let with = params![namespace, after.0, after.1, millis(self.0.now), limit];
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let mut rows = query.query(with).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let due = moment(row.get(2).map_err(failed)?);
            if row.get_ref(0).map_err(failed)?.as_blob().ok().and_then(id_of).is_some() {
                let (id, timer) = super::read(row).map_err(failed)?;
                found.push((due, id, timer));
            }
        }
        Ok(found)
    }
}

/// The timers that a claim is about to lease, with the claim's limits.
struct Choice<'c> {
    limit: Limit,
    shares: &'c Shares,
    now: UtcMillis,
    timers: Vec<Timer>,
    bytes: u64,
}

impl Choice<'_> {
    fn is_over(&self) -> bool {
        self.timers.len() >= self.limit.timers as usize || self.bytes > 0 && self.bytes >= self.limit.bytes
    }

    /// Returns the number of further timers of a namespace that the claim may take. The number depends on the
    /// namespace's share of the concurrent deliveries ([`Shares::left`]) and on the claim's limits.
    fn permitted(&self, waiting: &Waiting) -> usize {
        if self.is_over() {
            return 0;
        }
        let all = self.timers.len();
        self.shares.left(self.limit.timers, &waiting.namespace, waiting.taken, all)
    }

    fn permits(&self, waiting: &Waiting, due: UtcMillis) -> bool {
        self.permitted(waiting) > 0 && self.has_permit(waiting, due)
    }

    /// Returns whether the limit for late timers ([`Shares::late`]) lets the claim take a timer that was due at `due`.
    /// The limit says how long ago the due moment of a late timer is, and how many late timers the claim may take from
    /// each namespace. A timer that is not late is always permitted.
    fn has_permit(&self, waiting: &Waiting, due: UtcMillis) -> bool {
        self.shares
            .late
            .as_ref()
            .is_none_or(|late| self.now - due <= late.after || late.left(&waiting.namespace) > waiting.late)
    }

    /// Returns whether this claim leaves a due timer of the namespace that the next claim could take at once. `all` is
    /// the number of timers that this claim has taken.
    fn leaves(&self, waiting: &Waiting, all: usize) -> bool {
        self.shares.room(&waiting.namespace, waiting.taken, all) > 0
            && waiting.head.is_some_and(|due| self.has_permit(waiting, due))
    }

    fn take(&mut self, waiting: &mut Waiting, timer: Timer) {
        self.bytes += timer.payload.0.len() as u64;
        waiting.taken += 1;
        if let Some(late) = &self.shares.late {
            waiting.late += usize::from(self.now - timer.due > late.after);
        }
        self.timers.push(timer);
    }
}
