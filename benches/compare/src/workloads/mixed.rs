//! A server's load in an open loop. Arrivals and deadlines are fixed beforehand. Nineteen timers of twenty are
//! cancelled.
//!
//! One thread plays the plan. If it falls behind, it plays the next operation at once. An operation's latency counts
//! from its planned moment. So the delays of a stall are not left out.
//!
//! An operation is late if its thread has lost its core. Two columns show that. The first is the time for which the
//! thread could run and had no core, by the scheduler's account in `/proc`. The second is the longest time between two
//! of its clock readings while it waited for the next operation. A gap without a wait comes from the machine itself: a
//! hypervisor took the core. In one row our threads do not ask for a short slice. In another row the scheduler may move
//! them.

use super::shots::{QUANTILES, Shots, Sorted};
use crate::case::Case;
use crate::common::{Chance, payload};
use crate::contestants::{Caller, DefaultSlice, Of, OneShots, Stopwatch, Unpinned};
use crate::process::{cpu_time, waited_for_a_core};
use crate::results::{Column, Figures};
use crate::roster::{entrants, fire};
use crate::scale::Scale;
use crate::workload::{Family, Workload};
use std::hint;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "mixed",
    operation: "timers scheduled and 95 % of them cancelled as planned: how long an operation takes from its planned moment, and how late handlers are called",
    family: Family::Firing,
    about: "An open loop: one thread plays a plan of timers of 50 to 200 ms, of which 95 % are cancelled \
        within 40 ms. The thread spins in between, so that one core is busy all the time. The plan's first \
        200 ms warm the process up: its threads start and its memory is touched for the first time, and no \
        figure counts them. An operation's latency counts from its planned moment. Checked: each timer that \
        was scheduled has fired or was cancelled; no timer did both, fired twice or fired early. \
        pingora-timeout does not take part, as it fires early by its arithmetic. *Without a core* is the time \
        for which the playing thread could run and other threads had its core, by the scheduler's account. \
        *Longest gap* is the longest time between two of its readings of the clock.",
    reading: "Each of our shards is pinned to a core, and a thread's timers are at the shard of the core on \
        which the thread first used the engine. In each tick in which something is due, the shard's thread \
        takes that core for a moment, and the playing thread waits if it is still there. In the row with \
        unpinned shards the shard's thread may take the other core. A gap that is \
        longer than all the time without a core is not the scheduler's: the hypervisor took the core. A \
        shorter gap may be the scheduler's or the hypervisor's. The row with the system's slice shows what \
        remains on a kernel that has no slices for single threads. Only one thread schedules, so a mutex is \
        always free for it, and the price of the mutex does not show here.",
    cases,
    columns: |_| {
        vec![
            Column::new("op_p50", "operation p50", "us"),
            Column::new("op_p99", "p99", "us"),
            Column::new("op_p999", "p99.9", "us"),
            Column::new("op_max", "max", "us"),
            Column::new("late_p50", "late p50", "ms"),
            Column::new("late_p99", "p99", "ms"),
            Column::new("late_p999", "p99.9", "ms"),
            Column::new("late_max", "max", "ms"),
            Column::new("cpu", "CPU", "s"),
            Column::new("behind", "behind at the end", "ms"),
            Column::new("waited", "without a core", "ms"),
            Column::new("gap", "longest gap", "us"),
        ]
    },
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants: || {
        let mut all = fire!(turn, never_early);
        all.splice(1..1, entrants![turn: Of<DefaultSlice>, Of<Unpinned>]);
        all
    },
};

const MILLI: u64 = 1_000_000;
/// How many of a hundred timers are cancelled.
const CANCELLED: u64 = 95;
const OPERATIONS_A_TIMER: f64 = 1.95;
/// The length of the warm-up, in nanoseconds. Nothing is recorded during the warm-up.
const WARM_UP: u64 = 200 * MILLI;

fn cases(scale: Scale) -> Vec<Case> {
    // In a single second, one stall of a millisecond would decide the p99.9. In several seconds it does not.
    let time = |rate| if rate < 1_000_000 { 3_000 } else { 1_000 };
    let case = |rate| Case {
        rate,
        time_ms: scale.pick(time(rate), 100, 100),
        ..Case::named(format!("{} operations a second", thousands(usize::try_from(rate).unwrap_or(0))))
    };
    scale
        .pick(vec![10_000, 100_000, 1_000_000], vec![10_000, 100_000], vec![5_000])
        .into_iter()
        .map(case)
        .collect()
}

/// The planned operations and deadlines of a run. Moments are in nanoseconds after the start of the run.
struct Plan {
    operations: Vec<Operation>,
    deadlines: Vec<u64>,
    is_cancelled: Vec<bool>,
    /// The number of the first timer that is scheduled after the warm-up.
    first_recorded: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Operation {
    at: u64,
    timer: u32,
    is_cancel: bool,
}

impl Plan {
    fn new(case: &Case) -> Self {
        const FINE: u64 = 1 << 20;
        let time = WARM_UP + case.time_ms * MILLI;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some million timers")]
        let timers = (case.rate as f64 * time as f64 / 1e9 / OPERATIONS_A_TIMER) as u64;
        let time = u128::from(time);
        let mut chance = Chance::new(7);
        let mut plan = Self {
            operations: Vec::new(),
            deadlines: Vec::new(),
            is_cancelled: Vec::new(),
            first_recorded: 0,
        };
        for number in 0..timers {
            let jitter = u128::from(chance.within(&(0..FINE)));
            let place = u128::from(number) * u128::from(FINE) + jitter;
            let at = u64::try_from(place * time / (u128::from(timers) * u128::from(FINE)))
                .expect("within the time");
            let timer = u32::try_from(number).expect("some million timers");
            plan.first_recorded += usize::from(at < WARM_UP);
            plan.operations.push(Operation { at, timer, is_cancel: false });
            let is_cancelled = chance.within(&(0..100)) < CANCELLED;
            if is_cancelled {
                let at = at + chance.within(&(MILLI..40 * MILLI));
                plan.operations.push(Operation { at, timer, is_cancel: true });
            }
            plan.is_cancelled.push(is_cancelled);
            plan.deadlines.push(at + chance.within(&(50 * MILLI..200 * MILLI)));
        }
        plan.operations.sort_unstable();
        plan
    }
}

/// The record of a played plan.
struct Played {
    latencies: Vec<u64>,
    /// For each timer, whether the contestant reported a cancel before the firing.
    was_cancelled: Vec<bool>,
    /// For each timer, the moment of its firing. `None` if it has not fired.
    fired_at: Vec<Option<u64>>,
    /// The moment at which the plan started.
    begin: u64,
    behind: u64,
    cpu: Option<Duration>,
    /// The time for which the thread that plays the plan could run but had no core.
    waited: Option<Duration>,
    /// The longest time between two successive readings of the clock, while the thread waited for its next operation.
    gap: u64,
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let plan = Arc::new(Plan::new(case));
    let shots = Shots::new(Stopwatch::start(), plan.deadlines.len());
    let service = Arc::new(C::start(1, shots.handler()));
    let job = play(Arc::clone(&service), Arc::clone(&plan), shots);
    let played = service.run(vec![job]).pop().expect("one job");
    assert!(service.pending().is_none_or(|pending| pending == 0), "{}: all have fired", C::NAME);
    let lateness = lateness::<C>(&plan, &played);
    let (operations, lateness) = (Sorted::new(played.latencies), Sorted::new(lateness));
    Figures::default()
        .number("op_p50", operations.micros(0.5))
        .number("op_p99", operations.micros(0.99))
        .number("op_p999", operations.micros(0.999))
        .number("op_max", operations.micros(1.0))
        .number("late_p50", lateness.millis(0.5))
        .number("late_p99", lateness.millis(0.99))
        .number("late_p999", lateness.millis(0.999))
        .number("late_max", lateness.millis(1.0))
        .number("cpu", played.cpu.map(|time| time.as_secs_f64()))
        .number("behind", played.behind as f64 * 1e-6)
        .number("waited", played.waited.map(|time| time.as_secs_f64() * 1e3))
        .number("gap", played.gap as f64 * 1e-3)
        .series("quantile", QUANTILES.into())
        .series("op_us", QUANTILES.iter().filter_map(|&quantile| operations.micros(quantile)).collect())
        .series("late_ms", QUANTILES.iter().filter_map(|&quantile| lateness.millis(quantile)).collect())
}

async fn play<C: OneShots>(service: Arc<C>, plan: Arc<Plan>, shots: Shots) -> Played {
    let mut caller = service.caller();
    let timers = plan.deadlines.len();
    let mut ids: Vec<_> = (0..timers).map(|_| None).collect();
    let mut was_cancelled = vec![false; timers];
    let warm_up = plan.operations.partition_point(|operation| operation.at < WARM_UP);
    // The vector is not filled with zeros, since such pages would be touched for the first time while the plan is
    // played.
    let mut latencies = vec![u64::MAX; plan.operations.len()];
    let (clock, mut cpu, mut waited, mut gap) = (&shots.clock, None, None, 0);
    let begin = clock.nanos() + MILLI;
    for (number, operation) in plan.operations.iter().enumerate() {
        if number == warm_up {
            (cpu, waited, gap) = (cpu_time(), waited_for_a_core(), 0);
        }
        let planned = begin + operation.at;
        let mut now = clock.nanos();
        while now < planned {
            caller.turn();
            hint::spin_loop();
            let before = now;
            now = clock.nanos();
            gap = gap.max(now - before);
        }
        let timer = operation.timer as usize;
        if operation.is_cancel {
            let id = ids[timer].take().expect("scheduled before");
            was_cancelled[timer] = caller.cancel(id);
        } else {
            let delay = Duration::from_nanos((begin + plan.deadlines[timer]).saturating_sub(now));
            ids[timer] = Some(caller.schedule(delay, payload(timer as u64)));
        }
        latencies[number] = clock.nanos() - planned;
    }
    let waited = waited.zip(waited_for_a_core()).map(|(before, after)| after - before);
    let must =
        |timer: usize| !plan.is_cancelled[timer] || (C::Caller::KNOWS_WHO_WON && !was_cancelled[timer]);
    let fired_at = shots.wait_for(&mut caller, must).await;
    let cpu = cpu.zip(cpu_time()).map(|(before, after)| after - before);
    latencies.drain(..warm_up);
    let behind = latencies.last().copied().unwrap_or_default();
    Played { latencies, was_cancelled, fired_at, begin, behind, cpu, waited, gap }
}

/// Returns the lateness of the timers that fired. Checks that exactly the uncancelled timers fired, and none early.
/// Timers of the warm-up are checked, but not recorded.
fn lateness<C: OneShots>(plan: &Plan, played: &Played) -> Vec<u64> {
    let mut lateness = Vec::new();
    for (timer, deadline) in plan.deadlines.iter().enumerate() {
        if let Some(at) = played.fired_at[timer] {
            let is_dead = played.was_cancelled[timer] && C::Caller::KNOWS_WHO_WON;
            assert!(!is_dead, "{}: timer {timer} fired after its cancel", C::NAME);
            let late = at.checked_sub(played.begin + deadline);
            let late = late.unwrap_or_else(|| panic!("{}: timer {timer} fired early", C::NAME));
            if timer >= plan.first_recorded {
                lateness.push(late);
            }
        }
    }
    lateness
}
