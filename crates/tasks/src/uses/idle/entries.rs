//! The connections in the map, with their timers.

use super::life::Life;
use super::limits::{Bounds, Expired, Limit, Limits};
use crate::map::LockedMap;
use crate::sync::{Patience, StdArc, Weak};
use crate::task::{Job, Key, Moment, OnDue, TaskCore};
use tourbillon::extend::WhenFull;
use tourbillon::{Armed, Refusal, Timer, Timestamp};

/// The callback for an expired connection.
pub(super) type Callback<I> = dyn Fn(Expired<I>) + Send + Sync;

/// The state of a set of connections with idle limits. The set's clones, its connections and their timers share it.
pub(super) struct Shared<I: Key> {
    pub(super) tasks: TaskCore,
    pub(super) limits: Limits,
    pub(super) connections: LockedMap<I, Link<I>>,
    pub(super) callback: Box<Callback<I>>,
}

/// A connection's entry in the map of connections by id.
pub(super) struct Link<I: Key> {
    pub(super) bounds: Bounds,
    pub(super) end: StdArc<End<I>>,
}

/// A connection's id, state and timer. It is also the timer's handler: when the timer fires, the handler removes the
/// connection from the map and calls the callback. The connection's handle and the map share this value.
pub(super) struct End<I: Key> {
    /// The connection's timer, or the reason why the engine refused it. A connection without a timer never joins the
    /// map.
    pub(super) timer: Result<Timer<Job>, Refusal>,
    pub(super) life: Life,
    /// The moment at which the connection reaches its maximum age.
    last: Timestamp,
    pub(super) id: I,
    shared: Weak<Shared<I>>,
}

impl<I: Key> End<I> {
    pub(super) fn new(
        id: I,
        timer: Result<Timer<Job>, Refusal>,
        last: Timestamp,
        shared: Weak<Shared<I>>,
    ) -> Self {
        Self { timer, life: Life::new(), last, id, shared }
    }

    #[inline]
    pub(super) fn timer(&self) -> Option<&Timer<Job>> {
        self.timer.as_ref().ok()
    }

    /// Arms the connection's timer without waiting, because the caller holds a lock of the map.
    pub(super) fn try_arm_at(&self, tasks: &TaskCore, deadline: Timestamp) -> Result<Armed, Refusal> {
        tasks.try_arm(self.timer.as_ref().map_err(|kind| *kind)?, deadline, WhenFull::Exceed)
    }
}

impl<I: Key> OnDue for End<I> {
    fn on_due(&self, moment: &Moment<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(id) = shared.take_out(self, Patience::Endless, |_| true) else { return };
        let (deadline, lateness) = (moment.deadline, moment.lateness());
        let limit = if deadline >= self.last { Limit::MaxAge } else { Limit::Idle };
        (shared.callback)(Expired { id, limit, deadline, lateness });
    }
}

impl<I: Key> Shared<I> {
    /// Removes the connection with this `end` from the map, and returns the connection's id. Returns `None` if the
    /// connection has left the map before, or if `may_remove` returns false for the connection's state. So if several
    /// threads try to remove a connection, only one thread gets the id. In the child of a fork, a drop has limited
    /// `patience`. The other callers need the answer, so their patience is endless.
    pub(super) fn take_out(
        &self,
        end: &End<I>,
        patience: Patience,
        may_remove: impl FnOnce(&Life) -> bool,
    ) -> Option<I> {
        let is_it = |link: &mut Link<I>| core::ptr::eq(&*link.end, end) && may_remove(&end.life);
        let take = || self.connections.remove_if_unless_lost(patience, &end.id, is_it);
        end.life.take_out(take).map(|(id, _)| id)
    }
}
