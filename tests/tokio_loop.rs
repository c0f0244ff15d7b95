//! A loop that is a task of a tokio runtime. The tests run the task itself, and the example `tokio_loop` as a process.

mod support;

use std::future::pending;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;
use support::{HOUR, MS, PATIENCE};
use tokio::runtime::{Builder as Runtimes, Runtime};
use tokio::sync::oneshot;
use tourbillon::Builder;

// --- The task ---

fn runtime(workers: usize) -> Runtime {
    let mut runtime =
        if workers == 1 { Runtimes::new_current_thread() } else { Runtimes::new_multi_thread() };
    runtime.worker_threads(workers).enable_time().build().unwrap()
}

/// Arms timeouts while the task that turns the shard sleeps for an hour, until another timeout's deadline. An arming
/// that does not wake the task lets its timeout pass only after the hour.
fn each_arming_wakes_the_task(workers: usize) {
    const ARMINGS: usize = 200;
    let (shards, mut loops) = Builder::new().loops(1).unwrap();
    let engine = shards.engine().start_futures().unwrap();
    let timers = engine.handle();
    runtime(workers).block_on(async {
        let turning = tokio::spawn(loops.remove(0).turn_as_task(tokio::time::sleep));
        let far = tokio::spawn(timers.timeout(HOUR, pending::<()>()));
        for n in 0..ARMINGS {
            let timeout = timers.timeout(MS, pending::<()>());
            let (sender, outcome) = oneshot::channel();
            let send = async move { sender.send(timeout.await).expect("the test waits") };
            // The arming is on the runtime's threads, or on a thread outside of it.
            if n % 2 == 0 {
                drop(tokio::spawn(send));
            } else {
                drop(thread::spawn(|| runtime(1).block_on(send)));
            }
            let outcome = tokio::time::timeout(PATIENCE, outcome).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("arming {n} did not wake the task"));
            assert!(outcome.expect("it is sent").is_err(), "it has passed");
        }
        assert!(!far.is_finished() && !turning.is_finished());
    });
}

#[test]
fn each_arming_wakes_the_task_on_the_thread_of_the_runtime() {
    each_arming_wakes_the_task(1);
}

#[test]
fn each_arming_wakes_the_task_on_several_threads() {
    each_arming_wakes_the_task(3);
}

// --- The example ---

/// Returns the path of the example's binary. The binary is in the folder `examples` beside this test's folder.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).expect("in target/<profile>/deps");
    let example = profile.join("examples").join(format!("tokio_loop{}", std::env::consts::EXE_SUFFIX));
    assert!(example.exists(), "first run `cargo build --features async --example tokio_loop`: {example:?}");
    example
}

/// Runs the example to its end, and returns the example's output.
fn run(arguments: &[String]) -> String {
    let mut command = Command::new(example());
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?}: a timeout is waited for in vain");
        }
        thread::sleep(MS);
    }
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// Runs the example. Each timeout passes, although every arming is for an earlier moment than the end of the task's
/// sleep. With a single timeout, the task sleeps without a limit when the timeout is armed. The lateness of timeouts
/// depends on the machine. The test `each_arming_wakes_the_task` shows that no wake is lost.
fn all_timeouts_pass(workers: u16) {
    for tasks in [1, 500] {
        let timing = ["--first=20", "--spread=300"].map(str::to_owned);
        let output =
            run(&[&[format!("--workers={workers}"), format!("--tasks={tasks}")], &timing[..]].concat());
        let lines: Vec<&str> = output.lines().collect();
        let passed = format!("{tasks} timeouts passed on the runtime's threads, 0 were early");
        assert!(lines.len() == 3 && lines[0] == passed, "{output}");
        assert!(lines[1].starts_with("a timeout of another thread was "), "{output}");
        assert!(lines[2].starts_with("lateness: median "), "{output}");
    }
}

#[test]
fn all_timeouts_pass_on_the_thread_of_the_runtime() {
    all_timeouts_pass(1);
}

#[test]
fn all_timeouts_pass_on_several_threads() {
    all_timeouts_pass(3);
}
