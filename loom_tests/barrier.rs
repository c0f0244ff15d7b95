//! The change from two fences to an asymmetric barrier. Such a barrier has a light side, which is cheap, and a heavy
//! side, by which the kernel fences all threads.
//!
//! A model cannot have a barrier that a thread imposes on others. So the model judges only some executions. If the
//! kernel obeys the heavy side, the system orders the accesses, and the execution is not judged. If the kernel refuses
//! the heavy side, since the process is not registered yet, the execution is judged. The light side may still have read
//! that the process is registered.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | SB1: `register`'s fence | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB1: `register`'s store | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB1: `light`'s load | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | SB2: `heavy`'s fence | `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |
//! | `light`'s fence while the process is not registered |
//! `a_refused_heavy_side_is_seen_by_a_light_one_without_a_fence` |

use super::model;
use crate::base::sync::{Arc, AtomicBool, Ordering, thread};
use crate::lockfree::barrier::{Registration, System};
use std::sync::atomic::{AtomicBool as Untracked, Ordering as UntrackedOrdering};

/// A stand-in for the kernel. The kernel fences all threads once it has registered the process. The stand-in orders
/// nothing that a model could see.
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

/// A shard announces its sleep, runs the heavy side of the barrier and looks for a push. A producer pushes, runs the
/// light side of the barrier and looks for the announcement. Another thread registers the process at the same time. At
/// least one of shard and producer must see the other's write.
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
