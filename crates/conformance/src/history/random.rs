//! Makes the operations of a life, which is a run of random operations.

use super::{Player, REASONS};
use crate::bench::timer;
use core::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Backoff, Guarantee, Policy};
use tourbillon_durable::state::Failure;
use tourbillon_durable::store::{IfPresent, Op};
use tourbillon_durable::timer::{Address, KeyOf, Payload, Timer, TimerId};

const NAMESPACES: [&str; 2] = ["", "n"];
const LABELS: [&str; 3] = ["l", "la", "m"];

impl Player {
    fn some_id(&mut self) -> TimerId {
        if self.rng.u32(0..3) == 0
            && let Some((held, _)) = self.rng.choice(&self.held)
        {
            return *held;
        }
        let ids = core::mem::take(&mut self.ids);
        let recent = ids.len().saturating_sub(40);
        let id = self.rng.choice(&ids[recent..]).copied().unwrap_or(TimerId::from_u128(9));
        self.ids = ids;
        id
    }

    fn key(&mut self) -> Box<str> {
        format!("k{}", self.rng.u32(0..8)).into()
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
            attempts: rng.u32(1..4),
            deliveries: rng.u32(1..5),
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

    fn series(&mut self) -> Series {
        let id = match self.rng.choice(&self.series).copied() {
            Some(used) if self.rng.u32(0..6) == 0 => used,
            _ => TimerId::from_u128(self.rng.u128(..)),
        };
        self.series.push(id);
        let missed = if self.rng.bool() { MissedInstants::All } else { MissedInstants::Skip };
        let end = (self.rng.u32(0..3) == 0).then(|| self.moment() + Duration::from_millis(3_000));
        let plan = Plan::Every(self.rng.choice([100, 700, 5_000]).unwrap_or(1));
        Series { id, plan, missed, end, paused: false }
    }

    fn timer(&mut self) -> Timer {
        let id =
            if self.rng.u32(0..10) == 0 { self.some_id() } else { TimerId::from_u128(self.rng.u128(..)) };
        self.ids.push(id);
        let due = self.moment();
        let is_series = self.rng.u32(0..4) == 0;
        Timer {
            namespace: self.namespace(),
            key: (self.rng.u32(0..5) < 3).then(|| self.key()),
            payload: Payload(vec![1; self.rng.usize(0..30)].into()),
            labels: LABELS.into_iter().filter(|_| self.rng.u32(0..3) == 0).map(Into::into).collect(),
            policy: self.policy(),
            series: is_series.then(|| self.series()),
            has_chosen_id: self.faulty.is_some() || self.rng.bool(),
            ..timer(id, due)
        }
    }

    pub(super) fn op(&mut self) -> Op {
        let modes = [IfPresent::Reject, IfPresent::Keep, IfPresent::Replace, IfPresent::ReplaceKeepDue];
        match self.rng.u32(0..100) {
            0..40 => Op::Place(Box::new(self.timer()), modes[self.rng.usize(0..4)]),
            40..50 => {
                let only = (self.rng.u32(0..4) == 0).then(|| self.some_id());
                Op::Cancel(self.address(), only)
            }
            50..52 => Op::CancelLabelled {
                namespace: self.namespace(),
                label: LABELS[self.rng.usize(0..3)].into(),
                limit: self.rng.u32(1..4),
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
                    _ => Op::Park(id, token, REASONS[self.rng.usize(0..2)].into()),
                }
            }
        }
    }
}
