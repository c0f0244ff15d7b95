//! Races of an idle connection's touches, its expiry and its removal: the timer's own protocol, the lock of the map,
//! and the word that contains the state of the connection.
//!
//! | weakened | models that go red |
//! |----------|--------------------|
//! | L1: `is_live_after_arming` without its fence | `two_touches_race_with_the_expiry` |
//! | `expire` does nothing | `a_touch_races_with_the_expiry` |
//! | `may_be_removed` is always true | `a_touch_races_with_the_expiry` |
//! | `is_touched` expires nothing | `a_touch_races_with_the_expiry` |
//! | `is_touched` does not look | `a_touch_races_with_the_expiry`, `two_touches_race_with_the_expiry` |
//! | `take_out` ends nothing | the same two |
//!
//! The decisions of a touch and of a removal are made by the shipped `Life`. The map is a lock around one place: the
//! shipped map sleeps on a lock of the system, which loom does not have.
//!
//! A look at the deadline has no model: loom did not order its load after the start of the run. It has a test,
//! `a_connection_that_has_no_deadline_any_more_cannot_be_removed`.

use super::model;
use crate::slab::{Magazines, Slab};
use crate::state::owned::{AfterRun, Arm, Begin, Check, Owned};
use crate::sync::{ModelledMutex, StdArc, thread};
use crate::tick::Timestamp;
use crate::timer::{ArmError, Armed};
use crate::uses::idle::life::Life;

/// Deadlines in units that the state distinguishes.
const DUE: Timestamp = Timestamp::from_nanos(20 << 20);
const LATER: Timestamp = Timestamp::from_nanos(30 << 20);

/// A connection whose timer is armed for [`DUE`].
struct Connection {
    slab: Slab<u32>,
    index: u32,
    /// Whether the connection is in the map.
    map: ModelledMutex<bool>,
    life: Life,
}

impl Connection {
    /// The connection, and the stamp of its timer's ticket.
    fn live() -> (StdArc<Self>, u32) {
        let slab = Slab::new(2, Timestamp::ZERO);
        let index = Magazines::new().take(slab.slots()).unwrap();
        // SAFETY: the magazine gave the vacant slot.
        unsafe { slab.write(index, 7) };
        slab.slots().owned(index).own();
        let connection = StdArc::new(Self { slab, index, map: ModelledMutex::new(true), life: Life::new() });
        let Arm::Queue { stamp, .. } = connection.arm(DUE) else { unreachable!("it is at rest") };
        connection.life.join();
        (connection, stamp)
    }

    fn timer(&self) -> Owned<'_> {
        self.slab.slots().owned(self.index)
    }

    fn arm(&self, deadline: Timestamp) -> Arm {
        if self.timer().postpone(deadline) {
            return Arm::Pending;
        }
        self.timer().queue(deadline)
    }

    /// Touches the connection as `Connection::touch_at` does.
    fn touch(&self) -> bool {
        let armed = match self.arm(LATER) {
            Arm::Pending | Arm::Queue { .. } => Ok(Armed::Pending),
            Arm::Running => Ok(Armed::Running),
            Arm::Shut => Err(ArmError::ShutDown),
            Arm::Dropped => Err(ArmError::Dropped),
        };
        self.life.is_touched(armed, || {
            let _ = self.timer().disarm();
        })
    }

    /// Takes the connection out as `Shared::take_out` does, from a map with one place.
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

    /// Handles the ticket at [`DUE`] as a shard and a worker do. Returns whether the callback ran.
    fn expire(&self, stamp: u32) -> bool {
        if !self.timer().begin_check(stamp) {
            return false;
        }
        self.slab.slots().barrier().heavy();
        if self.timer().check(stamp, DUE, |deadline| deadline) != Check::Due {
            return false;
        }
        match self.timer().begin(stamp, DUE) {
            Begin::Run { .. } => {
                let has_expired = self.take_out(|_| true);
                assert_ne!(self.timer().end().then, AfterRun::Free);
                has_expired
            }
            _ => false,
        }
    }
}

/// Legal endings: (a) the touch returns true, and the callback does not run at the old deadline; (b) the touch returns
/// false, and the callback has run or runs, whatever a removal tries afterwards.
#[test]
fn a_touch_races_with_the_expiry() {
    model("a_touch_races_with_the_expiry", || {
        let (connection, stamp) = Connection::live();
        let timer = StdArc::clone(&connection);
        let expiry = thread::spawn(move || timer.expire(stamp));
        let is_alive = connection.touch();
        let is_removed = !is_alive && connection.remove();
        let has_expired = expiry.join().unwrap();
        assert_eq!((has_expired, is_removed), (!is_alive, false));
    });
}

/// Two threads touch: the second one may find the timer armed by the first, and then needs no change of the timer's
/// state.
#[test]
fn two_touches_race_with_the_expiry() {
    model("two_touches_race_with_the_expiry", || {
        let (connection, stamp) = Connection::live();
        let (timer, other) = (StdArc::clone(&connection), StdArc::clone(&connection));
        let expiry = thread::spawn(move || timer.expire(stamp));
        let touch = thread::spawn(move || other.touch());
        let is_alive = [connection.touch(), touch.join().unwrap()];
        let has_expired = expiry.join().unwrap();
        assert!(
            !(has_expired && is_alive.contains(&true)),
            "touched, and expired at the old deadline: {is_alive:?}"
        );
    });
}
