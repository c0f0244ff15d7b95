//! What the commands share: the log, the output, and how a command ends.

use core::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The reason why a command failed, for a person.
pub(super) type Failure = Box<dyn core::error::Error>;

/// What the program ends with.
pub(super) type Outcome = Result<ExitCode, Failure>;

/// A line of the log, on the standard error.
pub(super) fn log(line: impl fmt::Display) {
    // A log that cannot be written must not end the service.
    let _best_effort = writeln!(io::stderr().lock(), "tourbillond: {line}");
}

/// Prints to the standard output. Fails if it cannot be written, unless its reader left.
pub(super) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
