//! An asymmetric pair of fences. The light fence runs for every timer and is nearly free. The heavy fence runs when a
//! shard is about to sleep, and is expensive.
//!
//! A producer and a sleeping shard need a full fence each (`parker`, F1). The producer's fence would be the most
//! expensive instruction of arming a timer. On Linux, the system call `membarrier` makes all threads of the process
//! pass a fence on demand. With it, a compiler fence suffices for the producer, and the shard pays some microseconds
//! each time it goes to sleep. Elsewhere, and in models, both sides are a `SeqCst` fence.
//!
//! After M. Desnoyers et al., "User-Level Implementations of Read-Copy Update", IEEE TPDS 2012; as in folly and
//! liburcu.
//!
//! # Registration
//! A process registers for the barrier once. The registration takes microseconds while the process has one thread, and
//! up to some tens of milliseconds later on. So no thread that arms a timer registers the process. A set of shards with
//! threads starts a thread for the registration. Both sides fence until the registration has returned.
//!
//! ```text
//! unasked ── the system agrees ──► registered ── the system refuses a barrier later ──► refused
//!    └────── the system refuses ─────────────────────────────────────────────────────────►┘
//! ```
//! - The light side drops its fence only after it has read `registered`.
//! - The heavy side fences, and also asks for the system's barrier unless it has read `refused`.
//!
//! While the state changes, one side may see the change and the other side may not:
//! - The heavy side asks, and the system obeys: the barrier orders the two sides in any case.
//! - The heavy side asks, and the system refuses because the process is not registered yet; the light side has read
//!   `registered`. The refusal came before the registration. So the heavy fence is before the fence between the
//!   registration and the store of `registered` (SB1). The light side's later loads therefore see the stores made
//!   before the heavy fence.
//! - The system refuses a barrier after the registration (a seccomp filter was set since): the heavy side replaces
//!   `registered` by `refused` and waits for a millisecond. No rule orders the light sides that are under way; in
//!   practice a store is seen by all threads long before that. Later light sides fence.
//!
//! # Synchronisation
//! | pair | one side                             | other side           | ruled out         | model |
//! |------|--------------------------------------|----------------------|-------------------|-------|
//! | SB1  | `register`: fence, store of the state | `light`: load        | a light side without a fence that misses the changes of a refused heavy side | `barrier::a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB2  | `heavy`: fence                       | `register`: fence    | the same | the same |

use crate::base::sync::{AtomicU32, Ordering, fence};

const UNASKED: u32 = 0;
const REGISTERED: u32 = 1;
const REFUSED: u32 = 2;

/// The system calls that `Barrier`, a pair of fences, needs.
pub(crate) trait System {
    /// Registers the process for the system's memory barriers. Returns false if the system refuses.
    fn register(&self) -> bool;
    /// Makes all threads of the process pass a fence. Returns false if the system refuses.
    fn fence_all_threads(&self) -> bool;
}

/// The state of the process's registration for the system's barrier: `UNASKED`, `REGISTERED` or `REFUSED`.
#[derive(Debug)]
pub(crate) struct Registration {
    state: AtomicU32,
}

impl Registration {
    #[cfg(not(all(test, tourbillon_loom)))]
    const fn new() -> Self {
        Self { state: AtomicU32::new(UNASKED) }
    }

    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(UNASKED) }
    }

    pub(crate) fn register(&self, system: &impl System) {
        let state = if system.register() { REGISTERED } else { REFUSED };
        // Ordering: SeqCst fence [SB1, SB2]: the fence of a heavy side that was refused is before this fence.
        fence(Ordering::SeqCst);
        // Ordering: Release [SB1]. Pairs with `light`. Failure Relaxed: another thread was first.
        let _ = self.state.compare_exchange(UNASKED, state, Ordering::Release, Ordering::Relaxed);
    }

    /// Returns whether no thread has registered the process yet.
    fn is_unasked(&self) -> bool {
        // Ordering: Relaxed. A hint.
        self.state.load(Ordering::Relaxed) == UNASKED
    }

    #[inline(always)]
    pub(crate) fn light(&self) {
        // Ordering: Acquire [SB1]. Pairs with `register`.
        if self.state.load(Ordering::Acquire) == REGISTERED {
            imp::compiler_fence();
        } else {
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn heavy(&self, system: &impl System) {
        // Ordering: Relaxed. The state is read before the system is asked: a refusal breaks a promise only if the state
        // was `registered` before.
        let state = self.state.load(Ordering::Relaxed);
        // Ordering: SeqCst fence [SB2], and the heavy side of every ordering that relies on the barrier.
        fence(Ordering::SeqCst);
        if state != REFUSED && !system.fence_all_threads() && state == REGISTERED {
            self.revoke();
        }
    }

    #[cold]
    fn revoke(&self) {
        // Ordering: Relaxed. See "Registration": no rule orders this store, the sleep does.
        self.state.store(REFUSED, Ordering::Relaxed);
        crate::base::sync::sleep(core::time::Duration::from_millis(1));
    }
}

/// A pair of memory fences. A light fence is nearly free, and a heavy fence takes microseconds. A light fence and a
/// heavy fence are ordered as two `SeqCst` fences are. Two light fences are not ordered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    /// Whether the light fence executes no instruction, as with `membarrier`. Models set this field for properties that
    /// must hold without a light fence.
    #[cfg(all(test, tourbillon_loom))]
    is_light_side_missing: bool,
}

#[cfg(not(all(test, tourbillon_loom)))]
impl Barrier {
    /// Makes the pair of fences. Registers the process at once if that is cheap: while the process has one thread.
    pub(crate) fn new() -> Self {
        if PROCESS.is_unasked() && imp::is_single_threaded() {
            register();
        }
        Self {}
    }

    /// Passes the light fence, the cheap half of the pair. Threads that arm timers call this method.
    #[inline(always)]
    #[expect(clippy::unused_self, reason = "both sides name the barrier that they share")]
    pub(crate) fn light(self) {
        PROCESS.light();
    }

    /// Passes the heavy fence, the expensive half of the pair. Shards that go to sleep call this method.
    #[expect(clippy::unused_self, reason = "both sides name the barrier that they share")]
    pub(crate) fn heavy(self) {
        PROCESS.heavy(&imp::Kernel);
    }
}

/// The pair of fences in a model. A model has no system calls, so both fences are `SeqCst` fences.
#[cfg(all(test, tourbillon_loom))]
impl Barrier {
    pub(crate) fn new() -> Self {
        Self { is_light_side_missing: false }
    }

    pub(crate) fn without_light_side() -> Self {
        Self { is_light_side_missing: true }
    }

    pub(crate) fn light(self) {
        if !self.is_light_side_missing {
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, tourbillon_loom))]
pub(crate) fn wants_registration() -> bool {
    false
}

#[cfg(all(test, tourbillon_loom))]
pub(crate) fn register() {}

#[cfg(not(all(test, tourbillon_loom)))]
static PROCESS: Registration = Registration::new();

/// Returns whether the process is not registered for the system's barrier yet. If true, [`register`] should be called
/// on a thread of its own, because it takes long.
#[cfg(not(all(test, tourbillon_loom)))]
pub(crate) fn wants_registration() -> bool {
    PROCESS.is_unasked()
}

/// Registers the process for the system's barrier. Takes some tens of milliseconds if the process has several threads.
#[cfg(not(all(test, tourbillon_loom)))]
pub(crate) fn register() {
    PROCESS.register(&imp::Kernel);
}

#[cfg(all(target_os = "linux", not(all(test, tourbillon_loom))))]
mod imp {
    use rustix::thread::{MembarrierCommand, membarrier};

    #[derive(Debug)]
    pub(super) struct Kernel;

    impl crate::lockfree::barrier::System for Kernel {
        fn register(&self) -> bool {
            membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        }

        fn fence_all_threads(&self) -> bool {
            membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        }
    }

    #[inline(always)]
    pub(super) fn compiler_fence() {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }

    /// Returns whether the process has one thread. `/proc` has a folder for each thread of a process. The link count of
    /// a folder is two more than the number of its subfolders.
    pub(super) fn is_single_threaded() -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self/task").is_ok_and(|tasks| tasks.nlink() == 3)
    }
}

#[cfg(not(all(target_os = "linux", not(all(test, tourbillon_loom)))))]
mod imp {
    #[cfg(not(all(test, tourbillon_loom)))]
    #[derive(Debug)]
    pub(super) struct Kernel;

    #[cfg(not(all(test, tourbillon_loom)))]
    impl crate::lockfree::barrier::System for Kernel {
        fn register(&self) -> bool {
            false
        }

        fn fence_all_threads(&self) -> bool {
            false
        }
    }

    pub(super) fn compiler_fence() {}

    #[cfg(not(all(test, tourbillon_loom)))]
    pub(super) fn is_single_threaded() -> bool {
        // The system refuses the registration at once.
        true
    }
}
