//! Idle timeouts for 10,000 connections: the engine's main job, on real sockets.
//!
//! A server gives each connection an idle timeout and re-arms it with every byte. The clients are in a process of their
//! own. Most of them talk, some leave, and some fall silent for ever. The engine must close the silent connections,
//! neither early nor late, and no others. Server and clients count, and at the end the counts are compared.
//!
//! ```text
//!  clients                      server loop                       engine
//!  connect ──────────────────►  accept, arm, greet  ───────────►  timer, arm_at(now + idle timeout)
//!  talk    ──────────────────►  read, re-arm                      arm_at: a store and a load, no ticket
//!  (silence)                                                      the timer fires
//!                               heard since? no: close  ◄───────────┘
//!  see the end  ◄─────────────────┘
//!  leave   ──────────────────►  see the end  ──────────────────►  disarm_and_wait
//! ```
//!
//! `cargo run --release --example connection_timeouts -- --help`
#![expect(clippy::print_stdout, reason = "the account is what this program is for")]

mod account;
mod clients;
mod connection;
mod crowd;
mod event_loop;
mod mailbox;
mod options;
mod server;
mod system;
mod tally;

use account::{Account, Moment, Steady};
use clients::ClientProcess;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use options::Options;
use server::Server;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const FRAME: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let options = Options::parse_and_check();
    let outcome = if options.is_client_process() {
        clients::run(&options).map(|()| ExitCode::SUCCESS)
    } else {
        serve(&options).map(|account| present(&account, options.json))
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn serve(options: &Options) -> Result<Account, Box<dyn Error>> {
    let connections = connections_that_fit(options.connections)?;
    let server = Server::start(options, connections)?;
    let clients = ClientProcess::start(options, connections, server.addresses())?;
    let steady = watch(options, connections, &server, &clients)?;
    // The sockets stay open until the clients have reported in which state they found them.
    let closing = server.stop()?;
    let clients = clients.stop()?;
    Ok(Account {
        connections,
        idle_timeout: options.idle_timeout,
        server: closing.tally,
        close_lateness: closing.close_lateness,
        server_cpu: closing.cpu_time,
        engine: closing.engine.handle().stats(),
        steady,
        clients,
    })
}

/// Returns the number of connections that the limits of open files allow, at most `wanted`. Each connection takes a
/// file of the server and a file of the clients' process.
fn connections_that_fit(wanted: usize) -> std::io::Result<usize> {
    const OTHER_FILES: usize = 100;
    let fitting = system::raise_file_limit()?.saturating_sub(OTHER_FILES);
    if fitting < wanted {
        eprintln!("scaled down from {wanted} to {fitting} connections: that many files a process may open");
    }
    Ok(wanted.min(fitting))
}

/// Draws the progress until the time is up. Returns the engine's work during the time in which all connections were
/// open. `None` if they never were.
fn watch(
    options: &Options,
    connections: usize,
    server: &Server,
    clients: &ClientProcess,
) -> Result<Option<Steady>, Box<dyn Error>> {
    let bar = progress_bar(options);
    let start = server.engine().now();
    let mut all_open = None;
    loop {
        let elapsed = server.engine().now() - start;
        let tally = server.tally();
        bar.set_position(u64::try_from(elapsed.as_millis())?);
        bar.set_message(tally.summary());
        if all_open.is_none() && tally.opened == connections as u64 {
            all_open = Some(Moment { elapsed, rearmed: tally.rearmed, engine: server.engine().stats() });
        }
        if elapsed >= options.seconds || server.has_failed() {
            bar.finish_and_clear();
            let end = Moment { elapsed, rearmed: tally.rearmed, engine: server.engine().stats() };
            return Ok(all_open.map(|begin| Steady { begin, end }));
        }
        if clients.has_ended_within(FRAME) {
            return Err("the clients ended before their time".into());
        }
    }
}

fn progress_bar(options: &Options) -> ProgressBar {
    let target = if options.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar} {msg}").expect("a valid template");
    let length = u64::try_from(options.seconds.as_millis()).unwrap_or(u64::MAX);
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}

/// Prints the account. Prints to stderr the values that break an expectation.
fn present(account: &Account, as_json: bool) -> ExitCode {
    let lines = account.lines();
    if as_json {
        println!("{}", account::to_json(&lines));
    } else {
        println!("{}", account::to_table(&lines));
    }
    let mut exit_code = ExitCode::SUCCESS;
    for failure in account::failures(&lines) {
        eprintln!("failed: {failure}");
        exit_code = ExitCode::FAILURE;
    }
    exit_code
}
