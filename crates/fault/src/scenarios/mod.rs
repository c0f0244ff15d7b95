//! The scenarios: servers, a load, faults, and what must hold nevertheless.

mod network;
mod nodes;
mod servers;
mod several;

use crate::table;
use fastrand::Rng;
use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tourbillon_fault::run::{Load, Row, Stage, Target};

/// The shards of each deployment.
const SHARDS: u16 = 16;

/// The shares of the time that scenarios have: most have one.
const ONE: u32 = 1;

/// What a scenario gets.
pub(crate) struct Given {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    /// How long faults are done.
    pub(crate) time: Duration,
}

/// What became of it.
pub(crate) enum Outcome {
    Ran(Box<Row>),
    /// The machine lacks something.
    Skipped(&'static str),
}

impl From<Row> for Outcome {
    fn from(row: Row) -> Self {
        Self::Ran(Box::new(row))
    }
}

type Run = fn(&mut Given) -> Outcome;

/// Name, share of the time, and function.
const SCENARIOS: &[(&str, u32, Run)] = &[
    ("quiet", ONE, nodes::quiet),
    ("nodes killed", 3, nodes::killed),
    ("nodes paused", ONE, nodes::paused),
    ("rolling restart", ONE, nodes::rolling),
    ("clocks of nodes", ONE, nodes::clocks),
    ("server killed, always", ONE, servers::killed_always),
    ("server killed, everysec", ONE, servers::killed_everysec),
    ("server stopped", ONE, servers::stopped),
    ("scripts flushed, busy", ONE, servers::scripts),
    ("memory full", ONE, servers::memory),
    ("data loaded", ONE, servers::loaded),
    ("all data flushed", ONE, servers::flushed),
    ("connections harmed", ONE, network::harmed),
    ("network parted", ONE, network::parted),
    ("failover, wait", ONE, several::failover_with_wait),
    ("failover, no wait", ONE, several::failover_without),
];

impl Given {
    /// A stage for this scenario.
    pub(crate) fn stage(&self, target: Target) -> Stage {
        Stage::new(target, SHARDS, &[])
    }

    /// Starts three nodes and clients.
    pub(crate) fn begin(&self, stage: &mut Stage, load: Load) {
        stage.start_nodes(3);
        stage.start_clients(load, self.seed);
    }

    /// Calls `act` again and again, with pauses of about `pause`, until the time is over.
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

    /// A time of up to this, and of at least a tenth of it.
    pub(crate) fn up_to(&mut self, time: Duration) -> Duration {
        time.mul_f64(0.1 + 0.9 * self.rng.f64())
    }
}

/// Whether a program can be run with these words.
pub(crate) fn works(words: &[&str]) -> bool {
    let status =
        Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

struct Arguments {
    time: Duration,
    seed: u64,
    only: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut arguments =
        Arguments { time: Duration::from_secs(600), seed: since.as_secs() % 1_000_000, only: None };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--minutes" => arguments.time = Duration::try_from_secs_f64(value.parse::<f64>().ok()? * 60.0).ok()?,
            "--seed" => arguments.seed = value.parse().ok()?,
            "--only" => arguments.only = Some(value),
            _ => return None,
        }
    }
    Some(arguments)
}

/// The time that a scenario needs beside its faults, to start and to end all timers.
const AROUND: Duration = Duration::from_secs(12);

pub(crate) fn main() -> ExitCode {
    let Some(Arguments { time, seed, only }) = arguments() else {
        table::say("tourbillon-fault [--minutes M] [--seed N] [--only NAME]");
        for (name, ..) in SCENARIOS {
            table::say(&format!("  {name}"));
        }
        return ExitCode::from(2);
    };
    if !works(&["redis-server", "--version"]) {
        table::say("there is no redis-server (apt-get install redis-server)");
        return ExitCode::FAILURE;
    }
    let is_meant = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let meant: Vec<_> = SCENARIOS.iter().filter(|(name, ..)| is_meant(name)).collect();
    let shares: u32 = meant.iter().map(|(_, share, _)| share).sum();
    let around = AROUND * u32::try_from(meant.len()).unwrap_or(1);
    let each = time.saturating_sub(around) / shares.max(1);
    table::say(&format!("seed {seed}"));
    table::head();
    let mut failed = Vec::new();
    for (name, share, run) in meant {
        let its = seed ^ u64::from(name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31) + u32::from(byte)));
        let time = (each * *share).max(Duration::from_secs(5));
        let mut given = Given { seed: its, rng: Rng::with_seed(its), time };
        match run(&mut given) {
            Outcome::Ran(row) => {
                table::line(name, &row);
                if !row.is_clean() {
                    failed.push(*name);
                }
            }
            Outcome::Skipped(why) => table::skipped(name, why),
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    table::say(&format!("failed: {}. Again: --seed {seed} --only '{}'", failed.join(", "), failed[0]));
    ExitCode::FAILURE
}
