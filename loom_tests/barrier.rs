//! The change-over from two fences to an asymmetric barrier.
//!
//! A model cannot have a barrier that a thread imposes on others. So executions in which the kernel obeys the heavy
//! side are not judged: the system orders there. The judged executions are those in which the kernel refuses the heavy
//! side because the registration has not come that far, while the light side may have read that it has.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | SB1: `register`'s fence | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB1: `register`'s store | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB1: `light`'s load | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB2: `heavy`'s fence | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | `light`'s fence while it is not registered | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |

use super::model;
use crate::base::sync::{Arc, AtomicBool, Ordering, thread};
use crate::lockfree::barrier::{Registration, System};
use std::sync::atomic::{AtomicBool as Untracked, Ordering as UntrackedOrdering};

/// The kernel, which obeys once it has registered the process, and orders nothing that a model could see.
struct Kernel {
    registered: AtomicBool,
    obeyed: Untracked,
}

impl System for Kernel {
    fn register(&self) -> bool {
        self.registered.store(true, Ordering::Relaxed);
        true
    }

    fn fence_all_threads(&self) -> bool {
        let obeyed = self.registered.load(Ordering::Relaxed);
        self.obeyed.fetch_or(obeyed, UntrackedOrdering::Relaxed);
        obeyed
    }
}

struct World {
    registration: Registration,
    kernel: Kernel,
    announced: AtomicBool,
    pushed: AtomicBool,
}

/// A shard announces, passes the heavy side and looks. A producer pushes, passes the light side and looks. The process
/// is registered at the same time. At least one of the two must see the other's write.
#[test]
fn a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence() {
    model("a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence", || {
        let world = Arc::new(World {
            registration: Registration::new(),
            kernel: Kernel { registered: AtomicBool::new(false), obeyed: Untracked::new(false) },
            announced: AtomicBool::new(false),
            pushed: AtomicBool::new(false),
        });
        let (registrar, producer) = (Arc::clone(&world), Arc::clone(&world));
        let registrar = thread::spawn(move || registrar.registration.register(&registrar.kernel));
        let producer = thread::spawn(move || {
            producer.pushed.store(true, Ordering::Relaxed);
            producer.registration.light();
            producer.announced.load(Ordering::Relaxed)
        });
        world.announced.store(true, Ordering::Relaxed);
        world.registration.heavy(&world.kernel);
        let shard_saw = world.pushed.load(Ordering::Relaxed);
        let producer_saw = producer.join().unwrap();
        registrar.join().unwrap();
        let obeyed = world.kernel.obeyed.load(UntrackedOrdering::Relaxed);
        assert!(shard_saw || producer_saw || obeyed, "both sides missed what the other did");
    });
}
