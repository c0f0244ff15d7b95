//! F-26, F-27, F-31, F-32: many timers at once, and races for one timer.

use crate::common::*;
use std::collections::HashSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Limit, Op, Outcome, TimerStore};
use tourbillon_durable::timer::{Payload, Timer};
use tourbillon_redis::RedisStore;

#[test]
fn after_a_downtime_the_longest_due_come_first_and_no_slice_is_left() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(8);
    let begin = store.now();
    // The timers become due within two hours in which no process runs. Their ids are in another order.
    let timers = (0..6_000_u64).map(|number| {
        let due = begin + Duration::from_millis(number * 7_919 % 7_200_000);
        timer(u128::from(number) + 1, due)
    });
    now(store.import(timers.collect()));
    on.clock.advance(Duration::from_secs(7_200));
    let (mut last, mut number, mut seen) = (UtcMillis::ZERO, 0, HashSet::new());
    until("the timers are not claimed", || {
        number += 1;
        let claimed = now(store.claim(ONE, number, Limit { timers: 500, ..ALL }, None)).leased;
        for leased in &claimed {
            assert!(last <= leased.timer.due, "{:?} after {last:?}", leased.timer.due);
            last = leased.timer.due;
            assert!(seen.insert(leased.timer.id), "one claim has it");
        }
        end(&store, &claimed);
        seen.len() == 6_000
    });
    is_whole(&store);
    is_empty(&on.server);
}

/// Stores `count` timers in one slice (set of pending timers) of one shard, and claims a hundred at a time. Returns the
/// median time of a claim, and the number of commands that took more than five milliseconds.
fn claims_among(count: u128) -> Option<(Duration, i64)> {
    let on = Manual::start()?;
    let store = on.open(1);
    let due = store.now();
    for first in (0..count).step_by(10_000) {
        now(store.import((first..(first + 10_000).min(count)).map(|number| timer(number + 1, due)).collect()));
    }
    on.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "5000"]);
    on.server.command(&["SLOWLOG", "RESET"]);
    let mut took: Vec<Duration> = (1..=40)
        .map(|number| {
            let begin = Instant::now();
            let claimed = now(store.claim(ONE, number, Limit { timers: 100, ..ALL }, None));
            let took = begin.elapsed();
            if number > 1 {
                assert_eq!(claimed.leased.len(), 100);
                end(&store, &claimed.leased);
            }
            took
        })
        .collect();
    let slow: i64 = on.server.query(&["SLOWLOG", "LEN"]);
    took.sort_unstable();
    let median = took[took.len() / 2];
    tell(&format!("a claim of 100 among {count} timers: {median:?}; {slow} commands over 5 ms"));
    Some((median, slow))
}

/// Tests that the cost of a claim depends on the number of timers that the claim takes, not on the number of stored
/// timers. The test has no limit in milliseconds, because a busy machine would exceed it.
#[test]
fn a_claim_among_very_many_timers_of_one_slice_costs_as_much_as_among_few() {
    let (Some((few, _)), Some((many, _))) = (claims_among(5_000), claims_among(50_000)) else { return };
    assert!(many < 10 * few + Duration::from_millis(20), "{many:?} among many, {few:?} among few");
}

#[test]
#[ignore = "a million timers, and a limit in milliseconds for a machine that does nothing else"]
fn no_script_among_a_million_timers_of_one_slice_takes_five_milliseconds() {
    let Some((_, slow)) = claims_among(size("TOURBILLON_SLICE", 1_000_000).into()) else { return };
    assert_eq!(slow, 0, "commands took longer than 5 ms");
}

/// Claims and cancels one timer at the same time, in each of `rounds` rounds. A timer is not delivered if its cancel
/// succeeded.
fn race(rounds: u128) {
    let Some(on) = Manual::start() else { return };
    let (holder, caller) = (on.open(2), on.open(2));
    nothing(&holder, ONE, 1);
    let (mut cancelled, mut in_flight) = (0, 0);
    for round in 1..=rounds {
        place(&caller, timer(round, holder.now()));
        let start = Barrier::new(2);
        let (claimed, outcome) = std::thread::scope(|scope| {
            let claiming = scope.spawn(|| {
                start.wait();
                now(holder.claim(ONE, u64::try_from(round).unwrap() + 10, ALL, None)).leased
            });
            start.wait();
            // The pause differs from round to round, so that each side is first in some rounds.
            std::thread::sleep(Duration::from_micros(u64::try_from(round % 8).unwrap() * 40));
            let outcome = apply(&caller, Op::Cancel(id(round).into(), None));
            (claiming.join().unwrap(), outcome)
        });
        match outcome {
            Outcome::Cancelled(_) => {
                assert_eq!(ids(&claimed), [], "a delivery of a cancelled timer begins");
                cancelled += 1;
            }
            Outcome::InFlight(_) => {
                assert_eq!(ids(&claimed), [id(round)]);
                end(&holder, &claimed);
                in_flight += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    nothing(&holder, ONE, 1 << 40);
    assert_eq!(cancelled + in_flight, rounds);
    tell(&format!("{rounds} races: {cancelled} cancelled, {in_flight} delivered"));
    assert!(cancelled > 0, "the claims were always first");
    assert!(in_flight > 0, "the cancels were always first");
    is_whole(&caller);
}

#[test]
fn a_timer_that_is_cancelled_at_its_due_moment_is_cancelled_or_delivered_and_never_both() {
    race(size("TOURBILLON_RACES", 300).into());
}

fn generation(number: u128, due: UtcMillis) -> Timer {
    let payload = Payload(number.to_string().into_bytes().into());
    Timer { payload, ..keyed(number, "idle", due) }
}

/// Replaces the timer of one key a thousand times. The stores `stores` take turns.
fn storm(stores: &[&RedisStore], due: UtcMillis) {
    for number in 1..=1_000_u128 {
        let store = stores[usize::try_from(number).unwrap() % stores.len()];
        let outcome = replace(store, generation(number, due));
        let is_replaced =
            matches!(outcome, Outcome::Replaced { old, was: Phase::Pending, .. } if old == id(number - 1));
        assert!(is_replaced || number == 1, "{outcome:?}");
    }
}

#[test]
fn a_key_that_is_replaced_a_thousand_times_is_delivered_once_and_leaves_nothing() {
    let Some(on) = Manual::start() else { return };
    let (store, other) = (on.open(4), on.open(4));
    let due = store.now() + Duration::from_secs(30);
    storm(&[&store, &other], due);
    assert_eq!(count(&store), 1);
    is_whole(&store);
    on.clock.advance(Duration::from_secs(30));
    let claimed = claim(&store, ONE, 1, 1);
    assert_eq!(&*claimed[0].timer.payload.0, b"1000");
    end(&store, &claimed);
    nothing(&store, ONE, 100);
    is_whole(&store);
    is_empty(&on.server);
}
