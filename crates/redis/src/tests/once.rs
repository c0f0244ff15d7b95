//! Tests timers that are delivered at most once. A claim leases such a timer, and the caller removes it before its
//! delivery.

use super::acting::Act;
use super::faults::{ALL, BY, LEASE, Two, apply, id, ids, kind, now, place, start, start_split, timer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::{
    Claimed, Durability, IfPresent, Op, Outcome, PAUSED, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::Timer;

/// A withdrawal by another process while a timer is removed.
#[derive(Clone, Copy, Debug)]
struct Case {
    is_split: bool,
    is_parked: bool,
    is_replaced: bool,
    /// True if a second timer is removed in the same batch.
    is_batch: bool,
}

fn once(number: u128) -> Timer {
    let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    Timer { policy, ..timer(number, 5) }
}

/// Returns the operations that remove claimed timers before their deliveries.
fn removals(claimed: &Claimed) -> Vec<Op> {
    claimed.leased.iter().map(|leased| Op::Skip(leased.timer.id, leased.token)).collect()
}

fn ended(number: u128, phase: Phase) -> Outcome {
    Outcome::Ended { id: id(number), phase, next: None, skipped: 0 }
}

/// Tests timers that another process cancels or replaces before each call of their removals. Either the withdrawal
/// finds the timer leased, and the removal reports the withdrawal, or the withdrawal finds no timer.
#[test]
fn a_timer_at_most_once_is_either_withdrawn_or_removed() {
    let two = [false, true];
    let cases = two.map(|is_split| {
        two.map(|is_replaced| {
            [(false, false), (true, false), (false, true)].map(|(is_parked, is_batch)| Case {
                is_split,
                is_parked,
                is_replaced,
                is_batch,
            })
        })
    });
    for case in cases.as_flattened().as_flattened() {
        let mut withdrawn = 0;
        for nth in 1.. {
            match withdraw_before(nth, *case) {
                None => return,
                Some(None) => break,
                Some(Some(is_withdrawn)) => withdrawn += u32::from(is_withdrawn),
            }
        }
        assert!(withdrawn > 0, "{case:?}");
    }
}

/// Lets another process withdraw a timer before call `nth` of its removal. Returns whether the timer ended as
/// withdrawn. The inner option is `None` if the removal has no such call, and the outer option without a server.
fn withdraw_before(nth: u32, case: Case) -> Option<Option<bool>> {
    let Two { store, other, link, server: _server, .. } =
        if case.is_split { start_split() } else { start(1) }?;
    let keyed = |number, due| Timer { key: Some("k".into()), due, ..once(number) };
    place(&store, keyed(1, super::PAST));
    if case.is_batch {
        place(&store, once(3));
    }
    if case.is_parked {
        assert_eq!(apply(&store, Op::Pause(id(1).into())), Outcome::Changed(id(1)));
    }
    let claimed = match case.is_parked {
        true => now(store.claim_parked(BY, 2, PAUSED.into(), 5, ALL)).unwrap(),
        false => now(store.claim(BY, 2, ALL, None)),
    };
    let new = keyed(2, super::PAST + super::pairs::DAY * 30_000);
    let (was_leased, is_reached) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (leased, reached) = (Arc::clone(&was_leased), Arc::clone(&is_reached));
    let withdraw = move || {
        reached.store(true, Ordering::Relaxed);
        let outcome = match case.is_replaced {
            true => apply(&other, Op::Place(Box::new(new), IfPresent::Replace)),
            false => apply(&other, Op::Cancel(id(1).into(), None)),
        };
        leased.store(
            match outcome {
                Outcome::InFlight(_) | Outcome::Replaced { was: Phase::Leased, .. } => true,
                Outcome::NotFound | Outcome::Created(_) => false,
                other => panic!("{case:?}: {other:?}"),
            },
            Ordering::Relaxed,
        );
    };
    link.at("", nth, Act::First(Box::new(withdraw)));
    let ops = removals(&claimed);
    assert_eq!(ops.len(), if case.is_batch { 2 } else { 1 });
    let mut outcomes = now(store.apply(ops, Durability::PowerLoss));
    // A later call must not withdraw.
    link.at("no script", 1, Act::Fail);
    let is_withdrawn = was_leased.load(Ordering::Relaxed);
    let phase = if is_withdrawn { Phase::Withdrawn } else { Phase::Done };
    assert_eq!(outcomes.remove(0), ended(1, phase), "{case:?}: before call {nth}");
    assert!(outcomes.iter().all(|outcome| *outcome == ended(3, Phase::Done)), "{outcomes:?}");
    let is_new_stored = case.is_replaced && is_reached.load(Ordering::Relaxed);
    assert_eq!(now(store.counts()).by_namespace.values().sum::<u64>(), u64::from(is_new_stored));
    assert_eq!(now(store.check()), []);
    Some(is_reached.load(Ordering::Relaxed).then_some(is_withdrawn))
}

/// Tests removals whose reply is lost, and that are sent again. The caller cannot know whether it was the first request
/// that has removed the timer. So no answer permits a second delivery.
#[test]
fn a_removal_whose_reply_is_lost_is_never_confirmed_twice() {
    for is_split in [false, true] {
        for count in [1, 2] {
            let Some(two) = (if is_split { start_split() } else { start(1) }) else { return };
            let Two { store, link, clock, server: _server, .. } = two;
            (1..=count).for_each(|number| place(&store, once(number)));
            let ops = removals(&now(store.claim(BY, 2, ALL, None)));
            // In a cluster, other scripts come before the commit. Timers without keys need none of them.
            link.at("", 1, Act::Lose);
            assert_eq!(kind(store.apply(ops.clone(), Durability::PowerLoss)), StoreErrorKind::Unknown);
            let outcomes = now(store.apply(ops, Durability::PowerLoss));
            assert_eq!(outcomes[0], Outcome::Refused(Refusal::Stale), "{is_split} {count}: {outcomes:?}");
            clock.advance(LEASE);
            let _reaped = now(store.reap(10));
            assert!(!ids(&now(store.claim(BY, 3, ALL, None))).contains(&id(1)), "{is_split} {count}");
            assert_eq!(now(store.check()), []);
        }
    }
}

/// Tests a claim and a recovery of its timers, and a removal that surely has no effect. The timers stay leased, and are
/// claimed again after the end of their leases.
#[test]
fn a_timer_at_most_once_that_is_not_removed_is_claimed_again() {
    for is_split in [false, true] {
        for is_parked in [false, true] {
            let Some(two) = (if is_split { start_split() } else { start(1) }) else { return };
            let Two { store, link, clock, server: _server, .. } = two;
            assert_eq!(ids(&now(store.claim(BY, 1, ALL, None))), []);
            place(&store, once(1));
            let claimed = match is_parked {
                true => {
                    assert_eq!(apply(&store, Op::Pause(id(1).into())), Outcome::Changed(id(1)));
                    link.at("take_parked", 1, Act::Lose);
                    kind(store.claim_parked(BY, 2, PAUSED.into(), 5, ALL))
                }
                false => {
                    // On one server, the first script of this claim only asks for the names of the slices.
                    link.at("lease", if is_split { 1 } else { 2 }, Act::Lose);
                    kind(store.claim(BY, 2, ALL, None))
                }
            };
            assert_eq!(claimed, StoreErrorKind::Unknown);
            let recovered = now(store.recover(BY, 2));
            assert_eq!(recovered.iter().map(|leased| leased.timer.id).collect::<Vec<_>>(), [id(1)]);
            link.at("commit", 1, Act::Fail);
            let removal = Op::Skip(id(1), recovered[0].token);
            assert_eq!(kind(store.apply(vec![removal.clone()], Durability::PowerLoss)), StoreErrorKind::Io);
            assert_eq!(now(store.get(id(1).into())).unwrap().state.phase(), Phase::Leased);
            clock.advance(LEASE);
            assert_eq!(now(store.reap(10)).returned, [id(1)]);
            assert_eq!(apply(&store, removal), Outcome::Refused(Refusal::Stale), "the lease is lost");
            assert_eq!(ids(&now(store.claim(BY, 3, ALL, None))), [id(1)]);
            assert_eq!(now(store.check()), []);
        }
    }
}
