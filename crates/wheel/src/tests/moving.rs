//! Tests that move timers to another tick.

use super::{Random, Rig, check_sweep_bound};
use crate::{Expired, Progress, Tick, Wheel};
use alloc::vec::Vec;

#[test]
fn a_moved_timer_fires_once_at_its_last_tick_and_keeps_its_id() {
    fn body<const BITS: u32>() {
        let width = Rig::<BITS>::REVOLUTION;
        for (first, then) in
            [(10, 11), (11, 10), (10, 10), (5, 3 * width), (3 * width, 5), (1 << 40, 7), (7, 1 << 40)]
        {
            let mut rig = Rig::<BITS>::at(2);
            let id = rig.insert(first);
            rig.reschedule(id, then);
            assert_eq!(rig.advance(then - 1), []);
            rig.reschedule(id, then);
            assert_eq!(rig.advance(then), [then]);
            rig.reschedule(id, then + 1);
            rig.cancel(id);
            assert_eq!(rig.advance(u64::MAX), []);
        }
    }
    every_radix!(body);
}

#[test]
fn a_timer_moved_to_the_past_fires_on_the_next_advance() {
    let mut rig = Rig::<8>::at(1_000);
    let id = rig.insert(5_000);
    rig.reschedule(id, 3);
    rig.reschedule(id, 4);
    assert_eq!(rig.wheel.next_expiry(), Some(Tick(1_000)));
    assert_eq!(rig.advance(1_000), [4]);
}

/// Half of the timers that are due together move the other half to later ticks. The moved timers must not fire in this
/// advance.
#[test]
fn the_fire_closure_may_move_those_that_are_due_with_it() {
    let mut wheel = Wheel::<u64>::new(Tick(0));
    let ids: Vec<_> = (0..1_000).map(|number| wheel.insert(Tick(5), number)).collect();
    let mut moved = Vec::new();
    let mut fired = Vec::new();
    let progress = wheel.advance(Tick(5), usize::MAX, |wheel, Expired { id, payload, .. }| {
        assert!(!wheel.reschedule(id, Tick(9)), "a timer has ended when it fires");
        fired.push(payload);
        let other = payload ^ 1;
        // The timers move to the past, to this very tick and to a later tick.
        let to = Tick([3, 5, 6][usize::try_from(payload % 3).unwrap()]);
        assert!(wheel.reschedule(ids[usize::try_from(other).unwrap()], to), "it has fired, though moved");
        moved.push(other);
    });
    assert_eq!((progress, fired.len()), (Progress::Settled, 500));
    wheel.check_invariants();
    let mut later = Vec::new();
    while wheel.advance(Tick(6), usize::MAX, |_, timer| later.push(timer.payload)) == Progress::BudgetSpent {}
    later.sort_unstable();
    moved.sort_unstable();
    assert_eq!(later, moved);
    assert!(wheel.is_empty());
}

/// Each connection has a timer. Each request moves the connection's timer to a later tick.
#[test]
fn the_sweep_bound_holds_for_timers_that_are_put_off_again_and_again() {
    fn body<const BITS: u32>() {
        for count in [1, 100, 5_000] {
            let mut wheel = Wheel::<(), BITS>::new(Tick(0));
            let mut random = Random(9);
            let ids: Vec<_> = (0..count).map(|_| wheel.insert(Tick(1_000), ())).collect();
            for at in 0..60_000 {
                let id = ids[usize::try_from(random.below(count)).unwrap()];
                assert!(wheel.reschedule(id, Tick(1_000 + at).saturating_add(random.below(2) << 30)));
                check_sweep_bound(&wheel);
                if at % 100 == 0 {
                    let _ = wheel.advance(Tick(at / 100), usize::MAX, |_, _| unreachable!());
                }
            }
            wheel.check_invariants();
            assert_eq!(wheel.len() as u64, count);
        }
    }
    every_radix!(body);
}
