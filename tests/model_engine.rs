//! The threadless engine against a sorted list that does the same, one operation after the other.
//!
//! After each operation: what fired is what was due, each at the first moment at which its tick had begun; every timer
//! has the outcome, the payload and the remaining time that the list says; lengths agree; refusals have their reason.

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use support::{Log, Shot, assert_settled, recording};
use tourbillon::{
    BatchError, Builder, Cancel, DrivenEngine, Producer, RescheduleError, ScheduleError, ScheduleErrorKind,
    TimerId, Timestamp,
};

#[derive(Clone, Copy, Debug)]
struct Settings {
    tick: u64,
    shards: usize,
    capacity: u32,
    lane_capacity: u64,
}

/// Lengths are in parts of a tick: a fraction of 8 bits.
#[derive(Clone, Debug)]
enum Op {
    Schedule { who: usize, delay: u64 },
    ScheduleAgo { who: usize, ago: u64 },
    ScheduleLast { who: usize },
    Batch { who: usize, delays: Vec<u64> },
    Cancel { who: usize, choice: usize },
    Reschedule { who: usize, choice: usize, delay: u64 },
    Advance { by: u64 },
    Stall { by: u64 },
    Turn,
    NextExpiry,
}

/// What a call for a timer may answer.
enum Fate {
    Pending { payload: u64, deadline: Timestamp },
    Gone,
}

struct Model {
    settings: Settings,
    engine: DrivenEngine<u64>,
    producers: Vec<Producer<u64>>,
    log: Log<Shot>,
    /// Pending timers by payload.
    pending: BTreeMap<u64, (TimerId, Timestamp)>,
    /// Every id there ever was, with its payload at the time; most are stale.
    ids: Vec<(TimerId, u64)>,
    /// Timers that each user posted since the lanes were last drained, the handle's first.
    posted: Vec<u64>,
    payloads: u64,
    scheduled: u64,
    cancelled: u64,
    fired: u64,
}

impl Model {
    fn new(settings: Settings) -> Self {
        let Settings { tick, shards, capacity, lane_capacity } = settings;
        let builder = Builder::new()
            .tick(Duration::from_nanos(tick))
            .shards(shards)
            .capacity(capacity)
            .lane_capacity(lane_capacity);
        let (engine, log) = recording(builder);
        let producers: Vec<Producer<u64>> = (0..shards).map(|shard| engine.producer_on(shard)).collect();
        Self {
            settings,
            engine,
            producers,
            log,
            pending: BTreeMap::new(),
            ids: Vec::new(),
            posted: vec![0; shards + 1],
            payloads: 0,
            scheduled: 0,
            cancelled: 0,
            fired: 0,
        }
    }

    fn length(&self, parts: u64) -> Duration {
        let nanos = u128::from(parts) * u128::from(self.settings.tick) / 256;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn next_payload(&mut self) -> u64 {
        self.payloads += 1;
        self.payloads
    }

    fn arm(&mut self, who: usize, id: TimerId, payload: u64, deadline: Timestamp) {
        self.scheduled += 1;
        self.posted[who] += 1;
        assert!(self.pending.insert(payload, (id, deadline)).is_none());
        self.ids.push((id, payload));
    }

    fn disarm(&mut self, payload: u64) {
        self.cancelled += 1;
        assert!(self.pending.remove(&payload).is_some());
    }

    /// A refusal must have its reason.
    fn check_refusal(&self, who: usize, kind: ScheduleErrorKind) {
        match kind {
            ScheduleErrorKind::LaneFull => assert!(self.posted[who] >= self.settings.lane_capacity),
            ScheduleErrorKind::EngineFull => {
                let in_hands = 2 * u64::from((self.settings.capacity / 64).max(1));
                let unused = in_hands * self.posted.len() as u64;
                assert!(self.pending.len() as u64 + unused >= u64::from(self.settings.capacity));
            }
            kind => panic!("{kind:?}"),
        }
    }

    fn schedule_at(&mut self, who: usize, deadline: Timestamp) {
        let payload = self.next_payload();
        let result = match who.checked_sub(1) {
            None => self.engine.schedule_at(deadline, payload),
            Some(producer) => self.producers[producer].schedule_at(deadline, payload),
        };
        match result {
            Ok(id) => self.arm(who, id, payload, deadline),
            Err(ScheduleError { kind, payload: back, .. }) => {
                assert_eq!(back, payload);
                self.check_refusal(who, kind);
            }
        }
    }

    fn schedule_batch(&mut self, who: usize, delays: &[u64]) {
        let now = self.engine.now();
        let batch: Vec<(Duration, u64)> =
            delays.iter().map(|&delay| (self.length(delay), self.next_payload())).collect();
        let result = match who.checked_sub(1) {
            None => self.engine.schedule_batch(batch.iter().copied()),
            Some(producer) => {
                let batch = batch.iter().map(|&(delay, payload)| (now + delay, payload));
                self.producers[producer].schedule_batch_at(batch)
            }
        };
        let (ids, refused) = match result {
            Ok(ids) => (ids, Vec::new()),
            Err(BatchError { kind, scheduled, refused, .. }) => {
                if kind == ScheduleErrorKind::LaneFull {
                    assert!(scheduled.is_empty());
                    self.check_refusal(who, kind);
                }
                (scheduled, refused)
            }
        };
        assert_eq!(ids.len() + refused.len(), batch.len());
        let (accepted, rest) = batch.split_at(ids.len());
        assert!(rest.iter().map(|&(delay, payload)| (now + delay, payload)).eq(refused));
        for (id, &(delay, payload)) in ids.into_iter().zip(accepted) {
            self.arm(who, id, payload, now + delay);
        }
    }

    /// A timer of the past or present, and what the list says of it.
    fn choose(&self, choice: usize) -> Option<(TimerId, Fate)> {
        // The youngest more often than the others.
        let span = if choice.is_multiple_of(2) { self.ids.len() } else { self.ids.len().min(20) };
        let &(id, payload) = self.ids.iter().rev().nth((choice / 2).checked_rem(span)?)?;
        let fate = match self.pending.get(&payload) {
            Some(&(current, deadline)) if current == id => Fate::Pending { payload, deadline },
            _ => Fate::Gone,
        };
        Some((id, fate))
    }

    fn cancel(&mut self, who: usize, choice: usize) {
        let Some((id, fate)) = self.choose(choice) else { return };
        let outcome = match who.checked_sub(1) {
            None if choice.is_multiple_of(3) => self.engine.cancel_and_wait(id),
            None => self.engine.cancel(id),
            Some(producer) => self.producers[producer].cancel(id),
        };
        match fate {
            Fate::Gone => assert_eq!(outcome, Cancel::Gone),
            Fate::Pending { payload, .. } => {
                assert_eq!(outcome, Cancel::Cancelled(payload));
                self.disarm(payload);
            }
        }
    }

    fn reschedule(&mut self, who: usize, choice: usize, delay: u64) {
        let Some((id, fate)) = self.choose(choice) else { return };
        let deadline = self.engine.now() + self.length(delay);
        let outcome = match who.checked_sub(1) {
            None => self.engine.reschedule(id, self.length(delay)),
            Some(producer) => self.producers[producer].reschedule_at(id, deadline),
        };
        match (fate, outcome) {
            (Fate::Gone, Err(RescheduleError::Gone)) => {}
            // It is as it was.
            (_, Err(RescheduleError::LaneFull)) => {
                assert!(self.posted[who] >= self.settings.lane_capacity);
            }
            (Fate::Pending { payload, .. }, Ok(new)) => {
                assert_ne!(new, id);
                self.disarm(payload);
                self.arm(who, new, payload, deadline);
            }
            (_, outcome) => panic!("{outcome:?}"),
        }
    }

    /// Moves the clock, turning on the way or only at the end.
    fn advance(&mut self, by: Duration, stall: bool) {
        let (start, end) = (self.engine.now(), self.engine.now() + by);
        if stall {
            self.engine.clock().advance(by);
            self.engine.turn();
        } else {
            self.engine.advance(by);
        }
        assert_eq!(self.engine.now(), end);
        self.posted.fill(0);
        let tick = self.settings.tick;
        let mut expected = Vec::new();
        self.pending.retain(|&payload, &mut (_, deadline)| {
            let due = deadline.as_nanos().div_ceil(tick);
            let is_due = due <= end.as_nanos() / tick;
            if is_due {
                let begin = Timestamp::from_nanos(due.saturating_mul(tick));
                expected.push(Shot { at: if stall { end } else { begin.max(start) }, deadline, payload });
            }
            !is_due
        });
        expected.sort_unstable();
        self.fired += expected.len() as u64;
        let mut shots = self.log.take();
        assert!(shots.is_sorted_by_key(|shot| shot.at));
        shots.sort_unstable();
        assert_eq!(shots, expected);
    }

    fn check_next_expiry(&mut self) {
        let next = self.engine.next_expiry();
        self.posted.fill(0);
        if let Some(deadline) = self.pending.values().map(|&(_, deadline)| deadline).min() {
            let due = deadline.as_nanos().div_ceil(self.settings.tick).saturating_mul(self.settings.tick);
            assert!(next.unwrap().as_nanos() <= due.max(self.engine.now().as_nanos()));
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Schedule { who, delay } => self.schedule_at(who, self.engine.now() + self.length(delay)),
            Op::ScheduleAgo { who, ago } => {
                self.schedule_at(
                    who,
                    Timestamp::ZERO + (self.engine.now() - (Timestamp::ZERO + self.length(ago))),
                );
            }
            Op::ScheduleLast { who } => self.schedule_at(who, Timestamp::MAX),
            Op::Batch { who, ref delays } => self.schedule_batch(who, delays),
            Op::Cancel { who, choice } => self.cancel(who, choice),
            Op::Reschedule { who, choice, delay } => self.reschedule(who, choice, delay),
            Op::Advance { by } => self.advance(self.length(by), false),
            Op::Stall { by } => self.advance(self.length(by), true),
            Op::Turn => self.advance(Duration::ZERO, true),
            Op::NextExpiry => self.check_next_expiry(),
        }
        assert_eq!(self.engine.len(), self.pending.len());
        for choice in 0..6 {
            let Some((id, fate)) = self.choose(choice) else { continue };
            let now = self.engine.now();
            let (deadline, remaining) = match fate {
                Fate::Gone => (None, None),
                Fate::Pending { deadline, .. } => (Some(deadline), Some(deadline - now)),
            };
            assert_eq!(self.engine.deadline(id), deadline);
            assert_eq!(self.engine.remaining(id), remaining);
        }
    }

    fn finish(self) {
        let unfired = self.engine.shutdown();
        let returned = unfired.len() as u64;
        let unfired: BTreeMap<u64, (TimerId, Timestamp)> =
            unfired.into_iter().map(|timer| (timer.payload, (timer.id, timer.deadline))).collect();
        assert_eq!(unfired, self.pending);
        let stats = self.engine.stats();
        assert_eq!(
            (stats.scheduled, stats.cancelled, stats.fired, stats.returned),
            (self.scheduled, self.cancelled, self.fired, returned)
        );
        assert_eq!(stats.total.fired, self.fired);
        assert_settled(&stats);
    }
}

/// Parts of a tick: around nothing, around some ticks, around the reach of each level.
fn parts() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..1_024_u64,
        4 => 0..100_000_u64,
        2 => 0..(1_u64 << 26),
        1 => (0..50_u32, 0..1_024_u64).prop_map(|(power, offset)| (1_u64 << power) + offset),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let who = || 0..5_usize;
    prop_oneof![
        8 => (who(), parts()).prop_map(|(who, delay)| Op::Schedule { who, delay }),
        1 => (who(), parts()).prop_map(|(who, ago)| Op::ScheduleAgo { who, ago }),
        1 => who().prop_map(|who| Op::ScheduleLast { who }),
        2 => (who(), vec(parts(), 0..100)).prop_map(|(who, delays)| Op::Batch { who, delays }),
        6 => (who(), any::<usize>()).prop_map(|(who, choice)| Op::Cancel { who, choice }),
        5 => (who(), any::<usize>(), parts())
            .prop_map(|(who, choice, delay)| Op::Reschedule { who, choice, delay }),
        6 => parts().prop_map(|by| Op::Advance { by }),
        1 => parts().prop_map(|by| Op::Stall { by }),
        1 => Just(Op::Turn),
        1 => Just(Op::NextExpiry),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let tick = prop_oneof![Just(1_000), Just(1_000_000), 1_000..20_000_000_u64];
    let capacity = prop_oneof![1..10_u32, Just(500), Just(1 << 24)];
    let lane_capacity = prop_oneof![Just(64), Just(1 << 16)];
    (tick, 1..5_usize, capacity, lane_capacity).prop_map(|(tick, shards, capacity, lane_capacity)| Settings {
        tick,
        shards,
        capacity,
        lane_capacity,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_engine_does_what_a_sorted_list_does(settings in settings(), mut ops in vec(op(), 1..150)) {
        for op in &mut ops {
            match op {
                Op::Schedule { who, .. } | Op::ScheduleAgo { who, .. } | Op::ScheduleLast { who }
                | Op::Batch { who, .. } | Op::Cancel { who, .. } | Op::Reschedule { who, .. } => {
                    *who %= settings.shards + 1;
                }
                Op::Advance { .. } | Op::Stall { .. } | Op::Turn | Op::NextExpiry => {}
            }
        }
        let mut model = Model::new(settings);
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}
