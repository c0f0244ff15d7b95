//! Reads a form that a visitor has sent, and checks that it came from one of the service's own pages.

use super::escape::visible;
use super::fault::Fault;
use super::visitor::Visitor;
use crate::bodies::Hold;
use crate::service::Service;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::response::{IntoResponse as _, Response};
use core::hash::Hash;
use http::header::CONTENT_TYPE;
use subtle::ConstantTimeEq as _;
use tourbillon_api::{Problem, ProblemKind};
use url::form_urlencoded;

/// The fields of a form that a visitor has sent, in the order of the form. Each field has a name and a text.
#[derive(Debug)]
pub(super) struct Fields(Vec<(Box<str>, Box<str>)>);

impl Fields {
    /// Reads a form from the body of a request. The body's bytes count towards the memory limit for bodies until `hold`
    /// is dropped.
    pub(super) async fn read<C: Clone + Eq + Hash>(request: Request, hold: &Hold<C>) -> Result<Self, Fault> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        if !kind
            .split(';')
            .next()
            .unwrap_or("")
            .trim()
            .eq_ignore_ascii_case("application/x-www-form-urlencoded")
        {
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, "The body must be a form.").into());
        }
        let bytes = hold.read(request).await.map_err(|fault| Fault::from(Problem::from(fault)))?;
        let pairs =
            form_urlencoded::parse(&bytes).map(|(name, value)| (name.as_ref().into(), value.as_ref().into()));
        Ok(Self(pairs.collect()))
    }

    /// Returns the text of the first field named `name`. Returns an empty text if the form has no such field.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| **field == *name).map_or("", |(_, value)| value)
    }

    /// Returns the texts of all fields named `name`.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| **field == *name).map(|(_, value)| &**value)
    }

    /// Returns the text of the field named `name`. Returns `None` if the field is empty or missing.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|text| !text.is_empty())
    }

    /// Fails unless the visitor has typed `word` to confirm a change. The visitor may also type `word` as the page
    /// shows it, with special characters escaped.
    pub(super) fn confirm(&self, word: &str) -> Result<(), Fault> {
        let typed = self.get("confirm").trim();
        if typed == word.trim() || typed == visible(word).trim() {
            return Ok(());
        }
        Err(Fault::bad(
            "Nothing was changed: the typed text does not confirm the change. Go back and type the text that the page \
             shows.",
        ))
    }
}

/// A form that a visitor has sent from the service's own pages. The visitor's CSRF token in the form proves its origin.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) visitor: Visitor,
    pub(super) fields: Fields,
}

impl FromRequest<Service> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, service: &Service) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        // The visitor is determined before the body is read, because the memory of the body counts for the visitor's
        // token. A stranger is refused without a read.
        let visitor = Visitor::from_request_parts(&mut parts, service).await?;
        let hold = service.bodies().hold(visitor.token());
        let fields = Fields::read(Request::from_parts(parts, body), &hold).await;
        let fields = fields.map_err(Fault::into_response)?;
        let (mark, expected) = (fields.get("mark"), &visitor.mark);
        // The expected CSRF token is empty if the system gave no random numbers. A form with an empty token would match
        // it.
        if expected.is_empty() || !bool::from(mark.as_bytes().ct_eq(expected.as_bytes())) {
            let fault = Fault::forbidden(
                "Nothing was changed: the form is of an earlier session, or from before a restart of the service. Load its page \
                 again and repeat the change.",
            );
            return Err(fault.into_response());
        }
        Ok(Self { visitor, fields })
    }
}
