//! Defines the states in which a timer can be. [`state`](crate::state) has the transitions between them.

use serde::{Deserialize, Serialize};
pub use tourbillon_words::Phase;
use tourbillon_words::UtcMillis;

/// The state of a timer that is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// The timer waits for its due moment.
    Pending,
    /// A holder delivers the timer.
    Leased(Lease),
    /// The timer waits until timers parked for this reason are unparked, whatever its due moment.
    Parked(Box<str>),
    /// Deliveries were given up. The timer is kept until it is replayed or dropped.
    Dead(Death),
}

/// The right of one holder to deliver a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The token of the claim by which the holder got the timer.
    pub token: Token,
    /// The moment at which the lease ends, unless it is renewed.
    pub until: UtcMillis,
    /// If the timer was withdrawn during this delivery, the reason: no delivery follows, however this delivery ends.
    pub withdrawn: Option<Withdrawal>,
}

/// Identifies a claim: no other claim has the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// The claimant's incarnation: a number that each start of a process draws anew.
    pub incarnation: u64,
    /// The claim's number in that incarnation.
    pub claim: u64,
}

/// The reason why a timer is not delivered although no delivery has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Withdrawal {
    /// The timer was cancelled.
    Cancelled,
    /// Another timer took its key.
    Replaced,
}

/// Says why and when the deliveries of a timer were given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// The reason why the deliveries were given up.
    pub reason: DeathReason,
    /// The moment at which the deliveries were given up.
    pub at: UtcMillis,
}

/// The reason why deliveries were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeathReason {
    /// As many deliveries failed as the policy permits.
    Attempts,
    /// As many deliveries were begun as the policy permits: handlers took their process with them, or outlived their
    /// leases.
    Deliveries,
    /// The next delivery would begin after the greatest age.
    Age,
    /// The handler refused the timer for good.
    Refused,
    /// The delivery succeeded, and the plan of the timer's series cannot be followed any more: its time zone is not in
    /// this machine's database, for example.
    Plan,
}

impl State {
    /// Returns the phase to which the state belongs.
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
