//! The ways by which clients reach a store: through a Rust library, by HTTP requests to nodes, or by SQL.

use super::node::{KIND, payload};
use super::target::Target;
use crate::history::{Answer, Call, Place};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, IfPresent, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};
use tourbillon_redis::RedisStore;

/// How long [`open`] repeats its attempts.
const OPENING: Duration = Duration::from_secs(120);

/// An operation that a client wants to make, and the plan for the timer's deliveries.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) call: Call,
    /// How often the timer's delivery fails before it succeeds.
    pub(super) fails: u32,
    /// The number of failed deliveries after which the timer is dead: the store keeps it, and delivers it no more.
    pub(super) attempts: u32,
    /// Whether the client has sent the operation before, and has got no definite answer.
    pub(super) is_again: bool,
}

/// The interface through which a client of a run calls the store: through a Rust library ([`Library`]), by HTTP
/// requests to nodes, or by SQL.
pub(super) trait Door: Send {
    /// Returns the present moment of the store's clock.
    fn now(&mut self) -> UtcMillis;

    /// Carries out operations in one call, and returns the answer to each.
    fn send(&mut self, wanted: &[Wanted]) -> Vec<Answer>;

    /// Returns whether a client may repeat an operation that may have taken effect. A client may repeat a creation only
    /// if it has chosen the timer's id, since the store remembers such an id after the end of the timer.
    fn may_repeat(&self, _wanted: &Wanted) -> bool {
        true
    }

    /// Returns whether the store has closed for good, for example because its data is lost.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Blocks the thread until a store's future is ready. The future must not need a runtime.
///
/// # Errors
///
/// Fails with the error of the future.
pub fn ask<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    pollster::block_on(answer)
}

/// Opens a store for a client. Tries again while the error is transient, for up to two minutes.
///
/// # Errors
///
/// Fails if the store cannot be opened: at once with a lasting error, or after two minutes with a transient error.
pub fn open(target: &Target, deployment: &str, shards: u16) -> Result<RedisStore, StoreError> {
    let begun = Instant::now();
    loop {
        let builder = RedisStore::builder(deployment).shards(shards).poll(None).unchecked();
        match ask(builder.open(&target.connect())) {
            Err(error) if error.is_transient() && begun.elapsed() < OPENING => {
                thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

/// A client that calls the library `tourbillon_redis`, and so reaches the Redis servers without a node in between. Each
/// client has its own [`RedisStore`]. The stores of all clients belong to the same deployment.
pub(super) struct Library {
    store: RedisStore,
    is_closed: bool,
}

impl Library {
    pub(super) fn new(store: RedisStore) -> Self {
        Self { store, is_closed: false }
    }

    fn place(&self, place: &Place, wanted: &Wanted) -> Op {
        let mut timer = Timer::new(TimerId::from_u128(place.id), KIND, UtcMillis::from_millis(place.due));
        let guarantee = if place.is_once { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce };
        let attempts = wanted.attempts;
        timer.policy = Policy { attempts, guarantee, deliveries: 1_000, ..Policy::default() };
        timer.key = place.key.clone();
        timer.has_chosen_id = true;
        timer.created = self.store.now();
        timer.payload = Payload(payload(wanted.fails, place.series.map(|_| place.id)).into());
        timer.series = place.series.map(|(every, last)| Series {
            id: timer.id,
            plan: Plan::Every(every),
            missed: MissedInstants::All,
            end: Some(UtcMillis::from_millis(last)),
            paused: false,
        });
        let if_present = if place.replaces { IfPresent::Replace } else { IfPresent::Reject };
        Op::Place(Box::new(timer), if_present)
    }
}

/// Converts a store's outcome to the answer that the history records.
fn answer_of(outcome: &Outcome) -> Answer {
    match outcome {
        Outcome::Created(_) => Answer::Created,
        Outcome::Repeated(_) => Answer::Repeated,
        Outcome::Replaced { old, was, .. } => Answer::Replaced(old.as_u128(), *was == Phase::Leased),
        Outcome::KeyExists { holder, .. } => Answer::KeyExists(holder.as_u128()),
        Outcome::Cancelled(_) => Answer::Cancelled,
        Outcome::InFlight(_) => Answer::InFlight,
        Outcome::Changed(_) => Answer::Moved,
        Outcome::NotFound => Answer::NotFound,
        Outcome::Refused(_) => Answer::Leased,
        other => panic!("an outcome of another operation: {other:?}"),
    }
}

/// Returns the answer that the history records for each operation of a failed call. The call had `count` operations,
/// and failed with `error`.
fn answer_to(error: &StoreError, count: usize) -> Answer {
    // If the call had several operations, the first may have taken effect, whatever the error of a later operation
    // says.
    if count > 1 || error.kind() == StoreErrorKind::Unknown { Answer::Unknown } else { Answer::Failed }
}

impl Door for Library {
    fn now(&mut self) -> UtcMillis {
        self.store.now()
    }

    fn send(&mut self, wanted: &[Wanted]) -> Vec<Answer> {
        let op = |wanted: &Wanted| {
            let address = |id| Address::Id(TimerId::from_u128(id));
            match &wanted.call {
                Call::Place(place) => self.place(place, wanted),
                Call::Cancel(id) => Op::Cancel(address(*id), None),
                Call::Move(id, due) => Op::Move(address(*id), UtcMillis::from_millis(*due)),
            }
        };
        match ask(self.store.apply(wanted.iter().map(op).collect(), Durability::PowerLoss)) {
            Ok(outcomes) => outcomes.iter().map(answer_of).collect(),
            Err(error) => {
                self.is_closed |= error.kind() == StoreErrorKind::Closed;
                vec![answer_to(&error, wanted.len()); wanted.len()]
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
