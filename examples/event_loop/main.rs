//! An event loop that uses only the wheel: an echo server on one thread, which closes idle connections.
//!
//! There is no engine and no timer thread. The wheel says how long the poll may wait. The loop reads the clock once in
//! each turn, after it has handled everything that the poll reported.
//!
//! ```text
//!  poll ──► accept, read, write ──► read the clock ──► move deadlines ──► wheel.advance: re-insert or close
//!   ▲                                                                                              │
//!   └──────────────────────────── wait until wheel.next_expiry(), if ever ─────────────────────────┘
//! ```
//!
//! A byte moves the deadline of its connection and leaves the timer where it is. A timer that comes due before its
//! connection's deadline is inserted again for that deadline.
//!
//! `cargo run --example event_loop -- --help`
#![expect(clippy::print_stdout, reason = "the address and the summary are for whoever runs this program")]

mod clock;
mod connection;
mod server;
mod tally;

use clap::Parser;
use server::Server;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Echoes the bytes that it receives, and closes idle connections.
#[derive(Debug, Parser)]
#[command(name = "event_loop")]
struct Options {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Milliseconds for which a connection may be idle
    #[arg(long, value_name = "MILLIS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: u64,
    /// Seconds after which to stop and print a summary; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    seconds: u64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    let stop_after = (options.seconds > 0).then(|| Duration::from_secs(options.seconds));
    let server = Server::new(options.listen, Duration::from_millis(options.idle_timeout), stop_after)?;
    let address = server.address()?;
    println!("listening on {address}");
    println!("try: nc {} {}", address.ip(), address.port());
    println!(
        "what you type comes back; after {} ms without a byte you are disconnected",
        options.idle_timeout
    );
    match stop_after {
        Some(time) => println!("stops after {} s", time.as_secs()),
        None => println!("runs until it is killed; with --seconds it ends with a summary"),
    }
    println!("{}", server.run()?);
    Ok(())
}
