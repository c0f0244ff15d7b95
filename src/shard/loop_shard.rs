//! A shard that a loop of the program leads: an event loop with its own poll.
//!
//! The loop calls [`turn`](Seat::turn) whenever it is awake, and asks for its [`next_look`](Seat::next_look) before it
//! polls. The loop leads the shard only inside a turn. Between turns the shard's lock is free, so that a shutdown on
//! another thread can take the stations of its engine out. Stations, lanes, wheels and parkers are as at every shard.
//! The difference is in the sleep. A thread that leads a shard announces its sleep, parks, and withdraws the
//! announcement when it wakes. A loop does not park. It makes its announcement at the end of a turn, and the
//! announcement stands over any number of polls, until a turn has something to do.
//!
//! A *word* is the value of a parker: the moment at which the loop looks at its lanes at the latest, or "at once".
//!
//! # States
//! ```text
//!            a turn finds work       the turn is over: announce, fence, look again
//!    asleep ───────────────────► awake ───────────────────────────────────────────► asleep
//!      ▲ │ a ticket is earlier: lower the word, wake the loop
//!      └─┘
//! ```
//! Asleep means that the words of the shard's parkers hold a moment. The loop itself may be in its poll, or handle its
//! events. A turn at which no word is due does nothing.
//!
//! # The threads that touch each part
//! | part | thread |
//! |------|--------|
//! | the lock of the shard, and the stations in it | the loop in a turn; in between, a thread that shuts an engine down, and one that drains its full lane |
//! | the words of the parkers | the loop raises them in a turn; every thread lowers them |
//! | the lane of the loop's own thread | that thread pushes, and drains it in its turns |
//! | the place in the roster | the loop when it comes and goes; a thread that has lowered a word |
//! | the seat | the loop |
//!
//! # Invariants
//! W2. A loop that is asleep looks at its lanes when the first of its words is due. This requires that the program asks
//!     for the next look before each poll, and turns when the poll ends.
//! W3. Only a turn raises a word. The turn announces, passes the heavy fence, and drains the lanes once more (K1 of
//!     `parker`).
//! W4. A thread that lowers a word wakes the loop afterwards, unless the loop runs on that thread. A loop that is a
//!     task of a runtime (`future::turning`) is woken from its own thread, too.
//! W5. A seat knows all stations that are at the shard, or the word of the shard's own parker says "at once". A station
//!     that joins lowers that word. Only a turn raises it (W3), and after the turn the seat knows the stations again.
//!
//! # Races and their legal endings
//! - An arming elsewhere x the next look: (a) the loop reads the lowered word; (b) the loop reads the earlier word, and
//!   is woken out of its poll.
//! - An arming elsewhere x a turn: (a) the turn drains the ticket; (b) the drain after the announcement finds it; (c)
//!   the word is lowered after the announcement, and the loop is woken.
//! - A cancel or a move elsewhere x a turn: the timer's word decides, as with every shard (`state`).
//! - The loop ends x an arming: the ticket stays in its lane, and the timer is pending. The shutdown returns it, or
//!   another loop that takes the place fires it.
//! - The loop moves to another thread x an arming on its former thread: (a) the loop reads the lowered word on its new
//!   thread; (b) the loop is woken on its new thread (W1 of `roster`).
//! - A shutdown x a turn: the shutdown waits for the end of the turn, or the next turn drops the station.
//!
//! # Why a loop has a seat
//! Most turns find nothing due: the loop was woken by a packet. Such a turn, and the look before the poll, need only
//! the words, which the shard's lock does not guard. So the seat keeps references to the words of the last turn's
//! stations, and a turn takes the lock only if there is work. If a station was taken out since the last turn, its word
//! is closed, which reads "at once". The turn that follows drops the reference.
//!
//! # Why the loop's own thread has a lane
//! A loop's own thread could put its tickets straight into the wheel. A lane is cheaper: it is a buffer that no other
//! thread reads, and a push is three stores, without a fence or a locked instruction. Most timers are cancelled before
//! the loop's next look. Their tickets end in the buffer, which is in the cache, and never touch the wheel, which is
//! not in the cache.

use super::Shard;
use super::here;
use super::led::Led;
use super::output::Output;
use super::set::ShardSet;
use super::sleep::{Next, Wake};
use super::station_shared::StationShared;
use crate::base::sync::{StdArc, ThreadKey, this_thread};
use crate::base::tick::Timestamp;
use crate::lockfree::parker::{self, Look, Parker, Parkers};
use core::cell::Cell;
use core::time::Duration;

/// Says whether work is left for an event loop's shard after a turn, one pass of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a loop that has more to do turns again before it waits"]
pub enum LoopLeft {
    /// The turn has handled all due timers.
    Nothing,
    /// The turn's budget is spent, or more work has come during the turn. The loop should turn again soon.
    More,
}

/// The data that a loop's shard keeps between its turns: its number, and the stations (engines' parts of the shard)
/// that the last turn saw.
#[derive(Debug)]
pub(crate) struct Seat {
    index: usize,
    /// The thread that ran the loop last; `None` before the first run.
    runs_on: Cell<Option<ThreadKey>>,
    /// The stations (engines' parts of the shard) after the last turn that had work (W5). `None` if the loop must lock
    /// the shard to read them.
    stations: Option<Vec<StdArc<StationShared>>>,
    /// The moment for which the last turn planned the next turn. `None` if the last turn planned no turn. A planned
    /// moment may lie within a tick; an announced moment does not.
    planned: Option<Timestamp>,
}

impl Seat {
    pub(crate) fn new(index: usize) -> Self {
        Self { index, runs_on: Cell::new(None), stations: None, planned: None }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns the first moment at which the loop has announced that it will drain its lanes, the threads' queues to
    /// it. The inner value is `None` if the loop announced no moment. The outer value is `None` if the caller must lock
    /// the shard to read the announcements.
    fn first_look(&self, shard: &Shard) -> Option<Option<Look>> {
        let stations = self.stations.as_ref()?.iter().map(|station| &station.parker);
        Some(core::iter::once(&*shard.parker).chain(stations).filter_map(Parker::looks_at).min())
    }

    fn is_planned_for(&self, now: Timestamp) -> bool {
        self.planned.is_some_and(|planned| planned <= now)
    }

    /// Stores which stations the shard has after a turn, one pass of the loop.
    fn keep(&mut self, led: &Led) {
        let present = || led.stations.iter().map(|station| &station.shared);
        let is_known = |known: &Vec<StdArc<StationShared>>| {
            known.len() == led.stations.len()
                && known.iter().zip(present()).all(|(a, b)| StdArc::ptr_eq(a, b))
        };
        if !self.stations.as_ref().is_some_and(is_known) {
            self.stations = Some(present().cloned().collect());
        }
    }

    /// Records that the loop runs on the calling thread (W1 of `roster`). Calls `moved` if the loop ran on another
    /// thread before.
    #[inline]
    fn come_here(&self, set: &ShardSet, moved: impl FnOnce()) {
        let here = Some(this_thread());
        if self.runs_on.replace(here) != here {
            set.settings().roster.come_here(self.index);
            moved();
        }
    }

    /// Returns the moment at which the loop must drain its lanes. Returns `None` if the loop may wait until it is
    /// woken. Calls `moved` first if the loop runs on another thread than before. `set` is the set of the loop's shard.
    pub(crate) fn next_look(&self, set: &ShardSet, moved: impl FnOnce()) -> Option<Timestamp> {
        // In the child of a fork, a thread that no longer exists may hold the locks.
        if set.is_forked() {
            return None;
        }
        self.come_here(set, moved);
        let shard = &set.shards()[self.index];
        let first = match self.first_look(shard) {
            Some(first) => first,
            None => Words(shard, &*shard.lead()?).first(),
        };
        let look = first.map(|look| look.moment(set.settings().tick));
        look.into_iter().chain(self.planned).min()
    }

    /// Runs a turn of the loop at `now`. Hands out or moves at most `budget` tickets (requests to check timers) of each
    /// engine. Does nothing if the loop need not drain its lanes yet. [`next_look`](Self::next_look) explains `set` and
    /// `moved`.
    pub(crate) fn turn(
        &mut self,
        set: &ShardSet,
        now: Timestamp,
        budget: usize,
        moved: impl FnOnce(),
    ) -> LoopLeft {
        if set.is_forked() {
            return LoopLeft::Nothing;
        }
        self.come_here(set, moved);
        let is_due = |look: Look| look.moment(set.settings().tick) <= now;
        match self.first_look(&set.shards()[self.index]) {
            Some(first) if !first.is_some_and(is_due) && !self.is_planned_for(now) => LoopLeft::Nothing,
            _ => self.lead_a_turn(set, now, budget),
        }
    }

    fn lead_a_turn(&mut self, set: &ShardSet, now: Timestamp, budget: usize) -> LoopLeft {
        let (n, shard) = (self.index, &set.shards()[self.index]);
        let Some(mut leading) = shard.lead() else {
            self.stations = None;
            shard.bury_if_its_leader_panicked();
            return LoopLeft::Nothing;
        };
        let led = &mut *leading;
        let tick = set.settings().tick;
        let look = Words(shard, led).first().filter(|look| look.moment(tick) <= now);
        if look.is_none() && !self.is_planned_for(now) {
            self.keep(led);
            return LoopLeft::Nothing;
        }
        if let Some(look) = look.filter(|look| look.overdue(tick, now) > Duration::ZERO) {
            led.stalls.hasten(look.moment(tick));
        }
        let _turn = here::begin_turn(set.id());
        self.planned = None;
        parker::withdraw(&Words(shard, led));
        shard.admit_and_dismiss(led);
        led.stalls.begin_turn(now);
        let mut out = Output::with_budget(budget.max(1));
        let next = led.turn(now, &mut out);
        led.stalls.end_turn(now, led.due());
        // This comes before the words are raised (W5).
        self.keep(led);
        let Next::Sleep(wake) = next else { return LoopLeft::More };
        match shard.fall_asleep(led, n, wake) {
            Next::Sleep(wake) => {
                led.stalls.begin_sleep(now, wake.map_or(Timestamp::MAX, |wake| wake.at));
                self.planned = wake.map(|wake| wake.at);
                LoopLeft::Nothing
            }
            Next::Turn => LoopLeft::More,
        }
    }
}

/// The parkers (words that announce the next turn) of a shard that a loop leads, and of the shard's stations.
struct Words<'a>(&'a Shard, &'a Led);

impl Parkers for Words<'_> {
    fn visit(&self, visit: impl FnMut(&Parker)) {
        self.0.parkers(self.1).for_each(visit);
    }
}

impl Words<'_> {
    /// Returns the first moment at which the loop has announced that it will drain its lanes, the threads' queues to
    /// it. Returns `None` if the loop may wait until it is woken.
    fn first(&self) -> Option<Look> {
        self.0.parkers(self.1).filter_map(Parker::looks_at).min()
    }
}

impl Shard {
    /// Announces that the loop `n` sleeps until `wake` (W3). If a ticket that came after the turn is due earlier,
    /// announces that ticket's moment instead. Returns the announced sleep. If there is work for another turn,
    /// withdraws the announcement and returns [`Next::Turn`].
    fn fall_asleep(&self, led: &mut Led, n: usize, wake: Option<Wake>) -> Next {
        let announced = parker::announce(&Words(self, led), n, wake.map(|wake| wake.not_before));
        if announced && !self.has_newcomers() {
            match led.look_again(wake) {
                Next::Sleep(sooner) => {
                    if let Some(sooner) = sooner.filter(|_| sooner != wake) {
                        parker::lower(&Words(self, led), sooner.not_before);
                    }
                    return Next::Sleep(sooner);
                }
                Next::Turn => {}
            }
        }
        parker::withdraw(&Words(self, led));
        Next::Turn
    }
}
