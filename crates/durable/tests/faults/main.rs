//! Tests the runtime under faults: downtime, stepping clocks, handlers and stores that fail, races, crowds. The names
//! of the tests begin with the letter and number of the fault in the project's list of faults.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs these tests")]

mod clocks;
mod crowds;
mod downtime;
mod handlers;
mod held;
mod once;
mod parts;
mod put_off;
mod races;
mod simulation;
mod stores;
mod unparks;
mod wakes;
#[path = "../support/world.rs"]
mod world;

use world::{Note, PATIENCE, START, World, eventually, phases, secs};

fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}
