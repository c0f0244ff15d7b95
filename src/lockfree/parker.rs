//! The sleep of a shard, and the rule by which producers wake it.
//!
//! A shard serves several engines. Each engine's part of the shard, its *station*, has a parker, and the shard itself
//! has one more. The shard's leader (the thread that runs the shard at present) announces its sleep on all these
//! parkers, with one fence, and parks once. So an engine that ends closes its own parkers only, and a producer reads
//! its own engine's parker only.
//!
//! If a producer's ticket is due before the shard would wake by itself, the producer must wake the shard. Otherwise it
//! must not. If several producers must wake the shard, only the first should pay for the wake-up. One word holds the
//! end of the shard's sleep, and each producer compares its deadline with that word.
//!
//! # Layout
//! ```text
//! wake_at    0                the shard is awake and will look at its lanes before it sleeps
//!            1                a loop looks at its lanes in its next turn, whatever the time
//!            nanoseconds      the shard sleeps, or is about to; a deadline before this moment is earlier
//!            u64::MAX - 1     it sleeps until it is woken
//!            u64::MAX         closed: the engine takes no more timers
//! ```
//!
//! # Invariants
//! K1. Between a push and the moment when the pushed ticket is due, the shard looks at its lanes at least once.
//!
//! The shard announces its sleep, fences, and drains its lanes once more. It sleeps only if no ticket that it found is
//! earlier than the announced moment ([`sleep`]). The producer pushes, fences, and reads the word. The two fences are
//! ordered (`barrier`), which leaves two cases:
//! - Case A, the producer's fence is first: the drain after the shard's fence sees the ticket.
//! - Case B, the shard's fence is first: the producer reads the announced word or a later word. If the ticket is
//!   earlier, the producer removes the announcement by a CAS and unparks the shard. If the CAS fails, another producer
//!   has just removed the announcement, or the shard woke and will look at its lanes before it sleeps again.
//!
//! K4. A *nap* is a sleep of a millisecond at most, and ends no later than the next tick begins. If a ticket is pushed
//!     during a nap for a moment that has not come, the ticket is due at the end of the nap or later.
//!
//! So a shard that naps looks at its lanes in time without the fence ([`nap`]). The shard announces the nap all the
//! same, and threads that see the announcement wake the shard as usual. They wake it for a ticket whose moment has
//! passed, a full lane, a sweep, a joining station, or a closing. If both sides miss each other, the shard finds the
//! change at the end of the nap, a millisecond later at most. The next sleep that is not a nap has its fence and its
//! last look, so no ticket is missed for longer. A shard whose clock moves only in steps does not nap.
//!
//! # Rest
//! A station that has had nothing to do for some turns *rests* (`shard::resting`). Its parker announces a moment of its
//! own, and keeps the announcement while the shard's leader turns other stations and sleeps. K1 holds by the same two
//! cases; the fence and the drain happen when the station is laid to rest. If a thread has work for the station, it
//! puts the station's *call* (`calls`) out, by which the leader finds the station.
//!
//! K5. Suppose that the word of a resting station is no longer the announced moment. Then the station's call is out, or
//!     the thread that took the moment away is about to put the call out. That thread wakes the shard afterwards.
//!
//! The thread puts the call out before it takes the moment away. So if another thread finds the moment gone, the call
//! is out, and the leader finds the station in its next turn even before the wake. The thread puts the call out once
//! more afterwards. Otherwise the leader might take the first call in, turn the station, and lay it to rest again for
//! an equal moment. Then the thread would take that new moment away without a call.
//!
//! # Loops
//! The leader of a shard may be a loop of the program, which sleeps in a poll of its own (`shard::loop_shard`). The
//! loop's announcement stands while the loop polls and while it handles its events. The word is the moment at which the
//! loop looks at its lanes at the latest. A producer with an earlier ticket *lowers* the word to the ticket's deadline,
//! and wakes the loop, which then reads the word. So the loop pays for a fence only when it raises the word again. The
//! loop's own thread lowers the word like other threads. It need not wake the loop, unless the loop is a task that
//! waits already.
//!
//! The same fences serve the shutdown. The shutdown closes the word, fences, and collects every armed timer. If the
//! shutdown misses the timer of a scheduling thread, that thread reads the closed word and takes its own timer back.
//!
//! # Transitions
//! | operation  | from -> to                 | otherwise                         |
//! |------------|----------------------------|-----------------------------------|
//! | `announce` | awake -> moment              | closed: false                     |
//! | `withdraw` | moment -> awake              | awake, closed: nothing            |
//! | `notify`   | later moment -> awake, unpark| awake, earlier: nothing; closed: `Closed` |
//! | `notify`, of a loop | later moment -> the deadline, wake | as above          |
//! | `lower`    | later moment -> a moment     | awake, earlier, closed: nothing   |
//! | `rest`     | awake -> moment              | closed: false                     |
//! | `close`    | any -> closed, unpark      |                                   |
//!
//! # Synchronisation
//! | pair | one side                 | other side                | ruled out         | model |
//! |------|--------------------------|---------------------------|-------------------|-------|
//! | F1   | `announce` or `rest`, then a drain | a push, then `notify` | both miss   | `shard::push_races_with_sleep`, `parker::push_races_with_park`, `calls::a_push_races_with_rest` |
//! | F2   | `close`, then collect    | arm, push, then `notify`  | both miss         | `shutdown::schedule_races_with_shutdown` |
//! | K3   | a push, then `wake` of a loop | the loop's `withdraw`, then a drain | a look at the lowered moment that misses the ticket | `looped::push_lowers_the_word` |
//! | K2   | the sleeper's number, then `announce` | `wake`, `close`           | an announcement without a thread to unpark | `parker::an_announcement_brings_its_thread` |

use crate::base::sync::{AtomicU64, Ordering, StdArc, park_timeout, thread};
use crate::base::tick::{TickLength, Timestamp};
use crate::lockfree::barrier::Barrier;
use crate::lockfree::calls::{Call, Calls};
use crate::lockfree::roster::Roster;
use core::time::Duration;
use crossbeam_utils::CachePadded;

const AWAKE: u64 = 0;
/// The word by which an event loop announces that it drains its lanes (threads' queues) in its next turn, at any time.
const AT_ONCE: u64 = 1;
const UNTIL_WOKEN: u64 = u64::MAX - 1;
const CLOSED: u64 = u64::MAX;
/// The value of `Parker::sleeper` (the number of the sleeping thread) before any thread has slept on the parker, a word
/// for sleeping threads.
const NOBODY: u64 = u64::MAX;

/// The result of notifying a shard about a new ticket (a request to check a timer). It says whether the engine still
/// takes timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Notified {
    /// The engine takes timers. The shard will drain its lanes before the ticket is due.
    Open,
    /// The engine is shut down. The shard may never drain the engine's lanes again.
    Closed,
}

/// The parkers (the words on which a thread sleeps) that announce one sleep of a thread that leads a shard.
pub(crate) trait Parkers {
    /// Calls `visit` for each parker (word on which the thread sleeps) that announces the sleep.
    fn visit(&self, visit: impl FnMut(&Parker));
}

/// A sleep of a thread that several parkers announce. A parker is a word on which the thread sleeps. Each of these
/// parkers can end the sleep.
pub(crate) trait Sleep: Parkers {
    /// Drains the lanes once more. Returns false if a drained ticket is due before the announced end of the sleep (K1).
    fn may_sleep(&mut self) -> bool;

    /// Sleeps by a call of [`park`]. Returns false without sleeping if the announced end of the sleep has come.
    fn park(&mut self) -> bool;
}

/// Lets thread `n` of the roster (the list of sleepers) sleep once. Announces the sleep until `until`, parks if the
/// thread may sleep, and withdraws the announcement. Returns whether the thread slept.
///
/// Another thread may sleep on the same parkers later. A wake-up that was meant for the earlier thread then wakes the
/// later thread for nothing. A needless wake-up is harmless: the later thread drains the lanes again.
pub(crate) fn sleep(sleep: &mut impl Sleep, n: usize, until: Option<Timestamp>) -> bool {
    let slept = announce(sleep, n, until) && sleep.may_sleep() && sleep.park();
    withdraw(sleep);
    slept
}

/// Lets thread `n` take a nap, a sleep of a millisecond at most. Works like [`sleep`], but without the fence and
/// without another drain of the lanes. A missed ticket is due only after the nap (K4).
pub(crate) fn nap(sleep: &mut impl Sleep, n: usize, until: Option<Timestamp>) -> bool {
    let slept = announce_quietly(sleep, n, until) && sleep.park();
    withdraw(sleep);
    slept
}

/// Announces on all `parkers` (words on which the sleeper sleeps) that sleeper `n` of the roster (the list of sleepers)
/// sleeps until `until`. The caller drains the lanes once more afterwards (K1). Returns false if an engine was shut
/// down. Then the caller withdraws the announcements.
pub(crate) fn announce(parkers: &impl Parkers, n: usize, until: Option<Timestamp>) -> bool {
    let announced = announce_quietly(parkers, n, until);
    // Ordering: heavy fence [F1]: the announcements are before the drains that follow.
    Barrier::new().heavy();
    announced
}

/// Passes the heavy fence between two steps of the caller. Before the call, the caller has announced that some stations
/// (engines' parts of the shard) rest. After the call, the caller drains the lanes of these stations.
pub(crate) fn fence_rests() {
    // Ordering: heavy fence [F1]: the announcements are before the drains that follow.
    Barrier::new().heavy();
}

fn announce_quietly(parkers: &impl Parkers, n: usize, until: Option<Timestamp>) -> bool {
    let mut announced = true;
    parkers.visit(|parker| announced &= parker.announce(n, until));
    announced
}

/// Withdraws the announcement of a sleep from all `parkers`, the words on which the thread sleeps.
pub(crate) fn withdraw(parkers: &impl Parkers) {
    parkers.visit(Parker::withdraw);
}

/// Parks the calling thread until another thread changes a parker's word, or for `timeout`. The call may return early,
/// so the caller drains the lanes again.
pub(crate) fn park(sleep: &impl Sleep, timeout: Option<Duration>) {
    let mut is_disturbed = false;
    sleep.visit(|parker| is_disturbed |= parker.is_disturbed());
    if is_disturbed {
        return;
    }
    match timeout {
        Some(timeout) => park_timeout(timeout),
        None => thread::park(),
    }
}

/// Makes the announced sleep of a loop end at `until`, on all `parkers` (words on which the loop sleeps). A parker that
/// announces an earlier moment keeps that moment.
pub(crate) fn lower(parkers: &impl Parkers, until: Timestamp) {
    parkers.visit(|parker| parker.lower(until));
}

/// The moment at which a shard will drain its lanes next. Earlier moments compare as less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    /// The shard drains its lanes in its next turn. The shard is awake or closed, or another thread has asked for a
    /// turn.
    AtOnce,
    /// The shard drains its lanes at this moment, or earlier.
    At(Timestamp),
}

impl Look {
    /// Returns the moment at which the shard drains its lanes. The moment is the start of the tick at which tickets for
    /// the announced moment are due.
    pub(crate) fn moment(self, tick: TickLength) -> Timestamp {
        match self {
            Self::AtOnce => Timestamp::ZERO,
            Self::At(moment) => tick.start_of(tick.due_tick(moment)),
        }
    }

    /// Returns by how much the shard is late to drain its lanes at the moment `now`. Returns zero for
    /// [`AtOnce`](Self::AtOnce).
    pub(crate) fn overdue(self, tick: TickLength, now: Timestamp) -> Duration {
        match self {
            Self::At(_) => now - self.moment(tick),
            Self::AtOnce => Duration::ZERO,
        }
    }
}

/// Connects the parker (the word on which a thread sleeps) of a station to its shard. Through it, a producer calls the
/// resting station and wakes the shard's leader.
#[derive(Debug)]
struct Door {
    call: StdArc<Call>,
    calls: StdArc<Calls>,
    shard: StdArc<Parker>,
}

/// The word that announces until when a shard sleeps. A producer compares its deadline with the word, to decide whether
/// to wake the shard.
#[derive(Debug)]
pub(crate) struct Parker {
    wake_at: CachePadded<AtomicU64>,
    barrier: Barrier,
    roster: StdArc<Roster>,
    /// The number of the thread that sleeps on this parker (the word on which a thread sleeps). The roster lists
    /// threads by these numbers.
    sleeper: AtomicU64,
    /// The connection by which a producer wakes the shard of a resting station, an engine's part of a shard. `None` if
    /// nothing rests on this parker.
    door: Option<Door>,
    unparks: CachePadded<AtomicU64>,
}

impl Parker {
    pub(crate) fn new(roster: StdArc<Roster>) -> Self {
        Self {
            wake_at: CachePadded::new(AtomicU64::new(AWAKE)),
            barrier: Barrier::new(),
            roster,
            sleeper: AtomicU64::new(NOBODY),
            door: None,
            unparks: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Makes the parker of a station. A parker is the word on which a thread sleeps. The station may rest: then the
    /// shard's turns leave it out, see [`rest`](Self::rest).
    pub(crate) fn of_station(roster: StdArc<Roster>, calls: &StdArc<Calls>, shard: &StdArc<Self>) -> Self {
        let (calls, shard) = (StdArc::clone(calls), StdArc::clone(shard));
        Self { door: Some(Door { call: Call::new(), calls, shard }), ..Self::new(roster) }
    }

    /// Returns the number by which the station calls its shard. Returns `None` if the station never rests.
    pub(crate) fn call_number(&self) -> Option<usize> {
        self.door.as_ref().map(|door| door.call.number())
    }

    /// Announces that the shard's leader will drain the lanes of this station at `until`. A call of the station makes
    /// the leader drain its lanes earlier. The caller then passes [`fence_rests`] and drains the lanes once more (K1).
    /// Returns false if the engine was shut down.
    pub(crate) fn rest(&self, until: Option<Timestamp>) -> bool {
        self.announce(usize::MAX, until)
    }

    /// Announces that thread `n` of the roster (the list of sleepers) is going to sleep. Other threads must wake it for
    /// deadlines before `until`. The caller passes a fence afterwards. Returns false if the engine was shut down.
    fn announce(&self, n: usize, until: Option<Timestamp>) -> bool {
        // Ordering: Relaxed [K2]. The announcement hands the number over.
        self.sleeper.store(n as u64, Ordering::Relaxed);
        let until = until.map_or(UNTIL_WOKEN, |until| until.as_nanos().clamp(AT_ONCE + 1, UNTIL_WOKEN));
        // Ordering: Release [K2]. Pairs with `wake` and `close`: the thread that takes the announcement away finds the
        // thread to unpark. The caller's fence orders everything else. A CAS, since it must not overwrite the word of
        // `close`.
        self.wake_at.compare_exchange(AWAKE, until, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Withdraws the announcement of a sleep, because the shard is awake again.
    pub(crate) fn withdraw(&self) {
        // Ordering: Relaxed. A hint for the CAS.
        let mut until = self.wake_at.load(Ordering::Relaxed);
        while until != AWAKE && until != CLOSED {
            // Ordering: Acquire [K3]. Pairs with `wake`: the drain that follows finds the tickets for which a loop's
            // word was lowered. Failure Relaxed: a thread that changed the word since the load either made it awake or
            // closed, and nothing is left to do, or lowered it, and we try again.
            match self.wake_at.compare_exchange(until, AWAKE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(newer) => until = newer,
            }
        }
    }

    /// Makes the announced sleep of a loop end at `until`, because the loop itself has found tickets after the
    /// announcement.
    fn lower(&self, until: Timestamp) {
        let until = until.as_nanos().clamp(AT_ONCE + 1, UNTIL_WOKEN);
        // Ordering: Relaxed. A hint for the CAS.
        let mut word = self.wake_at.load(Ordering::Relaxed);
        while until < word && word != CLOSED {
            // Ordering: Relaxed. The tickets are in the wheel, and only the loop reads them.
            match self.wake_at.compare_exchange(word, until, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(newer) => word = newer,
            }
        }
    }

    /// Returns the moment at which the shard drains its lanes at the latest. Returns `None` if the shard sleeps until
    /// it is woken.
    pub(crate) fn looks_at(&self) -> Option<Look> {
        // Ordering: Relaxed. A loop's own thread reads its own word, or the word of a thread that wakes the loop
        // afterwards (W1 of `roster`). For other threads the result is a hint.
        match self.wake_at.load(Ordering::Relaxed) {
            AWAKE | AT_ONCE | CLOSED => Some(Look::AtOnce),
            UNTIL_WOKEN => None,
            until => Some(Look::At(Timestamp::from_nanos(until))),
        }
    }

    /// Returns whether another thread has removed the announcement of the sleep.
    fn is_disturbed(&self) -> bool {
        // Ordering: Relaxed. If other code on this thread, a clock perhaps, consumed the unpark, then this load sees
        // the stores that the waker made before the unpark.
        matches!(self.wake_at.load(Ordering::Relaxed), AWAKE | CLOSED)
    }

    /// Wakes the shard if it would sleep beyond `deadline`. The caller has pushed a ticket for that deadline.
    #[inline]
    pub(crate) fn notify(&self, deadline: Timestamp) -> Notified {
        // Ordering: light fence [F1, F2]: the push is before the load.
        self.barrier.light();
        // Ordering: Relaxed. The fence orders this load.
        let until = self.wake_at.load(Ordering::Relaxed);
        // Every deadline counts as earlier than `CLOSED`, even the end of time.
        let deadline = deadline.as_nanos().min(CLOSED - 1);
        if deadline < until { self.wake(until, deadline) } else { Notified::Open }
    }

    #[cold]
    fn wake(&self, mut until: u64, deadline: u64) -> Notified {
        // A loop looks at its lanes when it reads the lowered word.
        let next = if self.roster.is_of_loops() { deadline.max(AT_ONCE) } else { AWAKE };
        let mut has_called = false;
        while deadline < until && next < until && until != CLOSED {
            // A thread that finds the announced moment gone relies on this call, so the call comes first (K5).
            has_called |= self.call();
            // Ordering: AcqRel [K2, K3]. Acquire: the number of the thread that announced its sleep. Release: the push
            // of the ticket, for a loop that reads the lowered word. Failure Relaxed: a hint for the retry.
            match self.wake_at.compare_exchange(until, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    // Ordering: Relaxed. A counter.
                    self.unparks.fetch_add(1, Ordering::Relaxed);
                    self.unpark();
                    return Notified::Open;
                }
                Err(newer) => until = newer,
            }
        }
        if has_called {
            // Another thread has taken the announced moment away. That thread may have found the call's flag raised,
            // and woken the shard, before our call was in the list.
            self.unpark();
        }
        if until == CLOSED { Notified::Closed } else { Notified::Open }
    }

    /// Wakes the shard if it sleeps, whatever the announced end of the sleep.
    pub(crate) fn wake_if_asleep(&self) {
        let _ = self.notify(Timestamp::ZERO);
    }

    /// Wakes the shard if it sleeps and `wanted` returns true. Before the call of `wanted`, a fence publishes the
    /// caller's changes (F1).
    pub(crate) fn wake_if_asleep_and(&self, wanted: impl FnOnce() -> bool) {
        // Ordering: light fence [F1]: the caller's changes are before the look.
        self.barrier.light();
        if wanted() {
            self.wake_if_asleep();
        }
    }

    /// Closes the parker's word, so that the engine takes no more timers. Wakes the shard if it sleeps; the shard then
    /// sees the closed word.
    pub(crate) fn close(&self) {
        // Ordering: Acquire [K2]. The number of the thread that announced its sleep. An RMW, so that it sees an earlier
        // announcement.
        self.wake_at.swap(CLOSED, Ordering::Acquire);
        // Ordering: heavy fence [F2]: the closing is before the collection that follows.
        self.barrier.heavy();
        self.unpark();
    }

    /// Closes the parker's word in the child of a fork. Unlike `close`, the method neither fences nor wakes a thread,
    /// because the child has no other thread.
    pub(crate) fn close_in_child(&self) {
        // Ordering: Relaxed. There is one thread.
        self.wake_at.store(CLOSED, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Ordering: Relaxed. A hint; `notify` decides.
        self.wake_at.load(Ordering::Relaxed) == CLOSED
    }

    /// Puts the call of the station, its request for a turn, into the shard's list of calls. Does nothing if the
    /// station never rests. Returns true if the list did not have the call. Then the caller must wake the shard
    /// afterwards.
    fn call(&self) -> bool {
        self.door.as_ref().is_some_and(|door| door.calls.put(&door.call))
    }

    /// Wakes the thread that sleeps on this parker. If the parker belongs to a station, first asks the shard for a turn
    /// of the station. The caller has changed the parker's word before.
    fn unpark(&self) {
        if let Some(door) = &self.door {
            // The call is put out once more: the leader may have taken the earlier call in, and the station may rest
            // again since then (K5).
            door.calls.put(&door.call);
            door.shard.wake_if_asleep();
            return;
        }
        // Ordering: Relaxed [K2]. It is the thread whose announcement was taken away, or a thread that has announced a
        // sleep since.
        let sleeper = self.sleeper.load(Ordering::Relaxed);
        self.roster.wake(usize::try_from(sleeper).unwrap_or(usize::MAX));
    }

    /// Returns the number of times that a producer woke the shard through this parker (the word on which a thread
    /// sleeps).
    pub(crate) fn unparks(&self) -> u64 {
        // Ordering: Relaxed. A counter.
        self.unparks.load(Ordering::Relaxed)
    }
}
