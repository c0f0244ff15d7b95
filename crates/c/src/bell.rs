//! The descriptor that says that there is something to poll.
//!
//! An `eventfd` that is readable while the queue is not empty. Writing to it for each event would cost a system call each, so
//! only the first to put something into a queue that was found empty rings, and a poll that empties the queue hushes.
//!
//! # Steps
//! ```text
//!  ring, after an entry was pushed          hush, after the queue was found empty
//!  r1  was rung? swap(rung, true)           h1  read the descriptor: it is not readable
//!  r2  if it was not: write                 h2  swap(rung, false)
//!                                           h3  if the queue is not empty: ring
//! ```
//!
//! # Invariants
//! B1. While an entry is in the queue, the descriptor is readable, or somebody is between its push and r2, or between h1 and h3.
//!
//! # Races and their legal endings
//! - ring x hush: (a) r1 is before h2: the hush reads from it, sees the entry at h3, and rings. (b) r1 is after h2: it finds
//!   nothing rung and writes, after h1, which therefore does not swallow it.
//! - hush x hush: one may read at h1 what was written for the other's entry; it has h3 before it, finds the entry and rings.
//! - a write at r2 that comes after the entry was polled: the descriptor is readable with nothing to poll, once: the next poll
//!   finds the queue empty and hushes. So a poll may find nothing, and nothing is ever left unsaid.
//!
//! With h2 before h1 an entry pushed between them would be unsaid, and so would one between h1 and h2 without h3: `tests` goes
//! through all interleavings and finds both.
//!
//! # Synchronisation
//! | pair | release side | acquire side | what is handed over |
//! | B1   | r1           | h2           | the entry pushed before r1, to the look at h3 |
//!
//! # Progress and cost
//! ring: wait-free; one swap, and a system call if the queue had been polled empty. hush: a system call, and a swap.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Bell {
    line: Line,
    /// Whether somebody has written, or is about to, since the last hush.
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { line: Line::new()?, rung: AtomicBool::new(false) })
    }

    /// Says that the queue is not empty. The caller has pushed before.
    pub(crate) fn ring(&self) {
        // Ordering: AcqRel [B1]. Each swap is in the release sequence of those before it.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.line.raise();
        }
    }

    /// Says nothing any more, unless something was pushed meanwhile. The caller has found the queue empty.
    pub(crate) fn hush(&self, is_empty: impl FnOnce() -> bool) {
        self.line.lower();
        // Ordering: AcqRel [B1].
        self.rung.swap(false, Ordering::AcqRel);
        if !is_empty() {
            self.ring();
        }
    }

    /// The descriptor, where there is such a thing.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.line.descriptor()
    }
}

#[cfg(target_os = "linux")]
mod line {
    use rustix::event::{EventfdFlags, eventfd};
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    #[derive(Debug)]
    pub(super) struct Line(pub(super) OwnedFd);

    impl Line {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn raise(&self) {
            // It would fail at 2^64 - 1 unread writes.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        pub(super) fn lower(&self) {
            // It fails when nothing was written, which is as good.
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }

        pub(super) fn descriptor(&self) -> Option<i32> {
            Some(self.0.as_raw_fd())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod line {
    use std::io;

    #[derive(Debug)]
    pub(super) struct Line;

    impl Line {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn raise(&self) {}

        pub(super) fn lower(&self) {}

        pub(super) fn descriptor(&self) -> Option<i32> {
            None
        }
    }
}

use line::Line;

#[cfg(test)]
mod tests {
    //! The steps above, as a machine whose interleavings are all gone through; and what of them can be seen from outside.

    use super::Bell;
    use crate::interleavings::explore;

    #[cfg(target_os = "linux")]
    fn is_readable(bell: &Bell) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let super::Line(line) = &bell.line;
        poll(&mut [PollFd::new(line, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_entry_that_comes_during_a_hush_is_said() {
        let bell = Bell::new().unwrap();
        bell.ring();
        assert!(is_readable(&bell));
        bell.hush(|| true);
        assert!(!is_readable(&bell));
        // Pushed before h2: its ring found the bell rung.
        bell.ring();
        bell.hush(|| false);
        assert!(is_readable(&bell));
        // Pushed after h2: it rings by itself.
        bell.hush(|| {
            bell.ring();
            true
        });
        assert!(is_readable(&bell));
    }

    /// The protocol, and ways to get it wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Variant {
        Right,
        ClearedBeforeRead,
        NotLookedAgain,
        NotRead,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        queue: u8,
        rung: bool,
        readable: bool,
        threads: Vec<Thread>,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Thread {
        at: Step,
        /// What it does once the present operation is over.
        rest: Vec<Operation>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Operation {
        Push,
        Poll,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Step {
        Idle,
        Ring,
        Write,
        Pop,
        Read,
        Clear,
        LookAgain,
    }

    fn step(world: &mut World, index: usize, variant: Variant) -> bool {
        use Step::*;
        let thread = &mut world.threads[index];
        thread.at = match thread.at {
            Idle => match thread.rest.pop() {
                None => return false,
                Some(Operation::Push) => {
                    world.queue += 1;
                    Ring
                }
                Some(Operation::Poll) => Pop,
            },
            Ring => {
                if std::mem::replace(&mut world.rung, true) {
                    Idle
                } else {
                    Write
                }
            }
            Write => {
                world.readable = true;
                Idle
            }
            Pop if world.queue > 0 => {
                world.queue -= 1;
                Pop
            }
            Pop if variant == Variant::ClearedBeforeRead => Clear,
            Pop => Read,
            Read => {
                world.readable &= variant == Variant::NotRead;
                if variant == Variant::ClearedBeforeRead { LookAgain } else { Clear }
            }
            Clear => {
                world.rung = false;
                match variant {
                    Variant::ClearedBeforeRead => Read,
                    Variant::NotLookedAgain => Idle,
                    Variant::Right | Variant::NotRead => LookAgain,
                }
            }
            LookAgain if world.queue > 0 => Ring,
            LookAgain => Idle,
        };
        true
    }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Endings {
        /// At rest with entries, unreadable.
        unsaid: bool,
        /// At rest without entries, readable, although a poll came last.
        stuck: bool,
        worlds: usize,
    }

    /// All worlds that two producers and two polls get to. Afterwards one more poll, alone.
    fn endings(variant: Variant) -> Endings {
        use Operation::*;
        let thread = |rest: &[Operation]| Thread { at: Step::Idle, rest: rest.to_vec() };
        let threads = vec![thread(&[Push, Push]), thread(&[Push]), thread(&[Poll, Poll]), thread(&[Poll])];
        let start = World { queue: 0, rung: false, readable: false, threads };
        let mut endings = Endings::default();
        let step = |world: &mut World, thread| step(world, thread, variant);
        endings.worlds = explore(start, 4, step, |mut world| {
            endings.unsaid |= world.queue > 0 && !world.readable;
            world.threads[0].rest = vec![Poll];
            while step(&mut world, 0) {}
            endings.stuck |= world.queue == 0 && world.readable;
        });
        endings
    }

    #[test]
    fn nothing_is_left_unsaid_in_any_interleaving() {
        let endings = endings(Variant::Right);
        assert!(endings.worlds > 10_000, "{endings:?}");
        assert!(!endings.unsaid && !endings.stuck, "{endings:?}");
    }

    #[test]
    fn the_wrong_protocols_are_found_out() {
        assert!(endings(Variant::NotLookedAgain).unsaid);
        assert!(endings(Variant::NotRead).stuck);
        let wrong_order = endings(Variant::ClearedBeforeRead);
        assert!(wrong_order.unsaid, "{wrong_order:?}");
    }
}
