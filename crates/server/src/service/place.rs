//! Making timers: limits of the namespace, idempotency, and the store.

use super::events::event;
use super::{Namespace, Service};
use crate::convert::{order, phase, rejected, unavailable};
use tourbillon_api::{self as api, EventKind, PlaceOutcome, Placed, Problem, ProblemKind, Replaced};
use tourbillon_durable::timer::{Address, KeyOf, TimerId};
use tourbillon_durable::{self as durable};
use uuid::Uuid;

/// The names of the ids that idempotency keys give.
const IDEMPOTENCY: Uuid = Uuid::from_u128(0x6b0d_6d3c_0a83_4f5e_9d0c_52f1_5b1d_0d7e);

/// The id of the timer that a request with this idempotency key makes: the same for each repetition.
pub(super) fn id_of(namespace: &str, idempotency_key: &str) -> TimerId {
    let namespace = Uuid::new_v5(&IDEMPOTENCY, namespace.as_bytes());
    TimerId::from_u128(Uuid::new_v5(&namespace, idempotency_key.as_bytes()).as_u128())
}

/// A timer's address by its key.
pub(crate) fn by_key(namespace: &str, key: &str) -> Address {
    Address::Key(KeyOf { namespace: namespace.into(), key: key.into() })
}

/// What a timer's creation is about, besides the timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Naming<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) trace: Option<&'a str>,
}

impl Service {
    /// The namespace with this name, or the problem that there is none.
    pub(crate) fn namespace(&self, name: &str) -> Result<std::sync::Arc<Namespace>, Problem> {
        self.namespaces()
            .get(name)
            .ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("there is no namespace {name:?}")))
    }

    /// Stores a timer.
    pub(crate) async fn place(
        &self,
        namespace: &str,
        naming: Naming<'_>,
        timer: &api::NewTimer,
    ) -> Result<Placed, Problem> {
        // The namespace is not removed while a timer is being stored in it.
        let _namespace = self.admit(namespace, naming, timer, "").await?;
        let (kind, mut spec) = order(timer, self.settings(), "")?;
        spec = spec.namespace(namespace);
        if let Some(key) = naming.key {
            spec = spec.key(key);
        }
        if let Some(key) = naming.idempotency_key {
            spec = spec.id(id_of(namespace, key));
        }
        if let Some(trace) = naming.trace {
            spec = spec.trace(trace);
        }
        let placed =
            self.timers().schedule_bytes(kind, spec).await.map_err(|error| rejected(&error.reason))?;
        let shown = shown(placed, naming.key);
        self.events().show(|| api::Event {
            id: Some(shown.id.clone()),
            key: shown.key.clone(),
            ..event(EventKind::Created, namespace)
        });
        Ok(shown)
    }

    /// A stored timer, or the problem that there is none.
    pub(crate) async fn stored(
        &self,
        namespace: &str,
        at: Address,
    ) -> Result<durable::timer::Timer, Problem> {
        self.namespace(namespace)?;
        let timer = self.timers().get(at).await.map_err(|error| unavailable(&error))?;
        timer
            .filter(|timer| *timer.namespace == *namespace)
            .ok_or_else(|| Problem::new(ProblemKind::NotFound, "there is no such timer"))
    }
}

fn shown(placed: durable::Placed, key: Option<&str>) -> Placed {
    let (outcome, replaced) = match placed {
        durable::Placed::Repeated(_) => (PlaceOutcome::Repeated, None),
        durable::Placed::Kept(_) => (PlaceOutcome::Kept, None),
        durable::Placed::Replaced { old, was, .. } => {
            (PlaceOutcome::Replaced, Some(Replaced { id: old.to_string(), was: phase(was) }))
        }
        _ => (PlaceOutcome::Created, None),
    };
    Placed { id: placed.id().to_string(), key: key.map(str::to_owned), outcome, replaced }
}
