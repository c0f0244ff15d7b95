//! F-28, F-35, T-10, T-18: damage, versions, keys that are taken, and servers that would evict.

use crate::common::*;
use std::time::Duration;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{IfPresent, Op, Outcome, StoreErrorKind, TimerStore};
use tourbillon_fault::Server;
use tourbillon_redis::check;

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
        let claimed: Vec<_> = (10..14).flat_map(|claim| now(store.claim(OTHER, claim, ALL)).leased).collect();
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

#[test]
fn another_layout_is_refused() {
    let Some(server) = Server::start(&[]) else { return };
    drop(open(builder(), &server.url()));
    server.command(&["HSET", "tb:{d}:deployment", "version", "99"]);
    assert_eq!(kind(builder().open(&single(&server.url()))), StoreErrorKind::NewerSchema);
    server.command(&["HSET", "tb:{d}:deployment", "version", "0"]);
    assert_eq!(kind(builder().open(&single(&server.url()))), StoreErrorKind::OlderSchema);
}

#[test]
fn a_record_of_a_later_version_is_set_aside_and_the_others_go_on() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(1);
    (1..=3).for_each(|number| place(&store, timer(number, store.now())));
    // In a record, the version follows the id and the length of the payload.
    let script = "local m = redis.call('ZRANGE', KEYS[1], 1, 1)[1] redis.call('ZREM', KEYS[1], m) \
                  redis.call('ZADD', KEYS[1], 0, string.sub(m, 1, 20) .. '\\250' .. string.sub(m, 22))";
    damage(&on.server, "records", script);
    let claimed = claim(&store, ONE, 1, 2);
    assert_eq!(ids(&claimed), [id(1), id(3)]);
    end(&store, &claimed);
    let counts = now(store.counts());
    assert_eq!((counts.quarantined, counts.of(Phase::Pending), counts.of(Phase::Leased)), (1, 0, 0));
    // The bytes are kept for a program that knows the version.
    let aside = keys(&on.server, "*:aside");
    assert_eq!(aside.len(), 1);
    let kept: Vec<Vec<u8>> = on.server.query(&["HVALS", &aside[0]]);
    assert_eq!(kept[0][20], 250);
}

#[test]
fn a_key_that_is_taken_names_its_holder_in_each_mode() {
    let Some(on) = Manual::start() else { return };
    let store = on.open(4);
    let due = store.now() + DAY;
    place(&store, keyed(1, "k", due));
    let new = keyed(2, "k", due + DAY);
    let outcome = apply(&store, Op::Place(Box::new(new.clone()), IfPresent::Reject));
    let Outcome::KeyExists { holder, refused } = outcome else { panic!("{outcome:?}") };
    assert_eq!((holder, refused.id), (id(1), id(2)));
    assert_eq!(
        apply(&store, Op::Place(Box::new(new.clone()), IfPresent::Keep)),
        Outcome::Kept { id: id(1), was: Phase::Pending }
    );
    let keeping = apply(&store, Op::Place(Box::new(new), IfPresent::ReplaceKeepDue));
    assert_eq!(keeping, Outcome::Replaced { new: id(2), old: id(1), was: Phase::Pending });
    assert_eq!(now(store.get(key("k"))).map(|timer| (timer.id, timer.due)), Some((id(2), due)));
    assert_eq!(apply(&store, placing(keyed(2, "k", due))), Outcome::Repeated(id(2)));
    let replaced = replace(&store, keyed(3, "k", store.now()));
    assert_eq!(replaced, Outcome::Replaced { new: id(3), old: id(2), was: Phase::Pending });

    // A timer that is replaced during its delivery loses the key. The end of its delivery does not touch the new timer.
    // A timer that is replaced while it is parked is removed.
    let claimed = claim(&store, ONE, 1, 1);
    let outcome = apply(&store, placing(keyed(4, "k", due)));
    assert!(matches!(outcome, Outcome::KeyExists { holder, .. } if holder == id(3)), "{outcome:?}");
    let replaced = replace(&store, keyed(4, "k", store.now()));
    assert_eq!(replaced, Outcome::Replaced { new: id(4), old: id(3), was: Phase::Leased });
    end(&store, &claimed);
    let claimed = claim(&store, ONE, 100, 1);
    let park = Op::Park(id(4), claimed[0].token, "why".into());
    assert!(matches!(apply(&store, park), Outcome::Ended { .. }));
    let outcome = apply(&store, placing(keyed(5, "k", due)));
    assert!(matches!(outcome, Outcome::KeyExists { holder, .. } if holder == id(4)), "{outcome:?}");
    let replaced = replace(&store, keyed(5, "k", due));
    assert_eq!(replaced, Outcome::Replaced { new: id(5), old: id(4), was: Phase::Parked });
    assert_eq!(now(store.get(key("k"))).map(|timer| timer.id), Some(id(5)));
    assert_eq!(count(&store), 1);
    is_whole(&store);
}

#[test]
fn a_server_that_would_evict_timers_is_refused() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        let Some(server) = Server::start(&["--maxmemory-policy", policy]) else { return };
        let report = pollster::block_on(check(&single(&server.url()))).unwrap();
        assert!(report.is_refused(), "{report}");
        assert!(report.to_string().contains(policy), "{report}");
        server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        let report = pollster::block_on(check(&single(&server.url()))).unwrap();
        assert!(!report.is_refused(), "{report}");
    }
}
