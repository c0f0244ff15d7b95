//! Timers that connections own: their memory, and what reaches a shard when they are armed again and again.

use crate::common::{Chance, Payload, payload};
use crate::process::{measure_apart, number, resident};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;
use crate::{Contestant, Section};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Disarm, Engine, Timer};

const MEMORY: &str = "pending owned timers";
const REARMING: &str = "re-arming through two timeouts";

pub(crate) const CONTESTANTS: &[Contestant] = &[(MEMORY, memory), (REARMING, rearming)];

/// Beside the payload.
const MOST_BYTES: f64 = 48.0;
const MOST_OF_A_THOUSAND: f64 = 1.0;
/// Armings of each connection while its first timeout passes.
const ARMS_PER_TIMEOUT: u32 = 1_000;
const TIMEOUTS: u32 = 2;

pub(crate) fn run(sizes: &Sizes) -> Report {
    eprintln!("owned");
    let title = format!("{} owned timers, and {} connections", sizes.many, sizes.connections);
    let columns = ["bytes a timer, payload not counted", "armings", "posted of 1,000", "put off", "unparks"];
    let mut report = Report::new(title, &columns);
    let memory = measure_apart(Section::Owned, MEMORY, sizes);
    let bytes = number(&memory, "bytes") / sizes.many as f64 - size_of::<Payload>() as f64;
    let empty = Samples::default;
    report.row(MEMORY, vec![[bytes].into_iter().collect(), empty(), empty(), empty(), empty()]);
    let found = measure_apart(Section::Owned, REARMING, sizes);
    let figure = |key| [number(&found, key)].into_iter().collect::<Samples>();
    report.row(
        REARMING,
        vec![empty(), figure("armings"), figure("posted"), figure("put_off"), figure("unparks")],
    );
    report.verdict(
        format!("below {MOST_BYTES} bytes a timer plus its payload"),
        format!("{bytes:.1}"),
        bytes < MOST_BYTES,
    );
    let posted = number(&found, "posted");
    report.verdict(
        format!("of 1,000 armings fewer than {MOST_OF_A_THOUSAND} reaches a shard"),
        format!("{posted:.4}"),
        posted < MOST_OF_A_THOUSAND,
    );
    let unparks = number(&found, "unparks");
    report.verdict("re-arming wakes no shard", format!("{unparks} unparks"), unparks == 0.0);
    report
}

fn engine() -> Engine<Payload> {
    Builder::new().build(|_| ()).expect("the system gives us threads")
}

fn timers(engine: &Engine<Payload>, count: usize) -> Vec<Timer<Payload>> {
    (0..count as u64).map(|n| engine.timer(payload(n)).expect("there is room")).collect()
}

/// The engine's memory; that of the handles is their owners'.
fn memory(sizes: &Sizes) -> Value {
    // Touched before the first look at the memory.
    let mut handles: Vec<Option<Timer<Payload>>> = (0..sizes.many).map(|_| None).collect();
    let before = resident();
    let engine = engine();
    for (n, handle) in handles.iter_mut().enumerate() {
        *handle = Some(engine.timer(payload(n as u64)).expect("there is room"));
    }
    let mut chance = Chance::new(1);
    for timer in handles.iter().flatten() {
        timer.arm(Duration::from_nanos(chance.within(&crate::common::NANOS))).expect("the engine runs");
    }
    thread::sleep(sizes.settle + Duration::from_millis(50));
    let after = resident();
    assert!(handles.iter().flatten().all(Timer::is_armed));
    json!({ "bytes": before.zip(after).map(|(before, after)| after.saturating_sub(before)) })
}

/// Each connection is armed, and disarmed, a thousand times in each of two timeouts. What is counted begins when the first
/// tickets are out.
fn rearming(sizes: &Sizes) -> Value {
    let engine = engine();
    let timers = timers(&engine, sizes.connections);
    let timeout = sizes.window;
    let arm_all = || {
        let deadline = engine.now() + timeout;
        for timer in &timers {
            timer.arm_at(deadline).expect("the engine runs");
        }
    };
    arm_all();
    thread::sleep(Duration::from_millis(5));
    let before = engine.stats();
    let begin = Instant::now();
    for round in 1..=ARMS_PER_TIMEOUT * TIMEOUTS {
        arm_all();
        let disarmed = timers.iter().filter(|timer| timer.disarm() == Disarm::Disarmed).count();
        let next = begin + timeout * round / ARMS_PER_TIMEOUT;
        if disarmed == timers.len() {
            arm_all();
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let after = engine.stats();
    // A machine that stood still for a whole timeout has let some fire.
    assert!(after.owned.fired < timers.len() as u64, "they fire as if nobody armed them again");
    let armings = 2 * u64::from(ARMS_PER_TIMEOUT * TIMEOUTS) * timers.len() as u64;
    json!({
        "armings": armings,
        "posted": (after.owned.posted - before.owned.posted) as f64 * 1e3 / armings as f64,
        "put_off": after.owned.put_off - before.owned.put_off,
        "unparks": after.total.unparks - before.total.unparks,
    })
}
