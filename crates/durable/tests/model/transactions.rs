//! Makes the transactions of the user, the worker and the restart, with the state machine of the library.

use crate::world::{Held, Mini, MiniState, PERIOD, Said, Scenario, UserOp, World, Wrong, at, back, claim_of};
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{
    Death, DeathReason, End, Event, Lease, Next, State, Token, Withdrawal, step,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

pub(crate) struct Model {
    pub(crate) scenario: Scenario,
    pub(crate) wrong: Wrong,
}

impl Model {
    fn series(&self) -> Option<Series> {
        let end = Some(at(self.scenario.series_until?));
        let plan = Plan::Every(PERIOD.into());
        Some(Series { id: TimerId::from_u128(99), plan, missed: MissedInstants::All, end, paused: false })
    }

    fn timer(&self, mini: &Mini) -> Timer {
        Timer {
            id: TimerId::from_u128(mini.id),
            namespace: "".into(),
            key: None,
            kind: "".into(),
            payload: Payload::default(),
            labels: Vec::new(),
            policy: Policy {
                attempts: 2,
                deliveries: 5,
                guarantee: self.scenario.guarantee,
                ..Policy::default()
            },
            series: self.series(),
            created: at(0),
            scheduled: at(mini.scheduled),
            due: at(mini.due),
            deliveries: mini.deliveries.into(),
            failures: mini.failures.into(),
            last_error: None,
            state: match mini.state {
                MiniState::Pending => State::Pending,
                MiniState::Leased { token, until, withdrawn } => {
                    let token = Token { incarnation: 0, claim: token.into() };
                    State::Leased(Lease { token, until: at(until), withdrawn })
                }
                MiniState::Dead => State::Dead(Death { reason: DeathReason::Attempts, at: at(0) }),
            },
            trace: None,
            has_chosen_id: false,
            age_from: None,
        }
    }

    fn mini(timer: &Timer) -> Mini {
        Mini {
            id: timer.id.as_u128(),
            due: back(timer.due),
            scheduled: back(timer.scheduled),
            deliveries: timer.deliveries.try_into().unwrap(),
            failures: timer.failures.try_into().unwrap(),
            state: match &timer.state {
                State::Pending => MiniState::Pending,
                State::Leased(lease) => MiniState::Leased {
                    token: lease.token.claim.try_into().unwrap(),
                    until: back(lease.until),
                    withdrawn: lease.withdrawn,
                },
                State::Dead(_) => MiniState::Dead,
                State::Parked(_) => panic!("nobody parks a timer"),
            },
        }
    }

    pub(crate) fn is_once(&self) -> bool {
        self.scenario.guarantee == Guarantee::AtMostOnce
    }

    /// Commits the store of the model in memory. A later sync makes the commit durable. Then the user or the worker
    /// gets the answer `said`.
    fn commit(&self, world: &mut World, said: Said) {
        world.log.push_back((world.store.clone(), said.clone()));
        if self.wrong == Wrong::AnswerBeforeDurable {
            Self::say(world, &said);
        }
    }

    /// Gives an answer to the user or the worker. The observer of the model notes the promise in the answer.
    pub(crate) fn say(world: &mut World, said: &Said) {
        match said {
            Said::Nothing => {}
            Said::Placed(id) => world.seen.entry(*id).or_default().accepted = true,
            Said::Cancelled(id) => world.seen.entry(*id).or_default().cancelled = true,
            Said::InFlight(id, token) => world.seen.entry(*id).or_default().last = Some(*token),
            Said::Replaced { new, old } => {
                world.seen.entry(*new).or_default().accepted = true;
                if let Some((old, in_flight)) = old {
                    let seen = world.seen.entry(*old).or_default();
                    match in_flight {
                        Some(token) => seen.last = Some(*token),
                        None => seen.cancelled = true,
                    }
                }
            }
            Said::Acked(id) => world.seen.entry(*id).or_default().acked = true,
        }
    }

    /// Stores the occurrence that follows the timer `ended` of a series. The timer has ended or is dead.
    fn follow(&self, world: &mut World, ended: &Mini) {
        let Some(series) = self.series() else { return };
        let from = match self.wrong {
            Wrong::NextFromTheEndOfTheDelivery => world.now,
            _ => ended.scheduled,
        };
        let Some(instant) = series.following(at(from), at(world.now)).instant else { return };
        world.fresh += 1;
        let id = match self.wrong {
            Wrong::FreshIds => 1_000 + u128::from(world.fresh),
            _ => TimerId::of_occurrence(series.id, instant).as_u128(),
        };
        let instant = back(instant);
        let (deliveries, failures) = (0, 0);
        world.store.push(Mini {
            id,
            due: instant,
            scheduled: instant,
            deliveries,
            failures,
            state: MiniState::Pending,
        });
        let seen = world.seen.entry(id).or_default();
        (seen.due, seen.scheduled) = (instant, instant);
    }

    /// Applies an event to the timer at index `nth` of the model's store. The outer `None` says that the event is
    /// refused. The inner `None` says that the timer has not ended.
    pub(crate) fn apply(&self, world: &mut World, nth: usize, event: Event) -> Option<Option<End>> {
        let mini = world.store[nth];
        let now = at(match self.wrong {
            Wrong::ClaimIgnoresTheDueMoment => world.now.max(mini.due),
            _ => world.now,
        });
        match step(&self.timer(&mini), event, now).ok()? {
            Next::Stays(next) => {
                world.store[nth] = Self::mini(&next);
                Some(None)
            }
            Next::Ends(end) => {
                world.store.remove(nth);
                Some(Some(end))
            }
        }
    }

    pub(crate) fn user(&self, world: &mut World, op: UserOp) {
        let (id, due, replaces) = match op {
            UserOp::Place(id, due) => (id, due, false),
            UserOp::Replace(id, due) => (id, due, true),
            UserOp::Cancel(id) => return self.cancel(world, id),
        };
        // The key belongs to the only timer that is neither dead nor withdrawn.
        let is_owner = |timer: &Mini| {
            !matches!(timer.state, MiniState::Dead | MiniState::Leased { withdrawn: Some(_), .. })
        };
        let old = world.store.iter().position(is_owner).filter(|_| replaces);
        let old = old.map(|nth| {
            let old = world.store[nth];
            if self.wrong != Wrong::ReplaceKeepsTheOld {
                self.apply(world, nth, Event::Withdraw(Withdrawal::Replaced)).unwrap();
            }
            (old.id, claim_of(&old))
        });
        world.store.push(Mini {
            id,
            due,
            scheduled: due,
            deliveries: 0,
            failures: 0,
            state: MiniState::Pending,
        });
        let seen = world.seen.entry(id).or_default();
        (seen.due, seen.scheduled) = (due, due);
        let said = if replaces { Said::Replaced { new: id, old } } else { Said::Placed(id) };
        self.commit(world, said);
    }

    fn cancel(&self, world: &mut World, id: u128) {
        // In a series, the id may belong to any occurrence, so the present occurrence is meant.
        let is_meant = |timer: &Mini| timer.id == id || self.scenario.series_until.is_some();
        let is_live = |timer: &Mini| is_meant(timer) && timer.state != MiniState::Dead;
        let Some(nth) = world.store.iter().position(is_live) else { return };
        let Mini { id, .. } = world.store[nth];
        let claim = claim_of(&world.store[nth]);
        if self.wrong == Wrong::CancelForgetsTheLease {
            world.store.remove(nth);
            return self.commit(world, Said::Cancelled(id));
        }
        self.apply(world, nth, Event::Withdraw(Withdrawal::Cancelled)).unwrap();
        let said = claim.map_or(Said::Cancelled(id), |claim| Said::InFlight(id, claim));
        self.commit(world, said);
    }

    /// Has the worker's timer removed, which is delivered at most once. The worker keeps the timer if the removal took
    /// effect, and its delivery may begin once the removal is durable.
    pub(crate) fn remove(&self, world: &mut World) {
        let Some(held) = world.worker.clone() else { return };
        let token = Token { incarnation: 0, claim: held.token.into() };
        let event = match self.wrong {
            Wrong::RemovalIgnoresTheWithdrawal => Event::Ack(token),
            _ => Event::Skip(token),
        };
        world.worker = None;
        let Some(nth) = world.store.iter().position(|stored| stored.id == held.timer.id) else { return };
        let before = world.store[nth];
        let was_withdrawn = matches!(before.state, MiniState::Leased { withdrawn: Some(_), .. });
        let Some(end) = self.apply(world, nth, event) else { return };
        self.settle(world, &before, end.is_some(), was_withdrawn, Said::Nothing);
        if matches!(end, Some(End::Done | End::Skipped)) {
            let waits = world.log.len().try_into().unwrap();
            world.worker = Some(Held { waits, removed: true, ..held });
        }
    }

    /// Ends the delivery that the worker has under way, with an event.
    pub(crate) fn finish(&self, world: &mut World, event: impl Fn(Token) -> Event) {
        let Held { timer, token, .. } = world.worker.take().unwrap();
        let event = event(Token { incarnation: 0, claim: token.into() });
        let is_ack = matches!(event, Event::Ack(_));
        let Some(nth) = world.store.iter().position(|stored| stored.id == timer.id) else { return };
        let before = world.store[nth];
        let was_withdrawn = matches!(before.state, MiniState::Leased { withdrawn: Some(_), .. });
        let Some(end) = self.apply(world, nth, event) else { return };
        let said = if is_ack { Said::Acked(timer.id) } else { Said::Nothing };
        self.settle(world, &before, end.is_some(), was_withdrawn, said);
    }

    /// Stores the next occurrence of the series if the timer `before` has ended or is dead. Then commits the store with
    /// the answer `said`.
    pub(crate) fn settle(
        &self,
        world: &mut World,
        before: &Mini,
        ended: bool,
        was_withdrawn: bool,
        said: Said,
    ) {
        let is_dead =
            !ended && world.store.iter().any(|timer| timer.id == before.id && timer.state == MiniState::Dead);
        if is_dead {
            world.seen.entry(before.id).or_default().dead = true;
        }
        let goes_on = (ended || is_dead) && !was_withdrawn;
        if goes_on && self.wrong == Wrong::NextInATransactionOfItsOwn {
            self.commit(world, Said::Nothing);
        }
        if goes_on {
            self.follow(world, before);
        }
        self.commit(world, said);
    }

    pub(crate) fn expire(&self, world: &mut World, nth: usize) {
        let before = world.store[nth];
        let was_withdrawn = matches!(before.state, MiniState::Leased { withdrawn: Some(_), .. });
        let end = self.apply(world, nth, Event::Expire).unwrap();
        self.settle(world, &before, end.is_some(), was_withdrawn, Said::Nothing);
    }
}
