//! Converts the names of timers in requests into addresses in the store.

use crate::audit::Deed;
use crate::convert::rejected;
use tourbillon_api::{AuditAction, Problem, ProblemKind};
use tourbillon_durable::Rejection;
use tourbillon_durable::timer::{Address, KeyOf, TimerId};

/// The greatest length of a timer's key, in bytes.
const LONGEST_KEY: usize = 255;

/// The name by which a request addresses a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    /// The key of the timer in its namespace.
    Key(&'a str),
    Id(TimerId),
}

impl Named<'_> {
    /// Returns the address by which the store finds the timer. The store finds an id in all namespaces, so an address
    /// from an id may lead to a timer of another namespace.
    pub(crate) fn address(self, namespace: &str) -> Address {
        match self {
            Self::Key(key) => by_key(namespace, key),
            Self::Id(id) => id.into(),
        }
    }

    /// Fails if the name is an invalid key: empty, too long, or with a zero byte.
    pub(super) fn admit(self) -> Result<(), Problem> {
        match self {
            Self::Key("") => Err(Problem::new(ProblemKind::BadRequest, "a key has at least one byte")),
            Self::Key(key) if key.len() > LONGEST_KEY => Err(rejected(&Rejection::TooLong("the key"))),
            Self::Key(key) if key.contains('\0') => Err(rejected(&Rejection::ZeroByte("the key"))),
            Self::Key(_) | Self::Id(_) => Ok(()),
        }
    }

    /// Describes a change of the named timer for the audit trail. `verb` is the word for the change.
    pub(super) fn deed(self, namespace: &str, verb: &str) -> Deed {
        let target = match self {
            Self::Key(key) => key.to_owned(),
            Self::Id(id) => id.to_string(),
        };
        Deed::new(AuditAction::ChangeTimer).namespace(namespace).target(target).detail(verb)
    }
}

/// Returns the address of the timer that has this key in this namespace.
pub(crate) fn by_key(namespace: &str, key: &str) -> Address {
    Address::Key(KeyOf { namespace: namespace.into(), key: key.into() })
}

/// Parses the id of a timer. Fails if the text is not a UUID.
pub(crate) fn id(text: &str) -> Result<TimerId, Problem> {
    text.parse().map_err(|_| Problem::new(ProblemKind::BadRequest, "an id is the text of a UUID"))
}

/// Makes the problem for a request about a timer that does not exist.
pub(super) fn not_found() -> Problem {
    Problem::new(ProblemKind::NotFound, "there is no such timer")
}
