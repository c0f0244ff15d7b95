//! Tests that timers fire in their ticks: at the edges of slots and levels, and at the ends of time.

use super::{Random, Rig};
use crate::Tick;

#[test]
fn a_timer_fires_in_its_tick_and_not_in_the_one_before() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        for delay in [1, 2, 10, 1_000] {
            let tick = rig.wheel.position().0 + delay;
            rig.insert(tick);
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick]);
        }
    }
    every_radix!(body);
}

#[test]
fn a_deadline_in_the_past_or_now_fires_on_the_next_advance_even_one_by_nothing() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(1_000);
        for tick in [0, 1, 999, 1_000] {
            rig.insert(tick);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick(1_000)));
            assert_eq!(rig.advance(1_000), [tick]);
            rig.insert(tick);
            assert_eq!(rig.advance(0), [tick]);
        }
    }
    every_radix!(body);
}

#[test]
fn a_cancelled_deadline_in_the_past_does_not_fire() {
    let mut rig = Rig::<8>::at(1_000);
    let id = rig.insert(3);
    rig.insert(4);
    rig.cancel(id);
    assert_eq!(rig.advance(1_000), [4]);
}

#[test]
fn level_boundaries_are_met_one_tick_before_at_and_after() {
    fn body<const BITS: u32>() {
        for depth in 1..Rig::<BITS>::LEVELS {
            let width = 1_u64 << (depth * BITS);
            // The ticks are in a level's first slot; in its last slot of this revolution and first of the next; in the
            // ring's last slot and beyond.
            for slots in [1, 2, Rig::<BITS>::REVOLUTION, Rig::<BITS>::RING] {
                let Some(boundary) = width.checked_mul(slots) else { continue };
                for start in [0, 1, width - 1, width, width / 3] {
                    let mut rig = Rig::<BITS>::at(start);
                    let ticks = [boundary - 1, boundary, boundary.saturating_add(1)];
                    for tick in ticks {
                        rig.insert(start.saturating_add(tick));
                    }
                    for tick in ticks.map(|tick| start.saturating_add(tick)) {
                        rig.advance(tick - 1);
                        let expected = rig.pending.values().filter(|&&pending| pending == tick).count();
                        assert_eq!(rig.advance(tick).len(), expected);
                    }
                    assert!(rig.wheel.is_empty());
                }
            }
        }
    }
    every_radix!(body);
}

#[test]
fn the_first_tick_of_a_coarse_slot_fires_on_time_after_its_cascade() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        for depth in 1..Rig::<BITS>::LEVELS {
            for slot in [1, 2, 3, (1 << BITS) - 1, 1 << BITS] {
                if let Some(tick) = (1_u64 << (depth * BITS)).checked_mul(slot) {
                    rig.insert(tick);
                }
            }
        }
        while let Some(&first) = rig.pending.values().min() {
            assert_eq!(rig.advance(first - 1), []);
            assert!(rig.advance(first).iter().all(|&tick| tick == first));
        }
    }
    every_radix!(body);
}

#[test]
fn a_timer_many_revolutions_ahead_is_reached_in_uneven_steps() {
    fn body<const BITS: u32>() {
        for depth in 0..4 {
            let revolution = 1_u64 << ((depth + 1) * BITS);
            let mut rig = Rig::<BITS>::at(17);
            let tick = 17 + 5 * revolution + 3;
            rig.insert(tick);
            let mut random = Random(7 + u64::from(depth));
            loop {
                let to = rig.wheel.position().0 + 1 + random.below(revolution);
                if to >= tick {
                    break;
                }
                assert_eq!(rig.advance(to), []);
            }
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick]);
        }
    }
    every_radix!(body);
}

#[test]
fn timers_that_share_a_ring_slot_but_not_a_round_fire_in_their_own_rounds() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        // The ticks are the same tick twice, one revolution later, and the same ring index two revolutions later and so
        // on.
        let rounds = [5, 5, 5 + Rig::<BITS>::REVOLUTION, 5 + Rig::<BITS>::RING, 5 + 2 * Rig::<BITS>::RING];
        for tick in rounds {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(4), []);
        assert_eq!(rig.advance(5), [5, 5]);
        for &tick in &rounds[2..] {
            // New timers for the tick meet timers that have come down from coarser levels.
            rig.advance(tick - 2);
            rig.insert(tick);
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick, tick]);
        }
        assert_eq!(rig.wheel.tickets(), 0);
    }
    every_radix!(body);
}

// The ends of time.

#[test]
fn the_last_tick_of_all_is_a_tick_like_any_other() {
    fn body<const BITS: u32>() {
        for start in [0, 1, 1 << 63, u64::MAX - 1] {
            let mut rig = Rig::<BITS>::at(start);
            rig.insert(u64::MAX);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick::MAX));
            rig.advance(u64::MAX - 1);
            rig.insert(u64::MAX);
            assert_eq!(rig.advance(u64::MAX), [u64::MAX; 2]);
            // Time is over, but the wheel still works.
            rig.insert(u64::MAX);
            rig.insert(0);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick::MAX));
            assert_eq!(rig.advance(u64::MAX), [0, u64::MAX]);
            assert_eq!(rig.wheel.next_expiry(), None);
        }
    }
    every_radix!(body);
}

#[test]
fn a_wheel_that_starts_ten_ticks_before_the_last_fires_them_all() {
    fn body<const BITS: u32>() {
        let start = u64::MAX - 10;
        let mut rig = Rig::<BITS>::at(start);
        for tick in start - 1..=u64::MAX {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(start), [start - 1, start]);
        for tick in start + 1..=u64::MAX {
            assert_eq!(rig.advance(tick), [tick]);
        }
        assert!(rig.wheel.is_empty());
    }
    every_radix!(body);
}

#[test]
fn every_slot_of_the_top_level_is_reached() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        let width = 1_u64 << ((Rig::<BITS>::LEVELS - 1) * BITS);
        let slots = u64::MAX / width;
        for slot in 0..=slots {
            rig.insert(slot * width + slot);
        }
        assert_eq!(rig.advance(0), [0]);
        for slot in 1..=slots {
            let tick = slot * width + slot;
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick]);
        }
    }
    every_radix!(body);
}

/// Near timers fire on time beside a far timer, at any uptime. In tokio#8334, a far timer hid all near timers after
/// 2^30 ticks of uptime.
#[test]
fn near_timers_fire_on_time_at_any_uptime_beside_one_far_away() {
    fn body<const BITS: u32>() {
        for uptime in
            [0, 1 << 30, (1 << 30) - 3, 1 << 36, (1 << 36) - 3, (1 << 42) - 1, 1 << 63, (1 << 63) - 2]
        {
            for far in
                [u64::MAX, u64::MAX - 1, u64::MAX - (1 << 36), uptime + (1 << 36) + 1, uptime + (1 << 42)]
            {
                let mut rig = Rig::<BITS>::at(uptime);
                rig.insert(far);
                for delay in [1, 3, 4, 60, 255, 256, 257, 511, 512, 5_000, 70_000] {
                    let tick = rig.wheel.position().0 + delay;
                    rig.insert(tick);
                    assert_eq!(rig.advance(tick - 1), []);
                    assert_eq!(rig.advance(tick), [tick]);
                }
                assert_eq!(rig.advance(far), [far]);
            }
        }
    }
    every_radix!(body);
}
