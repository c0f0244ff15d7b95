//! Sleeps.

use super::{EARLY, MS, PATIENCE, run, shared};
use crate::subject::fast_timeout::fast_sleep;
use crate::subject::sleep;
use std::time::Instant;

#[test]
fn a_sleep_takes_its_time() {
    let _shared = shared();
    for time in [2 * MS, 3 * MS, 10 * MS, 41 * MS] {
        let begin = Instant::now();
        run(sleep(time));
        assert!((time - EARLY..PATIENCE).contains(&begin.elapsed()), "{time:?}");
        let begin = Instant::now();
        run(fast_sleep(time));
        assert!((time - EARLY..PATIENCE).contains(&begin.elapsed()), "{time:?}");
    }
}

#[test]
fn a_sleep_counts_from_its_first_poll() {
    let _shared = shared();
    run(async {
        let asleep = sleep(40 * MS);
        tokio::time::sleep(60 * MS).await;
        let begin = Instant::now();
        asleep.await;
        assert!(begin.elapsed() >= 40 * MS - EARLY);
    });
}

#[test]
fn sleeps_need_no_runtime() {
    let _shared = shared();
    let begin = Instant::now();
    pollster::block_on(sleep(20 * MS));
    assert!(begin.elapsed() >= 20 * MS - EARLY);
}

#[test]
fn sleeps_of_one_moment_end_together() {
    let _shared = shared();
    let begin = Instant::now();
    run(async {
        let sleeps: Vec<_> = (0..100).map(|_| tokio::task::spawn(sleep(50 * MS))).collect();
        for asleep in sleeps {
            asleep.await.expect("it ends");
        }
    });
    assert!((50 * MS - EARLY..PATIENCE).contains(&begin.elapsed()));
}
