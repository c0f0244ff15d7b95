//! Defines a world of the model. It has a store in memory and on the disk, and the transactions that the disk still
//! lacks. It also has a worker, and an observer's knowledge of deliveries.

use std::collections::{BTreeMap, VecDeque};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::policy::Guarantee;
use tourbillon_durable::state::Withdrawal;

/// A stored timer, with only the fields that change in the model of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mini {
    pub(crate) id: u128,
    pub(crate) due: u8,
    pub(crate) scheduled: u8,
    pub(crate) deliveries: u8,
    pub(crate) failures: u8,
    pub(crate) state: MiniState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MiniState {
    Pending,
    Leased { token: u8, until: u8, withdrawn: Option<Withdrawal> },
    Dead,
}

pub(crate) type Store = Vec<Mini>;

/// The answer that the user or the worker gets once a transaction is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    Nothing,
    Placed(u128),
    Cancelled(u128),
    /// The timer was cancelled after its delivery had begun. The fields are the timer's id and the number of the claim
    /// that delivers the timer.
    InFlight(u128, u8),
    /// A new timer has replaced the timer that had the key. `old` is `None` if no timer had the key. Otherwise `old`
    /// has the old timer's id, and the number of the claim that delivers the old timer.
    Replaced {
        new: u128,
        old: Option<(u128, Option<u8>)>,
    },
    Acked(u128),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) timer: Mini,
    pub(crate) token: u8,
    /// The number of syncs of the disk until the worker's claim is durable.
    pub(crate) waits: u8,
    /// Whether the store has removed the timer, which is delivered at most once. `waits` then counts the syncs until
    /// the removal is durable.
    pub(crate) removed: bool,
    /// The moment at which the lease of the worker's claim ends.
    pub(crate) until: u8,
    pub(crate) begun: bool,
}

/// The facts that the observer of the model knows about a timer and its deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) due: u8,
    pub(crate) scheduled: u8,
    pub(crate) accepted: bool,
    /// Whether the user got the answer to a cancel or a replacement of the timer. No delivery may start afterwards.
    pub(crate) cancelled: bool,
    /// The only claim whose delivery may still start, after the timer was withdrawn during its lease. `None` without
    /// such a withdrawal.
    pub(crate) last: Option<u8>,
    pub(crate) acked: bool,
    pub(crate) begun: u8,
    pub(crate) succeeded: bool,
    pub(crate) dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u8,
    pub(crate) tokens: u8,
    pub(crate) crashes: u8,
    pub(crate) failures: u8,
    pub(crate) user: u8,
    pub(crate) fresh: u8,
    pub(crate) expired: bool,
    /// The store of the model in memory, as the next transaction sees it.
    pub(crate) store: Store,
    /// The store of the model on the disk, as a crash leaves it.
    pub(crate) disk: Store,
    /// The transactions that the disk does not have yet: the store after each transaction, and the transaction's
    /// answer.
    pub(crate) log: VecDeque<(Store, Said)>,
    pub(crate) worker: Option<Held>,
    pub(crate) seen: BTreeMap<u128, Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    User,
    Sync,
    Claim,
    /// The worker has a timer removed that is delivered at most once.
    Remove,
    Begin,
    Succeed,
    Fail,
    Release,
    Reap,
    Crash,
}

pub(crate) const STEPS: [Step; 11] = [
    Step::Tick,
    Step::User,
    Step::Sync,
    Step::Claim,
    Step::Remove,
    Step::Begin,
    Step::Succeed,
    Step::Fail,
    Step::Release,
    Step::Reap,
    Step::Crash,
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum UserOp {
    Place(u128, u8),
    /// Places a new timer, with this id and due moment. The new timer replaces the timer that has the key.
    Replace(u128, u8),
    Cancel(u128),
}

/// The user's operations in a search of the model, and the bounds of the search.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) user: Vec<UserOp>,
    pub(crate) guarantee: Guarantee,
    /// The last instant of the series. The series has an occurrence at every second moment. `None` for a timer without
    /// a series.
    pub(crate) series_until: Option<u8>,
    pub(crate) crashes: u8,
    pub(crate) failures: u8,
    pub(crate) last_tick: u8,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            user: vec![UserOp::Place(1, 1)],
            guarantee: Guarantee::AtLeastOnce,
            series_until: None,
            crashes: 2,
            failures: 1,
            last_tick: 3,
        }
    }
}

/// A fault that is planted in the store or the worker of the model. The search must find the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Nothing,
    DeleteBeforeDelivery,
    NextInATransactionOfItsOwn,
    CancelForgetsTheLease,
    RestartForgetsTheWithdrawal,
    AnswerBeforeDurable,
    OnceBeginsBeforeDurable,
    RemovalIgnoresTheWithdrawal,
    ClaimIgnoresTheDueMoment,
    NextFromTheEndOfTheDelivery,
    FreshIds,
    ReplaceKeepsTheOld,
    BeginsAfterTheLease,
}

pub(crate) const LEASE: u8 = 2;
pub(crate) const PERIOD: u8 = 2;

pub(crate) fn at(moment: u8) -> UtcMillis {
    UtcMillis::from_millis(moment.into())
}

pub(crate) fn back(moment: UtcMillis) -> u8 {
    moment.as_millis().try_into().unwrap()
}

/// Returns the number of the claim that delivers a timer. `None` if no claim delivers the timer.
pub(crate) fn claim_of(timer: &Mini) -> Option<u8> {
    match timer.state {
        MiniState::Leased { token, .. } => Some(token),
        _ => None,
    }
}
