//! Says which tests are skipped.

use std::io::{self, Write};
use std::sync::Once;

/// Writes a line to standard error which says that the tests of this program that start `server` are skipped, and the
/// reason. Only the first call with `told` has an effect. The line bypasses the tests' captured output.
pub(crate) fn tell_skipped(told: &Once, server: &str, reason: &str) {
    told.call_once(|| {
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
        let program = std::env::current_exe().unwrap_or_default();
        let program = program.file_stem().unwrap_or_default().to_string_lossy();
        drop(writeln!(
            io::stderr(),
            "skipped all tests of {package} ({program}) that start {server}: {reason}"
        ));
    });
}
