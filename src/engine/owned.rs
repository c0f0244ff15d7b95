//! Owned timers: creating, arming, disarming and dropping them. The protocol is in `state::owned`; the slots, the
//! payloads and the lanes are here.

use super::admission::CANCELS_PER_CHECK;
use super::anchor::Anchor;
use super::core::Core;
use super::local::{Local, lend};
use crate::base::error::{ArmError, Refusal, ScheduleError};
use crate::base::sync::{StdArc, ignore_poison};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::Slots;
use crate::lockfree::state::owned::{AfterRun, Arm, End, Release, Shut, Withdrawn};
use core::task::Waker;

/// A slot that a handle keeps: the right to the timer's payload until the slot is released.
#[derive(Debug)]
#[must_use]
pub(crate) struct OwnedSlot(u32);

impl OwnedSlot {
    /// The value that a released slot leaves behind: no slot.
    const RELEASED: Self = Self(u32::MAX);

    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.0
    }
}

/// An owned timer: the anchor by which it holds the engine, and its slot.
pub(crate) type Created<T> = (StdArc<Anchor<T>>, OwnedSlot);

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

/// The place of the ticket of an arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Where the ticket that is out is, if it suffices.
    Any,
    /// In the lane that the arming uses, in place of the ticket that is out.
    Anew,
}

/// The outcome of an arming that does not wait. `None`: there is no room for the ticket that the arming needs, and the
/// caller waits and calls again, or insists.
pub(crate) type Rearmed = Result<Option<Armed>, ArmError>;

/// The remains of an owned timer that was shut, to be settled where no lock is held.
#[must_use]
pub(super) struct Remains<T> {
    /// The payload, if the timer was dropped.
    payload: Option<T>,
    /// The waker of a task that waits for the timer, if the timer was not dropped.
    waker: Option<Waker>,
}

impl<T> Remains<T> {
    const NOTHING: Self = Self { payload: None, waker: None };

    /// Returns the remains, unless there is nothing to settle.
    pub(super) fn if_any(self) -> Option<Self> {
        (self.payload.is_some() || self.waker.is_some()).then_some(self)
    }
}

/// Gives a timer another deadline, if the ticket that is out suffices for the deadline. Otherwise the caller is to call
/// [`Core::queue`].
#[inline(always)]
pub(crate) fn postpone(slots: &Slots, index: u32, deadline: Timestamp) -> bool {
    slots.owned(index).postpone(deadline)
}

#[inline(always)]
pub(crate) fn disarm(slots: &Slots, index: u32) -> Withdrawn {
    slots.owned(index).disarm()
}

impl<T: Send + 'static> Core<T> {
    /// Sets the function that clones payloads for the handler. To be called before the first owned timer is created.
    pub(crate) fn clone_payloads_by(&self, clone: fn(&T) -> T) {
        self.clone_payload.get_or_init(|| clone);
    }

    /// A clone of an owned timer's payload.
    pub(crate) fn clone_payload(&self, payload: &T) -> T {
        let clone = self.clone_payload.get().expect("said before the first owned timer was created");
        clone(payload)
    }

    /// Makes the shutdown wake the tasks that wait for owned timers. To be called before the first owned timer is
    /// created.
    #[cfg(feature = "async")]
    pub(crate) fn wake_at_shutdown(&self, waker_of: fn(&T) -> Option<Waker>) {
        self.waker_of.get_or_init(|| waker_of);
    }

    /// Takes the waker of the task that waits for an owned timer. The engine will not fire that timer any more.
    pub(super) fn take_waker(&self, payload: &T) -> Option<Waker> {
        self.waker_of.get().and_then(|waker_of| waker_of(payload))
    }

    /// Takes a slot for a timer with this payload.
    pub(crate) fn create_timer(self: &StdArc<Self>, payload: T) -> Result<Created<T>, ScheduleError<T>> {
        if self.is_shut_down() {
            return Err(ScheduleError { kind: self.why_closed(), payload });
        }
        let mut local = lend(self);
        let Some(index) = local.magazines.take(self.slots()) else {
            return Err(ScheduleError { kind: self.refuse_for_want_of_a_slot(), payload });
        };
        // SAFETY: I3: the magazine gave us the vacant slot.
        unsafe { self.slab.write(index, payload) };
        self.slots().owned(index).own();
        local.lane.lane().count_created();
        Ok((self.anchor(&mut local), OwnedSlot(index)))
    }

    /// The rest of an arming for which the ticket that is out does not suffice. With `insist` the ticket is queued
    /// beyond the lane's capacity if need be.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue(&self, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        let outcome = self.queue_if_there_is_room(&mut lend(self), index, (deadline, Place::Any), insist);
        self.shut_if_refused(index, outcome)
    }

    /// An arming whose ticket goes to `shard`, wherever the ticket that is out is. The caller has stored the deadline
    /// by [`postpone`].
    pub(crate) fn queue_on(&self, shard: usize, index: u32, deadline: Timestamp, insist: bool) -> Rearmed {
        let outcome = lend(self).on_shard(self, shard, |local| {
            self.queue_if_there_is_room(local, index, (deadline, Place::Anew), insist)
        });
        self.shut_if_refused(index, outcome)
    }

    fn shut_if_refused(&self, index: u32, outcome: Rearmed) -> Rearmed {
        if matches!(outcome, Err(ArmError::ShutDown | ArmError::Forked)) {
            // The shutdown may have come to this timer before the timer was queued.
            self.shut_late_timer(index);
        }
        outcome
    }

    fn queue_if_there_is_room(
        &self,
        local: &mut Local,
        index: u32,
        (deadline, place): (Timestamp, Place),
        insist: bool,
    ) -> Rearmed {
        if !insist && !local.lane.has_room() {
            return match self.refuse_for_want_of_room(local) {
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

    /// Pushes the ticket that an arming needs.
    fn push(&self, local: &mut Local, insertion: Insertion) -> Rearmed {
        let pushed = local.lane.push(insertion);
        if local.lane.lane().count_posted_arm().is_multiple_of(CANCELS_PER_CHECK) {
            self.consider_a_sweep();
        }
        match self.notify(local, pushed, insertion.deadline) {
            Notified::Open => Ok(Some(Armed::Pending)),
            Notified::Closed => Err(self.why_not_armed()),
        }
    }

    /// The reason why a closed engine arms no timer.
    fn why_not_armed(&self) -> ArmError {
        if self.is_forked() { ArmError::Forked } else { ArmError::ShutDown }
    }

    /// Waits until the handler, if it runs, has ended.
    pub(crate) fn wait_for_run(&self, index: u32) {
        let timer = self.slots().owned(index);
        let Some(run) = timer.await_run() else { return };
        let (lock, changed) = &self.quiescence;
        let mut guard = ignore_poison(lock.lock());
        while !timer.has_run(run) {
            guard = ignore_poison(changed.wait(guard));
        }
    }

    /// The deadline of an armed timer.
    pub(crate) fn armed_for(&self, index: u32) -> Option<Timestamp> {
        self.slots().owned(index).armed_for()
    }

    /// Gives a timer up, once. Returns the payload, unless the present holder of the timer will drop it.
    pub(crate) fn release_timer(&self, slot: &mut OwnedSlot) -> Option<T> {
        let OwnedSlot(index) = core::mem::replace(slot, OwnedSlot::RELEASED);
        match self.slots().owned(index).release() {
            Release::Vacated => Some(self.reclaim(index)),
            Release::Left => None,
        }
    }

    /// Takes the payload and the slot of an owned timer that the caller vacated.
    pub(super) fn reclaim(&self, index: u32) -> T {
        // SAFETY: O5: we vacated the slot, and it is in no magazine yet.
        let payload = unsafe { self.slab.take(index) };
        lend(self).magazines.put(self.slots(), index);
        self.count_destroyed();
        payload
    }

    pub(super) fn count_destroyed(&self) {
        let destroyed = lend(self).lane.lane().count_destroyed();
        if destroyed.is_multiple_of(CANCELS_PER_CHECK) {
            self.consider_a_sweep();
        }
    }

    /// Ends the arming of an owned timer for good. `None` if the slot is not an owned timer's.
    pub(super) fn shut_timer(&self, index: u32) -> Option<Remains<T>> {
        let timer = self.slots().owned(index);
        if !timer.is_owned() {
            return None;
        }
        let outcome = if self.waker_of.get().is_some() { timer.shut_running() } else { timer.shut() };
        Some(match outcome? {
            Shut::Free => Remains { payload: Some(self.reclaim(index)), waker: None },
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
        if waited {
            self.announce_quiescence();
        }
        Remains { payload: (then == AfterRun::Free).then(|| self.reclaim(index)), waker }
    }

    /// Drops the payload and wakes the waker that are left of a timer, and survives panics.
    pub(super) fn settle(&self, Remains { payload, waker }: Remains<T>) {
        self.guarded.run(|| drop(payload));
        self.wake(waker);
    }

    /// Wakes a task whose timer is shut.
    pub(super) fn wake(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.guarded.run(|| waker.wake());
        }
    }

    /// Ends the arming of all owned timers. Timers that a worker of the parent was to free are left alone.
    pub(super) fn shut_owned_in_child(&self) {
        for index in 0..self.slots().used() {
            let timer = self.slots().owned(index);
            if timer.is_owned() {
                let _left = timer.shut();
            }
        }
    }

    /// Shuts a timer that the shutdown may have missed, as the shutdown would.
    pub(super) fn shut_late_timer(&self, index: u32) {
        if let Some(remains) = self.shut_timer(index) {
            self.settle(remains);
        }
    }

    /// The payload of a timer.
    pub(crate) fn payload_of<'a>(&'a self, slot: &'a OwnedSlot) -> &'a T
    where
        T: Sync,
    {
        // SAFETY: O5: the caller has the slot and has not released it, and the payload may be shared.
        unsafe { self.slab.peek(slot.0) }
    }
}
