//! The right of a request.

use super::answer::Refused;
use crate::service::{Principal, Service};
use axum::extract::FromRequestParts;
use http::request::Parts;
use tourbillon_api::{Problem, ProblemKind, Role};

/// The right of a request, which each handler asks.
#[derive(Debug)]
pub(super) struct Right(Principal);

impl Right {
    /// Fails unless the request may do what this role permits in this namespace.
    pub(super) fn require(&self, role: Role, namespace: Option<&str>) -> Result<(), Refused> {
        if self.0.permits(role, namespace) {
            Ok(())
        } else {
            Err(Refused(Problem::new(ProblemKind::Forbidden, format!("this needs the role {role:?}"))))
        }
    }

    /// Whether the request may see payloads in this namespace.
    pub(super) fn sees_payloads(&self, namespace: &str) -> bool {
        self.0.permits(Role::Writer, Some(namespace))
    }
}

impl FromRequestParts<Service> for Right {
    type Rejection = Refused;

    async fn from_request_parts(_parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        if service.tokens().is_open() {
            return Ok(Self(Principal::ALL));
        }
        Err(Refused(Problem::new(ProblemKind::Unauthorised, "")))
    }
}
