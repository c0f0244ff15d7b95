//! The event of a due timer, and the callback that gets it.

use crate::annotate;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::time::Duration;
use tourbillon::Timestamp;
use tourbillon_tasks::Moment;

/// The function that is called when a timer is due. It gets the timer's `user`, and an event that is valid until the
/// function returns.
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
    /// For a periodic task, how many instants of the task this event counts. The first of these instants is
    /// `deadline_ns`. The count is more than 1 if instants were missed, or were not polled in time. For everything
    /// else, the count is 1.
    pub count: u64,
    /// The key of a one-shot that was scheduled by key; otherwise NULL. The key that a callback gets is valid until the
    /// callback returns. The key of a polled event is valid until the same thread calls `tb_poll` again, for any
    /// engine.
    pub key: *const c_char,
    /// All 0. Later versions may give the words a meaning; 0 will then mean "not given".
    pub reserved: [u64; 5],
}

/// A callback of the program, and the `user` pointer that the callback gets.
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

    /// Makes the event of a one-shot that is due. `moment` has the one-shot's deadline and lateness. The event has the
    /// id 0, which the caller replaces if the one-shot has an id for C programs.
    pub(crate) fn event_of(self, moment: &Moment<'_>) -> tb_event {
        self.event(0, moment.deadline, moment.lateness(), 1)
    }

    pub(crate) fn call(self, event: &tb_event) {
        if let Some(callback) = self.callback {
            annotate::arrived(self.user);
            let depth = CALLBACKS.get();
            CALLBACKS.set(depth + 1);
            // SAFETY: the contract: the pointer is a callback, and the event lives as long as the call.
            unsafe { callback(self.user, event) };
            CALLBACKS.set(depth);
            annotate::callback_returned();
        }
    }
}

thread_local! {
    /// How many callbacks run on this thread at the moment. There can be more than one, because a callback may call a
    /// function of the library that runs another callback. The callbacks may belong to different engines.
    static CALLBACKS: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether a callback, of any engine, is running on this thread.
pub(crate) fn is_in_callback() -> bool {
    CALLBACKS.get() > 0
}

impl tb_event {
    pub(crate) fn with_key(self, key: &CStr) -> Self {
        Self { key: key.as_ptr(), ..self }
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
