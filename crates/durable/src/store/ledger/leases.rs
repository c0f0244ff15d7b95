//! Claims and leases.

use super::entries::{due_entry, id_at_end, id_bytes, moment_bytes, moment_of};
use super::timers::{Ledger, bug};
use crate::state::{Event, Next, Phase, State, Token, step};
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::store::{Claimant, Claimed, Leased, LeftOut, Limit, Outcome, Reaped};
use crate::timer::{Timer, TimerId};
use tourbillon_words::UtcMillis;

impl<T: Tables> Ledger<T> {
    /// Claims timers that are due. Returns whether the claim must be durable before it is answered.
    pub(crate) fn claim(
        &mut self,
        by: Claimant,
        claim: u64,
        limit: Limit,
    ) -> Result<(Claimed, bool), StoreError> {
        let mut due = Vec::new();
        self.tables.scan(Table::Due, &[], &mut |key, _| {
            let is_due = moment_of(key) <= self.now && due.len() < limit.timers as usize;
            if is_due {
                due.push(key.to_vec());
            }
            is_due
        })?;
        self.claim_entries(by, claim, due, limit.bytes)
    }

    /// Claims the timers that were chosen.
    pub(crate) fn claim_chosen(
        &mut self,
        by: Claimant,
        claim: u64,
        chosen: &[(UtcMillis, TimerId)],
    ) -> Result<(Claimed, bool), StoreError> {
        let entries = chosen.iter().map(|(due, id)| due_entry(*due, *id)).collect();
        self.claim_entries(by, claim, entries, u64::MAX)
    }

    /// Claims the timers of these entries of the index, up to a number of payload bytes.
    fn claim_entries(
        &mut self,
        by: Claimant,
        claim: u64,
        due: Vec<Vec<u8>>,
        most_bytes: u64,
    ) -> Result<(Claimed, bool), StoreError> {
        let token = Token { incarnation: by.incarnation, claim };
        let mut claimed = Claimed { now: self.now, ..Claimed::default() };
        let (mut bytes, mut must_be_durable) = (0, false);
        for key in due {
            if bytes > 0 && bytes >= most_bytes {
                break;
            }
            let timer = match id_at_end(&key) {
                Some(id) => self.load_named(id)?,
                None => None,
            };
            // An entry that is not its timer's is removed. It would stop every later claim.
            let is_its = |timer: &Timer| timer.state == State::Pending && timer.due == moment_of(&key);
            let timer = match timer {
                Some(timer) if is_its(&timer) => timer,
                other => {
                    self.remove_stray(Table::Due, &key, other.as_ref(), Phase::Pending)?;
                    continue;
                }
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
            let timer = match self.load_named(id)? {
                Some(timer) if is_its(&timer) => timer,
                other => {
                    let key = [&moment_bytes(until)[..], &id_bytes(id)].concat();
                    self.remove_stray(Table::Leases, &key, other.as_ref(), Phase::Leased)?;
                    continue;
                }
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
}
