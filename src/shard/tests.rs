//! Tests of a station at a shard without a thread. The tests turn the station when it asks for a turn, and count these
//! turns.

use super::output::Output;
use super::sleep::Next;
use super::{Presence, Station, StationShared};
use crate::base::sync::{AtomicU64, Mutex, Ordering, StdArc};
use crate::base::tick::{TickLength, Timestamp};
use crate::base::ticket::{Insertion, TimerId};
use crate::dispatch::{Batch, Dispatcher, Fire, Workers};
use crate::lockfree::roster::Roster;
use crate::lockfree::slab::{Magazines, Slots};
use crate::lockfree::state::{Cancel, Claim};

const MS: u64 = 1_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * MS)
}

struct Count {
    dispatcher: Dispatcher,
    slots: StdArc<Slots>,
    fired: AtomicU64,
    deadlines: Mutex<Vec<Timestamp>>,
}

impl Fire for Count {
    fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most
                && let Some((ticket, _)) = chunk.take()
            {
                called += 1;
                if let Claim::Won { deadline, .. } =
                    self.slots.control(ticket.index()).claim(ticket.stamp(), chunk.handed_over())
                {
                    self.fired.fetch_add(1, Ordering::Relaxed);
                    self.deadlines.lock().unwrap().push(deadline);
                }
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

struct Rig {
    station: Station,
    slots: StdArc<Slots>,
    magazines: Magazines,
    lane: crate::lockfree::inbox::LaneWriter,
    fire: StdArc<Count>,
}

impl Rig {
    fn new() -> Self {
        Self::with(Dispatcher::Inline)
    }

    fn with(dispatcher: Dispatcher) -> Self {
        let (shared, slots) = (
            StdArc::new(StationShared::new(1 << 16, &Roster::new(1))),
            StdArc::new(Slots::new(1 << 16, Timestamp::ZERO)),
        );
        let lane = shared.inbox.register();
        let fire = StdArc::new(Count {
            dispatcher,
            slots: StdArc::clone(&slots),
            fired: AtomicU64::new(0),
            deadlines: Mutex::default(),
        });
        let engine: StdArc<dyn Fire> = StdArc::<Count>::clone(&fire);
        let time = (TickLength::from_nanos(MS), Timestamp::ZERO);
        let station = Station::new(0, (engine, &Presence::of(1)), shared, StdArc::clone(&slots), time);
        Self { station, slots, magazines: Magazines::new(), lane, fire }
    }

    fn schedule(&mut self, deadline: Timestamp) -> TimerId {
        let index = self.magazines.take(&self.slots).unwrap();
        let (id, stamp) = self.slots.control(index).arm(index, deadline);
        self.lane.push(Insertion { deadline, index, stamp });
        id
    }

    fn cancel(&mut self, id: TimerId) {
        assert_eq!(self.slots.control(id.index()).cancel(id), Cancel::Won);
        self.magazines.put(&self.slots, id.index());
    }

    /// Turns the tested station (an engine's part of a shard) at `now` until the shard would sleep. Returns the end of
    /// that sleep.
    fn turn(&mut self, now: Timestamp) -> Timestamp {
        loop {
            if let Next::Sleep(wake) = self.station.turn(now, &mut Output::default()) {
                return wake.map_or(Timestamp::MAX, |wake| wake.at);
            }
        }
    }

    /// Turns the station at `wake` and at each later moment that it asks for, until `end`. Returns the number of turns,
    /// and the number of timers that fired.
    fn run(&mut self, mut wake: Timestamp, end: Timestamp) -> (usize, u64) {
        let before = self.fire.fired.load(Ordering::Relaxed);
        let mut turns = 0;
        while wake <= end {
            wake = self.turn(wake);
            turns += 1;
        }
        (turns, self.fire.fired.load(Ordering::Relaxed) - before)
    }
}

/// The leader (the thread that runs the shard) fires a thousand timers of one tick itself. A million timers in two
/// seconds are 500 in a millisecond. If the shard handed them over, two threads would wake.
#[test]
fn a_thousand_timers_of_one_tick_are_left_to_the_leader() {
    for (timers, is_left) in [(1, true), (600, true), (1_024, true), (1_025, false), (5_000, false)] {
        let workers = StdArc::new(Workers::new(1, 1, Roster::new(1)));
        let mut rig = Rig::with(Dispatcher::Own(StdArc::clone(&workers)));
        for _ in 0..timers {
            rig.schedule(at(10));
        }
        rig.turn(at(1));
        let mut out = Output::default();
        let _ = rig.station.turn(at(11), &mut out);
        let own = out.into_own();
        assert_eq!(own.is_some(), is_left, "{timers}");
        match own {
            Some(job) => job.run(),
            None => workers.run_jobs(),
        }
        assert_eq!(rig.fire.fired.load(Ordering::Relaxed), timers);
    }
}

/// A late turn fires the timers with the earliest deadlines first. The turn comes up to three ticks late. Some timers
/// were cancelled, so their deadline words contain links.
#[test]
fn the_longest_due_timers_of_a_turn_fire_first() {
    for (timers, span) in [(700, 4 * MS), (900, MS), (40, MS)] {
        let mut rig = Rig::new();
        let deadline = |n: u64| Timestamp::from_nanos(1_000 * MS + 1 + n * 7_919 % timers * span / timers);
        let ids: Vec<_> = (0..timers).map(|n| rig.schedule(deadline(n))).collect();
        rig.turn(at(1));
        ids.into_iter().step_by(7).for_each(|id| rig.cancel(id));
        rig.turn(Timestamp::from_nanos(1_000 * MS + span));
        let deadlines = rig.fire.deadlines.lock().unwrap();
        assert_eq!(deadlines.len() as u64, timers - timers.div_ceil(7));
        // The parts are 64 at most, and 33 at least.
        let part = core::time::Duration::from_nanos(span / 32);
        let mut last = Timestamp::ZERO;
        for &deadline in &*deadlines {
            last = last.max(deadline);
            assert!(last <= deadline + part, "{timers} timers");
        }
    }
}

#[test]
fn timers_cancelled_in_the_wheel_hardly_wake_their_shard() {
    for spread in [1, 7, 1_000] {
        let mut rig = Rig::new();
        let ids: Vec<_> = (1..=500).map(|n| rig.schedule(at(10 + n * spread))).collect();
        let wake = rig.turn(at(1));
        assert_eq!(wake, at(10 + spread));
        ids.into_iter().for_each(|id| rig.cancel(id));
        let (turns, fired) = rig.run(wake, at(1_000_000));
        assert!(turns <= 5 && fired == 0, "{turns} turns");
        assert_eq!(rig.station.tickets(), 0);
    }
}

#[test]
fn a_live_timer_behind_cancelled_ones_wakes_its_shard_in_time() {
    let mut rig = Rig::new();
    let ids: Vec<_> = (1..=2_000).map(|n| rig.schedule(at(10 + n))).collect();
    let wake = rig.turn(at(1));
    ids.into_iter().enumerate().filter(|(n, _)| n % 500 != 499).for_each(|(_, id)| rig.cancel(id));
    let mut wake = wake;
    for live in [510, 1_010, 1_510, 2_010] {
        let (turns, fired) = rig.run(wake, at(live - 1));
        assert!(turns <= 5 && fired == 0, "{turns} turns");
        wake = at(live);
        assert_eq!(rig.run(wake, at(live)), (1, 1));
    }
}

/// A thread takes a lane (a thread's queue to a shard) over, and then pushes a stale ticket for the slot of a live
/// timer. The live timer still fires.
#[test]
fn a_stale_insertion_behind_a_live_one_takes_nothing_from_it() {
    let mut rig = Rig::new();
    let index = rig.magazines.take(&rig.slots).unwrap();
    let (_, stale) = rig.slots.control(index).arm(index, at(20));
    let Claim::Early { stamp: live, deadline } = rig.slots.control(index).claim(stale, at(1)) else {
        panic!("due at 1 ms");
    };
    for stamp in [live, stale] {
        rig.lane.push(Insertion { deadline, index, stamp });
    }
    assert_eq!(rig.turn(at(1)), at(20));
    assert_eq!(rig.run(at(20), at(20)), (1, 1));
}

/// The shard remembers the deadline of a dropped stale ticket (a request to check a timer). Otherwise it would sleep
/// until it is woken, and each new timer would wake it.
#[test]
fn what_is_dropped_ends_the_sleep_unless_something_does_before() {
    let mut rig = Rig::new();
    let id = rig.schedule(at(250));
    assert_eq!(rig.turn(at(1)), at(250));
    rig.cancel(id);
    assert_eq!(rig.turn(at(2)), at(250));
    assert_eq!(rig.station.tickets(), 0);
    assert_eq!(rig.turn(at(250)), Timestamp::MAX);
}
