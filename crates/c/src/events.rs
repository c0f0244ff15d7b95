//! What is polled: a queue of events, and of things to be looked at.
//!
//! A one-shot is over when it fires, so its event goes into the queue and comes out of it. A timer and a periodic task live on:
//! they may be armed, disarmed or freed while their event waits, and then it must not come out any more. So the queue has only
//! a *look* at them, at most one each, and their own word says whether there is an event in it, as a ticket and a timer's word
//! do in the engine.
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
//! *fire* is the handler of the engine's timer, on the shard's thread; *poll* is a `tb_poll`. Arm, disarm and free hold the
//! timer's lock, so that the engine's timer gets them in the order in which the word does. Fire and poll do not: a shard
//! never waits for a caller, and an arm that waits for room in a lane does not keep it from making some.
//!
//! # Invariants
//! P1. An event is polled only out of `due`, and each leaves it by one CAS: after an arm, a disarm or a free has returned, no
//!     event of an earlier arming is polled.
//! P2. A word that is `armed(d)` has an arming of the engine for `d`, or an arm that is about to give it one.
//! P3. A word that is `due` has a look in the queue, or somebody is about to put it there or has just taken it out.
//!
//! # Races and their legal endings
//! - arm x fire of an earlier deadline: (a) the fire is first: the arm overwrites `due`. (b) The arm is first: the fire finds a
//!   word whose deadline has not come, and goes; or one that has come, and makes that one due: the fire of its own, which
//!   follows, finds nothing armed. An arming is polled once.
//! - disarm x fire: (a) `due` is withdrawn; (b) the fire finds `idle`. The disarm says "cancelled" both times.
//! - disarm x poll: one CAS wins. (a) The event is withdrawn; (b) it was polled and the disarm says "gone".
//! - fire x poll of a look that is out: the poll clears `queued` before it reads the word, the fire writes the word before it
//!   sets `queued`. Either the poll sees `due`, or the fire puts in a look of its own, which may find nothing.
//! - arm x arm: the one that holds the lock last is in force. Without the lock the word could be one's and the engine's timer the
//!   other's, whose fire would find a deadline that has not come.
//!
//! `tests` goes through all interleavings of two callers, the shard and two polls, and finds an arming lost where the order of
//! the flag and the word is another, and without the lock.
//!
//! # Synchronisation
//! | pair | release side | acquire side | what is handed over |
//! | P2   | arm: the word, then the engine's deadline (a release store) | fire: an acquire fence after the engine has read it | `armed(d)` |
//! | P3   | fire: `queued` | poll: `queued`       | `due(d)`, where no look is pushed |
//!
//! # Progress and cost
//! push and poll are lock-free, O(1) an entry. Nothing bounds the events of one-shots that are not polled.

use crate::annotate;
use crate::bell::Bell;
use crate::delivery::{Target, nanos, tb_event};
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
    bell: Bell,
}

pub(crate) enum Entry {
    /// The event of a one-shot, which is over.
    Shot { target: Target, id: u64, deadline: Timestamp },
    /// The event of a one-shot with a key.
    Keyed { target: Target, deadline: Timestamp, key: Arc<CStr> },
    /// A look at what lives on.
    Look(Arc<dyn Source>),
}

thread_local! {
    /// The keys of the events that this thread polled last.
    static POLLED_KEYS: RefCell<Vec<Arc<CStr>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the key of an event until this thread polls again; false at the very end of a thread, where it has no place any more.
fn keep(key: Arc<CStr>) -> bool {
    POLLED_KEYS.try_with(|keys| keys.borrow_mut().push(key)).is_ok()
}

/// What may have an event.
pub(crate) trait Source: Send + Sync {
    /// Whether a look at it is in the queue.
    fn queued(&self) -> &AtomicBool;

    /// Takes its event.
    fn claim(&self) -> Option<tb_event>;
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: SegQueue::new(), bell: Bell::new()? })
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.queue.push(entry);
        self.bell.ring();
    }

    /// Has `source` looked at, which has an event by now.
    pub(crate) fn look_at(&self, source: Arc<dyn Source>) {
        // Ordering: AcqRel [P3].
        if !source.queued().swap(true, Ordering::AcqRel) {
            self.push(Entry::Look(source));
        }
    }

    /// Fills `room` with events; how many there were.
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
            self.bell.hush(|| self.queue.is_empty());
        }
        filled
    }

    /// Drops what is in the queue. What is looked at has the queue, which must not have it for ever.
    pub(crate) fn clear(&self) {
        while self.queue.pop().is_some() {}
        self.bell.hush(|| self.queue.is_empty());
    }

    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.bell.descriptor()
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
            Self::Look(source) => {
                // Ordering: AcqRel [P3].
                source.queued().swap(false, Ordering::AcqRel);
                source.claim()
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("len", &self.queue.len()).field("bell", &self.bell).finish()
    }
}

#[cfg(test)]
mod tests {
    //! The word of a timer, the flag of its look and the engine's timer, as a machine whose interleavings are all gone through.

    use crate::interleavings::explore;

    /// The protocol, and ways to get it wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Variant {
        Right,
        ClaimedBeforeCleared,
        LookBeforeDue,
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
        // Of a caller, who arms for one deadline after the other; 0 is a disarm.
        Lock,
        Store(u8),
        Tell(u8),
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
        looks: u8,
        is_locked: bool,
        /// What the engine's timer is armed for.
        engine: Option<u8>,
        polled: Vec<u8>,
        threads: [Step; 5],
        deadlines: [Vec<u8>; 2],
    }

    const CALLERS: [usize; 2] = [0, 1];

    fn step(world: &mut World, thread: usize, variant: Variant) -> bool {
        use Step::*;
        let at = world.threads[thread];
        let (claimed_first, look_first) =
            (variant == Variant::ClaimedBeforeCleared, variant == Variant::LookBeforeDue);
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
                Tell(deadline)
            }
            Tell(deadline) => {
                world.engine = (deadline > 0).then_some(deadline);
                world.is_locked = false;
                Lock
            }
            Begin => match world.engine.take() {
                None => return false,
                Some(_) if look_first => Flag,
                Some(deadline) => Publish(deadline),
            },
            Publish(now) => match world.word {
                Word::Armed(deadline) if deadline <= now => {
                    world.word = Word::Due(deadline);
                    if look_first { Begin } else { Flag }
                }
                _ => Begin,
            },
            Flag if std::mem::replace(&mut world.queued, true) => {
                if look_first {
                    Publish(9)
                } else {
                    Begin
                }
            }
            Flag => Push,
            Push => {
                world.looks += 1;
                if look_first { Publish(9) } else { Begin }
            }
            Pop if world.looks == 0 => return false,
            Pop => {
                world.looks -= 1;
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

    /// Whether an arming that was not withdrawn is never polled, in some ending. Each deadline is armed for once.
    fn loses(variant: Variant) -> bool {
        use Step::*;
        let start = World {
            word: Word::Idle,
            queued: false,
            looks: 0,
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
    fn the_wrong_protocols_are_found_out() {
        assert!(loses(Variant::ClaimedBeforeCleared));
        assert!(loses(Variant::LookBeforeDue));
        assert!(loses(Variant::NotLocked));
    }
}
