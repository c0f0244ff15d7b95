//! The log.

use core::fmt;
use std::io::{self, Write as _};

/// A line of the log, on the standard error.
pub(crate) fn log(line: impl fmt::Display) {
    // A log that cannot be written must not end the service.
    let _best_effort = writeln!(io::stderr().lock(), "tourbillond: {line}");
}
