//! Computes the steps of a world, and checks the invariants at the start of a delivery.

use crate::transactions::Model;
use crate::world::{Held, LEASE, Mini, MiniState, Said, Seen, Step, World, Wrong, at};
use std::time::Duration;
use tourbillon_durable::state::{Event, Failure, Token};

impl Model {
    /// Returns the world (state of the model) after a step. `None` if the world does not permit the step. Fails with
    /// the invariant that the step breaks.
    pub(crate) fn step(&self, world: &World, step: Step) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let scenario = &self.scenario;
        let full = world.log.len() >= 2;
        match step {
            Step::Tick if world.now < scenario.last_tick => next.now += 1,
            Step::User if !full => {
                let Some(op) = scenario.user.get(usize::from(world.user)) else { return Ok(None) };
                next.user += 1;
                self.user(&mut next, *op);
            }
            Step::Sync => {
                let Some((disk, said)) = next.log.pop_front() else { return Ok(None) };
                next.disk = disk;
                Self::say(&mut next, &said);
                if let Some(held) = &mut next.worker {
                    held.waits = held.waits.saturating_sub(1);
                }
            }
            Step::Claim if !full && world.worker.is_none() => {
                let is_due = |timer: &Mini| {
                    let is_ready = timer.due <= world.now || self.wrong == Wrong::ClaimIgnoresTheDueMoment;
                    timer.state == MiniState::Pending && is_ready
                };
                let mut due: Vec<usize> = (0..world.store.len()).collect();
                due.retain(|nth| is_due(&world.store[*nth]));
                due.sort_by_key(|nth| (world.store[*nth].due, world.store[*nth].id));
                let Some(nth) = due.first().copied() else { return Ok(None) };
                let timer = next.store[nth];
                next.tokens += 1;
                let token = next.tokens;
                let claim = Token { incarnation: 0, claim: token.into() };
                self.apply(&mut next, nth, Event::Claim { token: claim, until: at(world.now + LEASE) });
                if self.wrong == Wrong::DeleteBeforeDelivery {
                    next.store.remove(nth);
                }
                let seen = next.seen.entry(timer.id).or_default();
                if seen.cancelled {
                    return Err(format!("I3, I5: {} is claimed after it was cancelled", timer.id));
                }
                self.settle(&mut next, &timer, false, false, Said::Nothing);
                let (waits, until) = (next.log.len().try_into().unwrap(), world.now + LEASE);
                next.worker = Some(Held { timer, token, waits, removed: false, until, begun: false });
            }
            Step::Remove if world.worker.as_ref().is_some_and(|held| !held.removed) && !full => {
                if !self.is_once() {
                    return Ok(None);
                }
                self.remove(&mut next);
            }
            Step::Begin if world.worker.as_ref().is_some_and(|held| !held.begun) => {
                let held = next.worker.as_mut().unwrap();
                let is_removed =
                    held.removed && (held.waits == 0 || self.wrong == Wrong::OnceBeginsBeforeDurable);
                if self.is_once() && !is_removed {
                    return Ok(None);
                }
                // After the end of its lease, a timer may have another holder, or may be withdrawn.
                if !self.is_once() && world.now >= held.until && self.wrong != Wrong::BeginsAfterTheLease {
                    next.worker = None;
                    return Ok(Some(next));
                }
                held.begun = true;
                let (id, token) = (held.timer.id, held.token);
                self.begin(&mut next, id, token)?;
            }
            Step::Succeed if world.worker.as_ref().is_some_and(|held| held.begun) && !full => {
                let id = world.worker.as_ref().unwrap().timer.id;
                next.seen.entry(id).or_default().succeeded = true;
                self.finish(&mut next, Event::Ack);
            }
            Step::Fail if world.worker.as_ref().is_some_and(|held| held.begun) && !full => {
                if world.failures == scenario.failures {
                    return Ok(None);
                }
                next.failures += 1;
                let failure = Failure { retry_after: Some(Duration::ZERO), ..Failure::default() };
                self.finish(&mut next, |token| Event::Fail(token, failure.clone()));
            }
            Step::Release if world.worker.as_ref().is_some_and(|held| !held.begun) && !full => {
                // A timer that is removed cannot be given back.
                let is_removed = world.worker.as_ref().is_some_and(|held| held.removed);
                if is_removed || world.failures == scenario.failures {
                    return Ok(None);
                }
                next.failures += 1;
                self.finish(&mut next, Event::Release);
            }
            Step::Reap if !full => {
                let is_over = |timer: &Mini| matches!(timer.state, MiniState::Leased { until, .. } if until <= world.now);
                let Some(nth) = world.store.iter().position(is_over) else { return Ok(None) };
                next.expired = true;
                self.expire(&mut next, nth);
            }
            Step::Crash if world.crashes < scenario.crashes => {
                next.crashes += 1;
                next.worker = None;
                next.log.clear();
                next.store = next.disk.clone();
                while let Some(nth) =
                    next.store.iter().position(|timer| matches!(timer.state, MiniState::Leased { .. }))
                {
                    if self.wrong == Wrong::RestartForgetsTheWithdrawal {
                        next.store[nth].state = MiniState::Pending;
                    } else {
                        self.expire(&mut next, nth);
                    }
                }
                // The restart's transaction is durable before anything else begins.
                next.log.clear();
                next.disk = next.store.clone();
            }
            _ => return Ok(None),
        }
        Ok(Some(next))
    }

    /// Starts the delivery of a timer in the model. Fails with the invariant that the start breaks.
    fn begin(&self, world: &mut World, id: u128, token: u8) -> Result<(), String> {
        let now = world.now;
        let is_calm = world.crashes == 0 && world.failures == 0 && !world.expired;
        let seen = world.seen.entry(id).or_default();
        seen.begun += 1;
        let Seen { scheduled, .. } = *seen;
        if now < seen.due {
            return Err(format!("I2: {id} starts at {now}, and is due at {}", seen.due));
        }
        if seen.cancelled {
            return Err(format!("I3, I5: {id} starts after it was withdrawn"));
        }
        if seen.last.is_some_and(|last| last != token) {
            return Err(format!("I3, I5: {id} starts again after its last delivery"));
        }
        if seen.last.is_some() && self.is_once() {
            return Err(format!("I3, I5: {id} starts, and was withdrawn before its removal"));
        }
        if seen.acked {
            return Err(format!("I4: {id} starts after a durable acknowledgement"));
        }
        if seen.begun > 1 && is_calm {
            return Err(format!("I4: {id} starts twice without a fault"));
        }
        if seen.begun > 1 && self.is_once() {
            return Err(format!("I7: {id} starts twice"));
        }
        let is_same =
            |(other, seen): &(&u128, &Seen)| **other != id && seen.scheduled == scheduled && seen.begun > 0;
        if self.scenario.series_until.is_some() && world.seen.iter().any(|pair| is_same(&pair)) {
            return Err(format!("I6: the instant {scheduled} has two ids"));
        }
        Ok(())
    }
}
