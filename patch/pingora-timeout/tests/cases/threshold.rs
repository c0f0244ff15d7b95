//! The threshold above which tokio's timer measures a limit. A timer of tokio shows itself in two ways: it panics
//! outside of a runtime, and it follows a paused clock.

use super::{FUNCTIONS, MINUTE, MS, alone, poll, shared};
use crate::subject::fast_timeout::{
    DEFAULT_FAST_TIMEOUT_TO_TOKIO_THRESHOLD, FastOrTokioTimeout, fast_timeout_to_tokio_threshold,
    set_fast_timeout_to_tokio_threshold,
};
use crate::subject::{ToTimeout, TokioTimeout, timeout, tokio_timeout};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

fn is_measured_by_tokio(time: Duration) -> bool {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        // Outside of a runtime.
        poll(pin!(timeout(time, pending::<()>()))).is_pending()
    }));
    !polled.unwrap_or(false)
}

#[test]
fn the_threshold_decides_which_timer_measures() {
    let _alone = alone();
    let default = DEFAULT_FAST_TIMEOUT_TO_TOKIO_THRESHOLD;
    assert_eq!(default, 15 * MINUTE);
    assert_eq!(fast_timeout_to_tokio_threshold(), Some(default));
    for (time, expected) in [(SECOND, false), (default, false), (default + SECOND, true), (DAY, true)] {
        assert_eq!(is_measured_by_tokio(time), expected, "{time:?}");
    }
    // Both count whole seconds.
    assert!(!is_measured_by_tokio(default + 999 * MS));
    set_fast_timeout_to_tokio_threshold(Some(3_500 * MS));
    assert_eq!(fast_timeout_to_tokio_threshold(), Some(3 * SECOND));
    assert!(!is_measured_by_tokio(3_999 * MS));
    assert!(is_measured_by_tokio(4 * SECOND));

    for none in [None, Some(Duration::MAX)] {
        set_fast_timeout_to_tokio_threshold(none);
        assert_eq!(fast_timeout_to_tokio_threshold(), None);
        assert!(!is_measured_by_tokio(DAY));
        set_fast_timeout_to_tokio_threshold(Some(default));
    }
}

#[test]
fn tokio_s_timer_follows_tokio_s_paused_clock() {
    let _shared = shared();
    let begin = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        assert!(tokio_timeout(DAY, pending::<()>()).await.is_err());
        assert!(timeout(DAY, pending::<()>()).await.is_err());
        for function in FUNCTIONS {
            assert!(function.limit(DAY, pending::<()>()).await.is_err(), "{function:?}");
        }
        TokioTimeout::create(DAY).timeout().await;
        FastOrTokioTimeout::create(DAY).timeout().await;
    });
    assert!(begin.elapsed() < MINUTE);
}
