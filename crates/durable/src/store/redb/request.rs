//! Defines the requests to the thread that commits, and their form in the journal.

use super::tables::Writing;
use crate::state::Token;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::ledger::{Chosen, Ledger, Suspect, Turns};
use crate::store::{Claimant, Claimed, Durability, Leased, Limit, Op, Outcome, Reaped, Renewal, Shares};
use crate::timer::{Timer, TimerId};
use futures_channel::oneshot::Sender;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tourbillon_words::UtcMillis;

pub(super) type Reply<T> = Sender<Result<T, StoreError>>;

/// A request to the thread that commits. Each request gets a single reply.
pub(super) enum Request {
    Apply(Vec<Op>, Durability, Reply<Vec<Outcome>>),
    Claim(Claim, Reply<Claimed>),
    Recover(Claimant, u64, Reply<Vec<Leased>>),
    Renew(Claimant, Vec<(TimerId, Token)>, Reply<Renewal>),
    Reap(u32, Reply<Reaped>),
    Import(Vec<Timer>, Reply<()>),
    Compact(Reply<bool>),
    /// Repairs the damaged entries that the scrub has found.
    Mend(Vec<Suspect>, Reply<u64>),
}

/// A claim of due timers. The thread that commits chooses the timers ([`Request::choose`]) before it notes the claim in
/// the journal and runs it. The journal has the chosen timers in place of the shares, so a replay leases the same
/// timers.
pub(super) struct Claim {
    pub(super) by: Claimant,
    pub(super) number: u64,
    pub(super) limit: Limit,
    pub(super) shares: Option<Shares>,
    /// The chosen timers. Empty before the choice.
    pub(super) chosen: Chosen,
}

/// The number of bytes of an outcome's digest in the journal.
pub(super) const DIGEST: usize = 4;

/// A request as the journal stores it. Its effect depends only on the stored timers and the time. The journal is
/// written from borrowed parts of a [`Request`]. A replay owns the parts that it has read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Logged<'a> {
    // postcard writes the position of a variant. So another order of the variants needs a new version of the journal.
    Apply(Cow<'a, [Op]>),
    Renew { by: Claimant, leases: Cow<'a, [(TimerId, Token)]> },
    Reap(u32),
    Claim { by: Claimant, number: u64, most_bytes: u64, entries: Cow<'a, [Vec<u8>]> },
}

/// Sends the reply to a request that has run. If the function is called with an error, it sends this error. Otherwise
/// it sends the result of the request. The function is called once the changes are as durable as the request asks for,
/// or have failed.
pub(super) type Pending = Box<dyn FnOnce(Option<StoreError>) + Send>;

/// The result of a request that has succeeded.
pub(super) struct Done {
    pub(super) pending: Pending,
    /// The durability that the changes must have before the reply.
    pub(super) durability: Durability,
    /// The earliest moment at which another claim can take a timer, if the request is a claim. `Some(None)` if the
    /// claim has found no such moment. `None` if the request is not a claim.
    pub(super) next_due: Option<Option<UtcMillis>>,
    /// The digest (a checksum) of the request's outcome. The journal stores the digest after the request. A replay of
    /// the journal compares it with the digest of the new outcome. Zero for requests that are not noted in the journal.
    pub(super) digest: u32,
}

fn pending<T: Send + 'static>(reply: Reply<T>, value: T) -> Pending {
    // If the caller no longer waits, the answer is dropped.
    Box::new(move |error| drop(reply.send(error.map_or(Ok(value), Err))))
}

impl Request {
    /// Returns the number of operations in the request, which counts towards the limit of a batch.
    pub(super) fn operations(&self) -> usize {
        match self {
            Self::Apply(ops, ..) => ops.len(),
            Self::Renew(_, leases, _) => leases.len(),
            Self::Import(timers, _) => timers.len(),
            Self::Mend(suspects, _) => suspects.len(),
            Self::Claim(..) | Self::Recover(..) | Self::Reap(..) | Self::Compact(_) => 1,
        }
    }

    /// Answers the request with an error.
    pub(super) fn fail(self, error: StoreError) {
        match self {
            Self::Apply(.., reply) => drop(reply.send(Err(error))),
            Self::Claim(_, reply) => drop(reply.send(Err(error))),
            Self::Recover(.., reply) => drop(reply.send(Err(error))),
            Self::Renew(.., reply) => drop(reply.send(Err(error))),
            Self::Reap(_, reply) => drop(reply.send(Err(error))),
            Self::Import(_, reply) => drop(reply.send(Err(error))),
            Self::Compact(reply) => drop(reply.send(Err(error))),
            Self::Mend(_, reply) => drop(reply.send(Err(error))),
        }
    }

    /// Returns whether the request changes the store but must not be noted in the journal, because it is too large or
    /// cannot be replayed.
    pub(super) fn is_large(&self) -> bool {
        matches!(self, Self::Import(..) | Self::Mend(..))
    }

    /// Returns whether the request can usually be answered before the disk has its changes, as for a claim or a change
    /// that need not survive a loss of power.
    pub(super) fn is_urgent(&self) -> bool {
        !matches!(self, Self::Apply(_, Durability::PowerLoss, _) | Self::Import(..) | Self::Compact(_))
    }

    /// Returns whether the request ends a delivery by success or failure.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Apply(ops, ..) if ops.iter().any(|op| matches!(op, Op::Ack(..) | Op::Fail(..))))
    }

    /// Appends the request to `notes`, the body of the batch's record in the journal. The journal stores only the kinds
    /// of requests that [`Logged`] has. For another request, for example an import, the method appends nothing.
    pub(super) fn note(&self, notes: &mut Vec<u8>) -> Result<(), postcard::Error> {
        let logged = match self {
            Self::Apply(ops, ..) => Logged::Apply(ops.into()),
            Self::Claim(claim, _) => Logged::Claim {
                by: claim.by,
                number: claim.number,
                most_bytes: claim.limit.bytes,
                entries: (&claim.chosen.entries).into(),
            },
            Self::Renew(by, leases, _) => Logged::Renew { by: *by, leases: leases.into() },
            Self::Reap(limit, _) => Logged::Reap(*limit),
            // `Recover` and `Compact` change nothing. The changes of `Import` and `Mend` are committed to the database
            // on the disk.
            Self::Recover(..) | Self::Import(..) | Self::Compact(_) | Self::Mend(..) => return Ok(()),
        };
        // An error loses all notes of the batch. The caller then commits the batch to the database on the disk, without
        // notes.
        *notes = postcard::to_extend(&logged, core::mem::take(notes))?;
        Ok(())
    }

    /// Chooses the timers of a claim. Does nothing for other requests.
    pub(super) fn choose(
        &mut self,
        ledger: &mut Ledger<Writing<'_>>,
        turns: &mut Turns,
    ) -> Result<(), StoreError> {
        if let Self::Claim(claim, _) = self {
            claim.chosen = ledger.choose(turns, claim.limit, claim.shares.as_ref())?;
        }
        Ok(())
    }

    /// Returns the pending reply that answers the request with `error`.
    pub(super) fn refused(self, error: StoreError) -> Pending {
        Box::new(move |later| self.fail(later.unwrap_or(error)))
    }

    /// Runs the request on the tables. If the request fails, returns the error, and the pending reply that sends this
    /// error to the caller.
    pub(super) fn run(self, ledger: &mut Ledger<Writing<'_>>) -> Result<Done, (StoreError, Pending)> {
        let mut durability = Durability::Volatile;
        let mut next_due = None;
        let mut sum = 0;
        let pending = match self {
            Self::Apply(ops, wanted, reply) => {
                durability = wanted;
                answer(reply, noting(apply(ledger, ops), &mut sum))
            }
            Self::Claim(Claim { by, number, limit, shares, chosen }, reply) => {
                let claimed = ledger.claim(by, number, &chosen.entries, limit.bytes);
                let claimed = claimed.inspect(|claimed| {
                    next_due = Some(if shares.is_some() { chosen.next } else { claimed.next_due });
                });
                // A replay does not know the shares, so it cannot compute the moment of the next claim. The digest is
                // computed before the answer gets this moment.
                let claimed = noting(claimed, &mut sum);
                answer(reply, claimed.map(|claimed| Claimed { next_claim: chosen.next, ..claimed }))
            }
            Self::Recover(by, claim, reply) => answer(reply, ledger.recover(by, claim)),
            Self::Renew(by, leases, reply) => answer(reply, noting(ledger.renew(by, leases), &mut sum)),
            Self::Reap(limit, reply) => answer(reply, noting(ledger.reap(limit), &mut sum)),
            Self::Import(timers, reply) => {
                durability = Durability::PowerLoss;
                answer(reply, ledger.import(timers))
            }
            Self::Compact(reply) => answer(reply, Ok(false)),
            Self::Mend(suspects, reply) => answer(reply, ledger.mend_suspects(suspects)),
        };
        pending.map(|pending| Done { pending, durability, next_due, digest: sum })
    }
}

fn apply(ledger: &mut Ledger<Writing<'_>>, ops: Vec<Op>) -> Result<Vec<Outcome>, StoreError> {
    ops.into_iter().map(|op| ledger.apply(op)).collect()
}

/// Returns the digest of a request's outcome. A request that an opening replays must have the outcome that was
/// acknowledged. So the outcome must have only values that a replay computes again. If the bytes of an outcome change,
/// the journal needs a new version.
fn digest(outcome: &impl Serialize) -> Result<u32, StoreError> {
    let bytes = postcard::to_extend(outcome, Vec::with_capacity(64));
    bytes.map(|bytes| crc32fast::hash(&bytes)).map_err(|error| {
        StoreError::new(StoreErrorKind::Corrupt, format!("an outcome cannot be written: {error}"))
    })
}

/// Returns `result`. If the request has succeeded, also stores the digest of the request's outcome in `sum`, for
/// [`Done::digest`].
fn noting<T: Serialize>(result: Result<T, StoreError>, sum: &mut u32) -> Result<T, StoreError> {
    result.and_then(|outcome| {
        *sum = digest(&outcome)?;
        Ok(outcome)
    })
}

/// Returns the pending reply that sends `result` to the caller. If `result` is an error, also returns the error.
fn answer<T: Send + 'static>(
    reply: Reply<T>,
    result: Result<T, StoreError>,
) -> Result<Pending, (StoreError, Pending)> {
    match result {
        Ok(value) => Ok(pending(reply, value)),
        Err(error) => {
            let own = error.clone();
            Err((error, Box::new(move |later| drop(reply.send(Err(later.unwrap_or(own)))))))
        }
    }
}

impl Logged<'_> {
    /// Replays a request from the journal. Returns the digest of the replay's outcome. The caller compares it with the
    /// digest that was stored after the request when the request first ran.
    pub(super) fn run(self, ledger: &mut Ledger<Writing<'_>>) -> Result<u32, StoreError> {
        match self {
            Self::Apply(ops) => digest(&apply(ledger, ops.into_owned())?),
            Self::Claim { by, number, most_bytes, entries } => {
                digest(&ledger.claim(by, number, &entries, most_bytes)?)
            }
            Self::Renew { by, leases } => digest(&ledger.renew(by, leases.into_owned())?),
            Self::Reap(limit) => digest(&ledger.reap(limit)?),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Apply(_) => "operations",
            Self::Claim { .. } => "claim",
            Self::Renew { .. } => "renewal",
            Self::Reap(_) => "reap",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal;
    use super::*;
    use crate::samples::{self, DUE, TOKEN, plain};
    use crate::state::{Failure, Phase, Refusal};
    use crate::store::{IfPresent, LeftOut};
    use crate::timer::{Address, KeyOf};
    use core::time::Duration;
    use futures_channel::oneshot::channel;

    const ID: TimerId = TimerId::from_u128(0x33);
    const OTHER: TimerId = TimerId::from_u128(0x44);

    fn key() -> Address {
        Address::Key(KeyOf { namespace: "n".into(), key: "k".into() })
    }

    /// Returns samples of each operation in all its forms. If an operation is added to the enum, the `match` below does
    /// not compile until it is extended.
    fn ops() -> Vec<Op> {
        let place = |if_present| {
            match if_present {
                IfPresent::Reject
                | IfPresent::Keep
                | IfPresent::Replace
                | IfPresent::ReplaceKeepDue
                | IfPresent::ReplaceOnly(_) => {}
            }
            Op::Place(Box::new(plain()), if_present)
        };
        let failure = Failure { error: "why".into(), retry_after: Some(Duration::new(1, 5)), is_final: true };
        let mut ops = vec![
            place(IfPresent::Reject),
            place(IfPresent::Keep),
            place(IfPresent::Replace),
            place(IfPresent::ReplaceKeepDue),
            place(IfPresent::ReplaceOnly(ID)),
            Op::Cancel(ID.into(), None),
            Op::Cancel(key(), Some(ID)),
            Op::CancelLabelled { namespace: "n".into(), label: "l".into(), limit: 300 },
            Op::Move(ID.into(), DUE),
            Op::Pause(ID.into()),
            Op::Resume(ID.into()),
            Op::Ack(ID, TOKEN),
            Op::Skip(ID, TOKEN),
            Op::Fail(ID, TOKEN, Failure::default()),
            Op::Fail(ID, TOKEN, failure),
            Op::Snooze(ID, TOKEN, DUE),
            Op::Release(ID, TOKEN),
            Op::Park(ID, TOKEN, "later".into()),
            Op::Unpark("later".into(), 300),
            Op::Replay(ID),
            Op::Fire(key()),
        ];
        for (_, timer) in samples::timers() {
            ops.push(Op::Place(Box::new(timer), IfPresent::Reject));
        }
        for op in &ops {
            match op {
                Op::Place(..)
                | Op::Cancel(..)
                | Op::CancelLabelled { .. }
                | Op::Move(..)
                | Op::Pause(_)
                | Op::Resume(_)
                | Op::Ack(..)
                | Op::Skip(..)
                | Op::Fail(..)
                | Op::Snooze(..)
                | Op::Release(..)
                | Op::Park(..)
                | Op::Unpark(..)
                | Op::Replay(_)
                | Op::Fire(_) => {}
            }
        }
        ops
    }

    fn requests() -> Vec<Request> {
        let by = Claimant { incarnation: 0x0102_0304_0506_0708, lease: Duration::new(30, 5) };
        let claim = Claim {
            by,
            number: 7,
            limit: Limit { timers: 300, bytes: 70_000 },
            shares: None,
            chosen: Chosen { entries: vec![vec![1; 24], vec![2; 24]], next: Some(DUE) },
        };
        let mut requests = vec![
            Request::Renew(by, vec![(ID, TOKEN)], channel().0),
            Request::Reap(300, channel().0),
            Request::Claim(claim, channel().0),
            Request::Apply(ops(), Durability::PowerLoss, channel().0),
        ];
        for op in ops() {
            let reply = channel().0;
            requests.push(Request::Apply(vec![op], Durability::PowerLoss, reply));
        }
        requests
    }

    /// Returns the names and the bytes of outcomes of each kind. If a kind of outcome, a phase or a refusal is added,
    /// this function does not compile until it has a sample.
    fn outcomes() -> Vec<(String, Vec<u8>)> {
        let phases =
            [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead, Phase::Done, Phase::Withdrawn];
        let mut outcomes = vec![
            Outcome::Created(ID),
            Outcome::Repeated(ID),
            Outcome::Kept { id: ID, was: Phase::Leased },
            Outcome::Replaced { new: ID, old: OTHER, was: Phase::Leased },
            Outcome::KeyExists { holder: ID, refused: Box::new(plain()) },
            Outcome::Cancelled(Box::new(plain())),
            Outcome::InFlight(ID),
            Outcome::CancelledMany { cancelled: 300, in_flight: 2, more: true },
            Outcome::Changed(ID),
            Outcome::Ended { id: ID, phase: Phase::Done, next: None, skipped: 0 },
            Outcome::Ended { id: ID, phase: Phase::Dead, next: Some(OTHER), skipped: 300 },
            Outcome::Unparked(300),
            Outcome::NotFound,
            Outcome::Refused(Refusal::NotDue),
            Outcome::Refused(Refusal::Stale),
            Outcome::Held,
        ];
        outcomes.extend(phases.map(|phase| Outcome::Refused(Refusal::State(phase))));
        for outcome in &outcomes {
            match outcome {
                Outcome::Created(_)
                | Outcome::Repeated(_)
                | Outcome::Kept { .. }
                | Outcome::Replaced { .. }
                | Outcome::KeyExists { .. }
                | Outcome::Cancelled(_)
                | Outcome::InFlight(_)
                | Outcome::CancelledMany { .. }
                | Outcome::Changed(_)
                | Outcome::Ended { .. }
                | Outcome::Unparked(_)
                | Outcome::NotFound
                | Outcome::Held
                | Outcome::Refused(Refusal::NotDue | Refusal::Stale) => {}
                Outcome::Refused(Refusal::State(phase)) => match phase {
                    Phase::Pending
                    | Phase::Leased
                    | Phase::Parked
                    | Phase::Dead
                    | Phase::Done
                    | Phase::Withdrawn => {}
                },
            }
        }
        let left_out = vec![LeftOut { id: ID, key: Some("k".into()), count: 2 }];
        let claimed = Claimed {
            now: DUE,
            leased: vec![Leased { timer: plain(), token: TOKEN }],
            next_due: Some(DUE),
            next_claim: None,
            quarantined: 1,
            next_reap: None,
        };
        let mut reaped =
            Reaped { dead: vec![OTHER], withdrawn: 1, next: Some(DUE), left_out, ..Reaped::default() };
        reaped.returned.push(ID);
        let mut rows: Vec<_> =
            outcomes.iter().map(|outcome| (samples::variant(outcome), bytes_of(outcome))).collect();
        rows.push(("several outcomes".to_owned(), bytes_of(&outcomes[..2].to_vec())));
        rows.push(("claim".to_owned(), bytes_of(&claimed)));
        rows.push(("reap".to_owned(), bytes_of(&reaped)));
        rows.push(("renewal".to_owned(), bytes_of(&Renewal::without(vec![(ID, TOKEN)]))));
        rows.push(("digest of a reap".to_owned(), digest(&reaped).unwrap().to_le_bytes().to_vec()));
        rows
    }

    fn bytes_of(outcome: &impl Serialize) -> Vec<u8> {
        postcard::to_extend(outcome, Vec::new()).unwrap()
    }

    /// Tests the bytes of the requests, and those of the outcomes, whose digests are in the journal. An earlier version
    /// may have written the journal.
    #[test]
    fn the_bytes_of_requests_and_outcomes_stay() {
        let requests = requests().into_iter().map(|request| {
            let mut notes = Vec::new();
            request.note(&mut notes).unwrap();
            let logged: Logged<'_> = postcard::from_bytes(&notes).unwrap();
            let name = match (&request, logged) {
                (Request::Apply(ops, ..), Logged::Apply(read)) => {
                    assert_eq!(*ops, *read, "they are read as they were noted");
                    match &ops[..] {
                        [op] => samples::variant(op),
                        _ => "all operations".to_owned(),
                    }
                }
                (_, logged) => samples::variant(&logged),
            };
            (name, notes)
        });
        let advice = "Other bytes are another version of the journal.";
        samples::assert_fixed("store/redb/journal_v6.txt", requests.chain(outcomes()), advice);
        assert_eq!(journal::VERSION, 6, "the file has the version in its name");
    }
}
