//! The state of a connection: an atomic word beside its timer, which a touch checks.
//!
//! # States
//! ```text
//! joining ──join──► live ──expire──► expiring
//!    └────────────────┴──────end───────┴─────► ended
//! ```
//! *joining*: the connection is in the map, and its timer is not armed yet. *live*: the owner of the handle can record
//! activity (a *touch*), and can remove the connection. *expiring*: the connection is still in the map, but the owner
//! of its handle has seen that the expiry has begun. So no removal may succeed any more. *ended*: the connection is out
//! of the map.
//!
//! The map's lock decides which thread takes a connection out, and that thread sets the state to *ended*. Most other
//! steps also happen under that lock, or do not depend on the steps of another thread. The exception is the owner's
//! touch: see the table.
//!
//! # Synchronisation
//! | pair | one side | other side | ruled out         | model |
//! |------|----------|------------|-------------------|-------|
//! | L1 | `end`, then the end of the timer's run | an arming of the timer, then `is_touched` | a touch that arms after the expiry and returns true | `idle::a_touch_races_with_the_expiry` |

use crate::sync::{AtomicU32, Ordering, fence};
use tourbillon::{ArmError, Armed};

const JOINING: u32 = 0;
const LIVE: u32 = 1;
const EXPIRING: u32 = 2;
const ENDED: u32 = 3;

pub(crate) struct Life(AtomicU32);

impl Life {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(JOINING))
    }

    /// Marks a connection as live, unless the connection has ended before. The caller has put the connection into the
    /// map of all connections, and has armed its timer.
    pub(crate) fn join(&self) {
        // Ordering: Relaxed. If the handle goes to another thread, that transfer orders everything that depends on the
        // new state.
        let _ = self.0.compare_exchange(JOINING, LIVE, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        // Ordering: Relaxed. The answer may miss a change that races with the load.
        self.0.load(Ordering::Relaxed) == LIVE
    }

    /// Returns whether the connection is live. A touch (a record of activity) comes in time only if the connection is
    /// live. The caller must have armed the connection's timer just before.
    #[inline]
    pub(crate) fn is_live_after_arming(&self) -> bool {
        // Ordering: Acquire fence [L1]. Pairs with `end` through the timer's state, which the arming read.
        fence(Ordering::Acquire);
        self.is_live()
    }

    /// Returns whether a touch (a record of activity) by the owner of the connection's handle came in time. `armed` is
    /// the outcome of arming the connection's timer for the new deadline. The touch came too late if the arming failed,
    /// if the timer is firing already, or if the connection is not live any more. In these cases, calls `disarm` to
    /// undo the arming.
    #[inline]
    pub(crate) fn is_touched(&self, armed: Result<Armed, ArmError>, disarm: impl FnOnce()) -> bool {
        if armed == Ok(Armed::Pending) && self.is_live_after_arming() {
            return true;
        }
        self.touched_too_late(armed, disarm)
    }

    #[cold]
    fn touched_too_late(&self, armed: Result<Armed, ArmError>, disarm: impl FnOnce()) -> bool {
        if armed == Ok(Armed::Running) {
            self.expire();
        }
        disarm();
        false
    }

    /// Marks a live connection as expiring: its expiry has begun and cannot be stopped.
    pub(crate) fn expire(&self) {
        // Ordering: Relaxed. A later removal by this thread sees the state. Between removals by other threads, the
        // map's lock decides.
        let _ = self.0.compare_exchange(LIVE, EXPIRING, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn may_be_removed(&self) -> bool {
        // Ordering: Relaxed, for the same reason as in `expire`.
        self.0.load(Ordering::Relaxed) != EXPIRING
    }

    /// Calls `take`, which takes the connection out of the map. If `take` returns a value, marks the connection as
    /// ended. Returns the result of `take`.
    pub(crate) fn take_out<R>(&self, take: impl FnOnce() -> Option<R>) -> Option<R> {
        let taken = take()?;
        self.end();
        Some(taken)
    }

    /// Marks the connection as ended. The caller has taken the connection out of the map of all connections.
    pub(crate) fn end(&self) {
        // Ordering: Relaxed [L1]. The release at the end of the timer's run publishes it.
        self.0.store(ENDED, Ordering::Relaxed);
    }
}
