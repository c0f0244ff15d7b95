//! The cell in which a waiting task leaves its waker for the timer.
//!
//! At any time at most one task registers a waker and one firing takes it, and they meet only in this cell. No user
//! code runs while the cell is locked: wakers are cloned before and dropped afterwards.
//!
//! The cell follows the `AtomicWaker` of futures (A. Crichton, C. Lerche), which cannot use a model's atomics.
//!
//! # Layout
//! ```text
//! state   0 at rest | 1 registering | 2 waking | 3 both
//! fired   the deadline for which it fired last, NONE when that was forgotten
//! ```
//!
//! # Invariants
//! A1. Only the thread that has moved the state from rest to registering, or from rest to waking, accesses the waker.
//! A2. After a registration, the task looks at `fired`. A firing after that look wakes the registered waker, or a waker
//!     that was registered later.
//!
//! # Races and their legal endings
//! - register x fire: (a) the firing finds the waker and wakes it; (b) the firing finds the state registering and
//!   leaves, and the registration wakes its own task; (c) the firing came first, and the look at `fired` after the
//!   registration sees it.
//! - register x shutdown: as with a firing. The shutdown shuts the timer before it wakes the task, so the woken task
//!   finds that its timer was shut.
//! - fire x shutdown, reset x shutdown: one of the two takes the waker.
//! - register x register by another task: the `&mut` reference to the future orders them, and the last task is woken.
//!
//! # Synchronisation
//! | pair | release side | acquire side | handed over         | model |
//! |------|--------------|--------------|---------------------|-------|
//! | V1   | `with_slot`, `fire`, back to rest | the same, from rest | the waker | `waker::poll_races_with_fire` |
//! | V2   | `fire`, to waking | `with_slot` | the deadline that fired | `waker::poll_races_with_fire` |

use crate::base::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::base::tick::Timestamp;
use core::fmt;
use core::task::Waker;

const AT_REST: u32 = 0;
const REGISTERING: u32 = 1;
const WAKING: u32 = 2;

/// The value of `WakerCell::fired` that means "no firing". The value is the end of time, and no timer fires for that
/// moment.
const NONE: u64 = u64::MAX;

/// The cell through which the firing of a timer wakes the task that waits for the timer.
pub(crate) struct WakerCell {
    state: AtomicU32,
    fired: AtomicU64,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: A1: one thread at a time touches the waker, which may be sent.
unsafe impl Sync for WakerCell {}

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(AT_REST), fired: AtomicU64::new(NONE), waker: UnsafeCell::new(None) }
    }

    /// Returns whether the last firing was for `deadline`. A firing for another deadline does not count: the sleep may
    /// have been reset after it, or the clock may have stepped back.
    #[inline]
    pub(crate) fn has_fired_for(&self, deadline: Timestamp) -> bool {
        // Ordering: Acquire, for the changes made before the clock was stepped or the timer armed.
        self.fired.load(Ordering::Acquire) == deadline.as_nanos() && deadline != Timestamp::MAX
    }

    /// Forgets the last firing, because the deadline is set again, perhaps to the same moment. A firing that is under
    /// way may still be stored afterwards.
    #[inline]
    pub(crate) fn forget(&self) {
        // Ordering: Relaxed. The task's own view.
        self.fired.store(NONE, Ordering::Relaxed);
    }

    /// Registers `waker`, so that the next firing wakes it. If a firing is under way, wakes `waker` at once. Afterwards
    /// the caller must call `has_fired_for` (A2).
    pub(crate) fn register(&self, waker: &Waker) {
        let registered = self.with_slot(|slot| slot.as_ref().is_some_and(|old| old.will_wake(waker)));
        let kept = match registered {
            Some(true) => true,
            Some(false) => {
                let fresh = waker.clone();
                // The old waker is dropped here, where the cell is not locked.
                self.with_slot(|slot| slot.replace(fresh)).is_some()
            }
            None => false,
        };
        if !kept {
            waker.wake_by_ref();
        }
    }

    /// Runs `f` on the stored waker. Returns `None` if a firing is under way. Also returns `None` if a firing came
    /// while `f` ran: then the caller wakes the task.
    fn with_slot<R>(&self, f: impl FnOnce(&mut Option<Waker>) -> R) -> Option<R> {
        // Ordering: Acquire [V1, V2]. The waker, and the deadline that fired last. Failure Relaxed: nothing is read,
        // and the task, which is woken, polls again.
        self.state.compare_exchange(AT_REST, REGISTERING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: A1: we moved the state from rest.
        let result = self.waker.with_mut(|slot| f(unsafe { &mut *slot }));
        // Ordering: Release [V1]. The waker. An RMW, so that a deadline that fired since the load stays published: the
        // task, which is woken, acquires it when it polls again.
        let state = self.state.swap(AT_REST, Ordering::Release);
        (state == REGISTERING).then_some(result)
    }

    /// Records that the timer fires for `deadline`, and takes the stored waker out. The caller wakes the task by the
    /// waker.
    pub(crate) fn fire(&self, deadline: Timestamp) -> Option<Waker> {
        // Ordering: Release, with `has_fired_for`.
        self.fired.store(deadline.as_nanos(), Ordering::Release);
        self.take()
    }

    /// Takes the stored waker out, if there is any. The caller wakes the task by the waker. The task then checks its
    /// timer itself.
    pub(crate) fn take(&self) -> Option<Waker> {
        // Ordering: AcqRel [V1, V2]. Acquire: the waker. Release: the deadline that fired.
        if self.state.fetch_or(WAKING, Ordering::AcqRel) != AT_REST {
            return None;
        }
        // SAFETY: A1: we moved the state from rest.
        let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
        // Ordering: Release [V1]. The waker is gone.
        self.state.fetch_and(!WAKING, Ordering::Release);
        waker
    }
}

impl fmt::Debug for WakerCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakerCell").finish_non_exhaustive()
    }
}
