//! What the commands share: the output, and how a command ends.

use core::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The reason why a command failed, for a person.
pub(super) type Failure = Box<dyn core::error::Error>;

/// What the program ends with.
pub(super) type Outcome = Result<ExitCode, Failure>;

/// Prints to the standard output. Fails if it cannot be written, unless its reader left.
pub(super) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
