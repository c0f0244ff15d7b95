//! Scheduling while the engine ends.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence or tag was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | F2: `notify`'s fence | `schedule_races_with_shutdown` |
//! | F2: `close`'s fence | `schedule_races_with_shutdown` |
//! | E1: `stop` lets each caller evict | `schedule_races_with_a_shutdown_and_the_drop_after_it`, `schedule_races_with_two_shutdowns` |

use super::{model, set_of_one_shard};
use crate::base::error::Refusal;
use crate::base::sync::{StdArc, thread};
use crate::base::tick::Timestamp;
use crate::dispatch::{Dispatcher, Guarded};
use crate::engine::{Core, Local, Settings};
use crate::shard::ShardSet;
use crate::system::clock::{EngineClock, ManualClock};

/// Makes an engine whose shards are led by no thread.
fn core() -> StdArc<Core<u32>> {
    let settings = Settings {
        capacity: 2,
        lane_capacity: 64,
        dispatcher: Dispatcher::Inline,
        guarded: Guarded::new(None),
    };
    let clock = EngineClock::Custom(StdArc::new(ManualClock::new()));
    StdArc::new(Core::new(
        ShardSet::new(set_of_one_shard(clock, Dispatcher::Inline)),
        settings,
        Box::new(|_, _| {}),
    ))
}

/// Schedules a timer with payload 7. Returns true if the call returns the timer's id. Returns false if the payload came
/// back.
fn schedules(core: &Core<u32>) -> bool {
    let mut local = Local::new(core.admission(), 0);
    match local.reserve(core.admission()) {
        Ok(slot) => core.timers().schedule(&mut local, slot, Timestamp::MAX, 7).is_ok(),
        Err(refusal) => {
            assert_eq!(refusal, Refusal::ShutDown, "refused for another reason than the shutdown");
            false
        }
    }
}

/// Shuts the engine down without a wait for running handlers. Returns the number of timers that come back.
fn shut_down(core: &Core<u32>) -> usize {
    core.stop().map_or(0, |right| core.evict(right).len())
}

/// A call that schedules a timer races with a shutdown. Legal endings: (a) the shutdown returns the timer, and the
/// scheduling thread has its id; (b) the scheduling thread gets the payload back. Exactly one of these happens. (netty
/// #14081)
#[test]
fn schedule_races_with_shutdown() {
    model("schedule_races_with_shutdown", || {
        let core = core();
        let scheduling = StdArc::clone(&core);
        let producer = thread::spawn(move || schedules(&scheduling));
        let returned = shut_down(&core);
        let scheduled = producer.join().unwrap();
        assert_eq!(usize::from(scheduled), returned, "the payload has another number of owners than one");
        assert_eq!(
            core.admission().stations().totals().pending(),
            0,
            "the counters have a timer that has no owner"
        );
    });
}

/// A shutdown is followed by the drop of the engine, which drops the payloads that it finds. A scheduling thread may be
/// preempted after the first eviction has passed the thread's slot. Such a thread takes its timer back only later. The
/// legal endings are those of `schedule_races_with_shutdown`. The second shutdown gets nothing.
#[test]
fn schedule_races_with_a_shutdown_and_the_drop_after_it() {
    model("schedule_races_with_a_shutdown_and_the_drop_after_it", || {
        let core = core();
        let scheduling = StdArc::clone(&core);
        let producer = thread::spawn(move || schedules(&scheduling));
        let returned = shut_down(&core);
        let dropped = shut_down(&core);
        let scheduled = producer.join().unwrap();
        assert_eq!(dropped, 0, "the second shutdown took a timer that its scheduler was about to take back");
        assert_eq!(usize::from(scheduled), returned, "the payload has another number of owners than one");
        assert_eq!(
            core.admission().stations().totals().pending(),
            0,
            "the counters have a timer that has no owner"
        );
    });
}

/// A call that schedules a timer races with two shutdowns. Legal endings: (a) one of the shutdowns returns the timer;
/// (b) the scheduling thread gets the payload back.
#[test]
fn schedule_races_with_two_shutdowns() {
    model("schedule_races_with_two_shutdowns", || {
        let core = core();
        let (scheduling, ending) = (StdArc::clone(&core), StdArc::clone(&core));
        let producer = thread::spawn(move || schedules(&scheduling));
        let another = thread::spawn(move || {
            let right = ending.stop();
            let is_first = right.is_some();
            (is_first, right.map_or(0, |right| ending.evict(right).len()))
        });
        let right = core.stop();
        let is_first = right.is_some();
        let returned = right.map_or(0, |right| core.evict(right).len());
        let (other_is_first, other_returned) = another.join().unwrap();
        let scheduled = producer.join().unwrap();
        assert!(is_first != other_is_first, "one shutdown is the first");
        assert_eq!(usize::from(scheduled), returned + other_returned, "a payload has one owner");
        assert_eq!(
            core.admission().stations().totals().pending(),
            0,
            "the counters have a timer that has no owner"
        );
    });
}
