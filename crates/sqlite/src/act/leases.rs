//! Claims due timers, which leases them to a process. Renews and ends leases.

use super::Act;
use crate::error::Result;
use crate::row::{millis, moment};
use rusqlite::params;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Event, Next, Phase, Refusal, State, Token, step};
use tourbillon_durable::store::{Claimant, Claimed, Leased, LeftOut, Limit, Outcome, Reaped, Renewal};
use tourbillon_durable::timer::{Timer, TimerId};

/// The greatest number of rows that one call of [`Leases::reap`] removes from each of two tables: expired notes about
/// ended deliveries ([`Act::note_end`]), and expired ids of ended timers ([`Act::end`]).
const FORGOTTEN: u32 = 1_000;

/// Claims due timers, and renews and ends leases, within a transaction. A claim leases due timers to a process. A lease
/// gives the process the right to deliver the timer.
pub(crate) struct Leases<'a>(pub(crate) &'a Act<'a>);

impl Leases<'_> {
    pub(crate) fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Result<Claimed> {
        let mut bytes = 0;
        let due = self.0.timers(
            "SELECT id, record FROM tourbillon_timers INDEXED BY tourbillon_by_due
             WHERE phase = 0 AND due <= ? ORDER BY due, id LIMIT ?",
            &[&millis(self.0.now), &limit.timers],
            |(_, timer)| {
                bytes += timer.as_ref().map_or(0, |timer| timer.payload.0.len() as u64);
                bytes == 0 || bytes < limit.bytes
            },
        )?;
        self.lease(by, claim, due)
    }

    /// Leases the timers `due` to the process `by`, and returns the leased timers. `claim` is the number of the claim,
    /// which becomes a part of the leases' token.
    pub(super) fn lease(&self, by: Claimant, claim: u64, due: Vec<Timer>) -> Result<Claimed> {
        let token = Token { incarnation: by.incarnation, claim };
        let mut claimed = Claimed { now: self.0.now, ..Claimed::default() };
        for timer in due {
            let until = self.0.now + by.lease;
            match step(&timer, Event::Claim { token, until }, self.0.now) {
                Ok(Next::Stays(leased)) => {
                    self.0.write(&leased)?;
                    claimed.leased.push(Leased { timer: leased, token });
                }
                // The columns of the row are damaged and the record is not, so the columns are written again.
                Err(Refusal::NotDue | Refusal::State(_)) => self.0.write(&timer)?,
                // No claim ends a timer, and no claim needs a lease.
                Ok(Next::Ends(_)) | Err(_) => {}
            }
        }
        claimed.next_due = self.0.first_pending()?;
        claimed.quarantined = self.0.set_aside.get();
        self.0.claimed.set(Some(claimed.next_due));
        Ok(claimed)
    }

    pub(crate) fn recover(&self, by: Claimant, claim: u64) -> Result<Vec<Leased>> {
        let timers = self.0.timers(
            "SELECT id, record FROM tourbillon_timers INDEXED BY tourbillon_leased
             WHERE phase = 1 AND incarnation = ? AND claim = ? ORDER BY until, id",
            &[&by.incarnation.cast_signed(), &claim.cast_signed()],
            |_| true,
        )?;
        let token = Token { incarnation: by.incarnation, claim };
        Ok(timers.into_iter().map(|timer| Leased { timer, token }).collect())
    }

    /// Renews leases. If the user's program has ended a delivery in its own transaction, the lease does not count as
    /// lost, because the runtime is about to report the same end.
    pub(crate) fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Result<Renewal> {
        let mut lost = Vec::new();
        for (id, token) in leases {
            let event = Event::Renew { token, until: self.0.now + by.lease };
            match self.0.get_id(id)?.map(|timer| step(&timer, event, self.0.now)) {
                Some(Ok(Next::Stays(renewed))) => self.0.write(&renewed)?,
                _ if self.0.noted_end(id, token)?.is_some() => {}
                _ => lost.push((id, token)),
            }
        }
        Ok(Renewal::without(lost))
    }

    pub(crate) fn reap(&self, limit: u32) -> Result<Reaped> {
        let over = self.0.timers(
            "SELECT id, record FROM tourbillon_timers INDEXED BY tourbillon_leased
             WHERE phase = 1 AND until <= ? ORDER BY until, id LIMIT ?",
            &[&millis(self.0.now), &limit],
            |_| true,
        )?;
        let mut reaped = self.expire(over)?;
        let sql = "SELECT until FROM tourbillon_timers WHERE phase = 1 ORDER BY until, id LIMIT 1";
        reaped.next = self.0.moment(sql, [])?;
        self.forget()?;
        Ok(reaped)
    }

    /// Ends at most 500 leases, even if they have not expired. Returns `None` if there was no lease. Called only while
    /// a store opens the database. No other store then delivers timers, so the holders of the leases are gone.
    pub(crate) fn end_leases(&self) -> Result<Option<Reaped>> {
        let left = self.0.rows(
            "SELECT id, record FROM tourbillon_timers INDEXED BY tourbillon_leased
             WHERE phase = 1 ORDER BY until, id LIMIT 500",
            &[],
            |_| true,
        )?;
        let is_any = !left.is_empty();
        let mut timers = Vec::new();
        for (id, timer) in left {
            match timer {
                Some(timer) => timers.push(timer),
                None => self.0.put_aside(id)?,
            }
        }
        let ended = self.expire(timers)?;
        Ok(is_any.then_some(ended))
    }

    fn expire(&self, timers: Vec<Timer>) -> Result<Reaped> {
        let mut reaped = Reaped::default();
        for timer in timers {
            let Ok(next) = step(&timer, Event::Expire, self.0.now) else {
                // The columns of the row are damaged: by its record, the timer is not leased.
                self.0.write(&timer)?;
                continue;
            };
            let outcome = self.0.settle(&timer, next)?;
            reaped.left_out.extend(LeftOut::of(&timer, &outcome));
            match outcome {
                Outcome::Ended { phase: Phase::Dead, .. } => reaped.dead.push(timer.id),
                Outcome::Ended { phase: Phase::Withdrawn, .. } => reaped.withdrawn += 1,
                _ => reaped.add_returned(&timer),
            }
        }
        Ok(reaped)
    }

    /// Removes at most [`FORGOTTEN`] expired notes about deliveries that the user's program has ended in its own
    /// transactions ([`Act::note_end`]). Also removes at most [`FORGOTTEN`] expired ids of ended timers. The store
    /// keeps these ids for a time, so that it recognizes a repeated creation.
    fn forget(&self) -> Result<()> {
        for table in ["tourbillon_remembered", "tourbillon_ends"] {
            let over = format!("SELECT id FROM {table} WHERE until <= ? ORDER BY until LIMIT ?");
            let sql = format!("DELETE FROM {table} WHERE id IN ({over})");
            self.0.run(&sql, params![millis(self.0.now), FORGOTTEN])?;
        }
        Ok(())
    }

    pub(crate) fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Result<Vec<(UtcMillis, TimerId)>> {
        let sql = "SELECT due, id FROM tourbillon_timers INDEXED BY tourbillon_by_due
                   WHERE phase = 0 AND due >= ? AND due < ? ORDER BY due, id LIMIT ?";
        let mut query = self.0.sql.prepare_cached(sql).map_err(crate::error::failed)?;
        let rows = query.query_map(params![millis(from), millis(until), limit], |row| {
            Ok((moment(row.get(0)?), row.get::<_, Vec<u8>>(1)?))
        });
        let rows: Vec<_> = rows.and_then(Iterator::collect).map_err(crate::error::failed)?;
        Ok(rows.into_iter().filter_map(|(due, id)| Some((due, crate::row::id_of(&id)?))).collect())
    }
}

/// Returns whether a timer is pending and due.
pub(super) fn is_due(timer: &Timer, now: UtcMillis) -> bool {
    timer.state == State::Pending && timer.due <= now
}
