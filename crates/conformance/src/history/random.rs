//! Makes the operations of a life, which is a run of random operations.

use super::{Player, REASONS};
use crate::bench::timer;
use core::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Backoff, Guarantee, Policy};
use tourbillon_durable::state::{Death, DeathReason, Failure, Lease, State, Token, Withdrawal};
use tourbillon_durable::store::{IfPresent, Op};
use tourbillon_durable::timer::{Address, KeyOf, Payload, Timer, TimerId};

const NAMESPACES: [&str; 2] = ["", "n"];
const LABELS: [&str; 3] = ["l", "la", "m"];
/// Keys that stores may treat differently: an empty text, a wildcard of SQL, capitals, and the last character of
/// Unicode.
const ODD_KEYS: [&str; 4] = ["", "k%", "K1", "k\u{10ffff}"];

impl Player {
    fn some_id(&mut self) -> TimerId {
        if self.rng.u32(0..3) == 0
            && let Some((held, _)) = self.rng.choice(&self.held)
        {
            return *held;
        }
        let ids = core::mem::take(&mut self.ids);
        let recent = ids.len().saturating_sub(40);
        let id = self.rng.choice(&ids[recent..]).copied();
        self.ids = ids;
        id.unwrap_or_else(|| TimerId::from_u128(self.rng.u128(..)))
    }

    fn key(&mut self) -> Box<str> {
        match self.rng.usize(0..24) {
            nth @ 0..4 => ODD_KEYS[nth].into(),
            nth => format!("k{}", nth % 8).into(),
        }
    }

    fn namespace(&mut self) -> Box<str> {
        NAMESPACES[self.rng.usize(0..NAMESPACES.len())].into()
    }

    fn address(&mut self) -> Address {
        // If an operation by key is repeated, it may find another timer. So with faults only ids are used.
        if self.faulty.is_some() || self.rng.bool() {
            Address::Id(self.some_id())
        } else {
            Address::Key(KeyOf { namespace: self.namespace(), key: self.key() })
        }
    }

    fn moment(&mut self) -> UtcMillis {
        UtcMillis::from_millis(self.now().as_millis() + self.rng.u64(0..3_000) - 200)
    }

    fn policy(&mut self) -> Policy {
        let rng = &mut self.rng;
        Policy {
            attempts: rng.u32(0..4),
            deliveries: rng.u32(0..5),
            max_age: (rng.u32(0..5) == 0).then(|| Duration::from_millis(rng.u64(0..60_000))),
            backoff: match rng.u32(0..4) {
                0 => Backoff::Standard,
                1 => Backoff::Fixed(Duration::from_millis(100)),
                2 => Backoff::Exponential {
                    first: Duration::from_millis(50),
                    max: Duration::from_millis(1_000),
                },
                _ => Backoff::Ladder(vec![Duration::ZERO, Duration::from_millis(10)]),
            },
            jitter: Duration::from_millis(rng.u64(0..3) * 70),
            guarantee: if rng.u32(0..6) == 0 { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce },
            ..Policy::default()
        }
    }

    /// Makes a plan. One of eight plans is not valid, like a plan of a backup whose time zone this machine lacks.
    fn plan(&mut self) -> Plan {
        let zone = |zone: &str| zone.into();
        match self.rng.u32(0..16) {
            0 => Plan::Every(0),
            1 => Plan::Cron { expression: "* * * * * *".into(), zone: zone("UTC"), skip_gaps: false },
            2 => Plan::Cron { expression: "* * * * *".into(), zone: zone("No/Where"), skip_gaps: false },
            3 => Plan::Monthly {
                day: 1,
                second: 86_400,
                zone: zone("UTC"),
                last_if_short: true,
                skip_gaps: false,
            },
            _ => Plan::Every(self.rng.choice([100, 700, 5_000]).unwrap_or(1)),
        }
    }

    fn series(&mut self) -> Series {
        let plan = self.plan();
        // If a series with another kind of plan reused an id, its instants could be those of the earlier series. Such
        // an instant may rightly get a second occurrence, which the checker would take for a repeated delivery.
        let may_repeat = matches!(plan, Plan::Every(1..));
        let id = match self.rng.choice(&self.series).copied() {
            Some(used) if may_repeat && self.rng.u32(0..6) == 0 => used,
            _ => TimerId::from_u128(self.rng.u128(..)),
        };
        if may_repeat {
            self.series.push(id);
        }
        let missed = if self.rng.bool() { MissedInstants::All } else { MissedInstants::Skip };
        let end = (self.rng.u32(0..3) == 0).then(|| self.moment() + Duration::from_millis(3_000));
        Series { id, plan, missed, end, paused: self.rng.u32(0..10) == 0 }
    }

    /// Returns the state of a new timer: usually pending, sometimes parked.
    fn new_state(&mut self) -> State {
        match self.rng.usize(0..36) {
            nth @ 0..3 => State::Parked(REASONS[nth].into()),
            _ => State::Pending,
        }
    }

    fn timer(&mut self) -> Timer {
        let has_chosen_id = self.faulty.is_some() || self.rng.bool();
        // Only a chosen id may come again.
        let recent = self.chosen.len().saturating_sub(40);
        let again =
            self.rng.choice(&self.chosen[recent..]).filter(|_| has_chosen_id && self.rng.u32(0..10) == 0);
        let id = again.copied().unwrap_or_else(|| TimerId::from_u128(self.rng.u128(..)));
        self.ids.push(id);
        if has_chosen_id {
            self.chosen.push(id);
        }
        let due = self.moment();
        let is_series = self.rng.u32(0..4) == 0;
        Timer {
            namespace: self.namespace(),
            key: (self.rng.u32(0..5) < 3).then(|| self.key()),
            payload: Payload(vec![1; self.rng.usize(0..30)].into()),
            labels: LABELS.into_iter().filter(|_| self.rng.u32(0..3) == 0).map(Into::into).collect(),
            policy: self.policy(),
            series: is_series.then(|| self.series()),
            has_chosen_id,
            age_from: (!is_series && self.rng.u32(0..4) == 0).then_some(due),
            state: self.new_state(),
            ..timer(id, due)
        }
    }

    /// Makes the timers of a backup, in all states that a stored timer can have. A part of the ids and keys is taken.
    pub(super) fn backup(&mut self) -> Vec<Timer> {
        let number = self.rng.u32(0..4);
        let mut timers: Vec<Timer> = (0..number).map(|_| self.timer()).collect();
        for timer in &mut timers {
            let token = Token { incarnation: 9, claim: self.rng.u64(..) };
            let withdrawn = self.rng.bool().then_some(Withdrawal::Cancelled);
            match self.rng.u32(0..8) {
                0..2 => timer.state = State::Leased(Lease { token, until: timer.due, withdrawn }),
                2 => {
                    timer.state = State::Dead(Death { reason: DeathReason::Refused, at: timer.due });
                    timer.series = None;
                }
                3 if self.rng.u32(0..4) == 0 => timer.state = State::Parked("r".repeat(256).into()),
                _ => {}
            }
        }
        timers
    }

    fn mode(&mut self, timer: &Timer) -> IfPresent {
        let holds =
            |other: &&Timer| timer.key.is_some() && other.owns_key() && other.key_of() == timer.key_of();
        let holder = self.seen.stored.values().find(holds).map(|holder| holder.id);
        match self.rng.u32(0..18) {
            0..4 => IfPresent::Reject,
            4..8 => IfPresent::Keep,
            8..12 => IfPresent::Replace,
            12..16 => IfPresent::ReplaceKeepDue,
            16 => IfPresent::ReplaceOnly(holder.unwrap_or(timer.id)),
            _ => IfPresent::ReplaceOnly(self.some_id()),
        }
    }

    pub(super) fn op(&mut self) -> Op {
        match self.rng.u32(0..100) {
            0..40 => {
                let timer = self.timer();
                let mode = self.mode(&timer);
                Op::Place(Box::new(timer), mode)
            }
            40..50 => {
                let only = (self.rng.u32(0..4) == 0).then(|| self.some_id());
                Op::Cancel(self.address(), only)
            }
            50..52 => Op::CancelLabelled {
                namespace: self.namespace(),
                label: LABELS[self.rng.usize(0..3)].into(),
                limit: self.rng.u32(0..4),
            },
            52..56 => Op::Move(self.address(), self.moment()),
            56..60 => Op::Pause(self.address()),
            60..65 => Op::Resume(self.address()),
            65..68 => Op::Unpark(REASONS[self.rng.usize(0..3)].into(), self.rng.u32(0..4)),
            68..71 => Op::Replay(self.some_id()),
            71..74 => Op::Fire(self.address()),
            _ => {
                let nth = self.rng.usize(0..self.held.len().max(1));
                let Some((id, token)) = self.held.get(nth).copied() else {
                    return Op::Replay(self.some_id());
                };
                if self.rng.u32(0..10) > 0 {
                    let _ended = self.held.swap_remove(nth);
                }
                match self.rng.u32(0..12) {
                    0..5 => Op::Ack(id, token),
                    5 => Op::Skip(id, token),
                    6..9 => {
                        let pause = Duration::from_millis(self.rng.u64(0..500));
                        let failure = Failure {
                            error: "no".into(),
                            retry_after: self.rng.bool().then_some(pause),
                            is_final: self.rng.u32(0..4) == 0,
                        };
                        Op::Fail(id, token, failure)
                    }
                    9 => Op::Snooze(id, token, self.moment()),
                    10 => Op::Release(id, token),
                    _ => Op::Park(id, token, REASONS[self.rng.usize(0..3)].into()),
                }
            }
        }
    }
}
