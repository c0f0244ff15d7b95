//! Makes claims of the store in SQLite, and renews and ends their leases.

use crate::transaction::{Act, Result, failed, millis, moment};
use tourbillon_durable::state::{Event, Next, Phase, Token, step};
use tourbillon_durable::store::{Claimant, Claimed, Leased, LeftOut, Limit, Outcome, Reaped};
use tourbillon_durable::timer::{Timer, TimerId};

impl Act<'_> {
    pub(crate) fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Result<Claimed> {
        let token = Token { incarnation: by.incarnation, claim };
        let due = self.timers(
            "WHERE phase = 'pending' AND due <= ? ORDER BY due, id LIMIT ?",
            vec![millis(self.now).into(), i64::from(limit.timers).into()],
        )?;
        let mut claimed = Claimed { now: self.now, ..Claimed::default() };
        let mut bytes = 0;
        for timer in due {
            if bytes > 0 && bytes >= limit.bytes {
                break;
            }
            bytes += timer.payload.0.len() as u64;
            let until = self.now + by.lease;
            let next = step(&timer, Event::Claim { token, until }, self.now).unwrap();
            let timer = match next {
                Next::Stays(leased) => {
                    self.store(&leased)?;
                    leased
                }
                Next::Ends(_) => {
                    let outcome = self.settle(&timer, next)?;
                    claimed.left_out.extend(LeftOut::of(&timer, &outcome));
                    Timer { deliveries: timer.deliveries + 1, ..timer }
                }
            };
            claimed.leased.push(Leased { timer, token });
        }
        let first = self.timers("WHERE phase = 'pending' ORDER BY due, id LIMIT 1", vec![])?;
        claimed.next_due = first.first().map(|timer| timer.due);
        Ok(claimed)
    }

    pub(crate) fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Result<Vec<TimerId>> {
        let mut lost = Vec::new();
        for (id, token) in leases {
            let event = Event::Renew { token, until: self.now + by.lease };
            match self.get(&id.into())?.map(|timer| step(&timer, event, self.now)) {
                Some(Ok(Next::Stays(renewed))) => self.store(&renewed)?,
                _ => lost.push(id),
            }
        }
        Ok(lost)
    }

    pub(crate) fn reap(&self, limit: u32) -> Result<Reaped> {
        let mut reaped = Reaped::default();
        for timer in self.timers(
            "WHERE phase = 'leased' AND until <= ? ORDER BY until, id LIMIT ?",
            vec![millis(self.now).into(), i64::from(limit).into()],
        )? {
            let next = step(&timer, Event::Expire, self.now).unwrap();
            let outcome = self.settle(&timer, next)?;
            reaped.left_out.extend(LeftOut::of(&timer, &outcome));
            match outcome {
                Outcome::Ended { phase: Phase::Dead, .. } => reaped.dead.push(timer.id),
                Outcome::Ended { phase: Phase::Withdrawn, .. } => reaped.withdrawn += 1,
                _ => reaped.returned.push(timer.id),
            }
        }
        let sql = "SELECT min(until) FROM timers WHERE phase = 'leased'";
        let next: Option<i64> = self.sql.query_row(sql, [], |row| row.get(0)).map_err(failed)?;
        reaped.next = next.map(moment);
        Ok(reaped)
    }
}
