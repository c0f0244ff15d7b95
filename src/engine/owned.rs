//! Owned timers: creates, arms, disarms and drops them. The protocol of their states is in `state::owned`. The slots,
//! the payloads and the lanes are here.

use super::local::{Local, Slot, lend};
use super::timers::{CANCELS_PER_CHECK, Timers};
use crate::base::error::{ArmError, Refusal, ScheduleError};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::Slots;
use crate::lockfree::state::owned::{AfterRun, Arm, End, Release, Shut, Withdrawn};
use core::task::Waker;

/// A slot that a handle keeps. Until the slot is released, the handle may use the timer's payload.
#[derive(Debug)]
#[must_use]
pub(crate) struct OwnedSlot(u32);

impl OwnedSlot {
    /// The value of a handle whose slot was released: no slot.
    const RELEASED: Self = Self(u32::MAX);

    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.0
    }
}

/// The outcome of an arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Armed {
    /// The timer fires for this deadline, and not before it.
    Pending,
    /// The timer's handler has begun: for an earlier deadline, or for this deadline if it had come already. After a
    /// handler for an earlier deadline has returned, the timer fires again for this deadline.
    Running,
    /// The timer fires for this deadline, but at the shard where it was: that shard was looking at the timer at this
    /// moment. Only calls that choose a shard ([`On::arm_at`](crate::On::arm_at)) return this outcome; a later call
    /// moves the timer.
    Stays,
}

/// Says in which lane the ticket must be when a timer is armed. The ticket tells a shard when to fire the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Anywhere: the present ticket stays, if it comes early enough.
    Any,
    /// In the lane of the shard that the caller names: a new ticket replaces the present ticket.
    Anew,
}

/// The outcome of an arming that does not wait. `None` means that the lane has no room for the ticket that the arming
/// needs. Then the caller waits and calls again, or insists.
pub(crate) type Rearmed = Result<Option<Armed>, ArmError>;

/// The parts of an owned timer that is shut: it can never be armed again. They must be dropped or woken while no lock
/// is held.
#[must_use]
pub(super) struct Remains<T> {
    /// The payload, if the timer's handle was dropped.
    payload: Option<T>,
    /// The waker of a task that waits for the timer, if the handle was not dropped.
    waker: Option<Waker>,
    /// Whether a thread waits for the end of the timer's last run. The run has ended, so that thread must be woken.
    is_awaited: bool,
}

impl<T> Remains<T> {
    const NOTHING: Self = Self { payload: None, waker: None, is_awaited: false };

    /// Returns whether the end of the timer's last run must be announced.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns itself, unless there is nothing to drop or to wake.
    pub(super) fn if_any(self) -> Option<Self> {
        (self.payload.is_some() || self.waker.is_some()).then_some(self)
    }

    /// Returns the payload to drop, and the waker to wake.
    pub(super) fn into_parts(self) -> (Option<T>, Option<Waker>) {
        (self.payload, self.waker)
    }
}

/// Gives a timer another deadline. Returns false if the present ticket comes too late for it. Then the caller must call
/// [`Core::queue`](super::Core::queue).
#[inline(always)]
pub(crate) fn postpone(slots: &Slots, index: u32, deadline: Timestamp) -> bool {
    slots.owned(index).postpone(deadline)
}

#[inline(always)]
pub(crate) fn disarm(slots: &Slots, index: u32) -> Withdrawn {
    slots.owned(index).disarm()
}

impl<T: Send + 'static> Timers<T> {
    /// Takes a slot for a new timer with this payload.
    pub(super) fn create(&self, local: &mut Local, payload: T) -> Result<OwnedSlot, ScheduleError<T>> {
        let index = match local.take_slot(&self.admission) {
            Ok(Slot(index)) => index,
            Err(kind) => return Err(ScheduleError { kind, payload }),
        };
        // SAFETY: I3: the magazine gave us the vacant slot.
        unsafe { self.slab.write(index, payload) };
        self.slots().owned(index).own();
        local.lane.lane().count_created();
        Ok(OwnedSlot(index))
    }

    /// Queues a ticket in the calling thread's lane. With `insist`, queues it even beyond the lane's capacity.
    pub(super) fn queue(&self, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        let mut local = lend(&self.admission);
        self.queue_if_there_is_room(&mut local, index, (deadline, Place::Any), insist)
    }

    /// Queues a ticket in a lane to `shard`, wherever the present ticket is.
    pub(super) fn queue_on(&self, shard: usize, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        lend(&self.admission).on_shard(&self.admission, shard, |local| {
            self.queue_if_there_is_room(local, index, (deadline, Place::Anew), insist)
        })
    }

    fn queue_if_there_is_room(
        &self,
        local: &mut Local,
        index: u32,
        (deadline, place): (Timestamp, Place),
        insist: bool,
    ) -> Rearmed {
        if !insist && !local.lane.has_room() {
            return match local.refuse_for_want_of_room(&self.admission) {
                Refusal::ShutDown => Err(ArmError::ShutDown),
                Refusal::Forked => Err(ArmError::Forked),
                Refusal::LaneFull | Refusal::EngineFull => Ok(None),
            };
        }
        let timer = self.slots().owned(index);
        let arm = if place == Place::Anew { timer.queue_anew(deadline) } else { timer.queue(deadline) };
        match arm {
            Arm::Pending if place == Place::Anew => Ok(Some(Armed::Stays)),
            Arm::Pending => Ok(Some(Armed::Pending)),
            Arm::Running => Ok(Some(Armed::Running)),
            Arm::Shut => Err(self.why_not_armed()),
            Arm::Dropped => Err(ArmError::Dropped),
            Arm::Queue { stamp, check } => self.push(local, Insertion { deadline: check, index, stamp }),
        }
    }

    /// Pushes a ticket into the lane of `local`, and notifies the shard that reads the lane.
    fn push(&self, local: &mut Local, insertion: Insertion) -> Rearmed {
        let pushed = local.lane.push(insertion);
        if local.lane.lane().count_posted_arm().is_multiple_of(CANCELS_PER_CHECK) {
            self.admission.stations().consider_a_sweep();
        }
        match local.notify(&self.admission, pushed, insertion.deadline) {
            Notified::Open => Ok(Some(Armed::Pending)),
            Notified::Closed => Err(self.why_not_armed()),
        }
    }

    /// Returns the reason why a closed engine arms no timer.
    fn why_not_armed(&self) -> ArmError {
        if self.admission.is_forked() { ArmError::Forked } else { ArmError::ShutDown }
    }

    /// Returns the deadline of an armed timer.
    pub(crate) fn armed_for(&self, index: u32) -> Option<Timestamp> {
        self.slots().owned(index).armed_for()
    }

    /// Gives up a timer, once. Returns the payload, unless another thread that holds the timer at the moment will drop
    /// it.
    pub(crate) fn release(&self, slot: &mut OwnedSlot) -> Option<T> {
        let OwnedSlot(index) = core::mem::replace(slot, OwnedSlot::RELEASED);
        match self.slots().owned(index).release() {
            Release::Vacated => Some(self.reclaim(index)),
            Release::Left => None,
        }
    }

    /// Takes back the payload and the slot of an owned timer that the caller has vacated.
    pub(super) fn reclaim(&self, index: u32) -> T {
        // SAFETY: O5: we vacated the slot, and it is in no magazine yet.
        let payload = unsafe { self.slab.take(index) };
        lend(&self.admission).magazines.put(self.slots(), index);
        self.count_destroyed();
        payload
    }

    pub(super) fn count_destroyed(&self) {
        let destroyed = lend(&self.admission).lane.lane().count_destroyed();
        if destroyed.is_multiple_of(CANCELS_PER_CHECK) {
            self.admission.stations().consider_a_sweep();
        }
    }

    /// Makes an owned timer refuse every arming from now on. Returns `None` if the slot is not an owned timer's. The
    /// caller announces an end that a thread waits for, or the thread sleeps for ever.
    pub(super) fn shut(&self, index: u32) -> Option<Remains<T>> {
        let timer = self.slots().owned(index);
        if !timer.is_owned() {
            return None;
        }
        let outcome = if self.have_wakers() { timer.shut_running() } else { timer.shut() };
        Some(match outcome? {
            Shut::Free => Remains { payload: Some(self.reclaim(index)), ..Remains::NOTHING },
            Shut::Kept => Remains::NOTHING,
            Shut::Run => self.end_last_run(index),
        })
    }

    fn end_last_run(&self, index: u32) -> Remains<T> {
        // SAFETY: O5: the run is ours, and the slot is not vacated before we end the run.
        let payload = unsafe { self.slab.peek(index) };
        let mut waker = None;
        let say = || waker = self.take_waker(payload);
        let End { waited, then } = self.slots().owned(index).end_with(say);
        let payload = (then == AfterRun::Free).then(|| self.reclaim(index));
        Remains { payload, waker, is_awaited: waited }
    }

    /// Makes all owned timers refuse every arming, in the child of a fork. Timers that a worker of the parent would
    /// have freed are left alone.
    pub(super) fn shut_in_child(&self) {
        for index in 0..self.slots().used() {
            let timer = self.slots().owned(index);
            if timer.is_owned() {
                let _left = timer.shut();
            }
        }
    }

    /// Returns the payload of a timer.
    pub(crate) fn payload_of<'a>(&'a self, slot: &'a OwnedSlot) -> &'a T
    where
        T: Sync,
    {
        // SAFETY: O5: the caller has the slot and has not released it, and the payload may be shared.
        unsafe { self.slab.peek(slot.0) }
    }
}
