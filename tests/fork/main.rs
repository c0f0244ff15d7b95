//! The child of a fork has none of its parent's threads. Calls on an engine that was built before the fork report that,
//! and none hangs.
//!
//! The test harness is not used, since it has threads of its own. An alarm ends a child that hangs.

#[cfg(unix)]
mod churn;

#[cfg(unix)]
fn main() {
    calls_in_the_child_are_refused();
    #[cfg(feature = "tokio")]
    runtimes_in_the_child_have_timers();
    churn::no_child_hangs_while_threads_of_the_parent_come_and_go();
}

#[cfg(unix)]
fn calls_in_the_child_are_refused() {
    use std::time::Duration;
    use tourbillon::{
        ArmError, BuildError, Builder, Cancel, Condition, Disarm, Fired, Refusal, RescheduleError,
    };

    const HOUR: Duration = Duration::from_secs(3_600);
    let engine = Builder::new().shards(2).workers(2).start(|_: Fired<'_, u32>| {}).expect("an engine");
    let id = engine.handle().schedule(HOUR, 1).expect("room");
    let moved = engine.handle().schedule(HOUR, 2).expect("room");
    engine.handle().schedule(HOUR, 3).expect("room");
    let timer = engine.handle().timer(4).expect("room");
    timer.arm(HOUR).expect("it runs");
    let shards = Builder::new().shards(1).workers(1).start_shards().expect("shards");
    let status = in_child(move || {
        let error = shards.engine().start(|_: Fired<'_, u32>| {}).expect_err("its threads are in the parent");
        assert!(matches!(error, BuildError::Forked), "{error}");
        drop(shards);
        assert!(engine.handle().is_forked() && engine.handle().is_shut_down());
        assert_eq!(engine.handle().health().condition, Condition::Forked);
        assert!(matches!(engine.handle().reschedule(moved, HOUR), Err(RescheduleError::Forked(2))));
        // This is more than a lane has room for.
        for n in 0..200_000 {
            let error = engine.handle().schedule(HOUR, n).expect_err("nothing would fire it");
            assert_eq!((error.kind, error.payload), (Refusal::Forked, n));
        }
        let error = engine.handle().schedule_batch([(HOUR, 5)]).expect_err("nothing would fire it");
        assert_eq!((error.kind, error.refused.len()), (Refusal::Forked, 1));
        assert_eq!(engine.handle().timer(6).expect_err("nothing would fire it").kind, Refusal::Forked);
        assert_eq!(timer.arm(2 * HOUR), Err(ArmError::Forked));
        assert_ne!(timer.disarm_and_wait(), Disarm::Running);
        assert_eq!(engine.handle().cancel_and_wait(id), Cancel::Cancelled(1));
        assert_eq!(engine.handle().shutdown().len(), 1);
        assert!(engine.handle().shutdown().is_empty());
        drop(timer);
        drop(engine);
        // An engine that the child builds works.
        let (fired, log) = std::sync::mpsc::channel();
        let own = Builder::new()
            .shards(1)
            .start(move |timer: Fired<'_, u32>| fired.send(timer.payload).expect("it listens"))
            .expect("an engine");
        own.handle().schedule(Duration::from_millis(1), 7).expect("room");
        assert_eq!(log.recv(), Ok(7));
        drop(own);
    });
    assert_eq!(status, 0, "the child failed, or was ended by its alarm");
}

/// In the child of a fork, timers work in two sorts of runtimes: a runtime of one thread that was built before the
/// fork, and runtimes that the child builds.
#[cfg(all(unix, feature = "tokio"))]
fn runtimes_in_the_child_have_timers() {
    use std::future::pending;
    use std::time::{Duration, Instant};
    use tourbillon::time::{sleep, timeout};

    const MS: Duration = Duration::from_millis(1);
    let build = || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let inherited = build();
    inherited.block_on(sleep(MS));
    let status = in_child(move || {
        let mut limit = Box::pin(timeout(3_600_000 * MS, pending::<()>()));
        for runtime in [&inherited, &build(), &inherited] {
            let begin = Instant::now();
            runtime.block_on(async {
                sleep(MS).await;
                assert!(timeout(MS, pending::<()>()).await.is_err());
                let poll =
                    std::future::poll_fn(|cx| std::task::Poll::Ready(limit.as_mut().poll(cx).is_pending()));
                assert!(poll.await);
            });
            assert!(begin.elapsed() >= 2 * MS);
        }
        drop((limit, inherited));
    });
    assert_eq!(status, 0, "the child failed, or was ended by its alarm");
}

/// Forks the process and runs `f` in the child. Returns the child's exit status.
#[cfg(unix)]
fn in_child(f: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only functions that work after a fork of a process with threads, on the systems of this
    // test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm ends this process in time.
        unsafe { libc::alarm(60) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        // SAFETY: the call ends this process, without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    assert!(child > 0, "it forks");
    let mut status = 0;
    // SAFETY: the process is a child of this process, and `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[cfg(not(unix))]
fn main() {}
