//! The thread of a shard: turn, announce, drain once more, sleep.

use super::{Next, Shard};
use crate::affinity;
use crate::clock::EngineClock;
use crate::dispatch::{Dispatcher, Fire};
use crate::sync::StdArc;
use crate::tick::{Tick, TickLength};

/// Drives `shard` until the engine is shut down.
pub(crate) fn drive<F: Fire>(
    mut shard: Shard,
    core: Option<usize>,
    clock: &EngineClock,
    tick: TickLength,
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
        let now = tick.current_tick(clock.now());
        let Next::Sleep(wake) = shard.turn(now, dispatcher, fire) else { continue };
        if parker.announce(wake.map(|wake| tick.first_deadline_of(wake))) {
            // The second half of K1: what was pushed before the announcement is found now.
            shard.drain();
            if is_unchanged(wake, shard.next_due()) {
                sleep_until(wake, clock, tick, &shard);
            }
        }
        parker.withdraw();
    }
}

/// Whether the drain found nothing that is due before the announced tick.
fn is_unchanged(announced: Option<Tick>, due: Option<Tick>) -> bool {
    match (announced, due) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(announced), Some(due)) => announced <= due,
    }
}

fn sleep_until(wake: Option<Tick>, clock: &EngineClock, tick: TickLength, shard: &Shard) {
    let parker = &shard.shared.parker;
    match wake {
        None => parker.park(None),
        Some(wake) => {
            let (now, wake) = (clock.now(), tick.start_of(wake));
            if now < wake {
                parker.park(clock.as_dyn().sleep_for(now, wake));
            } else {
                return;
            }
        }
    }
    shard.shared.counters.wakes.add(1);
}
