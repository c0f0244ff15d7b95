//! Tests claims whose answers were lost, in a cluster and on one server. The runtime gets each leased timer once, and
//! no timer waits for the end of its lease.

use super::acting::Act;
use super::faults::{
    ALL, BY, LEASE, Two, UNREADABLE, apply, damage, id, ids, kind, now, place, start, start_split, timer,
    wakes,
};
use crate::RedisStore;
use crate::layout::PERIOD;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::Policy;
use tourbillon_durable::state::{Phase, State, Token};
use tourbillon_durable::store::{Op, Outcome, PAUSED, Renewal, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_durable::{Delivery, Durable, Kind, Work};
use tourbillon_fault::eventually;

/// Returns the first number after `number` whose timer is in another shard than that of `number`.
fn far_from(store: &RedisStore, number: u128) -> u128 {
    let layout = &store.deployment.layout;
    let shard_of = |number: u128| layout.shard_of_id(id(number));
    (number + 1..).find(|far| shard_of(*far) != shard_of(number)).unwrap()
}

fn pause(store: &RedisStore, number: u128) {
    assert_eq!(apply(store, Op::Pause(id(number).into())), Outcome::Changed(id(number)));
}

fn recovered(store: &RedisStore, claim: u64) -> Vec<TimerId> {
    now(store.recover(BY, claim)).into_iter().map(|leased| leased.timer.id).collect()
}

#[test]
fn a_parked_timer_that_was_recovered_is_not_claimed_again() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    place(&store, timer(1, 5));
    pause(&store, 1);
    link.at("take_parked", 1, Act::Lose);
    assert_eq!(kind(store.claim_parked(BY, 2, PAUSED.into(), 1, ALL)), StoreErrorKind::Unknown);
    assert_eq!(recovered(&store, 2), [id(1)]);
    assert_eq!(ids(&now(store.claim(BY, 3, ALL, None))), [], "its delivery is under way");
}

#[test]
fn a_recovery_that_no_shard_answers_leaves_its_timers_to_the_next_claim() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    place(&store, timer(1, 5));
    link.at("lease", 1, Act::Lose);
    assert_eq!(kind(store.claim(BY, 2, ALL, None)), StoreErrorKind::Unknown);
    (1..=4).for_each(|nth| link.also_at("recover", nth, Act::Fail));
    assert_eq!(kind(store.recover(BY, 2)), StoreErrorKind::Io);
    assert_eq!(ids(&now(store.claim(BY, 3, ALL, None))), [id(1)]);
    assert_eq!(ids(&now(store.claim(BY, 4, ALL, None))), []);
}

/// Tests a claim of several scripts in each of two shards. One answer is lost. The claim returns the timers of all
/// other answers, even if they are of the same shard.
#[test]
fn timers_of_the_answers_before_a_lost_one_are_not_claimed_again() {
    let Some(Two { store, link, clock, server: _server, .. }) = start_split() else { return };
    let layout = &store.deployment.layout;
    let in_shard = |shard| (1..).filter(move |number| layout.shard_of_id(id(*number)) == shard).take(66);
    let numbers: Vec<u128> = in_shard(0).chain(in_shard(1)).collect();
    for (nth, number) in (0..).zip(&numbers) {
        // A script reads 64 slices at once, so it leases at most 64 of these timers.
        place(&store, timer(*number, 5 + nth % 66 * PERIOD));
    }
    clock.advance(Duration::from_millis(66 * PERIOD));
    link.at("lease", 3, Act::Lose);
    let mut leased = ids(&now(store.claim(BY, 2, ALL, None)));
    assert!(leased.len() > 64 && leased.len() < numbers.len(), "an answer is lost: {}", leased.len());
    (3..6).for_each(|claim| leased.extend(ids(&now(store.claim(BY, claim, ALL, None)))));
    let distinct: BTreeSet<TimerId> = leased.iter().copied().collect();
    assert_eq!((leased.len(), distinct.len()), (numbers.len(), numbers.len()));
}

/// Tests a claim whose first script in a shard has no answer, and whose later scripts surely had no effect. The runtime
/// does not recover such a claim.
#[test]
fn a_certain_error_after_a_lost_answer_leaves_the_timers_to_the_next_claim() {
    let Some(Two { store, other, link, server: _server, .. }) = start_split() else { return };
    let far = far_from(&store, 1);
    [1, far].into_iter().for_each(|number| place(&store, timer(number, 5)));
    let (node, acting) = (Arc::clone(&store.node), Arc::clone(&link));
    let cancel = move || {
        // Another process cancels the timer of the second script, which then leases nothing.
        let phase = |number| now(other.get(id(number).into())).unwrap().state.phase();
        eventually("the first script has leased", || {
            [1, far].into_iter().any(|number| phase(number) == Phase::Leased)
        });
        let pending = if phase(1) == Phase::Pending { 1 } else { far };
        assert!(matches!(apply(&other, Op::Cancel(id(pending).into(), None)), Outcome::Cancelled(_)));
        // A message says that another timer is due, so the claim looks again. No shard answers.
        node.note(other.deployment.layout.shard_of_id(id(pending)), UtcMillis::from_millis(5));
        (1..=4).for_each(|nth| acting.also_at("claim", nth, Act::Fail));
    };
    link.at("lease", 1, Act::Lose);
    link.also_at("lease", 2, Act::First(Box::new(cancel)));
    assert_eq!(kind(store.claim(BY, 2, ALL, None)), StoreErrorKind::Io);
    assert_eq!(
        ids(&now(store.claim(BY, 3, ALL, None))).len(),
        1,
        "the timer does not wait for the end of its lease"
    );
}

#[test]
fn a_failed_claim_leaves_the_timers_of_an_earlier_lost_answer_to_the_next_claim() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let far = far_from(&store, 1);
    [1, far].into_iter().for_each(|number| place(&store, timer(number, 5)));
    link.at("lease", 1, Act::Lose);
    let mut leased = ids(&now(store.claim(BY, 2, ALL, None)));
    assert_eq!(leased.len(), 1, "the other one's answer is lost");
    let third = far + 1;
    place(&store, timer(third, 5));
    link.at("lease", 1, Act::Fail);
    assert_eq!(kind(store.claim(BY, 3, ALL, None)), StoreErrorKind::Unknown);
    assert_eq!(recovered(&store, 3), []);
    leased.extend(ids(&now(store.claim(BY, 4, ALL, None))));
    leased.sort_unstable();
    assert_eq!(leased, [id(1), id(far), id(third)]);
    assert_eq!(ids(&now(store.claim(BY, 5, ALL, None))), [], "once");
}

#[test]
fn a_recovered_timer_of_a_paused_series_is_parked_again() {
    let Some(Two { store, link, server: _server, .. }) = start(1) else { return };
    let series =
        Series { id: id(1), plan: Plan::Every(1_000), missed: MissedInstants::Skip, end: None, paused: true };
    // A pause of a parked timer changes its reason, so no pause makes such a timer. A caller may store one.
    place(&store, Timer { series: Some(series), state: State::Parked("reason".into()), ..timer(1, 5) });
    link.at("take_parked", 1, Act::Lose);
    assert_eq!(kind(store.claim_parked(BY, 2, "reason".into(), 1, ALL)), StoreErrorKind::Unknown);
    assert_eq!(recovered(&store, 2), []);
    let stored = now(store.get(id(1).into())).unwrap();
    assert_eq!(stored.state, State::Parked(PAUSED.into()));
    assert_eq!(now(store.check()), []);
}

/// Tests that a claim that fails does not lose the moment at which the lease of a dead node ends.
#[test]
fn the_claim_after_a_failed_one_says_when_the_first_lease_ends() {
    let Some(Two { store, other, link, plain, clock, server: _server }) = start(1) else { return };
    place(&other, timer(1, 5));
    assert_eq!(ids(&now(other.claim(BY, 1, ALL, None))), [id(1)]);
    assert_eq!(now(store.claim(BY, 1, ALL, None)).next_reap, None, "the shard is the other's");
    // The other node dies. Its shard is free long before its lease is over.
    clock.advance(LEASE / 2);
    // The claim leases this timer, and cannot set its record aside.
    place(&store, timer(2, 5));
    damage(&plain, UNREADABLE);
    link.at("quarantine", 1, Act::Fail);
    assert_eq!(kind(store.claim(BY, 2, ALL, None)), StoreErrorKind::Unknown);
    let claimed = now(store.claim(BY, 3, ALL, None));
    assert_eq!(claimed.next_reap, Some(claimed.now + LEASE / 2));
}

#[test]
fn a_renewal_that_finds_the_shard_of_no_timer_fails() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let far = far_from(&store, 1);
    [1, far].into_iter().for_each(|number| place(&store, timer(number, 5)));
    let leased = now(store.claim(BY, 2, ALL, None)).leased;
    let leases: Vec<_> = leased.iter().map(|leased| (leased.timer.id, leased.token)).collect();
    // A store without copies of the timers first asks where they are.
    store.held.clear();
    link.at("find_id", 1, Act::Fail);
    link.also_at("find_id", 2, Act::Fail);
    assert_eq!(kind(store.renew(BY, leases.clone())), StoreErrorKind::Io, "no lease is renewed");
    assert_eq!(now(store.renew(BY, leases)), Renewal::default());
}

/// Leases a timer in each of two shards whose servers are different. Returns the two leases, and the number of the
/// second lease's renewal among the two renewals.
fn lease_two(store: &RedisStore) -> ([(TimerId, Token); 2], u32) {
    let far = far_from(store, 1);
    place(store, timer(1, 5));
    place(store, timer(far, 6));
    let leased = now(store.claim(BY, 2, ALL, None)).leased;
    let leases = [0, 1].map(|place| (leased[place].timer.id, leased[place].token));
    (leases, second_of(store, leases.map(|(id, _)| id)))
}

/// Returns the number of the second timer's renewal among the renewals of two timers. A renewal is one script for each
/// shard, in the order of the shards.
fn second_of(store: &RedisStore, ids: [TimerId; 2]) -> u32 {
    let [first, second] = ids.map(|id| store.deployment.layout.shard_of_id(id));
    if first < second { 2 } else { 1 }
}

#[test]
fn a_renewal_names_the_timers_whose_servers_have_not_answered() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let (leases, second) = lease_two(&store);
    link.at("renew", second, Act::Fail);
    let silent = |silent| Renewal { silent, ..Renewal::default() };
    assert_eq!(now(store.renew(BY, leases.to_vec())), silent(vec![leases[1]]));
    // A store without copies of the timers first asks where they are.
    store.held.clear();
    link.at("find_id", 1, Act::Fail);
    assert_eq!(now(store.renew(BY, leases.to_vec())), silent(vec![leases[0]]));
    assert_eq!(now(store.renew(BY, leases.to_vec())), Renewal::default());
}

#[test]
fn a_lost_lease_of_an_earlier_claim_leaves_the_copy_of_the_claimed_timer() {
    let Some(Two { store, clock, server: _server, .. }) = start(1) else { return };
    place(&store, timer(1, 5));
    let mut claim = 0;
    let mut token = || {
        claim += 1;
        now(store.claim(BY, claim, ALL, None)).leased[0].token
    };
    let first = token();
    clock.advance(2 * LEASE);
    let _reaped = now(store.reap(10));
    clock.advance(Duration::from_secs(3_600));
    let second = token();
    let lost = Renewal { lost: vec![(id(1), first)], ..Renewal::default() };
    assert_eq!(now(store.renew(BY, vec![(id(1), first), (id(1), second)])), lost);
    assert!(store.held.get(id(1)).is_some(), "the copy belongs to the second claim");
}

/// Tests a renewal of two leases. The store has no copy of the first lease's timer, because this process has cancelled
/// the timer in flight, for example. The server of that timer may be gone.
#[test]
fn a_renewal_does_not_wait_for_the_search_of_another_timer() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let (leases, _) = lease_two(&store);
    store.held.let_go(leases[0].0);
    let calls = Arc::<Mutex<Vec<&str>>>::default();
    let note = |text| {
        let calls = Arc::clone(&calls);
        Act::First(Box::new(move || calls.lock().unwrap().push(text)))
    };
    link.at("find_id", 1, note("search"));
    link.also_at("renew", 1, note("renewal"));
    link.also_at("renew", 2, note("renewal"));
    assert_eq!(now(store.renew(BY, leases.to_vec())), Renewal::default());
    assert_eq!(*calls.lock().unwrap(), ["renewal", "search", "renewal"]);
}

/// Tests a renewal of two leases. The store has no copy of the first lease's timer, and the server of that timer does
/// not answer the search.
#[test]
fn a_dead_server_of_a_timer_without_a_copy_keeps_no_other_lease_from_its_renewal() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let (leases, _) = lease_two(&store);
    store.held.let_go(leases[0].0);
    link.at("find_id", 1, Act::Hang);
    let silent = Renewal { silent: vec![leases[0]], ..Renewal::default() };
    assert_eq!(now(store.renew(BY, leases.to_vec())), silent);
}

/// Tests two renewals of the lease of a timer without a copy. On slow servers, the search and the renewal together may
/// take longer than the time that a call has after the first answer. The second renewal then needs no search.
#[test]
fn a_second_renewal_does_not_search_a_timer_again() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let (leases, _) = lease_two(&store);
    store.held.let_go(leases[0].0);
    link.at("renew", 2, Act::Fail);
    assert_eq!(
        now(store.renew(BY, leases.to_vec())),
        Renewal { silent: vec![leases[0]], ..Renewal::default() }
    );
    link.at("find_id", 1, Act::Fail);
    assert_eq!(now(store.renew(BY, leases.to_vec())), Renewal::default());
    // The end of the lease ends the memory of its shard.
    assert_eq!(now(store.renew(BY, vec![leases[1]])), Renewal::default());
    let silent = Renewal { silent: vec![leases[0]], ..Renewal::default() };
    assert_eq!(now(store.renew(BY, leases.to_vec())), silent, "the search that fails");
}

/// The payload of the timers whose handlers block.
#[derive(Debug)]
struct Nothing;

impl Kind for Nothing {
    const NAME: &'static str = "kind";
}

impl serde::Serialize for Nothing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> serde::Deserialize<'de> for Nothing {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

/// Tests a runtime with one worker, which has claimed two timers of blocking handlers. The server of the second timer
/// answers no renewal, so the second lease ends while the handler of the first timer still runs.
#[test]
fn a_handler_does_not_begin_after_a_lease_that_no_server_has_renewed() {
    let Some(Two { store, link, clock, server: _server, .. }) = start_split() else { return };
    let ids = [id(1), id(far_from(&store, 1))];
    let policy = Policy { timeout: 9 * LEASE, ..Policy::default() };
    for (id, due) in ids.into_iter().zip(5..) {
        let payload = Payload((*b"null").into());
        place(&store, Timer { id, payload, policy: policy.clone(), ..timer(1, due) });
    }
    let second = second_of(&store, ids);
    let (gate, gate_opens) = channel::<()>();
    let (calls, gate_opens) = (Arc::<Mutex<Vec<TimerId>>>::default(), Mutex::new(gate_opens));
    let called = Arc::clone(&calls);
    let handler = move |_: Nothing, delivery: Delivery| {
        called.lock().unwrap().push(delivery.id);
        if delivery.id == id(1) {
            let _open = gate_opens.lock().unwrap().recv();
        }
    };
    let builder =
        Durable::builder_on(Arc::new(store)).clock(clock.clone()).lease(LEASE).workers(1).concurrency(2);
    // Without an executor there are no more places than workers. It gets no work, since the handler blocks.
    let durable = builder.executor(drop::<Work>).blocking_handler(handler).start().unwrap();
    eventually("the first handler runs", || calls.lock().unwrap().len() == 1);
    let leased = || pollster::block_on(durable.handle().counts()).unwrap().of(Phase::Leased);
    eventually("both timers are claimed", || leased() == 2);
    let (reaped, reaps) = channel();
    link.at("expired", 1, Act::First(Box::new(move || reaped.send(()).unwrap())));
    (0..100).for_each(|round| link.also_at("renew", 2 * round + second, Act::Fail));
    clock.advance(LEASE / 3);
    // A reap follows each renewal.
    reaps.recv().unwrap();
    clock.advance(LEASE * 2 / 3);
    gate.send(()).unwrap();
    eventually("the first timer ends", || durable.handle().stats().done >= 1);
    // The reap that follows the next renewal ends the second timer's lease, if no earlier reap has ended it.
    clock.advance(LEASE / 3);
    eventually("both timers end", || durable.handle().stats().done == 2);
    assert_eq!(*calls.lock().unwrap(), ids, "the second handler is called once");
    assert_eq!(durable.shutdown(Duration::ZERO).delivered, 2, "nor has its first delivery begun");
}

/// Tests a claim whose first turn loses the answer of a shard, and whose later turns get answers of all shards. The
/// store has no thread, so only the runtime can ask for the timer of the lost answer.
#[test]
fn a_claim_that_has_lost_an_answer_is_followed_by_another_claim_at_once() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let far = far_from(&store, 1);
    [1, far].into_iter().for_each(|number| place(&store, timer(number, 5)));
    let wakes = wakes(&store);
    link.at("lease", 1, Act::Lose);
    let mut leased = ids(&now(store.claim(BY, 2, ALL, None)));
    assert_eq!(leased.len(), 1, "the other one's answer is lost");
    assert!(wakes.swap(0, Ordering::Relaxed) > 0, "a claim is wanted");
    leased.extend(ids(&now(store.claim(BY, 3, ALL, None))));
    leased.sort_unstable();
    assert_eq!(leased, [id(1), id(far)]);
    assert_eq!(wakes.load(Ordering::Relaxed), 0, "no further claim is wanted");
}

#[test]
fn a_claim_of_parked_timers_that_has_lost_an_answer_is_followed_by_a_claim_at_once() {
    let Some(Two { store, link, server: _server, .. }) = start_split() else { return };
    let far = far_from(&store, 1);
    for number in [1, far] {
        place(&store, timer(number, 5));
        pause(&store, number);
    }
    let wakes = wakes(&store);
    link.at("take_parked", 1, Act::Lose);
    let claimed = now(store.claim_parked(BY, 2, PAUSED.into(), 2, ALL)).unwrap();
    assert_eq!(claimed.leased.len(), 1, "the other one's answer is lost");
    assert!(wakes.load(Ordering::Relaxed) > 0, "a claim is wanted");
    assert_eq!(ids(&now(store.claim(BY, 3, ALL, None))).len(), 1);
}
