//! The errors of calls to a server. Each error says whether the script may have run.

use crate::script::Script;
use core::fmt;
use core::time::Duration;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The error of a call that runs a script.
#[derive(Clone, Debug)]
pub(crate) struct LinkError {
    message: Box<str>,
    code: Option<Box<str>>,
    may_have_run: bool,
}

/// Makes the error for a request to which a server has not replied.
pub(crate) fn no_reply() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "a reply is missing").into()
}

/// The meaning of an error for the caller: whether the script has run, and what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The script has not run: the server does not have its text.
    NotLoaded,
    /// The script has not run: the server cannot run it now.
    Later,
    /// The script has not run: the call needs another connection, for example because the server has become a replica.
    Elsewhere,
    /// The script has not run: the keys are on another node of the cluster, to which their slot is moving.
    Ask,
    /// The script has changed nothing: the server refuses it, or the script itself has answered with an error.
    Refused,
    /// The script ended in the middle, so a part of its changes may have been made.
    Broken,
    /// The reply is lost. The script may have run.
    Lost,
}

/// The error codes of a server that has not begun to run a script, but may be able to run the script later.
const LATER: [&str; 6] = ["LOADING", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "NOREPLICAS", "MOVED"];
const ELSEWHERE: [&str; 3] = ["READONLY", "MASTERDOWN", "NOAUTH"];
const BEFORE_A_WRITE: [&str; 2] = ["OOM", "MISCONF"];

/// The text that the server adds to an error that was raised inside a script.
const RAISED: &str = ", on @user_script:";

impl Meaning {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => return Self::NotLoaded,
            ErrorKind::Server(ServerErrorKind::Ask) => return Self::Ask,
            _ => {}
        }
        // An error without a code comes from the driver, which may have sent the script.
        let Some(code) = error.code() else { return Self::Lost };
        // Redis refuses a script because of its role, its memory or its disk only before the script's first write. So
        // these codes count before `RAISED`: the error may be raised inside a script that has changed nothing.
        if LATER.contains(&code) {
            Self::Later
        } else if ELSEWHERE.contains(&code) {
            Self::Elsewhere
        } else if !BEFORE_A_WRITE.contains(&code)
            && error.detail().is_some_and(|detail| detail.contains(RAISED))
        {
            Self::Broken
        } else {
            Self::Refused
        }
    }
}

impl LinkError {
    /// Makes the error of a call from an error that the server or the driver has returned.
    pub(crate) fn of(script: &str, error: &RedisError) -> Self {
        let may_have_run = matches!(Meaning::of(error), Meaning::Broken | Meaning::Lost);
        let message = match Meaning::of(error) {
            Meaning::Lost => format!("the reply to the script {script} was lost: {error}"),
            Meaning::Broken => format!("the script {script} ended in the middle: {error}"),
            _ if error.code() == Some("BACK") => {
                let back = error.detail().and_then(|back| back.trim().parse().ok()).unwrap_or_default();
                let back = Duration::from_millis(back);
                format!(
                    "the server's data have gone back by {back:?}, further than is permitted: restore newer data, or \
                     start the nodes again to go on with these"
                )
            }
            _ if error.code() == Some("OOM") => {
                format!(
                    "the server's memory is full (maxmemory), and the script {script} needs more: {error}"
                )
            }
            _ => format!("script {script}: {error}"),
        };
        Self { message: message.into(), code: error.code().map(Into::into), may_have_run }
    }

    /// Makes the error of a call whose script got no reply within the time `limit`. The script may have run.
    pub(crate) fn late(script: &str, limit: Duration) -> Self {
        Self::unknown(format!("no reply to the script {script} within {limit:?}"))
    }

    /// Makes the error of a change that was made but is not as durable as the connection's
    /// [`SyncPolicy`](crate::SyncPolicy) requires.
    pub(crate) fn not_safe(why: &str) -> Self {
        Self::unknown(format!("the server made the change, but {why}"))
    }

    /// Makes the error of a call whose script may have run.
    pub(crate) fn unknown(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), code: None, may_have_run: true }
    }

    /// Makes the error of a script that was not sent because its connection was replaced.
    pub(crate) fn renewed(script: &str) -> Self {
        let message = format!("the script {script} was not sent: the connection was made again");
        Self { message: message.into(), code: Some(RENEWED.into()), may_have_run: false }
    }

    /// Makes the error of a script that did not run within `patience`, because there was no connection or no server
    /// that could run it. `last` says why the last attempt failed.
    pub(crate) fn gave_up(script: &str, patience: Duration, last: &str) -> Self {
        let message = format!("the script {script} could not be sent within {patience:?}: {last}");
        Self { message: message.into(), code: None, may_have_run: false }
    }

    /// Returns this error for `script`. If the script only reads, the error says that no changes were made.
    pub(crate) fn with_effect_of(self, script: &Script) -> Self {
        Self { may_have_run: self.may_have_run && !script.only_reads(), ..self }
    }

    /// Returns whether the script may have made changes: its reply is lost or late, or it ended in the middle.
    #[cfg_attr(not(test), expect(dead_code, reason = "the store goes by the kind of its own error"))]
    pub(crate) fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// Returns the first word of the server's error, such as `FENCED` of `redis.error_reply("FENCED ...")`.
    pub(crate) fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }
}

/// The code of [`LinkError::renewed`].
const RENEWED: &str = "RENEWED";

/// Returns whether a script was not sent because its connection was replaced.
pub(crate) fn is_renewed(error: &StoreError) -> bool {
    code_of(error) == Some(RENEWED)
}

/// Returns the code of the [`LinkError`] that caused `error`: the first word of the server's error, or [`RENEWED`].
/// Returns `None` if another error caused `error`, or if the [`LinkError`] has no code.
fn code_of(error: &StoreError) -> Option<&str> {
    core::error::Error::source(error).and_then(|source| source.downcast_ref::<LinkError>())?.code()
}

/// Returns whether a script failed with the code `GONE`: the server has lost the deployment's key, or the deployment's
/// id in a shard.
pub(crate) fn is_gone(error: &StoreError) -> bool {
    code_of(error) == Some("GONE")
}

/// Returns whether a script failed because a key has data of another type.
pub(crate) fn is_wrong_type(error: &StoreError) -> bool {
    code_of(error) == Some("WRONGTYPE")
}

/// Returns whether a script failed with the code `BACK`: the server has older data than before, by more than the
/// setting `may_lose`.
pub(crate) fn is_back(error: &StoreError) -> bool {
    code_of(error) == Some("BACK")
}

impl From<LinkError> for StoreError {
    fn from(error: LinkError) -> Self {
        let kind = match error.code() {
            // The error of a script that ended in the middle has a code, too, but the outcome is unknown.
            _ if error.may_have_run => StoreErrorKind::Unknown,
            Some("OOM") => StoreErrorKind::Full,
            // Scripts answer `OTHER` if they meet another deployment of the same name.
            Some("OTHER" | "BACK") => StoreErrorKind::Closed,
            _ => StoreErrorKind::Io,
        };
        Self::caused_by(kind, error)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for LinkError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the row of the README's table of failures that names this code.
    fn row(code: &str) -> &'static str {
        let mut rows = include_str!("../../README.md").lines().filter(|line| line.starts_with("| "));
        rows.find(|row| row.contains(&format!("`{code}`"))).unwrap_or_else(|| panic!("{code} is in no row"))
    }

    fn meaning(answer: &str) -> Meaning {
        let value = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes());
        Meaning::of(&value.and_then(redis::Value::extract_error).unwrap_err())
    }

    #[test]
    fn each_error_of_a_server_means_what_the_page_says() {
        let later = [
            "LOADING",
            "BUSY",
            "READONLY",
            "MASTERDOWN",
            "NOREPLICAS",
            "MOVED",
            "ASK",
            "TRYAGAIN",
            "CLUSTERDOWN",
        ];
        for code in later {
            let meaning_of = meaning(&format!("{code} 7 127.0.0.1:1"));
            assert!(
                matches!(meaning_of, Meaning::Later | Meaning::Elsewhere | Meaning::Ask),
                "{code}: {meaning_of:?}"
            );
            assert!(
                row(code).ends_with("The connection repeats the call until `patience` ends. |"),
                "{code}"
            );
        }
        assert_eq!(meaning("NOSCRIPT no such script"), Meaning::NotLoaded);
        assert!(row("NOSCRIPT").contains("repeated at once"));
        for code in ["OOM", "MISCONF", "NOPERM"] {
            assert_eq!(meaning(&format!("{code} why")), Meaning::Refused, "{code}");
            assert!(row(code).ends_with("surely has had no effect. The call fails. |"), "{code}");
        }
        // A command of the script was refused after other commands had taken effect.
        for code in ["ERR", "NOPERM", "WRONGTYPE"] {
            let meaning_of = meaning(&format!("{code} why script: 1, on @user_script:7."));
            assert_eq!(meaning_of, Meaning::Broken, "{code}");
        }
    }
}
