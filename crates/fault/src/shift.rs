//! Gives processes a wrong time of day.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Shifts the time of day for processes. [`apply`](Self::apply) adds the shift to the command that starts a process.
/// The shift can change while the processes run. Their monotonic clock stays right. Clones refer to the same shift.
#[derive(Clone, Debug)]
pub struct Shift(Arc<TempDir>);

impl Shift {
    /// Creates a shift of the time of day by `seconds`. If no C compiler is installed, writes a line to standard error
    /// and returns `None`.
    #[must_use]
    pub fn new(seconds: i64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = folder.path().join("shift.c");
        fs::write(&source, include_str!("shift.c")).expect("a file in a temporary folder");
        let shift = Self(Arc::new(folder));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(shift.library()).arg(&source);
        if !compiler.status().is_ok_and(|status| status.success()) {
            drop(writeln!(io::stderr(), "skipped a run with other clocks: there is no compiler for C (cc)"));
            return None;
        }
        shift.set(seconds);
        Some(shift)
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("shift.so")
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("seconds")
    }

    /// Changes the shift to `seconds`, at once, for all processes that use it.
    pub fn set(&self, seconds: i64) {
        let new = self.0.path().join("new");
        fs::write(&new, seconds.to_string()).expect("a file in a temporary folder");
        fs::rename(new, self.file()).expect("a file in a temporary folder");
    }

    /// Makes the process that `command` starts see the shifted time of day. The process must read its clock through the
    /// C library.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.library()).env("SHIFT", self.file());
    }
}
