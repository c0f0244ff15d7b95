//! Forks a process whose timers run already, as a server does that becomes a daemon: timers expire in the child, and in
//! a child of the child. They do so with a new runtime and without a runtime.
//!
//! Without the harness, which has threads of its own.

#[cfg(unix)]
fn main() {
    line::wait_in_each(2);
}

#[cfg(unix)]
mod line {
    use fork::{Fork, fork, waitpid};
    use pingora_timeout::fast_timeout::{pause_for_fork, unpause};
    use pingora_timeout::{sleep, timeout};
    use pollster::block_on;
    use std::future::pending;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};
    use std::{process, thread};
    use tokio::runtime::Builder;

    const TIME: Duration = Duration::from_millis(20);
    const MINUTE: Duration = Duration::from_secs(60);

    /// Waits for limits in this process and in a chain of `children` processes, in which each process forks the next.
    pub(crate) fn wait_in_each(children: u32) {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
        block_on(wait());
        runtime.block_on(wait());
        if children == 0 {
            return;
        }
        let begin = Instant::now();
        let mut older = pin!(timeout(10 * TIME, pending::<()>()));
        let mut of_runtime = pin!(timeout(10 * TIME, pending::<()>()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(older.as_mut().poll(&mut cx).is_pending());
        assert!(runtime.block_on(async { of_runtime.as_mut().poll(&mut cx).is_pending() }));
        pause_for_fork();
        let forked = fork();
        unpause();
        match forked.expect("a child") {
            Fork::Child => {
                end_if_it_hangs();
                // Waits of the parent take the rest of their time.
                assert!(block_on(older).is_err());
                assert!(block_on(of_runtime).is_err());
                assert!((10 * TIME..MINUTE).contains(&begin.elapsed()));
                wait_in_each(children - 1);
                // The end of the process drops nothing: the threads of the runtime are in the parent.
                process::exit(0);
            }
            Fork::Parent(child) => assert_eq!(waitpid(child).expect("its status"), 0),
        }
        block_on(wait());
        runtime.block_on(wait());
    }

    async fn wait() {
        let begin = Instant::now();
        sleep(TIME).await;
        assert!(timeout(TIME, pending::<()>()).await.is_err());
        assert!(begin.elapsed() >= 2 * TIME);
    }

    fn end_if_it_hangs() {
        thread::spawn(|| {
            thread::sleep(MINUTE);
            process::exit(1);
        });
    }
}

#[cfg(not(unix))]
fn main() {}
