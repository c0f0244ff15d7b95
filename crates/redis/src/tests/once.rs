//! Tests timers that are delivered at most once, which a claim leases and then removes.

use super::faults::{ALL, Act, BY, Two, apply, id, ids, now, place, start, start_split, timer};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{IfPresent, Op, Outcome, PAUSED, TimerStore};
use tourbillon_durable::timer::Timer;

/// Tests timers that another process cancels or replaces after a claim has leased them, and before it removes them.
#[test]
fn a_timer_at_most_once_that_is_withdrawn_before_its_removal_is_not_claimed() {
    for is_split in [false, true] {
        for is_parked in [false, true] {
            for is_replaced in [false, true] {
                let Some(two) = (if is_split { start_split() } else { start(1) }) else { return };
                assert_withdrawn_before_removal(two, is_parked, is_replaced);
            }
        }
    }
}

fn assert_withdrawn_before_removal(two: Two, is_parked: bool, is_replaced: bool) {
    let Two { store, other, link, server: _server, .. } = two;
    let once = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    let keyed = |number, due| Timer { key: Some("k".into()), policy: once.clone(), ..timer(number, due) };
    place(&store, keyed(1, 5));
    if is_parked {
        assert_eq!(apply(&store, Op::Pause(id(1).into())), Outcome::Changed(id(1)));
    }
    let new = keyed(2, 1 << 40);
    let withdraw = move || match is_replaced {
        true => {
            let outcome = apply(&other, Op::Place(Box::new(new), IfPresent::Replace));
            assert_eq!(outcome, Outcome::Replaced { new: id(2), old: id(1), was: Phase::Leased });
        }
        false => assert_eq!(apply(&other, Op::Cancel(id(1).into(), None)), Outcome::InFlight(id(1))),
    };
    link.at("commit", 1, Act::First(Box::new(withdraw)));
    let claimed = match is_parked {
        true => now(store.claim_parked(BY, 2, PAUSED.into(), 5, ALL)).unwrap(),
        false => now(store.claim(BY, 2, ALL, None)),
    };
    assert_eq!(ids(&claimed), [], "the withdrawal was confirmed");
    let withdrawn: Vec<_> = claimed.withdrawn.iter().map(|timer| (timer.id, timer.deliveries)).collect();
    assert_eq!(withdrawn, [(id(1), 0)]);
    assert_eq!(now(store.counts()).by_namespace.values().sum::<u64>(), u64::from(is_replaced));
    assert_eq!(now(store.check()), []);
}
