//! The parts of requests, with a problem for each that cannot be read.

use super::answer::Refused;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::DeserializeOwned;
use tourbillon_api::{Problem, ProblemKind};

/// A body in JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let kind = kind.split(';').next().unwrap_or("").trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Refused(Problem::new(
                ProblemKind::UnsupportedMediaType,
                format!("the type is {kind:?}"),
            )));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            let kind = if rejection.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
                ProblemKind::TooLarge
            } else {
                ProblemKind::BadRequest
            };
            Refused(Problem::new(kind, rejection.body_text()))
        })?;
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let pointer = pointer(error.path());
            Refused(Problem::field(pointer, error.inner().to_string()))
        })?;
        json.end().map_err(|error| Refused(Problem::field("", error.to_string())))?;
        Ok(Self(value))
    }
}

/// A path of a field as a JSON Pointer.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        let part = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => "?".to_owned(),
        };
        pointer.push('/');
        pointer.push_str(&part);
    }
    pointer
}

/// The parts of the path.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        axum::extract::Path::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(path)| Self(path))
            .map_err(|rejection: PathRejection| {
                Refused(Problem::new(ProblemKind::BadRequest, rejection.body_text()))
            })
    }
}

/// The query.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        axum::extract::Query::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|rejection: QueryRejection| {
                Refused(Problem::new(ProblemKind::BadRequest, rejection.body_text()))
            })
    }
}
