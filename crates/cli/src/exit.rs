//! Defines the program's exit codes, and the failures of commands with their messages.

use serde_json::json;
use std::io;
use tourbillon_client::api::ProblemKind;
use tourbillon_client::{BuildError, Error};

/// The program's exit codes. The help and the README explain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    NotFulfilled = 1,
    Usage = 2,
    NotFound = 3,
    Unreachable = 4,
    UnknownOutcome = 5,
    NotPermitted = 6,
}

/// The reason why a command failed, with the exit code of the program.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// The message to print. `None` if the command's output has already shown the reason.
    pub(crate) message: Option<String>,
    pub(crate) problem: Option<Box<tourbillon_client::api::Problem>>,
    /// Whether the output failed because its reader, such as `head`, has ended. The program then exits with 0.
    pub(crate) is_reader_gone: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()), problem: None, is_reader_gone: false }
    }

    /// Appends `remedy` to the failure's message. Does nothing if the failure has no message.
    pub(crate) fn and(self, remedy: &str) -> Self {
        let message = self.message.map(|message| format!("{message}; {remedy}"));
        Self { message, ..self }
    }

    /// Makes a failure without a message, because the command's output has already shown the reason.
    pub(crate) fn shown(code: Code) -> Self {
        Self { code, message: None, problem: None, is_reader_gone: false }
    }

    /// Returns the text that the program prints for the failure. With `is_json` the text is one line of JSON, and
    /// otherwise a line for people. `None` if the failure has no message.
    pub(crate) fn text(&self, is_json: bool) -> Option<String> {
        let message = self.message.as_ref()?;
        Some(if is_json {
            json!({ "error": message, "code": self.code as u8, "problem": self.problem }).to_string()
        } else {
            format!("tourbillon: {}", crate::output::plain(message))
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            _ if error.is_unknown_outcome() => Code::UnknownOutcome,
            Error::Problem(problem) => match problem.kind {
                ProblemKind::NotFound => Code::NotFound,
                ProblemKind::Unauthorised | ProblemKind::Forbidden => Code::NotPermitted,
                _ => Code::NotFulfilled,
            },
            Error::Invalid(_) => Code::Usage,
            _ => Code::Unreachable,
        };
        let message = Some(error.to_string());
        let problem = if let Error::Problem(problem) = error { Some(problem) } else { None };
        Self { code, message, problem, is_reader_gone: false }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::new(Code::Usage, error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// Makes the failure of a command whose output could not be printed.
    fn from(error: io::Error) -> Self {
        let is_reader_gone = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_reader_gone, ..Self::new(Code::NotFulfilled, format!("the output failed: {error}")) }
    }
}
