//! The input and the outcome of a scenario.

use fastrand::Rng;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_fault::run::{Load, Row, Stage, Target};

/// The number of shards into which each scenario divides its timers.
pub(crate) const SHARDS: u16 = 16;

/// The input of a scenario, a test run with one kind of fault.
pub(crate) struct Given {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    /// How long the scenario causes faults.
    pub(crate) time: Duration,
}

/// The outcome of a scenario.
pub(crate) enum Outcome {
    Ran(Box<Row>),
    /// The scenario did not run, because the machine lacks the program that the text names.
    Skipped(&'static str),
}

impl From<Row> for Outcome {
    fn from(row: Row) -> Self {
        Self::Ran(Box::new(row))
    }
}

impl Given {
    /// Prepares a run on the servers `target`. Starts the run's receiver (the process to which nodes report their
    /// deliveries), but neither nodes nor clients.
    pub(crate) fn stage(&self, target: Target) -> Stage {
        Stage::new(target, SHARDS, &[])
    }

    /// Starts three nodes, and clients that put `load` on the store.
    pub(crate) fn begin(&self, stage: &mut Stage, load: Load) {
        stage.start_nodes(3);
        stage.start_clients(load, self.seed);
    }

    /// Calls `act` repeatedly until the scenario's time is over. Before each call, waits for 0.5 to 1.5 times `pause`.
    pub(crate) fn again(&mut self, pause: Duration, mut act: impl FnMut(&mut Self)) {
        let end = Instant::now() + self.time;
        loop {
            let pause = pause.mul_f64(0.5 + self.rng.f64());
            let left = end.saturating_duration_since(Instant::now());
            if left < pause {
                thread::sleep(left);
                return;
            }
            thread::sleep(pause);
            act(self);
        }
    }

    /// Returns a random time between a tenth of `time` and `time`.
    pub(crate) fn up_to(&mut self, time: Duration) -> Duration {
        time.mul_f64(0.1 + 0.9 * self.rng.f64())
    }
}

/// Returns whether a command runs and succeeds. `words` are the program and its arguments.
pub(crate) fn works(words: &[&str]) -> bool {
    let status =
        Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
