//! A tokio runtime of one thread whose timeouts are tourbillon's, turned on the runtime's own thread by a task.
//!
//! The task turns a loop's shard (`LoopShard`), and sleeps until the shard's next deadline. `future::timeout` and
//! `future::sleep` run on this shard, since the thread has entered its set (`Shards::enter`), so there is no timer
//! thread: the turn wakes the task whose timeout has passed, and the runtime polls that task next.
//!
//! ```text
//!  tasks: future::timeout ──► shard ◄── turn ── the turning task ── sleeps by tokio's timer ──► until next_deadline()
//!                               │                      ▲                                             │
//!  before the thread parks: is the next deadline earlier than the task's sleep? ──── notify ─────────┘
//! ```
//!
//! # What tokio does not offer
//!
//! A loop of its own gives the next deadline to its poll as a timeout. tokio has no hook that sets the timeout of its
//! poll, so the moment has to go through tokio's own timer: one entry there for all timers here. tokio rounds the entry up to
//! its millisecond, which adds up to one millisecond to the lateness. The thread still wakes once. tokio does have a
//! hook that is called before the thread parks (`on_thread_park`), and it runs a task that the hook has woken
//! instead of parking. There the program finds out whether some task has armed an earlier timer since the turn.
//! Another thread that arms an earlier timer wakes the runtime by `wake_by`.
//!
//! `cargo run --features async --example tokio_loop -- --help`
#![expect(clippy::print_stdout, reason = "the summary is for whoever runs this program")]

use clap::Parser;
use std::cell::RefCell;
use std::future::pending;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tourbillon::{Builder, Fired, Left, LoopShard, Timestamp, future};

/// Tickets that one turn fires or moves before the other tasks have their turn.
const BUDGET: usize = 1_024;

/// Lets the timeouts of many tasks pass on the one thread of a tokio runtime, and tells how late they were.
#[derive(Clone, Debug, Parser)]
#[command(name = "tokio_loop")]
struct Options {
    /// The number of tasks, each with a timeout of its own
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    tasks: u32,
    /// Milliseconds after which the first timeout passes
    #[arg(long, value_name = "MILLIS", default_value_t = 100)]
    first: u64,
    /// Milliseconds over which the timeouts are spread
    #[arg(long, value_name = "MILLIS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    spread: u64,
}

thread_local! {
    /// The loop of this thread.
    static TURNED: RefCell<Option<Turned>> = const { RefCell::new(None) };
}

struct Turned {
    shard: LoopShard,
    /// The moment until which the turning task sleeps; `None` if it waits to be woken.
    sleeps_until: Option<Timestamp>,
}

impl Turned {
    /// Whether the turning task sleeps for too long: a timer was armed since, on this thread.
    fn oversleeps(&self) -> bool {
        let next = self.shard.next_deadline();
        next.is_some_and(|next| self.sleeps_until.is_none_or(|until| next < until))
    }

    /// Fires what is due. Returns the time until the next turn; `None` if there is nothing to wait for.
    fn turn(&mut self) -> (Left, Option<Duration>) {
        let now = Instant::now();
        let left = self.shard.turn(now, BUDGET);
        self.sleeps_until = self.shard.next_deadline();
        (left, self.shard.timeout(now))
    }
}

/// The task that turns the loop of its thread.
async fn turn(woken: Arc<Notify>) {
    loop {
        let Some((left, rest)) = TURNED.with_borrow_mut(|turned| turned.as_mut().map(Turned::turn)) else {
            return;
        };
        match rest {
            _ if left == Left::More => tokio::task::yield_now().await,
            // By tokio's timer, rounded up to its millisecond.
            Some(rest) => {
                let _ = tokio::time::timeout(rest, woken.notified()).await;
            }
            None => woken.notified().await,
        }
    }
}

/// What became of a timeout.
struct Passed {
    lateness: Option<Duration>,
    is_here: bool,
}

async fn time_out(delay: Duration, runtime: thread::ThreadId) -> Passed {
    let begin = Instant::now();
    let outcome = future::timeout(delay, pending::<()>()).await;
    let lateness = begin.elapsed().checked_sub(delay).filter(|_| outcome.is_err());
    Passed { lateness, is_here: thread::current().id() == runtime }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (shards, mut loops) = Builder::new().loops(1)?;
    let woken = Arc::new(Notify::new());
    let mut shard = loops.remove(0);
    let wake = Arc::clone(&woken);
    shard.wake_by(move || wake.notify_one());
    TURNED.set(Some(Turned { shard, sleeps_until: None }));

    let notify = Arc::clone(&woken);
    let before_park = move || {
        if TURNED.with_borrow(|turned| turned.as_ref().is_some_and(Turned::oversleeps)) {
            notify.notify_one();
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().on_thread_park(before_park).build()?;
    // Futures of this thread run on the loop's shard.
    let _entered = shards.enter();
    let here = thread::current().id();
    let (spread, step) = (Duration::from_millis(options.spread), options.tasks.max(1));
    // A timer of another thread, which is due before all others: it wakes the runtime.
    let (fired, moment) = mpsc::channel();
    let engine = shards.engine().start(move |_: Fired<'_, ()>| {
        // Nobody waits any more if it fails.
        let _ = fired.send(Instant::now());
    })?;
    let elsewhere = thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        let (begin, delay) = (Instant::now(), Duration::from_millis(1));
        engine.handle().schedule(delay, ()).ok()?;
        let fired = moment.recv().ok()?;
        (fired - begin).checked_sub(delay)
    });
    let passed = runtime.block_on(async {
        tokio::spawn(turn(woken));
        let first = Duration::from_millis(options.first);
        let tasks: Vec<_> = (0..options.tasks)
            // The later ones first, so that each arming is earlier than those before it.
            .map(|n| tokio::spawn(time_out(first + spread * (options.tasks - n) / step, here)))
            .collect();
        let mut passed = Vec::new();
        for task in tasks {
            passed.push(task.await?);
        }
        Ok::<_, tokio::task::JoinError>(passed)
    })?;
    let elsewhere = elsewhere.join().map_err(|_| "the other thread panicked")?;

    let mut lateness: Vec<Duration> = passed.iter().filter_map(|passed| passed.lateness).collect();
    lateness.sort();
    let elsewhere_was_late = elsewhere.ok_or("the timer of another thread was early, or refused")?;
    println!(
        "{} timeouts passed on the runtime's thread, {} were early",
        passed.iter().filter(|passed| passed.is_here).count(),
        passed.len() - lateness.len(),
    );
    println!("a timer of another thread was {elsewhere_was_late:?} late");
    if let (Some(median), Some(last)) = (lateness.get(lateness.len() / 2), lateness.last()) {
        println!("lateness: median {median:?}, at most {last:?}");
    }
    // The loop goes before the thread's storage does.
    drop(TURNED.take());
    Ok(())
}
