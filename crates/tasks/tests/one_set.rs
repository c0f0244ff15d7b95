//! A process that uses an engine of its own payloads, futures and tasks has one set of threads.
//!
//! This program has only one test, since the test counts the process's threads.
#![cfg(target_os = "linux")]

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, Fired, future};
use tourbillon_tasks::{Repeat, TaskEngine};

const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the names of the threads of this process that engines have started.
fn engine_threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut names: Vec<String> =
        names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("tb-")).collect();
    names.sort();
    names
}

#[test]
fn an_engine_futures_and_tasks_share_one_set_of_threads() {
    Builder::new().shards(2).workers(3).set_global().expect("no shards are started yet");
    let (sender, fired) = mpsc::channel();
    let (repeated, log) = (sender.clone(), fired);
    let engine =
        Engine::new(move |timer: Fired<'_, u64>| sender.send(timer.payload).expect("the test waits"));
    let engine = engine.expect("an engine");
    let tasks = TaskEngine::new().expect("an engine");
    let every = Repeat::every(Duration::from_millis(1));
    let repeating = tasks.handle().repeat(every, move |_| {
        let _ = repeated.send(0);
    });
    let repeating = repeating.expect("room");
    engine.handle().schedule(Duration::from_millis(1), 17).expect("room");
    let mut sleep = pin!(future::sleep(HOUR));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut seen = [false; 2];
    while seen != [true; 2] {
        seen[usize::from(log.recv_timeout(PATIENCE).expect("both fire") == 17)] = true;
    }
    let expected = ["tb-sentry", "tb-shard-0", "tb-shard-1", "tb-worker-0", "tb-worker-1", "tb-worker-2"];
    // A thread registers the process for barriers, and then ends by itself.
    let start = Instant::now();
    while engine_threads() != expected {
        assert!(start.elapsed() < PATIENCE, "the engine's threads are {:?}", engine_threads());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((repeating, tasks, engine));
    assert_eq!(engine_threads(), expected, "the process's shards stay");
}
