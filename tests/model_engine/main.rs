//! Compares the threadless engine with a sorted list, operation by operation.
//!
//! After each operation, exactly the due timers have fired, each at the first moment at which its tick had begun. Each
//! timer has the outcome, the payload and the remaining time that the list predicts. Lengths agree, and each refusal
//! has a reason.
//!
//! The same holds for owned timers, with one exception. A ticket for an earlier deadline may find that the present
//! deadline has passed although the deadline's tick has not ended.

#[path = "../support/mod.rs"]
mod support;

mod operations;

use operations::{Op, Settings, op, settings};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Log, Shot, assert_settled, lock};
use tourbillon::{
    ArmError, Armed, BatchError, Builder, Cancel, Disarm, DrivenEngine, Fired, Handle, Refusal,
    RescheduleError, ScheduleError, Timer, TimerId, Timestamp,
};

/// A timer's state in the model. The state decides the result of a call for the timer.
enum Fate {
    Pending { payload: u64, deadline: Timestamp },
    Gone,
}

/// Returns `deadline` in the form in which an owned timer stores it: the last two moments of time are stored as the
/// same moment.
fn told_apart(deadline: Timestamp) -> Timestamp {
    deadline.min(Timestamp::from_nanos(u64::MAX - 1))
}

/// An owned timer, and the deadline for which it is armed. The deadline is absent while the timer is disarmed.
struct Owned {
    timer: Timer<u64>,
    deadline: Option<Timestamp>,
}

/// For each payload of an owned timer, the delays with which its handler arms it again. Each call of the handler takes
/// the list's last delay.
type Plans = Arc<Mutex<BTreeMap<u64, Vec<Duration>>>>;

/// A handler's record: the firing, and the deadline for which the handler armed its timer again.
type Entry = (Shot, Option<Timestamp>);

struct Model {
    settings: Settings,
    engine: DrivenEngine<u64>,
    log: Log<Entry>,
    plans: Plans,
    /// The model's owned timers. The key is the payload.
    owned: BTreeMap<u64, Owned>,
    owned_fired: u64,
    /// The number of tickets (requests to check timers) that owned timers had posted at the last drain of the lanes
    /// (threads' queues to the shards).
    posted_before: u64,
    /// The model's pending one-shots. The key is the payload.
    pending: BTreeMap<u64, (TimerId, Timestamp)>,
    /// All ids so far, each with its timer's payload. Most ids are stale.
    ids: Vec<(TimerId, u64)>,
    /// For each shard, the number of timers scheduled there after the last drain of the lanes.
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
        let (log, plans) = (Log::new(), Plans::default());
        let (sink, planned) = (log.clone(), Arc::clone(&plans));
        let handler = move |fired: Fired<'_, u64>| {
            let again = fired.timer().and_then(|timer| {
                let delay = lock(&planned).get_mut(&fired.payload)?.pop()?;
                let deadline = fired.engine().now() + delay;
                assert_eq!(timer.arm_at(deadline), Ok(Armed::Running));
                assert_eq!(timer.deadline().map(told_apart), Some(told_apart(deadline)));
                Some(told_apart(deadline))
            });
            sink.push((Shot::of(&fired), again));
        };
        let engine = builder.driven(handler).unwrap();
        Self {
            settings,
            engine,
            log,
            plans,
            owned: BTreeMap::new(),
            owned_fired: 0,
            posted_before: 0,
            pending: BTreeMap::new(),
            ids: Vec::new(),
            posted: vec![0; shards],
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

    fn arm(&mut self, caller: usize, id: TimerId, payload: u64, deadline: Timestamp) {
        self.scheduled += 1;
        let lane = self.lane(caller);
        self.posted[lane] += 1;
        assert!(self.pending.insert(payload, (id, deadline)).is_none());
        self.ids.push((id, payload));
    }

    fn disarm(&mut self, payload: u64) {
        self.cancelled += 1;
        assert!(self.pending.remove(&payload).is_some());
    }

    /// Checks that the engine had a reason to refuse a call with `kind`.
    fn check_refusal(&self, caller: usize, kind: Refusal) {
        match kind {
            Refusal::LaneFull => assert!(self.in_lane(caller) >= self.settings.lane_capacity),
            Refusal::EngineFull => {
                // The only thread keeps this number of unused slots in its magazines.
                let unused = 2 * u64::from((self.settings.capacity / 64).max(1));
                let used = (self.pending.len() + self.owned.len()) as u64;
                assert!(used + unused >= u64::from(self.settings.capacity));
            }
            kind => panic!("{kind:?}"),
        }
    }

    /// Returns the number of the shard for the calls of caller number `caller`. Callers 0 and 1 use the first shard.
    /// Each later caller uses the next shard, modulo the number of shards.
    fn lane(&self, caller: usize) -> usize {
        caller.saturating_sub(1) % self.settings.shards
    }

    /// Makes a call as caller number `caller` does. Afterwards the thread's own shard is the first shard again.
    fn call<R>(&self, caller: usize, call: impl FnOnce(&Handle<u64>) -> R) -> R {
        self.engine.handle().use_shard(self.lane(caller));
        let outcome = call(self.engine.handle());
        self.engine.handle().use_shard(0);
        outcome
    }

    /// Returns the largest possible number of tickets in the lane to a caller's shard.
    fn in_lane(&self, caller: usize) -> u64 {
        let lane = self.lane(caller);
        // Owned timers use the first shard.
        let of_owned =
            if lane == 0 { self.engine.handle().stats().owned.posted - self.posted_before } else { 0 };
        self.posted[lane] + of_owned
    }

    fn lanes_were_drained(&mut self) {
        self.posted.fill(0);
        self.posted_before = self.engine.handle().stats().owned.posted;
    }

    fn make(&mut self) {
        let payload = self.next_payload();
        match self.engine.handle().timer(payload) {
            Ok(timer) => {
                assert_eq!((*timer.payload(), timer.deadline()), (payload, None));
                // The id of an owned timer. For scheduled timers it is as good as a stale id.
                self.ids.push((timer.id(), payload));
                self.owned.insert(payload, Owned { timer, deadline: None });
            }
            Err(ScheduleError { kind, payload: back, .. }) => {
                assert_eq!((kind, back), (Refusal::EngineFull, payload));
                self.check_refusal(0, kind);
            }
        }
    }

    fn choose_owned(&mut self, choice: usize) -> Option<(u64, &mut Owned)> {
        let at = choice.checked_rem(self.owned.len())?;
        self.owned.iter_mut().nth(at).map(|(&payload, owned)| (payload, owned))
    }

    fn arm_owned(&mut self, choice: usize, deadline: Timestamp) {
        let Some((_, owned)) = self.choose_owned(choice) else { return };
        assert_eq!(owned.timer.arm_at(deadline), Ok(Armed::Pending));
        owned.deadline = Some(told_apart(deadline));
    }

    /// Arms an owned timer for a moment that is `distance` from its present deadline.
    fn arm_around(&mut self, choice: usize, distance: Duration, earlier: bool) {
        let now = self.engine.handle().now();
        let Some((_, Owned { deadline, .. })) = self.choose_owned(choice) else { return };
        let from = deadline.unwrap_or(now);
        let to =
            if earlier { Timestamp::ZERO + (from - (Timestamp::ZERO + distance)) } else { from + distance };
        self.arm_owned(choice, to);
    }

    fn disarm_owned(&mut self, choice: usize) {
        let Some((_, owned)) = self.choose_owned(choice) else { return };
        let outcome =
            if choice.is_multiple_of(3) { owned.timer.disarm_and_wait() } else { owned.timer.disarm() };
        assert_eq!(outcome, if owned.deadline.is_some() { Disarm::Disarmed } else { Disarm::Idle });
        owned.deadline = None;
    }

    fn drop_owned(&mut self, choice: usize) {
        let Some((payload, _)) = self.choose_owned(choice) else { return };
        self.owned.remove(&payload);
        lock(&self.plans).remove(&payload);
    }

    /// Checks the firings of owned timers during a move of the clock, in order, and updates the model. `start` is the
    /// clock's moment before the move.
    fn check_owned(&mut self, entries: &[Entry], start: Timestamp, stall: bool) {
        let (end, tick) = (self.engine.handle().now(), self.settings.tick);
        let begin_of = |tick_number: u64| Timestamp::from_nanos(tick_number.saturating_mul(tick));
        let mut last_fired: BTreeMap<u64, Timestamp> = BTreeMap::new();
        // Returns the first moment at which the deadline's tick has begun and its shard looks.
        let due_at = |deadline: Timestamp, last: Option<&Timestamp>| {
            let looked_at = match last {
                _ if stall => end,
                None => start,
                // A timer that its handler armed waits for another turn. That turn is at the next tick, or at the end
                // of the move.
                Some(last) => begin_of(last.as_nanos() / tick + 1).min(end),
            };
            let due = deadline.as_nanos().div_ceil(tick);
            let has_begun = due <= end.as_nanos() / tick && last.is_none_or(|&last| last < end);
            has_begun.then_some(begin_of(due).max(looked_at))
        };
        for &(shot, again) in entries {
            let owned = self.owned.get_mut(&shot.payload).expect("it was not dropped");
            assert_eq!(owned.deadline, Some(told_apart(shot.deadline)), "{shot:?}");
            let due = shot.deadline.as_nanos().div_ceil(tick);
            let at_once = shot.at >= shot.deadline && due > shot.at.as_nanos() / tick;
            let expected = due_at(shot.deadline, last_fired.get(&shot.payload));
            assert!(at_once || Some(shot.at) == expected, "{shot:?}, not {expected:?}");
            owned.deadline = again;
            last_fired.insert(shot.payload, shot.at);
            self.owned_fired += 1;
        }
        for (payload, owned) in &self.owned {
            let overdue = owned.deadline.and_then(|deadline| due_at(deadline, last_fired.get(payload)));
            assert_eq!(overdue, None, "timer {payload}, armed for {:?}", owned.deadline);
        }
    }

    fn schedule_at(&mut self, caller: usize, deadline: Timestamp) {
        let payload = self.next_payload();
        let result = self.call(caller, |engine| engine.schedule_at(deadline, payload));
        match result {
            Ok(id) => self.arm(caller, id, payload, deadline),
            Err(ScheduleError { kind, payload: back, .. }) => {
                assert_eq!(back, payload);
                self.check_refusal(caller, kind);
            }
        }
    }

    fn schedule_batch(&mut self, caller: usize, delays: &[u64]) {
        let now = self.engine.handle().now();
        let batch: Vec<(Duration, u64)> =
            delays.iter().map(|&delay| (self.length(delay), self.next_payload())).collect();
        let result = self.call(caller, |engine| {
            if caller == 0 {
                return engine.schedule_batch(batch.iter().copied());
            }
            engine.schedule_batch_at(batch.iter().map(|&(delay, payload)| (now + delay, payload)))
        });
        let (ids, refused) = match result {
            Ok(ids) => (ids, Vec::new()),
            Err(BatchError { kind, scheduled, refused, .. }) => {
                if kind == Refusal::LaneFull {
                    assert!(scheduled.is_empty());
                    self.check_refusal(caller, kind);
                }
                (scheduled, refused)
            }
        };
        assert_eq!(ids.len() + refused.len(), batch.len());
        let (accepted, rest) = batch.split_at(ids.len());
        assert!(rest.iter().map(|&(delay, payload)| (now + delay, payload)).eq(refused));
        for (id, &(delay, payload)) in ids.into_iter().zip(accepted) {
            self.arm(caller, id, payload, now + delay);
        }
    }

    /// Chooses any timer, pending or ended, and returns its id and its state.
    fn choose(&self, choice: usize) -> Option<(TimerId, Fate)> {
        // The most recent timers are chosen more often than the others.
        let span = if choice.is_multiple_of(2) { self.ids.len() } else { self.ids.len().min(20) };
        let &(id, payload) = self.ids.iter().rev().nth((choice / 2).checked_rem(span)?)?;
        let fate = match self.pending.get(&payload) {
            Some(&(current, deadline)) if current == id => Fate::Pending { payload, deadline },
            _ => Fate::Gone,
        };
        Some((id, fate))
    }

    fn cancel(&mut self, caller: usize, choice: usize) {
        let Some((id, fate)) = self.choose(choice) else { return };
        let waits = caller == 0 && choice.is_multiple_of(3);
        let cancel =
            |engine: &Handle<u64>| if waits { engine.cancel_and_wait(id) } else { engine.cancel(id) };
        let outcome = self.call(caller, cancel);
        match fate {
            Fate::Gone => assert_eq!(outcome, Cancel::Gone),
            Fate::Pending { payload, .. } => {
                assert_eq!(outcome, Cancel::Cancelled(payload));
                self.disarm(payload);
            }
        }
    }

    fn reschedule(&mut self, caller: usize, choice: usize, delay: u64) {
        let Some((id, fate)) = self.choose(choice) else { return };
        let deadline = self.engine.handle().now() + self.length(delay);
        let outcome = self.call(caller, |engine| match caller {
            0 => engine.reschedule(id, self.length(delay)),
            _ => engine.reschedule_at(id, deadline),
        });
        match (fate, outcome) {
            (Fate::Gone, Err(RescheduleError::Gone)) => {}
            // The timer is unchanged.
            (_, Err(RescheduleError::LaneFull)) => {
                assert!(self.in_lane(caller) >= self.settings.lane_capacity);
            }
            (Fate::Pending { payload, .. }, Ok(new)) => {
                assert_ne!(new, id);
                self.disarm(payload);
                self.arm(caller, new, payload, deadline);
            }
            (_, outcome) => panic!("{outcome:?}"),
        }
    }

    /// Moves the clock by `by`. The engine turns on the way. In a stall, it turns only at the end.
    fn advance(&mut self, by: Duration, stall: bool) {
        let (start, end) = (self.engine.handle().now(), self.engine.handle().now() + by);
        if stall {
            self.engine.clock().advance(by);
            self.engine.turn();
        } else {
            self.engine.advance(by);
        }
        assert_eq!(self.engine.handle().now(), end);
        self.lanes_were_drained();
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
        let entries = self.log.take();
        assert!(entries.is_sorted_by_key(|(shot, _)| shot.at));
        let (of_owned, others): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|(shot, _)| self.owned.contains_key(&shot.payload));
        let mut shots: Vec<Shot> = others.into_iter().map(|(shot, _)| shot).collect();
        shots.sort_unstable();
        assert_eq!(shots, expected);
        self.check_owned(&of_owned, start, stall);
    }

    fn check_next_expiry(&mut self) {
        let next = self.engine.next_expiry();
        self.lanes_were_drained();
        let of_owned = self.owned.values().filter_map(|owned| owned.deadline);
        if let Some(deadline) = self.pending.values().map(|&(_, deadline)| deadline).chain(of_owned).min() {
            let due = deadline.as_nanos().div_ceil(self.settings.tick).saturating_mul(self.settings.tick);
            assert!(next.unwrap().as_nanos() <= due.max(self.engine.handle().now().as_nanos()));
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Schedule { caller, delay } => {
                self.schedule_at(caller, self.engine.handle().now() + self.length(delay))
            }
            Op::ScheduleAgo { caller, ago } => {
                self.schedule_at(
                    caller,
                    Timestamp::ZERO + (self.engine.handle().now() - (Timestamp::ZERO + self.length(ago))),
                );
            }
            Op::ScheduleLast { caller } => self.schedule_at(caller, Timestamp::MAX),
            Op::Batch { caller, ref delays } => self.schedule_batch(caller, delays),
            Op::Cancel { caller, choice } => self.cancel(caller, choice),
            Op::Reschedule { caller, choice, delay } => self.reschedule(caller, choice, delay),
            Op::Make => self.make(),
            Op::Arm { choice, delay } => {
                // Arms the timer as the operation `arm` does.
                self.arm_owned(choice, self.engine.handle().now() + self.length(delay));
            }
            Op::ArmAgo { choice, ago } => {
                let ago = Timestamp::ZERO + self.length(ago);
                self.arm_owned(choice, Timestamp::ZERO + (self.engine.handle().now() - ago));
            }
            Op::ArmAround { choice, parts, earlier } => self.arm_around(choice, self.length(parts), earlier),
            Op::ArmAtUnit { choice, units, offset } => {
                let unit = (self.engine.handle().now().as_nanos() >> 20) + units;
                self.arm_owned(choice, Timestamp::from_nanos(((unit << 20) + offset).saturating_sub(2)));
            }
            Op::ArmAgain { choice, ref delays } => {
                let delays: Vec<Duration> = delays.iter().map(|&delay| self.length(delay)).collect();
                if let Some((payload, _)) = self.choose_owned(choice) {
                    lock(&self.plans).insert(payload, delays);
                }
            }
            Op::Disarm { choice } => self.disarm_owned(choice),
            Op::Drop { choice } => self.drop_owned(choice),
            Op::Advance { by } => self.advance(self.length(by), false),
            Op::Stall { by } => self.advance(self.length(by), true),
            Op::Turn => self.advance(Duration::ZERO, true),
            Op::NextExpiry => self.check_next_expiry(),
        }
        assert_eq!(self.engine.handle().len(), self.pending.len());
        for (payload, owned) in &self.owned {
            assert_eq!(owned.timer.deadline().map(told_apart), owned.deadline, "timer {payload}");
            assert_eq!(owned.timer.is_armed(), owned.deadline.is_some());
        }
        let stats = self.engine.handle().stats().owned;
        assert_eq!((stats.alive, stats.fired), (self.owned.len() as u64, self.owned_fired));
        for choice in 0..6 {
            let Some((id, fate)) = self.choose(choice) else { continue };
            let now = self.engine.handle().now();
            let (deadline, remaining) = match fate {
                Fate::Gone => (None, None),
                Fate::Pending { deadline, .. } => (Some(deadline), Some(deadline - now)),
            };
            assert_eq!(self.engine.handle().deadline(id), deadline);
            assert_eq!(self.engine.handle().remaining(id), remaining);
        }
    }

    fn finish(self) {
        let unfired = self.engine.handle().shutdown();
        let returned = unfired.len() as u64;
        let unfired: BTreeMap<u64, (TimerId, Timestamp)> =
            unfired.into_iter().map(|timer| (timer.payload, (timer.id, timer.deadline))).collect();
        assert_eq!(unfired, self.pending);
        let stats = self.engine.handle().stats();
        assert_eq!(
            (stats.scheduled, stats.cancelled, stats.fired, stats.returned),
            (self.scheduled, self.cancelled, self.fired, returned)
        );
        assert_eq!(stats.total.fired, self.fired + self.owned_fired);
        assert_eq!(stats.total.panics, 0);
        assert_settled(&stats);
        for Owned { timer, .. } in self.owned.into_values() {
            assert_eq!((timer.deadline(), timer.disarm()), (None, Disarm::Idle));
            assert_eq!(timer.arm(Duration::ZERO), Err(ArmError::ShutDown));
        }
        assert_eq!(self.engine.handle().stats().owned.alive, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_engine_does_what_a_sorted_list_does(settings in settings(), mut ops in vec(op(), 1..250)) {
        for op in &mut ops {
            match op {
                Op::Schedule { caller, .. } | Op::ScheduleAgo { caller, .. } | Op::ScheduleLast { caller }
                | Op::Batch { caller, .. } | Op::Cancel { caller, .. } | Op::Reschedule { caller, .. } => {
                    *caller %= settings.shards + 1;
                }
                _ => {}
            }
        }
        let mut model = Model::new(settings);
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}
