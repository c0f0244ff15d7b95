//! An engine under a small load, observed over HTTP by a scraper and a load balancer.
//!
//! ```text
//!  load ──► engine ──► /metrics   the statistics in Prometheus' text format
//!                 └──► /health    200 when all is well, else 503, with the word and the reason
//! ```
//! `cargo run --example monitoring -- --help`; in another terminal `curl localhost:9184/metrics`.
#![expect(clippy::print_stdout, reason = "the address and the summary are for whoever runs this program")]

mod http;
mod load;

use clap::Parser;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Handle, Prometheus};

/// Answers `GET /metrics` and `GET /health` for an engine under a small load.
#[derive(Debug, Parser)]
#[command(name = "monitoring")]
struct Options {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9184")]
    listen: SocketAddr,
    /// Seconds after which to stop; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    seconds: u64,
    /// Timers to keep pending
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    timers: usize,
    /// Timers that the engine has room for; with little more than there are, `/health` says `full`
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    capacity: u32,
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

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let engine = Builder::new().capacity(options.capacity).start(|_timed_out| {})?;
    let listener = TcpListener::bind(options.listen)?;
    println!("listening on {}", listener.local_addr()?);
    let (handle, timers) = (Handle::clone(engine.handle()), options.timers);
    let load = thread::spawn(move || load::run(&handle, timers));
    let handle = Handle::clone(engine.handle());
    thread::spawn(move || http::serve(&listener, move |path| answer(&handle, path)));
    if options.seconds == 0 {
        load.join().map_err(|_| "the load panicked")?;
    }
    thread::sleep(Duration::from_secs(options.seconds));
    println!("{} timers had not fired", engine.handle().shutdown().len());
    Ok(())
}

fn answer(engine: &Handle<u64>, path: &str) -> Option<http::Answer> {
    match path {
        "/metrics" => Some(http::Answer {
            status: "200 OK",
            content_type: Prometheus::CONTENT_TYPE,
            body: engine.stats().prometheus().to_string(),
        }),
        "/health" => {
            let health = engine.health();
            Some(http::Answer {
                status: if health.is_healthy() { "200 OK" } else { "503 Service Unavailable" },
                content_type: "text/plain; charset=utf-8",
                body: format!("{health}\n"),
            })
        }
        _ => None,
    }
}
