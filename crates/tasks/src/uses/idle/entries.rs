//! The connections in the map, with their timers.

use super::life::Life;
use super::limits::{Bounds, Expired, Limit, Limits};
use crate::map::LockedMap;
use crate::sync::{StdArc, Weak};
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

/// The owner of a connection's timer. The due timer calls its owner, and the connection expires. The connection's
/// handle and the map share the owner.
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
        let Some(id) = shared.take_out(self, |_| true) else { return };
        let (deadline, lateness) = (moment.deadline, moment.lateness());
        let limit = if deadline >= self.last { Limit::MaxAge } else { Limit::Idle };
        (shared.callback)(Expired { id, limit, deadline, lateness });
    }
}

impl<I: Key> Shared<I> {
    /// Removes a connection from the map, if `may_be` allows it. Only the caller that removes the connection gets its
    /// id.
    pub(super) fn take_out(&self, end: &End<I>, may_be: impl FnOnce(&Life) -> bool) -> Option<I> {
        let is_it = |link: &mut Link<I>| core::ptr::eq(&*link.end, end) && may_be(&end.life);
        end.life.take_out(|| self.connections.remove_if(&end.id, is_it)).map(|(id, _)| id)
    }
}
