//! Problems after RFC 9457.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A problem: the answer to a request that failed, with the media type `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The kind of the problem: `/problems/` followed by a word.
    #[serde(rename = "type")]
    pub kind: ProblemKind,
    /// The kind in plain words.
    pub title: String,
    /// The HTTP status.
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// The fault in this particular request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The faults in single fields of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldFault>,
    /// `unknown` if the request may have succeeded despite the problem. The client may repeat the request with the same
    /// idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The time after which the client may repeat the request, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// The fault in a field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldFault {
    /// The position of the field in the request's body, as a JSON Pointer.
    pub pointer: String,
    /// The fault in words.
    pub detail: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $path:literal $status:literal $title:literal)*) => {
        /// The kind of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* #[serde(rename = $path)] $name,)*
        }

        impl ProblemKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The kind in plain words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// The kind as a path.
            #[must_use]
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }
        }
    };
}

kinds! {
    /// The request is malformed or invalid.
    BadRequest "/problems/bad-request" 400 "The request is not valid"
    /// The request has no token, or its token is unknown.
    Unauthorised "/problems/unauthorised" 401 "A valid token is needed"
    /// The token does not permit the request, or the service has no tokens and the request comes from elsewhere.
    Forbidden "/problems/forbidden" 403 "This is not permitted"
    /// The requested object does not exist.
    NotFound "/problems/not-found" 404 "Not found"
    /// The path does not support the request's method.
    MethodNotAllowed "/problems/method-not-allowed" 405 "The path does not have this method"
    /// Another timer has the key.
    KeyExists "/problems/key-exists" 409 "Another timer has the key"
    /// The timer is in a phase that does not permit the change.
    WrongPhase "/problems/wrong-phase" 409 "The timer's phase does not permit this"
    /// Another request with the same idempotency key is in progress.
    IdempotencyInProgress "/problems/idempotency-in-progress" 409 "Another request with this idempotency key is under way"
    /// The claim has ended: the receiver has acknowledged or rejected it, or it has expired.
    ClaimEnded "/problems/claim-ended" 409 "The claim has ended"
    /// The namespace cannot be removed, because it has timers or schedules, or because it is the namespace `default`.
    NamespaceNotEmpty "/problems/namespace-not-empty" 409 "The namespace has timers"
    /// A part of the request is too large.
    TooLarge "/problems/too-large" 413 "Too large"
    /// The media type of the body is not JSON.
    UnsupportedMediaType "/problems/unsupported-media-type" 415 "The body must be application/json"
    /// The idempotency key was used for another request.
    IdempotencyMismatch "/problems/idempotency-mismatch" 422 "The idempotency key was used for another request"
    /// The service must not send callbacks to the destination.
    BlockedDestination "/problems/blocked-destination" 422 "The destination is blocked"
    /// The due moment is too far away.
    DueTooFar "/problems/due-too-far" 422 "The due moment is too far away"
    /// The time zone is unknown.
    ZoneUnknown "/problems/zone-unknown" 422 "The time zone is not known"
    /// A limit of the namespace or of the service is reached, such as the greatest number of stored timers. Or a
    /// removal of the namespace is under way: the client may send the request again after the removal.
    LimitReached "/problems/limit-reached" 429 "A limit was reached"
    /// An error inside the service, which is a bug.
    Internal "/problems/internal" 500 "The service has failed"
    /// The service accepts no changes at present.
    ReadOnly "/problems/read-only" 503 "The service permits no changes now"
    /// The store is unavailable at present.
    StoreUnavailable "/problems/store-unavailable" 503 "The store cannot be used now"
    /// The disk, or the memory of Redis, is nearly full. Nothing new is stored; deliveries and cancellations continue.
    StorageFull "/problems/storage-full" 507 "Nothing new is stored: the store is full"
    /// The service is stopping.
    Stopping "/problems/stopping" 503 "The service is stopping"
    /// The request took too long.
    Timeout "/problems/timeout" 408 "The request took too long"
}

/// The schema is made by hand. A derived schema would contain the names of the variants instead of the paths.
#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for ProblemKind {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("The kind of a problem."))
            .enum_values(Some(Self::ALL.iter().map(|kind| kind.path())))
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for ProblemKind {}

impl Problem {
    /// Makes a problem of the given kind. `detail` describes the fault in this particular request.
    #[must_use]
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            errors: Vec::new(),
            outcome: None,
            retry_after_ms: None,
        }
    }

    /// Makes the problem of a request with a fault in one field. `pointer` is a JSON Pointer to the field.
    #[must_use]
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::new(ProblemKind::BadRequest, detail.clone()).with_field(pointer, detail)
    }

    /// Adds a field of the request that has a fault. `pointer` is a JSON Pointer to the field.
    #[must_use]
    pub fn with_field(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldFault { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Sets `outcome` to `unknown`, because the request may have succeeded despite the problem.
    #[must_use]
    pub fn with_unknown_outcome(self) -> Self {
        Self { outcome: Some("unknown".to_owned()), ..self }
    }

    /// Sets the time after which the client may repeat the request, in milliseconds.
    #[must_use]
    pub fn with_retry_after_ms(self, millis: u64) -> Self {
        Self { retry_after_ms: Some(millis), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        // The detail of a problem in a single field is often the same text as the field's detail. That text is printed
        // with the field, so the problem's detail is left out.
        let is_of_a_field = self.errors.iter().any(|fault| fault.detail == self.detail);
        let detail = Some(&self.detail).filter(|detail| !detail.is_empty() && !is_of_a_field);
        let mut before = ": ";
        if let Some(detail) = detail {
            write!(f, "{before}{detail}")?;
            before = "; ";
        }
        for FieldFault { pointer, detail } in &self.errors {
            f.write_str(before)?;
            if !pointer.is_empty() {
                write!(f, "{pointer}: ")?;
            }
            f.write_str(detail)?;
            before = "; ";
        }
        Ok(())
    }
}

impl core::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_each_thing_once() {
        let kind = ProblemKind::BlockedDestination;
        let text = Problem::new(kind, "port 22").with_field("/callback/url", "port 22").to_string();
        assert_eq!(text, "The destination is blocked: /callback/url: port 22");
        let text = Problem::field("/delay_ms", "-1 is not a delay").to_string();
        assert_eq!(text, "The request is not valid: /delay_ms: -1 is not a delay");
        assert_eq!(Problem::field("", "no work").to_string(), "The request is not valid: no work");
        let two = Problem::new(kind, "twice").with_field("/a", "one").with_field("/b", "two");
        assert_eq!(two.to_string(), "The destination is blocked: twice; /a: one; /b: two");
        assert_eq!(Problem::new(kind, "").to_string(), "The destination is blocked");
    }
}
