//! Extracts the namespace of a request's path, checks the role that the request needs there, and extracts the name at
//! the end of the path.

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

/// Gives a role as a type, so that the signature of a handler names the role that it needs.
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

/// The namespace in a request's path. The extractor has checked that the request has the role `R` there.
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
    /// Returns whether the request may see the payloads of timers in this namespace.
    pub(super) fn sees_payloads(&self) -> bool {
        self.right.sees_payloads(&self.namespace)
    }

    fn granted(&self) -> Result<Granted<'_>, Refused> {
        self.right.require(R::ROLE, Some(&self.namespace))
    }

    /// Reads the JSON body as a `T`.
    pub(super) async fn read<T: DeserializeOwned>(&self, body: Body<T>) -> Result<T, Refused> {
        self.granted()?.read(body).await
    }

    /// Reads the JSON body as a `T`, and returns it with the request's headers.
    pub(super) async fn read_with_headers<T: DeserializeOwned>(
        &self,
        body: Body<T>,
    ) -> Result<(T, HeaderMap), Refused> {
        self.granted()?.read_with_headers(body).await
    }
}

/// Stands for all namespaces. The extractor has checked that the request has the role `R` in all of them.
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

/// The last name in a request's path: the name of a queue, a claim or a schedule, for example.
#[derive(Debug)]
pub(super) struct Name(pub(super) String);

impl FromRequestParts<Service> for Name {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        parameter(parts, service, None).await.map(|parameter| Self(parameter.text))
    }
}

/// The name of a timer in a request's path. The path decides whether it is a key or an id.
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

/// A parameter from a request's path. `is_id` says that the path calls it `id`.
struct Parameter {
    is_id: bool,
    text: String,
}

/// Returns the parameter of this name from the request's path, or the last parameter if `name` is `None`.
async fn parameter(parts: &mut Parts, service: &Service, name: Option<&str>) -> Result<Parameter, Refused> {
    let bad = |detail: String| Refused(Problem::new(ProblemKind::BadRequest, detail));
    let all = RawPathParams::from_request_parts(parts, service)
        .await
        .map_err(|rejection| bad(rejection.body_text()))?;
    let wanted = all.iter().filter(|(found, _)| name.is_none_or(|name| name == *found)).last();
    let (found, text) = wanted.ok_or_else(|| bad("the path has a parameter less".to_owned()))?;
    Ok(Parameter { is_id: found == "id", text: text.to_owned() })
}
