//! `tourbillond mend`: brings shards back that their Redis servers have lost.

use super::terminal::{Failure, Outcome, print};
use crate::config::Config;
use crate::service;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use std::process::ExitCode;

pub(super) fn command(json: &Arg) -> Command {
    Command::new("mend")
        .about(
            "Brings shards back that their Redis servers have lost, as after a restart without their data. Restore a \
             backup of the server before, if there is one: what was lost does not come back by this",
        )
        .arg(
            Arg::new("anew")
                .long("anew")
                .action(ArgAction::SetTrue)
                .help("Makes a deployment again, empty, of which nothing is left; nodes that run go on with it"),
        )
        .arg(json)
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Outcome {
    let Some(redis) = config.redis()? else {
        return Err("the timers are in a file: `tourbillond mend` is for those in Redis".into());
    };
    let place = format!("the deployment {}", redis.deployment);
    let mended = service::mend(&redis, matches.get_flag("anew"))
        .map_err(|error| -> Failure { format!("{place}: {error}").into() })?;
    if matches.get_flag("json") {
        let shown = json!({
            "shards": mended.shards, "marked": mended.marked, "key": mended.has_made_key, "silent": mended.silent,
        });
        print(format_args!("{shown:#}\n"))?;
    } else {
        let (count, marked) = (mended.shards, mended.marked.len());
        print(format_args!("{place}: {marked} of {count} shards were lost, and are back\n"))?;
        if mended.has_made_key {
            print(format_args!(
                "its own key was lost, and is back; namespaces and their limits were beside it, and are lost\n"
            ))?;
        }
        if !mended.silent.is_empty() {
            print(format_args!("the servers of {} shards do not answer\n", mended.silent.len()))?;
        }
    }
    Ok(if mended.silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
