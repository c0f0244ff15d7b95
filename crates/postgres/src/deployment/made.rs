//! Wakes the runtime of this process for the timers that a transaction has made pending.

use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::State;
use tourbillon_durable::store::Alarm;
use tourbillon_durable::timer::Timer;

/// A summary of the timers that a transaction has made pending.
#[derive(Clone, Copy, Default)]
pub(crate) struct Made {
    /// The earliest due moment of these timers. `None` if no timer was made pending.
    due: Option<UtcMillis>,
    /// The shards in which these timers are. Bit `n` stands for shard `n`.
    shards: u32,
}

impl Made {
    /// Adds a timer that the transaction has stored, if the timer is pending.
    pub(crate) fn add(&mut self, timer: &Timer) {
        if timer.state == State::Pending {
            self.due = self.due.into_iter().chain([timer.due]).min();
            // The SQL function `shard_of` computes the same shard.
            self.shards |= 1 << (timer.id.as_u128() & 15);
        }
    }

    /// Wakes the runtime if one of the timers may be due earlier than the runtime expects.
    pub(crate) fn wake(&self, alarm: &Alarm) {
        if let Some(due) = self.due {
            alarm.wake_for_shards(due, self.shards);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tourbillon_durable::timer::TimerId;

    #[test]
    fn only_pending_timers_of_this_node_wake_the_runtime() {
        let (alarm, calls) = (Alarm::default(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&calls);
        alarm.subscribe(Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed)));
        alarm.set_others(1 << 3);
        let timer = |shard: u128, due| {
            Timer::new(TimerId::from_u128(0x70 + shard), "mail", UtcMillis::from_millis(due))
        };
        let mut made = Made::default();
        let mut wakes = |timer: Option<Timer>| {
            timer.iter().for_each(|timer| made.add(timer));
            made.wake(&alarm);
            calls.swap(0, Ordering::Relaxed)
        };
        assert_eq!(wakes(None), 0, "no timer was made pending");
        assert_eq!(wakes(Some(timer(3, 5))), 0);
        assert_eq!(wakes(Some(Timer { state: State::Parked("quota".into()), ..timer(4, 5) })), 0);
        assert_eq!(wakes(Some(timer(4, 9))), 1);
        assert_eq!(made.due, Some(UtcMillis::from_millis(5)), "the earliest of both shards");
    }
}
