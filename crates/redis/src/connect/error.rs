//! The errors of a link, and what each says about the script.

use core::fmt;
use redis::RedisError;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// An error of a call.
#[derive(Clone, Debug)]
pub(crate) struct LinkError {
    may_have_run: bool,
    source: RedisError,
}

impl LinkError {
    /// The error of a call whose script surely had no effect.
    pub(crate) fn not_run(source: RedisError) -> Self {
        Self { may_have_run: false, source }
    }

    /// The error of a call whose script may have had its effect.
    pub(crate) fn may_have_run_with(source: RedisError) -> Self {
        Self { may_have_run: true, source }
    }

    /// Whether the script may have had its effect: the reply was lost, or came too late.
    pub(crate) fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// The first word of the server's error, such as `FENCED` of `redis.error_reply("FENCED ...")`.
    pub(crate) fn code(&self) -> Option<&str> {
        self.source.code()
    }
}

impl From<LinkError> for StoreError {
    fn from(error: LinkError) -> Self {
        let kind = if error.may_have_run { StoreErrorKind::Unknown } else { StoreErrorKind::Io };
        Self::caused_by(kind, error)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)
    }
}

impl core::error::Error for LinkError {}
