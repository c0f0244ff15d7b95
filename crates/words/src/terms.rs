//! Defines the phases of a timer, and the choices in a policy and in a schedule.

use core::fmt;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// The stage of a timer's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Phase {
    /// The timer waits for its due moment.
    Pending,
    /// The timer is being delivered.
    Leased,
    /// The timer is parked for a reason, for example because its host is paused, or because no receiver fetches it.
    /// While it is parked, its due moment has no effect.
    Parked,
    /// The timer is not delivered again. It stays stored until it is replayed or removed.
    Dead,
    /// A delivery succeeded, or was skipped. The timer is not stored any more.
    Done,
    /// The timer was cancelled or replaced. It is not stored any more.
    Withdrawn,
}

/// Writes the phase as the HTTP interface does, such as `parked`.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Done => "done",
            Self::Withdrawn => "withdrawn",
        })
    }
}

/// The delivery guarantee of a timer: how often it is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Guarantee {
    /// The timer is delivered until a delivery succeeds or the policy gives up. If a process dies during a delivery, or
    /// before the end of the delivery is stored, the timer is delivered again, under the same id.
    #[default]
    AtLeastOnce,
    /// The store removes the timer before its delivery begins. So the timer is delivered once, or never if the process
    /// dies in between. A delivery that fails is not repeated.
    AtMostOnce,
}

/// How a schedule treats instants that passed unnoticed, for example while the service was down. Instants that get no
/// occurrence are counted and reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Missed {
    /// The missed instants are left out.
    Skip,
    /// The last missed instant gets an occurrence, and is not skipped as an overlap. It gets none if a later instant is
    /// on time and gets its occurrence at once.
    #[default]
    Once,
    /// Each missed instant gets an occurrence, and is not skipped as an overlap. With the overlap `allow`, all these
    /// occurrences come at once. Otherwise they come one after another: each of them waits until the occurrence before
    /// has ended. If more than 10,000 instants were missed, only the last 10,000 get occurrences. A backfill can make
    /// the occurrences of the earlier instants.
    All,
}

/// How a schedule treats an instant that comes while the previous occurrence is under way. An occurrence is under way
/// while it waits, is being delivered, or is between two attempts. A dead occurrence is not under way. An occurrence
/// that is delivered at most once is under way until its delivery begins, because the store then forgets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Overlap {
    /// The instant is skipped, counted and reported.
    #[default]
    Skip,
    /// The instant gets its occurrence.
    Allow,
    /// One instant waits until the occurrence under way has ended. The schedule notices the end within a second.
    /// Further instants are skipped.
    QueueOne,
}
