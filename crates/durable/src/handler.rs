//! Defines handlers, to which timers are delivered, and verdicts, which are the handlers' answers. A timer's kind is
//! the name that selects its handler.

use crate::delivery::Delivery;
use crate::phase::PAUSED;
use crate::spec::Kind;
use crate::texts::has_zero_byte;
use core::fmt::Display;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The answer of a handler. The verdict decides whether the timer ends, is delivered again, or waits.
///
/// ```
/// use tourbillon_durable::Verdict;
///
/// fn print(pages: u32) -> Result<(), String> {
///     if pages < 100 { Ok(()) } else { Err("no paper".into()) }
/// }
///
/// assert!(matches!(print(1).into(), Verdict::Done));
/// let verdict: Verdict = print(100).into();
/// assert!(matches!(verdict, Verdict::Retry { error, after: None } if *error == *"no paper"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The work is done. The timer ends, or the next occurrence of its series follows.
    Done,
    /// The work failed. The timer is delivered again after a pause. When the policy permits no further attempt, the
    /// timer is dead: it stays stored, but is not delivered again.
    Retry {
        /// The text of the error, which is stored with the timer. The store replaces the text's zero bytes.
        error: Box<str>,
        /// The pause until the next attempt. `None` means the policy's pause.
        after: Option<Duration>,
    },
    /// The work can never succeed. The timer is dead at once: it stays stored, but is not delivered again. The store
    /// keeps this text as the timer's error.
    Dead(Box<str>),
    /// The work must be done later, not before this moment. The timer stays stored under the same id, and becomes due
    /// at this moment. The delivery does not count as a failure, and does not count towards the limit
    /// [`deliveries`](crate::policy::Policy::deliveries). If the moment is later than the timer's
    /// [`max_age`](crate::policy::Policy::max_age) permits, the timer is dead instead.
    ///
    /// A timer that is delivered at most once is no longer stored when its handler is called, so the snooze has no
    /// effect, and the timer has ended. A handler that may have to snooze such timers begins its deliveries itself
    /// ([`Builder::begins_itself`](crate::Builder::begins_itself)). Before the beginning, the snooze has its usual
    /// effect.
    Snooze(UtcMillis),
    /// The work cannot be done now, and it is unknown when it can be done. For example, a namespace is paused, or a
    /// receiver asks for a pause. The timer is *parked* for this reason: it stays stored, but is not delivered, even if
    /// it is due. A call of [`Timers::unpark`](crate::Timers::unpark) with the same reason makes the timer pending
    /// again. The delivery does not count as an attempt, and does not count towards the limit
    /// [`deliveries`](crate::policy::Policy::deliveries). A handler must return this verdict only if it has done
    /// nothing. A timer that is delivered at most once is parked only before its delivery begins, as for
    /// [`Snooze`](Self::Snooze).
    ///
    /// A reason has at most [`LONGEST_REASON`](Self::LONGEST_REASON) bytes, and none of them is zero. Two kinds of
    /// reasons are reserved for the runtime: [`PAUSED`](crate::store::PAUSED), and reasons that begin with
    /// [`NO_HANDLER`](Self::NO_HANDLER). If a handler parks for another reason than these rules permit, the delivery
    /// counts as a failure, and the error says why.
    ///
    /// A parked timer keeps its due moment, and can be cancelled, moved and replaced.
    /// [`Timers::fire`](crate::Timers::fire) makes a single parked timer pending and due now. If an occurrence of a
    /// series is parked, the next occurrence comes only after the parked occurrence has ended.
    ///
    /// The time in which a timer is parked counts as lateness. So a timer with
    /// [`Misfire::Within`](crate::policy::Misfire) ends without a delivery if it is unparked too late for this rule and
    /// has not failed before. If a delivery fails after the unparking, the timer is dead if the next attempt would come
    /// later than [`max_age`](crate::policy::Policy::max_age) permits. A timer that is unparked more than 5 s after its
    /// due moment is delivered at the [`catch_up_rate`](crate::Builder::catch_up_rate).
    ///
    /// # Races
    ///
    /// The store gets the parked timer some time after the handler has returned this verdict. If the program unparks
    /// the reason during this time, the call does not find the timer. The timer is then parked for a reason that may no
    /// longer hold. So the program needs an observer ([`Builder::observe`](crate::Builder::observe)). When the store
    /// has parked a timer, the observer gets an [`Event::Ended`](crate::Event::Ended) with the phase parked. The
    /// program then checks whether the reason still holds, and unparks the timers if it does not. A process that dies
    /// loses such events. So a program must, at its start, unpark the timers of all reasons that no longer hold.
    Park(Box<str>),
}

impl Verdict {
    /// The greatest length of the reason in [`Park`](Self::Park), in bytes.
    pub const LONGEST_REASON: usize = 255;
    /// The prefix of the reason for which the runtime itself parks a timer, if it has no handler for the timer's kind.
    /// The reason consists of this prefix and the name of the kind. See [`Park`](Self::Park) for parked timers.
    pub const NO_HANDLER: &str = "no handler: ";

    /// Returns the reason for which the runtime parks a timer (stores it without delivering it) if the timer has this
    /// kind, and the runtime has no handler for the kind. If a store has a timer with a long kind, for example by an
    /// import, the reason has only the start of the kind. Kinds with the same start then share a reason.
    pub(crate) fn reason_for_unknown(kind: &str) -> Box<str> {
        let most = Self::LONGEST_REASON - Self::NO_HANDLER.len();
        let end = (0..=most).rev().find(|end| kind.is_char_boundary(*end)).unwrap_or(0);
        format!("{}{}", Self::NO_HANDLER, &kind[..end]).into()
    }

    /// Returns whether a timer that is parked for this reason was parked because the runtime has no handler for its
    /// kind.
    pub(crate) fn is_for_no_handler(reason: &str) -> bool {
        reason.starts_with(Self::NO_HANDLER)
    }

    /// Returns the verdict, if a handler may return it. A handler must not park a timer for a reason that is too long
    /// or has a zero byte, or for a reason that only the runtime uses. Instead of such a verdict, returns
    /// [`Retry`](Self::Retry) with an error that says so.
    pub(crate) fn admitted(self) -> Self {
        let error = match &self {
            Self::Park(reason) if reason.len() > Self::LONGEST_REASON => {
                format!(
                    "the reason to park has {} bytes, the most are {}",
                    reason.len(),
                    Self::LONGEST_REASON
                )
            }
            Self::Park(reason) if has_zero_byte(reason) => "the reason to park has a zero byte".to_owned(),
            Self::Park(reason) if **reason == *PAUSED || Self::is_for_no_handler(reason) => {
                format!("the reason to park is the runtime's: {reason}")
            }
            _ => return self,
        };
        Self::Retry { error: error.into(), after: None }
    }
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Converts the result of a handler into a verdict. An error becomes [`Verdict::Retry`], so the timer is delivered
/// again.
impl<T: Into<Verdict>, E: Display> From<Result<T, E>> for Verdict {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(done) => done.into(),
            Err(error) => Self::Retry { error: error.to_string().into(), after: None },
        }
    }
}

/// The future that returns a handler's verdict.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// The common interface of asynchronous handlers, blocking handlers, and handlers of bytes.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Begins to handle a delivery. The payload is parsed during this call, or later by the returned future.
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering;

    /// Returns where the handler runs.
    fn place(&self) -> Place;
}

/// The threads on which a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The program's executor, or the workers if there is no executor.
    Executor,
    /// The workers, since the handler blocks its thread.
    Workers,
    /// The threads on which schedules decide.
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

/// Wraps the blocking handler by which schedules decide.
pub(crate) struct Deciding<H>(pub(crate) H);

impl<H: Handler> Handler for Deciding<H> {
    fn handle(&self, payload: Box<[u8]>, delivery: Delivery) -> Answering {
        self.0.handle(payload, delivery)
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
