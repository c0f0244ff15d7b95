//! The queue of events that `tb_poll` takes.
//!
//! A one-shot has ended when it fires, so the queue holds its event itself. A timer and a periodic task live on: a
//! program may arm, disarm or free them while their event waits, and then that event must not be polled any more. So
//! the queue holds only a *check* for each of them, at most one at a time: a request to read the word of the timer or
//! task. The word says whether there is an event, as a timer's word decides about a ticket in the engine.
//!
//! # The word of a timer
//! ```text
//!            arm                  fire: deadline has come
//!   idle ─────────► armed(d) ───────────────────────────► due(d) ────► idle: an event is polled
//!    ▲                │ ▲└──┐ arm                           │ │ poll
//!    └────────────────┘ └───┼───────────────────────────────┘ │
//!    ▲    disarm, free      ▼             arm                 │
//!    └────────────────────────────────────────────────────────┘ disarm, free
//! ```
//! *fire* is the handler of the engine's timer, on the shard's thread; *poll* is a `tb_poll`. Arm, disarm and free
//! hold the timer's lock, so that the word and the engine's timer take their calls in one order. Fire and poll do not
//! hold the lock: a shard never waits for a caller, and an arm that waits for room in a lane does not keep the shard
//! from making room.
//!
//! # Invariants
//! P1. An event is polled only out of `due`, and each leaves `due` by one CAS: after an arm, a disarm or a free has
//!     returned, no event of an earlier arming is polled.
//! P2. If a word is `armed(d)`, the engine's timer is armed for `d`, or an arm is about to arm it for `d`.
//! P3. If a word is `due`, its check is in the queue, or a thread is about to put the check there or has just taken it
//!     out.
//!
//! # Races and their legal endings
//! - arm x fire of an earlier deadline: (a) The fire is first: the arm overwrites `due`. (b) The arm is first, and the
//!   deadline in the word has not come: the fire returns without a change. (c) The arm is first, and its deadline has
//!   come too: the fire makes the word `due` for that deadline, and the new arming's own fire, which follows, finds
//!   nothing armed. An arming is polled once.
//! - disarm x fire: (a) The disarm withdraws `due`. (b) The fire finds `idle`. Both times the disarm returns
//!   `TB_CANCELLED`.
//! - disarm x poll: one CAS wins. (a) The event is withdrawn. (b) The event was polled, and the disarm returns
//!   `TB_GONE`.
//! - fire x poll of a check that was taken out: the poll clears `queued` before it reads the word, and the fire writes
//!   the word before it sets `queued`. Either the poll sees `due`, or the fire queues a check of its own, which may
//!   find nothing.
//! - arm x arm: the arm that holds the lock last is in force. Without the lock the word could have the deadline of one
//!   arm and the engine's timer that of the other. The fire would then find a deadline that has not come.
//!
//! `tests` explores all interleavings of two callers, the shard and two polls. It finds an arming lost if the order of
//! flag and word is reversed, and if the lock is missing.
//!
//! # Synchronisation
//! | pair | release side | acquire side | what is handed over |
//! | P2   | arm: the word, then the engine's deadline (a release store) | fire: an acquire fence after the engine has read the deadline | `armed(d)` |
//! | P3   | fire: `queued` | poll: `queued`       | `due(d)`, where no check is pushed |
//!
//! # Progress and cost
//! push and poll are lock-free, O(1) an entry. The number of one-shots' events that wait to be polled is not bounded.

use crate::annotate;
use crate::event::{Target, nanos, tb_event};
use crate::notifier::Notifier;
use crossbeam_queue::SegQueue;
use std::cell::RefCell;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tourbillon::Timestamp;

/// The queue of an engine that is polled.
pub(crate) struct Events {
    queue: SegQueue<Entry>,
    notifier: Notifier,
}

pub(crate) enum Entry {
    /// The event of a one-shot, which has ended.
    Shot { target: Target, id: u64, deadline: Timestamp },
    /// The event of a one-shot with a key.
    Keyed { target: Target, deadline: Timestamp, key: Arc<CStr> },
    /// The check of a timer or a task, which lives on.
    Check(Arc<dyn Source>),
}

thread_local! {
    /// The keys of the events that this thread polled last.
    static POLLED_KEYS: RefCell<Vec<Arc<CStr>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the key of an event until this thread polls again. Returns false if the thread is ending: its thread-local
/// storage is gone by then.
fn keep(key: Arc<CStr>) -> bool {
    POLLED_KEYS.try_with(|keys| keys.borrow_mut().push(key)).is_ok()
}

/// A timer or a task that may have an event.
pub(crate) trait Source: Send + Sync {
    /// Whether a check of this source is in the queue.
    fn queued(&self) -> &AtomicBool;

    /// Takes the event of this source, if it has one.
    fn claim(&self) -> Option<tb_event>;
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: SegQueue::new(), notifier: Notifier::new()? })
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.queue.push(entry);
        self.notifier.signal();
    }

    /// Queues a check of `source`, which has an event by now. Does nothing if a check is in the queue already.
    pub(crate) fn queue_check(&self, source: Arc<dyn Source>) {
        // Ordering: AcqRel [P3].
        if !source.queued().swap(true, Ordering::AcqRel) {
            self.push(Entry::Check(source));
        }
    }

    /// Fills `room` with events. Returns the number of events.
    pub(crate) fn poll(&self, room: &mut [MaybeUninit<tb_event>], now: Timestamp) -> usize {
        let mut filled = 0;
        let _ = POLLED_KEYS.try_with(|keys| keys.borrow_mut().clear());
        while let Some(place) = room.get_mut(filled) {
            let Some(entry) = self.queue.pop() else { break };
            if let Some(mut event) = entry.claim() {
                let lateness: Duration = now - Timestamp::from_nanos(event.deadline_ns);
                event.lateness_ns = nanos(lateness);
                annotate::arrived(event.user);
                place.write(event);
                filled += 1;
            }
        }
        if self.queue.is_empty() {
            self.notifier.clear(|| self.queue.is_empty());
        }
        filled
    }

    /// Drops all entries. A source refers to the queue, and its check refers back: the cycle must not keep both for
    /// ever.
    pub(crate) fn drop_all(&self) {
        while self.queue.pop().is_some() {}
        self.notifier.clear(|| self.queue.is_empty());
    }

    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.notifier.descriptor()
    }
}

impl Entry {
    fn claim(self) -> Option<tb_event> {
        match self {
            Self::Shot { target, id, deadline } => Some(target.event(id, deadline, Duration::ZERO, 1)),
            Self::Keyed { target, deadline, key } => {
                let event = target.event(0, deadline, Duration::ZERO, 1);
                let keyed = event.with_key(&key);
                Some(if keep(key) { keyed } else { event })
            }
            Self::Check(source) => {
                // Ordering: AcqRel [P3].
                source.queued().swap(false, Ordering::AcqRel);
                source.claim()
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("len", &self.queue.len()).field("notifier", &self.notifier).finish()
    }
}

#[cfg(test)]
mod tests {
    //! The word of a timer, the flag of its check and the engine's timer as a state machine, whose interleavings are
    //! all explored.

    use crate::interleavings::explore;

    /// The protocol, and ways to get it wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Variant {
        Right,
        ClaimedBeforeCleared,
        CheckBeforeDue,
        NotLocked,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Word {
        Idle,
        Armed(u8),
        Due(u8),
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Step {
        // Of a caller, which arms for one deadline after the other; 0 is a disarm.
        Lock,
        Store(u8),
        ArmEngine(u8),
        // Of the shard.
        Begin,
        Publish(u8),
        Flag,
        Push,
        // Of a poll.
        Pop,
        Clear,
        Claim,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        word: Word,
        queued: bool,
        checks: u8,
        is_locked: bool,
        /// The deadline for which the engine's timer is armed.
        engine: Option<u8>,
        polled: Vec<u8>,
        threads: [Step; 5],
        deadlines: [Vec<u8>; 2],
    }

    const CALLERS: [usize; 2] = [0, 1];

    fn step(world: &mut World, thread: usize, variant: Variant) -> bool {
        use Step::*;
        let at = world.threads[thread];
        let (claimed_first, check_first) =
            (variant == Variant::ClaimedBeforeCleared, variant == Variant::CheckBeforeDue);
        world.threads[thread] = match at {
            Lock if world.is_locked => return false,
            Lock => match world.deadlines[thread].pop() {
                None => return false,
                Some(deadline) => {
                    world.is_locked = variant != Variant::NotLocked;
                    Store(deadline)
                }
            },
            Store(deadline) => {
                world.word = if deadline == 0 { Word::Idle } else { Word::Armed(deadline) };
                ArmEngine(deadline)
            }
            ArmEngine(deadline) => {
                world.engine = (deadline > 0).then_some(deadline);
                world.is_locked = false;
                Lock
            }
            Begin => match world.engine.take() {
                None => return false,
                Some(_) if check_first => Flag,
                Some(deadline) => Publish(deadline),
            },
            Publish(now) => match world.word {
                Word::Armed(deadline) if deadline <= now => {
                    world.word = Word::Due(deadline);
                    if check_first { Begin } else { Flag }
                }
                _ => Begin,
            },
            Flag if std::mem::replace(&mut world.queued, true) => {
                if check_first {
                    Publish(9)
                } else {
                    Begin
                }
            }
            Flag => Push,
            Push => {
                world.checks += 1;
                if check_first { Publish(9) } else { Begin }
            }
            Pop if world.checks == 0 => return false,
            Pop => {
                world.checks -= 1;
                if claimed_first { Claim } else { Clear }
            }
            Clear => {
                world.queued = false;
                if claimed_first { Pop } else { Claim }
            }
            Claim => {
                if let Word::Due(deadline) = world.word {
                    world.word = Word::Idle;
                    world.polled.push(deadline);
                }
                if claimed_first { Clear } else { Pop }
            }
        };
        true
    }

    /// Whether in some ending an arming that was not withdrawn is never polled. Each deadline is used by one arming.
    fn loses(variant: Variant) -> bool {
        use Step::*;
        let start = World {
            word: Word::Idle,
            queued: false,
            checks: 0,
            is_locked: false,
            engine: None,
            polled: Vec::new(),
            threads: [Lock, Lock, Begin, Pop, Pop],
            deadlines: [vec![3, 0, 1], vec![4, 2]],
        };
        let mut loses = false;
        let worlds = explore(
            start,
            5,
            |world, thread| step(world, thread, variant),
            |world| {
                let times = |deadline| world.polled.iter().filter(|&&polled| polled == deadline).count();
                assert!((1..=4).all(|deadline| times(deadline) <= 1), "polled twice: {world:?}");
                assert!(CALLERS.iter().all(|&caller| world.deadlines[caller].is_empty()));
                // The engine's timer has fired, and polls have emptied the queue.
                loses |= world.word != Word::Idle;
            },
        );
        assert!(worlds > 1_000, "{worlds}");
        loses
    }

    #[test]
    fn an_arming_is_polled_once_unless_it_is_withdrawn() {
        assert!(!loses(Variant::Right));
    }

    #[test]
    fn the_wrong_protocols_are_caught() {
        assert!(loses(Variant::ClaimedBeforeCleared));
        assert!(loses(Variant::CheckBeforeDue));
        assert!(loses(Variant::NotLocked));
    }
}
