//! Runs `tourbillond check`, which searches the store for faults. With Redis, it also checks the servers. With
//! PostgreSQL, it also checks the version of the schema.

use super::terminal::{Failure, Outcome, print};
use crate::config::Config;
use crate::service::{self, OpenError, Service, is_half_restored};
use crate::settings::{PostgresSettings, RedisSettings, StorePlace};
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
use tourbillon_sqlite::rusqlite::{Connection, OpenFlags};

pub(super) fn command(json: &Arg) -> Command {
    Command::new("check")
        .about("Reads the whole store of a service that does not run, with the checksums of its pages, and the files beside it, and \
                prints the faults. A store in a file is opened as the service opens it, so its disk must be writable. With Redis, also checks the servers")
        .arg(json)
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    let store = config.store()?;
    let is_shared = matches!(store, StorePlace::Redis(_) | StorePlace::Postgres(_));
    let faults = Service::unreadable_files(&config.data, &config.token_file(), is_shared);
    let checked = match store {
        StorePlace::File => check_file(config, faults),
        StorePlace::Sqlite(path) => check_sqlite(config, &path, faults),
        StorePlace::Redis(redis) => check_redis(&redis, faults),
        StorePlace::Postgres(postgres) => check_postgres(&postgres, faults),
    };
    show(&checked?, matches)
}

/// The result of a check of the store.
struct Checked {
    /// The name of the checked store, such as the path of its file.
    place: String,
    /// The report on the Redis servers.
    report: Option<Report>,
    /// The number of stored timers. `None` if the timers were not read.
    timers: Option<u64>,
    faults: Vec<String>,
}

impl Checked {
    /// Makes the result of a check that did not read the timers.
    fn without_timers(place: String, faults: Vec<String>) -> Self {
        Self { place, report: None, timers: None, faults }
    }

    /// Checks an open store. Adds the faults of the store to `faults`.
    fn in_store(place: String, store: &dyn TimerStore, mut faults: Vec<String>) -> Result<Self, StoreError> {
        let found = pollster::block_on(store.check())?;
        let counts = pollster::block_on(store.counts())?;
        faults.extend(found.iter().map(ToString::to_string));
        Ok(Self { place, report: None, timers: Some(counts.by_namespace.values().sum()), faults })
    }
}

/// Fails if the file `path` of the store is missing, or if a restore into the data folder has begun and not ended.
fn require_whole(config: &Config, path: &Path) -> Result<(), Failure> {
    if !path.exists() {
        return Err(format!("{}: there is no store", path.display()).into());
    }
    if is_half_restored(&config.data) {
        return Err(format!("{}: a restore into this folder has not ended", config.data.display()).into());
    }
    Ok(())
}

fn check_file(config: &Config, mut faults: Vec<String>) -> Result<Checked, Failure> {
    let path = config.data.join("timers.redb");
    require_whole(config, &path)?;
    let place = path.display().to_string();
    let failure = |error| -> Failure { format!("{}: {error}", path.display()).into() };
    let pages = RedbStore::builder().verify(&path).map_err(failure)?;
    if !pages.is_empty() {
        // The store is not opened, because that would write to the file, and would give damaged pages valid checksums.
        faults.extend(pages.iter().map(ToString::to_string));
        return Ok(Checked::without_timers(place, faults));
    }
    // The scrub is off, because it could repair entries before the check has named their faults.
    let store = RedbStore::builder().cache(config.cache.0).scrub(0).open(&path).map_err(failure)?;
    let checked = Checked::in_store(place, &store, faults).map_err(failure)?;
    store.close().map_err(failure)?;
    Ok(checked)
}

/// Checks an SQLite database. Fails without a change if the database has no tables of timers.
fn check_sqlite(config: &Config, path: &Path, faults: Vec<String>) -> Result<Checked, Failure> {
    require_whole(config, path)?;
    let failure = |error| -> Failure { format!("{}: {error}", path.display()).into() };
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| -> Failure { format!("{}: {error}", path.display()).into() })?;
    if tourbillon_sqlite::schema(&connection).map_err(failure)?.is_none() {
        return Err(format!("{}: the database has no timers", path.display()).into());
    }
    drop(connection);
    // Each of the store's two connections has a cache of its own.
    let store = SqliteStore::builder().cache(config.cache.0 / 2).open(path).map_err(failure)?;
    let checked = Checked::in_store(path.display().to_string(), &store, faults).map_err(failure)?;
    store.close().map_err(failure)?;
    Ok(checked)
}

/// Checks the Redis servers, and then the documents and the timers that the service stores on them. Leaves the timers
/// unchecked if the servers cannot be used. Creates no deployment, because a new deployment could hide a loss.
fn check_redis(redis: &RedisSettings, mut faults: Vec<String>) -> Result<Checked, Failure> {
    let place = format!("the deployment {}", redis.deployment);
    let report = match service::checked(redis) {
        Ok(report) => report,
        Err(OpenError::Servers(report) | OpenError::NoServers(report)) => {
            return Ok(Checked { report: Some(report), ..Checked::without_timers(place, faults) });
        }
        Err(error) => return Err(error.into()),
    };
    if report.is_absent() {
        let missing = "the servers have no timers under this name. The first start of a service makes the deployment. \
                       If there were timers, the servers have lost them: restore a backup of the servers, or make an \
                       empty deployment by `tourbillond mend --anew`";
        faults.push(missing.to_owned());
        return Ok(Checked { report: Some(report), ..Checked::without_timers(place, faults) });
    }
    let failure = |error| -> Failure { format!("the deployment {}: {error}", redis.deployment).into() };
    let store: Arc<dyn ClusterStore> = Arc::new(service::open_store(redis).map_err(failure)?);
    faults.extend(Service::unreadable_documents(&store, true));
    let checked = Checked::in_store(place, &*store, faults).map_err(failure)?;
    Ok(Checked { report: Some(report), ..checked })
}

/// Checks the timers in a schema of PostgreSQL, and the documents in which its nodes share namespaces and operations.
/// Changes nothing. Fails if the version of the schema is not the version of this program.
fn check_postgres(postgres: &PostgresSettings, mut faults: Vec<String>) -> Result<Checked, Failure> {
    let place = format!("the schema {} (version {})", postgres.schema, tourbillon_postgres::VERSION);
    let failure = |error| -> Failure { format!("the schema {}: {error}", postgres.schema).into() };
    let store = service::inspect_postgres(postgres).map_err(failure)?;
    if !pollster::block_on(store.is_open_to_service()).map_err(failure)? {
        faults.push(
            "the timers are those of programs, which the service cannot deliver: it does not start".into(),
        );
    }
    let store: Arc<dyn ClusterStore> = Arc::new(store);
    // Clients may create timers in SQL before the first start. A node that runs has made or found the document of the
    // namespaces.
    let nodes = pollster::block_on(store.nodes()).map_err(failure)?.unwrap_or_default().nodes;
    let is_made = nodes.iter().any(|node| node.is_live && !node.is_this);
    faults.extend(Service::unreadable_documents(&store, is_made));
    Checked::in_store(place, &*store, faults).map_err(failure)
}

/// Prints the result of a check. The exit code is 0 if the timers were read without any fault, otherwise 1.
fn show(checked: &Checked, matches: &ArgMatches) -> Outcome {
    let Checked { place, report, timers, faults } = checked;
    let lines = report.as_ref().map(Report::lines).unwrap_or_default();
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
                let _infallible =
                    writeln!(text, "{place}: the timers were not read, {} faults", faults.len());
            }
        }
        for fault in faults {
            let _infallible = writeln!(text, "{}", escaped(fault));
        }
        print(text)?;
    }
    Ok(if timers.is_some() && faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
