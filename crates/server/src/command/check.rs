//! `tourbillond check`: looks for faults in the store's structure, and at the servers that have the store.

use super::terminal::{Failure, Outcome, print};
use crate::config::Config;
use crate::service::{self, OpenError, is_half_restored};
use crate::settings::RedisSettings;
use clap::{Arg, ArgMatches, Command};
use core::fmt::Write as _;
use serde_json::json;
use std::process::ExitCode;
use tourbillon_durable::store::{Counts, Fault, RedbStore, TimerStore as _};
use tourbillon_redis::Report;

pub(super) fn command(json: &Arg) -> Command {
    Command::new("check")
        .about("Reads the whole store of a service that does not run, and prints its faults; in Redis, also what the checks of \
                the servers find")
        .arg(json)
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    if let Some(redis) = config.redis()? {
        return check_shared(&redis, matches);
    }
    let path = config.data.join("timers.redb");
    if !path.exists() {
        return Err(format!("{}: there is no store", path.display()).into());
    }
    if is_half_restored(&config.data) {
        return Err(format!("{}: a restore into this folder has not ended", config.data.display()).into());
    }
    let of = |error| -> Failure { format!("{}: {error}", path.display()).into() };
    let store = RedbStore::builder().cache(config.cache.0).open(&path).map_err(of)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let faults = runtime.block_on(store.check()).map_err(of)?;
    let counts = runtime.block_on(store.counts()).map_err(of)?;
    store.close().map_err(of)?;
    show(&path.display().to_string(), None, Some((&counts, &faults)), matches)
}

/// Checks the servers, and the deployment unless the servers are refused.
fn check_shared(redis: &RedisSettings, matches: &ArgMatches) -> Outcome {
    let place = format!("the deployment {}", redis.deployment);
    let report = match service::checked(redis) {
        Ok(report) => report,
        Err(OpenError::Servers(report) | OpenError::NoServers(report)) => {
            return show(&place, Some(&report), None, matches);
        }
        Err(error) => return Err(error.into()),
    };
    let of = |error| -> Failure { format!("{place}: {error}").into() };
    let store = service::open_store(redis).map_err(of)?;
    let faults = pollster::block_on(store.check()).map_err(of)?;
    let counts = pollster::block_on(store.counts()).map_err(of)?;
    show(&place, Some(&report), Some((&counts, &faults)), matches)
}

/// Prints what was found. Fails if there are faults, or if no store was read.
fn show(
    place: &str,
    report: Option<&Report>,
    found: Option<(&Counts, &[Fault])>,
    matches: &ArgMatches,
) -> Outcome {
    let stored = found.map(|(counts, _)| counts.by_namespace.values().sum::<u64>());
    let faults = found.map_or(&[][..], |(_, faults)| faults);
    let lines = report.map(Report::lines).unwrap_or_default();
    if matches.get_flag("json") {
        let mut shown = json!({
            "timers": stored, "faults": faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        if report.is_some() {
            let line = |line: &tourbillon_redis::Line| json!({ "grade": line.grade().to_string(), "server": line.server(), "text": line.text() });
            shown["servers"] = lines.iter().map(line).collect();
        }
        print(format_args!("{shown:#}\n"))?;
    } else {
        let mut text = String::new();
        for line in lines {
            let _infallible = writeln!(text, "{line}");
        }
        if let Some(stored) = stored {
            let _infallible = writeln!(text, "{place}: {stored} timers, {} faults", faults.len());
        }
        for fault in faults {
            let _infallible = writeln!(text, "{fault}");
        }
        print(text)?;
    }
    Ok(if found.is_some() && faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
