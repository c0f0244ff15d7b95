//! The right of a request.

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
