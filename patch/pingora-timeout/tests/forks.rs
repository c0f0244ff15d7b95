//! Forks a process whose timers have threads already, as a server does that becomes a daemon: timers expire in the
//! child, and in a child of the child.
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
    use std::time::{Duration, Instant};
    use std::{process, thread};

    const TIME: Duration = Duration::from_millis(20);

    /// Waits in this process, and in a line of as many children.
    pub(crate) fn wait_in_each(children: u32) {
        wait();
        if children == 0 {
            return;
        }
        pause_for_fork();
        let forked = fork();
        unpause();
        match forked.expect("a child") {
            Fork::Child => {
                end_if_it_hangs();
                wait_in_each(children - 1);
                process::exit(0);
            }
            Fork::Parent(child) => assert_eq!(waitpid(child).expect("its status"), 0),
        }
        wait();
    }

    fn wait() {
        let begin = Instant::now();
        block_on(sleep(TIME));
        assert!(block_on(timeout(TIME, pending::<()>())).is_err());
        assert!(begin.elapsed() >= 2 * TIME);
    }

    fn end_if_it_hangs() {
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(60));
            process::exit(1);
        });
    }
}

#[cfg(not(unix))]
fn main() {}
