//! Keeps a descriptor readable while entries wait in a queue, so that a program can wait for them in its `poll`.
//!
//! The descriptor is an `eventfd`. The queue is that of `events`, and its entries are jobs. A write to the descriptor
//! for each entry would cost a system call each. So only one push writes: the first push after a poll has found the
//! queue empty. A poll that empties the queue clears the descriptor. A poll that runs a job only in part puts the job
//! back, which is a push, too.
//!
//! # Steps
//! ```text
//!  signal, after an entry was pushed          clear, after the queue was found empty
//!  s1  was signalled? swap(signalled, true)   c1  read the descriptor: it is not readable
//!  s2  if it was not: write                   c2  swap(signalled, false)
//!                                             c3  if the queue is not empty: signal
//! ```
//!
//! # Invariants
//! B1. While an entry is in the queue, the descriptor is readable, or a thread is between its push and s2, or between
//!     c1 and c3.
//!
//! # Races and their legal endings
//! - signal x clear: (a) s1 is before c2: c2 reads the flag that s1 wrote, c3 sees the entry, and the clear signals.
//!   (b) s1 is after c2: s1 finds the flag unset, and the signal writes after c1, so c1 does not consume that write.
//! - clear x clear: the c1 of one clear may consume the write for an entry that was pushed after the c2 of the other.
//!   The c3 of the first clear still follows, finds the entry and signals.
//! - signal x acknowledge, with which a loop's turn begins: a1 reads the descriptor if the flag is set; a2 unsets the
//!   flag if the read found a write; then the turn reads its shard's wake-up moments. These take the place of the
//!   queue: a thread that arms an earlier timer lowers such a moment, and then signals. (a) s1 is before a2: a2 reads
//!   the flag that s1 wrote, so the turn sees the lowered moment. (b) s1 is after a2: the signal writes. (c) a1 is
//!   between s1 and s2: a1 finds nothing, the flag stays, and the turn after the write reads again. If the flag were
//!   unset, no turn would read, and the descriptor would stay readable.
//! - a poll puts an entry back x clear by another poll, which found the queue empty before that: as signal x clear.
//! - a write at s2 after the entry was polled: the descriptor is readable once although nothing waits. The next poll
//!   finds the queue empty and clears the descriptor. A poll may thus find nothing, but no entry stays without a
//!   signal.
//!
//! Three changes would leave an entry without a signal. With c2 before c1, it is an entry that is pushed between these
//! two steps. Without c3, it is an entry that is pushed between c1 and c2. Without a signal after a put-back, it is the
//! entry that was put back. `tests` explores all interleavings and finds these faults.
//!
//! # Synchronisation
//! | pair | release side | acquire side | handed over |
//! | N1   | s1           | c2           | the entry pushed before s1, to the check at c3 |
//!
//! # Progress and cost
//! signal: wait-free; one swap, and a system call if the flag was not set. clear: a system call and a swap.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes a descriptor readable when work waits for a poll, or for the turn of an event loop. A loop's turn is a call of
/// `tb_loop_turn`.
#[derive(Debug)]
pub(crate) struct Notifier {
    event_fd: EventFd,
    /// Whether a thread has written to the descriptor, or is about to write. As long as the flag is set, `signal` does
    /// not write again. `clear` unsets the flag after it has read the descriptor. `acknowledge` unsets it only if its
    /// read has found a write.
    is_signalled: AtomicBool,
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event_fd: EventFd::new()?, is_signalled: AtomicBool::new(false) })
    }

    /// Makes the descriptor readable. The caller must have added the work before: a job to the queue of events, or an
    /// earlier timer to the loop's shard.
    pub(crate) fn signal(&self) {
        // Ordering: AcqRel [N1]. Each swap is in the release sequence of the swaps before it.
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            self.event_fd.write();
        }
    }

    /// Makes the descriptor unreadable. The caller must have found the queue empty. Another thread may have pushed an
    /// entry since then. So this function calls `is_empty` at its end, and makes the descriptor readable again if the
    /// result is false.
    pub(crate) fn clear(&self, is_empty: impl FnOnce() -> bool) {
        let _is_read = self.event_fd.read();
        // Ordering: AcqRel [N1].
        self.is_signalled.swap(false, Ordering::AcqRel);
        if !is_empty() {
            self.signal();
        }
    }

    /// Makes the descriptor unreadable, if it was signalled. The caller must check for work after this call, because
    /// this call does not do so, unlike [`clear`](Self::clear). Without a signal, the call costs only a load.
    ///
    /// A signal sets the flag `is_signalled` before it writes to the descriptor. So this call may find the flag set
    /// although the descriptor is not readable yet. In this case the flag stays set, and the next call after the write
    /// reads the descriptor.
    pub(crate) fn acknowledge(&self) {
        // Ordering: Relaxed. A signal that this load misses is followed by its write, which the next poll sees.
        if self.is_signalled.load(Ordering::Relaxed) && self.event_fd.read() {
            // Ordering: AcqRel [N1].
            self.is_signalled.swap(false, Ordering::AcqRel);
        }
    }

    /// Returns the descriptor. Returns `None` on systems without `eventfd`.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.event_fd.descriptor()
    }
}

#[cfg(target_os = "linux")]
mod event_fd {
    use rustix::event::{EventfdFlags, eventfd};
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    #[derive(Debug)]
    pub(super) struct EventFd(pub(super) OwnedFd);

    impl EventFd {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn write(&self) {
            // The write could only fail after 2^64 - 1 unread writes.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        /// Reads the descriptor. Returns false if the descriptor was not readable.
        pub(super) fn read(&self) -> bool {
            rustix::io::read(&self.0, &mut [0; 8]).is_ok()
        }

        pub(super) fn descriptor(&self) -> Option<i32> {
            Some(self.0.as_raw_fd())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod event_fd {
    use std::io;

    #[derive(Debug)]
    pub(super) struct EventFd;

    impl EventFd {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn write(&self) {}

        pub(super) fn read(&self) -> bool {
            true
        }

        pub(super) fn descriptor(&self) -> Option<i32> {
            None
        }
    }
}

use event_fd::EventFd;

#[cfg(test)]
mod tests {
    //! The steps above as a state machine, whose interleavings are all explored, and their effect on the descriptor.

    use super::Notifier;
    use crate::interleavings::explore;

    #[cfg(target_os = "linux")]
    fn is_readable(notifier: &Notifier) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let super::EventFd(fd) = &notifier.event_fd;
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_entry_that_is_pushed_during_a_clear_is_signalled() {
        let notifier = Notifier::new().unwrap();
        notifier.signal();
        assert!(is_readable(&notifier));
        notifier.clear(|| true);
        assert!(!is_readable(&notifier));
        // The entry was pushed before step c2, so its signal finds the flag set.
        notifier.signal();
        notifier.clear(|| false);
        assert!(is_readable(&notifier));
        // The entry is pushed after step c2, so its signal finds the flag unset, and writes.
        notifier.clear(|| {
            notifier.signal();
            true
        });
        assert!(is_readable(&notifier));
    }

    /// The protocol of this module, and variants that have one fault each. The exploration of all interleavings must
    /// find each fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Variant {
        /// The protocol without a fault.
        Right,
        /// The fault: `clear` unsets `is_signalled` before it reads the descriptor.
        FlagBeforeRead,
        /// The fault: `clear` does not call `is_empty` at its end.
        NoRecheck,
        /// The fault: `clear` does not read the descriptor, so the descriptor stays readable.
        NoRead,
        /// The fault: a poll that puts an entry back into the queue does not call `signal`.
        NoSignalOfReturn,
        /// The fault: `acknowledge` unsets `is_signalled` although the descriptor was not readable.
        UnsetWithoutRead,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        queue: u8,
        is_signalled: bool,
        readable: bool,
        threads: Vec<Thread>,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Thread {
        at: Step,
        /// The operations that the thread has yet to begin, in reverse order: the thread begins the last element first.
        rest: Vec<Operation>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Operation {
        Push,
        Poll,
        /// A poll that takes an entry out of the queue, and puts it back because it has run the entry's job only in
        /// part.
        PollInPart,
        /// The turn of an event loop: a call of `acknowledge`, and then a look at the work that waits.
        Turn,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Step {
        Idle,
        SetFlag,
        Write,
        Pop,
        Take,
        Return,
        Read,
        UnsetFlag,
        Recheck,
        Acknowledge,
        UnsetByTurn,
        Look,
    }

    fn step(world: &mut World, index: usize, variant: Variant) -> bool {
        use Step::*;
        let thread = &mut world.threads[index];
        thread.at = match thread.at {
            Idle => match thread.rest.pop() {
                None => return false,
                Some(Operation::Push) => {
                    world.queue += 1;
                    SetFlag
                }
                Some(Operation::Poll) => Pop,
                Some(Operation::PollInPart) => Take,
                Some(Operation::Turn) if world.is_signalled => Acknowledge,
                Some(Operation::Turn) => Look,
            },
            SetFlag => {
                if std::mem::replace(&mut world.is_signalled, true) {
                    Idle
                } else {
                    Write
                }
            }
            Write => {
                world.readable = true;
                Idle
            }
            Take if world.queue == 0 => Idle,
            Take => {
                world.queue -= 1;
                Return
            }
            Return => {
                world.queue += 1;
                if variant == Variant::NoSignalOfReturn { Idle } else { SetFlag }
            }
            Pop if world.queue > 0 => {
                world.queue -= 1;
                Pop
            }
            Pop if variant == Variant::FlagBeforeRead => UnsetFlag,
            Pop => Read,
            Read => {
                world.readable &= variant == Variant::NoRead;
                if variant == Variant::FlagBeforeRead { Recheck } else { UnsetFlag }
            }
            UnsetFlag => {
                world.is_signalled = false;
                match variant {
                    Variant::FlagBeforeRead => Read,
                    Variant::NoRecheck => Idle,
                    _ => Recheck,
                }
            }
            Recheck if world.queue > 0 => SetFlag,
            Recheck => Idle,
            Acknowledge if std::mem::take(&mut world.readable) || variant == Variant::UnsetWithoutRead => {
                UnsetByTurn
            }
            Acknowledge => Look,
            UnsetByTurn => {
                world.is_signalled = false;
                Look
            }
            Look => {
                world.queue = 0;
                Idle
            }
        };
        true
    }

    /// The findings in all final states. In a final state, each thread has finished all its operations.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Endings {
        /// Whether there is a final state in which the queue has entries, but the descriptor is not readable.
        unsignalled: bool,
        /// Whether the descriptor stays readable although the queue is empty. To check this, one more poll or one more
        /// turn of the loop runs in each final state.
        stuck: bool,
        /// The number of states that were explored, final or not.
        worlds: usize,
    }

    /// Explores all states that four threads can reach: two threads push entries, and two threads poll. In each final
    /// state, one more poll runs.
    fn endings(variant: Variant) -> Endings {
        use Operation::*;
        let thread = |rest: &[Operation]| Thread { at: Step::Idle, rest: rest.to_vec() };
        let threads =
            vec![thread(&[Push, Push]), thread(&[Push]), thread(&[PollInPart, Poll]), thread(&[Poll, Poll])];
        let start = World { queue: 0, is_signalled: false, readable: false, threads };
        let mut endings = Endings::default();
        let step = |world: &mut World, thread| step(world, thread, variant);
        endings.worlds = explore(start, 4, step, |mut world| {
            endings.unsignalled |= world.queue > 0 && !world.readable;
            world.threads[0].rest = vec![Poll];
            while step(&mut world, 0) {}
            endings.stuck |= world.queue == 0 && world.readable;
        });
        endings
    }

    /// Explores all states that three threads can reach: two threads push entries, and the third runs the turns of an
    /// event loop. In each final state, the loop runs one more turn.
    fn endings_of_turns(variant: Variant) -> Endings {
        use Operation::*;
        let thread = |rest: &[Operation]| Thread { at: Step::Idle, rest: rest.to_vec() };
        let threads = vec![thread(&[Push, Push]), thread(&[Push, Push]), thread(&[Turn, Turn, Turn])];
        let start = World { queue: 0, is_signalled: false, readable: false, threads };
        let mut endings = Endings::default();
        let step = |world: &mut World, thread| step(world, thread, variant);
        endings.worlds = explore(start, 3, step, |mut world| {
            endings.unsignalled |= world.queue > 0 && !world.readable;
            world.threads[2].rest = vec![Turn];
            while step(&mut world, 2) {}
            endings.stuck |= world.readable;
        });
        endings
    }

    #[test]
    fn a_turn_sees_what_was_signalled_and_leaves_no_descriptor_readable() {
        let endings = endings_of_turns(Variant::Right);
        assert!(endings.worlds > 500, "{endings:?}");
        assert!(!endings.unsignalled && !endings.stuck, "{endings:?}");
        assert!(endings_of_turns(Variant::UnsetWithoutRead).stuck);
    }

    #[test]
    fn no_entry_is_left_without_a_signal_in_any_interleaving() {
        let endings = endings(Variant::Right);
        assert!(endings.worlds > 10_000, "{endings:?}");
        assert!(!endings.unsignalled && !endings.stuck, "{endings:?}");
    }

    #[test]
    fn the_wrong_protocols_are_caught() {
        assert!(endings(Variant::NoRecheck).unsignalled);
        assert!(endings(Variant::NoSignalOfReturn).unsignalled);
        assert!(endings(Variant::NoRead).stuck);
        let wrong_order = endings(Variant::FlagBeforeRead);
        assert!(wrong_order.unsignalled, "{wrong_order:?}");
    }
}
