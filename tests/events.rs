//! The events of the feature `tracing`, as a subscriber gets them. The tests run one at a time, since the process has
//! only one subscriber.
#![cfg(feature = "tracing")]

mod support;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use support::{Gate, HOUR, MS, lock, wait_until};
use tourbillon::{Builder, Fired, ManualClock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
/// The function that the test's subscriber calls at each event.
static ON_EVENT: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// An event that the engine reported: its level, its message and its fields.
#[derive(Clone, Debug)]
struct Told {
    level: Level,
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.message, "{value:?}").unwrap(),
            name => drop(self.fields.insert(name, format!("{value:?}"))),
        }
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tourbillon"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("no spans");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told =
            Told { level: *event.metadata().level(), message: String::new(), fields: BTreeMap::new() };
        event.record(&mut told);
        lock(&TOLD).push(told);
        let on_event = lock(&ON_EVENT).take();
        if let Some(on_event) = on_event {
            on_event();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A guard that lets one test at a time receive the engine's events.
struct Listening {
    _alone: MutexGuard<'static, ()>,
}

impl Listening {
    fn begin() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static SUBSCRIBED: OnceLock<()> = OnceLock::new();
        let alone = lock(&ALONE);
        SUBSCRIBED.get_or_init(|| tracing::subscriber::set_global_default(Listener).unwrap());
        lock(&TOLD).clear();
        *lock(&ON_EVENT) = None;
        Self { _alone: alone }
    }

    fn told(&self) -> Vec<Told> {
        lock(&TOLD).clone()
    }

    /// Returns the level and the message of each event so far.
    fn messages(&self) -> Vec<(Level, String)> {
        self.told().into_iter().map(|told| (told.level, told.message)).collect()
    }

    /// Returns the event whose message is `message`. Fails unless there is exactly one.
    fn the(&self, message: &str) -> Told {
        let mut told = self.told();
        told.retain(|told| told.message == message);
        assert_eq!(told.len(), 1, "{message}: {told:?}");
        told.remove(0)
    }

    fn count(&self, message: &str) -> usize {
        self.told().iter().filter(|told| told.message == message).count()
    }
}

impl Told {
    /// Returns the event's fields as `name=value`. Leaves out the field that names the engine.
    fn fields(&self) -> String {
        let fields = self.fields.iter().filter(|(name, _)| **name != "engine");
        fields.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_start_and_a_stop_are_told_once_with_their_figures() {
    let listening = Listening::begin();
    let engine = Builder::new().shards(2).workers(3).unpinned().start(|_: Fired<'_, u32>| {}).unwrap();
    assert_eq!(listening.the("engine started").fields(), "shards=2 tick_seconds=0.001 workers=3");
    let id = engine.handle().schedule(HOUR, 1).unwrap();
    engine.handle().schedule(HOUR, 2).unwrap();
    assert_eq!(engine.handle().cancel(id).payload(), Some(1));
    assert_eq!(engine.handle().shutdown().len(), 1);
    assert!(engine.handle().shutdown().is_empty());
    drop(engine);
    let stopped = listening.the("engine stopped");
    assert_eq!(stopped.fields(), "cancelled=1 fired=0 returned=1");
    assert_eq!(stopped.fields["engine"], listening.the("engine started").fields["engine"]);
    let messages = listening.messages();
    assert!(messages.iter().all(|(level, _)| *level == Level::INFO), "{messages:?}");
    assert_eq!(messages.len(), 2);
}

#[test]
fn a_driven_engine_starts_and_stops_too() {
    let listening = Listening::begin();
    let mut engine = Builder::new().driven(|_: Fired<'_, u32>| {}).unwrap();
    engine.handle().schedule(MS, 1).unwrap();
    engine.advance(HOUR);
    drop(engine);
    assert_eq!(listening.the("engine started").fields(), "shards=1 tick_seconds=0.001 workers=0");
    assert_eq!(listening.the("engine stopped").fields(), "cancelled=0 fired=1 returned=0");
    assert_eq!(listening.told().len(), 2);
}

/// The clock is moved by hand. A stall is one event, even if it lasts for several turns of the engine. The end of the
/// stall is another event.
#[test]
fn a_stall_is_told_once_and_so_is_its_end() {
    let listening = Listening::begin();
    let (clock, gate) = (ManualClock::new(), Gate::new());
    let hold = gate.clone();
    let builder = Builder::new().shards(1).unpinned().inline().clock(clock.clone());
    let engine = builder.start(move |_: Fired<'_, ()>| hold.pass()).unwrap();
    // There are as many timers as two turns can fire.
    let at = |ticks| (engine.handle().now() + ticks * MS, ());
    engine.handle().schedule_batch_at([at(1)].into_iter().chain((0..40_000).map(|_| at(2)))).unwrap();
    clock.advance(MS);
    gate.await_arrival();
    clock.advance(250 * MS);
    gate.open();
    wait_until("it is over", || listening.count("shard caught up") == 1);
    let (stalled, caught_up) = (listening.the("shard stalled"), listening.the("shard caught up"));
    assert_eq!((stalled.level, caught_up.level), (Level::WARN, Level::INFO));
    assert_eq!(stalled.fields(), "late_seconds=0.25 shard=0 ticks=250");
    assert_eq!(caught_up.fields(), "shard=0 ticks=250 worst_seconds=0.25");
    assert_eq!(engine.handle().stats().total.stalls, 1);
}

/// The first refusal of each kind is an event. The next refusal is an event only after a second without refusals.
#[test]
fn a_flood_of_refusals_is_told_once() {
    let listening = Listening::begin();
    let builder = Builder::new().capacity(100).lane_capacity(64);
    let mut engine = builder.driven(|_: Fired<'_, u32>| {}).unwrap();
    let flood = |engine: &mut tourbillon::DrivenEngine<u32>| {
        let deadline = engine.handle().now() + HOUR;
        (0..10_000).for_each(|n| drop(engine.handle().try_schedule_at(deadline, n)));
        drop(engine.handle().timer(0));
    };
    flood(&mut engine);
    assert_eq!(listening.the("lane full").fields(), "lane_capacity=64 shard=0");
    engine.advance(MS);
    flood(&mut engine);
    assert_eq!(listening.the("engine full").fields(), "capacity=100");
    assert_eq!(listening.the("engine full").level, Level::WARN);
    for _ in 0..5 {
        engine.advance(Duration::from_secs(1));
        flood(&mut engine);
    }
    assert_eq!((listening.count("lane full"), listening.count("engine full")), (1, 1));
    engine.advance(Duration::from_millis(1_001));
    flood(&mut engine);
    assert_eq!((listening.count("lane full"), listening.count("engine full")), (1, 2));
    assert!(engine.handle().stats().engine_full > 50_000);
    // This thread has every slot of the engine.
    assert_eq!(engine.handle().shutdown().len(), 100);
    // After the shutdown no call is refused for want of room.
    flood(&mut engine);
    assert_eq!(listening.messages().last().unwrap().1, "engine stopped");
}

#[test]
fn a_panic_is_told_with_its_text() {
    let listening = Listening::begin();
    let mut engine = Builder::new()
        .driven(|timer| match timer.payload {
            0 => panic!("a text"),
            1 => panic!("a text with {}", timer.payload),
            _ => std::panic::panic_any(7),
        })
        .unwrap();
    for n in 0..3 {
        engine.handle().schedule(MS * (n + 1), n).unwrap();
    }
    engine.advance(HOUR);
    let mut told = listening.told();
    told.retain(|told| told.message == "panic survived");
    assert!(told.iter().all(|told| told.level == Level::ERROR));
    let texts: Vec<String> = told.iter().map(Told::fields).collect();
    assert_eq!(texts, ["panic=\"a text\"", "panic=\"a text with 1\"", "panic=\"not a text\""]);
    assert_eq!(engine.handle().stats().total.panics, 3);
}

#[test]
fn a_refused_pin_is_told() {
    let listening = Listening::begin();
    let engine = Builder::new().shards(1).cores([usize::MAX]).start(|_: Fired<'_, ()>| {}).unwrap();
    wait_until("it is told", || listening.count("pin refused") == 1);
    let told = listening.the("pin refused");
    assert_eq!((told.level, told.fields()), (Level::WARN, format!("core={} shard=0", usize::MAX)));
    drop(engine);
}

/// A subscriber to the engine's events panics or uses the engine. The engine goes on in both cases.
#[test]
fn a_subscriber_may_panic_and_may_schedule() {
    let listening = Listening::begin();
    let builder = Builder::new().capacity(2);
    let mut engine = builder.driven(|timer| assert!(timer.payload > 0)).unwrap();
    let handle = tourbillon::Handle::clone(engine.handle());
    engine.handle().schedule(MS, 0).unwrap();
    engine.handle().schedule(2 * MS, 1).unwrap();
    let schedule = move || assert!(handle.schedule(HOUR, 7).is_err());
    *lock(&ON_EVENT) = Some(Box::new(schedule));
    assert!(engine.handle().schedule(HOUR, 2).is_err());
    assert_eq!((listening.count("engine full"), engine.handle().stats().engine_full), (1, 2));
    *lock(&ON_EVENT) = Some(Box::new(|| panic!("a subscriber's")));
    engine.advance(HOUR);
    assert_eq!(listening.count("panic survived"), 1);
    assert_eq!((engine.handle().stats().fired, engine.handle().stats().total.panics), (2, 1));
}
