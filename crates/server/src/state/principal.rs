//! Defines the permissions of a request.

use tourbillon_api::Role;

/// The permissions of a request: a role, and a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub(crate) role: Role,
    /// The only namespace that the request may use. `None` permits all namespaces.
    pub(crate) namespace: Option<Box<str>>,
}

impl Principal {
    /// The permissions of an administrator for all namespaces.
    pub(crate) const ALL: Self = Self { role: Role::Admin, namespace: None };

    /// Returns whether these permissions suffice for a request that needs the role `role` in `namespace`. The namespace
    /// `None` stands for the whole service.
    pub(crate) fn permits(&self, role: Role, namespace: Option<&str>) -> bool {
        self.role >= role && self.namespace.as_deref().is_none_or(|own| namespace == Some(own))
    }
}
