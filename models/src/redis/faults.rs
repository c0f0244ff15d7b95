//! The faults that are planted in the model of Redis, and the events that its transitions cause.

use strum::VariantArray;

/// A check or a wait that the program makes, and that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Fault {
    /// The end of a delivery does not compare the token.
    EndWithoutToken,
    /// A claim leases in a shard of another owner.
    ClaimWithoutOwner,
    /// A claim leaves the timer in its slice.
    ClaimLeavesTimer,
    /// A reap ends a lease that it has read as expired, without another look at the end.
    ReapWithoutLook,
    /// A renewal does not compare the token.
    RenewWithoutToken,
    /// A cancel commits its changes without a comparison with the data that it has read.
    CancelWithoutCheck,
    /// A node calls a handler although the lease is over.
    BeginWithoutLease,
    /// The store forgets the ids of ended timers, so a repeated creation makes a second timer.
    ForgetIds,
    /// A caller gets its answer although no replica has the change.
    AnswerWithoutWait,
    /// The server that has taken over vouches for changes that the old server has made.
    OtherWitness,
    /// A repeated creation that finds its own timer does not wait for the replica.
    RepeatWithoutWait,
    /// Nobody takes over a shard whose owner's time is over.
    OwnerForEver,
    /// Nobody ends the leases of a holder that is gone.
    NoReap,
}

/// An event that a transition may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Event {
    /// A creation stores the timer.
    Created,
    /// A creation finds that it has stored the timer before.
    Repeated,
    /// A cancel removes the timer.
    Cancelled,
    /// A cancel marks the lease of the timer.
    Marked,
    /// A cancel finds the timer changed since it was read.
    CancelRefused,
    /// A node leases the timer.
    Claimed,
    /// A node takes a shard from another owner.
    TakenOver,
    /// A claim finds another owner.
    NotOwner,
    /// A node finds its lease after a lost answer.
    Recovered,
    /// A node finds no lease after a lost answer.
    NotRecovered,
    /// A delivery begins.
    Begun,
    /// A node finds its lease over, and gives the timer back.
    Released,
    /// A node finds its lease over, and the timer is another's by then.
    ReleaseRefused,
    /// The end of a delivery is stored.
    Ended,
    /// The end of a delivery is refused.
    EndRefused,
    /// A lease is renewed.
    Renewed,
    /// A renewal finds that its lease is lost.
    RenewRefused,
    /// A reap ends a lease, and the timer is pending again.
    Returned,
    /// A reap ends the lease of a cancelled timer.
    Withdrawn,
    /// A reap finds the lease renewed or ended since it was read.
    ReapRefused,
    /// A failover loses changes.
    Lost,
    /// A caller learns that nobody vouches for its change.
    NotConfirmed,
}
