//! While no timer is due, no thread of an engine wakes up. The test is a program of its own, since it counts the
//! wake-ups of all the engine's threads.

#![cfg(target_os = "linux")]

use std::fs;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Builder;

/// Returns how often the engine's threads have gone to sleep.
fn sleeps() -> u64 {
    let count = |folder: fs::DirEntry| {
        // A thread may have ended since the folder was listed.
        let status = fs::read_to_string(folder.path().join("status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        field("Name:")?.starts_with("tb-").then(|| field("voluntary_ctxt_switches:")?.parse::<u64>().ok())?
    };
    let tasks = fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks.filter_map(|folder| count(folder.ok()?)).sum()
}

/// One test at a time has an engine.
static TURN: Mutex<()> = Mutex::new(());

/// A shard's alarm may ring only while the shard's thread runs handlers. Afterwards no thread wakes.
#[test]
fn no_thread_wakes_once_the_handlers_have_returned() {
    let _turn = TURN.lock().unwrap();
    let (report, reports) = mpsc::channel();
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |fired| report.send(fired.payload).expect("the test waits"))
        .unwrap();
    for number in 0..20 {
        engine.handle().schedule(Duration::from_millis(1), number).unwrap();
        assert_eq!(reports.recv_timeout(Duration::from_secs(20)), Ok(number));
    }
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let before = sleeps();
        thread::sleep(Duration::from_millis(200));
        if sleeps() == before {
            break;
        }
        assert!(Instant::now() < end, "the threads of an idle engine go on waking up");
    }
}

/// A timer that fires now and then wakes its shard when it is armed and when it is due. No second thread wakes, unless
/// the machine holds up the shard's thread within its handler.
#[test]
fn a_timer_that_fires_now_and_then_wakes_its_shard_alone() {
    const TIMERS: u64 = 50;
    let _turn = TURN.lock().unwrap();
    let (report, reports) = mpsc::channel();
    let engine = Builder::new()
        .shards(1)
        .workers(2)
        .start(move |fired| report.send(fired.payload).expect("the test waits"))
        .unwrap();
    thread::sleep(Duration::from_millis(50));
    let before = sleeps();
    for number in 0..TIMERS {
        engine.handle().schedule(Duration::from_millis(10), number).unwrap();
        assert_eq!(reports.recv_timeout(Duration::from_secs(20)), Ok(number));
        // By then the shard's thread sleeps again.
        thread::sleep(Duration::from_millis(5));
    }
    let wakes = sleeps() - before;
    assert!(wakes <= 2 * TIMERS + TIMERS / 2, "{wakes} wake-ups for {TIMERS} timers");
}
