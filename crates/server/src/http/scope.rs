//! Extracts the names in a request's path: the namespace, and the name at the end of the path. Also checks the role
//! that the request needs in the namespace.

use super::answer::Refused;
use super::auth::{Granted, Right};
use super::extract::Body;
use crate::service::{Named, Service, id};
use axum::extract::{FromRequestParts, RawPathParams};
use core::marker::PhantomData;
use http::HeaderMap;
use http::request::Parts;
use serde::de::DeserializeOwned;
use tourbillon_api::{Problem, ProblemKind, Role};
use tourbillon_durable::timer::TimerId;

/// A role as a type. So the signature of a handler says which role a request needs.
pub(super) trait Needs {
    const ROLE: Role;
}

macro_rules! roles {
    ($($role:ident),*) => {
        $(
            #[derive(Debug)]
            pub(super) enum $role {}

            impl Needs for $role {
                const ROLE: Role = Role::$role;
            }
        )*
    };
}

roles!(Reader, Writer, Admin);

/// The namespace in a request's path. The extraction fails unless the request has the role `R` in this namespace.
#[derive(Debug)]
pub(super) struct Within<R> {
    pub(super) service: Service,
    pub(super) right: Right,
    pub(super) namespace: String,
    role: PhantomData<fn() -> R>,
}

impl<R: Needs> FromRequestParts<Service> for Within<R> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        let right = Right::from_request_parts(parts, service).await?;
        let Parameter { text: namespace, .. } = parameter(parts, service, Some("namespace")).await?;
        right.require(R::ROLE, Some(&namespace))?;
        Ok(Self { service: service.clone(), right, namespace, role: PhantomData })
    }
}

impl<R: Needs> Within<R> {
    /// Returns whether the request may see the payloads of timers in the namespace of its path.
    pub(super) fn sees_payloads(&self) -> bool {
        self.right.sees_payloads(&self.namespace)
    }

    fn granted(&self) -> Result<Granted<'_>, Refused> {
        self.right.require(R::ROLE, Some(&self.namespace))
    }

    /// Reads the JSON body of the request as a `T`.
    pub(super) async fn read<T: DeserializeOwned>(&self, body: Body<T>) -> Result<T, Refused> {
        self.granted()?.read(body).await
    }

    /// Reads the JSON body of the request as a `T`. Returns the value and the request's headers.
    pub(super) async fn read_with_headers<T: DeserializeOwned>(
        &self,
        body: Body<T>,
    ) -> Result<(T, HeaderMap), Refused> {
        self.granted()?.read_with_headers(body).await
    }
}

/// An extractor for paths that do not name a namespace. The extraction fails unless the request has the role `R` in all
/// namespaces.
#[derive(Debug)]
pub(super) struct Everywhere<R> {
    pub(super) service: Service,
    pub(super) right: Right,
    role: PhantomData<fn() -> R>,
}

impl<R: Needs> FromRequestParts<Service> for Everywhere<R> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        let right = Right::from_request_parts(parts, service).await?;
        right.require(R::ROLE, None)?;
        Ok(Self { service: service.clone(), right, role: PhantomData })
    }
}

/// The last parameter in a request's path, such as the name of a queue, a claim or a schedule.
#[derive(Debug)]
pub(super) struct Name(pub(super) String);

impl FromRequestParts<Service> for Name {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        parameter(parts, service, None).await.map(|parameter| Self(parameter.text))
    }
}

/// The last parameter in a request's path, where it names a timer by its key or its id.
#[derive(Debug)]
pub(super) enum TimerName {
    Key(String),
    Id(TimerId),
}

impl TimerName {
    pub(super) fn named(&self) -> Named<'_> {
        match self {
            Self::Key(key) => Named::Key(key),
            Self::Id(id) => Named::Id(*id),
        }
    }
}

impl FromRequestParts<Service> for TimerName {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        let Parameter { is_id, text } = parameter(parts, service, None).await?;
        Ok(if is_id { Self::Id(id(&text)?) } else { Self::Key(text) })
    }
}

/// A parameter of a request's path, such as a timer's key. `is_id` says whether the route calls the parameter `id`.
struct Parameter {
    is_id: bool,
    text: String,
}

/// Returns the parameter `name` of a request's path. If `name` is `None`, returns the last parameter.
async fn parameter(parts: &mut Parts, service: &Service, name: Option<&str>) -> Result<Parameter, Refused> {
    let bad = |detail: String| Refused(Problem::new(ProblemKind::BadRequest, detail));
    let all = RawPathParams::from_request_parts(parts, service)
        .await
        .map_err(|rejection| bad(rejection.body_text()))?;
    let wanted = all.iter().filter(|(found, _)| name.is_none_or(|name| name == *found)).last();
    let (found, text) = wanted.ok_or_else(|| bad("the path has a parameter less".to_owned()))?;
    Ok(Parameter { is_id: found == "id", text: text.to_owned() })
}
