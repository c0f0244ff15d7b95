//! Races on one timer's state word.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence or tag was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | T1: `arm`'s store | `cancel_races_with_fire` |
//! | T1: `cancel`'s load | `cancel_races_with_fire` |
//! | T1: `claim`'s load | `cancel_races_with_fire` |
//! | T1: `deadline`'s first load | `a_read_deadline_is_the_timers_own` |
//! | T2: `finish` | `who_waits_sees_what_the_handler_did` |
//! | T2: `has_ended` | `who_waits_sees_what_the_handler_did` |
//! | T2: `is_running` | `who_comes_too_late_to_wait_sees_what_the_handler_did` |
//! | F5: `enter`'s fence | `who_waits_sees_what_the_handler_did` |
//! | F5: `are_there`'s fence | `who_waits_sees_what_the_handler_did` |
//! | T3: `link`, or `arm`'s deadline | `a_read_deadline_is_the_timers_own` |
//! | T3: `deadline`'s second load | `a_read_deadline_is_the_timers_own` |
//! | T1: `evict`'s load, and `leave_armed`'s swap that fails | `eviction_races_with_reschedule` |
//! | `leave_armed`'s Release | none: it forbids a load from waiting for a later store, which loom does not explore |

use super::model;
use crate::base::sync::{StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;
use crate::lockfree::slab::{Magazines, Slab};
use crate::lockfree::state::{Cancel, Claim};

const DUE: Timestamp = Timestamp::from_nanos(10);

/// Makes a slab with one armed timer, whose payload is 7. Also returns the timer's id and the stamp of its ticket (a
/// request to check the timer).
fn armed() -> (StdArc<Slab<u32>>, TimerId, u16) {
    let slab = StdArc::new(Slab::new(2, Timestamp::ZERO));
    let index = Magazines::new().take(slab.slots()).unwrap();
    // SAFETY: the slot is vacant, and the magazine gave it to this thread.
    unsafe { slab.write(index, 7) };
    let (id, stamp) = slab.slots().control(index).arm(index, DUE);
    (slab, id, stamp)
}

/// Cancels the timer. Returns the timer's payload if the cancel succeeded.
fn cancel(slab: &Slab<u32>, id: TimerId) -> Result<u32, Cancel> {
    match slab.slots().control(id.index()).cancel(id) {
        // SAFETY: the cancel succeeded.
        Cancel::Won => Ok(unsafe { slab.take(id.index()) }),
        lost => Err(lost),
    }
}

/// Fires the timer as a worker does. If the worker's claim succeeds, vacates the slot and returns the payload.
fn fire(slab: &Slab<u32>, id: TimerId, stamp: u16, now: Timestamp) -> Option<u32> {
    let control = slab.slots().control(id.index());
    match control.claim(stamp, now) {
        Claim::Won { generation, deadline } => {
            assert_eq!(deadline, DUE, "the claim has another deadline than the timer");
            // SAFETY: the claim succeeded.
            let payload = unsafe { slab.take(id.index()) };
            control.finish(generation);
            Some(payload)
        }
        Claim::Stale => None,
        Claim::Early { .. } => panic!("the deadline has come"),
    }
}

/// A cancel of a timer races with a firing. Legal endings: (a) the canceller gets the payload, and nothing fires; (b)
/// the timer fires, and the cancel returns `Running` or `Gone`. A third thread has armed the timer.
#[test]
fn cancel_races_with_fire() {
    model("cancel_races_with_fire", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let arming = StdArc::clone(&slab);
        let (id, stamp) = (TimerId::new(0, 0), 0);
        let producer = thread::spawn(move || {
            let index = Magazines::new().take(arming.slots()).unwrap();
            // SAFETY: the slot is vacant, and the magazine gave it to this thread.
            unsafe { arming.write(index, 7) };
            assert_eq!(
                arming.slots().control(index).arm(index, DUE),
                (id, stamp),
                "the first timer of the slab has another id"
            );
        });
        let firing = StdArc::clone(&slab);
        let worker = thread::spawn(move || fire(&firing, id, stamp, DUE));
        let cancelled = cancel(&slab, id);
        let fired = worker.join().unwrap();
        producer.join().unwrap();
        match (&cancelled, fired) {
            (Ok(7), None) | (Err(Cancel::Running | Cancel::Gone), Some(7)) => {}
            // The canceller and the worker both looked before the timer was armed.
            (Err(Cancel::Gone), None) => {
                assert_eq!(cancel(&slab, id), Ok(7), "nothing has the timer, and it cannot be cancelled")
            }
            _ => panic!("no legal ending: {cancelled:?} and {fired:?}"),
        }
    });
}

/// Two cancels of a timer race. Legal endings: either cancel gets the payload, and the other returns `Gone`.
#[test]
fn two_cancels_one_wins() {
    model("two_cancels_one_wins", || {
        let (slab, id, _) = armed();
        let other = StdArc::clone(&slab);
        let handle = thread::spawn(move || cancel(&other, id));
        let results = [cancel(&slab, id), handle.join().unwrap()];
        assert!(
            matches!(results, [Ok(7), Err(Cancel::Gone)] | [Err(Cancel::Gone), Ok(7)]),
            "both cancels got the payload, or neither: {results:?}"
        );
    });
}

/// A cancel of a timer races with a shutdown. Legal endings: (a) the shutdown takes the timer; (b) the canceller gets
/// the timer. Exactly one of these happens.
#[test]
fn cancel_races_with_eviction() {
    model("cancel_races_with_eviction", || {
        let (slab, id, _) = armed();
        let other = StdArc::clone(&slab);
        let handle = thread::spawn(move || cancel(&other, id));
        let evicted = slab.slots().control(id.index()).evict();
        assert_eq!(
            evicted.is_some(),
            handle.join().unwrap().is_err(),
            "the shutdown and the canceller both have the timer, or neither has"
        );
    });
}

/// A thread waits for the end of a handler. Legal endings: (a) the thread finds the handler ended, and sees the
/// handler's writes; (b) the worker finds that a thread waits, and wakes it.
#[test]
fn who_waits_sees_what_the_handler_did() {
    use crate::base::sync::UnsafeCell;
    use crate::lockfree::waiters::Waiters;
    struct Effect(UnsafeCell<u32>);
    // SAFETY: the cell is written by the handler, and read by the thread that saw the handler end.
    unsafe impl Sync for Effect {}
    // SAFETY: as for `Sync` above.
    unsafe impl Send for Effect {}

    model("who_waits_sees_what_the_handler_did", || {
        let (slab, id, stamp) = armed();
        let shared = StdArc::new((Effect(UnsafeCell::new(0)), Waiters::new()));
        let (firing, of_worker) = (StdArc::clone(&slab), StdArc::clone(&shared));
        let worker = thread::spawn(move || {
            let (effect, waiters) = &*of_worker;
            let control = firing.slots().control(id.index());
            let Claim::Won { generation, .. } = control.claim(stamp, DUE) else { panic!("lost to nobody") };
            // SAFETY: the claim succeeded, and no thread reads before the handler's end.
            effect.0.with_mut(|effect| unsafe { *effect = 1 });
            control.finish(generation);
            waiters.are_there(id.index())
        });
        let (effect, waiters) = &*shared;
        let control = slab.slots().control(id.index());
        let _waiter = waiters.enter(id.index());
        let sleeps = !control.has_ended(id);
        if !sleeps {
            // SAFETY: the handler has ended.
            let seen = effect.0.with(|effect| unsafe { *effect });
            assert_eq!(seen, 1, "the handler has ended, and what it did is not seen");
        }
        let wakes = worker.join().unwrap();
        assert!(wakes || !sleeps, "the thread sleeps, and the worker has not seen it");
    });
}

/// A thread reads a timer's deadline from its slot. The thread gets the timer's own deadline, or none. The thread never
/// gets a link of the vacant slot, nor the deadline of a later timer in the slot.
#[test]
fn a_read_deadline_is_the_timers_own() {
    model("a_read_deadline_is_the_timers_own", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let other = StdArc::clone(&slab);
        let handle = thread::spawn(move || {
            let control = other.slots().control(0);
            let (id, _) = control.arm(0, DUE);
            assert_eq!(control.cancel(id), Cancel::Won, "a timer that has not fired could not be cancelled");
            control.link(u64::MAX);
            control.arm(0, Timestamp::from_nanos(99));
        });
        let deadline = slab.slots().control(0).deadline(TimerId::new(0, 0));
        assert!(
            matches!(deadline, None | Some(DUE)),
            "a link or a stranger's deadline was read: {deadline:?}"
        );
        handle.join().unwrap();
    });
}

/// A ticket that comes early is queued again under a new stamp, once. A cancel of the timer may succeed instead. (I1a)
#[test]
fn cancel_races_with_reissue() {
    model("cancel_races_with_reissue", || {
        let (slab, id, stamp) = armed();
        let other = StdArc::clone(&slab);
        let handle =
            thread::spawn(move || other.slots().control(id.index()).claim(stamp, Timestamp::from_nanos(9)));
        let cancelled = cancel(&slab, id);
        assert_eq!(cancelled, Ok(7), "an early look never takes a timer");
        match handle.join().unwrap() {
            Claim::Early { stamp: reissued, deadline } => {
                assert_ne!(reissued, stamp, "the early ticket was reissued under its own stamp");
                assert_eq!(deadline, DUE, "the early ticket was reissued for another deadline");
                assert!(
                    !slab.slots().control(id.index()).is_live(reissued),
                    "a cancelled timer is live under its new stamp"
                );
            }
            Claim::Stale => {}
            Claim::Won { .. } => panic!("fired before its deadline"),
        }
    });
}

/// The eviction by a shutdown loses its first swap to a cancel and a new arming. Then the eviction reports the new
/// deadline.
#[test]
fn eviction_races_with_reschedule() {
    model("eviction_races_with_reschedule", || {
        let later = Timestamp::from_nanos(99);
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let other = StdArc::clone(&slab);
        let handle = thread::spawn(move || {
            let control = other.slots().control(0);
            control.arm(0, DUE);
            if control.cancel(TimerId::new(0, 0)) == Cancel::Won {
                control.arm(0, later);
            }
        });
        let evicted = slab.slots().control(0).evict();
        assert!(
            matches!(evicted, None | Some((0, DUE))) || evicted == Some((1, later)),
            "evicted with a deadline of another arming: {evicted:?}"
        );
        handle.join().unwrap();
    });
}

/// A thread cancels a timer whose handler runs, as `cancel_and_wait` does, and finds that the handler has just ended.
/// Then the thread sees the handler's writes.
#[test]
fn who_comes_too_late_to_wait_sees_what_the_handler_did() {
    use crate::base::sync::UnsafeCell;
    struct Effect(UnsafeCell<u32>);
    // SAFETY: the cell is written by the handler, and read by the thread that saw the handler end.
    unsafe impl Sync for Effect {}
    // SAFETY: as above.
    unsafe impl Send for Effect {}

    model("who_comes_too_late_to_wait_sees_what_the_handler_did", || {
        let (slab, id, stamp) = armed();
        let effect = StdArc::new(Effect(UnsafeCell::new(0)));
        let (firing, of_worker) = (StdArc::clone(&slab), StdArc::clone(&effect));
        let worker = thread::spawn(move || {
            let control = firing.slots().control(id.index());
            let Claim::Won { generation, .. } = control.claim(stamp, DUE) else { return };
            // SAFETY: the claim succeeded, and no thread reads before the handler's end.
            of_worker.0.with_mut(|effect| unsafe { *effect = 1 });
            control.finish(generation);
        });
        let control = slab.slots().control(id.index());
        // `Handle::cancel_and_wait`, then `Core::wait_for_end`.
        if control.cancel(id) == Cancel::Running && !control.is_running(id) {
            // SAFETY: the handler has ended.
            let seen = effect.0.with(|effect| unsafe { *effect });
            assert_eq!(seen, 1, "cancel_and_wait has returned, and what the handler did is not seen");
        }
        worker.join().unwrap();
    });
}
