//! Defines the phases of a timer, and the choices in a policy and in a schedule.

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
    /// The timer is put aside for a reason, whatever its due moment: its host is paused, or no receiver fetches it, for
    /// example.
    Parked,
    /// Deliveries were given up. The timer is kept until it is replayed or dropped.
    Dead,
    /// A delivery succeeded, or was skipped. The timer is not stored any more.
    Done,
    /// The timer was cancelled or replaced. It is not stored any more.
    Withdrawn,
}

/// The delivery guarantee of a timer: how often it is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Guarantee {
    /// Until a delivery succeeds or the policy gives up. If a process dies within a delivery, or after it and before
    /// that was stored, the timer is delivered again, under the same id.
    #[default]
    AtLeastOnce,
    /// Once or, if the process dies at that moment, never. The store forgets the timer first, and only then does the
    /// delivery begin.
    AtMostOnce,
}

/// How a schedule treats instants that passed unnoticed, for example while the service was down. Instants that get no
/// occurrence are counted and reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Missed {
    /// They are left out.
    Skip,
    /// The last of them gets an occurrence, unless a later instant is on time.
    #[default]
    Once,
    /// Each of them gets an occurrence, as far as the treatment of overlaps permits, but no more than the last 10,000.
    /// Those before them are left out, and a backfill makes their occurrences.
    All,
}

/// How a schedule treats an instant that comes while the previous occurrence is under way: it waits, is being
/// delivered, or is between two attempts. A dead occurrence is not under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Overlap {
    /// It is skipped, counted and reported.
    #[default]
    Skip,
    /// It gets its occurrence.
    Allow,
    /// One instant waits for the end of the occurrence, which is noticed within a second. Further instants are skipped.
    QueueOne,
}
