//! The thread of a shard: turn, announce, drain once more, sleep.

use super::{Next, Shard, Wake};
use crate::affinity;
use crate::clock::EngineClock;
use crate::dispatch::{Dispatcher, Fire};
use crate::parker::Parker;
use crate::sync::StdArc;
use crate::tick::Timestamp;

/// Drives `shard` until the engine is shut down.
pub(crate) fn drive<F: Fire>(
    mut shard: Shard,
    core: Option<usize>,
    clock: &EngineClock,
    dispatcher: &Dispatcher,
    fire: &StdArc<F>,
) {
    let shared = StdArc::clone(&shard.shared);
    let parker = &shared.parker;
    parker.adopt_current_thread();
    affinity::tighten_timer_slack();
    if core.is_some_and(|core| !affinity::pin_current_thread(core)) {
        shared.counters.pin_refused.set(1);
    }
    while !parker.is_closed() {
        let Next::Sleep(wake) = shard.turn(clock.now(), dispatcher, fire) else { continue };
        if parker.announce(wake.map(|wake| wake.not_before)) {
            // The second half of K1: what was pushed before the announcement is found now.
            shard.drain();
            if shard.may_sleep(wake) && park(parker, wake, clock) {
                shared.counters.wakes.add(1);
            }
        }
        parker.withdraw();
    }
}

/// Sleeps until `wake`, or until woken. False when it is time already.
fn park(parker: &Parker, wake: Option<Wake>, clock: &EngineClock) -> bool {
    let timeout = match wake {
        None => None,
        // The last tick begins beyond what a clock can show.
        Some(wake) if wake.at == Timestamp::MAX => None,
        Some(wake) => {
            let now = clock.now();
            if now >= wake.at {
                return false;
            }
            clock.as_dyn().sleep_for(now, wake.at)
        }
    };
    parker.park(timeout);
    true
}
