//! Two clients use the same id and the same key, and each script names the keys of one shard. A client acts between any
//! two steps of the other client, or stops at any step. The outcome must be the same as if the clients had acted one
//! after the other.

use super::acting::{Act, Acting};
use super::plain;
use crate::RedisStore;
use crate::layout::Layout;
use crate::link::Link;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Failure, Token};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};
use tourbillon_fault::Server;

pub(super) const SHARDS: u16 = 4;
pub(super) const DAY: Duration = Duration::from_secs(86_400);
const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
const TOKEN: Token = Token { incarnation: 5, claim: 1 };
const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };

/// The ids and keys of one case. All belong to different shards, except that the first id and the first key may share a
/// shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) id: TimerId,
    pub(super) other: TimerId,
    pub(super) key: &'static str,
    other_key: &'static str,
}

/// Chooses ids and keys that belong to different shards. If `is_home` is true, the first id is in the shard of the
/// first key.
pub(super) fn names(is_home: bool) -> Names {
    // The name of the deployment makes no difference to the shards.
    let layout = Layout::new("d", SHARDS);
    let (key, other_key) = (
        "a",
        ["b", "c", "d", "e"]
            .into_iter()
            .find(|key| layout.shard_of_key("", key) != layout.shard_of_key("", "a"))
            .unwrap(),
    );
    let homes = [layout.shard_of_key("", key), layout.shard_of_key("", other_key)];
    let id = |fits: &dyn Fn(u16) -> bool| {
        (1..).map(TimerId::from_u128).find(|id| fits(layout.shard_of_id(*id))).unwrap()
    };
    let mine = id(&|shard| if is_home { shard == homes[0] } else { !homes.contains(&shard) });
    let other = id(&|shard| !homes.contains(&shard) && shard != layout.shard_of_id(mine));
    Names { id: mine, other, key, other_key }
}

/// The state of a case's timer before the two clients act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// The timer is stored with the first key.
    Stored,
    /// The timer is leased.
    Leased,
    /// The timer has ended.
    Ended,
    /// The creation of the timer has stopped after it wrote the redirect and before its commit.
    Noted,
    /// As [`Noted`](Self::Noted), but another creation has then made the redirect void and stopped.
    Void,
}

const BEFORE: [Before; 6] =
    [Before::Nothing, Before::Stored, Before::Leased, Before::Ended, Before::Noted, Before::Void];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Place,
    PlaceOtherKey,
    PlaceWithoutKey,
    PlaceKeep,
    ReplaceByOther,
    CancelId,
    CancelKey,
    Ack,
    Die,
    Release,
    Fire,
    Replay,
}

const STEPS: [Step; 12] = [
    Step::Place,
    Step::PlaceOtherKey,
    Step::PlaceWithoutKey,
    Step::PlaceKeep,
    Step::ReplaceByOther,
    Step::CancelId,
    Step::CancelKey,
    Step::Ack,
    Step::Die,
    Step::Release,
    Step::Fire,
    Step::Replay,
];

/// One case of the test.
#[derive(Clone, Copy, Debug)]
struct Case {
    names: Names,
    before: Before,
    is_chosen: bool,
}

impl Case {
    fn timer(&self, id: TimerId, key: Option<&str>) -> Timer {
        let due = UtcMillis::from_millis(1_000);
        Timer { key: key.map(Into::into), has_chosen_id: self.is_chosen, ..Timer::new(id, "kind", due) }
    }

    fn op(&self, step: Step) -> Op {
        let Names { id, other, key, other_key } = self.names;
        let place = |timer, mode| Op::Place(Box::new(timer), mode);
        let of_key = Address::Key(KeyOf { namespace: "".into(), key: key.into() });
        let failure = Failure { is_final: true, ..Failure::default() };
        match step {
            Step::Place => place(self.timer(id, Some(key)), IfPresent::Reject),
            Step::PlaceOtherKey => place(self.timer(id, Some(other_key)), IfPresent::Reject),
            Step::PlaceWithoutKey => place(self.timer(id, None), IfPresent::Reject),
            Step::PlaceKeep => place(self.timer(other, Some(key)), IfPresent::Keep),
            Step::ReplaceByOther => place(self.timer(other, Some(key)), IfPresent::Replace),
            Step::CancelId => Op::Cancel(id.into(), None),
            Step::CancelKey => Op::Cancel(of_key, None),
            Step::Ack => Op::Ack(id, TOKEN),
            Step::Die => Op::Fail(id, TOKEN, failure),
            Step::Release => Op::Release(id, TOKEN),
            Step::Fire => Op::Fire(of_key),
            Step::Replay => Op::Replay(id),
        }
    }
}

/// A deployment with two clients. The link of the first client can disturb calls.
struct World {
    one: RedisStore,
    link: Arc<Acting>,
    other: Arc<RedisStore>,
}

struct Bench {
    plain: plain::Plain,
    number: AtomicU32,
    _server: Server,
}

pub(super) fn now<T>(answer: impl Future<Output = T>) -> T {
    pollster::block_on(answer)
}

fn apply(store: &RedisStore, op: Op) -> Result<String, StoreErrorKind> {
    let outcome =
        now(store.apply(vec![op], Durability::PowerLoss)).map_err(|error: StoreError| error.kind())?;
    Ok(format!("{outcome:?}"))
}

impl Bench {
    fn start() -> Option<Self> {
        let server = Server::start(&[])?;
        Some(Self { plain: plain::Plain::to(server.port()), number: AtomicU32::new(0), _server: server })
    }

    fn world(&self, case: &Case, is_split: bool) -> World {
        let name = format!("pair{}", self.number.fetch_add(1, Ordering::Relaxed));
        let clock = ManualClock::new();
        clock.advance(DAY);
        let open = |link: Arc<dyn Link>| {
            let builder = RedisStore::builder(&*name).shards(SHARDS).few_key_sets();
            let builder = builder.poll(None).on_clock(clock.clone());
            now(if is_split { builder.split() } else { builder }.open_on(link)).unwrap()
        };
        let stepping = || Acting::new(self.plain.session());
        let link = stepping();
        let world =
            World { one: open(Arc::clone(&link) as _), link, other: Arc::new(open(self.plain.session())) };
        let Names { id, key, .. } = case.names;
        match case.before {
            Before::Nothing => {}
            Before::Stored | Before::Leased | Before::Ended => {
                let _created = apply(&world.one, case.op(Step::Place)).unwrap();
                if case.before == Before::Leased {
                    let claimed = now(world.one.claim(BY, TOKEN.claim, ALL, None)).unwrap();
                    assert_eq!(claimed.leased[0].timer.key.as_deref(), Some(key));
                }
                if case.before == Before::Ended {
                    let _ended = apply(&world.one, Op::Cancel(id.into(), None)).unwrap();
                }
            }
            Before::Noted | Before::Void if is_split => {
                let (gone, stopped) = (stepping(), stepping());
                let (first, second) = (open(Arc::clone(&gone) as _), open(Arc::clone(&stopped) as _));
                gone.at("", 2, Act::Stop);
                assert!(apply(&first, case.op(Step::PlaceOtherKey)).is_err());
                if case.before == Before::Void {
                    // The first call of this client meets the redirect, and the second makes it void.
                    stopped.at("", 2, Act::StopAfter);
                    assert!(apply(&second, case.op(Step::Place)).is_err());
                }
            }
            Before::Noted | Before::Void => {}
        }
        world
    }

    /// Runs operations one after the other on a deployment in which a script may name all shards. Returns the outcomes
    /// and the final state.
    fn serial(&self, case: &Case, ops: &[Step]) -> (Vec<Result<String, StoreErrorKind>>, String) {
        let world = self.world(case, false);
        let outcomes = ops.iter().map(|step| apply(&world.one, case.op(*step))).collect();
        (outcomes, seen(case, &world.other))
    }
}

/// Returns a text of all visible data of a deployment, for comparisons. The text includes the outcome of a further
/// creation with the case's id.
#[track_caller]
fn seen(case: &Case, store: &RedisStore) -> String {
    assert_eq!(now(store.check()).unwrap(), [], "{case:?}");
    let mut timers = Vec::new();
    now(store.export(Box::new(|timer| {
        timers.push(timer.clone());
        true
    })))
    .unwrap();
    timers.sort_by_key(|timer| timer.id);
    let ids: BTreeSet<TimerId> = timers.iter().map(|timer| timer.id).collect();
    assert_eq!(ids.len(), timers.len(), "an id is stored twice: {case:?} {timers:#?}");
    for timer in &timers {
        assert_eq!(now(store.get(timer.id.into())).unwrap().as_ref(), Some(timer), "{case:?}: found by id");
    }
    let counts = now(store.counts()).unwrap();
    let again = apply(store, case.op(Step::PlaceWithoutKey));
    format!("{timers:?} {counts:?} {again:?}")
}

/// Returns all cases: each state of the timer at the start, with each kind of id.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for before in BEFORE {
        for (is_home, is_chosen) in [(false, false), (false, true), (true, true)] {
            cases.push(Case { names: names(is_home), before, is_chosen });
        }
    }
    cases
}

/// Returns the cases in which the timer starts in a state of `before`, and its id is in a shard other than that of its
/// key.
fn cases_of(before: &[Before]) -> Vec<Case> {
    before.iter().map(|before| Case { names: names(false), before: *before, is_chosen: true }).collect()
}

/// Returns the operations to try in a case. Only a leased timer gets operations that end a delivery.
fn of(case: Case) -> impl Iterator<Item = Step> {
    let is_end = |step: &Step| matches!(step, Step::Ack | Step::Die | Step::Release);
    STEPS.into_iter().filter(move |step| case.before == Before::Leased || !is_end(step))
}

fn try_pairs(cases: Vec<Case>) -> Option<u32> {
    let (bench, mut tried) = (Bench::start()?, 0);
    for case in cases {
        let pairs: Vec<(Step, Step)> =
            of(case).flat_map(|first| of(case).map(move |second| (first, second))).collect();
        let serial: HashMap<_, _> =
            pairs.iter().map(|pair| (*pair, bench.serial(&case, &[pair.0, pair.1]))).collect();
        for (first, second) in pairs {
            let mut reverse = serial[&(second, first)].clone();
            reverse.0.reverse();
            let ways = [serial[&(first, second)].clone(), reverse];
            for nth in 1.. {
                let world = bench.world(&case, true);
                let outcome = Arc::new(Mutex::new(None));
                let (other, op, result) = (Arc::clone(&world.other), case.op(second), Arc::clone(&outcome));
                let act = move || *result.lock().unwrap() = Some(apply(&other, op));
                world.link.at("", nth, Act::First(Box::new(act)));
                let one = apply(&world.one, case.op(first));
                let Some(other) = outcome.lock().unwrap().take() else { break };
                let found = (vec![one, other], seen(&case, &world.other));
                assert!(
                    ways.contains(&found),
                    "{case:?}: {second:?} before call {nth} of {first:?}\n{found:#?}\nis none of\n{ways:#?}"
                );
                tried += 1;
            }
        }
    }
    Some(tried)
}

#[test]
fn two_clients_have_one_of_the_outcomes_that_they_have_one_after_the_other() {
    let Some(tried) = try_pairs(cases_of(&[Before::Nothing, Before::Stored])) else { return };
    assert!(tried > 200, "only {tried} ways were tried");
}

#[test]
#[ignore = "minutes; the smaller form above runs always, and CONTRIBUTING.md has the command"]
fn two_clients_have_such_an_outcome_whatever_was_there_before() {
    let Some(tried) = try_pairs(cases()) else { return };
    assert!(tried > 3_000, "only {tried} ways were tried");
}

/// Stops one client before or after each of its calls, or loses a reply, and then lets another client act. Returns the
/// number of tries, or `None` if no server can be started.
fn try_stops(cases: Vec<Case>) -> Option<u32> {
    let (bench, mut tried) = (Bench::start()?, 0);
    for case in cases {
        for first in of(case) {
            let seconds = [Step::Place, Step::PlaceOtherKey, Step::CancelId, Step::ReplaceByOther, first];
            for second in seconds {
                let without = bench.serial(&case, &[second]);
                let (outcomes, with) = bench.serial(&case, &[first, second]);
                let with = (vec![outcomes[1].clone()], with);
                for nth in 1.. {
                    let mut is_over = false;
                    for act in [Act::Stop, Act::StopAfter, Act::Lose] {
                        let world = bench.world(&case, true);
                        world.link.at("", nth, act);
                        let _answer = apply(&world.one, case.op(first));
                        is_over |= world.link.is_waiting();
                        let found = (vec![apply(&world.other, case.op(second))], seen(&case, &world.other));
                        assert!(
                            found == without || found == with,
                            "{case:?}: {second:?} after {first:?} has lost call {nth}\n{found:#?}\nis none of\n\
                             {without:#?}\n{with:#?}"
                        );
                        tried += 1;
                    }
                    if is_over {
                        break;
                    }
                }
            }
        }
    }
    Some(tried)
}

#[test]
fn a_client_that_stops_between_two_steps_has_done_all_or_nothing() {
    let Some(tried) = try_stops(cases_of(&[Before::Noted])) else { return };
    assert!(tried > 200, "only {tried} ways were tried");
}

#[test]
#[ignore = "minutes; the smaller form above runs always, and CONTRIBUTING.md has the command"]
fn a_client_that_stops_has_done_all_or_nothing_whatever_was_there_before() {
    let Some(tried) = try_stops(cases()) else { return };
    assert!(tried > 3_000, "only {tried} ways were tried");
}

#[test]
fn many_clients_of_one_id_store_no_timer_twice() {
    let Some(bench) = Bench::start() else { return };
    let case = Case { names: names(false), before: Before::Nothing, is_chosen: false };
    let world = bench.world(&case, true);
    std::thread::scope(|scope| {
        for thread in 0..6_usize {
            let store = &world.other;
            scope.spawn(move || {
                for round in 0..60_usize {
                    // Each thread has a different order, so that all operations meet.
                    let step = STEPS[(round * (thread + 1) + thread) % STEPS.len()];
                    // An operation fails without an effect if other clients change its timers first in each of its
                    // attempts.
                    let _outcome = apply(store, case.op(step));
                }
            });
        }
    });
    let _seen = seen(&case, &world.other);
}
