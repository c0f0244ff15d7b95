//! A protocol that is wrong on purpose. If its model stays green, `base::sync` does not use loom.

use super::model;
use crate::base::sync::{Arc, AtomicBool, Ordering, UnsafeCell, thread};

fn publish_then_read(publish: Ordering) {
    struct Shared {
        ready: AtomicBool,
        value: UnsafeCell<u32>,
    }
    // SAFETY: this contract is broken when `publish` is too weak. Loom must notice exactly that.
    unsafe impl Sync for Shared {}
    // SAFETY: as for `Sync` above.
    unsafe impl Send for Shared {}

    let shared = Arc::new(Shared { ready: AtomicBool::new(false), value: UnsafeCell::new(0) });
    let writer = Arc::clone(&shared);
    let handle = thread::spawn(move || {
        writer.value.with_mut(|value| {
            // SAFETY: no thread reads before `ready`.
            unsafe { *value = 1 }
        });
        writer.ready.store(true, publish);
    });
    if shared.ready.load(Ordering::Acquire) {
        // SAFETY: `ready` shows that the value was written, if the value was published with release.
        let value = shared.value.with(|value| unsafe { *value });
        assert_eq!(value, 1, "the value was published, and is not there");
    }
    handle.join().unwrap();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_publication_is_caught() {
    model("a_relaxed_publication_is_caught", || {
        publish_then_read(Ordering::Relaxed);
    });
}

#[test]
fn a_release_publication_is_not() {
    model("a_release_publication_is_not", || {
        publish_then_read(Ordering::Release);
    });
}
