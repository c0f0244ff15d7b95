//! Measures how the first timeout of a running service, which starts the engine, affects the service's clients.
//!
//! The service, on tokio's threads, answers requests over loopback. Each run has a fresh process as its service. This
//! process sends the requests at a steady rate. It measures the latency of a request from the planned moment of its
//! sending. In the seconds 0 to 2 the service has no timer. From second 3 on it wraps each request in
//! `tourbillon::future::timeout`. The goal: in the median run, the 99th percentile of second 3 is at most 1 ms above
//! that of second 4. If the goal is missed, the program fails.
//!
//! `cargo run --release --example first_timeout -- --help`
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs this program")]

use clap::Parser;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECONDS: usize = 6;
/// The second in which the first timeout is set, counted from the start of a run.
const FIRST: usize = 3;
const GOAL: Duration = Duration::from_millis(1);
/// The length of each timeout. No request takes this long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client waits for an answer before it calls the service dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kinds of requests are `PLAIN` and `WITH_TIMEOUT`. The service sets a timeout only for `WITH_TIMEOUT`.
const PLAIN: u8 = 0;
const WITH_TIMEOUT: u8 = 1;

type Failure = Box<dyn Error + Send + Sync>;

/// Measures the effect of the first timeout of a running service on its clients.
#[derive(Debug, Parser)]
#[command(name = "first_timeout")]
struct Options {
    /// Runs, each with a fresh process as its service
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Requests a second
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Connections that the requests are spread over
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Milliseconds for which the first timeout blocks, and each timeout that comes during the block: shows that the
    /// program notices it
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    stall: u64,
    /// Be the service of a run
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.serve { serve(options.stall).map(|()| true) } else { measure(&options) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

// --- The service ---

/// Runs the service until its process is killed.
fn serve(stall: u64) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // The task ends with its connection. Its result makes no difference.
            drop(tokio::spawn(answer_all(stream, Duration::from_millis(stall))));
        }
    })
}

async fn answer_all(mut stream: tokio::net::TcpStream, stall: Duration) -> Result<(), Failure> {
    loop {
        let request = stream.read_u8().await?;
        let answer = if request == WITH_TIMEOUT {
            block_the_first(stall);
            tourbillon::future::timeout(TIMEOUT, work(request)).await?
        } else {
            work(request).await
        };
        stream.write_u8(answer).await?;
    }
}

/// Does the work of a request: waits once, so that a timeout around the work is armed.
async fn work(request: u8) -> u8 {
    tokio::task::yield_now().await;
    request
}

/// Blocks the first caller for `stall`. Callers that come during that time also wait, as they would for the start of an
/// engine.
fn block_the_first(stall: Duration) {
    static FIRST: OnceLock<()> = OnceLock::new();
    FIRST.get_or_init(|| thread::sleep(stall));
}

// --- The clients ---

/// A service in its own process, which ends when this value is dropped.
struct Service {
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(stall: u64) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", "--stall", &stall.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().parse()?;
        Ok(Self { child, address })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both calls fail if the process has ended already, which does no harm.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The latencies of each second of a run, sorted from the shortest to the longest.
type Latencies = [Vec<Duration>; SECONDS];

fn run_once(options: &Options) -> Result<Latencies, Failure> {
    let service = Service::start(options.stall)?;
    let begin = Instant::now() + Duration::from_millis(200);
    let mut latencies = Latencies::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..options.connections)
            .map(|first| {
                let address = service.address;
                scope.spawn(move || ask(address, begin, first, options))
            })
            .collect();
        for client in clients {
            let own = client.join().map_err(|_| "a client has panicked")??;
            for (all, own) in latencies.iter_mut().zip(own) {
                all.extend(own);
            }
        }
        Ok::<_, Failure>(())
    })?;
    for second in &mut latencies {
        second.sort_unstable();
    }
    Ok(latencies)
}

/// Sends every nth request of each second, from `first` on, where n is the number of connections. Returns the
/// latencies.
fn ask(address: SocketAddr, begin: Instant, first: u32, options: &Options) -> Result<Latencies, Failure> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut latencies = Latencies::default();
    for (second, latencies) in (0..).zip(&mut latencies) {
        let request = if second < FIRST { PLAIN } else { WITH_TIMEOUT };
        let second_begins = begin + Duration::from_secs(1) * u32::try_from(second)?;
        for number in (first..options.rate).step_by(usize::try_from(options.connections)?) {
            let moment = second_begins + Duration::from_secs(1) * number / options.rate;
            thread::sleep(moment.saturating_duration_since(Instant::now()));
            stream.write_all(&[request])?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            latencies.push(moment.elapsed());
            if answer != [request] {
                return Err("a wrong answer".into());
            }
        }
    }
    Ok(latencies)
}

// --- The figures ---

/// The percentiles of the latencies in a single second of a run, in microseconds.
#[derive(Clone, Copy)]
struct Figures {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Figures {
    /// Computes the percentiles of a second's latencies. The latencies must be sorted.
    fn of(latencies: &[Duration]) -> Self {
        let rank = |percent: usize| (latencies.len() * percent).div_ceil(100).saturating_sub(1);
        let at = |percent| latencies.get(rank(percent)).map_or(f64::NAN, |latency| micros(*latency));
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Returns the median, the least and the greatest of the values.
fn median_and_spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    (f64::midpoint(low, high), values[0], values[values.len() - 1])
}

/// Returns by how much the 99th percentile is higher in the second of the first timeout than in the next second.
fn difference(run: &[Figures; SECONDS]) -> f64 {
    run[FIRST].p99 - run[FIRST + 1].p99
}

/// Makes all runs and prints their figures. Returns whether the goal was met.
fn measure(options: &Options) -> Result<bool, Failure> {
    println!(
        "{} requests a second over {} connections; latencies in µs: p50 p99 max of each second",
        options.rate, options.connections
    );
    let mut runs = Vec::new();
    for number in 1..=options.runs {
        let run = run_once(options)?.map(|second| Figures::of(&second));
        print!("run {number:2}:");
        for Figures { p50, p99, max } in run {
            print!(" | {p50:5.0} {p99:5.0} {max:6.0}");
        }
        println!(" | p99 of second {FIRST} minus that of second {}: {:+.0}", FIRST + 1, difference(&run));
        runs.push(run);
    }
    println!("\nmedian of the runs (least to greatest), µs:");
    for second in 0..SECONDS {
        let timeouts = match second {
            ..FIRST => "no timer",
            FIRST => "the first timeouts",
            _ => "timeouts",
        };
        println!(
            "second {second}: p50 {}, p99 {}, max {}  {timeouts}",
            shown(runs.iter().map(|run| run[second].p50)),
            shown(runs.iter().map(|run| run[second].p99)),
            shown(runs.iter().map(|run| run[second].max)),
        );
    }
    let (median, least, greatest) = median_and_spread(runs.iter().map(difference));
    let is_met = median <= micros(GOAL);
    println!(
        "p99 of second {FIRST} minus that of second {}: median {median:+.0} µs ({least:+.0} to {greatest:+.0}); goal {GOAL:?}: {}",
        FIRST + 1,
        if is_met { "met" } else { "MISSED" }
    );
    Ok(is_met)
}

fn shown(values: impl Iterator<Item = f64>) -> String {
    let (median, least, greatest) = median_and_spread(values);
    format!("{median:.0} ({least:.0} to {greatest:.0})")
}
