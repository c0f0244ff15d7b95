//! Tests the code blocks of the guide's pages. Each block is run, compiled or read: the table says how. A block that no
//! test checks makes a test fail.
//!
//! | block | the test |
//! |---|---|
//! | `rust`, `rust,no_run` | a doc test of the crate, `src/lib.rs` |
//! | `sh` | runs in a shell, after the blocks before it on the page; each command must succeed |
//! | `sh until` | runs again and again, until its output is that of the next block |
//! | `sh background` | is started, and runs until the end of the page |
//! | `json`, `text` after `sh` | the output has each of the parts that `...` separates, in their order |
//! | `text of NAME` | so does the output of the program that a `sh background` started |
//! | `text from PATH`, `python from PATH`, `js from PATH` | its lines stand in that file of the repository, one after the other |
//! | `sql` | runs on a PostgreSQL server with the schema of the timers, after the blocks before it on the page |
//! | `text` after `sql` | the rows have each of the parts that `...` separates, in their order |
//! | `toml` | `tourbillond config` reads it as its file of settings |
//! | `yaml prometheus` | `promtool` reads it as a configuration of Prometheus |
//! | `nginx`, `caddyfile` | a test of the service, `tests/daemon/proxies.rs`, starts the proxy with it |
//! | `yaml envoy` | the same test reads it as YAML, and does not run it |
//! | `c` | the C compiler compiles it with all warnings as errors |
#![cfg(unix)]

mod blocks;
mod clients;
mod compiled;
mod session;
mod shell;
mod sql;
mod states;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the absolute path of a file or folder in the repository.
fn of_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns whether a program is installed. If not, prints that the test is skipped because it needs the program.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}
