//! Races on the last run of an owned timer. A shutdown begins this run to give the payload a last call, its *last
//! word*. A task that waits for the timer is woken by the last word, once, and finds that its engine has ended.
//!
//! `World::shut_down` uses the shipped `shut_running` and `end_with` as `Timers::shut` does.
//!
//! Each row was tried: the named ordering was made `Relaxed` or the step was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | `end_with` says no last word | `a_sleep_races_with_the_last_run`, `run_races_with_the_last_run`, `two_shutdowns_say_one_last_word`, and 5 more |
//! | `end_with` says the last word to a dropped timer | none: the payload still exists, and the woken task no longer waits |
//! | `end_with` lists a timer that was armed during its run, though it is shut | `a_handler_that_arms_races_with_the_last_run` |
//! | `shut_running` runs a timer that runs | `drop_and_fire_race_with_the_last_run`, `run_races_with_the_last_run`, and 2 more |
//! | `shut_running` runs a timer that is shut | `two_shutdowns_say_one_last_word` |
//! | O1: `shut_running` leaves the timer checking | `drop_and_fire_race_with_the_last_run`, `run_races_with_the_last_run`, and 2 more |
//! | O4: `shut_running` leaves the timer queued | `arm_races_with_the_last_run`, and 1 more |
//! | O4: `queue` ignores the shutdown | `a_sleep_races_with_the_last_run`, `arm_races_with_the_last_run`, and 1 more |
//! | O5: `end_with` ignores a drop | `drop_and_fire_race_with_the_last_run`, `drop_races_with_the_last_run`, `make_and_drop_race_with_the_last_run` |
//! | O5: `release` vacates a running timer | the same three |
//! | `end_with` forgets the waiting thread | `who_waits_for_the_last_run_is_told` |
//! | S2: `own` | `make_and_drop_race_with_the_last_run`, `make_races_with_the_last_run` |
//! | S2: `shut_running`'s load | `make_and_drop_race_with_the_last_run` |
//! | S1, S2: `update`'s Acquire | `make_and_drop_race_with_the_last_run` |
//! | S1, S2: `update`'s Release | `drop_races_with_the_last_run`, `run_races_with_the_last_run`, `who_waits_for_the_last_run_is_told`, and 2 more |
//! | S2: `has_run` | `who_waits_for_the_last_run_is_told` |
//! | V1: `with_slot`, from rest and back; `take`, its Acquire and back to rest | `a_sleep_and_its_firing_race_with_the_last_run`, `a_sleep_races_with_the_last_run` |
//! | `end_with`'s load; `update`'s Acquire on failure | none: a CAS comes first |

use super::model;
use super::owned::{DUE, EARLY, LATER, OTHER, OWNER, World, assert_vacant, assert_vacant_in, being_checked};
use super::waker::Task;
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::lockfree::state::owned::{AfterRun, Arm, End, Release, Shut};
use crate::lockfree::waker::WakerCell;
use std::sync::Arc;

/// The outcome of an engine's shutdown for one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The slot had no timer that a handle owns.
    None,
    /// The timer's handler or another shutdown ends the timer, or has ended it.
    Kept,
    /// The timer's handle had been dropped, and the shutdown has freed the timer.
    Free,
    /// The shutdown began and ended the timer's last run. `waited` says whether a thread waited for the end of the last
    /// run.
    Run { waited: bool },
}

impl World {
    /// Shuts the timer down as the engine's shutdown does. `last_word` is the last call to the timer's payload.
    fn shut_down(&self, last_word: impl FnOnce()) -> Ended {
        match self.timer().shut_running() {
            None => Ended::None,
            Some(Shut::Kept) => Ended::Kept,
            Some(Shut::Free) => {
                self.free();
                Ended::Free
            }
            Some(Shut::Run) => {
                let End { waited, then } = self.timer().end_with(last_word);
                if then == AfterRun::Free {
                    self.free();
                }
                Ended::Run { waited }
            }
        }
    }

    /// Asserts that the timer's payload exists and is whole.
    fn assert_has_payload(&self) {
        // SAFETY: O5: the caller is in a run of the timer, which has not ended.
        assert_eq!(
            unsafe { *self.slab.peek(self.index) },
            7,
            "the payload is gone, or not whole, during the last run"
        );
    }
}

/// Counts the calls of the last word, the last call to a timer's payload. During each call, the payload must exist.
#[derive(Default)]
struct Words(std::sync::atomic::AtomicUsize);

impl Words {
    fn say(&self, world: &World) {
        world.assert_has_payload();
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A run of a timer's handler races with the last run, by which a shutdown ends the timer. The last word is the last
/// call to the timer's payload. Legal endings: (a) the timer fires, and the end of its run says the last word; (b) the
/// timer fires, and the shutdown's run says the last word afterwards; (c) the timer does not fire, and the shutdown
/// says the last word. The thread that says the last word sees the handler's effects. No handler runs at that time or
/// afterwards.
#[test]
fn run_races_with_the_last_run() {
    model("run_races_with_the_last_run", || {
        let (world, stamp) = being_checked();
        let (effect, words) = (StdArc::new(AtomicU64::new(0)), Arc::new(Words::default()));
        let (other, written, said) = (StdArc::clone(&world), StdArc::clone(&effect), Arc::clone(&words));
        let worker = thread::spawn(move || {
            let mut seen = None;
            let fired = other.fire_with(
                OTHER,
                stamp,
                DUE,
                || written.store(1, Ordering::Relaxed),
                || {
                    said.say(&other);
                    seen = Some(written.load(Ordering::Relaxed));
                },
            );
            (fired, seen)
        });
        let mut seen_by_shutdown = None;
        let _ = world.shut_down(|| {
            words.say(&world);
            seen_by_shutdown = Some(effect.load(Ordering::Relaxed));
        });
        let (fired, seen_by_worker) = worker.join().unwrap();
        assert_eq!(words.count(), 1, "the last word was not said once: {fired:?}");
        let seen = seen_by_worker.or(seen_by_shutdown);
        assert_eq!(seen, Some(u64::from(fired.is_some())), "the last word missed what the handler did");
        assert_eq!(world.settle(LATER), None, "the timer fired after its last run");
    });
}

/// The drop of a timer's handle races with the last run, by which a shutdown ends the timer. Legal endings: (a) the
/// handle frees the timer, before the last run or after it; (b) the handle is dropped during the last run, whose end
/// frees the timer. The last word (last call to the payload) is said at most once. If the handle is dropped after the
/// shutdown, the last word is said exactly once.
#[test]
fn drop_races_with_the_last_run() {
    model("drop_races_with_the_last_run", || {
        let (world, _) = World::armed(DUE);
        let words = Arc::new(Words::default());
        let (other, said) = (StdArc::clone(&world), Arc::clone(&words));
        let shutdown = thread::spawn(move || other.shut_down(|| said.say(&other)));
        world.drop_handle();
        match shutdown.join().unwrap() {
            Ended::Run { waited: false } => assert!(words.count() <= 1, "the last word was said twice"),
            Ended::None => {
                assert_eq!(words.count(), 0, "the last word was said, though the shutdown found no timer")
            }
            other => panic!("no legal ending: {other:?}"),
        }
        assert_vacant(&world);
    });
}

/// The shutdown, the timer's handle, and the worker that holds the timer race. One of the three frees the payload, and
/// no thread calls the payload afterwards.
#[test]
fn drop_and_fire_race_with_the_last_run() {
    model("drop_and_fire_race_with_the_last_run", || {
        let (world, stamp) = being_checked();
        let words = Arc::new(Words::default());
        let (other, said) = (StdArc::clone(&world), Arc::clone(&words));
        let worker = thread::spawn(move || other.fire_with(OTHER, stamp, DUE, || {}, || said.say(&other)));
        let (third, said) = (StdArc::clone(&world), Arc::clone(&words));
        let shutdown = thread::spawn(move || third.shut_down(|| said.say(&third)));
        world.drop_handle();
        worker.join().unwrap();
        let _ = shutdown.join().unwrap();
        assert!(words.count() <= 1, "the last word was said twice");
        assert_vacant(&world);
    });
}

/// An arming of a timer races with the last run, by which a shutdown ends the timer. Legal endings: (a) the arm comes
/// before the shutdown, and returns `Pending`; (b) the arm returns `Shut`. In both endings the arming is forgotten, and
/// nothing fires.
#[test]
fn arm_races_with_the_last_run() {
    model("arm_races_with_the_last_run", || {
        let (world, stamp) = World::armed(DUE);
        let words = Arc::new(Words::default());
        let (other, said) = (StdArc::clone(&world), Arc::clone(&words));
        let shutdown = thread::spawn(move || other.shut_down(|| said.say(&other)));
        let armed = world.arm(OWNER, EARLY);
        assert!(
            matches!(armed, Arm::Pending | Arm::Shut),
            "the arm neither was acknowledged nor returned the shutdown: {armed:?}"
        );
        assert_eq!(
            shutdown.join().unwrap(),
            Ended::Run { waited: false },
            "the shutdown did not begin the last run, or found a thread that waits for it"
        );
        assert_eq!(
            (words.count(), world.timer().armed_for()),
            (1, None),
            "the last word was not said once, or the arming is in force after it"
        );
        assert_eq!(world.arm(OWNER, LATER), Arm::Shut, "a timer that is shut was armed");
        assert_eq!(
            world.turn(OWNER, stamp, LATER),
            None,
            "the ticket of the first arming fired after the last run"
        );
        assert_eq!(world.settle(LATER), None, "a ticket fired after the last run");
        world.drop_handle();
        assert_vacant(&world);
    });
}

/// A handler arms its own timer while the timer is shut down. The last word is the last call to the payload. Legal
/// endings: (a) the shutdown comes before the handler, which does not run; (b) the shutdown comes during the run, whose
/// end says the last word and forgets the arming; (c) the run has ended with the timer queued again, and the shutdown
/// takes that arming away. The last word is said once, and nothing fires afterwards.
#[test]
fn a_handler_that_arms_races_with_the_last_run() {
    model("a_handler_that_arms_races_with_the_last_run", || {
        let (world, stamp) = being_checked();
        let words = Arc::new(Words::default());
        let (other, said) = (StdArc::clone(&world), Arc::clone(&words));
        let worker = thread::spawn(move || {
            let arms = || {
                let armed = other.arm(OTHER, LATER);
                assert!(
                    matches!(armed, Arm::Running | Arm::Shut),
                    "the arm inside the handler returned neither the run nor the shutdown: {armed:?}"
                );
            };
            other.fire_with(OTHER, stamp, DUE, arms, || said.say(&other));
        });
        let _ = world.shut_down(|| words.say(&world));
        worker.join().unwrap();
        assert_eq!(
            (words.count(), world.timer().armed_for()),
            (1, None),
            "the last word was not said once, or the arming is in force after it"
        );
        assert_eq!(world.settle(LATER), None, "the handler's arming fired after the last run");
        assert_eq!(world.arm(OWNER, LATER), Arm::Shut, "a timer that is shut was armed");
        world.drop_handle();
        assert_vacant(&world);
    });
}

/// A shutdown, and a thread that armed too late, both begin the last run of one timer. Legal ending: only one of the
/// two has the last run, which says the last word.
#[test]
fn two_shutdowns_say_one_last_word() {
    model("two_shutdowns_say_one_last_word", || {
        let (world, _) = World::armed(DUE);
        let words = Arc::new(Words::default());
        let (other, said) = (StdArc::clone(&world), Arc::clone(&words));
        let late = thread::spawn(move || other.shut_down(|| said.say(&other)));
        let ended = [world.shut_down(|| words.say(&world)), late.join().unwrap()];
        assert!(
            ended.contains(&Ended::Run { waited: false }) && ended.contains(&Ended::Kept),
            "both had the last run, or neither: {ended:?}"
        );
        assert_eq!(words.count(), 1, "the last word was not said once");
    });
}

/// A thread waits for a timer's last run, by which a shutdown ends the timer. The wait ends after that run. The thread
/// then sees that the last word, the last call to the payload, was said.
#[test]
fn who_waits_for_the_last_run_is_told() {
    model("who_waits_for_the_last_run_is_told", || {
        let (world, _) = World::armed(DUE);
        let effect = StdArc::new(AtomicU64::new(0));
        let (other, written) = (StdArc::clone(&world), StdArc::clone(&effect));
        let shutdown = thread::spawn(move || other.shut_down(|| written.store(1, Ordering::Relaxed)));
        let mut has_waited = false;
        while effect.load(Ordering::Relaxed) == 0 {
            if let Some(run) = world.timer().await_run() {
                has_waited = true;
                while !world.timer().has_run(run) {
                    thread::yield_now();
                }
                assert_eq!(effect.load(Ordering::Relaxed), 1, "the last run has ended without its word");
            }
            thread::yield_now();
        }
        assert_eq!(
            shutdown.join().unwrap(),
            Ended::Run { waited: has_waited },
            "the end of the run forgot the waiting thread, or woke one that does not wait"
        );
    });
}

/// A timer is made while a shutdown goes through the slots. Legal endings: (a) the shutdown does not find the timer;
/// (b) the shutdown ends the timer by its last run, and finds the payload whole.
#[test]
fn make_races_with_the_last_run() {
    model("make_races_with_the_last_run", || {
        let world = World::vacant();
        let other = StdArc::clone(&world);
        let shutdown = thread::spawn(move || {
            let words = Words::default();
            match other.shut_down(|| words.say(&other)) {
                Ended::None => {
                    assert_eq!(words.count(), 0, "the last word was said, though the shutdown found no timer")
                }
                Ended::Run { waited: false } => {
                    assert_eq!(words.count(), 1, "the last word was not said once")
                }
                ended => panic!("no legal ending: {ended:?}"),
            }
        });
        world.make();
        shutdown.join().unwrap();
        world.drop_handle();
        assert_vacant(&world);
    });
}

/// A timer is made in a slot that was used before. A thread begins a check of the timer and does not end it. The timer
/// is dropped during a shutdown. Legal endings: (a) the shutdown does not find the timer, and the next shutdown frees
/// it; (b) the shutdown frees the timer; (c) the shutdown has begun the last run, and the handle or that run's end
/// frees the timer. The slot is then vacant, in the next generation.
#[test]
fn make_and_drop_race_with_the_last_run() {
    model("make_and_drop_race_with_the_last_run", || {
        let world = World::vacant();
        world.make();
        world.drop_handle();
        let maker = StdArc::clone(&world);
        let makes = thread::spawn(move || {
            maker.make();
            if let Arm::Queue { stamp, .. } = maker.timer().queue(DUE, |deadline| deadline) {
                let _ = maker.timer().begin_check(stamp);
            }
            if maker.timer().release() == Release::Vacated {
                maker.free();
            }
        });
        let shutting = StdArc::clone(&world);
        // The shutdown is on its own thread, and this load is its first access. Otherwise loom would not explore the
        // load.
        let shutdown = thread::spawn(move || shutting.shut_down(|| shutting.assert_has_payload()));
        makes.join().unwrap();
        let _ = shutdown.join().unwrap();
        assert!(
            matches!(world.shut_down(|| ()), Ended::None | Ended::Free),
            "a timer that was dropped was left to its handle, or had a last run"
        );
        assert_vacant_in(&world, 2);
    });
}

/// A task that sleeps on a timer, with the cell that holds the task's waker.
struct Sleeper {
    cell: StdArc<WakerCell>,
    task: Arc<Task>,
}

impl Sleeper {
    fn new() -> Self {
        Self { cell: StdArc::new(WakerCell::new()), task: Arc::new(Task::default()) }
    }

    /// Polls the task's sleep as `Sleep::poll_elapsed` does. `arms` arms the timer. Returns whether the sleep is over.
    fn poll(&self, world: &World, arms: impl FnOnce()) -> bool {
        if self.cell.has_fired_for(DUE) {
            return true;
        }
        self.cell.register(&Arc::clone(&self.task).into());
        arms();
        let is_shut = world.timer().is_shut();
        self.cell.has_fired_for(DUE) || is_shut
    }

    /// Polls the task's sleep, and polls again each time the task was woken. Returns whether the sleep is over.
    fn poll_while_woken(&self, world: &World, arms: impl FnOnce()) -> bool {
        let mut is_over = self.poll(world, arms);
        while !is_over && self.task.woken.swap(false, std::sync::atomic::Ordering::Relaxed) {
            thread::yield_now();
            is_over = self.poll(world, || ());
        }
        is_over
    }
}

/// Shuts down a timer on which a task may sleep. After the timer's last run, wakes that task.
fn shut_down_and_wake(world: &World, cell: &WakerCell) {
    let mut waker = None;
    let _ = world.shut_down(|| waker = cell.take());
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A task's sleep races with the last run, by which a shutdown ends the timer. Legal endings: (a) the task sees that
/// the timer is shut; (b) the task is woken and then sees that the timer is shut.
#[test]
fn a_sleep_races_with_the_last_run() {
    model("a_sleep_races_with_the_last_run", || {
        let (world, _) = World::armed(LATER);
        let sleeper = Sleeper::new();
        let (other, cell) = (StdArc::clone(&world), StdArc::clone(&sleeper.cell));
        let shutdown = thread::spawn(move || shut_down_and_wake(&other, &cell));
        let is_over = sleeper.poll_while_woken(&world, || {
            let _ = world.arm(OWNER, DUE);
        });
        shutdown.join().unwrap();
        assert!(is_over || sleeper.task.is_woken(), "the task waits for ever");
        assert!(world.timer().is_shut(), "the shutdown left the timer open");
    });
}

/// A task's sleep races with the shutdown of its timer, while a worker fires the timer. The shutdown may come during
/// the handler's run or after it.
#[test]
fn a_sleep_and_its_firing_race_with_the_last_run() {
    model("a_sleep_and_its_firing_race_with_the_last_run", || {
        let (world, stamp) = being_checked();
        let sleeper = Sleeper::new();
        let (other, cell) = (StdArc::clone(&world), StdArc::clone(&sleeper.cell));
        let worker = thread::spawn(move || {
            let mut waker = None;
            let wakes = || {
                if let Some(waker) = cell.fire(DUE) {
                    waker.wake();
                }
            };
            other.fire_with(OTHER, stamp, DUE, wakes, || waker = cell.take());
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let (other, cell) = (StdArc::clone(&world), StdArc::clone(&sleeper.cell));
        let shutdown = thread::spawn(move || shut_down_and_wake(&other, &cell));
        let is_over = sleeper.poll_while_woken(&world, || ());
        worker.join().unwrap();
        shutdown.join().unwrap();
        assert!(is_over || sleeper.task.is_woken(), "the task waits for ever");
    });
}
