//! A station at rest, and the threads that call it. A station is an engine's part of a shard. At rest, the shard does
//! not look at it until a thread puts the station's call into the shard's list. The models run the shipped
//! `ShardThread::serve`, with a station that rests after each turn.
//!
//! A lost call leaves the shard's thread parked for ever, which loom reports as a deadlock.
//!
//! Each row was tried: the named step was left out of `src`.
//!
//! | left out | model that goes red |
//! |----------|---------------------|
//! | F1: the fence between the rests and the drains (`fence_rests`) | `a_push_races_with_rest`, `a_push_races_with_rest_until_later`, `two_pushes_race_with_two_rests`, `a_wanted_sweep_races_with_rest` |
//! | C5: `put`'s swap without Release, or `take`'s without Acquire | `two_threads_call` |
//! | C6: `put`'s compare-and-swap without Release, or `take`'s swap without Acquire | `two_threads_call`, and all of stations |
//! | C7: `put`'s swap without Acquire, or `take`'s without Release | `a_call_is_put_again`, and others |
//! | C4: the shard sleeps though calls are out | all but the two of two threads |
//! | K5: a thread that links a call, and finds the word gone, does not wake the shard | `two_threads_push_to_one_station_at_rest` |

use super::shard::{AHEAD, DUE, World};
use super::{model, sleep};
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::lockfree::calls::{Call, Calls};
use crate::lockfree::parker::{self, Parker};
use crate::lockfree::roster::Roster;
use crate::lockfree::slab::Magazines;

/// A due timer is pushed while the station (one engine's part of a shard) begins to rest, and the shard goes to sleep.
/// Legal endings: (a) the shard's turn finds the timer; (b) the check after the fence finds the timer, and the station
/// does not rest; (c) the producer calls the station, and the shard's leader (the thread that runs it) finds the call
/// before its sleep; (d) the producer calls the station and wakes the shard.
#[test]
fn a_push_races_with_rest() {
    model("a_push_races_with_rest", || {
        let world = World::that_rests(1);
        let mut lane = world.shared.inbox.register();
        let shard = world.drive();
        world.schedule(&mut lane, &mut Magazines::new(), DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
    });
}

/// A due timer is pushed to a station that has a timer ahead and rests until then. The station is called only for
/// timers that are due earlier. The legal endings are those of `a_push_races_with_rest`.
#[test]
fn a_push_races_with_rest_until_later() {
    model("a_push_races_with_rest_until_later", || {
        let world = World::that_rests(1);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        world.schedule(&mut lane, &mut magazines, AHEAD);
        let shard = world.drive();
        world.schedule(&mut lane, &mut magazines, DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
    });
}

/// A station is called out of its rest, rests again, and is called again.
#[test]
fn two_pushes_race_with_two_rests() {
    model("two_pushes_race_with_two_rests", || {
        let world = World::that_rests(2);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        let shard = world.drive();
        world.schedule(&mut lane, &mut magazines, DUE);
        world.schedule(&mut lane, &mut magazines, DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 2, "a timer was not fired once");
    });
}

/// A station, with the parker and the calls of its shard. Two threads push to the station, and each thread has a word
/// in place of a lane. A shard's leader with a wheel would have too many steps for a model of three threads.
struct Station {
    roster: StdArc<Roster>,
    calls: StdArc<Calls>,
    shard: StdArc<Parker>,
    parker: Parker,
    pushed: [AtomicU64; 2],
}

impl Station {
    fn new() -> StdArc<Self> {
        let (roster, calls) = (Roster::new(1), Calls::new());
        let shard = StdArc::new(Parker::new(StdArc::clone(&roster)));
        let parker = Parker::of_station(StdArc::clone(&roster), &calls, &shard);
        StdArc::new(Self { roster, calls, shard, parker, pushed: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn push(&self, n: usize) {
        self.pushed[n].store(1, Ordering::Relaxed);
        let _open = self.parker.notify(DUE);
    }

    fn drain(&self) -> u64 {
        self.pushed.iter().map(|pushed| pushed.load(Ordering::Relaxed)).sum()
    }

    /// Makes the station rest, and sleeps, until this thread has drained both pushes.
    fn lead(&self) {
        self.roster.enter_current_thread(0);
        let mut is_at_rest = false;
        loop {
            self.calls.take(|_| is_at_rest = false);
            if !is_at_rest {
                self.parker.withdraw();
                let drained = self.drain();
                if drained == 2 {
                    return;
                }
                assert!(self.parker.rest(None));
                parker::fence_rests();
                if self.drain() > drained {
                    continue;
                }
                is_at_rest = true;
            }
            sleep(&self.shard, None, || self.calls.is_empty());
        }
    }
}

/// Two threads push to one station at rest. Legal endings: (a) one thread calls the station, and the other finds that
/// call, or finds that the station no longer rests; (b) the station rests again between the pushes, and both threads
/// call.
#[test]
fn two_threads_push_to_one_station_at_rest() {
    model("two_threads_push_to_one_station_at_rest", || {
        let station = Station::new();
        let leader = StdArc::clone(&station);
        let leader = thread::spawn(move || leader.lead());
        let other = StdArc::clone(&station);
        let other = thread::spawn(move || other.push(1));
        station.push(0);
        other.join().unwrap();
        leader.join().unwrap();
    });
}

/// A thread requests a sweep (the removal of stale tickets) while the station begins to rest. A station is one engine's
/// part of a shard.
#[test]
fn a_wanted_sweep_races_with_rest() {
    model("a_wanted_sweep_races_with_rest", || {
        let world = World::that_rests(1);
        let shard = world.drive();
        world.shared.want_sweep();
        while world.shared.is_sweep_wanted() {
            thread::yield_now();
        }
        world.end();
        shard.join().unwrap();
    });
}

/// An engine is shut down while its station begins to rest. Legal endings: (a) the station cannot announce its rest;
/// (b) the shutdown calls the station, and the shard's leader drops the station. If the station stays, the model
/// reports a deadlock.
#[test]
fn a_closing_races_with_rest() {
    model("a_closing_races_with_rest", || {
        let world = World::that_rests(1);
        let shard = world.drive();
        world.shared.parker.close();
        while world.presence.stations() > 0 {
            thread::yield_now();
        }
        world.set.close();
        shard.join().unwrap();
    });
}

/// Takes all calls that were put, and returns the numbers of the called stations.
fn take(calls: &Calls) -> Vec<usize> {
    let mut numbers = Vec::new();
    calls.take(|number| numbers.push(number));
    numbers
}

/// Two threads put a call for one station while the leader takes calls. Legal endings: (a) the leader has taken one
/// call, and sees the changes of both threads; (b) another call is left, and the leader looks again.
#[test]
fn two_threads_call() {
    model("two_threads_call", || {
        let (calls, call) = (Calls::new(), Call::new());
        let changes = StdArc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let callers = [0, 1].map(|n| {
            let (calls, call, changes) =
                (StdArc::clone(&calls), StdArc::clone(&call), StdArc::clone(&changes));
            thread::spawn(move || {
                changes[n].store(1, Ordering::Relaxed);
                let _ = calls.put(&call);
            })
        });
        let is_called = !take(&calls).is_empty();
        let seen = [0, 1].map(|n: usize| changes[n].load(Ordering::Relaxed));
        for caller in callers {
            caller.join().unwrap();
        }
        let is_called_again = !take(&calls).is_empty();
        assert!(is_called_again || (is_called && seen == [1, 1]), "a change is lost: {seen:?}");
    });
}

/// A thread puts one call, then another call, then the first call again. At the same time, another thread takes calls.
/// The first call is taken exactly once for each put that added it.
#[test]
fn a_call_is_put_again() {
    model("a_call_is_put_again", || {
        let (calls, both) = (Calls::new(), [Call::new(), Call::new()]);
        let list = StdArc::clone(&calls);
        let leader = thread::spawn(move || take(&list));
        let [is_first, _, is_again] = [0, 1, 0].map(|n: usize| calls.put(&both[n]));
        let mut taken = leader.join().unwrap();
        taken.extend(take(&calls));
        let times = taken.iter().filter(|number| **number == both[0].number()).count();
        assert_eq!(times, usize::from(is_first) + usize::from(is_again));
    });
}
