//! How much is measured.

use clap::ValueEnum;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scale {
    /// What the goals speak of
    Full,
    /// Some seconds
    Quick,
    /// That it runs at all
    Smoke,
}

#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) scale: Scale,
    pub(crate) rounds: usize,
    /// Stands for 1 M.
    pub(crate) many: usize,
    /// Stands for 10 k.
    pub(crate) few: usize,
    /// How long each thread schedules and cancels.
    pub(crate) pair_time: Duration,
    /// How long a service gets to bring what was scheduled to where it waits.
    pub(crate) settle: Duration,
    /// Lateness: from the first insert to the first deadline.
    pub(crate) lead: Duration,
    /// Lateness: from the first deadline to the last.
    pub(crate) window: Duration,
    pub(crate) connections: usize,
    pub(crate) idle_timers: usize,
    pub(crate) idle_time: Duration,
    pub(crate) storm_pairs: u64,
}

impl Sizes {
    pub(crate) fn of(scale: Scale) -> Self {
        let millis = Duration::from_millis;
        match scale {
            Scale::Full => Self {
                scale,
                rounds: 5,
                many: 1_000_000,
                few: 10_000,
                pair_time: millis(400),
                settle: millis(50),
                lead: millis(3_000),
                window: millis(2_000),
                connections: 1_000,
                idle_timers: 100_000,
                idle_time: millis(10_000),
                storm_pairs: 20_000_000,
            },
            Scale::Quick => Self {
                scale,
                rounds: 2,
                many: 20_000,
                few: 1_000,
                pair_time: millis(20),
                settle: millis(5),
                lead: millis(300),
                window: millis(500),
                connections: 100,
                idle_timers: 2_000,
                idle_time: millis(500),
                storm_pairs: 200_000,
            },
            Scale::Smoke => Self {
                scale,
                rounds: 1,
                many: 300,
                few: 50,
                pair_time: millis(1),
                settle: millis(1),
                lead: millis(30),
                window: millis(80),
                connections: 10,
                idle_timers: 100,
                idle_time: millis(20),
                storm_pairs: 4_000,
            },
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "scale": format!("{:?}", self.scale),
            "rounds": self.rounds,
            "many": self.many,
            "few": self.few,
            "pair_time_ms": self.pair_time.as_secs_f64() * 1e3,
            "lead_ms": self.lead.as_secs_f64() * 1e3,
            "window_ms": self.window.as_secs_f64() * 1e3,
            "connections": self.connections,
            "idle_timers": self.idle_timers,
            "idle_time_ms": self.idle_time.as_secs_f64() * 1e3,
            "storm_pairs": self.storm_pairs,
        })
    }
}
