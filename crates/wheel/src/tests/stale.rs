//! Tests that a wheel keeps few stale tickets, and finds them.

use super::{Numbered, Random, Rig, check_sweep_bound, ticket};
use crate::ticket::CHUNK_TICKETS;
use crate::{Progress, Tick, TicketWheel, Wheel};
use alloc::vec::Vec;

/// No timer is live, and the stale tickets (requests to check ended timers) lie thinly over every slot of every level.
#[test]
fn the_sweep_bound_holds_for_timers_of_every_magnitude_cancelled_at_once() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(12_345));
        let mut random = Random(1);
        for _ in 0..60_000 {
            let id = wheel.insert(Tick(12_345).saturating_add(random.of_any_size()), ());
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
    }
    every_radix!(body);
}

/// Each slot has one live timer. The sweep (the removal of stale tickets) has just passed the slots with the stale
/// tickets.
#[test]
fn the_sweep_bound_holds_when_the_dead_lie_behind_the_sweep() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(0));
        for depth in 0..Rig::<BITS>::LEVELS {
            for slot in 1..=1 << BITS {
                if let Some(tick) = (1_u64 << (depth * BITS)).checked_mul(slot) {
                    wheel.insert(Tick(tick), ());
                }
            }
        }
        for at in 0..60_000 {
            let id = wheel.insert(Tick(1 + at % 20), ());
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
    }
    every_radix!(body);
}

/// The sweep (the removal of stale tickets) reaches all live tickets before all stale tickets. The timer of a live
/// ticket is cancelled as soon as the sweep has passed the ticket.
#[test]
fn the_sweep_bound_holds_when_timers_die_just_after_the_sweep_looked() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(0));
        let count = 60_000;
        let near = Rig::<BITS>::REVOLUTION;
        let mut living: Vec<_> =
            (0..count).map(|at| wheel.insert(Tick(1 + at * (near - 1) / count), ())).collect();
        let dead: Vec<_> = (0..count + 1_024).map(|_| wheel.insert(Tick(1 << 40), ())).collect();
        for id in dead {
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        for id in living.drain(..) {
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
    }
    every_radix!(body);
}

#[test]
fn the_sweep_bound_holds_when_timers_fire_and_only_the_dead_remain() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(0));
        for at in 0..30_000 {
            wheel.insert(Tick(1 + at % 40), ());
        }
        let dead: Vec<_> = (0..31_000).map(|at| wheel.insert(Tick(1_000_000 + at), ())).collect();
        for id in dead {
            wheel.cancel(id);
        }
        for tick in 1..=40 {
            let _ = wheel.advance(Tick(tick), usize::MAX, |wheel, _| check_sweep_bound(wheel));
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
        assert!(wheel.is_empty());
    }
    every_radix!(body);
}

/// The timers are due when they are inserted, so their tickets are in no level's slot.
#[test]
fn the_sweep_bound_holds_for_timers_that_were_due_when_they_came() {
    let mut wheel = Wheel::<(), 8>::new(Tick(10));
    let storm = |wheel: &mut Wheel<(), 8>| {
        for at in 0..20_000 {
            let id = wheel.insert(Tick(at % 11), ());
            wheel.cancel(id);
            check_sweep_bound(wheel);
        }
        wheel.check_invariants();
    };
    storm(&mut wheel);
    // The same holds among the tickets that a budget has left over.
    let ids: Vec<_> = (0..10_000).map(|_| wheel.insert(Tick(0), ())).collect();
    while wheel.len() == 10_000 {
        let _ = wheel.advance(Tick(10), 1, |_, _| ());
    }
    storm(&mut wheel);
    for id in ids {
        wheel.cancel(id);
        check_sweep_bound(&wheel);
    }
    wheel.check_invariants();
}

#[test]
fn the_sweep_bound_holds_in_a_cancel_storm_of_any_order_while_time_passes() {
    fn body<const BITS: u32>() {
        for order in 0..3 {
            let mut wheel = Wheel::<(), BITS>::new(Tick(0));
            let mut random = Random(3);
            let mut ids: Vec<_> =
                (0..40_000).map(|_| wheel.insert(Tick(1_000 + random.below(60_000)), ())).collect();
            match order {
                0 => {}
                1 => ids.reverse(),
                _ => random.shuffle(&mut ids),
            }
            for (at, id) in ids.into_iter().enumerate() {
                assert!(wheel.cancel(id).is_some());
                check_sweep_bound(&wheel);
                if at % 40 == 0 {
                    let _ = wheel.advance(Tick(at as u64 / 40), 1_000, |_, _| unreachable!());
                }
            }
            wheel.check_invariants();
            assert_eq!((wheel.len(), wheel.next_expiry()), (0, None));
        }
    }
    every_radix!(body);
}

#[test]
fn a_whole_pass_of_the_sweep_drops_all_that_is_stale_and_nothing_else() {
    let mut wheel = TicketWheel::<Numbered, 6>::new(Tick(0));
    let mut random = Random(11);
    for index in 0..20_000 {
        // There are thin slots, and one of many chunks.
        let tick = if index % 2 == 0 { random.of_any_size() } else { 1 << 30 };
        wheel.insert(ticket(tick.max(1), index));
    }
    for divisor in [2, 3, 6] {
        let is_live = |&(_, number): &Numbered| number.is_multiple_of(divisor);
        let mut calls = 0;
        while !wheel.sweep(CHUNK_TICKETS, is_live) {
            wheel.check_invariants();
            calls += 1;
        }
        assert!(calls < 3_000, "each call looks at a chunk's worth");
    }
    assert_eq!(wheel.len(), 20_000_usize.div_ceil(6));
    while !wheel.sweep(7 * CHUNK_TICKETS, |_| false) {}
    wheel.check_invariants();
    assert_eq!((wheel.len(), wheel.wake_tick()), (0, None));
}

#[test]
fn chunks_are_searched_as_they_move_while_many_tickets_are_stale_and_by_samples_otherwise() {
    const TICKETS: usize = 64 * CHUNK_TICKETS;
    /// Returns the number of tickets that the wheel checks for being stale while it moves `TICKETS` tickets to a finer
    /// level once. Every `stale`-th ticket is stale.
    fn searched(stale: u32) -> usize {
        let mut wheel = TicketWheel::<Numbered, 8>::new(Tick(0));
        for index in 0..TICKETS {
            wheel.insert(ticket(512, u32::try_from(index).unwrap()));
        }
        let mut searched = 0;
        let is_live = |ticket: &Numbered| {
            searched += 1;
            !ticket.1.is_multiple_of(stale)
        };
        let mut fired = 0;
        assert_eq!(
            wheel.advance(Tick(512), usize::MAX, is_live, |chunk| fired += chunk.len()),
            Progress::Settled
        );
        let stale = TICKETS.div_ceil(stale as usize);
        assert!(fired >= TICKETS - stale && fired <= TICKETS, "{fired} fired");
        searched
    }
    assert_eq!(searched(2), TICKETS);
    assert_eq!(searched(4), TICKETS);
    // The first, the third and the seventh chunk; from then on, one of eight.
    assert_eq!(searched(u32::MAX), (3 + (64_usize - 14).div_ceil(8)) * CHUNK_TICKETS);
}
