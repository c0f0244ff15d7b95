//! The protocol of `tourbillon-postgres`: one or two timers in one shard of a server with a standby, two nodes that
//! claim, clients that create the timers in transactions of their own, and a client that cancels one of the timers in
//! another transaction.
//!
//! # States
//!
//! | part | state |
//! |---|---|
//! | database | the rows of timers, each with the number of the transaction that wrote it and with its lease; the owner of the shard and its epoch; the effects that handlers have committed. An open transaction may have locked a row |
//! | node | its low-water marks: the epoch, the due moments that are passed in each lane, the transactions that the last look did not see, the rows that were locked then. Its work: a look, with the snapshot and the lane that it passes over; a claim whose answer was lost; a claimed timer; a delivery that has begun; an open transaction that ends the delivery |
//! | client | has asked nothing; has a snapshot; has an open transaction; has committed, perhaps not on the standby yet; has the answer |
//!
//! The timers are due at two moments, one after the other, and both have come. They are in one lane, or in two. A claim
//! takes one timer at most, so a limit is reached with two. It may pass over a lane, as if the lane had its share. Only
//! the order of the transactions' numbers matters, so they are numbered anew in each state.
//!
//! # Actions
//! SQL cannot be called from here. Each action is a statement, with its snapshot and its locks. The
//! transitions of the timer itself are calls of `tourbillon_durable::state::step`, which the program calls as well. The
//! functions are those of `crates/postgres/src/schema`. A test fails when the parts of them that are repeated change.
//!
//! | action | repeats |
//! |---|---|
//! | [`Insert`](Action::Insert), [`Commit`](Action::Commit), [`Rollback`](Action::Rollback) | `store_timer`: the id is free and not remembered, and the row has the number of its transaction (`xid_for`). Others see it after the commit |
//! | [`BeginCancel`](Action::BeginCancel), [`Cancel`](Action::Cancel), [`CommitCancel`](Action::CommitCancel), [`RollbackCancel`](Action::RollbackCancel) | `cancel`: the transaction has a snapshot; then `lock_at` locks the row, and `withdraw_locked` looks for a lease by a statement of its own |
//! | [`Own`](Action::Own) | `sign`: a node takes the shard, after a claim of the dead owner has ended |
//! | [`Look`](Action::Look), [`Take`](Action::Take) | `claim`: the snapshot by which the timers are chosen; then `SKIP LOCKED`, and `ON CONFLICT` for the key of the leases. The answer moves the marks (`node/mark.rs`). The row of the node is locked all the time |
//! | [`Recover`](Action::Recover) | the node asks for the leases of a claim whose answer was lost |
//! | [`Begin`](Action::Begin) | `may_begin` of `tourbillon-durable`: no handler is called after the end of its lease; the timer is released then |
//! | [`Done`](Action::Done), [`CommitDone`](Action::CommitDone), [`RollbackDone`](Action::RollbackDone) | `done` in the handler's transaction, which locks the row and compares the token; then its effect and the end are committed together |
//! | [`Renew`](Action::Renew), [`Reap`](Action::Reap) | a renewal changes the lease alone; a reap locks the row, and writes it with a new number |
//! | [`PassEnd`](Action::PassEnd), [`PassOwner`](Action::PassOwner), [`Crash`](Action::Crash) | the clock; the process ends |
//! | [`Replicate`](Action::Replicate), [`FailOver`](Action::FailOver) | the standby has all commits up to some moment, and takes over. Open transactions are rolled back. The numbers of transactions that are lost are given again. A server that is killed and started again is the same, with its own file in place of the standby |
//!
//! # Legal endings
//! Each run ends, since the clock, the network, the servers and the clients do harm a bounded number of times
//! ([`Budget`]). At its end no timer is stored. If the creation of a timer was acknowledged, its effect was committed,
//! or a cancel was.
//!
//! # Failover
//! With [`Sync::Wait`] a caller has its answer after the standby has its commit. Claims, renewals and ends do not wait
//! (`synchronous_commit` is off for them), so a failover may lose them. All properties hold then, if each node begins
//! at the first timer again: the mark may have passed a timer whose lease is lost, and the snapshot of the last look
//! may be of later numbers than the new server gives. [`Fault::MarkAfterFailover`] leaves this out.
//!
//! With [`Sync::None`] a failover loses the last commits: [`LOST`] and [`REVIVED`] do not hold, and a test finds the
//! runs. All others hold, and above all [`ONCE`]: an effect in the same database is lost together with the end of its
//! delivery, or kept with it.
//!
//! # Isolation
//! A statement of the cancel sees each lease that was committed before it, as at the level READ COMMITTED. At the level
//! REPEATABLE READ a transaction sees those leases alone that its first statement saw. The program raises an error
//! there if a later lease is in the way (`check_no_hidden_lease`), so the transaction begins again.
//! [`Fault::CancelBySnapshot`] leaves the check out: a timer is cancelled, and is delivered all the same.
//!
//! # Left out
//! The moments of the clock, so that no timer is early; timers that are due in more than an hour, whose rows have no
//! number (a simulation in `node/open.rs` of the crate has the ages of transactions); the statements of a claim before
//! its choice, which see less than the choice and change nothing; lanes of which a claim takes some timers and then no
//! more; lists of locked rows without room for all; deadlocks; retries, keys in other modes, series, parked timers,
//! timers that are delivered at most once; more shards than one; notifications; migrations. The handler's first line
//! follows its check of the lease at once.

mod faults;
mod looks;
mod state;
mod steps;

pub use faults::{Event, Fault};
pub use state::{
    Action, Caller, Database, Lane, Mark, Node, Owner, Row, Snapshot, State, Timer, Unseen, Work,
};

use crate::explore::Reached;
use crate::parts::{Answer, Budget, Sync};
use crate::timer::Stored;
use state::{CLAIMS, LANES, NODES, TIMERS};
use stateright::{Model, Property};
use std::sync::Arc;
use strum::VariantArray as _;

/// The model.
#[derive(Clone, Debug)]
pub struct Postgres {
    /// Whether a commit waits for the standby.
    pub sync: Sync,
    /// The checks that are left out.
    pub faults: Vec<Fault>,
    /// The number of timers: 1 or 2.
    pub timers: usize,
    /// The lane of each timer.
    pub lanes: [Lane; TIMERS],
    /// How often something goes wrong.
    pub budget: Budget,
    /// Whether nodes look although they own no shard.
    pub has_idle_looks: bool,
    /// The properties that are not checked.
    pub unchecked: &'static [&'static str],
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
            lanes: [0; TIMERS],
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

    /// Gives each timer a lane of its own.
    #[must_use]
    pub fn with_lanes(self) -> Self {
        Self { lanes: [0, 1], ..self }
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

    /// Returns whether a mark of some node has passed the timer.
    fn is_passed(&self, state: &State, timer: Timer) -> bool {
        let lane = self.lanes.get(timer).copied().unwrap_or_default();
        let passed = |node: &Node| node.mark.passed.get(lane).copied().unwrap_or_default();
        state.nodes.iter().any(|node| usize::from(passed(node)) > timer)
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
            target: 0,
            next: 1,
            left: self.budget,
            lost_leases: 0,
            late: 0,
            broken: None,
        };
        // Nobody cancels a timer, or somebody does.
        let mut states = vec![State { canceller: Caller::Answered(Answer::GivenUp), ..first }];
        for target in 0..self.timers {
            states.push(State { target, ..first });
        }
        states
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
                    actions.extend([Action::Own(number), Action::Look(number, None)]);
                    actions.extend((0..LANES).map(|lane| Action::Look(number, Some(lane))));
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
            Property::sometimes(ABOVE, |model: &Self, state: &State| {
                let is_open = |(timer, caller): (usize, &Caller)| {
                    matches!(caller, Caller::Open(..)) && model.is_passed(state, timer)
                };
                state.creators.iter().enumerate().any(is_open)
            }),
        ];
        properties.into_iter().filter(|property| !self.unchecked.contains(&property.name)).collect()
    }
}
