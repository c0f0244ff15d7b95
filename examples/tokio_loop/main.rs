//! A tokio runtime with timeouts of tourbillon. A task turns them on the runtime's own threads.
//!
//! The task turns a loop's shard (`LoopShard::turn_as_task`), and sleeps until the shard's next deadline. There is no
//! timer thread. A turn wakes the tasks whose timeouts have passed, and puts them into the queue of the worker that
//! turns. A thread outside of the runtime would put them into the queue of all workers. In a busy runtime they would
//! wait there behind a thousand others.
//!
//! ```text
//!  tasks: timeout ──► shard ◄── turn ── the turning task ── sleeps by tokio's timer ──► until next_deadline()
//!                       │                      ▲
//!                       └─ earlier deadline ───┘ the task is woken
//! ```
//!
//! # What tokio does not offer
//!
//! An event loop of a program passes the next deadline to its poll as a timeout. tokio has no hook for the timeout of
//! its poll. So the moment must go through tokio's own timer, as one entry there for all timers here. tokio rounds the
//! entry up to its millisecond, so timeouts are up to a millisecond later. The thread still wakes only once.
//!
//! `cargo run --features async --example tokio_loop -- --help`
#![expect(clippy::print_stdout, reason = "the summary is for the person at the terminal")]

use clap::Parser;
use std::future::pending;
use std::io;
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Handle};

/// Lets the timeouts of many tasks pass on the threads of a tokio runtime, and tells how late they were.
#[derive(Clone, Debug, Parser)]
#[command(name = "tokio_loop")]
struct Options {
    /// The number of tasks, each with a timeout of its own
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    tasks: u32,
    /// The number of the runtime's threads; with 1 they are the main thread
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Milliseconds after which the first timeout passes
    #[arg(long, value_name = "MILLIS", default_value_t = 100)]
    first: u64,
    /// Milliseconds over which the timeouts are spread
    #[arg(long, value_name = "MILLIS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    spread: u64,
}

/// Waits for a timeout of `delay`. Returns the lateness of the timeout, or `None` if it was early.
async fn time_out(timers: Handle<Wakeup>, delay: Duration) -> Option<Duration> {
    let begin = Instant::now();
    let outcome = timers.timeout(delay, pending::<()>()).await;
    begin.elapsed().checked_sub(delay).filter(|_| outcome.is_err())
}

fn runtime(workers: u16) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.into()).enable_time().build()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (shards, mut loops) = Builder::new().loops(1)?;
    let engine = shards.engine().start_futures()?;
    let workers = runtime(options.workers)?;
    let (spread, step) = (Duration::from_millis(options.spread), options.tasks.max(1));
    let outside = engine.handle().clone();
    let passed = workers.block_on(async {
        tokio::spawn(loops.remove(0).turn_as_task(tokio::time::sleep));
        let first = Duration::from_millis(options.first);
        let tasks: Vec<_> = (0..options.tasks)
            // The delays descend, so each arming is earlier than the armings before it.
            .map(|n| first + spread * (options.tasks - n) / step)
            .map(|delay| tokio::spawn(time_out(engine.handle().clone(), delay)))
            .collect();
        let mut passed = Vec::new();
        for task in tasks {
            passed.push(task.await?);
        }
        // Another thread arms a timeout while the turning task waits for nothing. The arming wakes the runtime.
        let elsewhere = tokio::task::spawn_blocking(move || {
            let another = runtime(1).ok()?;
            another.block_on(time_out(outside, Duration::from_millis(1)))
        });
        Ok::<_, tokio::task::JoinError>((passed, elsewhere.await?))
    });
    let (passed, elsewhere) = passed?;

    let mut lateness: Vec<Duration> = passed.iter().filter_map(|lateness| *lateness).collect();
    lateness.sort();
    let elsewhere_was_late =
        elsewhere.ok_or("the timeout of another thread was early, or it has no runtime")?;
    println!(
        "{} timeouts passed on the runtime's threads, {} were early",
        passed.len(),
        passed.len() - lateness.len()
    );
    println!("a timeout of another thread was {elsewhere_was_late:?} late");
    if let (Some(median), Some(last)) = (lateness.get(lateness.len() / 2), lateness.last()) {
        println!("lateness: median {median:?}, at most {last:?}");
    }
    Ok(())
}
