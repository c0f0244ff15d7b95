#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// The modules are on floors. A module uses only modules of its own floor and of lower floors, which `tests/tidy`
// checks.

// Floor 0: forms of input and output.
mod output;
mod parse;

// Floor 1: exit codes and failures.
mod exit;

// Floor 2: the settings, and the measurement `tourbillon bench`.
mod bench;
mod config;

// Floor 3: the commands.
mod commands;

use clap::{CommandFactory as _, Parser, Subcommand};
use commands::{
    audit, backup, endpoints, list, manage, nodes, operation, place, pull, schedule, single, watch,
};
use config::{Config, Flags};
use exit::{Code, Failure};
use output::Output;
use std::process::ExitCode;

const AFTER: &str =
    "Durations are whole numbers with units: 30d, 1h30m, 5m, 250ms. Moments are written after RFC 3339:
2026-12-24T18:00:00Z.

Exit codes:
  0  fulfilled
  1  not fulfilled: the service refused, a cancelled timer was being delivered, a dead timer was not replayed, an
     operation or a check failed
  2  the command, a setting or a file is not valid; nothing was sent
  3  there is no such timer, schedule, namespace or operation, or no timer to claim
  4  the service cannot be reached, or its answer cannot be read; nothing was changed
  5  unknown outcome: the change was sent, and whether it was made is not known
  6  the token is missing, unknown, or does not permit this";

/// The command line of tourbillond, the service for durable timers.
#[derive(Debug, Parser)]
#[command(name = "tourbillon", version, after_help = AFTER, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    flags: Flags,
    /// Print JSON: a single value, or one value on each line.
    #[arg(long, global = true, help_heading = "Service")]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a timer
    Put(Box<place::Put>),
    /// Show a timer
    Get(single::Which),
    /// Show a timer's past, even after its end: its attempts and how it ended
    History(single::Which),
    /// Cancel a timer, or drop a dead timer
    Cancel(single::Which),
    /// Move a timer's due moment
    Move(single::Move),
    /// Deliver a timer now
    Fire(single::Which),
    /// Pause a timer: it is not delivered until it is resumed
    Pause(single::Which),
    /// Resume a paused timer
    Resume(single::Which),
    /// List timers
    List(list::List),
    /// Cancel all timers that have a label, or whose keys begin with a text
    CancelMany(list::CancelMany),
    /// Show events as they happen
    Tail(watch::Tail),
    /// List, replay or drop dead timers, on which the service gave up
    #[command(subcommand)]
    Dead(list::Dead),
    /// Manage schedules, which make timers repeatedly
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Manage namespaces
    #[command(subcommand)]
    Ns(manage::Ns),
    /// List the hosts to which callbacks go, with their breakers and response times
    Endpoints,
    /// List the nodes that share the timers, or the shards, into which the timers are divided
    Nodes(nodes::Which),
    /// List operations on many timers, or show one operation
    Operation(operation::Which),
    /// Fetch due timers from a queue
    Claim(pull::Claim),
    /// Acknowledge fetched timers, whose deliveries succeeded
    Ack(pull::Ack),
    /// Report that the delivery of a fetched timer has failed, or put the timer off
    Nack(pull::Nack),
    /// Renew the claim of a fetched timer
    Renew(pull::Renew),
    /// Show the audit trail: changes of namespaces, of tokens and of many timers at once, and all changes that were
    /// made on the web page
    Audit(audit::Audit),
    /// Copy all timers, schedules and namespaces into a file, while the service runs
    Backup(backup::Backup),
    /// Show the counters of the service, such as the number of pending timers
    Stats,
    /// Show the counters of the service live, as a table
    Top(watch::Top),
    /// Measure the performance of a running service
    Bench(bench::Bench),
    /// Print a completion script for a shell
    Completions {
        /// The shell that will run the script
        shell: clap_complete::Shell,
    },
    /// Print each setting with its origin
    Config,
}

/// Runs the program: reads the arguments, runs the command, and returns the exit code. The README lists the exit
/// codes.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_json = arguments.json;
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_reader_gone => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text(is_json) {
                eprintln!("{text}");
            }
            ExitCode::from(failure.code as u8)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    if let Command::Completions { shell } = arguments.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "tourbillon", &mut script);
        return Ok(output::print(String::from_utf8_lossy(&script).trim_end())?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::NotFulfilled, format!("no threads: {error}")))?;
    let config = Config::load(&arguments.flags)?;
    runtime.block_on(obey(arguments.command, &config, Output { is_json: arguments.json }))
}

async fn obey(command: Command, config: &Config, output: Output) -> Result<(), Failure> {
    if let Command::Config = command {
        return Ok(manage::show_config(config, output)?);
    }
    let client = config.client()?;
    let timers = client.namespace(config.namespace());
    match command {
        Command::Put(put) => place::put(*put, &timers, output).await,
        Command::Get(which) => single::get(which, &timers, output).await,
        Command::History(which) => single::history(which, &timers, output).await,
        Command::Cancel(which) => single::cancel(which, &timers, output).await,
        Command::Move(to) => single::move_to(to, &timers, output).await,
        Command::Fire(which) => single::fire(which, &timers, output).await,
        Command::Pause(which) => single::pause(which, &timers, output).await,
        Command::Resume(which) => single::resume(which, &timers, output).await,
        Command::List(list) => list::list(list, &timers, output).await,
        Command::CancelMany(which) => list::cancel_many(which, &timers, output).await,
        Command::Tail(tail) => watch::tail(tail, &client, config.namespace(), output).await,
        Command::Dead(dead) => list::dead(dead, &timers, output).await,
        Command::Schedule(command) => schedule::schedule(command, &timers, output).await,
        Command::Ns(ns) => manage::ns(ns, &client, output).await,
        Command::Endpoints => endpoints::endpoints(&client, output).await,
        Command::Nodes(which) => nodes::nodes(which, &client, output).await,
        Command::Operation(which) => operation::operation(which, &timers, output).await,
        Command::Claim(claim) => pull::claim(claim, &timers, output).await,
        Command::Ack(ack) => pull::ack(ack, &timers).await,
        Command::Nack(nack) => pull::nack(nack, &timers).await,
        Command::Renew(renew) => pull::renew(renew, &timers, output).await,
        Command::Audit(which) => audit::audit(which, &client, config.named_namespace(), output).await,
        Command::Backup(to) => backup::backup(to, &client, output).await,
        Command::Stats => watch::stats(&client, output).await,
        Command::Top(top) => watch::top(top, &client, config.url(), output).await,
        Command::Bench(bench) => bench::run(bench, &client, config.namespace(), output).await,
        Command::Completions { .. } | Command::Config => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Arguments::command().debug_assert();
    }

    /// Checks the groups of flags that exclude each other. clap adds all arguments of a struct to the struct's group.
    /// So the struct of a group must not contain a flag with another purpose.
    #[test]
    fn a_flag_excludes_no_other_by_being_beside_it() {
        fn groups(command: &clap::Command, path: &str, found: &mut Vec<(String, Vec<String>)>) {
            for group in command.get_groups() {
                let mut group = group.clone();
                if !group.is_multiple() {
                    found.push((path.to_owned(), group.get_args().map(ToString::to_string).collect()));
                }
            }
            for inner in command.get_subcommands() {
                groups(inner, &format!("{path} {}", inner.get_name()), found);
            }
        }
        let mut found = Vec::new();
        groups(&Arguments::command(), "tourbillon", &mut found);
        let one_of = ["label", "key_prefix"].map(str::to_owned).to_vec();
        assert_eq!(found, [("tourbillon cancel-many".to_owned(), one_of)]);
    }
}
