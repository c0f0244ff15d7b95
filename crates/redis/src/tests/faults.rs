//! Tests that faults between the scripts of an operation, and damaged data, do not lose, double or delay any timer.

use super::acting::{Act, Acting};
use super::plain;
use crate::RedisBuilder;
use crate::RedisStore;
use crate::layout::{Layout, PERIOD};
use crate::link::Link;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Failure, Phase, Refusal};
use tourbillon_durable::store::{
    Claimant, Claimed, Cursor, Durability, Filter, IfPresent, Limit, Op, Outcome, Reaped, StoreError,
    StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};
use tourbillon_fault::Server;

pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const BY: Claimant = Claimant { incarnation: 5, lease: LEASE };
pub(super) const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };

/// Two stores on one deployment with one clock. The link of the first store can disturb calls.
pub(super) struct Two {
    pub(super) store: RedisStore,
    pub(super) other: Arc<RedisStore>,
    pub(super) link: Arc<Acting>,
    pub(super) plain: plain::Plain,
    pub(super) clock: ManualClock,
    pub(super) server: Server,
}

pub(super) fn start(shards: u16) -> Option<Two> {
    start_with(shards, |builder| builder.poll(None))
}

pub(super) fn start_with(shards: u16, set: impl Fn(RedisBuilder) -> RedisBuilder) -> Option<Two> {
    let server = Server::start(&[])?;
    let (plain, clock) = (plain::Plain::to(server.port()), ManualClock::new());
    clock.advance(Duration::from_secs(86_400));
    let open = |link: Arc<dyn Link>| {
        let builder = set(RedisStore::builder("d").shards(shards).on_clock(clock.clone()));
        pollster::block_on(builder.open_on(link)).unwrap()
    };
    let link = Acting::new(plain.session());
    let (store, other) = (open(Arc::clone(&link) as _), Arc::new(open(plain.session())));
    Some(Two { store, other, link, plain, clock, server })
}

/// Starts two stores of a deployment in which each script names the keys of one shard, as in a cluster. The first store
/// owns all shards.
pub(super) fn start_split() -> Option<Two> {
    let two = start_with(4, |builder: RedisBuilder| builder.poll(None).split())?;
    assert_eq!(ids(&now(two.store.claim(BY, 1, ALL, None))), []);
    two.link.demand_slots();
    Some(two)
}

pub(super) fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    pollster::block_on(answer).unwrap()
}

pub(super) fn kind<T: std::fmt::Debug>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> StoreErrorKind {
    pollster::block_on(answer).unwrap_err().kind()
}

pub(super) fn apply(store: &RedisStore, op: Op) -> Outcome {
    now(store.apply(vec![op], Durability::PowerLoss)).remove(0)
}

pub(super) fn id(number: u128) -> TimerId {
    TimerId::from_u128(number)
}

pub(super) fn timer(number: u128, due: u64) -> Timer {
    Timer::new(id(number), "kind", UtcMillis::from_millis(due))
}

pub(super) fn place(store: &RedisStore, timer: Timer) {
    let id = timer.id;
    assert_eq!(apply(store, Op::Place(Box::new(timer), IfPresent::Reject)), Outcome::Created(id));
}

pub(super) fn ids(claimed: &Claimed) -> Vec<TimerId> {
    claimed.leased.iter().map(|leased| leased.timer.id).collect()
}

/// Runs a Lua script on the records of the deployment's only shard.
pub(super) fn damage(plain: &plain::Plain, script: &str) {
    let _changed = plain.ask(&["EVAL", script, "1", &plain::records(0, 1)]);
}

/// A Lua script that changes the version of the second record, so that the record cannot be read.
pub(super) const UNREADABLE: &str = "local m = redis.call('ZRANGE', KEYS[1], 1, 1)[1] redis.call('ZREM', KEYS[1], m) \
                          redis.call('ZADD', KEYS[1], 0, string.sub(m, 1, 20) .. '\\250' .. string.sub(m, 22))";

/// Tests a repeated creation on one server. While the creation looks for the timer, another process cancels the
/// timer. The process stores the timer again before one of the creation's later calls.
#[test]
fn a_repeated_creation_leaves_the_redirect_of_a_timer_that_is_stored_again() {
    for again_at in 4.. {
        let Some(Two { store, other, link, server: _server, .. }) = start(4) else { return };
        let names = super::pairs::names(false);
        let timer = Timer { key: Some(names.key.into()), ..Timer::new(names.id, "kind", super::PAST) };
        place(&store, timer.clone());
        let create = Op::Place(Box::new(timer), IfPresent::Reject);
        let cancel = {
            let other = Arc::clone(&other);
            move || {
                let outcome = apply(&other, Op::Cancel(names.id.into(), None));
                assert!(matches!(outcome, Outcome::Cancelled(_)), "{outcome:?}");
            }
        };
        let is_reached = Arc::new(AtomicBool::new(false));
        let store_again = {
            let (other, create, reached) = (Arc::clone(&other), create.clone(), Arc::clone(&is_reached));
            move || {
                reached.store(true, Ordering::Relaxed);
                let outcome = apply(&other, create);
                assert!(matches!(outcome, Outcome::Created(_) | Outcome::Repeated(_)), "{outcome:?}");
            }
        };
        // The first two calls are a commit and a read of the redirect. The third call reads the timer.
        link.at("records", 1, Act::First(Box::new(cancel)));
        link.also_at("", again_at, Act::First(Box::new(store_again)));
        let outcome = apply(&store, create);
        assert!(matches!(outcome, Outcome::Created(_) | Outcome::Repeated(_)), "{outcome:?}");
        assert!(now(other.get(names.id.into())).is_some(), "before call {again_at}: found by its id");
        assert_eq!(now(other.check()), [], "before call {again_at}");
        if !is_reached.load(Ordering::Relaxed) {
            break;
        }
    }
}

#[test]
fn an_operation_by_key_finds_the_keys_next_owner() {
    let Some(Two { store, other, link, server: _server, .. }) = start(4) else { return };
    let timer_with = |number| Timer { key: Some("k".into()), ..timer(number, 1 << 40) };
    place(&store, timer_with(1));
    let replace = move || {
        let outcome = apply(&other, Op::Place(Box::new(timer_with(2)), IfPresent::Replace));
        assert!(matches!(outcome, Outcome::Replaced { .. }), "{outcome:?}");
    };
    link.at("commit", 1, Act::First(Box::new(replace)));
    let key = Address::Key(KeyOf { namespace: "".into(), key: "k".into() });
    let outcome = apply(&store, Op::Cancel(key, None));
    assert_ne!(outcome, Outcome::NotFound, "the key had an owner all the time");
    assert_eq!(now(store.counts()).by_namespace.values().sum::<u64>(), 0);
    assert_eq!(now(store.check()), []);
}

#[test]
fn a_leased_record_that_cannot_be_read_stops_no_other_lease() {
    let Some(Two { store, plain, clock, server: _server, .. }) = start(1) else { return };
    (1..=3).for_each(|number| place(&store, timer(number, 5)));
    assert_eq!(now(store.claim(BY, 1, ALL, None)).leased.len(), 3);
    damage(&plain, UNREADABLE);
    let recovered: Vec<_> = now(store.recover(BY, 1)).iter().map(|leased| leased.timer.id).collect();
    assert_eq!(recovered, [id(1), id(3)]);
    clock.advance(LEASE);
    assert_eq!(now(store.reap(10)).returned, [id(1), id(3)]);
    let counts = now(store.counts());
    assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Leased), counts.quarantined), (2, 0, 1));
    assert_eq!(now(store.reap(10)), Reaped::default());
    assert_eq!(now(store.check()), []);
}

#[test]
fn the_key_and_the_id_of_a_record_that_was_set_aside_are_free() {
    let Some(Two { store, plain, server: _server, .. }) = start(1) else { return };
    let timer_of = |number: u128| Timer { key: Some(format!("k{number}").into()), ..timer(number, 5) };
    (1..=3).for_each(|number| place(&store, timer_of(number)));
    damage(&plain, UNREADABLE);
    assert_eq!(now(store.claim(BY, 1, ALL, None)).quarantined, 1);
    let key = Address::Key(KeyOf { namespace: "".into(), key: "k2".into() });
    assert_eq!(now(store.get(key.clone())), None);
    place(&store, timer_of(2));
    assert_eq!(now(store.get(key)).map(|timer| timer.id), Some(id(2)));
    assert_eq!(now(store.check()), []);
}

#[test]
fn an_id_that_is_noted_in_another_shard_is_free_after_its_record_was_set_aside() {
    let Some(Two { store, plain, server: _server, .. }) = start(4) else { return };
    // The timers of one key are in the shard of the key, for any ids.
    let timer_of = |number: u128| Timer { key: Some("k".into()), ..timer(number, 5) };
    for number in 1..=8 {
        place(&store, timer_of(number));
        for shard in 0..4 {
            let script = "local m = redis.call('ZRANGE', KEYS[1], 0, 0)[1] if not m then return end \
                          redis.call('ZREM', KEYS[1], m) \
                          redis.call('ZADD', KEYS[1], 0, string.sub(m, 1, 20) .. '\\250' .. string.sub(m, 22))";
            let _changed = plain.ask(&["EVAL", script, "1", &plain::records(shard, 4)]);
        }
        assert_eq!(now(store.claim(BY, 1, ALL, None)).quarantined, 1);
        place(&store, timer_of(number));
        let outcome = apply(&store, Op::Cancel(id(number).into(), None));
        assert!(matches!(outcome, Outcome::Cancelled(_)), "{outcome:?}");
    }
    assert_eq!(now(store.check()), []);
}

#[test]
fn a_claim_of_several_scripts_says_that_its_first_ones_may_have_leased() {
    let Some(Two { store, link, clock, server: _server, .. }) = start(1) else { return };
    for number in 0..66 {
        place(&store, timer(number + 1, 5 + u64::try_from(number).unwrap() * PERIOD));
    }
    clock.advance(Duration::from_millis(66 * PERIOD));
    // The first script returns the names of the slices, and the second script leases from 64 of these slices.
    link.at("claim", 3, Act::Fail);
    assert_eq!(kind(store.claim(BY, 1, ALL, None)), StoreErrorKind::Unknown);
    assert_eq!(now(store.recover(BY, 1)).len(), 64);
    assert_eq!(ids(&now(store.claim(BY, 2, ALL, None))), [id(65), id(66)]);
}

#[test]
fn an_operation_on_many_timers_says_that_the_first_ones_may_be_changed() {
    let Some(Two { store, link, server: _server, .. }) = start(1) else { return };
    // This operation changes timers by more than one script.
    (1..=40).for_each(|number| place(&store, Timer { labels: vec!["l".into()], ..timer(number, 1 << 40) }));
    link.at("commit", 2, Act::Fail);
    let all = Op::CancelLabelled { namespace: "".into(), label: "l".into(), limit: 100 };
    assert_eq!(kind(store.apply(vec![all], Durability::PowerLoss)), StoreErrorKind::Unknown);
    assert_eq!(now(store.counts()).of(Phase::Pending), 8);
}

/// Tests a server that comes back without its data, on which another process then recreates the deployment.
#[test]
fn a_deployment_that_its_server_has_lost_is_noticed_and_never_mixed_with_a_new_one() {
    let Some(Two { store, plain, clock, server, .. }) = start(4) else { return };
    place(&store, timer(1, 5));
    let _flushed = plain.ask(&["FLUSHALL"]);
    let builder = RedisStore::builder("d").shards(4).poll(None).on_clock(clock);
    let new = pollster::block_on(builder.open_on(plain::Plain::to(server.port()).session())).unwrap();
    assert_eq!(kind(store.claim(BY, 1, ALL, None)), StoreErrorKind::Closed);
    let late = Op::Place(Box::new(timer(2, 5)), IfPresent::Reject);
    assert_eq!(kind(store.apply(vec![late], Durability::PowerLoss)), StoreErrorKind::Closed);
    place(&new, timer(3, 5));
    assert_eq!(ids(&now(new.claim(BY, 1, ALL, None))), [id(3)]);
}

#[test]
fn a_record_that_is_cut_short_stops_no_claim() {
    let Some(Two { store, plain, server: _server, .. }) = start(1) else { return };
    (1..=3).for_each(|number| place(&store, timer(number, 5)));
    damage(
        &plain,
        "local m = redis.call('ZRANGE', KEYS[1], 1, 1)[1] redis.call('ZREM', KEYS[1], m) \
         redis.call('ZADD', KEYS[1], 0, string.sub(m, 1, 18))",
    );
    assert_eq!(ids(&now(store.claim(BY, 1, ALL, None))), [id(1), id(3)]);
}

#[test]
fn a_list_of_many_timers_of_one_moment_has_each_of_them_once() {
    let Some(Two { store, server: _server, .. }) = start(4) else { return };
    let due = 1 << 40;
    now(store.import((1..=1_000).map(|number| timer(number, due)).collect()));
    now(store.import((1_001..=2_500).map(|number| timer(number, due + u64::from(number > 2_000))).collect()));
    let filter = Filter { phase: Some(Phase::Pending), ..Filter::default() };
    let (mut listed, mut cursor): (Vec<TimerId>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = now(store.list(filter.clone(), cursor, 70));
        listed.extend(page.timers.iter().map(|timer| timer.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let all: Vec<TimerId> = (1..=2_500).map(id).collect();
    assert_eq!(listed, all);
}

/// Subscribes to a store. Returns the number of times that the store wakes the subscriber.
pub(super) fn wakes(store: &RedisStore) -> Arc<AtomicU32> {
    let wakes = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&wakes);
    store.subscribe(Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
    wakes
}

/// Tests that an idle runtime ends the leases of a dead node, although it learns of them only from the answer of a
/// claim.
#[test]
fn leases_of_a_dead_node_are_reaped_although_the_answer_that_took_its_shard_is_lost() {
    let Some(Two { store, other, link, clock, server: _server, .. }) = start(1) else { return };
    place(&other, timer(1, 5));
    assert_eq!(ids(&now(other.claim(BY, 1, ALL, None))), [id(1)]);
    assert_eq!(now(store.claim(BY, 1, ALL, None)).next_reap, None, "the shard is the other's");
    // The other node dies. Its shard is free long before its lease is over.
    clock.advance(LEASE / 2);
    link.at("claim", 1, Act::Lose);
    pollster::block_on(store.claims.look_at(vec![0]));
    let claimed = now(store.claim(BY, 2, ALL, None));
    assert_eq!(claimed.next_reap, Some(claimed.now + LEASE / 2));
    assert_eq!(now(store.claim(BY, 3, ALL, None)).next_reap, None, "nothing has changed");
    clock.advance(LEASE / 2);
    assert_eq!(now(store.reap(10)).returned, [id(1)]);
}

#[test]
fn a_shard_that_was_not_released_and_one_that_was_sick_are_asked_when_their_leases_end() {
    let Some(Two { store, link, server: _server, .. }) = start(1) else { return };
    place(&store, timer(1, 5));
    assert_eq!(ids(&now(store.claim(BY, 1, ALL, None))), [id(1)]);
    link.at("release", 1, Act::Fail);
    now(store.leave());
    assert!(
        now(store.claim(BY, 2, ALL, None)).next_reap.is_some(),
        "the node has left, and its shard is its own"
    );
    link.at("claim", 1, Act::Fail);
    pollster::block_on(store.claims.look_at(vec![0]));
    assert!(now(store.claim(BY, 3, ALL, None)).next_reap.is_some(), "a reap may have left the shard out");
    assert_eq!(now(store.claim(BY, 4, ALL, None)).next_reap, None);
}

#[test]
fn a_reap_of_which_a_shard_has_no_answer_is_followed_by_another_one() {
    for nth in 1..=4 {
        let split = |builder: RedisBuilder| builder.poll(None).split();
        let Some(Two { store, link, clock, server: _server, .. }) = start_with(4, split) else { return };
        place(&store, timer(1, 5));
        assert_eq!(ids(&now(store.claim(BY, 1, ALL, None))), [id(1)]);
        clock.advance(LEASE);
        link.at("expired", nth, Act::Fail);
        let mut reaped = now(store.reap(10));
        let next = reaped.next.expect("a shard that did not answer may have leases");
        assert!(next <= store.now() + Duration::from_secs(1), "{next:?}");
        clock.advance(next - store.now());
        let again = now(store.reap(10));
        reaped.returned.extend(again.returned);
        assert_eq!((reaped.returned, again.next), (vec![id(1)], None));
    }
}

/// Tests that a claim in a cluster, which asks only the shards that may have due timers, also asks the shards in which
/// a claim with a lost answer may have leased.
#[test]
fn a_claim_asks_for_what_was_leased_under_a_lost_answer() {
    let settings = |builder: RedisBuilder| builder.poll(Some(Duration::from_secs(3_600))).split();
    let Some(Two { store, link, server: _server, .. }) = start_with(4, settings) else { return };
    assert_eq!(ids(&now(store.claim(BY, 1, ALL, None))), []);
    let layout = &store.deployment.layout;
    let shard_of = |number: &u128| layout.shard_of_id(id(*number));
    let far = (2..).find(|number| shard_of(number) != shard_of(&1)).unwrap();
    [1, far].into_iter().for_each(|number| place(&store, timer(number, 5)));
    link.at("lease", 1, Act::Lose);
    let mut leased = ids(&now(store.claim(BY, 2, ALL, None)));
    assert_eq!(leased.len(), 1, "the other one's answer is lost");
    let lost = if leased == [id(1)] { far } else { 1 };
    let look = || {
        pollster::block_on(store.claims.look_at(vec![shard_of(&lost)]));
        // The known end of a lease would wake the runtime as well, so the test removes it.
        store.node.state().shards.take_first_end();
    };
    look();
    let wakes = wakes(&store);
    look();
    assert!(wakes.load(Ordering::Relaxed) > 0, "a claim is wanted");
    leased.extend(ids(&now(store.claim(BY, 3, ALL, None))));
    leased.sort_unstable();
    assert_eq!(leased, [id(1), id(far)]);
    assert_eq!(ids(&now(store.claim(BY, 4, ALL, None))), [], "once");
}

/// Tests an operation with a lost answer, which may have stored a timer. In a store without a background thread, only
/// the runtime can find the timer.
#[test]
fn a_runtime_looks_for_timers_that_were_stored_under_a_lost_answer() {
    let Some(Two { store, link, clock, server: _server, .. }) = start(4) else { return };
    assert_eq!(now(store.claim(BY, 1, ALL, None)).next_due, None);
    let wakes = wakes(&store);
    let woken = || wakes.swap(0, Ordering::Relaxed) > 0;
    let at = store.now() + LEASE;
    let op = Op::Place(Box::new(timer(1, at.as_millis())), IfPresent::Reject);
    link.at("commit", 1, Act::Lose);
    assert_eq!(kind(store.apply(vec![op.clone()], Durability::PowerLoss)), StoreErrorKind::Unknown);
    assert!(woken(), "it may be stored");
    assert_eq!(apply(&store, op), Outcome::Repeated(id(1)));
    assert!(woken(), "it is stored, and this process has taken no note");
    assert_eq!(now(store.claim(BY, 2, ALL, None)).next_due, Some(at));
    clock.advance(LEASE);
    let claimed = now(store.claim(BY, 3, ALL, None));
    let token = claimed.leased[0].token;
    let fail = Op::Fail(id(1), token, Failure::default());
    let _woken_before = woken();
    link.at("commit", 1, Act::Lose);
    assert_eq!(kind(store.apply(vec![fail.clone()], Durability::PowerLoss)), StoreErrorKind::Unknown);
    assert!(woken(), "the next attempt may be stored");
    assert_eq!(apply(&store, fail), Outcome::Refused(Refusal::Stale));
    assert!(woken());
    let due = now(store.claim(BY, 4, ALL, None)).next_due.unwrap();
    clock.advance(due - store.now());
    assert_eq!(now(store.claim(BY, 5, ALL, None)).leased.len(), 1);
    clock.advance(LEASE);
    let _woken_before = woken();
    link.at("commit", 1, Act::Lose);
    assert_eq!(kind(store.reap(10)), StoreErrorKind::Unknown);
    assert!(woken(), "a timer whose lease has ended may be due");
}

/// Tests a timer that another process stores or cancels between the reads of two shards. The timer is in one shard, and
/// its redirect is in the other shard.
#[test]
fn a_check_names_no_timer_that_changes_between_the_reads_of_two_shards() {
    let Some(Two { store, other, link, server: _server, .. }) = start(2) else { return };
    let layout = Layout::new("d", 2);
    let key = (0..).map(|n| format!("key {n}")).find(|key| layout.shard_of_key("", key) == 1).unwrap();
    let number = (1..).find(|number| layout.shard_of_id(id(*number)) == 0).unwrap();
    let create = {
        let (other, timer) =
            (Arc::clone(&other), Timer { key: Some(key.as_str().into()), ..timer(number, 1 << 40) });
        move || place(&other, timer)
    };
    // The first read of the second shard follows the only read of the first shard.
    link.at("contents", 2, Act::First(Box::new(create)));
    assert_eq!(now(store.check()), []);
    let cancel = move || drop(apply(&other, Op::Cancel(id(number).into(), None)));
    link.at("contents", 2, Act::First(Box::new(cancel)));
    assert_eq!(now(store.check()), []);
    assert_eq!(now(store.counts()).by_namespace.values().sum::<u64>(), 0);
}

#[test]
fn a_check_reads_redirects_that_have_changed_again_at_the_same_time() {
    let Some(Two { store, other, link, server: _server, .. }) = start(2) else { return };
    let layout = Layout::new("d", 2);
    let keys: Vec<_> =
        (0..).map(|n| format!("key {n}")).filter(|key| layout.shard_of_key("", key) == 1).take(2).collect();
    let numbers = (1..).filter(|number| layout.shard_of_id(id(*number)) == 0);
    let timers: Vec<_> = numbers
        .zip(&keys)
        .map(|(number, key)| Timer { key: Some(key.as_str().into()), ..timer(number, 1 << 40) })
        .collect();
    let create = move || timers.into_iter().for_each(|timer| place(&other, timer));
    link.at("contents", 2, Act::First(Box::new(create)));
    let order = Arc::<Mutex<Vec<&str>>>::default();
    let note = |text| {
        let order = Arc::clone(&order);
        Act::First(Box::new(move || order.lock().unwrap().push(text)))
    };
    link.also_at("redirects", 1, Act::Late);
    link.also_at("redirects", 2, note("the second redirect"));
    link.also_at("are_stored", 1, note("the first timer"));
    assert_eq!(now(store.check()), []);
    assert_eq!(*order.lock().unwrap(), ["the second redirect", "the first timer"]);
}
