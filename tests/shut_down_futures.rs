//! Futures whose engine is shut down: by the program while their tokio runtime goes on, or with the runtime. No future
//! waits for ever, wherever it is polled.
#![cfg(feature = "tokio")]

mod support;

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use support::{HOUR, MS, PATIENCE, block_on, within_patience};
use tokio::runtime::{Builder, Runtime};
use tourbillon::future::Wakeup;
use tourbillon::{Handle, Timestamp, future, time};

type Waiting = Pin<Box<dyn Future<Output = Outcome> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The wait has ended, or its time has passed, without a word about the shutdown.
    Over,
    ShutDown,
    Panicked,
}

use Outcome::{Over, Panicked, ShutDown};

fn told(is_shut_down: bool) -> Outcome {
    if is_shut_down { ShutDown } else { Over }
}

/// A kind of future: its name, the future, and its outcome after a shutdown.
type Kind = (&'static str, fn() -> Waiting, Outcome);

/// The kinds that choose their engine by the thread.
const KINDS: [Kind; 9] = [
    ("future::sleep", || Box::pin(async { after(future::sleep(HOUR)).await }), Panicked),
    ("try_wait", || Box::pin(async { told(future::sleep(HOUR).try_wait().await.is_err()) }), ShutDown),
    ("future::timeout", || Box::pin(async { of(future::timeout(HOUR, pending()).await) }), ShutDown),
    ("timeout_at", || Box::pin(async { of(future::timeout_at(in_an_hour(), pending()).await) }), ShutDown),
    (
        "reusable_timeout",
        || Box::pin(async { of(future::reusable_timeout().timeout(HOUR, pending()).await) }),
        ShutDown,
    ),
    ("try_tick", || Box::pin(async { told(ticking().try_tick().await.is_err()) }), ShutDown),
    ("tick", || Box::pin(async { after(ticking().tick()).await }), Panicked),
    ("time::sleep", || Box::pin(async { after(time::sleep(HOUR)).await }), Panicked),
    ("time::timeout", || Box::pin(async { after(time::timeout(HOUR, pending::<()>())).await }), Panicked),
];

async fn after<R>(wait: impl Future<Output = R>) -> Outcome {
    drop(wait.await);
    Over
}

fn of(outcome: Result<(), future::Elapsed>) -> Outcome {
    told(outcome.is_err_and(|elapsed| elapsed.is_shut_down()))
}

fn in_an_hour() -> Timestamp {
    future::now() + HOUR
}

fn ticking() -> future::Interval {
    future::interval_at(in_an_hour(), MS).unwrap()
}

fn runtimes() -> [Runtime; 2] {
    let several = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    [Builder::new_current_thread().enable_time().build().unwrap(), several.unwrap()]
}

/// Returns the outcome of a call, whose panic is one.
fn caught(call: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Panicked)
}

/// Polls `future` once, and returns whether it is pending.
async fn is_pending(future: &mut Waiting) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// Runs each kind in `runtime`: as a task, as the future of `block_on`, and on a thread for blocking work, before and
/// after `shut_down`. Returns the outcomes that are not as expected.
fn wrong(runtime: &Runtime, shut_down: impl FnOnce()) -> Vec<String> {
    let spawn = |make: fn() -> Waiting| runtime.spawn(make());
    let block = |make: fn() -> Waiting| runtime.spawn_blocking(move || block_on(make()));
    let mut tasks = Vec::new();
    for (name, make, expected) in KINDS {
        tasks.push((format!("{name}, waiting, in a task"), spawn(make), expected));
        tasks.push((format!("{name}, waiting, on a blocking thread"), block(make), expected));
    }
    let mut roots: Vec<(Kind, Waiting)> = KINDS.iter().map(|kind| (*kind, kind.1())).collect();
    runtime.block_on(async {
        for (_, root) in &mut roots {
            assert!(is_pending(root).await);
        }
        tokio::time::sleep(50 * MS).await;
    });
    shut_down();
    let mut all = Vec::new();
    for ((name, _, expected), root) in roots {
        all.push((format!("{name}, waiting, root"), caught(|| runtime.block_on(root)), expected));
    }
    for (name, make, expected) in KINDS {
        tasks.push((format!("{name}, new, in a task"), spawn(make), expected));
        tasks.push((format!("{name}, new, on a blocking thread"), block(make), expected));
        all.push((
            format!("{name}, new, root"),
            caught(|| runtime.block_on(async { make().await })),
            expected,
        ));
    }
    for (name, task, expected) in tasks {
        let limited = async { tokio::time::timeout(PATIENCE / 10, task).await };
        match runtime.block_on(limited) {
            Ok(outcome) => all.push((name, outcome.unwrap_or(Panicked), expected)),
            Err(_) => return vec![format!("{name}: waits for ever")],
        }
    }
    let wrong = all.into_iter().filter(|(_, outcome, expected)| outcome != expected);
    wrong.map(|(name, outcome, _)| format!("{name}: {outcome:?}")).collect()
}

#[test]
fn the_program_shuts_down_the_futures_of_a_runtime() {
    for runtime in runtimes() {
        // A future that waits for ever would hold up the drop of the runtime, too.
        let wrong = within_patience(move || {
            let shards = runtime.block_on(async { time::shards() }).expect("inside a runtime");
            wrong(&runtime, || {
                let handle: Handle<Wakeup> = shards.futures().clone();
                let shut_down = runtime.spawn_blocking(move || drop(handle.shutdown()));
                runtime.block_on(shut_down).unwrap();
            })
        });
        assert_eq!(wrong, [""; 0]);
    }
}

/// The process's own engine serves the runtimes without a timer, and the threads outside of runtimes. No other test of
/// this process uses it.
#[test]
fn the_program_shuts_down_its_own_futures() {
    let without = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> =
        KINDS.iter().map(|&(name, make, expected)| (name, without.spawn(make()), expected)).collect();
    let waiting: Vec<_> = KINDS
        .iter()
        .map(|&(name, make, expected)| (name, thread::spawn(move || block_on(make())), expected))
        .collect();
    thread::sleep(50 * MS);
    drop(future::global().shutdown());
    for (name, thread, expected) in waiting {
        let outcome = within_patience(move || thread.join().unwrap_or(Panicked));
        assert_eq!(outcome, expected, "{name}, waiting");
    }
    for (name, task, expected) in tasks {
        assert_eq!(without.block_on(task).unwrap_or(Panicked), expected, "{name}, waiting in a task");
    }
    for (name, make, expected) in KINDS {
        assert_eq!(within_patience(move || caught(|| block_on(make()))), expected, "{name}, new");
        let task = without.block_on(without.spawn(make()));
        assert_eq!(task.unwrap_or(Panicked), expected, "{name}, new in a task");
    }
}

/// A runtime ends although threads for blocking work wait by each kind. The end of the runtime waits for them.
#[test]
fn no_blocking_thread_holds_up_the_end_of_a_runtime_for_long() {
    for runtime in runtimes() {
        let mut outcomes = Vec::new();
        for (name, make, expected) in KINDS {
            let (told, log) = mpsc::channel();
            let call = move || told.send(caught(|| block_on(make()))).unwrap();
            drop(runtime.spawn_blocking(call));
            outcomes.push((name, log, expected));
        }
        runtime.block_on(async { tokio::time::sleep(50 * MS).await });
        let begin = Instant::now();
        within_patience(move || drop(runtime));
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        for (name, log, expected) in outcomes {
            assert_eq!(log.iter().collect::<Vec<_>>(), [expected], "{name}");
        }
    }
}
