//! The protocol of `tourbillon-redis`: one timer in one shard of a server with a replica, two nodes that claim, a
//! client that creates the timer, and a client that cancels it.
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
//! Each script of the store is a single action, because Redis runs its scripts one after another. Lua cannot be called
//! from here, so the actions repeat the named lines of `crates/redis/src`. A test fails when these lines change. The
//! transitions of the timer itself are calls of the function `tourbillon_durable::state::step`, which the program calls
//! as well.
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
//! | [`PassEnd`](Action::PassEnd), [`PassOwner`](Action::PassOwner) | the clock. A node that sleeps makes no step during that time |
//! | [`Replicate`](Action::Replicate), [`FailOver`](Action::FailOver) | the replica has all changes up to some moment, and takes over with these |
//! | [`Crash`](Action::Crash) | the process ends |
//!
//! # Legal endings
//! Each run ends, since the clock, the network and the servers do harm a bounded number of times ([`Budget`]). At its
//! end the timer is not stored. If its creation was acknowledged, a delivery has ended, or a cancel has taken effect.
//!
//! # Failover
//! With [`Sync::Wait`] the promises to callers hold, with a single exception. Claims, renewals and ends do not wait for
//! a replica, so a failover may lose a claim, or a renewal. Another node then claims the timer again, and it is
//! delivered twice. Or a client cancels the timer, and gets the answer `Cancelled`. Then the first holder's delivery
//! begins all the same, if the holder stood still between its claim and the first line of its handler, and its lease is
//! not over. [`LATE`] reaches that state, and [`REVIVED`] is stated without it.
//!
//! With [`Sync::None`] an acknowledged timer may be lost. A test finds the run.
//!
//! # Left out
//! Due moments and the order of claims, slices and lanes, series, retries, parked timers, timers that are delivered at
//! most once, the redirects of a cluster, a server that loses a part of its data, `may_lose`. The handler's first line
//! follows its check of the lease at once. The two clocks of a failover are the same.

mod faults;
mod state;
mod steps;

pub use faults::{Event, Fault};
pub use state::{Action, Caller, Client, History, Node, Owner, Server, State, Work};

use crate::explore::Reached;
use crate::parts::{Answer, Budget, Sync};
use crate::timer::Stored;
use state::{CLAIMS, NODES};
use stateright::{Model, Property};
use std::sync::Arc;
use strum::VariantArray as _;

/// The greatest number of ends of a lease that the clock passes: that of the claim, and that of its renewal.
const ENDS: u8 = 2;

/// The model.
#[derive(Clone, Debug)]
pub struct Redis {
    /// Whether the store waits for the replica before it answers a caller.
    pub sync: Sync,
    /// The check that is left out.
    pub fault: Option<Fault>,
    /// How often something goes wrong.
    pub budget: Budget,
    /// A property that is not checked.
    pub unchecked: Option<&'static str>,
    /// The events that have happened in the search.
    pub reached: Arc<Reached<{ Event::VARIANTS.len() }>>,
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
/// The property that a single holder ends the delivery.
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
