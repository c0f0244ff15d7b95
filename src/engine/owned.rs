//! Owned timers: creates, arms, disarms and drops them. This file handles the slots, the payloads and the lanes. The
//! protocol of the timers' states is in `state::owned`.

use super::local::{Local, Slot, lend};
use super::timers::{CANCELS_PER_CHECK, Timers};
use crate::base::error::{ArmError, Refusal, ScheduleError};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::Slots;
use crate::lockfree::state::owned::{AfterRun, Arm, End, Release, Shut, Withdrawn};
use core::task::Waker;

/// The slot of an owned timer, kept by the timer's handle. Until the slot is released, the handle may use the timer's
/// payload.
#[derive(Debug)]
#[must_use]
pub(crate) struct OwnedSlot(u32);

impl OwnedSlot {
    /// The value that stands for "no slot". A timer's handle has this value after the handle has released its slot.
    const RELEASED: Self = Self(u32::MAX);

    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.0
    }
}

/// The outcome of arming a timer for a given deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Armed {
    /// The timer is armed. The timer fires for the given deadline, and not before.
    Pending,
    /// The timer's handler has begun. If the handler has begun for an earlier deadline, the timer fires again for the
    /// given deadline after the handler has returned. If the given deadline had come already, the handler may have
    /// begun for that deadline.
    Running,
    /// The timer fires for the given deadline, but stays at its present shard, because that shard was checking the
    /// timer. Only a call that chooses a shard ([`On::arm_at`](crate::On::arm_at)) returns this outcome. A later call
    /// moves the timer.
    Stays,
}

/// Says in which lane (a thread's queue to a shard) a timer's ticket (a request to check the timer) must be after an
/// arming. The shard that gets the ticket fires the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The ticket may be in any lane. So the timer's present ticket suffices if it is due early enough.
    Any,
    /// The ticket must be in the lane that the caller has chosen. So a new ticket replaces the timer's present ticket.
    Anew,
}

/// The outcome of an arming that does not wait. `None` if the arming needs a ticket and the thread's lane is full. Then
/// the caller waits and arms again, or exceeds the lane's capacity.
pub(crate) type Rearmed = Result<Option<Armed>, ArmError>;

/// The payload and the waker that a shutdown has found in an owned timer. The caller must drop the payload and wake the
/// waker while it holds no lock.
#[must_use]
pub(super) struct Remains<T> {
    /// The timer's payload, which must be dropped. `None` if the timer's handle still exists.
    payload: Option<T>,
    /// The waker of the task that waits for the timer; `None` if no task waits.
    waker: Option<Waker>,
    /// Whether a thread waits for the end of the timer's last run. The run has ended, so the caller must wake that
    /// thread.
    is_awaited: bool,
}

impl<T> Remains<T> {
    const NOTHING: Self = Self { payload: None, waker: None, is_awaited: false };

    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns `self` if there is a payload to drop or a waker to wake.
    pub(super) fn if_any(self) -> Option<Self> {
        (self.payload.is_some() || self.waker.is_some()).then_some(self)
    }

    pub(super) fn into_parts(self) -> (Option<T>, Option<Waker>) {
        (self.payload, self.waker)
    }
}

/// Arms a timer for `deadline`, if its present ticket comes early enough. Otherwise returns false, and the caller must
/// call [`Core::queue`](super::Core::queue).
#[inline(always)]
pub(crate) fn postpone(slots: &Slots, index: u32, deadline: Timestamp) -> bool {
    slots.owned(index).postpone(deadline)
}

#[inline(always)]
pub(crate) fn disarm(slots: &Slots, index: u32) -> Withdrawn {
    slots.owned(index).disarm()
}

impl<T: Send + 'static> Timers<T> {
    /// Makes a new timer with this payload in a vacant slot. Fails if no slot is left.
    pub(super) fn create(&self, local: &mut Local, payload: T) -> Result<OwnedSlot, ScheduleError<T>> {
        let index = match local.take_slot(&self.admission) {
            Ok(Slot(index)) => index,
            Err(kind) => return Err(ScheduleError { kind, payload }),
        };
        // SAFETY: I3: the magazine gave us the vacant slot.
        unsafe { self.slab.write(index, payload) };
        self.slots().owned(index).own(local.expects_fire());
        local.lane.lane().count_created();
        Ok(OwnedSlot(index))
    }

    /// Takes out a spare of the calling thread for an arming for `deadline`: a timer that [`keep`](Self::keep) has
    /// stored, with its payload.
    #[cfg(feature = "async")]
    pub(super) fn take_spare(&self, local: &mut Local, deadline: Timestamp) -> Option<OwnedSlot> {
        if local.spares.is_empty() {
            return None;
        }
        let ahead = self.admission.stations().ahead(local.home, deadline, self.admission.clock());
        let spare = local.spares.take(ahead)?;
        local.lane.lane().count_created();
        Some(OwnedSlot(spare))
    }

    /// Stores a disarmed timer, whose handle is dropped, as a spare of the calling thread. Does nothing if the thread
    /// has spares enough: then the caller must release the timer. A spare's payload may never be dropped. `deadline` is
    /// that of the last arming, and `has_fired` says whether the timer fired for it.
    #[cfg(feature = "async")]
    pub(crate) fn keep(&self, slot: &mut OwnedSlot, deadline: Timestamp, has_fired: bool) {
        if self.admission.is_shut_down() {
            return;
        }
        let mut local = lend(&self.admission);
        local.spares.note(has_fired);
        if local.spares.has_room(self.slots().capacity()) {
            let ahead = self.admission.stations().ahead(local.home, deadline, self.admission.clock());
            local.spares.keep(slot.0, ahead);
            *slot = OwnedSlot::RELEASED;
            local.lane.lane().count_destroyed();
        }
    }

    /// Queues a ticket for an owned timer in the calling thread's lane. If `insist` is true, does so even beyond the
    /// lane's capacity.
    pub(super) fn queue(&self, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        let mut local = lend(&self.admission);
        self.queue_if_there_is_room(&mut local, index, deadline, Place::Any, insist)
    }

    /// Queues a ticket for an owned timer in the calling thread's lane to `shard`, its queue to that shard. The timer's
    /// present ticket may be at another shard.
    pub(super) fn queue_on(&self, shard: usize, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        lend(&self.admission).on_shard(&self.admission, shard, |local| {
            self.queue_if_there_is_room(local, index, deadline, Place::Anew, insist)
        })
    }

    fn queue_if_there_is_room(
        &self,
        local: &mut Local,
        index: u32,
        deadline: Timestamp,
        place: Place,
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
        let arm = match place {
            Place::Anew => timer.queue_anew(deadline),
            Place::Any => {
                let (stations, clock) = (self.admission.stations(), self.admission.clock());
                timer.queue(deadline, |deadline| stations.first_check(local.home, deadline, clock))
            }
        };
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

    fn why_not_armed(&self) -> ArmError {
        if self.admission.is_forked() { ArmError::Forked } else { ArmError::ShutDown }
    }

    pub(crate) fn armed_for(&self, index: u32) -> Option<Timestamp> {
        self.slots().owned(index).armed_for()
    }

    /// Releases a timer, because its handle is dropped. Returns the payload. If another thread checks or fires the
    /// timer, returns `None`, and that thread drops the payload. Also returns `None` if the timer was kept as a spare.
    pub(crate) fn release(&self, slot: &mut OwnedSlot) -> Option<T> {
        let OwnedSlot(index) = core::mem::replace(slot, OwnedSlot::RELEASED);
        if index == OwnedSlot::RELEASED.0 {
            return None;
        }
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

    /// Makes an owned timer refuse every arming from now on. Returns `None` if the slot does not belong to an owned
    /// timer. If [`Remains::is_awaited`] is true, the caller must wake the waiting threads. Otherwise the threads would
    /// sleep for ever.
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

    /// Makes all owned timers refuse every arming, in the child of a fork. A timer whose handle was dropped while a
    /// worker held it keeps its slot: the worker is in the parent.
    pub(super) fn shut_in_child(&self) {
        for index in 0..self.slots().used() {
            let timer = self.slots().owned(index);
            if timer.is_owned() {
                let _left = timer.shut();
            }
        }
    }

    pub(crate) fn payload_of<'a>(&'a self, slot: &'a OwnedSlot) -> &'a T
    where
        T: Sync,
    {
        // SAFETY: O5: the caller has the slot and has not released it, and the payload may be shared.
        unsafe { self.slab.peek(slot.0) }
    }
}
