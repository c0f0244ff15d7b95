//! F-34: of the eight defects of the reference wheel, those that the other suites do not look for.

use crate::common::*;
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Limit, TimerStore};
use tourbillon_durable::timer::{Payload, Timer};
use tourbillon_fault::Server;

const HOUR: u64 = 3_600_000;

#[test]
fn no_timer_is_claimed_a_millisecond_early() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(2);
    let begin = store.now();
    for number in 1..=3_u64 {
        place(&store, timer(u128::from(number), begin + Duration::from_millis(number * 1_000)));
    }
    let mut claims = 1;
    for number in 1..=3_u64 {
        on.clock.advance(Duration::from_millis(999));
        nothing(&store, ONE, claims);
        on.clock.advance(Duration::from_millis(1));
        assert_eq!(ids(&claim(&store, ONE, claims + 10, 1)), [id(number.into())]);
        claims += 100;
    }
    // A timer is not early either if another timer of its slice is due already.
    let begin = store.now();
    for number in [4, 5] {
        place(&store, timer(u128::from(number), begin + Duration::from_millis(number)));
    }
    on.clock.advance(Duration::from_millis(4));
    assert_eq!(ids(&now(store.claim(ONE, claims, ALL, None)).leased), [id(4)]);
    on.clock.advance(Duration::from_millis(1));
    assert_eq!(ids(&now(store.claim(ONE, claims + 1, ALL, None)).leased), [id(5)]);
}

#[test]
fn a_slice_follows_from_utc_and_from_no_zone() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(1);
    // The first moment is in an hour that Europe's local time has twice: 0:30 UTC on 2026-10-25. The second moment is
    // 2:30.
    let moments = [1_792_888_200_000_u64, 1_792_895_400_000];
    for (number, moment) in moments.into_iter().enumerate() {
        place(&store, timer(number as u128 + 1, UtcMillis::from_millis(moment)));
    }
    // A slice's number is its period times 64, the number of lanes, plus its lane.
    let number = |key: String| key.rsplit(':').next().unwrap().parse::<u64>().unwrap() / 64;
    let mut periods: Vec<u64> = keys(&on.server, "*:q:*").into_iter().map(number).collect();
    periods.sort_unstable();
    assert_eq!(periods, moments.map(|moment| moment / (2 * HOUR)));
}

#[test]
fn the_timers_of_one_minute_are_in_all_shards_and_leave_no_keys() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(16);
    (1..=400).for_each(|number| place(&store, timer(number, store.now())));
    let slices = keys(&on.server, "*:q:*");
    assert_eq!(slices.len(), 16, "{slices:?}");
    for slice in slices {
        let count: u64 = on.server.query(&["ZCARD", &slice]);
        assert!((5..=60).contains(&count), "{count} of 400 timers in one of 16 shards");
    }
    end(&store, &claim(&store, ONE, 1, 400));
    is_empty(&on.server);
}

#[test]
fn scripts_are_sent_by_name_and_answers_are_bounded() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(builder().shards(4), &server.url());
    let due = store.now();
    now(store.import((1..=3_000).map(|number| timer(number, due)).collect()));
    for number in 1..=50 {
        place(&store, timer(10_000 + number, due));
    }
    let limit = Limit { timers: 100, ..ALL };
    let claimed: Vec<_> =
        (1..=10).map(|claim| now(store.claim(ONE, claim, limit, None)).leased.len()).collect();
    assert!(claimed.iter().all(|count| *count <= 100) && claimed.contains(&100), "{claimed:?}");
    let few = Limit { timers: u32::MAX, bytes: 1 };
    let payload = |number| Timer { payload: Payload(vec![0; 1_000].into()), ..timer(number, due) };
    (20_001..=20_010).for_each(|number| place(&store, payload(number)));
    // A claim with a limit of bytes ends with the payload that reaches the limit.
    let bytes = |claim| -> usize {
        let leased = now(store.claim(ONE, claim, few, None)).leased;
        leased.iter().map(|leased| leased.timer.payload.0.len()).sum()
    };
    assert!((20..40).all(|claim| bytes(claim) <= 1_000));
    let stats: String = server.query(&["INFO", "commandstats"]);
    let calls = |command: &str| -> u64 {
        let field = format!("cmdstat_{command}:calls=");
        let value = stats.lines().find_map(|line| line.strip_prefix(&field)?.split(',').next()?.parse().ok());
        value.unwrap_or(0)
    };
    assert!(calls("evalsha") > 60, "{stats}");
    assert!(calls("eval") < 20, "texts of scripts are sent once: {stats}");
    assert_eq!(calls("smembers") + calls("keys") + calls("scan"), 0, "{stats}");
}
