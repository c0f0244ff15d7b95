//! Tests in which the closure that fires timers uses the wheel itself.

use super::{AssertUnwindSafe, Rig, catch_unwind, resume_unwind};
use crate::{Progress, Tick, Wheel};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

#[test]
fn a_timer_that_rearms_itself_at_zero_delay_fires_once_an_advance() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<u64, BITS>::new(Tick(0));
        for start in [0, 0, 1, 900] {
            wheel.insert(Tick(start), 0);
        }
        wheel.insert(Tick(950), 1);
        let _ = wheel.advance(Tick(900), usize::MAX, |wheel, timer| {
            wheel.insert(wheel.position(), timer.payload);
        });
        for round in 0..10 {
            let mut fired = Vec::new();
            let progress = wheel.advance(Tick(950 + round), usize::MAX, |wheel, timer| {
                fired.push(timer.payload);
                if timer.payload == 0 {
                    wheel.insert([wheel.position(), timer.tick, Tick(0)][fired.len() % 3], 0);
                }
            });
            assert_eq!(progress, Progress::Settled);
            fired.sort_unstable();
            assert_eq!(fired, if round == 0 { vec![0, 0, 0, 0, 1] } else { vec![0; 4] });
            assert_eq!(wheel.next_expiry(), Some(wheel.position()));
            wheel.check_invariants();
        }
    }
    every_radix!(body);
}

/// More timers re-arm themselves at once than the budget of an advance covers. The other timers must fire all the same.
#[test]
fn timers_that_rearm_themselves_at_once_starve_nobody() {
    fn body<const BITS: u32>() {
        for budget in [1, 16, 32, 64, 100] {
            let mut wheel = Wheel::<bool, BITS>::new(Tick(1_000));
            // Patient timers are both late and in time, between and after the busy timers.
            for at in 0..256 {
                wheel.insert(Tick(5), at % 2 == 0);
            }
            for at in 0..50 {
                wheel.insert(Tick(1_000 + at * 20), false);
            }
            let mut patient = 178;
            let mut advances = 0;
            while patient > 0 {
                advances += 1;
                assert!(advances < 20_000, "{patient} starve with a budget of {budget}");
                let _ = wheel.advance(Tick(2_000), budget, |wheel, timer| {
                    if timer.payload {
                        wheel.insert(Tick(0), true);
                    } else {
                        patient -= 1;
                    }
                });
                wheel.check_invariants();
            }
            assert_eq!(wheel.len(), 128);
        }
    }
    every_radix!(body);
}

#[test]
fn a_periodic_timer_keeps_its_phase_while_time_moves_in_strides() {
    let mut wheel = Wheel::<(), 8>::new(Tick(0));
    wheel.insert(Tick(7), ());
    let mut due = 7;
    for to in (0..20_000).step_by(13) {
        // A turn settles when nothing due is left; a timer that was re-armed for a tick that has passed takes another
        // turn.
        while wheel.next_expiry().is_some_and(|next| next <= Tick(to)) {
            let _ = wheel.advance(Tick(to), usize::MAX, |wheel, timer| {
                assert_eq!(timer.tick, Tick(due));
                due += 7;
                wheel.insert(Tick(due), ());
            });
        }
        assert!(due > to && due - to <= 7);
    }
}

#[test]
fn the_fire_closure_may_cancel_those_that_are_due_with_it() {
    let mut wheel = Wheel::<usize, 8>::new(Tick(0));
    let ids: Vec<_> = (0..100).map(|at| wheel.insert(Tick(300), at)).collect();
    let mut fired = Vec::new();
    let _ = wheel.advance(Tick(300), usize::MAX, |wheel, timer| {
        assert_eq!(wheel.cancel(timer.id), None, "its own id is stale");
        let other = 99 - timer.payload;
        assert!(!fired.contains(&other), "cancelled, yet it fired");
        assert_eq!(wheel.cancel(ids[other]), Some(other));
        // The index is reused at once, and the new timer there must not be taken for the old timer.
        wheel.insert(Tick(301), 1_000);
        fired.push(timer.payload);
    });
    wheel.check_invariants();
    assert_eq!(fired.len(), 50);
    assert_eq!(wheel.len(), 50);
    let _ = wheel.advance(Tick(301), usize::MAX, |_, timer| assert_eq!(timer.payload, 1_000));
    assert!(wheel.is_empty());
}

#[test]
fn the_fire_closure_may_advance_or_replace_the_wheel() {
    let mut wheel = Wheel::<u64, 8>::new(Tick(0));
    for tick in 1..=100 {
        wheel.insert(Tick(tick), tick);
    }
    let mut fired = Vec::new();
    let _ = wheel.advance(Tick(40), usize::MAX, |wheel, timer| {
        fired.push(timer.payload);
        let _ = wheel.advance(Tick(60), usize::MAX, |_, timer| fired.push(timer.payload));
        wheel.check_invariants();
    });
    fired.sort_unstable();
    assert_eq!(fired, Vec::from_iter(1..=60));

    let mut replaced = 0;
    let _ = wheel.advance(Tick(70), usize::MAX, |wheel, _| {
        replaced += 1;
        *wheel = Wheel::new(Tick(7));
        wheel.insert(Tick(8), 8);
    });
    assert_eq!((replaced, wheel.len(), wheel.next_expiry()), (1, 1, Some(Tick(8))));
    wheel.check_invariants();
}

#[test]
fn a_panic_in_the_fire_closure_costs_no_other_timer() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        for at in 0..200 {
            rig.insert(1 + at % 90);
        }
        let Rig { wheel, pending, .. } = &mut rig;
        let mut panics = 0;
        while !pending.is_empty() {
            let mut calls = 0;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                wheel.advance(Tick(90), 50, |_, timer| {
                    assert_eq!(pending.remove(&timer.id), Some(timer.payload), "fired twice");
                    calls += 1;
                    if calls == 3 {
                        resume_unwind(Box::new(()));
                    }
                })
            }));
            panics += usize::from(outcome.is_err());
            wheel.check_invariants();
            assert_eq!(wheel.len(), pending.len());
            if !pending.is_empty() {
                assert!(wheel.next_expiry().is_some_and(|next| next <= Tick(90)));
            }
        }
        assert!(panics >= 50);
        rig.check();
    }
    every_radix!(body);
}
