//! What becomes of a timer that is due: a call, or an event to be polled.

use crate::annotate;
use crate::events::{Entry, Events};
use crate::status::Failure;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{TimerId, Timestamp};
use tourbillon_tasks::Moment;

/// What is called when a timer is due: with the `user` that it was given, and an event that lives as long as the call.
pub type tb_callback = Option<unsafe extern "C" fn(user: *mut c_void, event: *const tb_event)>;

/// A timer that is due. Events lie in the caller's arrays, so this struct keeps its size: what later versions add takes the
/// place of reserved words.
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
    /// The key of a one-shot that was scheduled by one; otherwise NULL. It lives as long as the call that shows the event. In a
    /// polled event it lives until the thread that polled it calls `tb_poll` again, for whichever engine.
    pub key: *const c_char,
    /// 0. Later versions may give a meaning to them, in which 0 says nothing.
    pub reserved: [u64; 5],
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
        let (deadline_ns, lateness_ns) = (deadline.as_nanos(), nanos(lateness));
        tb_event { callback, user, id, deadline_ns, lateness_ns, count, key: ptr::null(), reserved: [0; 5] }
    }

    /// The event of a one-shot without an id.
    pub(crate) fn event_of(self, moment: &Moment) -> tb_event {
        self.event(0, moment.deadline, moment.lateness, 1)
    }

    pub(crate) fn call(self, event: &tb_event) {
        if let Some(callback) = self.callback {
            annotate::arrived(self.user);
            // SAFETY: the contract: it is a callback, and the event lives as long as the call.
            unsafe { callback(self.user, event) };
            annotate::callback_returned();
        }
    }
}

impl tb_event {
    pub(crate) fn with_key(self, key: &CStr) -> Self {
        Self { key: key.as_ptr(), ..self }
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
}

/// A queue that outlives whoever has this, without a count of references: each one-shot would write to it, from all threads.
#[derive(Clone, Copy)]
struct Lent(NonNull<Events>);

// SAFETY: it is a reference to what is `Sync`.
unsafe impl Send for Lent {}

impl Lent {
    /// # Safety
    ///
    /// The engine of this queue has not been freed.
    unsafe fn push(self, entry: Entry) {
        // SAFETY: the engine has the queue.
        unsafe { self.0.as_ref() }.push(entry);
    }
}

thread_local! {
    /// The target of the one-shot that this thread has just got back.
    static RETURNED: Cell<Option<Target>> = const { Cell::new(None) };
}

/// The closure of a one-shot.
pub(crate) fn one_shot(
    delivery: &Delivery,
    target: Target,
) -> impl FnOnce(Option<&Moment>) + Send + use<> + 'static {
    let queue = delivery.events().map(|events| Lent(NonNull::from(&**events)));
    move |moment| match (moment, queue) {
        (None, _) => RETURNED.set(Some(target)),
        (Some(moment), None) => target.call(&tb_event { id: id_of(moment.id), ..target.event_of(moment) }),
        (Some(&Moment { id, deadline, .. }), Some(queue)) => {
            let entry = Entry::Shot { target, id: id_of(id), deadline };
            // SAFETY: freeing an engine shuts it down first, and that waits for what it fires: on an engine that is polled
            // nothing of C's runs in there, so the call that frees is not made from within.
            unsafe { queue.push(entry) };
        }
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
