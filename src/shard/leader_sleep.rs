//! Lets a shard's leader sleep on the shard's own parker and on the parkers of the stations that do not rest.

use super::Shard;
use super::led::Led;
use super::sleep::{NAP, Next, Wake};
use crate::base::tick::Timestamp;
use crate::lockfree::parker::{self, Parker, Parkers, Sleep};
use crate::system::clock::EngineClock;

/// Describes the sleep of a shard's leader (the thread that runs the shard): how long it lasts, and which parkers (the
/// words that announce it) can end it.
pub(super) struct LeaderSleep<'a> {
    pub(super) shard: &'a Shard,
    pub(super) led: &'a mut Led,
    pub(super) wake: Option<Wake>,
    pub(super) is_nap: bool,
    pub(super) clock: &'a EngineClock,
}

impl Parkers for LeaderSleep<'_> {
    fn visit(&self, visit: impl FnMut(&Parker)) {
        self.shard.parkers(self.led).for_each(visit);
    }
}

impl Sleep for LeaderSleep<'_> {
    fn may_sleep(&mut self) -> bool {
        !self.shard.has_arrivals() && self.led.look_again(self.wake) == Next::Sleep(self.wake)
    }

    fn park(&mut self) -> bool {
        let until = self.wake.map_or(Timestamp::MAX, |wake| wake.at);
        let now = self.clock.true_now();
        self.led.stalls.begin_sleep(now, until);
        // The clock cannot reach this moment, so the sleep has no time limit.
        if until == Timestamp::MAX {
            parker::park(self, None);
            return true;
        }
        if now >= until {
            return false;
        }
        let time = self.clock.as_dyn().sleep_for(now, until);
        // The clock may have stepped back since the turn.
        let longest = if self.is_nap { Some(NAP) } else { None };
        parker::park(self, time.into_iter().chain(longest).min());
        true
    }
}
