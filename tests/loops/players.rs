//! *Players*: threads on which no loop runs, which use one-shots and owned timers.

use crate::foreign::{FAR, LONGEST_DELAY, OWN_TIMERS, OWNED, REMEMBERED, number};
use crate::ledger::{Ledger, add_one};
use crate::stage::{OneShot, Stage};
use crate::support::{HOUR, MS, Rng, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tourbillon::{ArmError, Armed, Disarm, Timer, Timestamp};

/// A thread that leads no loop. The thread schedules, cancels and moves one-shots, and arms and disarms owned timers.
pub(crate) struct Player<'a> {
    stage: &'a Stage,
    rng: Rng,
    payloads: std::ops::Range<u64>,
    own: Vec<Own>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(stage: &'a Stage, n: u64, payloads: u64) -> Self {
        let numbers = n * OWN_TIMERS..(n + 1) * OWN_TIMERS;
        let own = numbers.map(|number| Own::new(stage.timers.timer(number | OWNED).unwrap())).collect();
        Self { stage, rng: Rng::new(n + 1), payloads: n * payloads..(n + 1) * payloads, own }
    }

    /// Schedules `most` further one-shots, and makes other calls between them. Ends earlier after a shutdown.
    pub(crate) fn play(&mut self, most: u64) {
        for _ in 0..most {
            wait_until("the main thread goes on", || self.stage.is_allowed());
            let Some(number) = self.payloads.next() else { return };
            let is_far = number.is_multiple_of(8);
            let delay = self.delay(is_far);
            let shard = (!number.is_multiple_of(3)).then(|| self.rng.index(2));
            add_one(&self.stage.ledger.submitted);
            let payload = if is_far { number | FAR } else { number };
            let Some(one) = self.stage.schedule(shard, delay, payload) else { return };
            self.remember(one);
            if self.rng.chance(20) && self.use_an_owned_timer().is_err() {
                return;
            }
        }
    }

    fn delay(&mut self, is_far: bool) -> Duration {
        if is_far { HOUR + self.rng.nanos_below(HOUR) } else { self.rng.nanos_below(LONGEST_DELAY) }
    }

    /// Adds a one-shot to the shared list. If the list is long, cancels or moves a one-shot from the list. That
    /// one-shot may be another player's.
    fn remember(&mut self, one: OneShot) {
        let picked = {
            let mut remembered = self.stage.remembered.lock().unwrap();
            remembered.push(one);
            if remembered.len() <= REMEMBERED {
                return;
            }
            let at = self.rng.index(remembered.len());
            remembered.swap_remove(at)
        };
        match self.rng.below(10) {
            0..5 => drop(self.stage.cancel(picked, self.rng.chance(20))),
            5..8 => {
                let (shard, delay) = (self.rng.index(2), self.delay(picked.payload & FAR != 0));
                let moved = self.stage.reschedule(picked, shard, delay);
                self.stage.remembered.lock().unwrap().extend(moved);
            }
            // The one-shot fires, or the shutdown returns it.
            _ => {}
        }
    }

    /// Arms, moves or disarms one of the player's owned timers.
    fn use_an_owned_timer(&mut self) -> Result<(), ArmError> {
        let (at, shard, pick) = (self.rng.index(self.own.len()), self.rng.index(2), self.rng.below(10));
        if pick < 3 {
            self.own[at].disarm(self.stage, pick == 0);
            return Ok(());
        }
        let delay = if pick < 6 { self.delay(true) } else { self.rng.nanos_below(MS) };
        self.own[at].arm(self.stage, shard, delay)
    }

    /// Arms each owned timer for an hour and disarms it. Then arms the timer for a moment that comes soon, and waits
    /// until it has fired.
    pub(crate) fn arm_and_await_all(&mut self) {
        for (shard, own) in self.own.iter_mut().enumerate() {
            own.disarm(self.stage, true);
            own.arm(self.stage, shard, HOUR).unwrap();
            assert_eq!(own.disarm(self.stage, false), Disarm::Disarmed);
            own.arm(self.stage, shard + 1, MS).unwrap();
        }
        for own in &mut self.own {
            wait_until("an owned timer fires", || !own.timer.is_armed());
            assert_eq!(own.disarm(self.stage, true), Disarm::Idle);
        }
    }

    /// Checks and drops the owned timers after the shutdown. Returns the number of their firings.
    pub(crate) fn end(self) -> u64 {
        self.own.into_iter().map(|own| own.end(&self.stage.ledger)).sum()
    }
}

/// An owned timer that only its player arms.
struct Own {
    timer: Timer<u64>,
    /// The timer's armings by their deadlines, which all differ. Each arming has its state.
    armings: BTreeMap<Timestamp, Arming>,
    /// The deadline for which the timer is armed. `None` if it was disarmed.
    last: Option<Timestamp>,
    /// Whether the handler ran during the last arming and may still run. A disarm at the handler's end may return that
    /// the timer was idle: see `Timer::disarm_and_wait`.
    may_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arming {
    HasFired,
    DoesNotFire,
    /// The arming was replaced, or the shutdown has forgotten it. The timer may have fired once for the arming.
    Unknown,
}

impl Own {
    fn new(timer: Timer<u64>) -> Self {
        Self { timer, armings: BTreeMap::new(), last: None, may_run: false }
    }

    /// Arms the timer on the shard `shard`. If the timer is on another shard, it moves.
    fn arm(&mut self, stage: &Stage, shard: usize, delay: Duration) -> Result<(), ArmError> {
        let mut deadline = stage.timers.now() + delay;
        while self.armings.contains_key(&deadline) {
            deadline = deadline + Duration::from_nanos(1);
        }
        self.armings.insert(deadline, Arming::Unknown);
        self.may_run |= stage.timers.on(shard).arm_at(&self.timer, deadline)? == Armed::Running;
        self.last = Some(deadline);
        Ok(())
    }

    fn disarm(&mut self, stage: &Stage, waits: bool) -> Disarm {
        let outcome = if waits { self.timer.disarm_and_wait() } else { self.timer.disarm() };
        let is_sure = !self.may_run && !stage.timers.is_shut_down();
        self.may_run = outcome == Disarm::Running;
        assert!(!(waits && self.may_run), "it has waited");
        if let Some(last) = self.last.take() {
            let arming = match outcome {
                Disarm::Disarmed => Arming::DoesNotFire,
                Disarm::Idle if is_sure => Arming::HasFired,
                _ => Arming::Unknown,
            };
            self.armings.insert(last, arming);
            stage.ledger.disarmed.fetch_add(u64::from(outcome == Disarm::Disarmed), Ordering::SeqCst);
        }
        outcome
    }

    /// Compares the timer's firings with its armings, after the shutdown. Returns the number of firings.
    fn end(self, ledger: &Ledger) -> u64 {
        assert_eq!((self.timer.deadline(), self.timer.disarm()), (None, Disarm::Idle));
        assert_eq!(self.timer.arm(MS), Err(ArmError::ShutDown));
        let payload = *self.timer.payload();
        let fired = std::mem::take(&mut *ledger.owned_fired[number(payload)].lock().unwrap());
        for deadline in &fired {
            let arming = self.armings.get(deadline).copied();
            assert!(matches!(arming, Some(Arming::HasFired | Arming::Unknown)), "{arming:?} fired");
        }
        let distinct: BTreeSet<_> = fired.iter().copied().collect();
        assert_eq!(distinct.len(), fired.len(), "fired twice for one arming");
        let mut have_fired = self.armings.iter().filter(|(_, arming)| **arming == Arming::HasFired);
        assert!(have_fired.all(|(deadline, _)| distinct.contains(deadline)), "neither fired nor disarmed");
        fired.len() as u64
    }
}
