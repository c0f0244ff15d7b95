//! Decides whether a due timer calls its callback or becomes an event.

use crate::event::{Target, tb_callback, tb_event};
use crate::events::Events;
use crate::outcome::tb_outcome;
use crate::status::Failure;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use tourbillon::TimerId;
use tourbillon_tasks::Moment;

/// Says how an engine delivers due timers.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// The engine calls the callback of a due timer, on the thread that fires the timer.
    Call,
    /// The engine makes an event of each due timer. The timer's shard pushes a job (a batch of due timers) into this
    /// queue. When the program polls, the poll runs the job, which writes the timers' events into the program's array.
    Poll(Arc<Events>),
}

impl Delivery {
    /// Makes the target of a timer: the callback and its `user`. Fails if the engine calls callbacks and the callback
    /// is null.
    pub(crate) fn target(&self, callback: tb_callback, user: *mut c_void) -> Result<Target, Failure> {
        match self {
            Self::Call if callback.is_none() => Err(Failure::null("callback")),
            _ => Ok(Target { callback, user }),
        }
    }

    pub(crate) fn events(&self) -> Option<&Arc<Events>> {
        match self {
            Self::Call => None,
            Self::Poll(events) => Some(events),
        }
    }

    pub(crate) fn means(&self) -> Means {
        match self {
            Self::Call => Means::Call,
            Self::Poll(_) => Means::Poll,
        }
    }
}

/// The kind of a [`Delivery`]. It does not hold the queue that [`Delivery::Poll`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Call,
    Poll,
}

impl Means {
    /// Returns whether the engine calls callbacks. If it does not, its events are polled, and no call waits for a
    /// callback.
    pub(crate) fn has_callbacks(self) -> bool {
        self == Self::Call
    }

    /// Converts the outcome of a cancel, a disarm or a stop for C. On an engine whose events are polled, `TB_RUNNING`
    /// becomes `TB_GONE`. On such an engine, a running handler is writing its event into the array of a thread that
    /// polls, so the event counts as polled. A wait for the handler would be of no use, because the caller does not see
    /// that array.
    pub(crate) fn outcome(self, outcome: impl Into<tb_outcome>) -> tb_outcome {
        match (self, outcome.into()) {
            (Self::Poll, tb_outcome::TB_RUNNING) => tb_outcome::TB_GONE,
            (_, outcome) => outcome,
        }
    }
}

thread_local! {
    /// The target (the callback and its `user`) of a one-shot that had not fired when the engine was shut down. The
    /// closure of the one-shot owns the target. The function [`returned`] calls the closure, the closure stores the
    /// target here, and `returned` takes it.
    static RETURNED: Cell<Option<Target>> = const { Cell::new(None) };
}

/// Makes the closure of a one-shot. When the one-shot is due, the closure calls the callback of `target`. If the engine
/// is shut down before, the closure is called with `None`, and stores `target` in [`RETURNED`].
pub(crate) fn one_shot(target: Target) -> impl FnOnce(Option<&Moment<'_>>) + Send + use<> + 'static {
    move |moment| match moment {
        None => RETURNED.set(Some(target)),
        Some(moment) => target.call(&tb_event { id: id_of(moment.id()), ..target.event_of(moment) }),
    }
}

/// Returns the target (the callback and its `user`) of a one-shot that had not fired when the engine was shut down. The
/// function `call` calls the one-shot's closure. If [`one_shot`] has made this closure, it gives its target back. For
/// any other closure, such as that of a one-shot with a key, the result is `None`.
pub(crate) fn returned(call: impl FnOnce()) -> Option<Target> {
    RETURNED.set(None);
    call();
    RETURNED.take()
}

/// Converts a timer's id into the id for C programs. The id for C is never 0.
pub(crate) fn id_of(timer: TimerId) -> u64 {
    // This cannot overflow, since no slot has the last index.
    timer.to_bits() + 1
}

/// Converts an id from C into the timer's id. Returns `None` for 0, the id of no timer.
pub(crate) fn timer_of(id: u64) -> Option<TimerId> {
    Some(TimerId::from_bits(id.checked_sub(1)?))
}
