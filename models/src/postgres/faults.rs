//! The faults that are planted in the model of PostgreSQL, and the events that its transitions cause.

use strum::VariantArray;

/// A check that the program makes, and that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Fault {
    /// There is no second look: a look finds only the rows behind the mark.
    NoSecondLook,
    /// The second look leaves out the transactions that were open at the last look.
    ForgetOpen,
    /// The mark of a lane moves too early: it passes the due timers that were beyond the limit of a claim.
    MarkTooEarly,
    /// A look that passes over a lane moves the lane's mark all the same.
    PassesOverAll,
    /// The mark passes rows that other transactions had locked, and nobody asks for them again.
    ForgetLocked,
    /// A look that leaves a late timer does not move the mark of its lane back.
    LeavesLate,
    /// A look that leaves a late timer moves the mark of its lane back to the timer, and not to before it.
    GoesBackTooLittle,
    /// All lanes have one mark, which the lane that has come farthest moves.
    OneMark,
    /// A look forgets the locked rows that it finds still locked.
    ForgetStuck,
    /// A look that passes over the lane of a locked row neither asks for the row again nor moves the lane's mark back.
    LeavesLocked,
    /// A timer whose lease has ended keeps its transaction number.
    ReturnKeepsNumber,
    /// A mark has no epoch: the mark of a node without the shard counts once the node owns the shard.
    MarkWithoutEpoch,
    /// A claim does not lock the row of its node, so the shard may get another owner during the claim.
    ClaimWithoutNodeLock,
    /// A claim believes its snapshot that a timer has no lease.
    ClaimBySnapshot,
    /// A node goes on with its mark although its server has lost the last commits.
    MarkAfterFailover,
    /// A cancel believes the snapshot of its transaction that a timer has no lease.
    CancelBySnapshot,
    /// The end of a delivery does not compare the token.
    EndWithoutToken,
    /// The end of a delivery does not lock the row before it compares the token.
    EndWithoutLock,
    /// A reap does not lock the row of the timer.
    ReapWithoutLock,
    /// A node calls a handler although the lease is over.
    BeginWithoutLease,
    /// The store forgets the ids of ended timers, so a repeated creation makes a second timer.
    ForgetIds,
    /// A caller gets its answer although the standby does not have the commit.
    AnswerWithoutWait,
    /// Nobody takes over a shard whose owner's time is over.
    OwnerForEver,
    /// Nobody ends the leases of a holder that is gone.
    NoReap,
}

/// An event that a transition may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Event {
    /// A creation is committed.
    Created,
    /// A creation finds that it has stored the timer before.
    Repeated,
    /// A transaction that creates a timer is rolled back.
    RolledBack,
    /// A creation is committed after a look that did not see it.
    CommittedLate,
    /// A cancel removes the timer.
    Cancelled,
    /// A cancel marks the timer, which has a lease.
    Marked,
    /// A transaction that cancels a timer is rolled back.
    CancelRolledBack,
    /// A look finds a timer behind the mark, and leases it.
    ClaimedByScan,
    /// The second look finds a timer below the mark, and leases it.
    ClaimedBySecondLook,
    /// A look passes over a locked row.
    PassedOver,
    /// A look finds that a timer of its snapshot has ended, or has a lease by now.
    GoneMeanwhile,
    /// A locked row that a look has passed over is asked for again, and leased.
    ClaimedAgain,
    /// A look leaves a late timer, and the mark of its lane goes back.
    LateLeft,
    /// A look passes over a lane with a due timer.
    LanePassedOver,
    /// A look passes over the lane of a locked row, and the mark of the lane goes back.
    LockedLeft,
    /// A look finds a locked row still locked.
    StillLocked,
    /// A look by a node that does not own the shard moves its mark.
    LookedInVain,
    /// A mark starts again, because the owner or its epoch has changed.
    MarkReset,
    /// The mark passes a moment.
    MarkMoved,
    /// A node takes a shard from another owner.
    TakenOver,
    /// A node finds another owner.
    NotOwner,
    /// A node that would take the shard waits for a claim of its owner.
    WaitsForClaim,
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
    /// The end of a delivery is committed.
    Ended,
    /// The end of a delivery is refused.
    EndRefused,
    /// A transaction that ends a delivery is rolled back.
    EndRolledBack,
    /// A lease is renewed.
    Renewed,
    /// A renewal finds that its lease is lost.
    RenewRefused,
    /// A reap ends a lease, and the timer is pending again.
    Returned,
    /// A reap ends the lease of a cancelled timer.
    Withdrawn,
    /// A failover loses commits.
    Lost,
    /// A failover rolls back an open transaction.
    Aborted,
    /// A caller learns that its commit may be lost.
    NotConfirmed,
}
