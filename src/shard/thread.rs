//! The thread of a shard: turns and sleeps.

use super::{Next, Pulse, Shard, Wake};
use crate::affinity::{self, Pin};
use crate::clock::EngineClock;
use crate::dispatch::{Dispatcher, Fire};
use crate::parker::Parker;
use crate::sync::StdArc;
use crate::tick::Timestamp;
use crate::trace;

/// Drives `shard` until the engine is shut down.
pub(crate) fn drive<F: Fire>(
    mut shard: Shard,
    mut pulse: Pulse,
    core: Option<usize>,
    clock: &EngineClock,
    dispatcher: &Dispatcher,
    fire: &StdArc<F>,
) {
    let shared = StdArc::clone(&shard.shared);
    let parker = &shared.parker;
    parker.adopt_current_thread();
    affinity::tighten_timer_slack();
    if let Some(core) = core.filter(|&core| affinity::pin_current_thread(core) == Pin::Refused) {
        shared.counters.pin_refused.set(1);
        trace::pin_refused(pulse.engine, shard.index, core);
    }
    while !parker.is_closed() {
        let now = clock.true_now();
        pulse.begin_turn(now);
        let next = shard.turn(now, dispatcher, fire);
        pulse.end_turn(now, shard.due());
        let Next::Sleep(wake) = next else { continue };
        let slept = parker.sleep(
            wake.map(|wake| wake.not_before),
            || shard.may_sleep(wake),
            || park(parker, &mut pulse, wake, clock),
        );
        if slept {
            shared.counters.wakes.add(1);
        }
    }
    pulse.end();
}

/// Sleeps until `wake`, or until woken. False when it is time already.
fn park(parker: &Parker, pulse: &mut Pulse, wake: Option<Wake>, clock: &EngineClock) -> bool {
    let until = wake.map_or(Timestamp::MAX, |wake| wake.at);
    let now = clock.true_now();
    pulse.rest(now, until);
    // The last tick begins beyond what a clock can show.
    if until == Timestamp::MAX {
        parker.park(None);
        return true;
    }
    if now >= until {
        return false;
    }
    parker.park(clock.as_dyn().sleep_for(now, until));
    true
}
