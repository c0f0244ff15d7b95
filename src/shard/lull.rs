//! The length of the sleep of a shard that has nothing to do: until the first deadline of the timers that ended unseen.
//!
//! If each timer ends before the next one is scheduled, as with requests one at a time, the wheel is empty whenever its
//! shard looks. Without a lull the shard would sleep until it is woken, and each timer would wake it. A shard that
//! sleeps until a deadline that no timer has any more is woken by earlier deadlines only: timers of one duration wake
//! it twice in that time at most, timers of random durations ever more seldom.

use crate::tick::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Lull {
    now: Timestamp,
    until: Option<Timestamp>,
}

impl Lull {
    /// Begins a turn.
    pub(super) fn begin_turn(&mut self, now: Timestamp) {
        self.now = now;
        self.until = self.until.filter(|until| *until > now);
    }

    /// Notes that a timer with this deadline has ended before its ticket came into the wheel.
    #[inline]
    pub(super) fn note(&mut self, deadline: Timestamp) {
        if deadline > self.now && self.until.is_none_or(|until| deadline < until) {
            self.until = Some(deadline);
        }
    }

    /// The end of the sleep, if nothing is due before.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_the_first_of_those_ahead() {
        let at = Timestamp::from_nanos;
        let mut lull = Lull::default();
        assert_eq!(lull.until(), None);
        lull.begin_turn(at(10));
        [5, 10].into_iter().for_each(|deadline| lull.note(at(deadline)));
        assert_eq!(lull.until(), None);
        [30, 20, 40].into_iter().for_each(|deadline| lull.note(at(deadline)));
        assert_eq!(lull.until(), Some(at(20)));
        lull.begin_turn(at(19));
        assert_eq!(lull.until(), Some(at(20)));
        lull.begin_turn(at(20));
        assert_eq!(lull.until(), None);
    }
}
