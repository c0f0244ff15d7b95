//! Runs `tourbillond restore`. It stores the timers of a backup in the empty store of a stopped service.

use super::terminal::{Outcome, note, print, say};
use crate::audit::{Deed, End};
use crate::config::{Config, Value as _};
use crate::service;
use crate::settings::StorePlace;
use clap::{Arg, ArgMatches, Command};
use core::time::Duration;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use tourbillon_api::{AuditAction, Moment};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::Restore;

pub(super) fn command(json: &Arg) -> Command {
    Command::new("restore")
        .about("Stores the timers of a backup in the empty store of a service that does not run")
        .long_about(
            "Stores the timers, schedules and namespaces of a backup, as `tourbillon backup` writes it, in the data folder \
             of a service that does not run and has no timers, or in a deployment in Redis or PostgreSQL without nodes and timers. The backup is verified before anything is stored. Timers \
             that were delivered after the backup was made are delivered again, with the same ids.",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .help("The backup"),
        )
        .arg(
            Arg::new("due_floor")
                .long("due-floor")
                .value_name("MOMENT")
                .value_parser(floor)
                .help("Timers that are due earlier become due then: `now+5m`, or a moment after RFC 3339"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("NUMBER")
                .requires("due_floor")
                .value_parser(clap::value_parser!(u32).range(1..))
                .help(
                    "Timers that are due at the moment of --due-floor or earlier become due from that moment on, \
                     NUMBER a second",
                ),
        )
        .arg(json)
}

/// The earliest due moment of restored timers, as the user gives it: an absolute moment, or a time from now. Timers
/// that were due earlier become due at this moment. If the user also gives a rate, they become due one after the other
/// from this moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    At(UtcMillis),
    In(Duration),
}

fn floor(text: &str) -> Result<Floor, String> {
    let fault = || format!("{text:?} is neither a moment after RFC 3339 nor like `now+5m`");
    match text.strip_prefix("now") {
        Some("") => Ok(Floor::In(Duration::ZERO)),
        Some(rest) => Duration::parse(rest.strip_prefix('+').ok_or_else(fault)?).map(Floor::In),
        None => {
            let moment: Moment = text.parse().map_err(|_| fault())?;
            Ok(Floor::At(moment.into()))
        }
    }
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    let file = matches.get_one::<PathBuf>("file").ok_or("a backup is needed")?;
    let rate = matches.get_one::<u32>("rate").copied();
    let floor = matches.get_one::<Floor>("due_floor").copied();
    // The moment comes from the store, because the clock of the store decides when timers are due.
    let how = |now| {
        let due_floor = floor.map(|floor| match floor {
            Floor::At(moment) => moment,
            Floor::In(span) => now + span,
        });
        Restore { due_floor, rate }
    };
    let data = &config.data;
    let (restored, place) = match config.store()? {
        StorePlace::File => (service::restore(data, config.cache.0, file, how)?, data.display().to_string()),
        StorePlace::Sqlite(path) => {
            (service::restore_on_sqlite(data, &path, file, how)?, path.display().to_string())
        }
        StorePlace::Redis(redis) => {
            (service::restore_shared(&redis, file, how)?, format!("the deployment {}", redis.deployment))
        }
        StorePlace::Postgres(postgres) => {
            (service::restore_in_postgres(&postgres, file, how)?, format!("the schema {}", postgres.schema))
        }
    };
    let deed = Deed::new(AuditAction::Restore).target(file.display().to_string()).detail(place.as_str());
    // The audit entry comes before the output, because a failed output ends the function.
    note(config, deed, End::done().count(restored.timers));
    for name in &restored.kept {
        say(format_args!("the namespace {name:?} stays as it is, with its limits and secrets"));
    }
    for name in &restored.bare {
        say(format_args!("the namespace {name:?} is not in the backup: it has no limits and no secrets"));
    }
    let at = Moment::from(restored.at);
    if matches.get_flag("json") {
        let json = json!({
            "at": at, "timers": restored.timers, "namespaces_kept": restored.kept, "namespaces_bare": restored.bare,
        });
        print(format_args!("{json:#}\n"))?;
    } else {
        print(format_args!("{}: {} timers restored, as they were at {at}\n", place, restored.timers))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_a_moment_or_a_time_from_now_on() {
        assert_eq!(floor("now+5m"), Ok(Floor::In(Duration::from_secs(300))));
        assert_eq!(floor("now"), Ok(Floor::In(Duration::ZERO)));
        assert_eq!(floor("1970-01-01T00:00:01Z"), Ok(Floor::At(UtcMillis::from_millis(1_000))));
        for wrong in ["", "now-5m", "now5m", "now+", "5m", "tomorrow"] {
            assert!(floor(wrong).is_err(), "{wrong}");
        }
    }
}
