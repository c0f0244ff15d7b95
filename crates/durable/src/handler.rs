//! Defines handlers, to which timers are delivered. A timer's kind is the name that selects its handler.

use crate::delivery::Delivery;
use crate::spec::Kind;
use crate::verdict::Verdict;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;

/// The future that returns a handler's verdict.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// The common interface of asynchronous handlers, blocking handlers, and handlers of bytes.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Begins to handle a delivery. The payload is parsed during this call, or later by the returned future.
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering;

    fn place(&self) -> Place;
}

/// The threads on which a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The program's executor, or the workers if there is no executor.
    Executor,
    /// The workers, since the handler blocks its thread.
    Workers,
    /// The threads for the decisions of schedules. A decision determines which instants of a schedule get occurrences.
    Decisions,
}

/// Wraps an asynchronous function as a handler. The function gets the payload as a value of `K`.
pub(crate) struct Asynchronous<F, K>(pub(crate) F, pub(crate) PhantomData<fn(K)>);

impl<F, K, R> Handler for Asynchronous<F, K>
where
    F: Fn(K, Delivery) -> R + Send + Sync + 'static,
    K: Kind,
    R: Future<Output: Into<Verdict>> + Send + 'static,
{
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering {
        match read::<K>(&payload) {
            Ok(payload) => {
                let answer = (self.0)(payload, delivery);
                Box::pin(async move { answer.await.into() })
            }
            Err(verdict) => Box::pin(core::future::ready(verdict)),
        }
    }

    fn place(&self) -> Place {
        Place::Executor
    }
}

/// Wraps a blocking function as a handler. The function gets the payload as a value of `K`.
pub(crate) struct Blocking<F, K>(pub(crate) std::sync::Arc<F>, pub(crate) PhantomData<fn(K)>);

impl<F, K, V> Handler for Blocking<F, K>
where
    F: Fn(K, Delivery) -> V + Send + Sync + 'static,
    K: Kind,
    V: Into<Verdict>,
{
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering {
        let function = std::sync::Arc::clone(&self.0);
        Box::pin(async move {
            match read::<K>(&payload) {
                Ok(payload) => function(payload, delivery).into(),
                Err(verdict) => verdict,
            }
        })
    }

    fn place(&self) -> Place {
        Place::Workers
    }
}

/// Wraps a blocking function that makes the decisions of schedules. The function gets no payload.
pub(crate) struct Deciding<F>(pub(crate) std::sync::Arc<F>);

impl<F: Fn(Delivery) -> Verdict + Send + Sync + 'static> Handler for Deciding<F> {
    fn handle(&self, _payload: Box<[u8]>, delivery: Delivery) -> Answering {
        let function = std::sync::Arc::clone(&self.0);
        Box::pin(async move { function(delivery) })
    }

    fn place(&self) -> Place {
        Place::Decisions
    }
}

/// Wraps an asynchronous function as a handler. The function gets the payload's bytes.
pub(crate) struct Bytes<F>(pub(crate) F);

impl<F, R> Handler for Bytes<F>
where
    F: Fn(Box<[u8]>, Delivery) -> R + Send + Sync + 'static,
    R: Future<Output: Into<Verdict>> + Send + 'static,
{
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering {
        let answer = (self.0)(payload, delivery);
        Box::pin(async move { answer.await.into() })
    }

    fn place(&self) -> Place {
        Place::Executor
    }
}

/// Parses the payload as JSON. A payload that cannot be parsed makes the timer dead, because another attempt would read
/// the same bytes.
fn read<K: Kind>(payload: &[u8]) -> Result<K, Verdict> {
    serde_json::from_slice(payload)
        .map_err(|error| Verdict::Dead(format!("the payload is not a {}: {error}", K::NAME).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_an_unknown_kind_is_never_too_long() {
        assert_eq!(*Verdict::reason_for_unknown("mail"), *"no handler: mail");
        for kind in ["k".repeat(243), "k".repeat(244), "k".repeat(10_000), "ü".repeat(200)] {
            let reason = Verdict::reason_for_unknown(&kind);
            assert!((254..=Verdict::LONGEST_REASON).contains(&reason.len()), "{}", reason.len());
            assert!(Verdict::is_for_no_handler(&reason), "{reason}");
        }
    }
}
