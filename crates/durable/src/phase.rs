//! Defines the states of a timer. [`state`](crate::state) has the transitions between them.

use serde::{Deserialize, Serialize};
pub use tourbillon_words::Phase;
use tourbillon_words::UtcMillis;

/// The reason in the state of a paused timer. A timer is paused by [`Op::Pause`](crate::store::Op::Pause), or because
/// its series is paused. The store keeps a paused timer in the state [`State::Parked`] with this reason, so the timer
/// is not delivered, even if it is due.
pub const PAUSED: &str = "paused";

/// The state of a stored timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// The timer waits for its due moment.
    Pending,
    /// A process has claimed the timer and delivers it. The process is the holder of the lease.
    Leased(Lease),
    /// The timer is set aside for this reason: it is not delivered, even if it is due. It becomes pending again by a
    /// call of [`Timers::unpark`](crate::Timers::unpark) with this reason, or of [`Timers::fire`](crate::Timers::fire).
    Parked(Box<str>),
    /// The timer is not delivered again. It stays stored until it is replayed or removed.
    Dead(Death),
}

/// The right of one process, the holder, to deliver a timer until the lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The token of the claim that gave the timer to the holder.
    pub token: Token,
    /// The moment at which the lease ends. The holder can renew the lease, which moves this moment.
    pub until: UtcMillis,
    /// The reason why the timer was withdrawn during this delivery. A withdrawn timer gets no further delivery, even if
    /// this delivery fails. `None` if the timer was not withdrawn.
    pub withdrawn: Option<Withdrawal>,
}

/// Identifies a claim, the call by which a process takes due timers from the store. No two claims have the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// A random number that identifies the run of the process that claimed the timers. The process draws a new number
    /// at each start.
    pub incarnation: u64,
    /// The number of the claim. The process counts its claims from its start.
    pub claim: u64,
}

/// The reason why a timer was withdrawn. No further delivery of a withdrawn timer begins.
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
    /// The number of failed deliveries reached the policy's limit [`attempts`](crate::policy::Policy::attempts).
    Attempts,
    /// The number of deliveries reached the policy's limit [`deliveries`](crate::policy::Policy::deliveries), and the
    /// last delivery ended without an answer of the handler: the process died, or the lease ended. This limit counts
    /// failed deliveries as well as deliveries without an answer.
    Deliveries,
    /// The timer's next delivery would come later than the policy's limit [`max_age`](crate::policy::Policy::max_age)
    /// permits.
    Age,
    /// The handler reported that no delivery of the timer can succeed.
    Refused,
    /// The delivery succeeded, but the next instant of the timer's series cannot be computed. For example, the database
    /// of this machine does not have the time zone of the series.
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
