//! Handlers: the functions that timers are delivered to, and the words with which they answer.

use crate::delivery::Delivery;
use crate::spec::Kind;
use crate::utc::UtcMillis;
use core::fmt::Display;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::time::Duration;

/// A handler's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The work is done. The timer ends, or the next occurrence of its series follows.
    Done,
    /// The work failed. The timer is delivered again, after this pause or after the policy's, until the policy gives up.
    Retry {
        /// The error, which is stored with the timer.
        error: Box<str>,
        /// The pause in place of the policy's.
        after: Option<Duration>,
    },
    /// The work can never succeed. The timer is dead at once.
    Dead(Box<str>),
    /// The work is not wanted before another moment, and this is no failure.
    Snooze(UtcMillis),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// An error is a reason to try again.
impl<T: Into<Verdict>, E: Display> From<Result<T, E>> for Verdict {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(done) => done.into(),
            Err(error) => Self::Retry { error: error.to_string().into(), after: None },
        }
    }
}

/// The future of a handler's answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// A handler of any kind.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Begins to handle a delivery. The payload is read within the future.
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering;

    /// Whether the handler blocks the thread on which it is polled.
    fn blocks(&self) -> bool;
}

/// A handler that is an asynchronous function.
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

    fn blocks(&self) -> bool {
        false
    }
}

/// A handler that is a plain function.
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

    fn blocks(&self) -> bool {
        true
    }
}

/// A handler of bytes.
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

    fn blocks(&self) -> bool {
        false
    }
}

/// The payload, or a refusal: bytes that cannot be read today cannot be read tomorrow.
fn read<K: Kind>(payload: &[u8]) -> Result<K, Verdict> {
    serde_json::from_slice(payload)
        .map_err(|error| Verdict::Dead(format!("the payload is no {}: {error}", K::NAME).into()))
}
