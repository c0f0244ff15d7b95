//! The fast clock, which computes the time from a counter by a line. The line consists of pieces. A reader sees one
//! piece, and one writer at a time makes the next piece.
//!
//! The counter and the true time are one number, which no model tracks. A read of this number orders nothing.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | SQ1: `publish`'s store | `a_reader_sees_one_piece`, `the_calibration_changes_hands` |
//! | SQ1: the readers' first load | `a_reader_sees_one_piece`, `the_calibration_changes_hands` |
//! | SQ2: `publish`'s fence | `a_reader_sees_one_piece` |
//! | SQ2: the readers' fence | `a_reader_sees_one_piece` |
//! | SQ3: `Writing`'s drop | `a_reader_sees_one_piece`, `the_first_sample_changes_hands` |
//! | SQ3: `try_write` | `two_judgements_meet`; where the line is extended, the fence of `piece` does as much |

use super::model;
use crate::base::sync::{Arc, thread};
use crate::system::clock::{AHEAD_NANOS, Source, UpperClock};
use std::sync::atomic::{AtomicU64, Ordering};

/// The time that a read of the clock takes, in nanoseconds.
const READ: u64 = 100;

struct World {
    nanos: AtomicU64,
    /// The time by which the true clock is ahead of the counter, in nanoseconds.
    beyond: AtomicU64,
}

impl World {
    fn new() -> Self {
        Self { nanos: AtomicU64::new(1_000_000_000), beyond: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    fn pass(&self, nanos: u64) -> u64 {
        self.nanos.fetch_add(nanos, Ordering::Relaxed) + nanos
    }
}

struct Reads(std::sync::Arc<World>);

impl Source for Reads {
    fn counter(&self) -> u64 {
        self.0.pass(READ)
    }

    fn truth(&self) -> u64 {
        self.0.pass(READ) + self.0.beyond.load(Ordering::Relaxed)
    }
}

/// Makes a clock whose line (conversion of the counter to time) already has a piece, its part for a span of time.
fn clock_with_a_piece() -> (std::sync::Arc<World>, Arc<UpperClock<Reads>>) {
    let world = std::sync::Arc::new(World::new());
    let clock = Arc::new(UpperClock::new(Reads(std::sync::Arc::clone(&world))));
    clock.now();
    publish(&world, &clock);
    (world, clock)
}

/// Lets the clock publish a piece, long after the last one has ended. The first of two calls is rare and publishes
/// nothing. (Before the first piece no call is rare.)
fn publish(world: &World, clock: &UpperClock<Reads>) {
    world.pass(1_000_000);
    for _ in 0..2 {
        call(world, clock);
    }
}

fn call(world: &World, clock: &UpperClock<Reads>) -> u64 {
    let before = world.now();
    let now = clock.now();
    let after = world.now();
    assert!(now >= before, "early by {}", before - now);
    assert!(now <= after + AHEAD_NANOS, "late by {}", now - after);
    now
}

/// A thread reads the clock's line, which converts the counter to time, while another thread publishes two pieces of
/// the line. The second piece takes the memory of the piece that was current.
#[test]
fn a_reader_sees_one_piece() {
    model("a_reader_sees_one_piece", || {
        let (world, clock) = clock_with_a_piece();
        let earlier = call(&world, &clock);
        let (its_world, its_clock) = (std::sync::Arc::clone(&world), Arc::clone(&clock));
        let reader = thread::spawn(move || {
            let now = call(&its_world, &its_clock);
            assert!(now >= earlier, "back by {}", earlier - now);
        });
        publish(&world, &clock);
        publish(&world, &clock);
        reader.join().unwrap();
    });
}

/// Two threads find that the current piece of the clock's line has ended. The line converts the counter to time.
#[test]
fn the_calibration_changes_hands() {
    model("the_calibration_changes_hands", || {
        let (world, clock) = clock_with_a_piece();
        world.pass(1_000_000);
        // A rare call. The two calls that follow are not rare.
        call(&world, &clock);
        let (its_world, its_clock) = (std::sync::Arc::clone(&world), Arc::clone(&clock));
        let other = thread::spawn(move || call(&its_world, &its_clock));
        call(&world, &clock);
        other.join().unwrap();
    });
}

/// Two threads make the first calls of the clock in a process. Nothing has been published that could order the calls.
#[test]
fn the_first_sample_changes_hands() {
    model("the_first_sample_changes_hands", || {
        let world = std::sync::Arc::new(World::new());
        let clock = Arc::new(UpperClock::new(Reads(std::sync::Arc::clone(&world))));
        let (its_world, its_clock) = (std::sync::Arc::clone(&world), Arc::clone(&clock));
        let other = thread::spawn(move || call(&its_world, &its_clock));
        call(&world, &clock);
        other.join().unwrap();
    });
}

/// Two shards find that the clock's counter has fallen behind the true time.
#[test]
fn two_judgements_meet() {
    model("two_judgements_meet", || {
        let (world, clock) = clock_with_a_piece();
        world.beyond.store(100_000, Ordering::Relaxed);
        let its_clock = Arc::clone(&clock);
        let other = thread::spawn(move || its_clock.true_now());
        clock.true_now();
        other.join().unwrap();
        let seen = clock.seen();
        assert!(
            seen.behind_nanos > 90_000 && (1..=2).contains(&seen.steps),
            "a step of the counter was missed, or counted for each shard: {seen:?}"
        );
    });
}
