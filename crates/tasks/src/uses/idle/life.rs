//! The state of a connection: a word beside its timer, which a touch looks at.
//!
//! # States
//! ```text
//! joining ──join──► live ──expire──► expiring
//!    └────────────────┴──────end───────┴─────► ended
//! ```
//! *joining*: the connection is in the map, and its timer is not armed yet. *live*: it may be touched and removed.
//! *expiring*: it is in the map still, and its owner has learnt that its expiry has begun; no removal wins any more.
//! *ended*: it is out of the map.
//!
//! The lock of the map decides which thread takes a connection out; that thread ends it. Every step but the touch of
//! the owner happens under that lock, or says nothing about the steps of another thread.
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

    /// Lets the connection be touched, unless it has ended before.
    pub(crate) fn join(&self) {
        // Ordering: Relaxed. A thread that passes the handle on orders everything that depends on this.
        let _ = self.0.compare_exchange(JOINING, LIVE, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        // Ordering: Relaxed. The answer may miss a change that races with the load.
        self.0.load(Ordering::Relaxed) == LIVE
    }

    /// Whether the connection is live at an arming of its timer that the caller has just made.
    #[inline]
    pub(crate) fn is_live_after_arming(&self) -> bool {
        // Ordering: Acquire fence [L1]. Pairs with `end` through the timer's state, which the arming read.
        fence(Ordering::Acquire);
        self.is_live()
    }

    /// Whether a touch by the owner came in time, given the outcome of its arming of the timer. If the touch came too
    /// late, `disarm` takes the arming away again.
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

    /// Leaves the connection to its expiry, which has begun and goes on.
    pub(crate) fn expire(&self) {
        // Ordering: Relaxed. The caller's own removal comes after this; the removals of other threads are decided by
        // the map's lock.
        let _ = self.0.compare_exchange(LIVE, EXPIRING, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn may_be_removed(&self) -> bool {
        // Ordering: Relaxed. As in `expire`.
        self.0.load(Ordering::Relaxed) != EXPIRING
    }

    /// Ends the connection if `take` takes it out of the map; returns the result of `take`.
    pub(crate) fn take_out<R>(&self, take: impl FnOnce() -> Option<R>) -> Option<R> {
        let taken = take()?;
        self.end();
        Some(taken)
    }

    /// Marks the connection as ended: it is out of the map.
    pub(crate) fn end(&self) {
        // Ordering: Relaxed [L1]. The end of the timer's run, a release, publishes it.
        self.0.store(ENDED, Ordering::Relaxed);
    }
}
