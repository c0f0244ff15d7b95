//! Runs the cases against the original, so that they state its behaviour and not only that of this crate.

mod cases;

use original as subject;

use cases::{MS, PATIENCE, poll, run, shared};
use std::future::pending;
use std::pin::pin;
use std::thread;
use std::time::Instant;
use subject::timeout;

/// In the original crate, a thread outside of the runtime ends a wait. `drop_in.rs` tests that a wait of this crate
/// stands still instead.
#[test]
fn a_wait_goes_on_while_the_only_thread_of_its_runtime_stands_still() {
    let _shared = shared();
    run(async {
        let mut limited = pin!(timeout(200 * MS, pending::<()>()));
        assert!(poll(limited.as_mut()).is_pending());
        let begin = Instant::now();
        while poll(limited.as_mut()).is_pending() {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(10 * MS);
        }
    });
}
