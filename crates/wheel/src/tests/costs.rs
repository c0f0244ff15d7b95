//! Tests of costs: they count the turns of a wheel, and the tickets that move in a turn.

use super::{Numbered, Random, Rig, ticket};
use crate::ticket::CHUNK_TICKETS;
use crate::tickets::SPREAD_CHUNKS;
use crate::{Progress, Tick, TicketWheel};
use alloc::vec::Vec;

/// A wheel of tickets that counts the cost of each turn. A turn is one call that advances the wheel.
struct Turns<const BITS: u32> {
    wheel: TicketWheel<Numbered, BITS>,
    turns: u64,
    /// The number of tickets (requests to check timers) that all turns together have moved between levels.
    /// `moved_at_most` is the number for the turn that has moved the most tickets.
    moved: u64,
    moved_at_most: u64,
    handed_out: usize,
}

/// The number of tickets that a turn may move between levels. On each of two levels, a turn spreads a part of a coarse
/// slot ahead, and moves the rest of another slot.
const FAIR_TURN: u64 = 4 * SPREAD_CHUNKS * CHUNK_TICKETS as u64;

impl<const BITS: u32> Turns<BITS> {
    fn of(ticks: impl Iterator<Item = u64>) -> Self {
        let mut wheel = TicketWheel::new(Tick(0));
        for (index, tick) in (0..).zip(ticks) {
            wheel.insert(ticket(tick, index));
        }
        Self { wheel, turns: 0, moved: 0, moved_at_most: 0, handed_out: 0 }
    }

    fn turn(&mut self, to: Tick) {
        let before = self.wheel.position();
        let mut moved = 0;
        let is_live = |_: &Numbered| {
            moved += 1;
            true
        };
        let handed_out = &mut self.handed_out;
        let expired = |chunk: Vec<Numbered>| {
            assert!(chunk.iter().all(|(tick, _)| before < *tick && *tick <= to));
            *handed_out += chunk.len();
        };
        assert_eq!(self.wheel.advance(to, usize::MAX, is_live, expired), Progress::Settled);
        self.turns += 1;
        self.moved += moved;
        self.moved_at_most = self.moved_at_most.max(moved);
    }

    fn run_by_its_own_wake_ups(&mut self) {
        while let Some(to) = self.wheel.wake_tick() {
            assert!(to > self.wheel.position(), "asks to be woken for what is done");
            self.turn(to);
        }
        self.wheel.check_invariants();
    }
}

#[test]
fn a_thousand_sparse_timers_cost_little_memory_and_few_turns() {
    fn body<const BITS: u32>() {
        let mut random = Random(17);
        let mut turns = Turns::<BITS>::of((0..1_000).map(|_| random.of_any_size().max(1)));
        let bytes = turns.wheel.heap_bytes();
        assert!(bytes < 512 << 10, "{bytes} bytes");
        turns.run_by_its_own_wake_ups();
        assert_eq!(turns.handed_out, 1_000);
        assert!(turns.turns <= 1_000, "{} turns", turns.turns);
        assert!(turns.moved <= 1_000 * u64::from(Rig::<BITS>::LEVELS), "{} moves", turns.moved);
    }
    every_radix!(body);
}

#[test]
fn a_stall_is_caught_up_in_one_turn_without_a_visit_to_empty_ticks() {
    let mut random = Random(19);
    let mut turns = Turns::<8>::of((0..1_000).map(|_| random.of_any_size().max(1)));
    turns.turn(Tick::MAX);
    assert_eq!(turns.handed_out, 1_000);
    assert!(turns.moved <= 8_000);
}

#[test]
fn no_tick_pays_for_a_crowded_coarse_slot_when_each_tick_has_its_turn() {
    fn body<const BITS: u32>() {
        for depth in 1..=2 {
            let width = 1 << (depth * BITS);
            // The tickets lie over the whole slot, or all of them in its first or its last tick.
            for span in [width, 1] {
                for first in [10 * width, 11 * width - span] {
                    let mut turns = Turns::<BITS>::of((0..100_000).map(|at| first + at % span));
                    // There is no work on the way there.
                    turns.turn(Tick(8 * width));
                    for tick in 8 * width + 1..11 * width {
                        turns.turn(Tick(tick));
                    }
                    assert_eq!(turns.handed_out, 100_000);
                    assert!(turns.moved_at_most <= FAIR_TURN / 2, "{} moved at once", turns.moved_at_most);
                    assert!(turns.moved <= 100_000 * u64::from(depth), "{} moves", turns.moved);
                }
            }
        }
    }
    every_radix!(body);
}

#[test]
fn no_tick_pays_for_a_crowded_coarse_slot_when_turns_come_as_asked_for() {
    fn body<const BITS: u32>() {
        for depth in 1..Rig::<BITS>::LEVELS - 1 {
            let width = 1 << (depth * BITS);
            for first in [2 * width, 2 * width + 1, 7 * width, 8 * width - 1] {
                let mut turns = Turns::<BITS>::of((0..100_000).map(|_| first));
                turns.run_by_its_own_wake_ups();
                assert_eq!(turns.handed_out, 100_000);
                assert!(turns.moved_at_most <= FAIR_TURN, "{} moved at once", turns.moved_at_most);
                assert!(turns.moved <= 100_000 * u64::from(depth), "{} moves", turns.moved);
                let enough = u64::from(depth + 1) * (100_000 / FAIR_TURN * 4 + 8);
                assert!(turns.turns <= enough, "{} turns where {enough} would do", turns.turns);
            }
        }
    }
    every_radix!(body);
}

#[test]
fn a_crowded_slot_is_spread_though_a_late_timer_stands_in_the_slot_before() {
    fn body<const BITS: u32>() {
        for depth in 1..4 {
            let width = 1 << (depth * BITS);
            let crowd = (0..100_000).map(|at| 6 * width + at % 3);
            let mut turns = Turns::<BITS>::of(crowd.chain([6 * width - 1, 7 * width, 7 * width - 1]));
            turns.run_by_its_own_wake_ups();
            assert_eq!(turns.handed_out, 100_003);
            assert!(turns.moved_at_most <= FAIR_TURN, "{} moved at once", turns.moved_at_most);
        }
    }
    every_radix!(body);
}

#[test]
fn no_turn_is_asked_for_before_a_slot_can_be_spread() {
    // There are more tickets than can be spread within a revolution of 32 ticks.
    let mut turns = Turns::<5>::of((0..400_000).map(|_| 10 * 32));
    assert_eq!(turns.wheel.wake_tick(), Some(Tick(9 * 32)));
    turns.run_by_its_own_wake_ups();
    assert!(turns.turns <= 33, "{} turns", turns.turns);
}

#[test]
fn a_wheel_that_is_never_spread_hands_out_all_at_their_ticks() {
    let mut wheel = TicketWheel::<Numbered, 8>::new(Tick(0));
    for index in 0..50_000 {
        wheel.insert(ticket(600 + u64::from(index % 1_000), index));
    }
    let mut handed_out = 0;
    for tick in 1..1_600 {
        let progress = wheel.hand_out_until(
            Tick(tick),
            usize::MAX,
            |_| true,
            |chunk| {
                assert!(chunk.iter().all(|ticket| ticket.0 == Tick(tick)));
                handed_out += chunk.len();
            },
        );
        assert_eq!(progress, Progress::Settled);
        wheel.check_invariants();
    }
    assert_eq!(handed_out, 50_000);
}
