//! The protocol of `tourbillon-postgres`: one or two timers in one shard of a server with a standby, two nodes that
//! claim, clients that create the timers in transactions of their own, and a client that cancels the first timer in another
//! transaction.
//!
//! # States
//!
//! | part | state |
//! |---|---|
//! | database | the rows of timers, each with the number of the transaction that wrote it and with its lease; the owner of the shard and its epoch; the effects that handlers have committed. An open transaction may have locked a row |
//! | node | its low-water mark: the epoch, the due moments that are passed, the transactions that the last look did not see, the rows that were locked then. Its work: a look, with the snapshot; a claim whose answer was lost; a claimed timer; a delivery that has begun; an open transaction that ends the delivery |
//! | client | has asked nothing; has a snapshot; has an open transaction; has committed, perhaps not on the standby yet; has the answer |
//!
//! The timers are due at two moments, one after the other, and both have come. A claim takes one timer at most, so a limit
//! is reached with two. Only the order of the transactions' numbers matters, so they are numbered anew in each state.
//!
//! # Actions
//! SQL cannot be called from here. Each action does what one statement does, with its snapshot and its locks. The
//! transitions of the timer itself are calls of `tourbillon_durable::state::step`, which the program calls as well. The
//! functions are those of `crates/postgres/src/schema`.
//!
//! | action | repeats |
//! |---|---|
//! | [`Insert`](Action::Insert), [`Commit`](Action::Commit), [`Rollback`](Action::Rollback) | `place_checked`: the id is free and not remembered, and the row has the number of its transaction (`xid_for`). Others see it after the commit |
//! | [`BeginCancel`](Action::BeginCancel), [`Cancel`](Action::Cancel), [`CommitCancel`](Action::CommitCancel), [`RollbackCancel`](Action::RollbackCancel) | `cancel`: the transaction has a snapshot; then `lock_at` locks the row, and `withdraw_locked` looks for a lease by a statement of its own |
//! | [`Own`](Action::Own) | `sign`: a node takes the shard, after a claim of the dead owner has ended |
//! | [`Look`](Action::Look), [`Take`](Action::Take) | `claim`: the snapshot by which the timers are chosen; then `SKIP LOCKED`, and `ON CONFLICT` for the key of the leases. The answer moves the mark (`node/mark.rs`). The row of the node is locked from the one to the other |
//! | [`Recover`](Action::Recover) | the node asks for the leases of a claim whose answer was lost |
//! | [`Begin`](Action::Begin) | `may_begin` of `tourbillon-durable`: no handler is called after the end of its lease; the timer is released then |
//! | [`Done`](Action::Done), [`CommitDone`](Action::CommitDone), [`RollbackDone`](Action::RollbackDone) | `done` in the handler's transaction, which locks the row and compares the token; then its effect and the end are committed together |
//! | [`Renew`](Action::Renew), [`Reap`](Action::Reap) | a renewal changes the lease alone; a reap locks the row, and writes it with a new number |
//! | [`PassEnd`](Action::PassEnd), [`PassOwner`](Action::PassOwner), [`Crash`](Action::Crash) | the clock; the process ends |
//! | [`Replicate`](Action::Replicate), [`FailOver`](Action::FailOver) | the standby has all commits up to some moment, and takes over. Open transactions are rolled back. The numbers of transactions that are lost are given again. A server that is killed and started again is the same, with its own file in place of the standby |
//!
//! # Legal endings
//! Each run ends, since the clock, the network, the servers and the clients do harm a bounded number of times
//! ([`Budget`]). At its end no timer is stored. If the creation of a timer was acknowledged, its effect was committed, or a
//! cancel was.
//!
//! # Failover
//! With [`Sync::Wait`] a caller has its answer after the standby has its commit. Claims, renewals and ends do not wait
//! (`synchronous_commit` is off for them), so a failover may lose them. All properties hold then, if each node begins at
//! the first timer again: the mark may have passed a timer whose lease is lost, and the snapshot of the last look may be of
//! later numbers than the new server gives. [`Fault::MarkAfterFailover`] leaves this out.
//!
//! With [`Sync::None`] a failover loses the last commits: [`LOST`] and [`REVIVED`] do not hold, and a test finds the runs.
//! All others hold, and above all [`ONCE`]: an effect in the same database is lost together with the end of its delivery,
//! or kept with it.
//!
//! # Isolation
//! A statement of the cancel sees each lease that was committed before it, as at the level READ COMMITTED. At the level
//! REPEATABLE READ a transaction sees those leases alone that its first statement saw. [`Fault::CancelBySnapshot`] is that
//! level: a timer is cancelled, and is delivered all the same.
//!
//! # Left out
//! The moments of the clock, so that no timer is early; timers that are due in more than an hour, whose rows have no
//! number; deadlocks; retries, keys in other modes, series, parked timers, timers that are delivered at most once; more
//! shards than one; notifications; migrations. The handler's first line follows its check of the lease at once.

use crate::explore::Reached;
use crate::parts::{Answer, Budget, Held, Sync};
use crate::timer::{Lease, Step, Stored, step};
use stateright::{Model, Property};
use std::sync::Arc;

/// The number of nodes.
const NODES: usize = 2;
/// The greatest number of timers.
const TIMERS: usize = 2;
/// The greatest number of open transactions that write: one for each client and each node.
const OPEN: usize = TIMERS + 1 + NODES;
/// The greatest number of claims in a run, with room to spare. [`BOUND`] proves that no run needs more.
const CLAIMS: usize = 7;

/// A check that the program makes, and that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no second look: a look finds only the rows behind the mark.
    NoSecondLook,
    /// The second look leaves out the transactions that were open at the last look.
    ForgetOpen,
    /// The mark moves too early: it passes the due timers that were beyond the limit of a claim.
    MarkTooEarly,
    /// The mark passes rows that other transactions had locked, and nobody asks for them again.
    ForgetLocked,
    /// The snapshot of the second look advances although late timers are left.
    AdvanceTooEarly,
    /// A timer whose lease has ended keeps its transaction number.
    ReturnKeepsNumber,
    /// An owner has no epoch: a mark from a time without the shard counts for the shard.
    OwnerWithoutEpoch,
    /// A claim does not lock the row of its node, so the shard may get another owner meanwhile.
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

impl Fault {
    /// All faults.
    pub const ALL: [Self; 19] = [
        Self::NoSecondLook,
        Self::ForgetOpen,
        Self::MarkTooEarly,
        Self::ForgetLocked,
        Self::AdvanceTooEarly,
        Self::ReturnKeepsNumber,
        Self::OwnerWithoutEpoch,
        Self::ClaimWithoutNodeLock,
        Self::ClaimBySnapshot,
        Self::MarkAfterFailover,
        Self::CancelBySnapshot,
        Self::EndWithoutToken,
        Self::EndWithoutLock,
        Self::ReapWithoutLock,
        Self::BeginWithoutLease,
        Self::ForgetIds,
        Self::AnswerWithoutWait,
        Self::OwnerForEver,
        Self::NoReap,
    ];
}

/// The model.
#[derive(Clone, Debug)]
pub struct Postgres {
    /// Whether a commit waits for the standby.
    pub sync: Sync,
    /// The checks that are left out.
    pub faults: Vec<Fault>,
    /// The number of timers: 1 or 2.
    pub timers: usize,
    /// How often something goes wrong.
    pub budget: Budget,
    /// Whether nodes look although they own no shard.
    pub has_idle_looks: bool,
    /// The properties that are not checked.
    pub unchecked: &'static [&'static str],
    /// The events that have happened in the search.
    pub reached: Arc<Reached<{ Event::ALL.len() }>>,
}

/// An event that a transition may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A look leaves late timers, and its snapshot does not advance.
    LateLeft,
    /// A look by a node that does not own the shard moves its mark.
    LookedInVain,
    /// A mark begins anew, for the owner or its epoch has changed.
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

impl Event {
    /// All events.
    pub const ALL: [Self; 34] = [
        Self::Created,
        Self::Repeated,
        Self::RolledBack,
        Self::CommittedLate,
        Self::Cancelled,
        Self::Marked,
        Self::CancelRolledBack,
        Self::ClaimedByScan,
        Self::ClaimedBySecondLook,
        Self::PassedOver,
        Self::GoneMeanwhile,
        Self::ClaimedAgain,
        Self::LateLeft,
        Self::LookedInVain,
        Self::MarkReset,
        Self::MarkMoved,
        Self::TakenOver,
        Self::NotOwner,
        Self::WaitsForClaim,
        Self::Recovered,
        Self::NotRecovered,
        Self::Begun,
        Self::Released,
        Self::ReleaseRefused,
        Self::Ended,
        Self::EndRefused,
        Self::EndRolledBack,
        Self::Renewed,
        Self::RenewRefused,
        Self::Returned,
        Self::Withdrawn,
        Self::Lost,
        Self::Aborted,
        Self::NotConfirmed,
    ];
}

/// The data of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Database {
    /// The timers, by the order of their due moments.
    pub rows: [Row; TIMERS],
    /// The owner of the shard.
    pub owner: Option<Owner>,
    /// The number of owners so far.
    pub epoch: u8,
    /// The number of claims so far. It is no part of the program: it tells which claims a failover has lost.
    claims: u8,
}

/// The row of a timer, with its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The timer. An absent timer has no row.
    pub timer: Stored,
    /// The number of the transaction that wrote the row. It is 0 if there is no row.
    pub number: u8,
    /// Whether the id of the ended timer is remembered.
    pub is_remembered: bool,
    /// The number of effects that handlers have committed, at most 2.
    pub effects: u8,
    /// Whether a transaction that cancelled the timer was committed.
    pub is_cancelled: bool,
    /// Whether an open transaction has locked the row.
    pub is_locked: bool,
}

/// The owner of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The node.
    pub node: u8,
    /// Whether the owner's time is over.
    pub is_over: bool,
}

/// A client, with its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The client will ask, for the first time or after a lost answer.
    Idle,
    /// The client's transaction has a snapshot, in which the timer has a lease or none.
    Snapshot(bool),
    /// The client's transaction is open, has this number, and will have this answer.
    Open(u8, Answer),
    /// The client has committed.
    Ran {
        /// The answer.
        answer: Answer,
        /// The number of failovers before the commit.
        term: u8,
        /// Whether the standby has the commit.
        is_safe: bool,
    },
    /// The client has the answer.
    Answered(Answer),
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Whether the process lives.
    pub is_alive: bool,
    /// How far the looks of the node have come.
    pub mark: Mark,
    /// The work of the node.
    pub work: Work,
}

/// How far the looks of a node have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The epoch in which the node owned the shard at its last look. `None` if it did not own the shard.
    pub epoch: Option<u8>,
    /// The number of due moments that the scan leaves out.
    pub passed: u8,
    /// The transactions that the last look did not see. `None` before the first look.
    pub unseen: Option<Unseen>,
    /// The timers that other transactions had locked at the last look.
    pub held: [bool; TIMERS],
}

/// The transactions that a snapshot does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unseen {
    /// The transactions that were open, in their order. The rest of the list is 0.
    pub open: [u8; OPEN],
    /// The first transaction that had not begun.
    pub next: u8,
}

/// The snapshot of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The epoch in which the node owns the shard.
    pub epoch: Option<u8>,
    /// The numbers of the transactions that wrote the pending timers in the snapshot.
    pub seen: [Option<u8>; TIMERS],
    /// The transactions that the snapshot does not show.
    pub unseen: Unseen,
}

/// The work of a node, which does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// The node has nothing to do.
    Idle,
    /// The node's look is under way.
    Looking(Snapshot),
    /// The answer to the claim with this token was lost.
    Doubting(Timer, u8),
    /// The node has claimed a timer.
    Holding(Timer, Held),
    /// The handler of the node has been called.
    Delivering(Timer, Held),
    /// The handler's transaction with the end of the delivery is open, and has this number.
    Ending(Timer, Held, u8),
}

/// A timer, by its place among the rows.
pub type Timer = usize;

/// A state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The server that answers.
    pub server: Database,
    /// The server that takes over.
    pub standby: Database,
    /// The number of failovers so far.
    pub term: u8,
    /// For each token, the number of ends of its lease that the clock has passed.
    pub passed: [u8; CLAIMS],
    /// The number of claims so far, on all servers.
    pub claims: u8,
    /// The nodes.
    pub nodes: [Node; NODES],
    /// The clients that create the timers.
    pub creators: [Caller; TIMERS],
    /// The client that cancels the first timer.
    pub canceller: Caller,
    /// The number of the next transaction.
    pub next: u8,
    /// What may still go wrong.
    pub left: Budget,
    /// The leases that a failover has lost, or whose renewals it has lost, as bits.
    pub lost_leases: u8,
    /// The number of deliveries of the first timer that began after a cancel was answered.
    pub late: u8,
    /// A property that a transition has broken.
    pub broken: Option<&'static str>,
}

/// An action. A flag says that the answer is lost. The number of a node comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's transaction creates a timer.
    Insert(Timer),
    /// The transaction that creates a timer is committed.
    Commit(Timer, bool),
    /// The transaction that creates a timer is rolled back.
    Rollback(Timer),
    /// The transaction that will cancel the first timer begins.
    BeginCancel,
    /// The transaction cancels the first timer.
    Cancel,
    /// The transaction that cancels the timer is committed.
    CommitCancel(bool),
    /// The transaction that cancels the timer is rolled back.
    RollbackCancel,
    /// The client that has created a timer gets its answer.
    AnswerCreator(Timer),
    /// The client that has cancelled the timer gets its answer.
    AnswerCanceller,
    /// A node takes the shard, or keeps it.
    Own(u8),
    /// A node begins a look.
    Look(u8),
    /// A look ends.
    Take(u8, bool),
    /// A node asks for the timers of a claim whose answer was lost.
    Recover(u8),
    /// A node calls the handler, or gives the timer back.
    Begin(u8),
    /// The handler's transaction ends the delivery.
    Done(u8),
    /// The handler's transaction is committed.
    CommitDone(u8, bool),
    /// The handler's transaction is rolled back.
    RollbackDone(u8),
    /// A node renews its lease.
    Renew(u8, bool),
    /// A node ends a lease that is over.
    Reap(u8, Timer),
    /// The clock passes the end of this token's lease.
    PassEnd(u8),
    /// The clock passes the end of the owner's time.
    PassOwner,
    /// The standby gets all commits.
    Replicate,
    /// The server ends, and the standby takes over.
    FailOver,
    /// A node ends.
    Crash(u8),
}

/// The property that no run needs more claims than the model has tokens.
pub const BOUND: &str = "the tokens suffice";
/// The property that nothing acknowledged is lost.
pub const LOST: &str = "an acknowledged timer is delivered or cancelled";
/// The property that no timer is stuck.
pub const STUCK: &str = "no timer is stuck";
/// The property that a cancelled timer is not delivered.
pub const REVIVED: &str = "no delivery begins after the answer Cancelled, and one at most after InFlight";
/// The property that old tokens have no effect.
pub const OLD_TOKEN: &str = "an end by an old token changes nothing";
/// The property that a handler's effect happens once.
pub const ONCE: &str = "the effect of a handler is committed once";
/// The property that only an owner claims.
pub const NOT_OWNER: &str = "a node that is not the owner leases nothing";
/// The property that a lease is exclusive until its end.
pub const TWO_LEASES: &str = "no two leases of a timer are running";
/// The property that a delivery begins under the lease in the store.
pub const NO_LEASE: &str = "a delivery begins under the lease that the store has";
/// The situation that both nodes deliver a timer.
pub const TWO_HOLDERS: &str = "two nodes deliver a timer at once";
/// The situation that an owner has a mark above a row that is not committed yet.
pub const ABOVE: &str = "the mark is above a timer whose transaction is open";

impl Postgres {
    /// Makes the model without a fault.
    #[must_use]
    pub fn new(sync: Sync, timers: usize, budget: Budget) -> Self {
        Self {
            sync,
            faults: Vec::new(),
            timers,
            budget,
            has_idle_looks: false,
            unchecked: &[],
            reached: Arc::default(),
        }
    }

    /// Plants a fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Lets nodes look although they own no shard.
    #[must_use]
    pub fn with_idle_looks(self) -> Self {
        Self { has_idle_looks: true, ..self }
    }

    /// Leaves properties unchecked.
    #[must_use]
    pub fn without(self, unchecked: &'static [&'static str]) -> Self {
        Self { unchecked, ..self }
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn note(&self, event: Event) {
        self.reached.note(event as usize);
    }

    fn breaks(&self, state: &mut State, property: &'static str) {
        if !self.unchecked.contains(&property) {
            state.broken = Some(property);
        }
    }

    /// Returns whether nothing can happen any more. A run that has broken a property is not followed any further.
    fn is_over(&self, state: &State) -> bool {
        if state.broken.is_some() {
            return false;
        }
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.into_iter().all(|action| self.next_state(state, action).is_none())
    }

    fn insert(&self, state: &mut State, timer: Timer) -> Option<()> {
        if *state.creators.get(timer)? != Caller::Idle {
            return None;
        }
        let row = state.server.rows.get(timer)?;
        let is_free = row.timer == Stored::Absent && !row.is_remembered;
        let caller = if is_free {
            Caller::Open(state.number(), Answer::Created)
        } else {
            self.note(Event::Repeated);
            state.ran(Answer::Created)
        };
        *state.creators.get_mut(timer)? = caller;
        Some(())
    }

    fn commit(&self, state: &mut State, timer: Timer, is_lost: bool) -> Option<()> {
        let Caller::Open(number, answer) = *state.creators.get(timer)? else { return None };
        let row = state.server.rows.get_mut(timer)?;
        (row.timer, row.number) = (Stored::Pending, number);
        self.note(Event::Created);
        if state.nodes.iter().any(|node| usize::from(node.mark.passed) > timer) {
            self.note(Event::CommittedLate);
        }
        let ran = state.ran(answer);
        *state.creators.get_mut(timer)? = if is_lost { Caller::Idle } else { ran };
        Some(())
    }

    fn cancel(&self, state: &mut State) -> Option<()> {
        let Caller::Snapshot(has_lease) = state.canceller else { return None };
        let [row, ..] = &mut state.server.rows;
        if row.is_locked {
            // The transaction waits.
            return None;
        }
        let had_lease =
            if self.has(Fault::CancelBySnapshot) { has_lease } else { row.timer.lease().is_some() };
        let answer = match row.timer {
            Stored::Absent => {
                state.canceller = state.ran(Answer::NotFound);
                return Some(());
            }
            _ if had_lease => Answer::InFlight,
            _ => Answer::Cancelled,
        };
        row.is_locked = true;
        state.canceller = Caller::Open(state.number(), answer);
        Some(())
    }

    fn commit_cancel(&self, state: &mut State, is_lost: bool) -> Option<()> {
        let Caller::Open(number, answer) = state.canceller else { return None };
        let [row, ..] = &mut state.server.rows;
        row.is_locked = false;
        row.is_cancelled = true;
        if answer == Answer::Cancelled {
            self.note(Event::Cancelled);
            row.set(Stored::Absent, number, !self.has(Fault::ForgetIds));
        } else {
            self.note(Event::Marked);
            // Without a row lock of the reap, the lease may be gone by now. The mark is then on a row without a lease.
            let marked = step(row.timer, Step::Cancel).filter(|marked| *marked != Stored::Absent);
            row.timer = marked.unwrap_or(STRAY);
        }
        let ran = state.ran(answer);
        state.canceller = if is_lost { Caller::Idle } else { ran };
        Some(())
    }

    /// A caller gets its answer, once the standby has its commit.
    fn answer(&self, caller: &mut Caller, now: u8) -> Option<()> {
        let Caller::Ran { answer, term, is_safe } = *caller else { return None };
        let waits = self.sync == Sync::Wait && !self.has(Fault::AnswerWithoutWait);
        *caller = if !waits || is_safe {
            Caller::Answered(answer)
        } else if term < now {
            self.note(Event::NotConfirmed);
            Caller::Idle
        } else {
            return None;
        };
        Some(())
    }

    fn own(&self, state: &mut State, number: u8) -> Option<()> {
        let server = &mut state.server;
        match server.owner {
            Some(owner) if owner.node == number => {}
            Some(owner) if !owner.is_over || self.has(Fault::OwnerForEver) => {
                self.note(Event::NotOwner);
                return None;
            }
            Some(owner) => {
                let node = state.nodes.get(usize::from(owner.node))?;
                if let Work::Looking(_) = node.work
                    && !self.has(Fault::ClaimWithoutNodeLock)
                {
                    // The claim of the owner holds the row of its node.
                    self.note(Event::WaitsForClaim);
                    return None;
                }
                self.note(Event::TakenOver);
                server.epoch += 1;
            }
            None => server.epoch += 1,
        }
        server.owner = Some(Owner { node: number, is_over: false });
        Some(())
    }

    /// Begins a look. A look that would find nothing and move nothing at once is left out: it may be repeated for ever.
    fn look(&self, state: &mut State, number: u8) -> Option<()> {
        let before = state.nodes.get(usize::from(number))?.mark;
        let snapshot = state.snapshot(number);
        if snapshot.epoch.is_none() && !self.has_idle_looks {
            return None;
        }
        state.work(number, Work::Looking(snapshot));
        let mut at_once = *state;
        self.take(&mut at_once, number, false)?;
        at_once.normalize();
        let node = at_once.nodes.get(usize::from(number))?;
        (node.work != Work::Idle || node.mark != before).then_some(())
    }

    /// Ends a look. A claim takes one timer at most.
    fn take(&self, state: &mut State, node: u8, is_lost: bool) -> Option<()> {
        let Node { work: Work::Looking(snapshot), mark: known, .. } = *state.nodes.get(usize::from(node))?
        else {
            return None;
        };
        let mut mark = known;
        if known.epoch != snapshot.epoch && !self.has(Fault::OwnerWithoutEpoch) {
            if known.unseen.is_some() {
                self.note(Event::MarkReset);
            }
            mark = Mark::NEW;
        }
        mark.epoch = snapshot.epoch;
        let chosen = self.chosen(&snapshot, &mark);
        let (found, late_left) =
            (chosen.first().copied(), chosen.iter().skip(1).any(|chosen| chosen.is_late));
        let mut taken = None;
        if let Some(Chosen { timer, is_late }) = found {
            taken = self.lease(state, timer)?;
            if let Some(token) = taken {
                self.note(match is_late {
                    _ if mark.held.get(timer).is_some_and(|is_held| *is_held) => Event::ClaimedAgain,
                    true => Event::ClaimedBySecondLook,
                    false => Event::ClaimedByScan,
                });
                if state.server.owner.is_none_or(|owner| owner.node != node) {
                    self.breaks(state, NOT_OWNER);
                }
                state.work(
                    node,
                    match is_lost {
                        true => Work::Doubting(timer, token),
                        false => Work::Holding(timer, Held { token, renewals: 0 }),
                    },
                );
            }
        }
        if taken.is_none() {
            state.work(node, Work::Idle);
        }
        if is_lost {
            // The node has learned nothing.
            return taken.map(drop);
        }
        for (timer, (is_held, row)) in mark.held.iter_mut().zip(&state.server.rows).enumerate() {
            *is_held |= found.is_some_and(|found| found.timer == timer);
            *is_held &= row.timer == Stored::Pending && !self.has(Fault::ForgetLocked);
        }
        let all = u8::try_from(self.timers).unwrap_or(u8::MAX);
        if late_left && !self.has(Fault::AdvanceTooEarly) {
            self.note(Event::LateLeft);
        } else {
            let left = chosen.len() > 1;
            let after = match found {
                Some(found) if left && !self.has(Fault::MarkTooEarly) => {
                    u8::try_from(found.timer + 1).unwrap_or(u8::MAX)
                }
                _ => all,
            };
            if after > mark.passed {
                self.note(if snapshot.epoch.is_none() { Event::LookedInVain } else { Event::MarkMoved });
            }
            mark.passed = mark.passed.max(after);
            mark.unseen = Some(snapshot.unseen);
        }
        if let Some(node) = state.nodes.get_mut(usize::from(node)) {
            node.mark = mark;
        }
        Some(())
    }

    /// Returns the due timers that a look finds, in the order of their due moments.
    fn chosen(&self, snapshot: &Snapshot, mark: &Mark) -> Vec<Chosen> {
        let is_unseen = |number: u8| {
            mark.unseen.is_some_and(|unseen| {
                let was_open = unseen.open.contains(&number) && !self.has(Fault::ForgetOpen);
                (was_open || number >= unseen.next) && !self.has(Fault::NoSecondLook)
            })
        };
        let seen = snapshot.seen.into_iter().zip(mark.held).enumerate();
        let seen = seen.filter(|_| snapshot.epoch.is_some());
        seen.filter_map(|(timer, (number, is_held))| {
            let (number, is_late) = (number?, timer < usize::from(mark.passed));
            (!is_late || is_held || is_unseen(number)).then_some(Chosen { timer, is_late })
        })
        .collect()
    }

    /// Leases a timer, if its row is there and not locked, and it has no lease. Returns the token.
    fn lease(&self, state: &mut State, timer: Timer) -> Option<Option<u8>> {
        let token = state.claims;
        let row = state.server.rows.get_mut(timer)?;
        if row.is_locked {
            self.note(Event::PassedOver);
            return Some(None);
        }
        let stored = match row.timer {
            Stored::Leased(_) if self.has(Fault::ClaimBySnapshot) => Stored::Pending,
            stored => stored,
        };
        let Some(leased) = step(stored, Step::Claim(token)) else {
            self.note(Event::GoneMeanwhile);
            return Some(None);
        };
        if usize::from(token) >= CLAIMS {
            self.breaks(state, BOUND);
            return None;
        }
        row.timer = leased;
        state.claims += 1;
        state.server.claims = state.claims;
        Some(Some(token))
    }

    fn begin(&self, state: &mut State, timer: Timer, held: Held) -> Option<Work> {
        if state.has_passed(held.token, held.renewals) && !self.has(Fault::BeginWithoutLease) {
            let row = state.server.rows.get(timer)?;
            if row.is_locked {
                // The statement waits.
                return None;
            }
            match step(row.timer, Step::Release(held.token)) {
                Some(after) => {
                    self.note(Event::Released);
                    self.write(state, timer, after);
                }
                None => self.note(Event::ReleaseRefused),
            }
            return Some(Work::Idle);
        }
        self.note(Event::Begun);
        let is_lost = state.lost_leases & 1 << held.token != 0;
        let stands = state.server.rows.get(timer)?.timer.is_held_by(held.token);
        if !is_lost && !stands {
            self.breaks(state, NO_LEASE);
        }
        if timer == 0
            && let Caller::Answered(answer @ (Answer::Cancelled | Answer::InFlight)) = state.canceller
        {
            state.late += u8::from(!is_lost);
            if state.late > u8::from(answer == Answer::InFlight) {
                self.breaks(state, REVIVED);
            }
        }
        Some(Work::Delivering(timer, held))
    }

    /// Writes the row of a timer whose lease has ended. A pending timer gets a new number, so that a second look finds it.
    fn write(&self, state: &mut State, timer: Timer, after: Stored) {
        let number = state.number();
        let keeps = self.has(Fault::ReturnKeepsNumber);
        if let Some(row) = state.server.rows.get_mut(timer) {
            row.set(after, if keeps { row.number } else { number }, true);
        }
    }

    fn done(&self, state: &mut State, timer: Timer, held: Held) -> Option<Work> {
        let locks = !self.has(Fault::EndWithoutLock);
        let row = state.server.rows.get_mut(timer)?;
        if row.is_locked && locks {
            // The statement waits.
            return None;
        }
        let may_end = match row.timer {
            Stored::Absent => false,
            _ if self.has(Fault::EndWithoutToken) => true,
            timer => step(timer, Step::End(held.token)).is_some(),
        };
        if !may_end {
            self.note(Event::EndRefused);
            return Some(Work::Idle);
        }
        row.is_locked |= locks;
        Some(Work::Ending(timer, held, state.number()))
    }

    fn commit_done(&self, state: &mut State, work: (Timer, Held, u8), is_lost: bool) -> Option<Work> {
        let (timer, held, number) = work;
        let row = state.server.rows.get_mut(timer)?;
        let is_holder = row.timer.is_held_by(held.token);
        self.note(Event::Ended);
        row.is_locked &= self.has(Fault::EndWithoutLock);
        row.set(Stored::Absent, number, !self.has(Fault::ForgetIds));
        row.effects = (row.effects + 1).min(2);
        if row.effects > 1 {
            self.breaks(state, ONCE);
        } else if !is_holder {
            self.breaks(state, OLD_TOKEN);
        }
        // After a lost answer, the node sends the end again.
        Some(if is_lost { Work::Delivering(timer, held) } else { Work::Idle })
    }

    fn renew(&self, state: &mut State, timer: Timer, held: Held, is_lost: bool) -> Option<Held> {
        let renewals = 1;
        let row = state.server.rows.get_mut(timer)?;
        match step(row.timer, Step::Renew(held.token, renewals)) {
            Some(renewed) => {
                self.note(Event::Renewed);
                row.timer = renewed;
                Some(if is_lost { held } else { Held { renewals, ..held } })
            }
            None if is_lost => Some(held),
            None => {
                self.note(Event::RenewRefused);
                None
            }
        }
    }

    fn reap(&self, state: &mut State, timer: Timer) -> Option<()> {
        let row = state.server.rows.get(timer)?;
        let lease = row.timer.lease()?;
        if !state.has_passed(lease.token, lease.renewals)
            || row.is_locked && !self.has(Fault::ReapWithoutLock)
            || row.timer == STRAY
            || self.has(Fault::NoReap)
        {
            return None;
        }
        let after = step(row.timer, Step::Expire)?;
        self.note(if after == Stored::Pending { Event::Returned } else { Event::Withdrawn });
        self.write(state, timer, after);
        Some(())
    }

    fn fail_over(&self, state: &mut State) {
        let (lost, kept) = (state.server, state.standby);
        if lost.committed() != kept {
            self.note(Event::Lost);
        }
        for token in kept.claims..lost.claims {
            state.lost_leases |= 1 << token;
        }
        for (lost, kept) in lost.rows.iter().zip(kept.rows) {
            if let (Some(lost), Some(kept)) = (lost.timer.lease(), kept.timer.lease())
                && lost.token == kept.token
                && lost.renewals > kept.renewals
            {
                state.lost_leases |= 1 << lost.token;
            }
        }
        (state.server, state.standby) = (kept, kept);
        state.term += 1;
        for caller in state.creators.iter_mut().chain([&mut state.canceller]) {
            match *caller {
                Caller::Open(..) => {
                    self.note(Event::Aborted);
                    *caller = Caller::Idle;
                }
                Caller::Snapshot(_) => *caller = Caller::Idle,
                _ => {}
            }
        }
        for node in &mut state.nodes {
            if !self.has(Fault::MarkAfterFailover) {
                node.mark = Mark::NEW;
            }
            node.work = match node.work {
                Work::Looking(_) => Work::Idle,
                Work::Ending(timer, held, _) => Work::Delivering(timer, held),
                work => work,
            };
        }
        // The numbers of transactions that have left no commit are given again.
        state.next = kept.rows.iter().map(|row| row.number).max().unwrap_or(0) + 1;
    }

    /// Makes the transition. `None` if the action is not possible, or changes nothing.
    fn act(&self, state: &mut State, action: Action) -> Option<()> {
        let work = |state: &State, node: u8| state.nodes.get(usize::from(node)).map(|node| node.work);
        match action {
            Action::Insert(timer) => self.insert(state, timer)?,
            Action::Commit(timer, is_lost) => {
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                self.commit(state, timer, is_lost)?;
            }
            Action::Rollback(timer) => {
                state.left.rollbacks = state.left.rollbacks.checked_sub(1)?;
                self.note(Event::RolledBack);
                *state.creators.get_mut(timer)? = Caller::Answered(Answer::GivenUp);
            }
            Action::BeginCancel => {
                let has_lease = state.server.rows.first()?.timer.lease().is_some();
                state.canceller = Caller::Snapshot(has_lease);
            }
            Action::Cancel => self.cancel(state)?,
            Action::CommitCancel(is_lost) => {
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                self.commit_cancel(state, is_lost)?;
            }
            Action::RollbackCancel => {
                state.left.rollbacks = state.left.rollbacks.checked_sub(1)?;
                self.note(Event::CancelRolledBack);
                state.server.rows.first_mut()?.is_locked = false;
                state.canceller = Caller::Answered(Answer::GivenUp);
            }
            Action::AnswerCreator(timer) => self.answer(state.creators.get_mut(timer)?, state.term)?,
            Action::AnswerCanceller => self.answer(&mut state.canceller, state.term)?,
            Action::Own(node) => self.own(state, node)?,
            Action::Look(node) => self.look(state, node)?,
            Action::Take(node, is_lost) => {
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                self.take(state, node, is_lost)?;
            }
            Action::Recover(node) => {
                let Work::Doubting(timer, token) = work(state, node)? else { return None };
                let lease = state.server.rows.get(timer)?.timer.lease().filter(|lease| lease.token == token);
                self.note(if lease.is_some() { Event::Recovered } else { Event::NotRecovered });
                let held = |lease: Lease| Work::Holding(timer, Held { token, renewals: lease.renewals });
                state.work(node, lease.map_or(Work::Idle, held));
            }
            Action::Begin(node) => {
                let Work::Holding(timer, held) = work(state, node)? else { return None };
                let next = self.begin(state, timer, held)?;
                state.work(node, next);
            }
            Action::Done(node) => {
                let Work::Delivering(timer, held) = work(state, node)? else { return None };
                let next = self.done(state, timer, held)?;
                state.work(node, next);
            }
            Action::CommitDone(node, is_lost) => {
                let Work::Ending(timer, held, number) = work(state, node)? else { return None };
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = self.commit_done(state, (timer, held, number), is_lost)?;
                state.work(node, next);
            }
            Action::RollbackDone(node) => {
                let Work::Ending(timer, held, _) = work(state, node)? else { return None };
                state.left.rollbacks = state.left.rollbacks.checked_sub(1)?;
                self.note(Event::EndRolledBack);
                state.server.rows.get_mut(timer)?.is_locked &= self.has(Fault::EndWithoutLock);
                state.work(node, Work::Delivering(timer, held));
            }
            Action::Renew(node, is_lost) => {
                let (timer, held, is_begun) = match work(state, node)? {
                    Work::Holding(timer, held) => (timer, held, false),
                    Work::Delivering(timer, held) => (timer, held, true),
                    _ => return None,
                };
                if held.renewals > 0 {
                    return None;
                }
                state.left.renewals = state.left.renewals.checked_sub(1)?;
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = match self.renew(state, timer, held, is_lost) {
                    Some(held) if is_begun => Work::Delivering(timer, held),
                    Some(held) => Work::Holding(timer, held),
                    None => Work::Idle,
                };
                state.work(node, next);
            }
            Action::Reap(_, timer) => self.reap(state, timer)?,
            Action::PassEnd(token) => {
                if state.held().any(|(_, held)| held.token == token) {
                    state.left.sleeps = state.left.sleeps.checked_sub(1)?;
                }
                *state.passed.get_mut(usize::from(token))? += 1;
            }
            Action::PassOwner => {
                let owner = state.server.owner.filter(|owner| !owner.is_over)?;
                if state.nodes.get(usize::from(owner.node)).is_some_and(|node| node.is_alive) {
                    state.left.lapses = state.left.lapses.checked_sub(1)?;
                }
                let over = Some(Owner { is_over: true, ..owner });
                state.server.owner = over;
                if state.standby.owner == Some(owner) {
                    state.standby.owner = over;
                }
            }
            Action::Replicate => {
                state.standby = state.server.committed();
                let term = state.term;
                state.callers().for_each(|caller| caller.is_safe_in(term));
            }
            Action::FailOver => {
                state.left.failovers = state.left.failovers.checked_sub(1)?;
                self.fail_over(state);
            }
            Action::Crash(node) => {
                state.left.crashes = state.left.crashes.checked_sub(1)?;
                if let Work::Ending(timer, ..) = work(state, node)? {
                    // The server rolls the transaction back when its connection ends.
                    state.server.rows.get_mut(timer)?.is_locked &= self.has(Fault::EndWithoutLock);
                }
                let node = state.nodes.get_mut(usize::from(node))?;
                *node = Node { is_alive: false, mark: Mark::NEW, work: Work::Idle };
            }
        }
        Some(())
    }
}

/// A row that is marked as cancelled during a lease, and has no lease. Nothing removes it.
const STRAY: Stored = Stored::Leased(Lease { token: u8::MAX, renewals: 0, is_withdrawn: true });

/// A timer that a look has found. It is late if the mark has passed it.
#[derive(Clone, Copy)]
struct Chosen {
    timer: Timer,
    is_late: bool,
}

impl Mark {
    const NEW: Self = Self { epoch: None, passed: 0, unseen: None, held: [false; TIMERS] };
}

impl Caller {
    /// Notes that the standby has all commits of this term.
    fn is_safe_in(&mut self, now: u8) {
        if let Self::Ran { term, is_safe, .. } = self {
            *is_safe |= *term == now;
        }
    }
}

impl Row {
    const NONE: Self = Self {
        timer: Stored::Absent,
        number: 0,
        is_remembered: false,
        effects: 0,
        is_cancelled: false,
        is_locked: false,
    };

    /// Changes the timer. Remembers the id of a timer that has ended, unless the store forgets it.
    fn set(&mut self, timer: Stored, number: u8, remembers: bool) {
        self.is_remembered |= timer == Stored::Absent && remembers;
        (self.timer, self.number) = (timer, if timer == Stored::Absent { 0 } else { number });
    }
}

impl Database {
    /// Returns the data without the locks of open transactions.
    fn committed(self) -> Self {
        Self { rows: self.rows.map(|row| Row { is_locked: false, ..row }), ..self }
    }
}

impl State {
    /// Returns the number of a new transaction.
    fn number(&mut self) -> u8 {
        self.next += 1;
        self.next - 1
    }

    fn ran(&self, answer: Answer) -> Caller {
        Caller::Ran { answer, term: self.term, is_safe: false }
    }

    fn work(&mut self, node: u8, work: Work) {
        if let Some(node) = self.nodes.get_mut(usize::from(node)) {
            node.work = work;
        }
    }

    fn callers(&mut self) -> impl Iterator<Item = &mut Caller> {
        self.creators.iter_mut().chain([&mut self.canceller])
    }

    /// Returns the numbers of the open transactions.
    fn open(&self) -> impl Iterator<Item = u8> {
        let callers = self.creators.iter().chain([&self.canceller]).filter_map(|caller| match caller {
            Caller::Open(number, _) => Some(*number),
            _ => None,
        });
        callers.chain(self.nodes.iter().filter_map(|node| match node.work {
            Work::Ending(.., number) => Some(number),
            _ => None,
        }))
    }

    fn snapshot(&self, node: u8) -> Snapshot {
        let seen = self.server.rows.map(|row| (row.timer == Stored::Pending).then_some(row.number));
        let mut open = [0; OPEN];
        open.iter_mut().zip(self.open()).for_each(|(place, number)| *place = number);
        open.sort_unstable_by_key(|number| if *number == 0 { u8::MAX } else { *number });
        let epoch = self.server.owner.filter(|owner| owner.node == node).map(|_| self.server.epoch);
        Snapshot { epoch, seen, unseen: Unseen { open, next: self.next } }
    }

    /// Returns whether the end of a lease has passed that was renewed so many times.
    fn has_passed(&self, token: u8, renewals: u8) -> bool {
        self.passed.get(usize::from(token)).is_some_and(|passed| *passed > renewals)
    }

    /// Returns the leases under which a node works, with the number of renewals that the node knows.
    fn held(&self) -> impl Iterator<Item = (Timer, Held)> {
        self.nodes.iter().filter_map(|node| match node.work {
            Work::Doubting(timer, token) => Some((timer, Held { token, renewals: 0 })),
            Work::Holding(timer, held) | Work::Delivering(timer, held) | Work::Ending(timer, held, _) => {
                Some((timer, held))
            }
            Work::Idle | Work::Looking(_) => None,
        })
    }

    /// Returns the tokens of all leases that some part knows, each with the number of its renewals.
    fn leases(&self) -> impl Iterator<Item = (u8, u8)> {
        let rows = self.server.rows.iter().chain(&self.standby.rows);
        let stored = rows.filter_map(|row| row.timer.lease()).map(|lease| (lease.token, lease.renewals));
        stored.chain(self.held().map(|(_, held)| (held.token, held.renewals)))
    }

    /// Returns whether two nodes work on a timer under leases whose ends have not passed, and of which no failover has
    /// lost one.
    fn has_two_leases(&self) -> bool {
        let is_running = |timer: Timer| {
            move |(of, held): &(Timer, Held)| {
                *of == timer
                    && !self.has_passed(held.token, held.renewals)
                    && self.lost_leases & 1 << held.token == 0
            }
        };
        let rows = self.server.rows.iter().enumerate().filter(|(_, row)| row.effects == 0);
        rows.into_iter().any(|(timer, _)| self.held().filter(is_running(timer)).count() > 1)
    }

    /// Gives states that differ in nothing that matters one form.
    fn normalize(&mut self) {
        let mut known = [false; CLAIMS];
        self.leases().for_each(|(token, _)| {
            if let Some(known) = known.get_mut(usize::from(token)) {
                *known = true;
            }
        });
        for (token, is_known) in known.into_iter().enumerate().filter(|(_, is_known)| !is_known) {
            debug_assert!(!is_known);
            self.lost_leases &= !(1 << token);
            if let Some(passed) = self.passed.get_mut(token) {
                *passed = 0;
            }
        }
        if self.left.failovers == 0 {
            // No standby takes over any more.
            self.standby = self.server.committed();
            let term = self.term;
            self.callers().for_each(|caller| caller.is_safe_in(term));
        }
        self.renumber();
    }

    /// Numbers the transactions from 1 on, in their order.
    fn renumber(&mut self) {
        let mut numbers: Vec<&mut u8> = vec![&mut self.next];
        for row in self.server.rows.iter_mut().chain(&mut self.standby.rows) {
            numbers.push(&mut row.number);
        }
        for caller in self.creators.iter_mut().chain([&mut self.canceller]) {
            if let Caller::Open(number, _) = caller {
                numbers.push(number);
            }
        }
        for node in &mut self.nodes {
            let mut unseen: Vec<&mut Unseen> = node.mark.unseen.iter_mut().collect();
            match &mut node.work {
                Work::Looking(snapshot) => {
                    numbers.extend(snapshot.seen.iter_mut().flatten());
                    unseen.push(&mut snapshot.unseen);
                }
                Work::Ending(.., number) => numbers.push(number),
                _ => {}
            }
            for Unseen { open, next } in unseen {
                numbers.push(next);
                numbers.extend(open);
            }
        }
        let mut is_used = [false; 256];
        numbers.iter().for_each(|number| is_used[usize::from(**number)] = true);
        let mut ranks = [0; 256];
        let mut rank = 0;
        for (number, _) in is_used.iter().enumerate().skip(1).filter(|(_, is_used)| **is_used) {
            rank += 1;
            ranks[number] = rank;
        }
        numbers.into_iter().for_each(|number| *number = ranks[usize::from(*number)]);
    }
}

impl Model for Postgres {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = Database { rows: [Row::NONE; TIMERS], owner: None, epoch: 0, claims: 0 };
        let mut creators = [Caller::Idle; TIMERS];
        creators.iter_mut().skip(self.timers).for_each(|caller| *caller = Caller::Answered(Answer::GivenUp));
        let first = State {
            server,
            standby: server,
            term: 0,
            passed: [0; CLAIMS],
            claims: 0,
            nodes: [Node { is_alive: true, mark: Mark::NEW, work: Work::Idle }; NODES],
            creators,
            canceller: Caller::Idle,
            next: 1,
            left: self.budget,
            lost_leases: 0,
            late: 0,
            broken: None,
        };
        // Nobody cancels the timer, or somebody does.
        vec![State { canceller: Caller::Answered(Answer::GivenUp), ..first }, first]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (timer, caller) in state.creators.iter().enumerate() {
            match caller {
                Caller::Idle => actions.push(Action::Insert(timer)),
                Caller::Open(..) => actions.extend([
                    Action::Commit(timer, false),
                    Action::Commit(timer, true),
                    Action::Rollback(timer),
                ]),
                Caller::Ran { .. } => actions.push(Action::AnswerCreator(timer)),
                Caller::Snapshot(_) | Caller::Answered(_) => {}
            }
        }
        match state.canceller {
            Caller::Idle => actions.push(Action::BeginCancel),
            Caller::Snapshot(_) => actions.push(Action::Cancel),
            Caller::Open(..) => actions.extend([
                Action::CommitCancel(false),
                Action::CommitCancel(true),
                Action::RollbackCancel,
            ]),
            Caller::Ran { .. } => actions.push(Action::AnswerCanceller),
            Caller::Answered(_) => {}
        }
        for (number, node) in (0..).zip(&state.nodes).filter(|(_, node)| node.is_alive) {
            match node.work {
                Work::Idle => {
                    actions.extend([Action::Own(number), Action::Look(number)]);
                    actions.extend((0..TIMERS).map(|timer| Action::Reap(number, timer)));
                }
                Work::Looking(_) => {
                    actions.extend([Action::Take(number, false), Action::Take(number, true)]);
                }
                Work::Doubting(..) => actions.push(Action::Recover(number)),
                Work::Holding(..) => actions.extend([
                    Action::Begin(number),
                    Action::Renew(number, false),
                    Action::Renew(number, true),
                ]),
                Work::Delivering(..) => actions.extend([
                    Action::Done(number),
                    Action::Renew(number, false),
                    Action::Renew(number, true),
                ]),
                Work::Ending(..) => actions.extend([
                    Action::CommitDone(number, false),
                    Action::CommitDone(number, true),
                    Action::RollbackDone(number),
                ]),
            }
            if usize::from(number) + 1 < NODES {
                actions.push(Action::Crash(number));
            }
        }
        let mut tokens: Vec<u8> = state
            .leases()
            .filter(|(token, renewals)| !state.has_passed(*token, *renewals) && usize::from(*token) < CLAIMS)
            .map(|(token, _)| token)
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        actions.extend(tokens.into_iter().map(Action::PassEnd));
        actions.extend([Action::PassOwner, Action::Replicate, Action::FailOver]);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.broken.is_some() {
            return None;
        }
        let mut next = *last;
        self.act(&mut next, action)?;
        next.normalize();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn holds(state: &State, property: &str) -> bool {
            state.broken != Some(property)
        }
        let properties = vec![
            Property::always(BOUND, |_, state| holds(state, BOUND)),
            Property::always(LOST, |model: &Self, state: &State| {
                let are_settled = state.creators.iter().zip(&state.server.rows).all(|(caller, row)| {
                    *caller != Caller::Answered(Answer::Created) || row.effects > 0 || row.is_cancelled
                });
                are_settled || !model.is_over(state)
            }),
            Property::always(STUCK, |model: &Self, state: &State| {
                state.server.rows.iter().all(|row| row.timer == Stored::Absent) || !model.is_over(state)
            }),
            Property::always(REVIVED, |_, state| holds(state, REVIVED)),
            Property::always(OLD_TOKEN, |_, state| holds(state, OLD_TOKEN)),
            Property::always(ONCE, |_, state| holds(state, ONCE)),
            Property::always(NOT_OWNER, |_, state| holds(state, NOT_OWNER)),
            Property::always(TWO_LEASES, |_, state: &State| !state.has_two_leases()),
            Property::always(NO_LEASE, |_, state| holds(state, NO_LEASE)),
            Property::sometimes(TWO_HOLDERS, |_, state: &State| {
                let mut timers = state.nodes.iter().map(|node| match node.work {
                    Work::Delivering(timer, _) => Some(timer),
                    _ => None,
                });
                let first = timers.next().flatten();
                first.is_some() && timers.all(|timer| timer == first)
            }),
            Property::sometimes(ABOVE, |_, state: &State| {
                let is_open = |(timer, caller): (usize, &Caller)| {
                    matches!(caller, Caller::Open(..))
                        && state.nodes.iter().any(|node| usize::from(node.mark.passed) > timer)
                };
                state.creators.iter().enumerate().any(is_open)
            }),
        ];
        properties.into_iter().filter(|property| !self.unchecked.contains(&property.name)).collect()
    }
}
