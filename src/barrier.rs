//! An asymmetric fence: nearly free on the side that runs for every timer, dear on the side that is about to sleep.
//!
//! A producer and a sleeping shard need a full fence each (`parker`, F1). The producer's would be the dearest
//! instruction of arming a timer. Where the system can make all threads of the process pass a fence on demand
//! (`membarrier` on Linux), the producer's shrinks to an order for the compiler, and the shard pays some microseconds
//! each time it goes to sleep. Elsewhere, and in models, both sides are a `SeqCst` fence.
//!
//! After M. Desnoyers et al., "User-Level Implementations of Read-Copy Update", IEEE TPDS 2012; as in folly and liburcu.

use crate::sync::{Ordering, fence};

/// A pair of fences, `light` and `heavy`: of a light one and a heavy one, one is ordered before the other as two
/// `SeqCst` fences are. Two light ones are not ordered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    asymmetric: bool,
}

impl Barrier {
    /// The cheapest pair that the system offers.
    pub(crate) fn new() -> Self {
        Self { asymmetric: imp::register() }
    }

    /// One whose light side is nothing to the processor, as with `membarrier`: for models of what must hold without it.
    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn without_light_side() -> Self {
        Self { asymmetric: true }
    }

    /// The side that runs often.
    #[inline(always)]
    pub(crate) fn light(self) {
        if self.asymmetric {
            imp::compiler_fence();
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The side that runs rarely.
    pub(crate) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.asymmetric {
            imp::fence_all_threads();
        }
    }
}

#[cfg(all(target_os = "linux", not(all(test, tourbillon_loom))))]
mod imp {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Announces to the kernel that this process will ask for expedited barriers. False when it has none.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    #[inline(always)]
    pub(super) fn compiler_fence() {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }

    pub(super) fn fence_all_threads() {
        let asked = membarrier(MembarrierCommand::PrivateExpedited)
            .or_else(|_| membarrier(MembarrierCommand::Global));
        if asked.is_err() {
            // A process that registered is refused only if it was forbidden the call since then. There is no order to be
            // had by any rule then; in practice a store is seen by all long before a millisecond has passed.
            crate::sync::thread::sleep(core::time::Duration::from_millis(1));
        }
    }
}

#[cfg(not(all(target_os = "linux", not(all(test, tourbillon_loom)))))]
mod imp {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn compiler_fence() {}

    pub(super) fn fence_all_threads() {}
}
