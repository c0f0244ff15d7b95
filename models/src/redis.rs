//! The protocol of `tourbillon-redis`: one timer in one shard of a server with a replica, two nodes that claim, a client
//! that creates the timer, and a client that cancels it.
//!
//! # States
//!
//! | part | state |
//! |---|---|
//! | server | the timer, whether its id is remembered, the owner of the shard with its epoch. The replica is the server as it was before |
//! | lease | token, number of renewals, mark of a cancel. Its end has passed, or it has not: [`State::passed`] counts the passed ends of each token, for all copies of the lease |
//! | node | nothing; a claim without an answer; a claim whose answer was lost; a claimed timer; a delivery that has begun; an expired lease that it has read and will end |
//! | client | has asked nothing; has read the timer; its script has run, perhaps on no replica yet; has the answer |
//!
//! # Actions
//!
//! Each script of the store is one action, for Redis runs one at a time. Lua cannot be called from here, so the actions
//! repeat the named lines of `crates/redis/src`. A test fails when these lines change. The transitions of the timer itself
//! are calls of the function `tourbillon_durable::state::step`, which the program calls as well.
//!
//! | action | repeats |
//! |---|---|
//! | [`Create`](Action::Create) | `script/lua/create.lua`, lines 24 to 46: the id is free and not remembered |
//! | [`Answer`](Action::Answer), [`LoseAnswer`](Action::LoseAnswer) | `deployment/promise.rs`, `link/witness.rs`: an answer waits for the replica, and only the server that has run the script vouches for it |
//! | [`ReadForCancel`](Action::ReadForCancel), [`Cancel`](Action::Cancel) | `operation/transact.rs`: read, compute, commit; `script/lua/commit.lua`, lines 35 to 63: the checks `member`, `field`, `no-field` |
//! | [`Claim`](Action::Claim) | `script/lua/claim.lua`, lines 145 to 176: the owner; lines 331 to 363: the timer leaves its slice and gets a token |
//! | [`LearnClaim`](Action::LearnClaim), [`LoseClaim`](Action::LoseClaim), [`Recover`](Action::Recover) | `claim/claims.rs`; `script/lua/recover.lua` |
//! | [`Begin`](Action::Begin) | `runtime/shared/handlers.rs` of `tourbillon-durable`, `may_begin`: no handler is called after the end of its lease; the timer is released then |
//! | [`End`](Action::End) | `script/lua/end_many.lua`, lines 36 to 51: record and token are compared |
//! | [`Renew`](Action::Renew) | `script/lua/renew.lua`, lines 12 to 20 |
//! | [`ReadExpired`](Action::ReadExpired), [`Reap`](Action::Reap) | `claim/leases.rs`; `script/lua/expired.lua`; `commit.lua`, lines 54 to 56: the check `over` |
//! | [`PassEnd`](Action::PassEnd), [`PassOwner`](Action::PassOwner) | the clock. A node that sleeps makes no step meanwhile |
//! | [`Replicate`](Action::Replicate), [`FailOver`](Action::FailOver) | the replica has all changes up to some moment, and takes over with these |
//! | [`Crash`](Action::Crash) | the process ends |
//!
//! # Legal endings
//! Each run ends, since the clock, the network and the servers do harm a bounded number of times ([`Budget`]). At its end
//! the timer is not stored. If its creation was acknowledged, a delivery has ended, or a cancel has taken effect.
//!
//! # Failover
//! With [`Sync::Wait`] the promises to callers hold, but for this one case. Claims, renewals and ends do not wait for a
//! replica, so a failover may lose a claim, or a renewal. Another node then claims the timer again, and it is delivered
//! twice. Or a client cancels the timer, and gets the answer `Cancelled`. Then the first holder's delivery begins all the
//! same, if the holder stood still between its claim and the first line of its handler, and its lease is not over.
//! [`LATE`] reaches that state, and [`REVIVED`] is stated without it.
//!
//! With [`Sync::None`] an acknowledged timer may be lost. A test finds the run.
//!
//! # Left out
//! Due moments and the order of claims, slices and lanes, series, retries, parked timers, timers that are delivered at
//! most once, the redirects of a cluster, a server that loses a part of its data, `may_lose`. The handler's first line
//! follows its check of the lease at once. The two clocks of a failover are the same.

use crate::explore::Reached;
use crate::parts::{Answer, Budget, Held, Sync};
use crate::timer::{Lease, Step, Stored, step};
use stateright::{Model, Property};
use std::sync::Arc;

/// The number of nodes.
const NODES: usize = 2;
/// The greatest number of claims in a run, with room to spare. [`BOUND`] proves that no run needs more.
const CLAIMS: usize = 7;
/// The greatest number of ends of a lease that the clock passes: that of the claim, and that of its renewal.
const ENDS: u8 = 2;
/// The greatest epoch of a shard, with room to spare.
const EPOCHS: usize = 6;

/// A check or a wait that the program makes, and that the model leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A cancel commits what it has computed, without comparing what it has read.
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

impl Fault {
    /// All faults.
    pub const ALL: [Self; 13] = [
        Self::EndWithoutToken,
        Self::ClaimWithoutOwner,
        Self::ClaimLeavesTimer,
        Self::ReapWithoutLook,
        Self::RenewWithoutToken,
        Self::CancelWithoutCheck,
        Self::BeginWithoutLease,
        Self::ForgetIds,
        Self::AnswerWithoutWait,
        Self::OtherWitness,
        Self::RepeatWithoutWait,
        Self::OwnerForEver,
        Self::NoReap,
    ];
}

/// The model.
#[derive(Clone, Debug)]
pub struct Redis {
    /// What the store waits for before it answers a caller.
    pub sync: Sync,
    /// The check that is left out.
    pub fault: Option<Fault>,
    /// How often something goes wrong.
    pub budget: Budget,
    /// A property that is not checked.
    pub unchecked: Option<&'static str>,
    /// The events that have happened in the search.
    pub reached: Arc<Reached<{ Event::ALL.len() }>>,
}

/// An event that a transition may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Event {
    /// All events.
    pub const ALL: [Self; 22] = [
        Self::Created,
        Self::Repeated,
        Self::Cancelled,
        Self::Marked,
        Self::CancelRefused,
        Self::Claimed,
        Self::TakenOver,
        Self::NotOwner,
        Self::Recovered,
        Self::NotRecovered,
        Self::Begun,
        Self::Released,
        Self::ReleaseRefused,
        Self::Ended,
        Self::EndRefused,
        Self::Renewed,
        Self::RenewRefused,
        Self::Returned,
        Self::Withdrawn,
        Self::ReapRefused,
        Self::Lost,
        Self::NotConfirmed,
    ];
}

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
    /// The number of claims so far. It is no part of the program: it tells which claims a failover has lost.
    claims: u8,
    /// The number of deliveries that have ended, at most 2. It tells which ends a failover has lost.
    ends: u8,
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
    /// What may still go wrong.
    pub left: Budget,
    /// What has happened, as far as the properties ask.
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
/// The property that one holder ends the delivery.
pub const TWO_ENDS: &str = "no two holders both end the delivery";
/// The property that only an owner claims.
pub const NOT_OWNER: &str = "a node that is not the owner leases nothing";
/// The property that a lease is exclusive until its end.
pub const TWO_LEASES: &str = "no two leases are running";
/// The property that a delivery begins under the lease in the store.
pub const NO_LEASE: &str = "a delivery begins under the lease that the store has";
/// The situation that a failover makes a delivery begin after a cancel.
pub const LATE: &str = "a delivery begins after a cancel, for a failover has lost its claim";
/// The situation that both nodes hold the timer.
pub const TWO_HOLDERS: &str = "two nodes deliver at once";
/// The situation that two nodes have had one epoch.
pub const ONE_EPOCH: &str = "two nodes own the shard in one epoch";
/// The situation that a timer is delivered twice.
pub const TWICE: &str = "two deliveries end, for a failover has lost the first end";

impl Redis {
    /// Makes the model without a fault.
    #[must_use]
    pub fn new(sync: Sync, budget: Budget) -> Self {
        Self { sync, fault: None, budget, unchecked: None, reached: Arc::default() }
    }

    /// Plants a fault.
    #[must_use]
    pub fn with(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Leaves a property unchecked.
    #[must_use]
    pub fn without(self, property: &'static str) -> Self {
        Self { unchecked: Some(property), ..self }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn note(&self, event: Event) {
        self.reached.note(event as usize);
    }

    /// Returns whether nothing can happen any more. A run that has broken a property is not followed any further.
    fn is_over(&self, state: &State) -> bool {
        if state.history.broken.is_some() {
            return false;
        }
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.into_iter().all(|action| self.next_state(state, action).is_none())
    }

    fn create(&self, state: &mut State) -> Option<()> {
        let Caller::Idle = state.creator else { return None };
        let is_free = state.server.timer == Stored::Absent && !state.server.is_remembered;
        if is_free {
            state.server.timer = Stored::Pending;
            self.note(Event::Created);
        } else {
            self.note(Event::Repeated);
        }
        state.creator = if !is_free && self.has(Fault::RepeatWithoutWait) {
            Caller::Answered(Answer::Created)
        } else {
            state.ran(Answer::Created)
        };
        Some(())
    }

    fn cancel(&self, state: &mut State) -> Option<()> {
        let Caller::Read(read) = state.canceller else { return None };
        let same = |lease: Lease| Lease { renewals: 0, ..lease };
        // The end of the lease is no part of what a commit compares.
        let is_same = match (read, state.server.timer) {
            (Stored::Leased(read), Stored::Leased(lease)) => same(read) == same(lease),
            (read, timer) => read == timer,
        };
        if !is_same && !self.has(Fault::CancelWithoutCheck) {
            self.note(Event::CancelRefused);
            state.canceller = Caller::Idle;
            return Some(());
        }
        let from = if is_same { state.server.timer } else { read };
        let after = step(from, Step::Cancel)?;
        state.server.timer = after;
        state.history.is_cancelled = true;
        let answer = if let Stored::Leased(_) = after {
            self.note(Event::Marked);
            Answer::InFlight
        } else {
            self.note(Event::Cancelled);
            state.server.is_remembered = !self.has(Fault::ForgetIds);
            Answer::Cancelled
        };
        state.canceller = state.ran(answer);
        Some(())
    }

    fn answer(&self, state: &mut State, client: Client) -> Option<()> {
        let (term, sync) = (state.term, self.sync);
        let caller = state.client(client);
        let Caller::Ran { answer, term: of, is_safe } = *caller else { return None };
        if sync == Sync::None || self.has(Fault::AnswerWithoutWait) {
            *caller = Caller::Answered(answer);
        } else if of == term || self.has(Fault::OtherWitness) {
            // The replica of the server that has taken over has all that this server has.
            if !is_safe && of == term {
                return None;
            }
            *caller = Caller::Answered(answer);
        } else {
            self.note(Event::NotConfirmed);
            *caller = Caller::Idle;
        }
        Some(())
    }

    fn claim(&self, state: &mut State, node: usize) -> Option<()> {
        let server = &mut state.server;
        let (own, before) = (Some(Owner { node, is_over: false }), server.owner);
        match before {
            Some(owner) if owner.node == node => server.owner = own,
            Some(owner) if !owner.is_over || self.has(Fault::OwnerForEver) => {
                self.note(Event::NotOwner);
                if !self.has(Fault::ClaimWithoutOwner) {
                    return None;
                }
            }
            _ => {
                server.owner = own;
                server.epoch += 1;
                if before.is_some() {
                    self.note(Event::TakenOver);
                }
                if let Some(owners) = state.history.owners.get_mut(usize::from(server.epoch)) {
                    *owners |= 1 << node;
                }
            }
        }
        let timer = match server.timer {
            Stored::Leased(_) if self.has(Fault::ClaimLeavesTimer) => Stored::Pending,
            timer => timer,
        };
        let token = state.claims;
        match step(timer, Step::Claim(token)) {
            Some(leased) if usize::from(token) < CLAIMS => {
                let is_owner = server.owner.is_some_and(|owner| owner.node == node);
                if !is_owner && self.unchecked != Some(NOT_OWNER) {
                    state.history.broken = Some(NOT_OWNER);
                }
                server.timer = leased;
                server.claims = token + 1;
                state.claims = token + 1;
                if let Some(node) = state.nodes.get_mut(node) {
                    node.work = Work::Claiming(token);
                }
                self.note(Event::Claimed);
            }
            Some(_) => state.history.broken = Some(BOUND),
            None => {}
        }
        Some(())
    }

    fn begin(&self, state: &mut State, held: Held) -> Work {
        if state.has_passed(held.token, held.renewals) && !self.has(Fault::BeginWithoutLease) {
            match step(state.server.timer, Step::Release(held.token)) {
                Some(after) => {
                    self.note(Event::Released);
                    state.server.set(after);
                }
                None => self.note(Event::ReleaseRefused),
            }
            return Work::Idle;
        }
        self.note(Event::Begun);
        let is_lost = state.history.lost_leases & 1 << held.token != 0;
        if !is_lost && !state.server.timer.is_held_by(held.token) {
            state.history.broken = Some(NO_LEASE);
        }
        if let Caller::Answered(answer @ (Answer::Cancelled | Answer::InFlight)) = state.canceller {
            state.history.late += u8::from(!is_lost);
            state.history.is_late_by_failover |= is_lost;
            if state.history.late > u8::from(answer == Answer::InFlight) {
                state.history.broken = Some(REVIVED);
            }
        }
        Work::Delivering(held)
    }

    fn end(&self, state: &mut State, held: Held, is_lost: bool) -> Work {
        let is_holder = state.server.timer.is_held_by(held.token);
        let after = match state.server.timer {
            Stored::Absent => None,
            _ if self.has(Fault::EndWithoutToken) => Some(Stored::Absent),
            timer => step(timer, Step::End(held.token)),
        };
        match after {
            Some(after) => {
                self.note(Event::Ended);
                state.server.set(after);
                state.server.is_remembered = !self.has(Fault::ForgetIds);
                state.server.ends = (state.server.ends + 1).min(2);
                state.history.ended = (state.history.ended + 1).min(2);
                if !is_holder {
                    state.history.broken = Some(OLD_TOKEN);
                }
            }
            None => self.note(Event::EndRefused),
        }
        // After a lost answer, the node sends the end again.
        if is_lost { Work::Delivering(held) } else { Work::Idle }
    }

    fn renew(&self, state: &mut State, held: Held, is_lost: bool) -> Option<Held> {
        let renewals = 1;
        let renewed = match state.server.timer {
            Stored::Leased(lease) if self.has(Fault::RenewWithoutToken) => {
                Some(Stored::Leased(Lease { renewals, ..lease }))
            }
            timer => step(timer, Step::Renew(held.token, renewals)),
        };
        match renewed {
            Some(renewed) => {
                self.note(Event::Renewed);
                state.server.timer = renewed;
                Some(if is_lost { held } else { Held { renewals, ..held } })
            }
            None if is_lost => Some(held),
            None => {
                self.note(Event::RenewRefused);
                None
            }
        }
    }

    fn reap(&self, state: &mut State, read: Lease) {
        let is_same = state
            .server
            .timer
            .lease()
            .is_some_and(|lease| lease.token == read.token && lease.is_withdrawn == read.is_withdrawn);
        let is_over = state.server.timer.lease().is_some_and(|lease| state.is_passed(lease));
        if !is_same || !is_over && !self.has(Fault::ReapWithoutLook) {
            return self.note(Event::ReapRefused);
        }
        if let Some(after) = step(state.server.timer, Step::Expire) {
            self.note(if after == Stored::Pending { Event::Returned } else { Event::Withdrawn });
            state.server.set(after);
        }
    }

    fn fail_over(&self, state: &mut State) {
        let (lost, kept) = (state.server, state.replica);
        if lost != kept {
            self.note(Event::Lost);
        }
        for token in kept.claims..lost.claims {
            state.history.lost_leases |= 1 << token;
        }
        if let (Some(lost), Some(kept)) = (lost.timer.lease(), kept.timer.lease())
            && lost.token == kept.token
            && lost.renewals > kept.renewals
        {
            state.history.lost_leases |= 1 << lost.token;
        }
        state.history.has_lost_end |= lost.ends > kept.ends;
        state.server = kept;
        state.term += 1;
    }

    /// Makes the transition. `None` if the action is not possible, or changes nothing.
    fn act(&self, state: &mut State, action: Action) -> Option<()> {
        let work = |state: &State, node: usize| state.nodes.get(node).map(|node| node.work);
        match action {
            Action::Create => self.create(state)?,
            Action::ReadForCancel => {
                let timer = state.server.timer;
                state.canceller = match (state.canceller, timer) {
                    (Caller::Idle, Stored::Absent) => state.ran(Answer::NotFound),
                    (Caller::Idle, timer) => Caller::Read(timer),
                    _ => return None,
                };
            }
            Action::Cancel => self.cancel(state)?,
            Action::Answer(client) => self.answer(state, client)?,
            Action::LoseAnswer(client) => {
                let Caller::Ran { .. } = *state.client(client) else { return None };
                *state.client(client) = Caller::Idle;
                state.left.losses = state.left.losses.checked_sub(1)?;
            }
            Action::Claim(node) => self.claim(state, node)?,
            Action::LearnClaim(node) => {
                let Work::Claiming(token) = work(state, node)? else { return None };
                state.work(node, Work::Holding(Held { token, renewals: 0 }));
            }
            Action::LoseClaim(node) => {
                let Work::Claiming(token) = work(state, node)? else { return None };
                state.left.losses = state.left.losses.checked_sub(1)?;
                state.work(node, Work::Doubting(token));
            }
            Action::Recover(node) => {
                let Work::Doubting(token) = work(state, node)? else { return None };
                let lease = state.server.timer.lease().filter(|lease| lease.token == token);
                self.note(if lease.is_some() { Event::Recovered } else { Event::NotRecovered });
                let held = |lease: Lease| Work::Holding(Held { token, renewals: lease.renewals });
                state.work(node, lease.map_or(Work::Idle, held));
            }
            Action::Begin(node) => {
                let Work::Holding(held) = work(state, node)? else { return None };
                let next = self.begin(state, held);
                state.work(node, next);
            }
            Action::End(node, is_lost) => {
                let Work::Delivering(held) = work(state, node)? else { return None };
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = self.end(state, held, is_lost);
                state.work(node, next);
            }
            Action::Renew(node, is_lost) => {
                let (held, is_begun) = match work(state, node)? {
                    Work::Holding(held) => (held, false),
                    Work::Delivering(held) => (held, true),
                    _ => return None,
                };
                if held.renewals > 0 {
                    return None;
                }
                state.left.renewals = state.left.renewals.checked_sub(1)?;
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = match self.renew(state, held, is_lost) {
                    Some(held) if is_begun => Work::Delivering(held),
                    Some(held) => Work::Holding(held),
                    None => Work::Idle,
                };
                state.work(node, next);
            }
            Action::ReadExpired(node) => {
                let lease = state.server.timer.lease()?;
                if !state.is_passed(lease) || self.has(Fault::NoReap) {
                    return None;
                }
                state.work(node, Work::Reaping(lease));
            }
            Action::Reap(node) => {
                let Work::Reaping(lease) = work(state, node)? else { return None };
                state.work(node, Work::Idle);
                self.reap(state, lease);
            }
            Action::PassEnd(token) => {
                if !state.has_holder(token) {
                    // A lease that nobody renews ends.
                } else {
                    state.left.sleeps = state.left.sleeps.checked_sub(1)?;
                }
                *state.passed.get_mut(usize::from(token))? += 1;
            }
            Action::PassOwner => {
                let owner = state.server.owner.filter(|owner| !owner.is_over)?;
                if state.nodes.get(owner.node).is_some_and(|node| node.is_alive) {
                    state.left.lapses = state.left.lapses.checked_sub(1)?;
                }
                let over = Some(Owner { is_over: true, ..owner });
                state.server.owner = over;
                if state.replica.owner == Some(owner) {
                    state.replica.owner = over;
                }
            }
            Action::Replicate => {
                state.replica = state.server;
                let term = state.term;
                for caller in [&mut state.creator, &mut state.canceller] {
                    if let Caller::Ran { term: of, is_safe, .. } = caller {
                        *is_safe |= *of == term;
                    }
                }
            }
            Action::FailOver => {
                state.left.failovers = state.left.failovers.checked_sub(1)?;
                self.fail_over(state);
            }
            Action::Crash(node) => {
                state.left.crashes = state.left.crashes.checked_sub(1)?;
                let node = state.nodes.get_mut(node)?;
                *node = Node { is_alive: false, work: Work::Idle };
            }
        }
        Some(())
    }
}

impl Server {
    /// Changes the timer, and remembers the id of a timer that has ended.
    fn set(&mut self, timer: Stored) {
        self.is_remembered |= timer == Stored::Absent;
        self.timer = timer;
    }
}

impl State {
    fn client(&mut self, client: Client) -> &mut Caller {
        match client {
            Client::Creator => &mut self.creator,
            Client::Canceller => &mut self.canceller,
        }
    }

    fn ran(&self, answer: Answer) -> Caller {
        Caller::Ran { answer, term: self.term, is_safe: false }
    }

    fn work(&mut self, node: usize, work: Work) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.work = work;
        }
    }

    /// Returns whether the end of a lease has passed that was renewed so many times.
    fn has_passed(&self, token: u8, renewals: u8) -> bool {
        self.passed.get(usize::from(token)).is_some_and(|passed| *passed > renewals)
    }

    fn is_passed(&self, lease: Lease) -> bool {
        self.has_passed(lease.token, lease.renewals)
    }

    /// Returns the leases under which a node works, with the number of renewals that the node knows.
    fn held(&self) -> impl Iterator<Item = Held> {
        self.nodes.iter().filter_map(|node| match node.work {
            Work::Claiming(token) | Work::Doubting(token) => Some(Held { token, renewals: 0 }),
            Work::Holding(held) | Work::Delivering(held) => Some(held),
            Work::Idle | Work::Reaping(_) => None,
        })
    }

    /// Returns whether a living node works under this token.
    fn has_holder(&self, token: u8) -> bool {
        self.held().any(|held| held.token == token)
    }

    /// Returns the tokens of all leases that some part knows, each with the number of its renewals.
    fn leases(&self) -> impl Iterator<Item = (u8, u8)> {
        let stored = [self.server.timer, self.replica.timer].into_iter().filter_map(Stored::lease);
        let stored = stored.map(|lease| (lease.token, lease.renewals));
        stored.chain(self.held().map(|held| (held.token, held.renewals)))
    }

    /// Returns whether two nodes work under leases whose ends have not passed, and of which no failover has lost one.
    fn has_two_leases(&self) -> bool {
        let is_running = |held: &Held| {
            !self.has_passed(held.token, held.renewals) && self.history.lost_leases & 1 << held.token == 0
        };
        self.history.ended == 0 && self.held().filter(is_running).count() > 1
    }

    fn is_acknowledged(&self) -> bool {
        matches!(self.creator, Caller::Answered(_))
    }

    /// Gives states that differ in nothing that matters one form.
    fn normalize(&mut self) {
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
                if let Caller::Ran { term: of, is_safe, .. } = caller {
                    *is_safe = *of == term;
                }
            }
        }
    }
}

impl Model for Redis {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server =
            Server { timer: Stored::Absent, is_remembered: false, owner: None, epoch: 0, claims: 0, ends: 0 };
        let first = State {
            server,
            replica: server,
            term: 0,
            passed: [0; CLAIMS],
            claims: 0,
            nodes: [Node { is_alive: true, work: Work::Idle }; NODES],
            creator: Caller::Idle,
            canceller: Caller::Idle,
            left: self.budget,
            history: History::default(),
        };
        // Nobody cancels the timer, or somebody does.
        vec![State { canceller: Caller::Answered(Answer::GivenUp), ..first }, first]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let clients = [(Client::Creator, state.creator), (Client::Canceller, state.canceller)];
        for (client, caller) in clients {
            match (client, caller) {
                (Client::Creator, Caller::Idle) => actions.push(Action::Create),
                (Client::Canceller, Caller::Idle) => actions.push(Action::ReadForCancel),
                (_, Caller::Read(_)) => actions.push(Action::Cancel),
                (_, Caller::Ran { .. }) => {
                    actions.extend([Action::Answer(client), Action::LoseAnswer(client)]);
                }
                (_, Caller::Answered(_)) => {}
            }
        }
        for (number, node) in state.nodes.iter().enumerate().filter(|(_, node)| node.is_alive) {
            match node.work {
                Work::Idle => actions.extend([Action::Claim(number), Action::ReadExpired(number)]),
                Work::Claiming(_) => actions.extend([Action::LearnClaim(number), Action::LoseClaim(number)]),
                Work::Doubting(_) => actions.push(Action::Recover(number)),
                Work::Holding(_) => actions.extend([
                    Action::Begin(number),
                    Action::Renew(number, false),
                    Action::Renew(number, true),
                ]),
                Work::Delivering(_) => actions.extend([
                    Action::End(number, false),
                    Action::End(number, true),
                    Action::Renew(number, false),
                    Action::Renew(number, true),
                ]),
                Work::Reaping(_) => actions.push(Action::Reap(number)),
            }
            if number + 1 < NODES {
                actions.push(Action::Crash(number));
            }
        }
        let mut tokens: Vec<u8> = state
            .leases()
            .filter(|(token, renewals)| !state.has_passed(*token, *renewals))
            .map(|(token, _)| token)
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        actions.extend(tokens.into_iter().map(Action::PassEnd));
        actions.extend([Action::PassOwner, Action::Replicate, Action::FailOver]);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.history.broken.is_some() {
            return None;
        }
        let mut next = *last;
        self.act(&mut next, action)?;
        next.normalize();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn holds(state: &State, property: &str) -> bool {
            state.history.broken != Some(property)
        }
        vec![
            Property::always(BOUND, |_, state| {
                holds(state, BOUND) && state.passed.iter().all(|passed| *passed <= ENDS)
            }),
            Property::always(LOST, |model: &Self, state: &State| {
                let is_settled = state.history.ended > 0 || state.history.is_cancelled;
                is_settled || !state.is_acknowledged() || !model.is_over(state)
            }),
            Property::always(STUCK, |model: &Self, state: &State| {
                state.server.timer == Stored::Absent || !model.is_over(state)
            }),
            Property::always(REVIVED, |_, state| holds(state, REVIVED)),
            Property::always(OLD_TOKEN, |_, state| holds(state, OLD_TOKEN)),
            Property::always(TWO_ENDS, |_, state: &State| {
                state.history.ended < 2 || state.history.has_lost_end
            }),
            Property::always(NOT_OWNER, |_, state| holds(state, NOT_OWNER)),
            Property::always(TWO_LEASES, |_, state: &State| !state.has_two_leases()),
            Property::always(NO_LEASE, |_, state| holds(state, NO_LEASE)),
            Property::sometimes(LATE, |_, state: &State| state.history.is_late_by_failover),
            Property::sometimes(TWO_HOLDERS, |_, state: &State| {
                state.nodes.iter().all(|node| matches!(node.work, Work::Delivering(_)))
            }),
            Property::sometimes(ONE_EPOCH, |_, state: &State| {
                state.history.owners.iter().any(|owners| owners.count_ones() > 1)
            }),
            Property::sometimes(TWICE, |_, state: &State| {
                state.history.ended > 1 && state.history.has_lost_end
            }),
        ]
    }
}
