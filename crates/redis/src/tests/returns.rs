//! Tests put-backs of at-most-once timers, with lost answers and other clients that act between any two steps. No timer
//! may be delivered twice, or lost after its put-back was answered.

use super::PAST;
use super::faults::{self, Two, start};
use super::pairs::{Act, DAY, Names, SHARDS, Stepping, names, now};
use super::plain::Plain;
use crate::RedisStore;
use crate::link::Link;
use crate::operation::{AGAIN, KEPT};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Refusal, Token};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Server;

const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };
const LEASE: Duration = Duration::from_secs(60);

/// The actions of other clients during a put-back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Nothing,
    /// Another client claims the timer, which ends it.
    Claim,
    /// Another client claims the timer. Then another timer takes the key of the claimed timer.
    ClaimAndTakeKey,
    /// Another timer has the key, and gives it up.
    FreeKey,
    /// Another timer has the key and gives it up, and then another client claims the timer.
    FreeKeyAndClaim,
}

/// The moment at which the server receives the delayed request of the first attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrival {
    BeforeOthers,
    AfterOthers,
    AtTheEnd,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    is_split: bool,
    is_home: bool,
    has_key: bool,
    is_chosen: bool,
    meanwhile: Meanwhile,
    /// The moment at which the server receives the delayed request of the first attempt, or `None` if the request
    /// arrives at once and its reply is lost.
    arrival: Option<Arrival>,
}

/// A deployment in which a process has claimed the timer to put back.
struct World {
    one: RedisStore,
    link: Arc<Stepping>,
    other: RedisStore,
    clock: ManualClock,
    names: Names,
    has_key: bool,
    back: Op,
    claims: AtomicU64,
    /// The number of times that the other process has claimed the timer.
    delivered: AtomicU32,
}

fn apply(store: &RedisStore, op: Op) -> Result<Outcome, StoreErrorKind> {
    let outcomes = now(store.apply(vec![op], Durability::PowerLoss));
    outcomes.map(|mut outcomes| outcomes.remove(0)).map_err(|error: StoreError| error.kind())
}

impl World {
    fn new(plain: &Plain, number: u32, case: &Case) -> Arc<Self> {
        let (clock, names) = (ManualClock::new(), names(case.is_home));
        clock.advance(DAY);
        let name = format!("return{number}");
        let open = |link: Arc<dyn Link>| {
            let builder = RedisStore::builder(&*name).shards(SHARDS).few_key_sets();
            let builder = builder.poll(None).on_clock(clock.clone());
            now(if case.is_split { builder.split() } else { builder }.open_on(link)).unwrap()
        };
        let link = Stepping::new(plain.session());
        let (one, other) = (open(Arc::clone(&link) as _), open(plain.session()));
        let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
        let key = case.has_key.then(|| names.key.into());
        let timer = Timer {
            key,
            policy,
            has_chosen_id: case.is_chosen,
            ..Timer::new(names.id, "kind", UtcMillis::from_millis(1_000))
        };
        assert_eq!(
            apply(&one, Op::Place(Box::new(timer.clone()), IfPresent::Reject)),
            Ok(Outcome::Created(names.id))
        );
        let by = Claimant { incarnation: 5, lease: LEASE };
        let claimed = now(one.claim(by, 1, ALL, None)).unwrap().leased;
        assert_eq!(claimed.len(), 1);
        now(one.leave()).unwrap();
        let back = Op::Return(Box::new(timer), claimed[0].token);
        let (claims, delivered) = (AtomicU64::new(0), AtomicU32::new(0));
        let has_key = case.has_key;
        let world = Self { one, link, other, clock, names, has_key, back, claims, delivered };
        if matches!(case.meanwhile, Meanwhile::FreeKey | Meanwhile::FreeKeyAndClaim) {
            world.take_key();
        }
        Arc::new(world)
    }

    fn take_key(&self) {
        if self.has_key {
            let far = self.other.now() + 30 * DAY;
            let taker =
                Timer { key: Some(self.names.key.into()), ..Timer::new(self.names.other, "kind", far) };
            let _taken = apply(&self.other, Op::Place(Box::new(taker), IfPresent::Reject)).unwrap();
        }
    }

    /// Claims all due timers as another process would, and counts the deliveries.
    fn claim(&self) {
        let by = Claimant { incarnation: 6, lease: LEASE };
        let claim = self.claims.fetch_add(1, Ordering::Relaxed);
        for leased in now(self.other.claim(by, claim, ALL, None)).unwrap().leased {
            assert_eq!(leased.timer.id, self.names.id);
            self.delivered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn do_meanwhile(&self, act: Meanwhile) {
        match act {
            Meanwhile::Nothing => {}
            Meanwhile::Claim => self.claim(),
            Meanwhile::ClaimAndTakeKey => {
                self.claim();
                self.take_key();
            }
            Meanwhile::FreeKey | Meanwhile::FreeKeyAndClaim => {
                let _cancelled = apply(&self.other, Op::Cancel(self.names.other.into(), None)).unwrap();
                if act == Meanwhile::FreeKeyAndClaim {
                    self.claim();
                }
            }
        }
    }

    fn arrive(&self) {
        self.link.arrive(self.other.now().as_millis());
    }

    fn delivered(&self) -> u32 {
        self.delivered.load(Ordering::Relaxed)
    }
}

/// Makes a put-back in two attempts. Call `first` of the first attempt gets no reply, and other clients act before call
/// `others` of the second attempt. Returns for each attempt whether it has a call with that number.
fn try_twice(plain: &Plain, number: u32, case: Case, first: u32, others: u32) -> (bool, bool) {
    let world = World::new(plain, number, &case);
    world.link.at(first, if case.arrival.is_some() { Act::Delay } else { Act::Lose });
    let answer = apply(&world.one, world.back.clone());
    if world.link.is_waiting() {
        return (false, false);
    }
    let description = || {
        format!("{case:?}: call {first} of the first attempt, others before call {others} of the second one")
    };
    assert!(
        matches!(answer, Err(StoreErrorKind::Unknown) | Ok(Outcome::Created(_) | Outcome::Repeated(_))),
        "{}: {answer:?}",
        description()
    );
    let was_known = answer.is_ok();
    let act = {
        let world = Arc::clone(&world);
        move || {
            if case.arrival == Some(Arrival::BeforeOthers) {
                world.arrive();
            }
            world.do_meanwhile(case.meanwhile);
            if case.arrival == Some(Arrival::AfterOthers) {
                world.arrive();
            }
        }
    };
    let is_reached = if others == 0 {
        act();
        true
    } else {
        let act = Mutex::new(Some(act));
        world.link.at(others, Act::First(Box::new(move || act.lock().unwrap().take().unwrap()())));
        true
    };
    if !was_known {
        let answer = apply(&world.one, world.back.clone());
        let id = world.names.id;
        assert!(
            matches!(&answer, Ok(Outcome::Created(stored) | Outcome::Repeated(stored)) if *stored == id),
            "{}: {answer:?}",
            description()
        );
    }
    let is_reached = is_reached && !(others > 0 && world.link.is_waiting());
    world.arrive();
    world.claim();
    world.clock.advance(2 * LEASE);
    let _reaped = now(world.other.reap(100)).unwrap();
    world.claim();
    assert_eq!(world.delivered(), 1, "{}", description());
    assert_eq!(now(world.other.check()).unwrap(), [], "{}", description());
    assert!(
        world.one.batches.put_backs.attempts.since((world.names.id, token(&world.back))).is_none(),
        "{}",
        description()
    );
    (true, is_reached)
}

fn token(back: &Op) -> Token {
    let Op::Return(_, token) = back else { panic!("{back:?}") };
    *token
}

fn try_all(kinds: &[(bool, bool, bool, bool)], least: u32) {
    let Some(server) = Server::start(&[]) else { return };
    let plain = Plain::to(server.port());
    let mut number = 0;
    for (is_split, is_home, has_key, is_chosen) in kinds.iter().copied() {
        for meanwhile in [
            Meanwhile::Nothing,
            Meanwhile::Claim,
            Meanwhile::ClaimAndTakeKey,
            Meanwhile::FreeKey,
            Meanwhile::FreeKeyAndClaim,
        ] {
            let arrivals = [Arrival::BeforeOthers, Arrival::AfterOthers, Arrival::AtTheEnd];
            for arrival in arrivals.into_iter().map(Some).chain([None]) {
                let case = Case { is_split, is_home, has_key, is_chosen, meanwhile, arrival };
                for first in 1.. {
                    let mut is_first = false;
                    for others in 0.. {
                        number += 1;
                        let (is_there, is_reached) = try_twice(&plain, number, case, first, others);
                        is_first |= is_there;
                        if !is_there || !is_reached {
                            break;
                        }
                    }
                    if !is_first {
                        break;
                    }
                }
            }
        }
    }
    assert!(number > least, "only {number} ways were tried");
}

/// Tests put-backs on one server, and in a cluster with the timer's id in a shard other than that of its key.
#[test]
fn a_timer_that_is_stored_again_and_again_is_delivered_once() {
    try_all(&[(false, false, true, true), (true, false, true, true)], 300);
}

#[test]
#[ignore = "a minute; the smaller form above runs always, and CONTRIBUTING.md has the command"]
fn a_timer_of_any_kind_that_is_stored_again_and_again_is_delivered_once() {
    let two = [false, true];
    let kinds = two
        .map(|is_split| two.map(|is_home| two.map(|key| two.map(|chosen| (is_split, is_home, key, chosen)))));
    try_all(kinds.as_flattened().as_flattened().as_flattened(), 1_000);
}

const PLAIN: Case = Case {
    is_split: false,
    is_home: false,
    has_key: true,
    is_chosen: true,
    meanwhile: Meanwhile::Nothing,
    arrival: None,
};

/// Returns the number of the call that commits a put-back, if no other client interferes.
const fn commit_of(case: &Case) -> u32 {
    // In a cluster, the first call is the reservation.
    if case.is_split { 2 } else { 1 }
}

#[test]
fn a_return_whose_time_is_over_has_no_effect() {
    let Some(server) = Server::start(&[]) else { return };
    let plain = Plain::to(server.port());
    for is_split in [false, true] {
        let case = Case { is_split, ..PLAIN };
        // The first request arrives only after its time is over.
        let world = World::new(&plain, u32::from(is_split), &case);
        world.link.at(commit_of(&case), Act::Delay);
        assert_eq!(apply(&world.one, world.back.clone()), Err(StoreErrorKind::Unknown));
        world.clock.advance(AGAIN);
        world.arrive();
        world.claim();
        assert_eq!(world.delivered(), 0, "{case:?}: a request that is too late");
        // The request could have arrived in time, and the timer could have been delivered.
        assert_eq!(apply(&world.one, world.back.clone()), Ok(Outcome::Refused(Refusal::Stale)), "{case:?}");
        world.claim();
        assert_eq!(world.delivered(), 0, "{case:?}: a repetition that is too late");
    }
}

#[test]
fn a_mark_stays_for_as_long_as_a_return_can_have_an_effect() {
    let Some(server) = Server::start(&[]) else { return };
    let plain = Plain::to(server.port());
    let ahead = AGAIN + KEPT - Duration::from_millis(1);
    // The cases are: late but in time; after the greatest step of the clock by a failover; after the mark is gone.
    let ends = [(ahead, true), (AGAIN + KEPT, false), (2 * (AGAIN + KEPT), false)];
    for (number, (after, is_known)) in (0..).zip(ends) {
        for is_split in [false, true] {
            let case = Case { is_split, ..PLAIN };
            let world = World::new(&plain, 2 * number + u32::from(is_split), &case);
            world.link.at(commit_of(&case), Act::Lose);
            assert_eq!(apply(&world.one, world.back.clone()), Err(StoreErrorKind::Unknown));
            world.claim();
            assert_eq!(world.delivered(), 1);
            world.clock.advance(after);
            let wanted = match is_known {
                true => Outcome::Repeated(world.names.id),
                false => Outcome::Refused(Refusal::Stale),
            };
            assert_eq!(apply(&world.one, world.back.clone()), Ok(wanted), "{case:?} after {after:?}");
            world.claim();
            assert_eq!(world.delivered(), 1, "{case:?} after {after:?}");
        }
    }
}

/// Tests a batch whose second operation fails. The caller repeats both operations long after the first operation took
/// effect.
#[test]
fn a_return_in_a_batch_that_fails_has_one_effect() {
    let Some(server) = Server::start(&[]) else { return };
    let world = World::new(&Plain::to(server.port()), 0, &PLAIN);
    let batch = || vec![world.back.clone(), Op::Cancel(TimerId::from_u128(1 << 99).into(), None)];
    world.link.at(2, Act::Lose);
    let failed = now(world.one.apply(batch(), Durability::PowerLoss)).unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Unknown);
    world.claim();
    assert_eq!(world.delivered(), 1);
    world.clock.advance(AGAIN + KEPT);
    let outcomes = now(world.one.apply(batch(), Durability::PowerLoss)).unwrap();
    assert_eq!(outcomes, [Outcome::Refused(Refusal::Stale), Outcome::NotFound]);
    world.claim();
    assert_eq!(world.delivered(), 1);
}

/// Tests that attempts that surely had no effect do not count, so that a put-back succeeds after any time without the
/// server.
#[test]
fn a_return_that_has_not_reached_the_server_is_stored_whenever_it_does() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let clock = ManualClock::new();
    clock.advance(DAY);
    let builder = RedisStore::builder("d").shards(2).poll(None).on_clock(clock.clone());
    let limit = Duration::from_millis(300);
    let connect = crate::Connect::single(&server.url()).unwrap().patience(limit);
    let store = now(builder.open(&connect)).unwrap();
    let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    let timer = Timer { policy, ..Timer::new(TimerId::from_u128(7), "kind", UtcMillis::from_millis(1_000)) };
    let _created = apply(&store, Op::Place(Box::new(timer.clone()), IfPresent::Reject)).unwrap();
    let by = Claimant { incarnation: 5, lease: LEASE };
    let token = now(store.claim(by, 1, ALL, None)).unwrap().leased[0].token;
    server.kill();
    // This waits until the connection has noticed the server's end.
    tourbillon_fault::eventually("the server is away", || {
        now(store.counts()).is_err_and(|error| error.kind() != StoreErrorKind::Unknown)
    });
    let back = Op::Return(Box::new(timer.clone()), token);
    let failed = apply(&store, back.clone()).unwrap_err();
    assert!(!matches!(failed, StoreErrorKind::Unknown | StoreErrorKind::Closed), "{failed:?}");
    clock.advance(2 * (AGAIN + KEPT));
    server.restart();
    let mut outcome = None;
    tourbillon_fault::eventually("the server is back", || {
        outcome = apply(&store, back.clone()).ok();
        outcome.is_some()
    });
    assert_eq!(outcome, Some(Outcome::Created(timer.id)));
}

/// Tests a repeated creation on one server, which looks for the timer while another process claims the timer, and puts
/// the timer back before any of the creation's later calls.
#[test]
fn a_repeated_creation_leaves_the_redirect_of_a_timer_that_is_put_back() {
    for back_at in 4.. {
        let Some(Two { store, other, link, server: _server, .. }) = start(4) else { return };
        let names = names(false);
        let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
        let timer = Timer { key: Some(names.key.into()), policy, ..Timer::new(names.id, "kind", PAST) };
        let create = Op::Place(Box::new(timer.clone()), IfPresent::Reject);
        let by = Claimant { incarnation: 6, lease: LEASE };
        assert_eq!(now(other.claim(by, 1, ALL, None)).unwrap().leased, []);
        assert_eq!(apply(&store, create.clone()), Ok(Outcome::Created(names.id)));
        let token = Arc::<Mutex<Option<Token>>>::default();
        let claim = {
            let (other, token) = (Arc::clone(&other), Arc::clone(&token));
            move || *token.lock().unwrap() = Some(now(other.claim(by, 2, ALL, None)).unwrap().leased[0].token)
        };
        let put_back = {
            let other = Arc::clone(&other);
            move || {
                if let Some(token) = token.lock().unwrap().take() {
                    let stored = apply(&other, Op::Return(Box::new(timer), token));
                    assert!(matches!(stored, Ok(Outcome::Created(_) | Outcome::Repeated(_))), "{stored:?}");
                }
            }
        };
        // The first two calls are a commit and a read of the redirect. The third call reads the timer.
        link.at("records", 1, faults::Act::First(Box::new(claim)));
        let is_reached = Arc::new(AtomicBool::new(false));
        let (reached, early) = (Arc::clone(&is_reached), put_back.clone());
        let act = move || {
            reached.store(true, Ordering::Relaxed);
            early();
        };
        link.also_at("", back_at, faults::Act::First(Box::new(act)));
        let answer = apply(&store, create);
        assert!(matches!(answer, Ok(Outcome::Created(_) | Outcome::Repeated(_))), "{answer:?}");
        let was_reached = is_reached.load(Ordering::Relaxed);
        put_back();
        assert!(now(other.get(names.id.into())).unwrap().is_some(), "before call {back_at}: found by its id");
        assert_eq!(now(other.check()).unwrap(), [], "before call {back_at}");
        if !was_reached {
            break;
        }
    }
}
