//! Computes the digest of a request's outcome, which the journal stores after the request.
//!
//! A request that an opening replays must have the outcome that was acknowledged. The digest is a CRC-32 of the bytes
//! that this module writes for the outcome. If these bytes change, the journal needs a new version.

use crate::state::{Phase, Refusal};
use crate::store::{Claimed, LeftOut, Outcome, Reaped, Renewal};
use crate::timer::{Timer, TimerId};
use tourbillon_words::UtcMillis;

/// The number of bytes of an outcome's digest in the journal.
pub(super) const LEN: usize = 4;

/// An outcome, or a part of an outcome, from which a digest can be computed.
pub(super) trait Digested {
    /// Appends the bytes of this value from which the digest is computed.
    fn write(&self, bytes: &mut Vec<u8>);
}

/// Computes the digest of an outcome.
pub(super) fn digest(outcome: &impl Digested) -> u32 {
    let mut bytes = Vec::with_capacity(32);
    outcome.write(&mut bytes);
    crc32fast::hash(&bytes)
}

fn number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

impl Digested for TimerId {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.as_u128().to_be_bytes());
    }
}

impl Digested for Renewal {
    fn write(&self, bytes: &mut Vec<u8>) {
        // The tokens are in the noted request.
        self.lost.iter().map(|(id, _)| *id).collect::<Vec<_>>().write(bytes);
    }
}

impl Digested for UtcMillis {
    fn write(&self, bytes: &mut Vec<u8>) {
        number(bytes, self.as_millis());
    }
}

impl Digested for Phase {
    fn write(&self, bytes: &mut Vec<u8>) {
        // The numbers are written out, because a new order of the variants must not change the digest.
        bytes.push(match self {
            Self::Pending => 0,
            Self::Leased => 1,
            Self::Parked => 2,
            Self::Dead => 3,
            Self::Done => 4,
            Self::Withdrawn => 5,
        });
    }
}

impl Digested for Timer {
    fn write(&self, bytes: &mut Vec<u8>) {
        // This does not fail: a vector takes all bytes, and each field of a timer can be written.
        if let Ok(written) = postcard::to_extend(self, core::mem::take(bytes)) {
            *bytes = written;
        }
    }
}

impl Digested for Box<str> {
    fn write(&self, bytes: &mut Vec<u8>) {
        number(bytes, self.len() as u64);
        bytes.extend_from_slice(self.as_bytes());
    }
}

impl<T: Digested> Digested for Option<T> {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.is_some()));
        self.iter().for_each(|value| value.write(bytes));
    }
}

impl<T: Digested> Digested for Vec<T> {
    fn write(&self, bytes: &mut Vec<u8>) {
        number(bytes, self.len() as u64);
        self.iter().for_each(|value| value.write(bytes));
    }
}

impl Digested for Outcome {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Created(id) => {
                bytes.push(0);
                id.write(bytes);
            }
            Self::Repeated(id) => {
                bytes.push(1);
                id.write(bytes);
            }
            // The phase follows from earlier requests, so it is not in the digest.
            Self::Kept { id, was: _ } => {
                bytes.push(2);
                id.write(bytes);
            }
            Self::Replaced { new, old, was } => {
                bytes.push(3);
                new.write(bytes);
                old.write(bytes);
                was.write(bytes);
            }
            // The refused timer is not in the digest. It is in the request, or is the dead timer that the request
            // replays.
            Self::KeyExists { holder, refused: _ } => {
                bytes.push(4);
                holder.write(bytes);
            }
            Self::Cancelled(timer) => {
                bytes.push(5);
                timer.write(bytes);
            }
            Self::InFlight(id) => {
                bytes.push(6);
                id.write(bytes);
            }
            Self::CancelledMany { cancelled, in_flight, more } => {
                bytes.push(7);
                number(bytes, u64::from(*cancelled));
                number(bytes, u64::from(*in_flight));
                bytes.push(u8::from(*more));
            }
            Self::Changed(id) => {
                bytes.push(8);
                id.write(bytes);
            }
            Self::Ended { id, phase, next, skipped } => {
                bytes.push(9);
                id.write(bytes);
                phase.write(bytes);
                next.write(bytes);
                number(bytes, *skipped);
            }
            Self::Unparked(count) => {
                bytes.push(10);
                number(bytes, u64::from(*count));
            }
            Self::NotFound => bytes.push(11),
            Self::Refused(refusal) => {
                bytes.push(12);
                match refusal {
                    Refusal::State(phase) => {
                        bytes.push(0);
                        phase.write(bytes);
                    }
                    Refusal::NotDue => bytes.push(1),
                    Refusal::Stale => bytes.push(2),
                }
            }
        }
    }
}

impl Digested for LeftOut {
    fn write(&self, bytes: &mut Vec<u8>) {
        // All fields are named here and below, so a new field cannot stay out of the digest by mistake.
        let Self { id, key, count } = self;
        id.write(bytes);
        key.write(bytes);
        number(bytes, *count);
    }
}

impl Digested for Claimed {
    fn write(&self, bytes: &mut Vec<u8>) {
        // The digest leaves out `now`, which the journal's record has, and the tokens, which the request determines. It
        // leaves out `next_claim`, which a replay does not compute. It leaves out `next_reap`, which only stores that
        // several processes share set.
        let Self { now: _, leased, next_due, next_claim: _, quarantined, left_out, next_reap: _ } = self;
        number(bytes, leased.len() as u64);
        leased.iter().for_each(|leased| leased.timer.write(bytes));
        next_due.write(bytes);
        number(bytes, u64::from(*quarantined));
        left_out.write(bytes);
    }
}

impl Digested for Reaped {
    fn write(&self, bytes: &mut Vec<u8>) {
        let Self { returned, dead, withdrawn, next, left_out } = self;
        returned.write(bytes);
        dead.write(bytes);
        number(bytes, u64::from(*withdrawn));
        next.write(bytes);
        left_out.write(bytes);
    }
}
