//! How much is measured.

use serde_json::{Value, json};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// What is published
    Full,
    /// Some seconds: that it works, not how fast
    Quick,
    /// That it runs at all
    #[cfg_attr(not(test), expect(dead_code, reason = "for `cargo test`"))]
    Smoke,
}

#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) scale: Scale,
    pub(crate) rounds: usize,
    /// Connections of each thread.
    pub(crate) connections: usize,
    /// Requests over the connections of the thread that is done first.
    pub(crate) requests: usize,
    /// Timers that are pending while some are refreshed.
    pub(crate) pending: [usize; 2],
    pub(crate) refreshes: usize,
    /// Timeouts of the thread that is done first.
    pub(crate) timeouts: usize,
    /// Connections that are counted, not timed, how often each is armed in a timeout, and for how many timeouts.
    pub(crate) reach: (u32, u32, u32),
    /// How long a contestant gets to bring what was armed to where it waits.
    pub(crate) settle: Duration,
}

impl Sizes {
    pub(crate) fn of(scale: Scale) -> Self {
        let millis = Duration::from_millis;
        match scale {
            Scale::Full => Self {
                scale,
                rounds: 7,
                connections: 10_000,
                requests: 2_000_000,
                pending: [100_000, 1_000_000],
                refreshes: 500_000,
                timeouts: 1_000_000,
                reach: (1_000, 1_000, 10),
                settle: millis(50),
            },
            Scale::Quick => Self {
                scale,
                rounds: 3,
                connections: 1_000,
                requests: 100_000,
                pending: [2_000, 20_000],
                refreshes: 20_000,
                timeouts: 100_000,
                reach: (100, 1_000, 10),
                settle: millis(5),
            },
            Scale::Smoke => Self {
                scale,
                rounds: 1,
                connections: 70,
                requests: 500,
                pending: [100, 300],
                refreshes: 500,
                timeouts: 200,
                reach: (20, 50, 4),
                settle: millis(1),
            },
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "scale": format!("{:?}", self.scale),
            "rounds": self.rounds,
            "settle_ms": self.settle.as_secs_f64() * 1e3,
        })
    }
}
