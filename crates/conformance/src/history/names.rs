//! Names operations and outcomes, for a tally (the counts of each operation's outcomes).

use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::{IfPresent, Op, Outcome};

pub(super) fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Place(_, IfPresent::Reject) => "place, reject",
        Op::Place(_, IfPresent::Keep) => "place, keep",
        Op::Place(_, IfPresent::Replace) => "place, replace",
        Op::Place(_, IfPresent::ReplaceKeepDue) => "place, replace but keep due",
        Op::Place(_, IfPresent::ReplaceOnly(_)) => "place, replace only",
        Op::Cancel(..) => "cancel",
        Op::CancelLabelled { .. } => "cancel by label",
        Op::Move(..) => "move",
        Op::Pause(_) => "pause",
        Op::Resume(_) => "resume",
        Op::Ack(..) => "ack",
        Op::Skip(..) => "skip",
        Op::Fail(..) => "fail",
        Op::Snooze(..) => "snooze",
        Op::Release(..) => "release",
        Op::Park(..) => "park",
        Op::Unpark(..) => "unpark",
        Op::Replay(_) => "replay",
        Op::Fire(_) => "fire",
        // A new operation needs a name here before a random life may use it.
        other => panic!("no name for {other:?}"),
    }
}

pub(super) fn name_of_outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Created(_) => "created",
        Outcome::Repeated(_) => "repeated",
        Outcome::Kept { was: Phase::Leased, .. } => "kept in flight",
        Outcome::Kept { .. } => "kept",
        Outcome::Replaced { was: Phase::Leased, .. } => "replaced in flight",
        Outcome::Replaced { .. } => "replaced",
        Outcome::KeyExists { .. } => "key exists",
        Outcome::Cancelled(_) => "cancelled",
        Outcome::InFlight(_) => "in flight",
        Outcome::CancelledMany { more, .. } => ["cancelled many", "cancelled many, more"][usize::from(*more)],
        Outcome::Changed(_) => "changed",
        Outcome::Ended { next: Some(_), .. } => "ended, next",
        Outcome::Ended { phase, .. } => match phase {
            Phase::Pending => "ended: pending",
            Phase::Leased => "ended: leased",
            Phase::Parked => "ended: parked",
            Phase::Dead => "ended: dead",
            Phase::Done => "ended: done",
            Phase::Withdrawn => "ended: withdrawn",
        },
        Outcome::Unparked(_) => "unparked",
        Outcome::NotFound => "not found",
        Outcome::Refused(Refusal::Stale) => "refused: stale",
        Outcome::Refused(_) => "refused: state",
        other => panic!("no name for {other:?}"),
    }
}
