//! The delivery of a due timer: a callback, or an event to be polled.

use crate::event::{Target, tb_callback, tb_event};
use crate::events::{Entry, Events};
use crate::status::Failure;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use tourbillon::TimerId;
use tourbillon_tasks::Moment;

/// How an engine delivers due timers.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// Calls the callback on the thread of the engine that fires.
    Call,
    /// Pushes an entry into this queue.
    Queue(Arc<Events>),
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
            Self::Queue(events) => Some(events),
        }
    }
}

/// A queue that outlives the holder of this value. It takes no reference count: each one-shot would write to the count,
/// from all threads.
#[derive(Clone, Copy)]
struct Lent(NonNull<Events>);

// SAFETY: a `Lent` is a shared reference, and `Events` is `Sync`.
unsafe impl Send for Lent {}

impl Lent {
    /// # Safety
    ///
    /// The engine of this queue has not been freed.
    unsafe fn push(self, entry: Entry) {
        // SAFETY: the engine owns the queue, and was not freed.
        unsafe { self.0.as_ref() }.push(entry);
    }
}

thread_local! {
    /// The target of the one-shot that was just returned to this thread.
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
            // SAFETY: `tb_engine_free` shuts the engine down first, and the shutdown waits for timers that are being
            // fired. On an engine that is polled no code of the program runs within that firing, so no call that frees
            // the engine comes from there.
            unsafe { queue.push(entry) };
        }
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
