//! Kills a process by SIGKILL at random moments and starts it again. The process, the *child*, creates, cancels and
//! delivers timers. A checker that knows nothing of the store decides by logs whether the promises were kept.
//!
//! With the feature `failpoints` the process is also killed at named points.
//!
//! `TOURBILLON_KILLS=1000 cargo test --release -p tourbillon-durable --test kill -- --nocapture` kills a thousand
//! times on each store.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs these tests")]
#![cfg(unix)]

mod checker;
mod child;
mod log;
#[cfg(feature = "failpoints")]
mod points;
mod redb;
mod sqlite;

use checker::History;
use child::Subject;
use log::{Line, Log, micros, read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The environment variable with the folder of the logs and the store. The parent sets the variable for the child.
const FOLDER: &str = "TOURBILLON_KILL_FOLDER";
/// The environment variable that is set for the last child. The last child only delivers the due timers and lists the
/// remaining timers.
const LAST: &str = "TOURBILLON_KILL_LAST";
/// The environment variable with the point at which the child dies, and a number. "Name 3" means the moment when the
/// point `Name` is reached for the third time. If the variable is set, timers are due sooner. The store is also
/// compacted again and again, for more checkpoints. Some deliveries are slow, for more leases.
const POINT: &str = "TOURBILLON_KILL_POINT";
/// The longest time for which a test waits for a child, or a child for its store.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns whether this process is a child that dies at a point of the store's code.
fn dies_at_a_point() -> bool {
    std::env::var_os(POINT).is_some()
}

/// Starts a child, a process that creates and delivers timers. If `point` is given, the child dies at this point of the
/// store's code. Points need the feature `failpoints`.
fn start<S: Subject>(folder: &Path, is_last: bool, point: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", S::CHILD, "--nocapture"]).env(FOLDER, folder);
    if is_last {
        command.env(LAST, "1");
    }
    if let Some(point) = point {
        command.env(POINT, point);
    }
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Kills `kills` children one after the other, and then runs a last child. Returns the logs of all children.
fn history_of<S: Subject>(kills: u32, seed: u64) -> History {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let killings = Log::open(&folder.path().join("kills.log"));
    for kill in 1..=kills {
        let mut child = start::<S>(folder.path(), false, None);
        std::thread::sleep(Duration::from_millis(random.u64(5..400)));
        let begin = micros();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(
            !status.success() && status.code().is_none(),
            "kill {kill}: the child ended by itself: {status}"
        );
        killings.write(&Line::Kill { begin, end: micros() });
        if kill % 100 == 0 {
            println!("{}: {kill} kills", S::CHILD);
        }
    }
    let status = start::<S>(folder.path(), true, None).wait().unwrap();
    assert!(status.success(), "the last child: {status}");
    History::new(all_lines(folder.path()))
}

/// Returns the lines of all logs in a folder.
fn all_lines(folder: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            lines.extend(read(&path));
        }
    }
    lines
}

/// Kills children, checks their logs, and returns the logs.
fn check<S: Subject>() -> History {
    let kills = std::env::var("TOURBILLON_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let seed =
        std::env::var("TOURBILLON_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{}: TOURBILLON_SEED={seed}", S::CHILD);
    let history = history_of::<S>(kills, seed);
    let verdicts = history.check();
    println!("{}: {history}\n{verdicts}", S::CHILD);
    assert!(history.is_worth_checking(kills), "{history}");
    assert_eq!(verdicts.faults(), Vec::<String>::new());
    // The checker must see each fault that is planted in the same logs.
    for (fault, planted) in history.planted() {
        assert_ne!(planted.check().faults(), Vec::<String>::new(), "not seen: {fault}");
    }
    history
}
