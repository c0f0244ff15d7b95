//! Scheduling while the engine ends.
//!
//! Each row was tried: the ordering named was made `Relaxed`, or the fence or tag left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | F2: `notify`'s fence | `schedule_races_with_shutdown` |
//! | F2: `close`'s fence | `schedule_races_with_shutdown` |

use super::model;
use crate::clock::{EngineClock, ManualClock};
use crate::dispatch::{Dispatcher, Guarded};
use crate::engine::{Core, Local, Refusal, Settings};
use crate::scheduling::Scheduling;
use crate::sync::{StdArc, thread};
use crate::tick::Timestamp;
use core::time::Duration;

fn core() -> StdArc<Core<u32>> {
    let settings = Settings {
        tick: Duration::from_millis(1),
        shards: 1,
        cores: Box::new([]),
        capacity: 2,
        lane_capacity: 64,
        clock: EngineClock::Custom(Box::new(ManualClock::new())),
        dispatcher: Dispatcher::Inline,
        guarded: Guarded::new(None),
        stall_after: Duration::from_secs(1),
        scheduling: Scheduling::default(),
        refusals: StdArc::default(),
    };
    Core::new(settings, Box::new(|_, _| {})).0
}

/// Legal endings: (a) the shutdown returns the timer and the scheduler has its id; (b) the scheduler has the payload
/// back. Never both, never neither. (netty #14081)
#[test]
fn schedule_races_with_shutdown() {
    model("schedule_races_with_shutdown", || {
        let core = core();
        let scheduling = StdArc::clone(&core);
        let producer = thread::spawn(move || {
            let mut local = Local::new(&scheduling, 0);
            match scheduling.reserve(&mut local) {
                Ok(slot) => scheduling.schedule(&mut local, slot, Timestamp::MAX, 7).is_ok(),
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::ShutDown);
                    false
                }
            }
        });
        for shard in core.shards() {
            shard.parker.close();
        }
        let returned = core.evict_all();
        let scheduled = producer.join().unwrap();
        assert_eq!(scheduled, !returned.is_empty(), "returned {returned:?}");
        assert_eq!(core.totals().pending(), 0);
    });
}
