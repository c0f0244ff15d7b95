//! The questions, in the order of their table within a family.

use super::question::Against::{Best, Only};
use super::question::{Against, Question};
use super::reasons::{
    ALSO_A_TASK, CHECKED_TOGETHER, EACH_CLAIMED, EACH_TICK, GUARDED, HANDED_OVER, IN_ORDER, KEY_MISSES,
    LINKS, LOCKED_PUSH, LOCKS, NO_CASCADE, NO_TICK, NOT_POLLED_YET, ONE_LIST, OWN_PLACE, PREEMPTED,
    QUEUE_OF_ALL, READ_EACH_TIME, REFRESHED, SHARED, TICK, TWO_WAKE_UPS,
};

pub(super) const MANY: &str = "1,000,000 pending";
const CONNECTIONS: &str = "10,000 connections";
const LOOPED: &str = "1,000,000 timers";
const DUE: &str = "1,000,000 due over 2 s";
const AT_ONCE: &str = "1,000,000 due at once";
const ITEMS: &str = "100,000 items";
const ONE: &str = "100,000 items, 1 consumer";
const TWO: &str = "100,000 items, 2 consumers";
const FITS: &str = "10,000 timers of 1 to 60 s";
const FEW: &str = "1,000 connections, 15,000 requests a second";
const MANY_CLIENTS: &str = "10,000 connections, 15,000 requests a second";
const WRK_100: &str = "wrk with 100 connections";
const WRK_1000: &str = "wrk with 1,000 connections";
const WAITS: &str = "100,000 waits, 8 threads";
const EXCEEDS: &str = "1,000,000 timers of 1 to 60 s";

pub(super) const HANDLE: &str = "engine, Handle";
const SYSTEM_CLOCK: &str = "engine, Handle, Instant::now";
const TIMER: &str = "engine, Timer";
const CALLERS_NOW: &str = "engine, Timer, caller's now";
const OWN_WORKERS: &str = "engine, own workers";
const LOOP: &str = "engine, LoopShard";
const NAMED: &str = "engine, by tokio's names";
const SERVER: &str = "engine, turned by the runtime";
const LIMIT: &str = "engine, timeout";
const KEYED: &str = "Keyed, schedule";
const REPEAT: &str = "Tasks::repeat, own workers";
const CLOSURE: &str = "TaskEngine, after and cancel";
const MAP: &str = "ExpiryMap";
const ITEM_QUEUE: &str = "DelayQueue";
const THREADS: &str = "DelayQueue, threads";
const WHEEL: &str = "wheel, radix 256";

const DELAY: &str = "futures-timer, the drop-in";
const SLEEP: &str = "pingora-timeout, the drop-in";

const FUTURES_TIMER: &str = "futures-timer";
const PINGORA: &str = "pingora-timeout";
const QUEUE: &str = "Mutex of HashMap and DelayQueue: reset";
const INTERVAL: &str = "tokio, interval, a task each";
const TASK: &str = "tokio, spawn a sleep and abort it";
const MOKA: &str = "moka, time to live";
const TOKIOS: &[&str] = &["tokio", "tokio, alternative timer"];

pub(super) const QUESTIONS: &[Question] = &[
    ask("Arm and cancel, a million pending, 1 thread", ("pair", MANY, "t1"), HANDLE, Best, LOCKS),
    ask("Arm and cancel, a million pending, 2 threads", ("pair", MANY, "t2"), HANDLE, Best, LOCKS),
    ask("Arm and cancel, a million pending, 8 threads", ("pair", MANY, "t8"), HANDLE, Best, LOCKS),
    ask("Arm and cancel on the system's clock, 1 thread", ("pair", MANY, "t1"), SYSTEM_CLOCK, Best, LOCKS),
    ask("Arm and cancel on the system's clock, 2 threads", ("pair", MANY, "t2"), SYSTEM_CLOCK, Best, LOCKS),
    ask(
        "Arm a connection's timeout for a request, disarm it, 1 thread",
        ("rearm", CONNECTIONS, "t1"),
        TIMER,
        Best,
        LOCKS,
    ),
    ask(
        "Arm a connection's timeout for a request, disarm it, 2 threads",
        ("rearm", CONNECTIONS, "t2"),
        TIMER,
        Best,
        LOCKS,
    ),
    ask(
        "The same in an event loop that knows the time",
        ("rearm", CONNECTIONS, "t1"),
        CALLERS_NOW,
        Best,
        LOCKS,
    ),
    ask("Move one of 100,000 pending timers", ("refresh", "100,000 pending", "t1"), TIMER, Best, REFRESHED),
    ask("Move one of a million pending timers", ("refresh", MANY, "t1"), TIMER, Best, REFRESHED),
    ask("An event loop's timer: arm it, disarm it", ("loops", LOOPED, "arm"), LOOP, Best, ""),
    ask("An event loop: a one-shot among a million others", ("loops", LOOPED, "among"), LOOP, Best, ""),
    ask("An event loop: move one of a million timers", ("loops", LOOPED, "refresh"), LOOP, Best, ""),
    ask("A million due over two seconds: lateness, p99.9", ("expiry", DUE, "p999"), OWN_WORKERS, Best, TICK),
    ask("A million due over two seconds: CPU time", ("expiry", DUE, "cpu"), OWN_WORKERS, Best, HANDED_OVER),
    ask(
        "A million owned timers due over two seconds: CPU time",
        ("expiry", DUE, "cpu"),
        TIMER,
        Best,
        HANDED_OVER,
    ),
    ask("Wake-ups for 1,000 fired timers", ("expiry", DUE, "wakes"), OWN_WORKERS, Best, EACH_TICK),
    ask(
        "A million due at once: until the last has fired",
        ("burst", AT_ONCE, "last"),
        OWN_WORKERS,
        Best,
        ONE_LIST,
    ),
    ask("A million due at once: CPU time", ("burst", AT_ONCE, "cpu"), OWN_WORKERS, Best, EACH_CLAIMED),
    ask(
        "Two threads compute on two cores: lateness, p99.9",
        ("busy", "20,000 timers, 2 threads burn", "p999"),
        OWN_WORKERS,
        Best,
        TWO_WAKE_UPS,
    ),
    ask(
        "Four threads compute on two cores: lateness, p99.9",
        ("busy", "20,000 timers, 4 threads burn", "p999"),
        OWN_WORKERS,
        Best,
        TWO_WAKE_UPS,
    ),
    ask(
        "A proxy on tokio that fills the cores: lateness of its timeouts, p99",
        ("proxy", "1,000 connections", "late_p99"),
        OWN_WORKERS,
        Best,
        QUEUE_OF_ALL,
    ),
    ask(
        "The proxy by `tourbillon::time`: lateness of its timeouts, p99",
        ("proxy", "1,000 connections", "late_p99"),
        NAMED,
        Best,
        ALSO_A_TASK,
    ),
    ask(
        "A proxy on tokio that fills the cores: an answer, p99",
        ("proxy", "1,000 connections", "answer_p99"),
        OWN_WORKERS,
        Best,
        "",
    ),
    ask(
        "The proxy by `tourbillon::time`: an answer, p99",
        ("proxy", "1,000 connections", "answer_p99"),
        NAMED,
        Best,
        "",
    ),
    ask(
        "Mixed load, 100,000 a second: an operation, p99.9",
        ("mixed", "100,000 operations a second", "op_p999"),
        OWN_WORKERS,
        Best,
        PREEMPTED,
    ),
    ask(
        "Mixed load, a million a second: an operation, p99.9",
        ("mixed", "1,000,000 operations a second", "op_p999"),
        OWN_WORKERS,
        Best,
        PREEMPTED,
    ),
    ask(
        "Mixed load, a million a second: lateness, p99.9",
        ("mixed", "1,000,000 operations a second", "late_p999"),
        OWN_WORKERS,
        Best,
        TICK,
    ),
    ask(
        "A proxy, three timeouts a request, 1,000 connections: CPU",
        ("requests", FEW, "cpu"),
        SERVER,
        Only(TOKIOS),
        CHECKED_TOGETHER,
    ),
    ask(
        "A proxy, three timeouts a request, 1,000 connections: an answer, p99",
        ("requests", FEW, "p99"),
        SERVER,
        Only(TOKIOS),
        "",
    ),
    ask(
        "A proxy, three timeouts a request, 10,000 connections: CPU",
        ("requests", MANY_CLIENTS, "cpu"),
        SERVER,
        Only(TOKIOS),
        CHECKED_TOGETHER,
    ),
    ask(
        "A proxy, three timeouts a request, 10,000 connections: an answer, p99",
        ("requests", MANY_CLIENTS, "p99"),
        SERVER,
        Only(TOKIOS),
        "",
    ),
    ask(
        "axum with three timeouts, wrk with 100 connections: CPU a request",
        ("axum", WRK_100, "cpu"),
        SERVER,
        Only(TOKIOS),
        READ_EACH_TIME,
    ),
    ask(
        "axum with three timeouts, wrk with 100 connections: time a request",
        ("axum", WRK_100, "each"),
        SERVER,
        Only(TOKIOS),
        READ_EACH_TIME,
    ),
    ask(
        "axum with three timeouts, wrk with 1,000 connections: CPU a request",
        ("axum", WRK_1000, "cpu"),
        SERVER,
        Only(TOKIOS),
        READ_EACH_TIME,
    ),
    ask(
        "axum with three timeouts, wrk with 1,000 connections: time a request",
        ("axum", WRK_1000, "each"),
        SERVER,
        Only(TOKIOS),
        READ_EACH_TIME,
    ),
    ask("Memory of a pending timer, with its payload", ("memory", MANY, "bytes"), HANDLE, Best, LINKS),
    ask(
        "Wake-ups in ten idle seconds, 100,000 pending",
        ("idle", "100,000 pending, 10 s", "switches"),
        OWN_WORKERS,
        Best,
        "",
    ),
    // With two threads both take less than a nanosecond, of which nothing follows.
    ask("Limit a future that is ready", ("timeout", "a ready future", "t1"), LIMIT, Best, NOT_POLLED_YET),
    ask(
        "futures-timer by its drop-in: make, poll and drop, 8 threads",
        ("dropins", MANY, "t8"),
        DELAY,
        Only(&[FUTURES_TIMER]),
        "",
    ),
    ask(
        "futures-timer by its drop-in: lateness, p99, 8 threads",
        ("dropins", WAITS, "p99"),
        DELAY,
        Only(&[FUTURES_TIMER]),
        NO_TICK,
    ),
    ask(
        "pingora-timeout by its drop-in: make, poll and drop, 8 threads",
        ("dropins", MANY, "t8"),
        SLEEP,
        Only(&[PINGORA]),
        "",
    ),
    ask(
        "pingora-timeout by its drop-in: lateness, p99, 8 threads",
        ("dropins", WAITS, "p99"),
        SLEEP,
        Only(&[PINGORA]),
        "",
    ),
    ask(
        "Schedule a closure and cancel it",
        ("closures", "100,000 pending", "t1"),
        CLOSURE,
        Only(&[TASK]),
        "",
    ),
    ask(
        "100,000 tasks each second: lateness, p99.9",
        ("periodic", "100,000 tasks, every 1 s", "p999"),
        REPEAT,
        Only(&[INTERVAL]),
        GUARDED,
    ),
    ask(
        "100,000 tasks each second: CPU time in a second",
        ("periodic", "100,000 tasks, every 1 s", "cpu"),
        REPEAT,
        Only(&[INTERVAL]),
        GUARDED,
    ),
    ask(
        "Replace the timer of one of a million keys, 1 thread",
        ("keys", "1,000,000 keys", "t1"),
        KEYED,
        Only(&[QUEUE]),
        KEY_MISSES,
    ),
    ask(
        "Replace the timer of one of a million keys, 2 threads",
        ("keys", "1,000,000 keys", "t2"),
        KEYED,
        Only(&[QUEUE]),
        KEY_MISSES,
    ),
    ask(
        "Read an entry of a map with a time to live",
        ("cache", "100,000 entries", "get"),
        MAP,
        Only(&[MOKA]),
        "",
    ),
    ask(
        "Replace an entry of a map with a time to live",
        ("cache", "100,000 entries", "insert"),
        MAP,
        Only(&[MOKA]),
        "",
    ),
    ask("Push an item into a delay queue, take it back", ("queue", ITEMS, "pair"), ITEM_QUEUE, Best, SHARED),
    ask(
        "Receive 100,000 items due at once: until the last",
        ("queue", ITEMS, "last"),
        ITEM_QUEUE,
        Best,
        SHARED,
    ),
    ask("100,000 jobs for the queue: a push", ("retries", ONE, "push"), THREADS, Best, LOCKED_PUSH),
    ask("100,000 jobs in the queue, 1 consumer: CPU an item", ("retries", ONE, "cpu"), THREADS, Best, ""),
    ask("100,000 jobs in the queue, 1 consumer: p99", ("retries", ONE, "p99"), THREADS, Best, ""),
    ask("100,000 jobs in the queue, 2 consumers: CPU an item", ("retries", TWO, "cpu"), THREADS, Best, ""),
    ask("100,000 jobs in the queue, 2 consumers: p99", ("retries", TWO, "p99"), THREADS, Best, ""),
    ask("The wheel alone, 10,000 timers: cancel", ("structures", FITS, "cancel"), WHEEL, Best, OWN_PLACE),
    ask("The wheel alone, 10,000 timers: expire", ("structures", FITS, "expire"), WHEEL, Best, NO_CASCADE),
    ask(
        "The wheel alone, a million timers: cancel",
        ("structures", EXCEEDS, "cancel"),
        WHEEL,
        Best,
        OWN_PLACE,
    ),
    ask(
        "The wheel alone, a million timers: expire",
        ("structures", EXCEEDS, "expire"),
        WHEEL,
        Best,
        IN_ORDER,
    ),
];

pub(super) const fn ask(
    text: &'static str,
    (workload, case, column): (&'static str, &'static str, &'static str),
    ours: &'static str,
    against: Against,
    why: &'static str,
) -> Question {
    Question { text, workload, case, column, ours, against, why }
}
