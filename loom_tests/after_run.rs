//! Armings that race with a run. An arming that comes after a run sees everything that happened before the end of that
//! run. Layers on top of the engine rely on this (`Base::try_arm_at`). In its handler, a layer marks its object. After
//! an arming and an acquire fence, the layer finds the mark, and knows that the arming came too late.
//!
//! | weakened | models that go red |
//! |----------|--------------------|
//! | the caller's fence is left out | `two_armings_race_with_a_run` |

use super::model;
use crate::base::sync::{AtomicBool, Ordering, StdArc, fence, thread};
use crate::base::tick::Timestamp;
use crate::lockfree::slab::{Magazines, Slab};
use crate::lockfree::state::owned::{AfterRun, Arm, Begin, Check, Owned};

/// The deadline for which the timer is armed first. A timer's state has a coarse unit of time, and `LATER` is in
/// another unit.
const DUE: Timestamp = Timestamp::from_nanos(20 << 20);
const LATER: Timestamp = Timestamp::from_nanos(30 << 20);

/// A timer that is armed for [`DUE`], and a flag that the timer's handler sets.
struct Marked {
    slab: Slab<u32>,
    index: u32,
    has_run: AtomicBool,
}

impl Marked {
    /// Makes a timer that is armed for [`DUE`]. Also returns the stamp of the timer's ticket (its entry in the wheel).
    fn armed() -> (StdArc<Self>, u16) {
        let slab = Slab::new(2, Timestamp::ZERO);
        let index = Magazines::new().take(slab.slots()).unwrap();
        // SAFETY: the slot is vacant, and the magazine gave it to this thread.
        unsafe { slab.write(index, 7) };
        slab.slots().owned(index).own(true);
        let timer = StdArc::new(Self { slab, index, has_run: AtomicBool::new(false) });
        let Arm::Queue { stamp, .. } = timer.arm(DUE) else { unreachable!("it is at rest") };
        (timer, stamp)
    }

    fn timer(&self) -> Owned<'_> {
        self.slab.slots().owned(self.index)
    }

    fn arm(&self, deadline: Timestamp) -> Arm {
        if self.timer().postpone(deadline) {
            return Arm::Pending;
        }
        self.timer().queue(deadline, |deadline| deadline)
    }

    /// Arms the timer for `LATER` as a layer above the engine does. Returns whether the arming came before the run for
    /// [`DUE`].
    fn postpone(&self) -> bool {
        match self.arm(LATER) {
            Arm::Pending | Arm::Queue { .. } => {
                fence(Ordering::Acquire);
                !self.has_run.load(Ordering::Relaxed)
            }
            Arm::Running | Arm::Shut | Arm::Dropped => false,
        }
    }

    /// Handles the timer's ticket at [`DUE`] as a shard and a worker do. Returns whether the handler ran.
    fn fire(&self, stamp: u16) -> bool {
        if !self.timer().begin_check(stamp) {
            return false;
        }
        self.slab.slots().barrier().heavy();
        if self.timer().check(stamp, DUE, |deadline| deadline) != Check::Due {
            return false;
        }
        match self.timer().begin(stamp, DUE) {
            Begin::Run { .. } => {
                self.has_run.store(true, Ordering::Relaxed);
                assert_ne!(
                    self.timer().end().then,
                    AfterRun::Free,
                    "the run freed a timer that has its handle"
                );
                true
            }
            _ => false,
        }
    }
}

/// An arming of a timer races with a run of its handler. Legal endings: (a) the arming comes first, and the handler
/// does not run at the old deadline; (b) the handler runs, and the arming thread finds the running handler, or the mark
/// that the handler left.
#[test]
fn an_arming_races_with_a_run() {
    model("an_arming_races_with_a_run", || {
        let (timer, stamp) = Marked::armed();
        let firing = StdArc::clone(&timer);
        let run = thread::spawn(move || firing.fire(stamp));
        let came_first = timer.postpone();
        assert_eq!(run.join().unwrap(), !came_first, "armed and run at the old deadline, or neither");
    });
}

/// Two threads arm a timer while its handler runs. The second thread may find that the first thread has armed the
/// timer. Then the second arming does not change the timer's state.
#[test]
fn two_armings_race_with_a_run() {
    model("two_armings_race_with_a_run", || {
        let (timer, stamp) = Marked::armed();
        let (firing, other) = (StdArc::clone(&timer), StdArc::clone(&timer));
        let run = thread::spawn(move || firing.fire(stamp));
        let arming = thread::spawn(move || other.postpone());
        let came_first = [timer.postpone(), arming.join().unwrap()];
        let has_run = run.join().unwrap();
        assert!(
            !(has_run && came_first.contains(&true)),
            "armed, and run at the old deadline: {came_first:?}"
        );
    });
}
