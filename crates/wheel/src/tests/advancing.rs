//! Tests that advance a wheel: by any number of ticks, with a clock that steps back, and within a budget.

use super::{Numbered, Rig, ticket};
use crate::{Progress, Tick, TicketWheel};
use alloc::vec;
use alloc::vec::Vec;

#[test]
fn advances_by_nothing_a_tick_a_level_and_more_than_the_range_fire_what_is_due() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(100);
        let steps =
            [0, 1, 0, Rig::<BITS>::REVOLUTION, Rig::<BITS>::RING, 1 << (2 * BITS), 1 << (3 * BITS + 1)];
        for by in steps {
            let to = rig.wheel.position().0 + by;
            assert_eq!(rig.advance(to), [], "empty");
            for tick in [to + 1, to + by, to + by + 1] {
                rig.insert(tick);
            }
            let due = rig.pending.values().filter(|&&tick| tick <= to + by).count();
            assert_eq!(rig.advance(to + by).len(), due);
            rig.advance(to + by + 1);
            assert!(rig.wheel.is_empty());
        }
        for tick in [1 << 20, 1 << 40, 1 << 60] {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(u64::MAX), [1 << 20, 1 << 40, 1 << 60]);
    }
    every_radix!(body);
}

#[test]
fn the_last_tick_of_all_ends_each_advance() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(u64::MAX - 3);
        for _ in 0..2 {
            assert_eq!(rig.advance(u64::MAX), []);
        }
        rig.insert(7);
        assert_eq!(rig.advance(u64::MAX), [7]);
        // The same holds for a wheel with levels, and for a timer of the last tick.
        let mut rig = Rig::<BITS>::at(0);
        for tick in [300, u64::MAX] {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(u64::MAX - 1), [300]);
        for fired in [&[u64::MAX][..], &[], &[]] {
            assert_eq!(rig.advance(u64::MAX), fired);
        }
    }
    every_radix!(body);
}

#[test]
fn a_clock_that_steps_back_moves_nothing() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(5_000);
        rig.insert(5_001);
        rig.insert(9_000);
        for back in [4_999, 256, 0] {
            assert_eq!(rig.advance(back), []);
            assert_eq!(rig.wheel.position(), Tick(5_000));
        }
        rig.insert(4_000);
        assert_eq!(rig.advance(17), [4_000]);
        assert_eq!(rig.advance(5_001), [5_001]);
        // The invariants hold also in the midst of a tick that the budget cut short.
        for _ in 0..3 {
            rig.insert(6_000);
        }
        assert_eq!(rig.step(6_000, 4), (vec![6_000], Progress::BudgetSpent));
        assert_eq!(rig.step(10, 1), (vec![], Progress::Settled));
        assert_eq!(rig.advance(6_000), [6_000; 2]);
        assert_eq!(rig.advance(9_000), [9_000]);
    }
    every_radix!(body);
}

#[test]
fn a_bounded_advance_fires_exactly_its_budget_and_resumes_where_it_stopped() {
    fn body<const BITS: u32>() {
        for budget in [1, 7, 31, 32, 33, 64, 100, 1_000] {
            let mut rig = Rig::<BITS>::at(0);
            for at in 0..200 {
                rig.insert([3, 3, 3, 9][at % 4]);
            }
            let mut fired = Vec::new();
            while fired.len() < 200 {
                let (mut now, progress) = rig.step(10, budget);
                assert_eq!(now.len(), budget.min(200 - fired.len()));
                assert_eq!(progress == Progress::Settled, fired.len() + now.len() == 200);
                if progress == Progress::BudgetSpent {
                    assert!(rig.wheel.position() < Tick(10));
                }
                fired.append(&mut now);
            }
            assert!(fired.is_sorted(), "a later tick before an earlier one");
            assert_eq!(rig.wheel.position(), Tick(10));
        }
    }
    every_radix!(body);
}

#[test]
fn a_bounded_advance_moves_and_fires_no_more_than_its_budget() {
    fn body<const BITS: u32>() {
        for budget in [1, 5, 32, 50] {
            let mut wheel = TicketWheel::<Numbered, BITS>::new(Tick(0));
            let start = 1 << (3 * BITS);
            for index in 0..500 {
                wheel.insert(ticket(start + u64::from(index % 100), index));
            }
            let (mut handed_out, mut advances) = (0, 0);
            loop {
                // Not all chunks that move are searched, so these are not all that were moved.
                let (mut searched, mut expired) = (0, 0);
                let progress = wheel.advance(
                    Tick(start + 99),
                    budget,
                    |_| {
                        searched += 1;
                        true
                    },
                    |chunk| expired += chunk.len(),
                );
                wheel.check_invariants();
                assert!(searched + expired <= budget, "{searched} moved and {expired} fired of {budget}");
                handed_out += expired;
                advances += 1;
                if progress == Progress::Settled {
                    break;
                }
            }
            assert_eq!(handed_out, 500);
            // Each ticket moves three times and fires; a chunk or a slot that ends uses a budget up in part.
            let (least, most) = (500 / budget, 4 * 500 / budget.min(5) + 8);
            assert!((least..=most).contains(&advances), "{advances} advances with budgets of {budget}");
        }
    }
    every_radix!(body);
}

#[test]
fn a_budget_of_nothing_fires_nothing_and_loses_nothing() {
    let mut rig = Rig::<8>::at(0);
    assert_eq!(rig.step(5, 0), (vec![], Progress::Settled));
    assert_eq!(rig.wheel.position(), Tick(5));
    for tick in [2, 5, 7, 600, 70_000] {
        rig.insert(tick);
    }
    for to in [5, 7, 700, 80_000] {
        assert_eq!(rig.step(to, 0), (vec![], Progress::BudgetSpent));
    }
    assert_eq!(rig.advance(80_000), [2, 5, 7, 600, 70_000]);
}

#[test]
fn what_is_inserted_between_two_halves_of_a_bounded_advance_is_not_lost() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        let start = 4 * Rig::<BITS>::RING;
        for at in 0..300 {
            rig.insert(start + at % 5);
        }
        let mut fired = 0;
        loop {
            let (now, progress) = rig.step(start + 4, 10);
            fired += now.len();
            if progress == Progress::Settled {
                break;
            }
            if rig.pending.len() + fired < 400 {
                let position = rig.wheel.position().0;
                for tick in [position, position + 1, start, start + 2, start + 4] {
                    rig.insert(tick);
                }
            }
        }
        assert_eq!(fired, 400);
        assert!(rig.wheel.is_empty());
    }
    every_radix!(body);
}
