//! Tokens: who may do what.

use super::files;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use tourbillon_api::Role;

/// The right of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub(crate) role: Role,
    /// The only namespace that the right holds for.
    pub(crate) namespace: Option<Box<str>>,
}

impl Principal {
    /// The right to everything.
    pub(crate) const ALL: Self = Self { role: Role::Admin, namespace: None };

    /// Whether a request that needs this role in this namespace is permitted. Without a namespace the request concerns
    /// the whole service.
    pub(crate) fn permits(&self, role: Role, namespace: Option<&str>) -> bool {
        self.role >= role && self.namespace.as_deref().is_none_or(|own| namespace == Some(own))
    }
}

/// The tokens of a service.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<Stored>);

/// A token, without itself.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// SHA-256 of the token, in hexadecimal digits.
    hash: Box<str>,
    role: Role,
    namespace: Option<Box<str>>,
}

impl Tokens {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(files::read(path)?.unwrap_or_default()))
    }

    /// Whether there are no tokens: then every request is permitted, and the service must not be reachable from
    /// elsewhere.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_empty()
    }
}
