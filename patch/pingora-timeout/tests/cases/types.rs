//! The public types and their traits.

use super::{EARLY, FUNCTIONS, MS, run, shared};
use crate::subject::fast_timeout::{FastOrTokioTimeout, FastTimeout, fast_timeout};
use crate::subject::timer::{TimerManager, TimerStub};
use crate::subject::{Elapsed, Timeout, ToTimeout, TokioTimeout, sleep, tokio_timeout};
use std::error::Error;
use std::future::{Ready, pending, ready};
use std::panic::UnwindSafe;
use std::pin::Pin;
use std::time::{Duration, Instant};

type Wait = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

#[test]
fn each_kind_of_limit_makes_a_future_that_takes_the_time() {
    fn wait<L: ToTimeout>(time: Duration) -> Wait {
        L::create(time).timeout()
    }
    let _shared = shared();
    for wait in [wait::<FastTimeout>, wait::<FastOrTokioTimeout>, wait::<TokioTimeout>] {
        let begin = Instant::now();
        run(async { wait(40 * MS).await });
        assert!(begin.elapsed() >= 40 * MS - EARLY);
    }
}

#[test]
fn each_function_s_type_is_named() {
    drop::<Timeout<Ready<u8>, FastOrTokioTimeout>>(fast_timeout(MS, ready(17)));
    drop::<Timeout<Ready<u8>, TokioTimeout>>(tokio_timeout(MS, ready(17)));
    drop::<Wait>(Box::pin(sleep(MS)));
}

#[test]
fn the_error_says_that_the_time_has_elapsed() {
    fn error<T: Error + Send + Sync + 'static>(error: &T) -> String {
        error.to_string()
    }
    let _shared = shared();
    assert_eq!(error(&Elapsed), "Timeout Elapsed");
    for function in FUNCTIONS {
        let Err(Elapsed) = run(function.limit(MS, pending::<()>())) else { panic!("{function:?}") };
    }
}

#[test]
fn timers_and_limits_go_anywhere() {
    fn anywhere<T: Send + Sync + Unpin + 'static>() {}
    fn unwinds<T: UnwindSafe>() {}
    anywhere::<TimerManager>();
    anywhere::<TimerStub>();
    unwinds::<TimerStub>();
    anywhere::<FastTimeout>();
    anywhere::<FastOrTokioTimeout>();
    anywhere::<TokioTimeout>();
    anywhere::<Elapsed>();
    anywhere::<Timeout<Ready<u8>, FastOrTokioTimeout>>();
    anywhere::<Timeout<Ready<u8>, TokioTimeout>>();
}
