//! Forks a process whose delays have threads already: delays complete in the child, and in a child of the child. Those
//! of the original do not. At the end, a waker that panics takes the thread of the original along.
//!
//! Without the harness, which has threads of its own.

#[cfg(unix)]
fn main() {
    use futures_timer::Delay;
    use std::time::Duration;

    let mut delay = Delay::new(Duration::from_millis(10));
    pollster::block_on(&mut delay);
    line::wait_in_each(2, &mut delay);
    line::wait_by_the_original();
    line::panic_in_the_original();
}

#[cfg(unix)]
mod line {
    use fork::{Fork, fork, waitpid};
    use futures_timer::Delay;
    use pollster::block_on;
    use std::panic::catch_unwind;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::{Duration, Instant};
    use std::{process, thread};

    const TIME: Duration = Duration::from_millis(20);
    const MINUTE: Duration = Duration::from_secs(60);

    fn poll(delay: impl Future<Output = ()> + Unpin) -> Poll<()> {
        pin!(delay).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Waits for delays in this process and in a chain of `children` processes, in which each process forks the next.
    pub(crate) fn wait_in_each(children: u32, older: &mut Delay) {
        let begin = Instant::now();
        block_on(Delay::new(TIME));
        // A delay that was made before the fork.
        older.reset(TIME);
        block_on(&mut *older);
        assert!(begin.elapsed() >= 2 * TIME);
        if children == 0 {
            return;
        }
        let begin = Instant::now();
        let mut across = Delay::new(10 * TIME);
        let _ = poll(&mut across);
        in_a_child(|| {
            // It takes the rest of its time.
            block_on(&mut across);
            assert!((10 * TIME..MINUTE).contains(&begin.elapsed()));
            wait_in_each(children - 1, older);
        });
        block_on(Delay::new(TIME));
        block_on(across);
    }

    pub(crate) fn wait_by_the_original() {
        let mut older = original::Delay::new(TIME);
        block_on(&mut older);
        in_a_child(|| {
            older.reset(TIME);
            let mut delay = original::Delay::new(TIME);
            thread::sleep(20 * TIME);
            assert!(poll(&mut delay).is_pending() && poll(&mut older).is_pending());
        });
    }

    pub(crate) fn panic_in_the_original() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("a panic of the test");
            }
        }
        let mut delay = original::Delay::new(MINUTE);
        let panics = Arc::new(Panics).into();
        assert!(pin!(&mut delay).poll(&mut Context::from_waker(&panics)).is_pending());
        delay.reset(TIME);
        let begin = Instant::now();
        while catch_unwind(|| poll(original::Delay::new(MINUTE))).is_ok() {
            assert!(begin.elapsed() < MINUTE, "the original's thread goes on");
            thread::sleep(TIME);
        }
    }

    fn in_a_child(work: impl FnOnce()) {
        match fork().expect("a child") {
            Fork::Child => {
                end_if_it_hangs();
                work();
                process::exit(0);
            }
            Fork::Parent(child) => assert_eq!(waitpid(child).expect("its status"), 0),
        }
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
