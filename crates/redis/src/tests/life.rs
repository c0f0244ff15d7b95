//! Tests the runtime on a server, from the creation of timers to their end, and through a crash of the server.

use super::plain;
use crate::layout::VERSION;
use crate::{Connect, RedisStore};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::policy::Backoff;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{StoreErrorKind, TimerStore};
use tourbillon_durable::{Cancelled, Delivery, Durable, Kind, Spec, UtcMillis, Verdict};
use tourbillon_fault::Server;

const PATIENCE: Duration = Duration::from_secs(60);
const AT_ONCE: Duration = Duration::ZERO;

/// The payload of a timer: a number that the handler records. The handler fails once for each odd number.
#[derive(Clone, Debug)]
struct Note(u64);

impl Kind for Note {
    const NAME: &'static str = "note";
}

impl serde::Serialize for Note {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Note {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}

type Seen = Arc<Mutex<Vec<(u64, u32, UtcMillis)>>>;

fn runtime(port: u16, seen: &Seen) -> Durable {
    let store = Arc::new(plain::open(RedisStore::builder("life").shards(8), port).unwrap());
    let (seen, clock) = (Arc::clone(seen), Arc::clone(&store));
    let handler = move |Note(number), delivery: Delivery| {
        seen.lock().unwrap().push((number, delivery.delivery, clock.now()));
        let fails = number % 2 == 1 && delivery.attempt == 1;
        async move { if fails { Verdict::Retry { error: "odd".into(), after: None } } else { Verdict::Done } }
    };
    Durable::builder_on(store).handler(handler).start().unwrap()
}

#[track_caller]
fn until(event: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{event}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn spec(number: u64, after: Duration) -> Spec<Note> {
    Spec::new(Note(number)).after(after).backoff(Backoff::Fixed(Duration::from_millis(30)))
}

#[test]
fn timers_are_delivered_retried_and_cancelled() {
    let Some(server) = Server::start(&[]) else { return };
    let seen = Seen::default();
    let durable = runtime(server.port(), &seen);
    let timers = durable.handle();
    let mut due = Vec::new();
    for number in 0..20 {
        let delay = Duration::from_millis(number * 10);
        let id = timers.schedule_blocking(spec(number, delay).key(format!("key {number}"))).unwrap().id();
        due.push(pollster::block_on(timers.get(id)).unwrap().map(|timer| timer.scheduled));
    }
    let far = spec(100, Duration::from_secs(3_600)).key("far");
    timers.schedule_blocking(far).unwrap();
    assert!(matches!(timers.cancel_blocking("far").unwrap(), Cancelled::Cancelled(_)));
    until("a timer has no end", || {
        let counts = pollster::block_on(timers.counts()).unwrap();
        counts.by_namespace.is_empty()
    });
    let seen = seen.lock().unwrap();
    for number in 0..20 {
        let deliveries: Vec<_> = seen.iter().filter(|(seen_number, ..)| *seen_number == number).collect();
        assert_eq!(deliveries.len(), if number % 2 == 1 { 2 } else { 1 }, "{deliveries:?}");
        let scheduled = due[usize::try_from(number).unwrap()];
        assert!(
            deliveries.iter().all(|(.., at)| scheduled.is_none_or(|due| due <= *at)),
            "{number} was early"
        );
    }
    assert!(!seen.iter().any(|(number, ..)| *number == 100), "a cancelled timer was delivered");
    assert_eq!(pollster::block_on(timers.check()).unwrap(), []);
}

#[test]
fn two_processes_share_the_work_and_each_timer_is_delivered_once() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, other) = (Seen::default(), Seen::default());
    let first = runtime(server.port(), &one);
    let second = runtime(server.port(), &other);
    // The second runtime gets no messages about these timers. Either its polls find the timers, or the first runtime
    // delivers them.
    for number in 0..100 {
        first.handle().schedule_blocking(spec(2 * number, AT_ONCE)).unwrap();
    }
    until("a timer has no end", || {
        pollster::block_on(second.handle().counts()).unwrap().by_namespace.is_empty()
    });
    let mut all: Vec<u64> =
        one.lock().unwrap().iter().chain(&*other.lock().unwrap()).map(|seen| seen.0).collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).map(|number| 2 * number).collect::<Vec<_>>());
    drop(first);
    // The second runtime delivers timers that are created after the first runtime has stopped.
    let lonely = plain::open(RedisStore::builder("life"), server.port()).unwrap();
    let timer = tourbillon_durable::timer::Timer {
        payload: tourbillon_durable::timer::Payload(b"8".to_vec().into()),
        ..tourbillon_durable::timer::Timer::new(
            tourbillon_durable::timer::TimerId::fresh(),
            "note",
            lonely.now(),
        )
    };
    let place = tourbillon_durable::store::Op::Place(Box::new(timer), Default::default());
    pollster::block_on(lonely.apply(vec![place], Default::default())).unwrap();
    until("the looks find nothing", || pollster::block_on(lonely.counts()).unwrap().by_namespace.is_empty());
}

/// F-16: a killed server comes back with its append-only file, which it syncs to the disk at each change.
#[test]
fn nothing_is_lost_when_the_server_is_killed_and_comes_back() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(mut server) = Server::start(&arguments) else { return };
    let seen = Seen::default();
    let durable = runtime(server.port(), &seen);
    let timers = durable.handle();
    let mut acknowledged = Vec::new();
    for round in 0..3_u64 {
        for number in round * 20..round * 20 + 20 {
            let delay = Duration::from_millis(number % 20 * 15);
            let id = tourbillon_durable::timer::TimerId::from_u128(u128::from(number) + 1);
            // A creation whose answer was lost is repeated under the same id.
            until("a creation has no answer", || {
                timers.schedule_blocking(spec(2 * number, delay).id(id)).is_ok()
            });
            acknowledged.push(2 * number);
        }
        let cancelled = spec(1_000_000 + 2 * round, Duration::from_secs(7_200)).key(format!("c{round}"));
        until("a creation has no answer", || {
            let again = cancelled.clone().if_present(tourbillon_durable::store::IfPresent::Keep);
            timers.schedule_blocking(again).is_ok()
        });
        let key = format!("c{round}");
        until("a cancel has no answer", || timers.cancel_blocking(&*key).is_ok());
        server.kill();
        server.restart();
    }
    until("a timer has no end", || {
        pollster::block_on(timers.counts()).is_ok_and(|counts| counts.by_namespace.is_empty())
    });
    let seen = seen.lock().unwrap();
    for number in acknowledged {
        assert!(seen.iter().any(|(seen_number, ..)| *seen_number == number), "{number} is lost");
    }
    assert!(seen.iter().all(|(number, ..)| *number < 1_000_000), "a cancelled timer was delivered");
    drop(seen);
    assert_eq!(pollster::block_on(timers.check()).unwrap(), []);
    assert_eq!(pollster::block_on(timers.counts()).unwrap().of(Phase::Dead), 0);
}

#[test]
fn a_deployment_stays_as_it_was_created() {
    let Some(server) = Server::start(&[]) else { return };
    let open = |builder| plain::open(builder, server.port());
    let created = open(RedisStore::builder("a").shards(16)).unwrap();
    assert!(format!("{created:?}").contains("shards: 16"), "{created:?}");
    let found = open(RedisStore::builder("a")).unwrap();
    assert!(format!("{found:?}").contains("shards: 16"), "{found:?}");
    let kind = |builder| open(builder).map(drop).unwrap_err().kind();
    assert_eq!(kind(RedisStore::builder("a").shards(8)), StoreErrorKind::Limit);
    assert_eq!(
        kind(RedisStore::builder("a").on_clock(tourbillon::ManualClock::new())),
        StoreErrorKind::Limit
    );
    assert_eq!(kind(RedisStore::builder("b").shards(3)), StoreErrorKind::Limit);
    assert_eq!(kind(RedisStore::builder("b").shards(2_048)), StoreErrorKind::Limit);
    for name in ["", "a b", "a}", "{a", "ä", &"n".repeat(65)] {
        assert_eq!(kind(RedisStore::builder(name)), StoreErrorKind::Limit, "{name:?}");
    }
    let link = plain::Plain::to(server.port());
    let _changed = link.ask(&["HSET", "tb:{a}:deployment", "version", &(VERSION + 1).to_string()]);
    assert_eq!(kind(RedisStore::builder("a")), StoreErrorKind::NewerSchema);
    let _changed = link.ask(&["HSET", "tb:{a}:deployment", "version", "1"]);
    assert_eq!(kind(RedisStore::builder("a")), StoreErrorKind::OlderSchema, "keys stand elsewhere there");
    let error = open(RedisStore::builder("a")).unwrap_err();
    assert!(error.to_string().contains("make a backup with the program of before"), "{error}");
}

#[test]
fn a_check_reads_the_deployment_and_creates_none() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let shown = |name| pollster::block_on(RedisStore::builder(name).check(&connect)).unwrap();
    assert!(shown("new").to_string().contains("nothing is stored yet"));
    assert_eq!(server.query::<u32>(&["DBSIZE"]), 0);
    for version in ["2".to_owned(), (VERSION + 1).to_string()] {
        server.command(&["HSET", "tb:{later}:deployment", "version", &version, "shards", "64"]);
        let report = shown("later");
        let line = format!("layout version {version}");
        assert!(report.is_refused() && report.to_string().contains(&line), "{report}");
    }
}
