//! Defines the states of a timer. [`state`](crate::state) has the transitions between them.

use serde::{Deserialize, Serialize};
pub use tourbillon_words::Phase;
use tourbillon_words::UtcMillis;

/// The state of a stored timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// The timer waits for its due moment.
    Pending,
    /// A process has claimed the timer and delivers it. The process is the holder of the lease.
    Leased(Lease),
    /// The timer is parked for this reason until a call unparks the timers of this reason. While the timer is parked,
    /// its due moment has no effect.
    Parked(Box<str>),
    /// The timer is not delivered again. It stays stored until it is replayed or removed.
    Dead(Death),
}

/// The right of one process, the holder, to deliver a timer until the lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The token of the claim that gave the timer to the holder.
    pub token: Token,
    /// The moment at which the lease ends, unless the holder renews the lease.
    pub until: UtcMillis,
    /// The reason why the timer was withdrawn during this delivery. A withdrawn timer gets no further delivery, even if
    /// this delivery fails. `None` if the timer was not withdrawn.
    pub withdrawn: Option<Withdrawal>,
}

/// Identifies a claim. No two claims have the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// The incarnation of the claimant: a random number that is drawn at each start.
    pub incarnation: u64,
    /// The number of the claim within the incarnation.
    pub claim: u64,
}

/// The reason why a timer was withdrawn. A withdrawn timer ends without a successful delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Withdrawal {
    /// A caller cancelled the timer.
    Cancelled,
    /// The timer lost its key to a new timer that replaced it.
    Replaced,
}

/// The reason why a timer is dead, and the moment at which it died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// The reason why the timer is dead.
    pub reason: DeathReason,
    /// The moment at which the timer became dead.
    pub at: UtcMillis,
}

/// The reason why a timer is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeathReason {
    /// The number of failed deliveries reached the limit that the policy sets.
    Attempts,
    /// The number of deliveries reached the limit that the policy sets. Some deliveries ended without an answer: their
    /// process died, or their lease ended.
    Deliveries,
    /// At its next delivery the timer would be older than the policy permits.
    Age,
    /// The handler answered that the timer can never be delivered.
    Refused,
    /// The delivery succeeded, but the next instant of the timer's series cannot be computed. For example, its time
    /// zone is missing in this machine's database.
    Plan,
}

impl State {
    /// Returns the phase of a timer in this state.
    ///
    /// ```
    /// use tourbillon_durable::state::{Phase, State};
    ///
    /// assert_eq!(State::Parked("no paper".into()).phase(), Phase::Parked);
    /// ```
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Pending => Phase::Pending,
            Self::Leased(_) => Phase::Leased,
            Self::Parked(_) => Phase::Parked,
            Self::Dead(_) => Phase::Dead,
        }
    }
}
