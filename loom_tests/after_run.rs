//! Armings that race with a run: an arming that comes after a run has seen the end of that run. Layers rely on this
//! (`Base::try_arm_at`): a layer that marks its object in the handler finds the mark after an arming and an acquire
//! fence, and knows that the arming came too late.
//!
//! | weakened | models that go red |
//! |----------|--------------------|
//! | the caller's fence is left out | `two_armings_race_with_a_run` |

use super::model;
use crate::slab::{Magazines, Slab};
use crate::state::Control;
use crate::state::owned::{AfterRun, Arm, Begin, Look, Pinned};
use crate::sync::{AtomicBool, Ordering, StdArc, fence, thread};
use crate::tick::Timestamp;

/// Deadlines in units that the state distinguishes.
const DUE: Timestamp = Timestamp::from_nanos(20 << 20);
const LATER: Timestamp = Timestamp::from_nanos(30 << 20);

/// A timer that is armed for [`DUE`], and the mark that its handler leaves.
struct Marked {
    slab: Slab<u32>,
    index: u32,
    has_run: AtomicBool,
}

impl Marked {
    /// The timer, and the stamp of its ticket.
    fn armed() -> (StdArc<Self>, u32) {
        let slab = Slab::new(2, Timestamp::ZERO);
        let index = Magazines::new().take(slab.slots()).unwrap();
        // SAFETY: the magazine gave the vacant slot.
        unsafe { slab.write(index, 7) };
        slab.slots().control(index).own(slab.slots().pin(index));
        let timer = StdArc::new(Self { slab, index, has_run: AtomicBool::new(false) });
        let Arm::Post { stamp, .. } = timer.arm(DUE) else { unreachable!("it is at rest") };
        (timer, stamp)
    }

    fn control(&self) -> &Control {
        self.slab.slots().control(self.index)
    }

    fn pin(&self) -> Pinned<'_> {
        self.slab.slots().pin(self.index)
    }

    fn arm(&self, deadline: Timestamp) -> Arm {
        if self.control().put_off(deadline, self.slab.slots().barrier(), self.slab.slots().origin()) {
            return Arm::Pending;
        }
        self.control().list(deadline, self.pin())
    }

    /// Puts the timer off as a layer does. Returns whether the arming came before the run for [`DUE`].
    fn put_off(&self) -> bool {
        match self.arm(LATER) {
            Arm::Pending | Arm::Post { .. } => {
                fence(Ordering::Acquire);
                !self.has_run.load(Ordering::Relaxed)
            }
            Arm::Running | Arm::Shut | Arm::Dropped => false,
        }
    }

    /// Handles the ticket at [`DUE`] as a shard and a worker do. Returns whether the handler ran.
    fn fire(&self, stamp: u32) -> bool {
        if !self.control().hold(stamp) {
            return false;
        }
        self.slab.slots().barrier().heavy();
        if self.control().look(stamp, DUE, self.pin(), |deadline| deadline) != Look::Due {
            return false;
        }
        match self.control().begin(stamp, DUE, self.pin()) {
            Begin::Run { .. } => {
                self.has_run.store(true, Ordering::Relaxed);
                assert_ne!(self.control().end(self.pin()).then, AfterRun::Free);
                true
            }
            _ => false,
        }
    }
}

/// Legal endings: (a) the arming comes first, and the handler does not run at the old deadline; (b) the handler runs,
/// and the arming finds it running, or finds its mark.
#[test]
fn an_arming_races_with_a_run() {
    model("an_arming_races_with_a_run", || {
        let (timer, stamp) = Marked::armed();
        let firing = StdArc::clone(&timer);
        let run = thread::spawn(move || firing.fire(stamp));
        let came_first = timer.put_off();
        assert_eq!(run.join().unwrap(), !came_first);
    });
}

/// Two threads arm: the second one may find the timer armed by the first, and then needs no change of the timer's
/// state.
#[test]
fn two_armings_race_with_a_run() {
    model("two_armings_race_with_a_run", || {
        let (timer, stamp) = Marked::armed();
        let (firing, other) = (StdArc::clone(&timer), StdArc::clone(&timer));
        let run = thread::spawn(move || firing.fire(stamp));
        let arming = thread::spawn(move || other.put_off());
        let came_first = [timer.put_off(), arming.join().unwrap()];
        let has_run = run.join().unwrap();
        assert!(
            !(has_run && came_first.contains(&true)),
            "armed, and run at the old deadline: {came_first:?}"
        );
    });
}
