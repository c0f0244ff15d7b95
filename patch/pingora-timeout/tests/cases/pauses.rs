//! Pauses for a fork.

use super::{EARLY, MINUTE, MS, alone, poll, run, shared};
use crate::subject::fast_timeout::{pause_for_fork, unpause};
use crate::subject::timer::TimerManager;
use crate::subject::{sleep, timeout, tokio_timeout};
use std::future::pending;
use std::pin::pin;
use std::time::Instant;

#[test]
fn a_timer_that_is_registered_in_a_pause_has_expired() {
    let _shared = shared();
    for manager in [TimerManager::new(), TimerManager::default()] {
        assert!(poll(pin!(manager.register_timer(MINUTE).poll())).is_pending());
        manager.pause_for_fork();
        run(manager.register_timer(MINUTE).poll());
        manager.unpause();
        assert!(poll(pin!(manager.register_timer(MINUTE).poll())).is_pending());
    }
}

#[test]
fn the_process_s_waits_end_at_once_in_a_pause_and_take_their_time_after_it() {
    let _alone = alone();
    let begin = Instant::now();
    // A sleep that begins before the pause is not shortened.
    let mut older = pin!(sleep(100 * MS));
    assert!(poll(older.as_mut()).is_pending());
    pause_for_fork();
    run(async {
        sleep(MINUTE).await;
        assert!(timeout(MINUTE, pending::<()>()).await.is_err());
        assert!(poll(pin!(tokio_timeout(MINUTE, pending::<()>()))).is_pending(), "it is tokio's");
    });
    assert!(begin.elapsed() < MINUTE);
    unpause();
    run(older);
    assert!(begin.elapsed() >= 100 * MS - EARLY);

    let begin = Instant::now();
    run(sleep(20 * MS));
    assert!(run(timeout(20 * MS, pending::<()>())).is_err());
    assert!(begin.elapsed() >= 40 * MS - 2 * EARLY);
}
