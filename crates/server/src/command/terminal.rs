//! Output and exit codes of the commands, and their entries in the audit trail.

use crate::audit::{Deed, End, Trail};
use crate::config::{Config, ConfigError};
use crate::tls::TlsError;
use core::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use tourbillon_api::{AuditAuthor, AuditVia};

/// The reason why a command failed, for a person.
pub(super) type Failure = Box<dyn core::error::Error>;

/// The result of a command: an exit code, or a failure to print.
pub(super) type Outcome = Result<ExitCode, Failure>;

/// The code with which the program ends after a failure.
pub(super) fn code_of(failure: &Failure) -> ExitCode {
    let is_of_setting = failure.is::<ConfigError>() || failure.is::<TlsError>();
    if is_of_setting { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Tells a person, on the standard error.
pub(super) fn say(line: impl fmt::Display) {
    // A standard error that is closed wants no lines.
    let _best_effort = writeln!(io::stderr().lock(), "tourbillond: {line}");
}

/// Adds the change that this command made to the audit trail of the service. Without a data folder there is no entry: a
/// command that names only the file of tokens must not make a folder.
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

/// Prints to the standard output. Fails if it cannot be written, unless its reader left.
pub(super) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match write!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
