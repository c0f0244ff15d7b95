//! Prints the output of commands, chooses their exit codes, and records their changes in the audit trail.

use crate::audit::{Deed, End, Trail};
use crate::config::{Config, ConfigError};
use crate::tls::TlsError;
use core::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use tourbillon_api::{AuditAuthor, AuditVia};

/// The reason why a command failed, in words for people.
pub(super) type Failure = Box<dyn core::error::Error>;

/// The result of a command: its exit code, or a failure.
pub(super) type Outcome = Result<ExitCode, Failure>;

/// Returns the exit code after a failure: 2 for a wrong setting, otherwise 1.
pub(super) fn code_of(failure: &Failure) -> ExitCode {
    let is_of_setting = failure.is::<ConfigError>() || failure.is::<TlsError>();
    if is_of_setting { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Prints a message for people to the standard error.
pub(super) fn say(line: impl fmt::Display) {
    // If the standard error is closed, nobody wants the message.
    let _best_effort = writeln!(io::stderr().lock(), "tourbillond: {line}");
}

/// Records a change that this command made in the service's audit trail. If the data folder is missing, nothing is
/// recorded: a command that names only the file of tokens must not make a folder.
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

/// Prints to the standard output. Fails if that cannot be written, but not if its reader has left.
pub(super) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
