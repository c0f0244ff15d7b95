//! Combines the parts into the ledger, which a store uses within one transaction.

use super::check::Check;
use super::choice::Chosen;
use super::horizon::horizon;
use super::leases::{Claiming, Reaping};
use super::lifecycle::Lifecycle;
use super::limits::admit;
use super::lists::List;
use super::made_due::MadeDue;
use super::quarantine::Quarantine;
use super::reader::Reader;
use super::scrub::{self, ScrubCursor, Step, Suspect};
use super::timers::Recorded;
use super::turns::Turns;
use crate::state::{Event, Token};
use crate::store::error::StoreError;
use crate::store::fault::Fault;
use crate::store::filter::{Cursor, Filter, Page};
use crate::store::horizon::Horizon;
use crate::store::shares::Shares;
use crate::store::tables::Tables;
use crate::store::{Claimant, Claimed, Counts, Leased, Limit, Op, Outcome, Reaped, Reasons, Renewal};
use crate::timer::{Address, Timer, TimerId};
use tourbillon_words::UtcMillis;

/// Reads and changes the timers of a store within one transaction.
pub(crate) struct Ledger<T> {
    lifecycle: Lifecycle<T>,
}

/// Methods for the start and the end of a transaction, and of each request in the transaction. A transaction can run
/// requests of several callers, one after the other.
impl<T: Tables> Ledger<T> {
    pub(crate) fn new(tables: T, now: UtcMillis) -> Self {
        Self { lifecycle: Lifecycle::new(tables, now) }
    }

    /// Ends the transaction: writes the changed counts. Returns the tables, and the pending timers that the transaction
    /// has stored.
    pub(crate) fn finish(self) -> Result<(T, MadeDue), StoreError> {
        self.lifecycle.timers.finish()
    }

    /// Sets the frontier: the due moment up to which claims have read the index of the pending timers. `None` if no
    /// claim has read the index. From now on, the transaction notes each pending timer that it stores and that is due
    /// at the frontier or before.
    pub(crate) fn follow(&mut self, frontier: Option<UtcMillis>) {
        self.lifecycle.timers.made_due().follow(frontier);
    }

    /// Returns the tables. The store uses them to undo the changes of a failed request, and to store entries that do
    /// not belong to timers, for example the version of the schema.
    pub(crate) fn tables(&mut self) -> &mut T {
        self.lifecycle.timers.tables()
    }

    /// Begins another request of the same transaction. The ledger collects the changes of the counts (of timers by
    /// phase and by hour, and of unreadable records). From now on, it collects only the changes by this request. The
    /// method returns the changes by the earlier requests. At the end of the request, the caller passes these changes
    /// to [`keep`](Self::keep) or [`undo`](Self::undo), which give them back to the ledger.
    pub(crate) fn begin(&mut self) -> Recorded {
        self.lifecycle.timers.begin()
    }

    /// Ends a request that succeeded: adds its changes of the counts to `before`, the changes by the earlier requests.
    /// `before` is the result of [`begin`](Self::begin).
    pub(crate) fn keep(&mut self, before: Recorded) {
        self.lifecycle.timers.keep(before);
    }

    /// Ends a request that failed: drops its changes of the counts, and keeps only `before`, the changes by the earlier
    /// requests. `before` is the result of [`begin`](Self::begin). The store itself undoes the request's changes of
    /// table entries.
    pub(crate) fn undo(&mut self, before: Recorded) {
        self.lifecycle.timers.undo(before);
    }

    /// Returns whether the transaction has set an unreadable record aside or repaired index entries.
    pub(crate) fn has_met_damage(&self) -> bool {
        self.lifecycle.timers.has_met_damage()
    }

    fn now(&self) -> UtcMillis {
        self.lifecycle.now
    }
}

/// Methods that change timers within the transaction.
impl<T: Tables> Ledger<T> {
    /// Applies an operation to the tables.
    pub(crate) fn apply(&mut self, op: Op) -> Result<Outcome, StoreError> {
        admit(&op)?;
        let timers = &mut self.lifecycle;
        match op {
            Op::Place(timer, if_present) => timers.place(*timer, if_present),
            Op::Cancel(at, only) => timers.cancel(&at, only),
            Op::CancelLabelled { namespace, label, limit } => {
                timers.cancel_labelled(&namespace, &label, limit)
            }
            Op::Move(at, due) => timers.change_by(&at, Event::Move(due)),
            Op::Pause(at) => timers.pause(&at),
            Op::Resume(at) => timers.resume(&at),
            Op::Ack(id, token) => timers.end_delivery(id, Event::Ack(token)),
            Op::Skip(id, token) => timers.end_delivery(id, Event::Skip(token)),
            Op::Fail(id, token, failure) => timers.end_delivery(id, Event::Fail(token, failure)),
            Op::Snooze(id, token, due) => timers.end_delivery(id, Event::Snooze(token, due)),
            Op::Release(id, token) => timers.end_delivery(id, Event::Release(token)),
            Op::Park(id, token, reason) => timers.end_delivery(id, Event::Park(reason, Some(token))),
            Op::Unpark(reason, limit) => timers.unpark(&reason, limit),
            Op::Replay(id) => timers.replay(id),
            Op::Fire(at) => timers.fire(&at),
        }
    }

    /// Stores the timers of a backup. Fails if a stored timer has the id or the key of a timer of the backup.
    pub(crate) fn import(&mut self, timers: Vec<Timer>) -> Result<(), StoreError> {
        timers.into_iter().try_for_each(|timer| self.lifecycle.import(timer))
    }

    /// Chooses the timers of a claim, within the claim's limit. With shares, the choice is also within the share of
    /// each namespace ([`Shares`]) and within the limit of bytes. Without shares, [`claim`](Self::claim) stops at the
    /// limit of bytes, and may lease only the first of the chosen timers.
    pub(crate) fn choose(
        &mut self,
        turns: &mut Turns,
        limit: Limit,
        shares: Option<&Shares>,
    ) -> Result<Chosen, StoreError> {
        let Some(shares) = shares else {
            let entries = self.reader().due_at(self.now(), limit.timers)?;
            return Ok(Chosen { entries, next: None });
        };
        let chosen = turns.choose(self.reader().tables, self.now(), limit, shares);
        // The choice has moved the frontier. Later requests of this transaction may store timers before the new
        // frontier.
        self.follow(turns.moment());
        chosen
    }

    /// Claims timers that [`choose`](Self::choose) has chosen, until their payloads have `most_bytes` bytes together.
    pub(crate) fn claim(
        &mut self,
        by: Claimant,
        claim: u64,
        chosen: &[Vec<u8>],
        most_bytes: u64,
    ) -> Result<Claimed, StoreError> {
        Claiming::new(&mut self.lifecycle, by, claim).run(chosen, most_bytes)
    }

    /// Sets the end of each lease to now plus [`Claimant::lease`]. Returns the leases that were lost.
    pub(crate) fn renew(
        &mut self,
        by: Claimant,
        leases: Vec<(TimerId, Token)>,
    ) -> Result<Renewal, StoreError> {
        let until = self.now() + by.lease;
        let mut lost = Vec::new();
        for (id, token) in leases {
            if !self.lifecycle.renew(id, Event::Renew { token, until })? {
                lost.push((id, token));
            }
        }
        Ok(Renewal::without(lost))
    }

    /// Ends at most `limit` expired leases.
    pub(crate) fn reap(&mut self, limit: u32) -> Result<Reaped, StoreError> {
        Reaping::new(&mut self.lifecycle).run(limit)
    }

    /// Ends at most `limit` leases, even if they have not expired, because their holders are gone. Adds the ended
    /// leases to `ended`. Returns whether the caller must call the method again.
    pub(crate) fn end_leases(&mut self, limit: u32, ended: &mut Reaped) -> Result<bool, StoreError> {
        Reaping::new(&mut self.lifecycle).run_all(limit, ended)
    }

    /// Repairs the entries in `suspects` that are still damaged. Returns the number of repaired entries.
    pub(crate) fn mend_suspects(&mut self, suspects: Vec<Suspect>) -> Result<u64, StoreError> {
        let mut damaged = 0;
        for suspect in suspects {
            damaged += u64::from(suspect.mend(&mut self.lifecycle.timers)?);
        }
        Ok(damaged)
    }

    /// Removes all unreadable records that were set aside, and returns their number.
    pub(crate) fn forget_set_aside(&mut self) -> Result<u64, StoreError> {
        Quarantine::forget(self.tables())
    }
}

/// Methods that read the timers of the store.
impl<T: Tables> Ledger<T> {
    fn reader(&self) -> Reader<'_, T> {
        self.lifecycle.timers.reader()
    }

    pub(crate) fn get(&self, at: &Address) -> Result<Option<Timer>, StoreError> {
        self.reader().get(at)
    }

    pub(crate) fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        List::new(self.reader(), filter, cursor, limit).page()
    }

    pub(crate) fn next_due(&self) -> Result<Option<UtcMillis>, StoreError> {
        self.reader().next_due()
    }

    pub(crate) fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Result<Vec<(UtcMillis, TimerId)>, StoreError> {
        self.reader().upcoming(from, until, limit)
    }

    /// Returns the leased timers whose leases come from the claim with the number `claim` of the claimant `by`.
    pub(crate) fn recover(&self, by: Claimant, claim: u64) -> Result<Vec<Leased>, StoreError> {
        self.reader().leased_by(Token { incarnation: by.incarnation, claim })
    }

    pub(crate) fn reasons(&self, after: Option<&Cursor>, limit: u32) -> Result<Reasons, StoreError> {
        self.reader().reasons(after, limit)
    }

    pub(crate) fn counts(&self) -> Result<Counts, StoreError> {
        self.reader().counts()
    }

    /// Counts the pending timers by the time until they are due. Reads at most `looks` entries of the index by due
    /// moment.
    pub(crate) fn horizon(&self, looks: usize) -> Result<Horizon, StoreError> {
        horizon(self.reader(), self.now(), looks)
    }

    /// Calls `each` with each timer whose record can be read. Stops once `each` returns false.
    pub(crate) fn each(&self, each: impl FnMut(&Timer) -> bool) -> Result<(), StoreError> {
        self.reader().each(each)
    }

    /// Returns the faults in the structure of the tables. Each unreadable record that was set aside is a fault, too.
    pub(crate) fn check(&self) -> Result<Vec<Fault>, StoreError> {
        Check::new(self.reader()).run()
    }

    /// Runs one step of the scrub: reads at most `limit` entries, starting at `place`. Changes nothing.
    pub(crate) fn scrub(&self, place: &ScrubCursor, limit: usize) -> Result<Step, StoreError> {
        scrub::look(self.reader(), place, limit)
    }
}
