//! Leases due timers for a claim, and ends expired leases for a call of
//! [`TimerStore::reap`](crate::store::TimerStore::reap).

use super::entries::{id_at_end, is_phase_entry, moment_of};
use super::lifecycle::{Lifecycle, bug};
use crate::state::{Event, Next, Phase, Token, step};
use crate::store::error::StoreError;
use crate::store::tables::{Table, Tables};
use crate::store::{Claimant, Claimed, Leased, LeftOut, Outcome, Reaped};
use crate::timer::Timer;
use tourbillon_words::UtcMillis;

/// Grants the leases of a claim to its claimant, and collects the timers and other results that the claim returns.
pub(super) struct Claiming<'l, T> {
    lifecycle: &'l mut Lifecycle<T>,
    token: Token,
    /// The moment at which the leases of this claim end.
    until: UtcMillis,
    claimed: Claimed,
    /// The sum of the payload bytes of the timers that the claim has leased.
    bytes: u64,
}

impl<'l, T: Tables> Claiming<'l, T> {
    pub(super) fn new(lifecycle: &'l mut Lifecycle<T>, by: Claimant, claim: u64) -> Self {
        let token = Token { incarnation: by.incarnation, claim };
        let (now, until) = (lifecycle.now, lifecycle.now + by.lease);
        let claimed = Claimed { now, ..Claimed::default() };
        Self { lifecycle, token, until, claimed, bytes: 0 }
    }

    /// Grants a lease for each timer of `entries`, which are entries of the index by due moment. Stops once the
    /// payloads of the claimed timers have `most_bytes` bytes together. Returns the claim's answer.
    pub(super) fn run(mut self, entries: &[Vec<u8>], most_bytes: u64) -> Result<Claimed, StoreError> {
        for entry in entries {
            // Without `self.bytes > 0`, a claim with a limit of 0 bytes would never take a timer.
            if self.bytes > 0 && self.bytes >= most_bytes {
                break;
            }
            if let Some(timer) = self.load(entry)? {
                self.take(timer)?;
            }
        }
        self.claimed.next_due = self.lifecycle.timers.reader().next_due()?;
        self.claimed.quarantined = self.lifecycle.timers.quarantined();
        Ok(self.claimed)
    }

    /// Returns the timer of an entry in the index by due moment. The entry has the timer's id and a due moment. If
    /// there is no pending timer with this id and this due moment, the entry is wrong. In this case, removes the entry,
    /// so that later claims do not read it again, and returns `None`.
    fn load(&mut self, entry: &[u8]) -> Result<Option<Timer>, StoreError> {
        let timers = &mut self.lifecycle.timers;
        let named = id_at_end(entry).map_or(Ok(None), |id| timers.load_named(id))?;
        match named {
            Some(timer) if is_phase_entry(&timer, Table::Due, entry) => Ok(Some(timer)),
            other => timers.remove_stray(Table::Due, entry, other.as_ref()).map(|()| None),
        }
    }

    fn take(&mut self, timer: Timer) -> Result<(), StoreError> {
        self.bytes += timer.payload.0.len() as u64;
        let event = Event::Claim { token: self.token, until: self.until };
        match step(&timer, event, self.lifecycle.now) {
            Ok(Next::Stays(leased)) => {
                self.lifecycle.timers.change(&timer, &leased)?;
                self.claimed.leased.push(Leased { timer: leased, token: self.token });
                Ok(())
            }
            other => Err(bug(other)),
        }
    }
}

/// Ends expired leases, and collects the answer to [`TimerStore::reap`](crate::store::TimerStore::reap).
pub(super) struct Reaping<'l, T> {
    lifecycle: &'l mut Lifecycle<T>,
    reaped: Reaped,
    /// Whether the call has ended a lease, or has removed a wrong entry from the index of leases.
    has_ended: bool,
}

impl<'l, T: Tables> Reaping<'l, T> {
    pub(super) fn new(lifecycle: &'l mut Lifecycle<T>) -> Self {
        Self { lifecycle, reaped: Reaped::default(), has_ended: false }
    }

    /// Ends at most `limit` expired leases.
    pub(super) fn run(mut self, limit: u32) -> Result<Reaped, StoreError> {
        let now = self.lifecycle.now;
        self.end_until(now, limit)?;
        Ok(self.reaped)
    }

    /// Ends at most `limit` leases, even if they have not expired, because their holders are gone. Adds the ended
    /// leases to `ended`. Returns whether the method has ended a lease, or has removed a wrong entry from the index of
    /// leases. If so, the caller must call the method again. An entry that cannot be removed because of damage does not
    /// count, so the calls come to an end.
    pub(super) fn run_all(mut self, limit: u32, ended: &mut Reaped) -> Result<bool, StoreError> {
        self.reaped = core::mem::take(ended);
        self.end_until(UtcMillis::MAX, limit)?;
        *ended = self.reaped;
        Ok(self.has_ended)
    }

    /// Ends at most `limit` leases that end at `moment` or earlier.
    fn end_until(&mut self, moment: UtcMillis, limit: u32) -> Result<(), StoreError> {
        let (mut over, mut next) = (Vec::new(), None);
        self.lifecycle.timers.reader().leases(|entry| {
            let until = moment_of(entry);
            let is_over = until <= moment && over.len() < limit as usize;
            if is_over {
                over.push(entry.to_vec());
            } else {
                next = Some(until);
            }
            is_over
        })?;
        self.reaped.next = next;
        for entry in over {
            if let Some(timer) = self.load(&entry)? {
                self.end_lease(&timer)?;
                self.has_ended = true;
            }
        }
        Ok(())
    }

    /// Returns the timer of an entry in the index of leases. The entry has the end of the lease and the timer's id. If
    /// there is no leased timer with this entry, the entry is wrong. In this case, removes the entry, so that later
    /// calls of [`TimerStore::reap`](crate::store::TimerStore::reap) do not read it again, and returns `None`.
    fn load(&mut self, entry: &[u8]) -> Result<Option<Timer>, StoreError> {
        let timers = &mut self.lifecycle.timers;
        let named = id_at_end(entry).map_or(Ok(None), |id| timers.load_named(id))?;
        match named {
            Some(timer) if is_phase_entry(&timer, Table::Leases, entry) => Ok(Some(timer)),
            other => {
                self.has_ended |= timers.tables().get(Table::Leases, entry)?.is_some();
                timers.remove_stray(Table::Leases, entry, other.as_ref()).map(|()| None)
            }
        }
    }

    fn end_lease(&mut self, timer: &Timer) -> Result<(), StoreError> {
        match step(timer, Event::Expire, self.lifecycle.now) {
            Ok(Next::Stays(next)) => {
                let outcome = self.lifecycle.settle(timer, next)?;
                self.reaped.left_out.extend(LeftOut::of(timer, &outcome));
                match outcome {
                    Outcome::Ended { phase: Phase::Dead, .. } => self.reaped.dead.push(timer.id),
                    _ => self.reaped.add_returned(timer),
                }
            }
            Ok(Next::Ends(end)) => {
                // The timer was withdrawn, so no occurrence follows, and the outcome has no skipped instants to report.
                self.lifecycle.end(timer, end)?;
                self.reaped.withdrawn += 1;
            }
            Err(refusal) => return Err(bug(refusal)),
        }
        Ok(())
    }
}
