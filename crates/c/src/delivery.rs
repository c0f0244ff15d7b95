//! The delivery of a due timer: a callback, or an event to be polled.

use crate::event::{Target, tb_callback, tb_event};
use crate::events::Events;
use crate::outcome::tb_outcome;
use crate::status::Failure;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use tourbillon::TimerId;
use tourbillon_tasks::Moment;

/// How an engine delivers due timers.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// Calls the callback on the thread that fires.
    Call,
    /// Puts an event into the array of a poll, which runs the engine's jobs from this queue.
    Poll(Arc<Events>),
}

impl Delivery {
    /// The target of a timer. Fails if the engine calls back and the callback is null.
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

/// The kind of a [`Delivery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Call,
    Poll,
}

impl Means {
    /// Whether a call that waits for callbacks may find one.
    pub(crate) fn has_callbacks(self) -> bool {
        self == Self::Call
    }

    /// The outcome of a cancel, a disarm or a stop. On an engine that is polled, a handler that runs puts its event
    /// into the array of another thread, so the event was polled. A call that waited for the handler would not know of
    /// the event.
    pub(crate) fn outcome(self, outcome: impl Into<tb_outcome>) -> tb_outcome {
        match (self, outcome.into()) {
            (Self::Poll, tb_outcome::TB_RUNNING) => tb_outcome::TB_GONE,
            (_, outcome) => outcome,
        }
    }
}

thread_local! {
    /// The target of the one-shot that was just returned to this thread.
    static RETURNED: Cell<Option<Target>> = const { Cell::new(None) };
}

/// The closure of a one-shot whose callback is called on a thread of the engine.
pub(crate) fn one_shot(target: Target) -> impl FnOnce(Option<&Moment<'_>>) + Send + use<> + 'static {
    move |moment| match moment {
        None => RETURNED.set(Some(target)),
        Some(moment) => target.call(&tb_event { id: id_of(moment.id()), ..target.event_of(moment) }),
    }
}

/// The target of a one-shot whose closure a shutdown returned; `None` for any other closure.
pub(crate) fn returned(call: impl FnOnce()) -> Option<Target> {
    RETURNED.set(None);
    call();
    RETURNED.take()
}

/// The id that C gets for a timer: never 0.
pub(crate) fn id_of(timer: TimerId) -> u64 {
    // No slot has the last index, so this does not wrap.
    timer.to_bits() + 1
}

/// The timer of an id from C; `None` for 0.
pub(crate) fn timer_of(id: u64) -> Option<TimerId> {
    Some(TimerId::from_bits(id.checked_sub(1)?))
}
