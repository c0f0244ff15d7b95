//! The list of scenarios, and the program that runs them. Each scenario causes faults under load, and the invariants of
//! timers must still hold.

mod cluster;
mod given;
mod network;
mod nodes;
mod postgres;
mod servers;
mod several;

use crate::table;
use fastrand::Rng;
use given::{Given, Outcome, works};
use std::env;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The weight of a usual scenario. Scenarios divide the total time in proportion to their weights.
const ONE: u32 = 1;

type Run = fn(&mut Given) -> Outcome;

/// A scenario: its name, its weight in dividing the total time, and its function.
type Scenario = (&'static str, u32, Run);

/// The scenarios with the timers in PostgreSQL. The nodes are processes of `tourbillond`.
const ON_POSTGRES: &[Scenario] = &[
    ("quiet", ONE, postgres::quiet),
    ("nodes and server", 6, postgres::killed),
    ("sessions terminated", ONE, postgres::terminated),
    ("clocks of nodes", ONE, postgres::clocks),
    ("server stopped", ONE, postgres::stopped),
    ("connections harmed", ONE, postgres::harmed),
    ("network parted", ONE, postgres::parted),
    ("pool killed", ONE, postgres::pooled),
    ("failover", 2, postgres::failed_over),
    ("late commits", 2, postgres::committed_late),
];

/// The scenarios with the timers in Redis.
const ON_REDIS: &[Scenario] = &[
    ("quiet", ONE, nodes::quiet),
    ("nodes killed", 3, nodes::killed),
    ("nodes paused", ONE, nodes::paused),
    ("rolling restart", ONE, nodes::rolling),
    ("clocks of nodes", ONE, nodes::clocks),
    ("server killed, always", ONE, servers::killed_always),
    ("server killed, everysec", ONE, servers::killed_everysec),
    ("server restarted", ONE, servers::restarted),
    ("server stopped", ONE, servers::stopped),
    ("scripts flushed, busy", ONE, servers::scripts),
    ("memory full", ONE, servers::memory),
    ("data loaded", ONE, servers::loaded),
    ("all data flushed", ONE, servers::flushed),
    ("connections harmed", ONE, network::harmed),
    ("network parted", ONE, network::parted),
    ("network, one direction", ONE, network::half_parted),
    ("failover, wait", ONE, several::failover_with_wait),
    ("failover, in order", ONE, several::failover_in_order),
    ("failover, no wait", ONE, several::failover_without),
    ("failover, clocks", ONE, several::failover_between_clocks),
    ("cluster, killed", ONE, cluster::killed),
    ("cluster, failover", ONE, cluster::failed_over),
    ("cluster, forced", ONE, cluster::forced),
    ("cluster, slots moved", ONE, cluster::moved),
];

struct Arguments {
    time: Duration,
    seed: u64,
    only: Option<String>,
    store: Store,
}

/// The servers that have the timers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Store {
    Redis,
    Postgres,
}

impl Store {
    fn scenarios(self) -> &'static [Scenario] {
        match self {
            Self::Redis => ON_REDIS,
            Self::Postgres => ON_POSTGRES,
        }
    }

    /// Returns the program that the machine lacks for the runs; `None` if it lacks nothing.
    fn missing(self) -> Option<&'static str> {
        match self {
            Self::Redis if works(&["redis-server", "--version"]) => None,
            Self::Redis => Some("there is no redis-server (apt-get install redis-server)"),
            Self::Postgres => postgres::missing(),
        }
    }
}

fn arguments() -> Option<Arguments> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = since.as_secs() % 1_000_000;
    let mut arguments = Arguments { time: Duration::from_secs(600), seed, only: None, store: Store::Redis };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--minutes" => {
                arguments.time = Duration::try_from_secs_f64(value.parse::<f64>().ok()? * 60.0).ok()?
            }
            "--seed" => arguments.seed = value.parse().ok()?,
            "--only" => arguments.only = Some(value),
            "--store" if value == "redis" => arguments.store = Store::Redis,
            "--store" if value == "postgres" => arguments.store = Store::Postgres,
            _ => return None,
        }
    }
    Some(arguments)
}

/// The time that a scenario needs besides its faults: to start, and to end all timers.
const AROUND: Duration = Duration::from_secs(9);

pub(crate) fn main() -> ExitCode {
    let Some(Arguments { time, seed, only, store }) = arguments() else { return say_how() };
    let is_meant = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let meant: Vec<_> = store.scenarios().iter().filter(|(name, ..)| is_meant(name)).collect();
    if meant.is_empty() {
        return say_how();
    }
    if let Some(missing) = store.missing() {
        table::say(missing);
        return ExitCode::FAILURE;
    }
    let shares: u32 = meant.iter().map(|(_, share, _)| share).sum();
    // With `--only`, all minutes are for faults.
    let around = match only {
        Some(_) => Duration::ZERO,
        None => AROUND * u32::try_from(meant.len()).unwrap_or(1),
    };
    let each = time.saturating_sub(around) / shares;
    table::say(&format!("seed {seed}"));
    table::head();
    let mut failed = Vec::new();
    for (name, share, run) in meant {
        let own_seed =
            seed ^ u64::from(name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31) + u32::from(byte)));
        let time = (each * *share).max(Duration::from_secs(5));
        let mut given = Given { seed: own_seed, rng: Rng::with_seed(own_seed), time };
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
    let store = if store == Store::Postgres { " --store postgres" } else { "" };
    table::say(&format!("failed: {}. Again: --seed {seed}{store} --only '{}'", failed.join(", "), failed[0]));
    ExitCode::FAILURE
}

/// Prints the usage of the program. Returns the exit code for wrong arguments.
fn say_how() -> ExitCode {
    table::say("tourbillon-fault [--store redis|postgres] [--minutes M] [--seed N] [--only NAME]");
    for store in [Store::Redis, Store::Postgres] {
        table::say(if store == Store::Redis { "redis:" } else { "postgres:" });
        store.scenarios().iter().for_each(|(name, ..)| table::say(&format!("  {name}")));
    }
    ExitCode::from(2)
}
