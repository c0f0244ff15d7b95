//! The delivery of a due timer: a callback, or an event to be polled.

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

/// The function that is called when a timer is due, with the timer's `user` and an event that lives as long as the
/// call.
pub type tb_callback = Option<unsafe extern "C" fn(user: *mut c_void, event: *const tb_event)>;

/// A timer that is due. Events lie in the caller's arrays, so this struct keeps its size: fields of later versions take
/// the place of reserved words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tb_event {
    /// The callback that was given with the timer. The library does not call it for polled events; the polling thread
    /// may.
    pub callback: tb_callback,
    /// The `user` that was given with the timer.
    pub user: *mut c_void,
    /// For a one-shot, the id from `tb_schedule`. 0 for a timer or task with a handle, and for a one-shot with a key.
    pub id: u64,
    /// The deadline, on the engine's clock.
    pub deadline_ns: u64,
    /// The time from the deadline to the start of the callback, or to the poll.
    pub lateness_ns: u64,
    /// The number of instants of a periodic task that this event stands for: more than 1 if instants were missed, or
    /// were not polled in time. 1 for everything else.
    pub count: u64,
    /// The key of a one-shot that was scheduled by key; otherwise NULL. In a callback the key lives as long as the
    /// call. In a polled event it lives until the thread that polled it calls `tb_poll` again, for any engine.
    pub key: *const c_char,
    /// All 0. Later versions may give the words a meaning, in which 0 means "not given".
    pub reserved: [u64; 5],
}

/// A callback and its `user`.
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
            // SAFETY: the contract: the pointer is a callback, and the event lives as long as the call.
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
