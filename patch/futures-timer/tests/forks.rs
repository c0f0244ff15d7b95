//! Forks a process whose delays have threads already: delays complete in the child, and in a child of the child.
//!
//! Without the harness, which has threads of its own.

#[cfg(unix)]
fn main() {
    use futures_timer::Delay;
    use std::time::Duration;

    let mut delay = Delay::new(Duration::from_millis(10));
    pollster::block_on(&mut delay);
    line::wait_in_each(2, &mut delay);
}

#[cfg(unix)]
mod line {
    use fork::{Fork, fork, waitpid};
    use futures_timer::Delay;
    use pollster::block_on;
    use std::time::{Duration, Instant};
    use std::{process, thread};

    const TIME: Duration = Duration::from_millis(20);

    /// Waits in this process, and in a line of as many children.
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
        match fork().expect("a child") {
            Fork::Child => {
                end_if_it_hangs();
                wait_in_each(children - 1, older);
                process::exit(0);
            }
            Fork::Parent(child) => assert_eq!(waitpid(child).expect("its status"), 0),
        }
        block_on(Delay::new(TIME));
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
