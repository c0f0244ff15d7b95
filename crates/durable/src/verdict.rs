//! Defines verdicts, which are the answers of handlers.

use crate::phase::PAUSED;
use crate::texts::has_zero_byte;
use core::fmt::Display;
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
    /// ([`Builder::begins_itself`](crate::Builder::begins_itself)). Before the delivery begins, the snooze has its
    /// usual effect.
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
