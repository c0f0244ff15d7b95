//! Writes and reads logs. A line is on the disk before its writer goes on. Each line can be read without the lines
//! before it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

/// A line of a process's log. Moments are microseconds since the start of 1970, by the clock of the writing process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Line {
    /// A job's timer is about to be created.
    Intent { job: u64, due: u64, has_effect: bool },
    /// The store has acknowledged the creation of the job's timer.
    Created { job: u64 },
    /// A job's timer is about to be cancelled.
    CancelIntent { job: u64 },
    /// The store has answered the cancel of the job's timer.
    Cancelled { job: u64, answer: Answer, at: u64 },
    /// A handler was called with a job, and is about to answer.
    Delivered { job: u64, id: u128, attempt: u32, begin: u64, is_done: bool },
    /// The parent killed the child at some moment between `begin` and `end`.
    Kill { begin: u64, end: u64 },
    /// The child has reached the point at which it must die, and dies.
    Reached { point: String, at: u64 },
    /// After the last child's deliveries, the store still has the timer with this id.
    Left { id: u128 },
    /// After the last child's deliveries, the store has an effect of the job.
    Effect { job: u64 },
    /// After the last child's deliveries, a check of the store finds this fault.
    Fault { fault: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Answer {
    Cancelled,
    InFlight,
    NotFound,
}

pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    /// Writes a line to the log, in a single write. Returns once the line is on the disk.
    pub(crate) fn write(&self, line: &Line) {
        self.write_later(line);
        self.0.sync_data().unwrap();
    }

    /// Writes a line to the log as [`write`](Self::write) does, but does not wait for the disk.
    pub(crate) fn write_later(&self, line: &Line) {
        // A kill may have torn the line before.
        let text = format!("\n{}\n", serde_json::to_string(line).unwrap());
        (&self.0).write_all(text.as_bytes()).unwrap();
    }
}

/// Reads the whole lines of a log. Leaves out a line that a kill has torn, because its writer had not gone on.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}
