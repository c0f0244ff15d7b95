//! F-28: damage.

use crate::common::*;
use std::time::Duration;
use tourbillon_durable::store::{Filter, StoreErrorKind, TimerStore};

#[test]
fn members_that_are_gone_are_reported_and_hold_nothing_up() {
    let gone = [
        ("leases", "redis.call('ZREM', KEYS[1], redis.call('ZRANGE', KEYS[1], 0, 0)[1])"),
        ("tokens", "redis.call('HDEL', KEYS[1], redis.call('HKEYS', KEYS[1])[1])"),
        ("records", "redis.call('ZREM', KEYS[1], redis.call('ZRANGE', KEYS[1], 0, 0)[1])"),
        ("k:*", "redis.call('ZREM', KEYS[1], redis.call('ZRANGE', KEYS[1], 0, 0)[1])"),
        ("slices", "redis.call('DEL', KEYS[1])"),
        ("counts", "redis.call('DEL', KEYS[1])"),
    ];
    for (part, script) in gone {
        let Some(on) = Manual::start() else { return };
        let store = on.open(1);
        (1..=4).for_each(|number| place(&store, keyed(number, &format!("k{number}"), store.now())));
        let claimed = claim(&store, ONE, 1, 2);
        assert_eq!(claimed.len(), 2);
        is_whole(&store);
        damage(&on.server, part, script);
        let faults = now(store.check());
        assert!(!faults.is_empty(), "the check does not see that {part} were damaged");
        // The damage stops neither claims nor new timers.
        place(&store, timer(9, store.now()));
        on.clock.advance(GONE);
        drop(now(store.reap(100)));
        let claimed: Vec<_> =
            (10..14).flat_map(|claim| now(store.claim(OTHER, claim, ALL, None)).leased).collect();
        assert!(ids(&claimed).contains(&id(9)), "{part}: {:?}", ids(&claimed));
    }
}

/// Tests a lease that has lost the entry with its end. The owner of the shard gives the lease an end, so its timer
/// comes back.
#[test]
fn a_timer_whose_lease_entry_is_gone_comes_back() {
    let Some(on) = Manual::start() else { return };
    let holder = on.open(2);
    // Each shard gets more tokens than a step of the sweep reads.
    now(holder.import((1..=4_000).map(|number| timer(number, holder.now())).collect()));
    assert_eq!(claim(&holder, ONE, 1, 4_000).len(), 4_000);
    for part in keys(&on.server, "*:leases") {
        on.server.command(&["ZPOPMIN", &part, "3"]);
    }
    assert_eq!(now(holder.check()).len(), 6, "of each shard three");
    now(holder.leave());
    let polling = builder().poll(Some(Duration::from_millis(1))).test_clock(on.clock.clone());
    let store = open(polling, &on.server.url());
    nothing(&store, OTHER, 1);
    until("the leases have ends again", || now(store.check()).is_empty());
    // The leases have not ended yet, so a holder that lives could still end them.
    assert_eq!(now(store.reap(u32::MAX)).returned, []);
    on.clock.advance(GONE);
    assert_eq!(now(store.reap(u32::MAX)).returned.len(), 4_000);
    is_whole(&store);
}

#[test]
fn a_shard_whose_records_were_evicted_is_reported() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(1);
    (1..=4).for_each(|number| place(&store, timer(number, store.now() + DAY)));
    damage(&on.server, "records", "redis.call('DEL', KEYS[1])");
    let faults = now(store.check());
    assert!(faults.iter().any(|fault| fault.table == "slices"), "{faults:?}");
    on.clock.advance(2 * DAY);
    // The entries of the lost timers are dropped as they become due.
    nothing(&store, ONE, 1);
    let faults = now(store.check());
    assert!(faults.iter().all(|fault| fault.table != "slices"), "{faults:?}");
    place(&store, timer(9, store.now()));
    assert_eq!(ids(&claim(&store, ONE, 10, 1)), [id(9)]);
}

/// Tests that the check goes on after a key that has data of another type, and that a read has no unknown outcome.
#[test]
fn a_key_of_a_wrong_type_is_named_by_the_check() {
    for part in ["leases", "tokens", "records", "counts", "slices", "k:*"] {
        let Some(on) = Manual::start() else { return };
        let store = on.open(1);
        (1..=2).for_each(|number| place(&store, keyed(number, &format!("k{number}"), store.now())));
        assert_eq!(claim(&store, ONE, 1, 1).len(), 1);
        damage(&on.server, part, "redis.call('SET', KEYS[1], 'x')");
        let faults: Vec<String> = now(store.check()).iter().map(ToString::to_string).collect();
        assert!(!faults.is_empty(), "{part}");
        for fault in faults {
            assert!(fault.contains("of shard 0 is a string, and not a "), "{fault}");
            assert!(fault.contains(part.trim_end_matches('*')), "{fault}");
        }
        if part == "records" {
            let listed = pollster::block_on(store.list(Filter::default(), None, 10));
            assert_eq!(listed.unwrap_err().kind(), StoreErrorKind::Io, "a read changes nothing");
        }
    }
}
