//! Extracts the names in a request's path: the namespace, and the name at the end of the path. Checks the role that the
//! request needs in the namespace, and only then reads the request's body.

use super::answer::Refused;
use super::auth::Permission;
use super::json;
use crate::service::{Named, Service, id};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use core::convert::Infallible;
use core::marker::PhantomData;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::DeserializeOwned;
use tourbillon_api::{Problem, ProblemKind, Role};
use tourbillon_durable::timer::TimerId;

/// A role as a type. With it, the signature of a handler says which role a request needs.
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
    pub(super) permission: Permission,
    pub(super) namespace: String,
    role: PhantomData<fn() -> R>,
}

impl<R: Needs> FromRequestParts<Service> for Within<R> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        let permission = Permission::from_request_parts(parts, service).await?;
        let Parameter { text: namespace, .. } = parameter(parts, service, Some("namespace")).await?;
        // The role is checked before the handler looks for the namespace. So a token cannot find out which other
        // namespaces exist.
        permission.require(R::ROLE, Some(&namespace))?;
        Ok(Self { service: service.clone(), permission, namespace, role: PhantomData })
    }
}

impl<R: Needs> Within<R> {
    /// Returns whether the request may see the payloads of timers in the namespace of its path.
    pub(super) fn sees_payloads(&self) -> bool {
        self.permission.sees_payloads(&self.namespace)
    }

    /// Reads the JSON body of the request as a `T`.
    pub(super) async fn read<T: DeserializeOwned>(&self, body: Body<T>) -> Result<T, Refused> {
        self.read_with_headers(body).await.map(|(body, _headers)| body)
    }

    /// Reads the JSON body of the request as a `T`. Returns the value and the request's headers.
    pub(super) async fn read_with_headers<T: DeserializeOwned>(
        &self,
        body: Body<T>,
    ) -> Result<(T, HeaderMap), Refused> {
        body.read(&self.permission).await
    }
}

/// An extractor for paths that do not name a namespace. The extraction fails unless the request has the role `R` in all
/// namespaces.
#[derive(Debug)]
pub(super) struct Everywhere<R> {
    pub(super) service: Service,
    pub(super) permission: Permission,
    role: PhantomData<fn() -> R>,
}

impl<R: Needs> FromRequestParts<Service> for Everywhere<R> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        let permission = Permission::from_request_parts(parts, service).await?;
        permission.require(R::ROLE, None)?;
        Ok(Self { service: service.clone(), permission, role: PhantomData })
    }
}

impl<R: Needs> Everywhere<R> {
    /// Reads the JSON body of the request as a `T`.
    pub(super) async fn read<T: DeserializeOwned>(&self, body: Body<T>) -> Result<T, Refused> {
        body.read(&self.permission).await.map(|(body, _headers)| body)
    }
}

/// The JSON body of a request, not yet read. [`Within`] and [`Everywhere`] read it, after the check of the
/// request's role.
#[derive(Debug)]
pub(super) struct Body<T> {
    request: Request,
    kind: PhantomData<fn() -> T>,
}

impl<T: Send, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        Ok(Self { request, kind: PhantomData })
    }
}

impl<T: DeserializeOwned> Body<T> {
    /// Reads the JSON body as a `T`. Returns the value and the request's headers. While `permission` lives, the body's
    /// bytes count towards the memory limit for bodies.
    async fn read(self, permission: &Permission) -> Result<(T, HeaderMap), Refused> {
        let mut request = self.request;
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let kind = kind.split(';').next().unwrap_or("").trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Refused(Problem::new(
                ProblemKind::UnsupportedMediaType,
                format!("the type is {kind:?}"),
            )));
        }
        let headers = core::mem::take(request.headers_mut());
        let bytes = permission.hold.read(request).await.map_err(|fault| Refused(fault.into()))?;
        Ok((json::read(&bytes)?, headers))
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

/// A parameter of a request's path, such as a timer's key. `is_id` is true if the route calls the parameter `id`.
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
