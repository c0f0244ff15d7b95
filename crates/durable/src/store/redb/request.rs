//! Requests to the thread that commits, and the form in which they are noted.

use super::tables::Writing;
use crate::state::Token;
use crate::store::error::StoreError;
use crate::store::ledger::Ledger;
use crate::store::{Claimant, Claimed, Durability, Leased, Limit, Op, Outcome, Reaped};
use crate::timer::{Timer, TimerId};
use crate::utc::UtcMillis;
use core::time::Duration;
use futures_channel::oneshot::Sender;
use serde::{Deserialize, Serialize};

pub(super) type Reply<T> = Sender<Result<T, StoreError>>;

/// A request. Each has one reply.
pub(super) enum Request {
    Apply(Vec<Op>, Durability, Reply<Vec<Outcome>>),
    Claim(Claimant, u64, Limit, Reply<Claimed>),
    Recover(Claimant, u64, Reply<Vec<Leased>>),
    Renew(Claimant, Vec<(TimerId, Token)>, Reply<Vec<TimerId>>),
    Reap(u32, Reply<Reaped>),
    Import(Vec<Timer>, Reply<()>),
    Compact(Reply<bool>),
}

/// A request that changes the store, as the journal has it. Its effect follows from the store and the time alone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Logged {
    Apply(Vec<Op>),
    Claim { incarnation: u64, lease: Duration, claim: u64, timers: u32, bytes: u64 },
    Renew { incarnation: u64, lease: Duration, leases: Vec<(TimerId, Token)> },
    Reap(u32),
}

/// The same without ownership, for writing.
#[derive(Serialize)]
enum Logging<'a> {
    Apply(&'a [Op]),
    Claim { incarnation: u64, lease: Duration, claim: u64, timers: u32, bytes: u64 },
    Renew { incarnation: u64, lease: Duration, leases: &'a [(TimerId, Token)] },
    Reap(u32),
}

/// The part of a request that is left once its changes are made: the reply, which is sent when they are as durable as
/// asked for, or the error on the way there.
pub(super) type Pending = Box<dyn FnOnce(Option<StoreError>) + Send>;

/// What a request has done.
pub(super) struct Done {
    pub(super) pending: Pending,
    /// What the changes have to survive before the reply.
    pub(super) durability: Durability,
    /// The answer of a claim: the first due moment that is left.
    pub(super) next_due: Option<Option<UtcMillis>>,
}

fn pending<T: Send + 'static>(reply: Reply<T>, value: T) -> Pending {
    // A caller that does not wait any more misses the answer.
    Box::new(move |error| drop(reply.send(error.map_or(Ok(value), Err))))
}

impl Request {
    /// The number of operations.
    pub(super) fn operations(&self) -> usize {
        match self {
            Self::Apply(ops, ..) => ops.len(),
            Self::Renew(_, leases, _) => leases.len(),
            Self::Import(timers, _) => timers.len(),
            Self::Claim(..) | Self::Recover(..) | Self::Reap(..) | Self::Compact(_) => 1,
        }
    }

    /// Replies with an error.
    pub(super) fn fail(self, error: StoreError) {
        match self {
            Self::Apply(.., reply) => drop(reply.send(Err(error))),
            Self::Claim(.., reply) => drop(reply.send(Err(error))),
            Self::Recover(.., reply) => drop(reply.send(Err(error))),
            Self::Renew(.., reply) => drop(reply.send(Err(error))),
            Self::Reap(_, reply) => drop(reply.send(Err(error))),
            Self::Import(_, reply) => drop(reply.send(Err(error))),
            Self::Compact(reply) => drop(reply.send(Err(error))),
        }
    }

    /// Whether the request is too large for the journal.
    pub(super) fn is_large(&self) -> bool {
        matches!(self, Self::Import(..))
    }

    /// Whether the request ends a delivery.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Apply(ops, ..) if ops.iter().any(|op| matches!(op, Op::Ack(..) | Op::Fail(..))))
    }

    /// Adds the note of the request.
    pub(super) fn note(&self, notes: &mut Vec<u8>) -> Result<(), postcard::Error> {
        let logging = match self {
            Self::Apply(ops, ..) => Logging::Apply(ops),
            Self::Claim(by, claim, limit, _) => Logging::Claim {
                incarnation: by.incarnation,
                lease: by.lease,
                claim: *claim,
                timers: limit.timers,
                bytes: limit.bytes,
            },
            Self::Renew(by, leases, _) => {
                Logging::Renew { incarnation: by.incarnation, lease: by.lease, leases }
            }
            Self::Reap(limit, _) => Logging::Reap(*limit),
            Self::Recover(..) | Self::Import(..) | Self::Compact(_) => return Ok(()),
        };
        *notes = postcard::to_extend(&logging, core::mem::take(notes))?;
        Ok(())
    }

    /// Makes the changes.
    pub(super) fn run(self, ledger: &mut Ledger<Writing<'_>>) -> Result<Done, (StoreError, Pending)> {
        let mut durability = Durability::Volatile;
        let mut next_due = None;
        let pending = match self {
            Self::Apply(ops, wanted, reply) => {
                durability = wanted;
                answer(reply, ops.into_iter().map(|op| ledger.apply(op)).collect())
            }
            Self::Claim(by, claim, limit, reply) => {
                let claimed = ledger.claim(by, claim, limit).map(|(claimed, must_be_durable)| {
                    if must_be_durable {
                        durability = Durability::PowerLoss;
                    }
                    next_due = Some(claimed.next_due);
                    claimed
                });
                answer(reply, claimed)
            }
            Self::Recover(by, claim, reply) => answer(reply, ledger.recover(by, claim)),
            Self::Renew(by, leases, reply) => answer(reply, ledger.renew(by, leases)),
            Self::Reap(limit, reply) => answer(reply, ledger.reap(limit, false)),
            Self::Import(timers, reply) => {
                durability = Durability::PowerLoss;
                answer(reply, ledger.import(timers))
            }
            Self::Compact(reply) => answer(reply, Ok(false)),
        };
        pending.map(|pending| Done { pending, durability, next_due })
    }
}

/// The reply with its value, or the error and the reply that is to carry it.
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

impl Logged {
    /// Makes the changes again.
    pub(super) fn run(self, ledger: &mut Ledger<Writing<'_>>) -> Result<(), StoreError> {
        match self {
            Self::Apply(ops) => ops.into_iter().try_for_each(|op| ledger.apply(op).map(drop)),
            Self::Claim { incarnation, lease, claim, timers, bytes } => {
                let by = Claimant { incarnation, lease };
                ledger.claim(by, claim, Limit { timers, bytes }).map(drop)
            }
            Self::Renew { incarnation, lease, leases } => {
                ledger.renew(Claimant { incarnation, lease }, leases).map(drop)
            }
            Self::Reap(limit) => ledger.reap(limit, false).map(drop),
        }
    }
}
