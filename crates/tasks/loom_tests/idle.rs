//! Races of an idle connection's touches, its expiry and its removal: the timer, the lock of the map, and the word that
//! contains the state of the connection.
//!
//! | weakened | models that go red |
//! |----------|--------------------|
//! | L1: `is_live_after_arming` without its fence | `a_touch_races_with_the_expiry`, `two_touches_race_with_the_expiry` |
//! | `expire` does nothing | `a_touch_races_with_the_expiry` |
//! | `may_be_removed` is always true | `a_touch_races_with_the_expiry` |
//! | `is_touched` expires nothing | `a_touch_races_with_the_expiry` |
//! | `is_touched` does not check the state | `a_touch_races_with_the_expiry`, `two_touches_race_with_the_expiry` |
//! | `take_out` ends nothing | the two models above |
//!
//! A touch and a removal use the shipped `Life`, which makes their decisions. The timer is a word that promises only as
//! much as `Base::try_arm_at` and `Timer::arm_at` document: an arming that comes after a run sees everything that
//! happened before the end of that run. The engine's own models show that the shipped timer keeps this promise
//! (`after_run`). The map is a lock around one connection's place. The shipped map sleeps on a lock of the system,
//! which loom does not have.
//!
//! No model reads the deadline of a connection. This race has a test,
//! `a_connection_that_has_no_deadline_any_more_cannot_be_removed`.

use super::model;
use crate::sync::{AtomicU64, ModelledMutex, Ordering, StdArc, thread};
use crate::uses::idle::life::Life;
use tourbillon::Armed;

/// State of the timer: it is armed for the first deadline, which is due.
const DUE: u64 = 1;
/// State of the timer: it is armed for a later deadline.
const LATER: u64 = 2;
const AT_REST: u64 = 3;
const RUNNING: u64 = 4;
/// State of the timer: its handler runs, and it is armed for the later deadline.
const RUNNING_LATER: u64 = 5;

/// The model's replacement for an owned timer. It keeps the promises that the engine makes about such a timer.
struct Timer(AtomicU64);

impl Timer {
    fn arm_later(&self) -> Armed {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            let (next, armed) = match state {
                RUNNING | RUNNING_LATER => (RUNNING_LATER, Armed::Running),
                // The ticket that is queued already suffices: this arming changes nothing.
                LATER => return Armed::Pending,
                _ => (LATER, Armed::Pending),
            };
            match self.0.compare_exchange(state, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return armed,
                Err(newer) => state = newer,
            }
        }
    }

    fn disarm(&self) {
        let disarmed = |state| Some(if state >= RUNNING { RUNNING } else { AT_REST });
        let _ = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, disarmed);
    }

    /// Begins the handler's run for the first deadline. Returns false if the timer was postponed or disarmed.
    fn begin(&self) -> bool {
        self.0.compare_exchange(DUE, RUNNING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn end(&self) {
        let ended = |state| Some(if state == RUNNING_LATER { LATER } else { AT_REST });
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, ended);
    }
}

/// A connection whose timer is armed for [`DUE`].
struct Connection {
    timer: Timer,
    /// Whether the connection is in the map.
    map: ModelledMutex<bool>,
    life: Life,
}

impl Connection {
    fn live() -> StdArc<Self> {
        let (timer, map) = (Timer(AtomicU64::new(DUE)), ModelledMutex::new(true));
        let connection = Self { timer, map, life: Life::new() };
        connection.life.join();
        StdArc::new(connection)
    }

    /// Touches the connection as `Connection::touch_at` does.
    fn touch(&self) -> bool {
        self.life.is_touched(Ok(self.timer.arm_later()), || self.timer.disarm())
    }

    /// Takes the connection out of the map, as `Shared::take_out` does. The model's map has room for one connection.
    fn take_out(&self, may_be: impl FnOnce(&Life) -> bool) -> bool {
        let take = || {
            let mut is_in = self.map.lock().unwrap();
            (*is_in && may_be(&self.life)).then(|| *is_in = false)
        };
        self.life.take_out(take).is_some()
    }

    fn remove(&self) -> bool {
        self.take_out(Life::may_be_removed)
    }

    /// Handles the first deadline as a worker does. Returns whether the callback ran.
    fn expire(&self) -> bool {
        if !self.timer.begin() {
            return false;
        }
        let has_expired = self.take_out(|_| true);
        self.timer.end();
        has_expired
    }
}

/// A touch races with the expiry. Legal endings: (a) the touch returns true, and the callback does not run at the old
/// deadline; (b) the touch returns false, and the callback runs or has run, even if a removal is tried afterwards.
#[test]
fn a_touch_races_with_the_expiry() {
    model("a_touch_races_with_the_expiry", || {
        let connection = Connection::live();
        let timer = StdArc::clone(&connection);
        let expiry = thread::spawn(move || timer.expire());
        let is_alive = connection.touch();
        let is_removed = !is_alive && connection.remove();
        let has_expired = expiry.join().unwrap();
        assert_eq!((has_expired, is_removed), (!is_alive, false));
    });
}

/// Two threads touch while the connection expires. The second thread may find that the first thread has already armed
/// the timer. Then the second thread does not change the timer's state.
#[test]
fn two_touches_race_with_the_expiry() {
    model("two_touches_race_with_the_expiry", || {
        let connection = Connection::live();
        let (timer, other) = (StdArc::clone(&connection), StdArc::clone(&connection));
        let expiry = thread::spawn(move || timer.expire());
        let touch = thread::spawn(move || other.touch());
        let is_alive = [connection.touch(), touch.join().unwrap()];
        let has_expired = expiry.join().unwrap();
        assert!(
            !(has_expired && is_alive.contains(&true)),
            "touched, and expired at the old deadline: {is_alive:?}"
        );
    });
}
