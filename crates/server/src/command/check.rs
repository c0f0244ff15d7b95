//! Runs `tourbillond check`, which searches the store for faults. With Redis, it also checks the servers. With
//! PostgreSQL, it also checks the version of the schema.

use super::terminal::{Failure, Outcome, print};
use crate::config::Config;
use crate::service::{self, OpenError, is_half_restored};
use crate::settings::{PostgresSettings, RedisSettings};
use crate::state::ClusterStore;
use crate::text::escaped;
use clap::{Arg, ArgMatches, Command};
use core::fmt::Write as _;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tourbillon_durable::store::{RedbStore, StoreError, TimerStore};
use tourbillon_redis::Report;
use tourbillon_sqlite::SqliteStore;

pub(super) fn command(json: &Arg) -> Command {
    Command::new("check")
        .about("Reads the whole store of a service that does not run, with the checksums of its pages, and the files beside it, and \
                prints the faults. With Redis, also checks the servers")
        .arg(json)
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    if let Some(redis) = config.redis()? {
        return check_redis(config, &redis, matches);
    }
    if let Some(path) = &config.sqlite_path {
        return check_sqlite(config, path, matches);
    }
    if let Some(postgres) = config.postgres()? {
        return check_postgres(config, &postgres, matches);
    }
    let path = config.data.join("timers.redb");
    if !path.exists() {
        return Err(format!("{}: there is no store", path.display()).into());
    }
    if is_half_restored(&config.data) {
        return Err(format!("{}: a restore into this folder has not ended", config.data.display()).into());
    }
    let failure = |error| -> Failure { format!("{}: {error}", path.display()).into() };
    let place = path.display().to_string();
    let mut faults = service::Service::unreadable_files(&config.data, &config.token_file(), false);
    let pages = RedbStore::builder().verify(&path).map_err(failure)?;
    if !pages.is_empty() {
        // The store is not opened. Opening the store would write to the file, and would give damaged pages valid
        // checksums.
        faults.extend(pages.iter().map(ToString::to_string));
        return show(&place, None, &Found { timers: None, faults }, matches);
    }
    // The scrub is off, because it could repair entries before the check has named their faults.
    let store = RedbStore::builder().cache(config.cache.0).scrub(0).open(&path).map_err(failure)?;
    let found = Found::in_store(&store, faults).map_err(failure)?;
    store.close().map_err(failure)?;
    show(&place, None, &found, matches)
}

/// Checks an SQLite database, and the service's files in the data folder.
fn check_sqlite(config: &Config, path: &Path, matches: &ArgMatches) -> Outcome {
    if !path.exists() {
        return Err(format!("{}: there is no store", path.display()).into());
    }
    if is_half_restored(&config.data) {
        return Err(format!("{}: a restore into this folder has not ended", config.data.display()).into());
    }
    let failure = |error| -> Failure { format!("{}: {error}", path.display()).into() };
    let faults = service::Service::unreadable_files(&config.data, &config.token_file(), false);
    // Each of the store's two connections has a cache of its own.
    let store = SqliteStore::builder().cache(config.cache.0 / 2).open(path).map_err(failure)?;
    let found = Found::in_store(&store, faults).map_err(failure)?;
    store.close().map_err(failure)?;
    show(&path.display().to_string(), None, &found, matches)
}

/// The result of a check of the store: the faults that were found, and the number of timers.
struct Found {
    /// The number of stored timers. `None` if the timers were not read.
    timers: Option<u64>,
    faults: Vec<String>,
}

impl Found {
    /// Checks an open store. The result has the given `faults`, followed by the faults of the store.
    fn in_store(store: &dyn TimerStore, mut faults: Vec<String>) -> Result<Self, StoreError> {
        let found = pollster::block_on(store.check())?;
        let counts = pollster::block_on(store.counts())?;
        faults.extend(found.iter().map(ToString::to_string));
        Ok(Self { timers: Some(counts.by_namespace.values().sum()), faults })
    }
}

/// Checks the service's files in the data folder, the Redis servers, and then the timers that the service stores on
/// these servers. Leaves the timers unchecked if the servers cannot be used.
fn check_redis(config: &Config, redis: &RedisSettings, matches: &ArgMatches) -> Outcome {
    let place = format!("the deployment {}", redis.deployment);
    let mut faults = service::Service::unreadable_files(&config.data, &config.token_file(), true);
    let report = match service::checked(redis) {
        Ok(report) => report,
        Err(OpenError::Servers(report) | OpenError::NoServers(report)) => {
            let found = Found { timers: None, faults };
            return show(&place, Some(&report), &found, matches);
        }
        Err(error) => return Err(error.into()),
    };
    let failure = |error| -> Failure { format!("{place}: {error}").into() };
    let store: Arc<dyn ClusterStore> = Arc::new(service::open_store(redis).map_err(failure)?);
    faults.extend(service::Service::unreadable_documents(&store));
    let found = Found::in_store(&*store, faults).map_err(failure)?;
    show(&place, Some(&report), &found, matches)
}

/// Checks the timers in a schema of PostgreSQL, the documents in which its nodes share namespaces and operations, and
/// the service's files in the data folder. Changes nothing. Fails if the version of the schema is not the version of
/// this program.
fn check_postgres(config: &Config, postgres: &PostgresSettings, matches: &ArgMatches) -> Outcome {
    let place = format!("the schema {} (version {})", postgres.schema, tourbillon_postgres::VERSION);
    let failure = |error| -> Failure { format!("the schema {}: {error}", postgres.schema).into() };
    let store: Arc<dyn ClusterStore> = Arc::new(service::open_postgres(postgres, false).map_err(failure)?);
    let mut faults = service::Service::unreadable_files(&config.data, &config.token_file(), true);
    faults.extend(service::Service::unreadable_documents(&store));
    let found = Found::in_store(&*store, faults).map_err(failure)?;
    show(&place, None, &found, matches)
}

/// Prints the result of a check. `place` names the checked store. The exit code is 0 if the timers were read without
/// any fault, otherwise 1.
fn show(place: &str, report: Option<&Report>, found: &Found, matches: &ArgMatches) -> Outcome {
    let Found { timers, faults } = found;
    let lines = report.map(Report::lines).unwrap_or_default();
    if matches.get_flag("json") {
        let mut shown = json!({
            "timers": timers, "faults": faults,
        });
        if report.is_some() {
            let line = |line: &tourbillon_redis::Line| json!({ "grade": line.grade().to_string(), "server": line.server(), "text": line.text() });
            shown["servers"] = lines.iter().map(line).collect();
        }
        print(format_args!("{shown:#}\n"))?;
    } else {
        let mut text = String::new();
        for line in lines {
            let _infallible = writeln!(text, "{}", escaped(&line.to_string()));
        }
        match timers {
            Some(timers) => {
                let _infallible = writeln!(text, "{place}: {timers} timers, {} faults", faults.len());
            }
            // The servers cannot be used. The lines of the report say why.
            None if faults.is_empty() => {}
            None => {
                let _infallible = writeln!(text, "{place}: damaged, {} faults", faults.len());
            }
        }
        for fault in faults {
            let _infallible = writeln!(text, "{}", escaped(fault));
        }
        print(text)?;
    }
    Ok(if timers.is_some() && faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
