//! Prints the output of commands and chooses their exit codes. Records changes by commands in the audit trail.
//!
//! Outputs and messages may have texts of servers, stores and files. So all of them are escaped here, except the ends
//! of lines.

use crate::audit::{Deed, End, Trail};
use crate::config::{Config, ConfigError};
use crate::text::escaped_lines;
use core::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use tourbillon_api::{AuditAuthor, AuditVia};

/// The reason why a command failed.
pub(super) type Failure = Box<dyn core::error::Error>;

/// The result of a command: its exit code, or a failure.
pub(super) type Outcome = Result<ExitCode, Failure>;

/// Returns the exit code for a failure: 2 for a wrong setting, 1 for any other failure. With 2, systemd does not start
/// the program again. Faults in a file that a setting names lead to 1: while a certificate is renewed, its two files do
/// not match for a moment, and a later start succeeds.
pub(super) fn code_of(failure: &Failure) -> ExitCode {
    let is_of_setting = failure.downcast_ref().is_some_and(ConfigError::is_of_setting);
    if is_of_setting { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Prints a message to the standard error.
pub(super) fn say(line: impl fmt::Display) {
    // The message is lost if the standard error is closed.
    let _best_effort = writeln!(io::stderr().lock(), "tourbillond: {}", escaped_lines(&line.to_string()));
}

/// Records a change by a command in the service's audit trail, which is in the data folder. If this folder is missing,
/// only prints a message: a command that changes a token file elsewhere must not create the folder.
pub(super) fn note(config: &Config, deed: Deed, end: End) {
    if !config.data.exists() {
        let data = config.data.display();
        return say(format_args!("there is no folder {data}: the change is not in the audit trail"));
    }
    #[cfg(unix)]
    let user = Some(format!("uid {}", rustix::process::getuid().as_raw()));
    #[cfg(not(unix))]
    let user = None;
    let by = AuditAuthor {
        via: AuditVia::Command,
        token: None,
        token_id: None,
        user,
        peer: None,
        request_id: None,
    };
    if let Err(error) = Trail::of(&config.data).append(deed.entry(by, end)) {
        say(format_args!("the audit trail in {} cannot be written: {error}", config.data.display()));
    }
}

/// Prints a text to the standard output. Fails if the output cannot be written. Succeeds if the output's reader has
/// ended early, as `head` does.
pub(super) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout().lock(), "{}", escaped_lines(&text.to_string())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a line that cannot be printed again, such as a new token. Fails even if the reader of the output has ended
/// early, because the user does not get the line then.
pub(super) fn hand_over(line: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|error| format!("the standard output cannot be written: {error}").into())
}
