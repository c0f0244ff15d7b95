//! Creates timers. Checks the limits of the namespace and the idempotency key, and stores the timer.

mod earlier;
mod limits;
mod naming;
mod rate;

pub(super) use earlier::Earlier;
pub(super) use limits::{Candidate, CreationLimits};
pub(crate) use naming::Naming;

use super::recorder::ChangeRecorder;
use crate::asker;
use crate::convert::{Creation, creation, rejected, unavailable};
use crate::record::{Entered, Idempotency, fingerprint};
use crate::request_id::RequestId;
use crate::settings::Settings;
use crate::state::{Namespace, Namespaces};
use crate::telemetry::Telemetry;
use crate::work::{self, Head};
use std::sync::Arc;
use tourbillon_api::{self as api, Kept, PlaceOutcome, Placed, Problem, ProblemKind, Replaced};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{self as durable, Timers};

const LONGEST_IDEMPOTENCY_KEY: usize = 255;

/// A new timer that has passed all checks and is ready for the store.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) creation: Creation,
    /// While this value exists, other requests with the same idempotency key are refused. `None` if the request has no
    /// idempotency key.
    pub(super) entered: Option<Entered>,
    /// The namespace of the timer, which cannot be removed before this value is dropped.
    pub(super) namespace: Arc<Namespace>,
}

/// Serves the requests that create timers.
pub(crate) struct Creations {
    pub(super) settings: Arc<Settings>,
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) limits: Arc<CreationLimits>,
    pub(super) idempotency: Idempotency,
    pub(super) telemetry: Telemetry,
    pub(super) recorder: ChangeRecorder,
}

impl Creations {
    /// Checks a new timer before it is stored. `pointer` is the JSON pointer to the timer within the request. `earlier`
    /// has the changes that the same transaction makes before this creation. A creation that passes the checks is
    /// appended to `earlier`.
    pub(super) async fn ready(
        &self,
        namespace: &str,
        naming: Naming<'_>,
        timer: &api::NewTimer,
        pointer: &str,
        earlier: &mut Earlier,
    ) -> Result<Ready, Problem> {
        let owner = self.namespaces.require_fresh(namespace).await?;
        let naming = Naming { number: owner.number, ..naming };
        let id = naming.id(namespace);
        let entered = match naming.idempotency_key {
            Some(key) if key.is_empty() || key.len() > LONGEST_IDEMPOTENCY_KEY => {
                let detail = format!("an idempotency key has 1 to {LONGEST_IDEMPOTENCY_KEY} bytes");
                return Err(Problem::new(ProblemKind::BadRequest, detail));
            }
            _ => {
                let enter = |id: TimerId| {
                    self.idempotency.enter(namespace, id.as_u128(), fingerprint(naming.key, timer))
                };
                id.map(enter).transpose()?
            }
        };
        let (fingerprint, request) = (entered.as_ref().map(Entered::fingerprint), asker::request_id());
        let head = Head { fingerprint, request: request.as_ref().and_then(RequestId::given) };
        let ((kind, mut spec), callback) = creation(timer, &self.settings, head, pointer)?;
        if !entered.as_ref().is_some_and(Entered::is_known) {
            let limits = &owner.limits;
            let callback = callback.as_ref();
            let candidate = Candidate { namespace, limits, naming, timer, callback, pointer };
            self.limits.admit(candidate, earlier).await?;
            earlier.note_creation(namespace, naming, timer.if_present);
        }
        spec = spec.namespace(namespace);
        if let Some(key) = naming.key {
            spec = spec.key(key);
        }
        if let Some(id) = id {
            spec = spec.id(id);
        }
        if let Some(trace) = naming.trace {
            spec = spec.trace(trace.to_string());
        }
        Ok(Ready { creation: (kind, spec), entered, namespace: owner })
    }

    /// Checks a new timer and stores it.
    pub(crate) async fn place(
        &self,
        namespace: &str,
        naming: Naming<'_>,
        timer: &api::NewTimer,
    ) -> Result<Placed, Problem> {
        let mut span = self.telemetry.creation(naming.trace, namespace, naming.key);
        // If the span is recorded, the timer stores the context of the span. So each attempt becomes a child of the
        // creation.
        let answer = self.store(namespace, Naming { trace: span.trace(), ..naming }, timer).await;
        span.created(&answer);
        answer
    }

    async fn store(
        &self,
        namespace: &str,
        naming: Naming<'_>,
        timer: &api::NewTimer,
    ) -> Result<Placed, Problem> {
        let ready = self.ready(namespace, naming, timer, "", &mut Earlier::default()).await?;
        let Ready { creation: (kind, spec), entered, namespace: _stays } = ready;
        let placed = self.timers.schedule_bytes(kind, spec).await.map_err(|error| rejected(&error.reason))?;
        self.placed(namespace, naming.key, placed, entered.as_ref()).await
    }

    /// Records the creation that the store has confirmed. Returns the answer for the client.
    pub(super) async fn placed(
        &self,
        namespace: &str,
        key: Option<&str>,
        placed: durable::Placed,
        entered: Option<&Entered>,
    ) -> Result<Placed, Problem> {
        let mut key = key;
        if let Some(entered) = entered {
            if let durable::Placed::Repeated(id) = placed {
                let stored = self.timers.get(id).await.map_err(|error| unavailable(&error))?;
                let fingerprint = stored.and_then(|timer| work::head(&timer.payload.0).fingerprint);
                let is_the_same = entered.repeated(fingerprint)?;
                // A different request may have given the timer another key, or none.
                key = key.filter(|_| is_the_same);
            } else {
                entered.remember(!matches!(placed, durable::Placed::Kept { .. }));
            }
        }
        let shown = shown(placed, key);
        self.recorder.placed(namespace, &shown);
        Ok(shown)
    }
}

fn shown(placed: durable::Placed, key: Option<&str>) -> Placed {
    let mut kept = None;
    let (outcome, replaced) = match placed {
        durable::Placed::Repeated(_) => (PlaceOutcome::Repeated, None),
        durable::Placed::Kept { was, .. } => {
            kept = Some(Kept { was });
            (PlaceOutcome::Kept, None)
        }
        durable::Placed::Replaced { old, was, .. } => {
            (PlaceOutcome::Replaced, Some(Replaced { id: old.to_string(), was }))
        }
        _ => (PlaceOutcome::Created, None),
    };
    Placed { id: placed.id().to_string(), key: key.map(str::to_owned), outcome, replaced, kept }
}
