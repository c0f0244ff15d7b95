//! The states and the actions of the model of Redis.

use crate::parts::{Answer, Budget, Held};
use crate::timer::{Lease, Stored};

/// The number of nodes.
pub(super) const NODES: usize = 2;
/// The greatest number of claims in a run, with room to spare. [`BOUND`](super::BOUND) proves that no run needs more.
pub(super) const CLAIMS: usize = 7;
/// The greatest epoch of a shard, with room to spare.
pub(super) const EPOCHS: usize = 6;

/// A server's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// The timer.
    pub timer: Stored,
    /// Whether the server remembers the id of the timer that has ended.
    pub is_remembered: bool,
    /// The owner of the shard.
    pub owner: Option<Owner>,
    /// The number of owners so far.
    pub epoch: u8,
    /// The number of claims so far. The program has no such number: it tells which claims a failover has lost.
    pub(crate) claims: u8,
    /// The number of deliveries that have ended, at most 2. It tells which ends a failover has lost.
    pub(crate) ends: u8,
}

/// The owner of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The node.
    pub node: usize,
    /// Whether the owner's time is over.
    pub is_over: bool,
}

/// A client, with the answer that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The client will ask, for the first time or after a lost answer.
    Idle,
    /// The client has read the timer.
    Read(Stored),
    /// The client's script has run.
    Ran {
        /// The answer of the script.
        answer: Answer,
        /// The number of failovers before the script.
        term: u8,
        /// Whether the replica has the change.
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
    /// The work of the node.
    pub work: Work,
}

/// The work of a node, which does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// The node has nothing to do.
    Idle,
    /// The node has claimed the timer under this token, and has no answer.
    Claiming(u8),
    /// The answer to the claim with this token was lost.
    Doubting(u8),
    /// The node has claimed the timer.
    Holding(Held),
    /// The handler of the node has been called.
    Delivering(Held),
    /// The node has read that this lease is over.
    Reaping(Lease),
}

/// A state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The server that answers.
    pub server: Server,
    /// The server that takes over.
    pub replica: Server,
    /// The number of failovers so far.
    pub term: u8,
    /// For each token, the number of ends of its lease that the clock has passed.
    pub passed: [u8; CLAIMS],
    /// The number of claims so far, on all servers.
    pub claims: u8,
    /// The nodes.
    pub nodes: [Node; NODES],
    /// The client that creates the timer.
    pub creator: Caller,
    /// The client that cancels the timer.
    pub canceller: Caller,
    /// The faults that may still happen.
    pub left: Budget,
    /// The past events that properties ask for.
    pub history: History,
}

/// The events of a run that properties ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The number of deliveries that have ended, at most 2.
    pub ended: u8,
    /// Whether a cancel has taken effect.
    pub is_cancelled: bool,
    /// Whether a failover has lost the end of a delivery.
    pub has_lost_end: bool,
    /// The leases that a failover has lost, or whose renewals it has lost, as bits.
    pub lost_leases: u8,
    /// The number of deliveries that began after a cancel was answered.
    pub late: u8,
    /// The nodes that have owned the shard in each epoch, as bits.
    pub owners: [u8; EPOCHS],
    /// Whether a delivery began after a cancel, under a claim that a failover had lost.
    pub is_late_by_failover: bool,
    /// A property that a transition has broken.
    pub broken: Option<&'static str>,
}

/// An action. The number is that of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client creates the timer.
    Create,
    /// A client reads the timer that it will cancel.
    ReadForCancel,
    /// A client cancels the timer that it has read.
    Cancel,
    /// A client gets the answer of its script.
    Answer(Client),
    /// A client does not get the answer of its script.
    LoseAnswer(Client),
    /// A node claims due timers.
    Claim(usize),
    /// A node gets the answer to its claim.
    LearnClaim(usize),
    /// A node does not get the answer to its claim.
    LoseClaim(usize),
    /// A node asks for the timers of a claim whose answer was lost.
    Recover(usize),
    /// A node calls the handler, or gives the timer back.
    Begin(usize),
    /// A node ends its delivery. The answer is lost if the flag is set.
    End(usize, bool),
    /// A node renews its lease. The answer is lost if the flag is set.
    Renew(usize, bool),
    /// A node asks for leases that are over.
    ReadExpired(usize),
    /// A node ends a lease that is over.
    Reap(usize),
    /// The clock passes the end of this token's lease.
    PassEnd(u8),
    /// The clock passes the end of the owner's time.
    PassOwner,
    /// The replica gets all changes.
    Replicate,
    /// The server ends, and the replica takes over.
    FailOver,
    /// A node ends.
    Crash(usize),
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// The client that creates the timer.
    Creator,
    /// The client that cancels the timer.
    Canceller,
}

impl Server {
    /// Changes the timer, and remembers the id of a timer that has ended.
    pub(crate) fn set(&mut self, timer: Stored) {
        self.is_remembered |= timer == Stored::Absent;
        self.timer = timer;
    }
}

impl State {
    pub(crate) fn client(&mut self, client: Client) -> &mut Caller {
        match client {
            Client::Creator => &mut self.creator,
            Client::Canceller => &mut self.canceller,
        }
    }

    pub(crate) fn ran(&self, answer: Answer) -> Caller {
        Caller::Ran { answer, term: self.term, is_safe: false }
    }

    pub(crate) fn work(&mut self, node: usize, work: Work) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.work = work;
        }
    }

    /// Returns whether the clock has passed the end of a lease after this number of renewals.
    pub(crate) fn has_passed(&self, token: u8, renewals: u8) -> bool {
        self.passed.get(usize::from(token)).is_some_and(|passed| *passed > renewals)
    }

    pub(crate) fn is_passed(&self, lease: Lease) -> bool {
        self.has_passed(lease.token, lease.renewals)
    }

    /// Returns the leases under which a node works, with the number of renewals that the node knows.
    pub(crate) fn held(&self) -> impl Iterator<Item = Held> {
        self.nodes.iter().filter_map(|node| match node.work {
            Work::Claiming(token) | Work::Doubting(token) => Some(Held { token, renewals: 0 }),
            Work::Holding(held) | Work::Delivering(held) => Some(held),
            Work::Idle | Work::Reaping(_) => None,
        })
    }

    /// Returns whether a living node works under this token.
    pub(crate) fn has_holder(&self, token: u8) -> bool {
        self.held().any(|held| held.token == token)
    }

    /// Returns the tokens of all leases that some part knows, each with the number of its renewals.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (u8, u8)> {
        let stored = [self.server.timer, self.replica.timer].into_iter().filter_map(Stored::lease);
        let stored = stored.map(|lease| (lease.token, lease.renewals));
        stored.chain(self.held().map(|held| (held.token, held.renewals)))
    }

    /// Returns whether two nodes work under leases whose ends have not passed, and of which no failover has lost one.
    pub(crate) fn has_two_leases(&self) -> bool {
        let is_running = |held: &Held| {
            !self.has_passed(held.token, held.renewals) && self.history.lost_leases & 1 << held.token == 0
        };
        self.history.ended == 0 && self.held().filter(is_running).count() > 1
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        matches!(self.creator, Caller::Answered(_))
    }

    /// Gives states that differ in nothing that matters one form.
    pub(crate) fn normalize(&mut self) {
        let mut known = [false; CLAIMS];
        self.leases().for_each(|(token, _)| {
            if let Some(known) = known.get_mut(usize::from(token)) {
                *known = true;
            }
        });
        for (token, is_known) in known.into_iter().enumerate() {
            if !is_known {
                self.history.lost_leases &= !(1 << token);
                if let Some(passed) = self.passed.get_mut(token) {
                    *passed = 0;
                }
            }
        }
        if self.left.failovers == 0 {
            // No replica takes over any more.
            self.replica = self.server;
            let term = self.term;
            for caller in [&mut self.creator, &mut self.canceller] {
                if let Caller::Ran { term: ran_in, is_safe, .. } = caller {
                    *is_safe = *ran_in == term;
                }
            }
        }
    }
}
