//! Kills the child at named points: it kills itself by SIGKILL in the middle of a write, a sync, a checkpoint, an
//! opening or a delivery. The logs and the checker are the same as for kills at random moments.

use crate::checker::History;
use crate::log::{Line, Log, micros, read};
use crate::redb::Redb;
use crate::{PATIENCE, POINT, all_lines, start};
use std::path::Path;
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tourbillon_durable::store::failpoints::{Point, on_reach};

/// Makes this process die at the point of the store's code that the parent has chosen. Does nothing if the parent has
/// chosen no point.
pub(crate) fn arm(folder: &Path) {
    let Ok(wanted) = std::env::var(POINT) else { return };
    let (name, nth) = wanted.split_once(' ').unwrap();
    let (name, nth) = (name.to_owned(), nth.parse::<u64>().unwrap());
    let reached = AtomicU64::new(0);
    let log = Log::open(&folder.join("points.log"));
    on_reach(move |point| {
        if format!("{point:?}") == name && reached.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            log.write(&Line::Reached { point: name.clone(), at: micros() });
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            // The signal ends all threads of the process during this pause.
            std::thread::sleep(PATIENCE);
        }
    });
}

/// The way in which the life of a child, a process of the test, ends.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// The child dies at its point of the store's code, when it reaches the point for the given time. 1 is the first
    /// time.
    At(u64),
    /// The child dies after this number of writes to the journal. So the next child must repeat operations when it
    /// opens the store.
    Writes(u64),
    /// The parent kills the child at some moment.
    Free,
}

/// Returns the ends of the lives of the children that run one after the other, for a point of the store's code. Leaves
/// out the last child.
fn lives(point: Point) -> Vec<Life> {
    use Life::{At, Free, Writes};
    match point {
        Point::MakingNoted => vec![At(1), Free],
        Point::DatabaseMade => vec![At(1), At(1), Free],
        // The first child leaves a journal. The second and the third die while they open it.
        Point::BeforeReplay | Point::AfterReplay => vec![Writes(60), At(1), At(1), Free],
        // A child at this point has ended the leases of the child before it.
        Point::LeasesEnded => vec![Free, At(1), Free, At(1), Free],
        Point::InReplay => vec![Writes(60), At(1), At(1), Free],
        Point::InDatabaseWrite | Point::AfterDatabaseSync => vec![At(1), At(2), At(7), At(30), Free],
        _ => vec![At(1), At(2), At(9), Free],
    }
}

/// Waits until the child has died at its point of the store's code, and returns the moment of the death. `deaths` is
/// the number of children that have died at points, this child included.
fn death(folder: &Path, child: &mut Child, point: Point, deaths: usize) -> u64 {
    use std::os::unix::process::ExitStatusExt;
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("{point:?} is not reached");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(status.signal(), Some(9), "{point:?}: {status}");
    let reached = read(&folder.join("points.log"));
    assert_eq!(reached.len(), deaths, "{point:?}: {reached:?}");
    match reached.last() {
        Some(Line::Reached { point: name, at }) if *name == format!("{point:?}") => *at,
        other => panic!("{point:?}: {other:?}"),
    }
}

/// Kills children at a point of the store's code. Returns the number of children that died at the point, and the logs
/// of all children.
fn history_at(point: Point) -> (usize, History) {
    let folder = tempfile::tempdir().unwrap();
    let killings = Log::open(&folder.path().join("kills.log"));
    let (mut deaths, mut reached) = (0, 0);
    for life in lives(point) {
        let begin = match life {
            Life::At(nth) | Life::Writes(nth) => {
                let at = if let Life::At(_) = life { point } else { Point::AfterJournalWrite };
                let mut child = start::<Redb>(folder.path(), false, Some(&format!("{at:?} {nth}")));
                deaths += 1;
                reached += usize::from(at == point);
                death(folder.path(), &mut child, at, deaths)
            }
            Life::Free => {
                let mut child = start::<Redb>(folder.path(), false, Some("none 0"));
                let until = Instant::now() + PATIENCE;
                let delivered = || read(&folder.path().join("deliveries.log")).len();
                let enough = delivered() + 20;
                while delivered() < enough && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let begin = micros();
                child.kill().unwrap();
                child.wait().unwrap();
                begin
            }
        };
        killings.write(&Line::Kill { begin, end: micros() });
    }
    let status = start::<Redb>(folder.path(), true, None).wait().unwrap();
    assert!(status.success(), "{point:?}, the last child: {status}");
    (reached, History::new(all_lines(folder.path())))
}

#[test]
fn nothing_is_lost_early_or_doubled_without_a_reason_by_a_death_at_any_point() {
    let points = Mutex::new(Point::ALL.iter());
    let next = || points.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(point) = next() {
                    let (kills, history) = history_at(*point);
                    let verdicts = history.check();
                    println!("{point:?}: {kills} times; {history}\n  {verdicts}");
                    assert!(history.is_alive(), "{point:?}: {history}");
                    assert_eq!(verdicts.faults(), Vec::<String>::new(), "{point:?}");
                }
            });
        }
    });
}
