//! `tourbillond check`: looks for faults in the store's structure.

use super::terminal::{Failure, Outcome, print};
use crate::config::Config;
use crate::service::is_half_restored;
use clap::{Arg, ArgMatches, Command};
use core::fmt::Write as _;
use serde_json::json;
use std::process::ExitCode;
use tourbillon_durable::store::{RedbStore, TimerStore as _};

pub(super) fn command(json: &Arg) -> Command {
    Command::new("check")
        .about("Reads the whole store of a service that does not run, and prints its faults")
        .arg(json)
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
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
    let stored: u64 = counts.by_namespace.values().sum();
    if matches.get_flag("json") {
        let faults: Vec<_> = faults.iter().map(|fault| fault.to_string()).collect();
        print(format_args!("{:#}\n", json!({ "timers": stored, "faults": faults })))?;
    } else {
        let mut lines = format!("{}: {stored} timers, {} faults\n", path.display(), faults.len());
        for fault in &faults {
            let _infallible = writeln!(lines, "{fault}");
        }
        print(lines)?;
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
