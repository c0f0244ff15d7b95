//! The states and the actions of the model of PostgreSQL.

use crate::parts::{Answer, Budget, Held};
use crate::timer::{Lease, Stored};

/// The number of nodes.
pub(super) const NODES: usize = 2;
/// The greatest number of timers.
pub(super) const TIMERS: usize = 2;
/// The number of lanes.
pub(super) const LANES: usize = 2;
/// The greatest number of open transactions that write: one for each client and each node.
pub(super) const OPEN: usize = TIMERS + 1 + NODES;
/// The greatest number of claims in a run, with room to spare. [`BOUND`](super::BOUND) proves that no run needs more.
pub(super) const CLAIMS: usize = 7;

/// The data of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Database {
    /// The timers, by the order of their due moments.
    pub rows: [Row; TIMERS],
    /// The owner of the shard.
    pub owner: Option<Owner>,
    /// The number of owners so far.
    pub epoch: u8,
    /// The number of claims so far. The program has no such number: it tells which claims a failover has lost.
    pub(crate) claims: u8,
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
    /// For each lane, the number of due moments that the scan leaves out.
    pub passed: [u8; LANES],
    /// The transactions that the last look did not see. `None` before the first look.
    pub unseen: Option<Unseen>,
    /// The timers that other transactions had locked at the last look, and for which the next look asks again.
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
    /// The lane that the look passes over, because the lane has its share.
    pub closed: Option<Lane>,
    /// The timers of other lanes that were locked at the last look, and are still locked.
    pub stuck: [bool; TIMERS],
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

/// A lane: timers that share a mark.
pub type Lane = usize;

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
    /// The client that cancels a timer.
    pub canceller: Caller,
    /// The timer that the client cancels.
    pub target: Timer,
    /// The number of the next transaction.
    pub next: u8,
    /// The faults that may still happen.
    pub left: Budget,
    /// The leases that a failover has lost, or whose renewals it has lost, as bits.
    pub lost_leases: u8,
    /// The number of deliveries of `target` that began after a cancel was answered.
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
    /// The transaction that will cancel a timer begins.
    BeginCancel,
    /// The transaction cancels the timer.
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
    /// A node begins a look, and may pass over a lane.
    Look(u8, Option<Lane>),
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

/// A row that is marked as cancelled during a lease, and has no lease. Nothing removes it.
pub(crate) const STRAY: Stored = Stored::Leased(Lease { token: u8::MAX, renewals: 0, is_withdrawn: true });

impl Mark {
    pub(crate) const NEW: Self =
        Self { epoch: None, passed: [0; LANES], unseen: None, held: [false; TIMERS] };
}

impl Caller {
    /// Notes that the standby has all commits of this term.
    pub(crate) fn is_safe_in(&mut self, now: u8) {
        if let Self::Ran { term, is_safe, .. } = self {
            *is_safe |= *term == now;
        }
    }
}

impl Row {
    pub(crate) const NONE: Self = Self {
        timer: Stored::Absent,
        number: 0,
        is_remembered: false,
        effects: 0,
        is_cancelled: false,
        is_locked: false,
    };

    /// Changes the timer. Remembers the id of a timer that has ended, unless the store forgets it.
    pub(crate) fn set(&mut self, timer: Stored, number: u8, remembers: bool) {
        self.is_remembered |= timer == Stored::Absent && remembers;
        (self.timer, self.number) = (timer, if timer == Stored::Absent { 0 } else { number });
    }
}

impl Database {
    /// Returns the data without the locks of open transactions.
    pub(crate) fn committed(self) -> Self {
        Self { rows: self.rows.map(|row| Row { is_locked: false, ..row }), ..self }
    }
}

impl State {
    /// Returns the number of a new transaction.
    pub(crate) fn number(&mut self) -> u8 {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn ran(&self, answer: Answer) -> Caller {
        Caller::Ran { answer, term: self.term, is_safe: false }
    }

    pub(crate) fn work(&mut self, node: u8, work: Work) {
        if let Some(node) = self.nodes.get_mut(usize::from(node)) {
            node.work = work;
        }
    }

    pub(crate) fn callers(&mut self) -> impl Iterator<Item = &mut Caller> {
        self.creators.iter_mut().chain([&mut self.canceller])
    }

    /// Returns the numbers of the open transactions.
    pub(crate) fn open(&self) -> impl Iterator<Item = u8> {
        let callers = self.creators.iter().chain([&self.canceller]).filter_map(|caller| match caller {
            Caller::Open(number, _) => Some(*number),
            _ => None,
        });
        callers.chain(self.nodes.iter().filter_map(|node| match node.work {
            Work::Ending(.., number) => Some(number),
            _ => None,
        }))
    }

    pub(crate) fn snapshot(&self, node: u8) -> Snapshot {
        let seen = self.server.rows.map(|row| (row.timer == Stored::Pending).then_some(row.number));
        let mut open = [0; OPEN];
        open.iter_mut().zip(self.open()).for_each(|(place, number)| *place = number);
        open.sort_unstable_by_key(|number| if *number == 0 { u8::MAX } else { *number });
        let epoch = self.server.owner.filter(|owner| owner.node == node).map(|_| self.server.epoch);
        let unseen = Unseen { open, next: self.next };
        Snapshot { epoch, seen, unseen, closed: None, stuck: [false; TIMERS] }
    }

    /// Returns whether the clock has passed the end of a lease after this number of renewals.
    pub(crate) fn has_passed(&self, token: u8, renewals: u8) -> bool {
        self.passed.get(usize::from(token)).is_some_and(|passed| *passed > renewals)
    }

    /// Returns the leases under which a node works, with the number of renewals that the node knows.
    pub(crate) fn held(&self) -> impl Iterator<Item = (Timer, Held)> {
        self.nodes.iter().filter_map(|node| match node.work {
            Work::Doubting(timer, token) => Some((timer, Held { token, renewals: 0 })),
            Work::Holding(timer, held) | Work::Delivering(timer, held) | Work::Ending(timer, held, _) => {
                Some((timer, held))
            }
            Work::Idle | Work::Looking(_) => None,
        })
    }

    /// Returns the tokens of all leases that some part knows, each with the number of its renewals.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (u8, u8)> {
        let rows = self.server.rows.iter().chain(&self.standby.rows);
        let stored = rows.filter_map(|row| row.timer.lease()).map(|lease| (lease.token, lease.renewals));
        stored.chain(self.held().map(|(_, held)| (held.token, held.renewals)))
    }

    /// Returns whether two nodes work on a timer under leases whose ends have not passed, and of which no failover has
    /// lost one.
    pub(crate) fn has_two_leases(&self) -> bool {
        let is_running = |timer: Timer| {
            move |(held_timer, held): &(Timer, Held)| {
                *held_timer == timer
                    && !self.has_passed(held.token, held.renewals)
                    && self.lost_leases & 1 << held.token == 0
            }
        };
        let rows = self.server.rows.iter().enumerate().filter(|(_, row)| row.effects == 0);
        rows.into_iter().any(|(timer, _)| self.held().filter(is_running(timer)).count() > 1)
    }

    /// Gives states that differ in nothing that matters one form.
    pub(crate) fn normalize(&mut self) {
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
    pub(crate) fn renumber(&mut self) {
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
