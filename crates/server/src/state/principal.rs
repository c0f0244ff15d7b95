//! Defines the permissions of a request.

use tourbillon_api::Role;

/// The permissions of a request, which come from its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub(crate) role: Role,
    /// The only namespace that the request may touch. `None`: all namespaces.
    pub(crate) namespace: Option<Box<str>>,
}

impl Principal {
    /// The permission to do everything.
    pub(crate) const ALL: Self = Self { role: Role::Admin, namespace: None };

    /// Whether these permissions suffice for a request that needs `role` in `namespace`. Without a namespace the
    /// request concerns the whole service.
    pub(crate) fn permits(&self, role: Role, namespace: Option<&str>) -> bool {
        self.role >= role && self.namespace.as_deref().is_none_or(|own| namespace == Some(own))
    }
}
