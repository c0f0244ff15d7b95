//! Loops that the test steps by hand, compared with a sorted list.

use crate::support::{MS, Rng, assert_settled};
use crate::{at, elsewhere, index, recording, settle};
use std::collections::BTreeMap;
use tourbillon::{Armed, Builder, Cancel, Disarm, ManualClock, Timestamp};

/// A timer in a sorted list. The test compares the loops with the list.
#[derive(Clone, Copy, Debug)]
struct Expected {
    deadline: Timestamp,
    shard: usize,
}

/// Loops that are stepped by hand agree with a sorted list. Each timer fires on its own shard and not before its
/// deadline. If the loop turns, the timer fires at most a tick after the deadline. A cancelled or disarmed timer does
/// not fire.
#[test]
fn stepped_loops_do_what_a_sorted_list_does() {
    let seed = std::env::var("TOURBILLON_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in seed..seed + 20 {
        play_against_a_list(seed);
    }
}

fn play_against_a_list(seed: u64) {
    const LOOPS: usize = 3;
    const OWNED: u64 = 8;
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(LOOPS).unwrap();
    let (engine, log) = recording(&shards);
    let timers = engine.handle();
    let owned: Vec<_> = (0..OWNED).map(|n| timers.timer(n).unwrap()).collect();
    let mut rng = Rng::new(seed);
    let (mut now, mut next) = (at(0), OWNED);
    let mut list: BTreeMap<u64, Expected> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    loops.iter_mut().for_each(|shard| settle(shard, now));
    for step in 0..3_000 {
        let shard = rng.index(LOOPS);
        let deadline = now + rng.nanos_below(if step % 7 == 0 { 10_000 * MS } else { 30 * MS });
        let pick = rng.below(100);
        let one = ids.keys().copied().nth(index(pick) % ids.len().max(1));
        let own = pick % OWNED;
        match rng.below(9) {
            0..=2 => {
                let arm = || timers.on(shard).schedule_at(deadline, next).unwrap();
                ids.insert(next, if pick.is_multiple_of(2) { arm() } else { elsewhere(arm) });
                list.insert(next, Expected { deadline, shard });
                next += 1;
            }
            3 => {
                let Some((payload, id)) = one.and_then(|one| ids.remove_entry(&one)) else { continue };
                assert_eq!(timers.cancel(id), Cancel::Cancelled(payload), "seed {seed}");
                list.remove(&payload);
            }
            4 => {
                let Some(one) = one else { continue };
                let moved = timers.on(shard).reschedule_at(ids[&one], deadline).unwrap();
                ids.insert(one, moved);
                list.insert(one, Expected { deadline, shard });
            }
            5 => {
                let armed = timers.on(shard).arm_at(&owned[index(own)], deadline);
                assert_eq!(armed, Ok(Armed::Pending), "seed {seed}");
                list.insert(own, Expected { deadline, shard });
            }
            6 => {
                let was = owned[index(own)].disarm();
                assert_eq!(was == Disarm::Disarmed, list.remove(&own).is_some(), "seed {seed}");
            }
            _ => {
                now = now + rng.nanos_below(5 * MS);
                clock.set(now);
                // The loop's next moment is at most a tick after its first deadline.
                let first =
                    list.values().filter(|timer| timer.shard == shard).map(|timer| timer.deadline).min();
                if let Some(first) = first {
                    assert!(loops[shard].next_deadline().unwrap() <= first + MS, "seed {seed}: overslept");
                }
                settle(&mut loops[shard], now);
                for payload in log.take() {
                    ids.remove(&payload);
                    let timer =
                        list.remove(&payload).unwrap_or_else(|| panic!("seed {seed}: {payload} fired"));
                    assert!(
                        timer.deadline <= now && timer.shard == shard,
                        "seed {seed}: {timer:?} at {now:?}"
                    );
                }
                let late = list.values().find(|timer| timer.shard == shard && timer.deadline + MS <= now);
                assert!(late.is_none(), "seed {seed}: {late:?} has not fired at {now:?}");
            }
        }
    }
    let mut returned: Vec<u64> = timers.shutdown().into_iter().map(|left| left.payload).collect();
    returned.sort_unstable();
    assert_eq!(returned, ids.into_keys().collect::<Vec<_>>(), "seed {seed}");
    assert_settled(&timers.stats());
}
