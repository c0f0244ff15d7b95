//! Defines the errors of a client's calls.

use core::fmt;
use std::io;
use std::path::PathBuf;
use tourbillon_api::{Problem, ProblemKind};

/// The reason why a call of the client failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The service answered that it has not fulfilled the request. The problem says why.
    Problem(Box<Problem>),
    /// The connection failed. The service has changed nothing for the request.
    Connection(Box<str>),
    /// The answer did not come in time. This error is only for requests that read. If a request that changes the
    /// service gets no answer in time, the error is an [unknown outcome](Self::UnknownOutcome) instead.
    Timeout,
    /// It is unknown whether the service has fulfilled the request. After the request was sent, the connection broke,
    /// the answer did not come in time, or the answer could not be read.
    UnknownOutcome(Box<str>),
    /// The answer cannot be read, but it is certain that the service has changed nothing: the request only reads, or
    /// the status of the answer means that the request was not fulfilled.
    Decode {
        /// The HTTP status of the answer.
        status: u16,
        /// The reason why the answer cannot be read, with the start of the answer.
        reason: Box<str>,
    },
    /// The request cannot be encoded, or a name in it is empty, so it was not sent.
    Invalid(Box<str>),
}

impl Error {
    /// Returns whether the request may have been fulfilled despite the error.
    #[must_use]
    pub fn is_unknown_outcome(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.outcome.as_deref() == Some("unknown"),
            Self::UnknownOutcome(_) => true,
            _ => false,
        }
    }

    /// Returns the kind of the problem, if the service answered with a problem.
    #[must_use]
    pub fn problem(&self) -> Option<ProblemKind> {
        match self {
            Self::Problem(problem) => Some(problem.kind),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::Connection(reason) => write!(f, "the service cannot be reached: {reason}"),
            Self::Timeout => f.write_str("the service did not answer in time"),
            Self::UnknownOutcome(reason) => {
                write!(f, "it is not known whether the service has fulfilled the request: {reason}")
            }
            Self::Decode { status, reason } => {
                write!(f, "the answer, with the status {status}, cannot be read: {reason}")
            }
            Self::Invalid(reason) => write!(f, "the request cannot be sent: {reason}"),
        }
    }
}

impl core::error::Error for Error {}

/// The reason why a client could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The URL is not valid. The URL of a service has the scheme `http` or `https`, a host, and perhaps a port and a
    /// path. Other parts are not permitted.
    Url(Box<str>),
    /// The token is empty, or contains characters that are not permitted in a header.
    Token,
    /// A file with the token or with certificates cannot be read.
    File {
        /// The path of the file that cannot be read.
        path: PathBuf,
        /// The error that the operating system returned.
        error: io::Error,
    },
    /// A certificate cannot be read. The text says why.
    Certificate(Box<str>),
    /// A time limit is zero, so no request could be answered in time.
    Timeout,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(reason) => write!(f, "not the URL of a service: {reason}"),
            Self::Token => f.write_str("the token has characters that no token has"),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Certificate(reason) => write!(f, "a certificate cannot be read: {reason}"),
            Self::Timeout => f.write_str("a time limit of zero lets no request succeed"),
        }
    }
}

impl core::error::Error for BuildError {}

/// Returns the text of an error, followed by the texts of its causes.
pub(crate) fn with_causes(error: &(dyn core::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
