//! What becomes of a timer that is due: a call, or an event to be polled.

use crate::events::{Entry, Events};
use crate::status::Failure;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;
use tourbillon::task::Moment;
use tourbillon::{TimerId, Timestamp};

/// What is called when a timer is due: with the `user` that it was given, and an event that lives as long as the call.
pub type tb_callback = Option<unsafe extern "C" fn(user: *mut c_void, event: *const tb_event)>;

/// A timer that is due.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tb_event {
    /// What was given with it. Polled events are not called by the library; whoever polls may.
    pub callback: tb_callback,
    /// What was given with it.
    pub user: *mut c_void,
    /// Of a one-shot, the id that `tb_schedule` gave. 0 of what has a handle or a key.
    pub id: u64,
    /// The moment that it was for, on the engine's clock.
    pub deadline_ns: u64,
    /// How long after that the callback began, or the event was polled.
    pub lateness_ns: u64,
    /// The instants of a periodic task that it stands for: more than 1 when some were missed, or not polled in time. Of
    /// everything else 1.
    pub count: u64,
}

/// A callback and what it gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) callback: tb_callback,
    pub(crate) user: *mut c_void,
}

// SAFETY: the contract: both may be used on any thread.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    pub(crate) fn event(self, id: u64, deadline: Timestamp, lateness: Duration, count: u64) -> tb_event {
        let Self { callback, user } = self;
        let lateness_ns = nanos(lateness);
        tb_event { callback, user, id, deadline_ns: deadline.as_nanos(), lateness_ns, count }
    }

    pub(crate) fn call(self, event: &tb_event) {
        if let Some(callback) = self.callback {
            // SAFETY: the contract: it is a callback, and the event lives as long as the call.
            unsafe { callback(self.user, event) };
        }
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// An engine's way with what is due.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// The callback, on the thread where the engine is.
    Call,
    /// An entry of this queue.
    Queue(Arc<Events>),
}

impl Delivery {
    /// A target, if it is one for this engine.
    pub(crate) fn target(&self, callback: tb_callback, user: *mut c_void) -> Result<Target, Failure> {
        match self {
            Self::Call if callback.is_none() => Err(Failure::null("callback")),
            _ => Ok(Target { callback, user }),
        }
    }

    pub(crate) fn events(&self) -> Option<&Arc<Events>> {
        match self {
            Self::Call => None,
            Self::Queue(events) => Some(events),
        }
    }

    pub(crate) fn deliver(&self, target: Target, event: tb_event) {
        match self {
            Self::Call => target.call(&event),
            Self::Queue(events) => events.push(Entry::Event(event)),
        }
    }
}

thread_local! {
    /// The target of the one-shot that this thread has just got back.
    static RETURNED: Cell<Option<Target>> = const { Cell::new(None) };
}

/// The closure of a one-shot.
pub(crate) fn one_shot(delivery: Delivery, target: Target) -> impl FnOnce(Option<&Moment>) + Send + 'static {
    move |moment| match moment {
        Some(moment) => {
            let event = target.event(id_of(moment.id), moment.deadline, moment.lateness, 1);
            delivery.deliver(target, event);
        }
        None => RETURNED.set(Some(target)),
    }
}

/// The target of a one-shot that came back; none of another closure.
pub(crate) fn returned(call: impl FnOnce()) -> Option<Target> {
    RETURNED.set(None);
    call();
    RETURNED.take()
}

/// An id as C has it: never 0.
pub(crate) fn id_of(timer: TimerId) -> u64 {
    // No slot has the last index, so this does not wrap.
    timer.to_bits() + 1
}

/// The timer of an id; `None` of 0.
pub(crate) fn timer_of(id: u64) -> Option<TimerId> {
    Some(TimerId::from_bits(id.checked_sub(1)?))
}
