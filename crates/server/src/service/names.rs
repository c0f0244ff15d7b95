//! The names by which requests find timers.

use crate::audit::Deed;
use crate::convert::rejected;
use tourbillon_api::{AuditAction, Problem, ProblemKind};
use tourbillon_durable::Rejection;
use tourbillon_durable::timer::{Address, KeyOf, TimerId};

/// The length of a key that a creation permits, in bytes.
const LONGEST_KEY: usize = 255;

/// The name by which a request finds a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    /// The key.
    Key(&'a str),
    /// The id.
    Id(TimerId),
}

impl Named<'_> {
    /// The address of the timer. An id finds timers of all namespaces.
    pub(crate) fn address(self, namespace: &str) -> Address {
        match self {
            Self::Key(key) => by_key(namespace, key),
            Self::Id(id) => id.into(),
        }
    }

    /// Fails for a key that is too long for a timer: a request to cancel by it means another key.
    pub(super) fn admit(self) -> Result<(), Problem> {
        match self {
            Self::Key(key) if key.len() > LONGEST_KEY => Err(rejected(&Rejection::TooLong("the key"))),
            Self::Key(_) | Self::Id(_) => Ok(()),
        }
    }

    /// A change of the timer as the audit trail has it.
    pub(super) fn deed(self, namespace: &str, verb: &str) -> Deed {
        let target = match self {
            Self::Key(key) => key.to_owned(),
            Self::Id(id) => id.to_string(),
        };
        Deed::new(AuditAction::ChangeTimer).namespace(namespace).target(target).detail(verb)
    }
}

/// A timer's address by its key.
pub(crate) fn by_key(namespace: &str, key: &str) -> Address {
    Address::Key(KeyOf { namespace: namespace.into(), key: key.into() })
}

/// Parses the id of a timer.
pub(crate) fn id(text: &str) -> Result<TimerId, Problem> {
    text.parse().map_err(|_| Problem::new(ProblemKind::BadRequest, "an id is the text of a UUID"))
}

/// The problem that there is no timer of a name.
pub(super) fn not_found() -> Problem {
    Problem::new(ProblemKind::NotFound, "there is no such timer")
}
