//! Runs `tourbillond mend`. With Redis, it restores shards that their servers have lost. With Redis and PostgreSQL, it
//! restores the document of the namespaces. With a store in a file, it removes the damaged records.

use super::terminal::{Failure, Outcome, note, print};
use crate::audit::{Deed, End};
use crate::config::Config;
use crate::service::{self, MendedNamespaces};
use crate::settings::{PostgresSettings, RedisSettings, StorePlace};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use tourbillon_api::AuditAction;
use tourbillon_durable::store::{RedbStore, StoreError};
use tourbillon_sqlite::SqliteStore;

pub(super) fn command(json: &Arg) -> Command {
    Command::new("mend")
        .about(
            "Repairs the store of the service, which must not run if its store is a file. In a file: removes the damaged \
             records that were set aside. Run `tourbillond check` first, which names these records, so that you can make \
             their timers again. On Redis: makes shards anew, without timers, that their servers have lost. On Redis \
             and in PostgreSQL: makes the document of the namespaces anew if it is lost, and a node that runs puts its \
             copy there. If there is a backup of the server, restore it first",
        )
        .arg(
            Arg::new("anew")
                .long("anew")
                .action(ArgAction::SetTrue)
                .help(
                    "On Redis: makes a deployment again, without timers, of which nothing is left; nodes that run go \
                     on with it, and put their namespaces there",
                ),
        )
        .arg(json)
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    match config.store()? {
        StorePlace::Redis(redis) => mend_redis(config, &redis, matches),
        _ if matches.get_flag("anew") => {
            Err("--anew is for a deployment in Redis, and the timers are not there".into())
        }
        StorePlace::Postgres(postgres) => mend_postgres(config, &postgres, matches),
        StorePlace::File => forget_damaged(config, &config.data.join("timers.redb"), matches, |path| {
            RedbStore::builder().cache(config.cache.0).forget_damaged(path)
        }),
        StorePlace::Sqlite(path) => forget_damaged(config, &path, matches, |path| {
            pollster::block_on(SqliteStore::open(path)?.forget_damaged())
        }),
    }
}

/// Makes the shards whose data the Redis servers have lost accept timers again, and restores the document of the
/// namespaces if a running node has a copy.
fn mend_redis(config: &Config, redis: &RedisSettings, matches: &ArgMatches) -> Outcome {
    let place = format!("the deployment {}", redis.deployment);
    let mended = service::mend(redis, matches.get_flag("anew"))
        .map_err(|error| -> Failure { format!("{place}: {error}").into() })?;
    // A server that does not answer may have the namespaces, and the command has to be repeated anyway.
    let namespaces = service::mend_namespaces(redis);
    let marked = mended.marked.len();
    let detail = format!("{place}: {marked} shards were brought back");
    // The audit entry comes before the output, because a failed output ends the function.
    note(config, Deed::new(AuditAction::Mend).detail(detail), End::done());
    if matches.get_flag("json") {
        let shown = json!({
            "shards": mended.shards, "marked": mended.marked, "key": mended.has_made_key, "silent": mended.silent,
            "namespaces": word(&namespaces),
        });
        print(format_args!("{shown:#}\n"))?;
    } else {
        let count = mended.shards;
        print(format_args!("{place}: {marked} of {count} shards were lost, and are back\n"))?;
        if mended.has_made_key {
            print(format_args!("its own key was lost, and is back\n"))?;
        }
        show(&namespaces)?;
        if !mended.silent.is_empty() {
            print(format_args!("the servers of {} shards do not answer\n", mended.silent.len()))?;
        }
    }
    // A server that does not answer may have lost shards, too, so the command has to be repeated.
    Ok(if mended.silent.is_empty() && namespaces.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Restores the document of the namespaces in PostgreSQL. PostgreSQL keeps the timers whole.
fn mend_postgres(config: &Config, postgres: &PostgresSettings, matches: &ArgMatches) -> Outcome {
    let place = format!("the schema {}", postgres.schema);
    let namespaces = service::mend_namespaces_in_postgres(postgres);
    let word = word(&namespaces);
    note(config, Deed::new(AuditAction::Mend).detail(format!("{place}: namespaces {word}")), End::done());
    if matches.get_flag("json") {
        print(format_args!("{:#}\n", json!({ "namespaces": word })))?;
    } else {
        print(format_args!("{place}: the timers in PostgreSQL need no mend\n"))?;
        show(&namespaces)?;
    }
    Ok(if namespaces.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Namespaces = io::Result<MendedNamespaces>;

/// Returns the word for what has become of the namespaces, for programs.
const fn word(namespaces: &Namespaces) -> &'static str {
    match namespaces {
        Ok(MendedNamespaces::Kept) => "kept",
        Ok(MendedNamespaces::PutBack) => "put-back",
        Ok(MendedNamespaces::Lost) => "lost",
        Err(_) => "unread",
    }
}

/// Prints what has become of the namespaces, for people.
fn show(namespaces: &Namespaces) -> Result<(), Failure> {
    match namespaces {
        Ok(MendedNamespaces::Kept) => Ok(()),
        Ok(MendedNamespaces::PutBack) => print(format_args!(
            "the document of its namespaces was lost, and is back: a node that runs has put its copy there\n"
        )),
        Ok(MendedNamespaces::Lost) => print(format_args!(
            "its namespaces, with their limits and secrets, are lost: no copy of a node came\n"
        )),
        Err(error) => print(format_args!("its namespaces cannot be read: {error}\n")),
    }
}

/// Removes the damaged records that the store in the file `path` keeps apart from the other records. `forget` removes
/// them, and returns their number.
fn forget_damaged(
    config: &Config,
    path: &Path,
    matches: &ArgMatches,
    forget: impl FnOnce(&Path) -> Result<u64, StoreError>,
) -> Outcome {
    if !path.exists() {
        return Err(format!("{}: there is no store", path.display()).into());
    }
    let forgotten =
        forget(path).map_err(|error| -> Failure { format!("{}: {error}", path.display()).into() })?;
    let detail = format!("{forgotten} damaged records were removed");
    note(config, Deed::new(AuditAction::Mend).detail(detail), End::done());
    if matches.get_flag("json") {
        print(format_args!("{:#}\n", json!({ "forgotten": forgotten })))?;
    } else {
        print(format_args!("{}: {forgotten} damaged records were removed\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
