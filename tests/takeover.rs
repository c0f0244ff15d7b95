//! Shards whose leader is held up by a handler. Another thread takes such a shard over.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Fired};

const MS: Duration = Duration::from_millis(1);
/// The longest wait for an event that should come at once. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest time that a handler waits for other handlers. The other handlers should run some milliseconds later.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The action that a timer's handler takes.
enum Act {
    /// The handler blocks until other handlers have run, and reports whether they have.
    AwaitOthers(Others),
    /// The handler waits for a message, or for the end of the message's sender.
    Block(mpsc::Receiver<()>),
    /// The handler reports its thread's name, and then waits as with `Block`.
    ReportAndBlock(mpsc::Sender<String>, mpsc::Receiver<()>),
    Report(mpsc::Sender<thread::ThreadId>),
    /// The handler reports. The first such handler on the shard's own thread also blocks, and so does the first such
    /// handler on another thread.
    BlockFirst(Arc<[Gate; 2]>, mpsc::Sender<()>),
    /// The handler lets another handler go on, and then runs for a while itself.
    Release(mpsc::Sender<()>),
}

type Gate = Mutex<Option<mpsc::Receiver<()>>>;

/// A handler's wait for `number` reports from other handlers.
struct Others {
    begun: mpsc::Sender<()>,
    reports: mpsc::Receiver<thread::ThreadId>,
    number: usize,
    outcome: mpsc::Sender<bool>,
}

impl Others {
    fn await_all(self) {
        self.begun.send(()).expect("the test waits");
        let end = Instant::now() + GIVE_UP;
        let next = || self.reports.recv_timeout(end.saturating_duration_since(Instant::now()));
        let have_run = (0..self.number).all(|_| next().is_ok());
        self.outcome.send(have_run).expect("the test waits");
    }
}

fn act(fired: Fired<'_, Act>) {
    match fired.payload {
        Act::AwaitOthers(others) => others.await_all(),
        Act::Block(gate) => drop(gate.recv()),
        Act::ReportAndBlock(sender, gate) => {
            drop(sender.send(thread::current().name().unwrap_or_default().to_owned()));
            let _message_or_end = gate.recv();
        }
        Act::Report(sender) => drop(sender.send(thread::current().id())),
        Act::BlockFirst(gates, report) => {
            let is_elsewhere = thread::current().name().is_none_or(|name| !name.starts_with("tb-shard"));
            let gate = gates[usize::from(is_elsewhere)].lock().unwrap().take();
            let _message_or_end = gate.map(|gate| gate.recv());
            report.send(()).expect("the test waits");
        }
        Act::Release(gate) => {
            drop(gate);
            thread::sleep(MS / 2);
        }
    }
}

/// A handler returns only when other timers have fired: timers of its own batch (group of due timers), and timers
/// scheduled after it has begun. The first handler that blocks is on the shard's own thread, so another thread takes
/// the shard over. A takeover needs only a small part of the time that the test allows. If each takeover took a second,
/// the time would not suffice.
#[test]
fn a_handler_that_blocks_holds_up_no_other_timer_of_its_shard() {
    let begin = Instant::now();
    for _ in 0..25 {
        let engine = Builder::new().shards(1).workers(2).start(act).unwrap();
        for _ in 0..2 {
            let ((report, reports), (begun, has_begun)) = (mpsc::channel(), mpsc::channel());
            let (outcome, have_run) = mpsc::channel();
            let others = || Act::Report(report.clone());
            let blocking = Act::AwaitOthers(Others { begun, reports, number: 5, outcome });
            engine.handle().schedule_batch([blocking, others(), others()].map(|act| (MS, act))).unwrap();
            has_begun.recv_timeout(PATIENCE).expect("it fires");
            for delay in [0, 1, 3] {
                engine.handle().schedule(delay * MS, others()).unwrap();
            }
            let have_run = have_run.recv_timeout(2 * GIVE_UP).expect("it returns");
            assert!(have_run, "the others waited until the handler gave up");
        }
        assert!(engine.handle().stats().total.takeovers >= 1);
    }
    assert!(begin.elapsed() < PATIENCE, "{:?} for 25 takeovers", begin.elapsed());
}

/// While handlers are quick, the shard's alarm is set again and again, and does not ring. A handler that then blocks
/// still holds up no other timer.
#[test]
fn a_handler_that_blocks_after_many_quick_ones_holds_up_no_other_timer() {
    let engine = Builder::new().shards(1).workers(2).start(act).unwrap();
    for _ in 0..3 {
        let ((report, reports), (begun, has_begun)) = (mpsc::channel(), mpsc::channel());
        let (outcome, have_run) = mpsc::channel();
        // A timer is due in each tick.
        let (quick, quick_reports) = mpsc::channel();
        for tick in 0..200 {
            engine.handle().schedule(tick * MS, Act::Report(quick.clone())).unwrap();
        }
        drop(quick);
        let blocking = Act::AwaitOthers(Others { begun, reports, number: 3, outcome });
        engine.handle().schedule(200 * MS, blocking).unwrap();
        has_begun.recv_timeout(PATIENCE).expect("it fires");
        for delay in [0, 1, 3] {
            engine.handle().schedule(delay * MS, Act::Report(report.clone())).unwrap();
        }
        let have_run = have_run.recv_timeout(2 * GIVE_UP).expect("it returns");
        assert!(have_run, "the others waited until the handler gave up");
        assert_eq!(quick_reports.iter().count(), 200);
    }
    assert!(engine.handle().stats().total.takeovers >= 1);
}

/// More timers are due in a tick than one thread fires. The first handler on the shard's own thread blocks, and so does
/// the first handler on another thread. A third thread must run the other handlers.
#[test]
fn two_handlers_that_block_leave_the_others_to_a_third_thread() {
    const TIMERS: usize = 2_100;
    for _ in 0..20 {
        let engine = Builder::new().shards(1).workers(3).start(act).unwrap();
        // The shard's alarm is set when the many timers are due.
        let (quick, quick_reports) = mpsc::channel();
        for tick in 0..5 {
            engine.handle().schedule(tick * MS, Act::Report(quick.clone())).unwrap();
        }
        let (report, reports) = mpsc::channel();
        let (gates, ends): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
        let [on_shard, elsewhere] = ends.try_into().expect("two");
        let first = Arc::new([Mutex::new(Some(on_shard)), Mutex::new(Some(elsewhere))]);
        let acts = (0..TIMERS).map(|_| (6 * MS, Act::BlockFirst(Arc::clone(&first), report.clone())));
        engine.handle().schedule_batch(acts).unwrap();
        drop((quick, report));
        for _ in 0..TIMERS - 2 {
            reports.recv_timeout(PATIENCE).expect("all others fire while two handlers block");
        }
        drop(gates);
        assert_eq!(reports.iter().count(), 2);
        assert_eq!(quick_reports.iter().count(), 5);
    }
}

/// A handler blocks every worker. No timer can fire, but the shard still drains its lanes (threads' queues to it).
#[test]
fn a_shard_drains_its_lanes_while_every_worker_is_blocked() {
    let engine = Builder::new().shards(1).workers(1).lane_capacity(64).start(act).unwrap();
    let (gate, blocked) = mpsc::channel();
    engine.handle().schedule(MS, Act::Block(blocked)).unwrap();
    thread::sleep(20 * MS);
    let (sender, fired) = mpsc::channel();
    // There are far more timers than the lane holds, so the calls wait for the shard.
    let ids: Vec<_> =
        (0..5_000).map(|_| engine.handle().schedule(5 * MS, Act::Report(sender.clone())).unwrap()).collect();
    let cancelled =
        ids.iter().step_by(2).filter(|&&id| engine.handle().cancel(id).payload().is_some()).count();
    assert_eq!(cancelled, 2_500);
    assert!(fired.recv_timeout(30 * MS).is_err(), "the only worker is blocked");
    drop((gate, sender));
    assert_eq!(fired.iter().count(), 2_500);
}

#[test]
fn a_handler_may_wait_for_room_in_the_lane_of_its_own_shard() {
    let (sender, done) = mpsc::channel();
    let engine = Builder::new()
        .shards(1)
        .workers(1)
        .lane_capacity(64)
        .start(move |fired: Fired<'_, u32>| {
            for _ in 0..fired.payload {
                fired.engine().schedule(MS, 0).unwrap();
            }
            sender.send(fired.payload).unwrap();
        })
        .unwrap();
    engine.handle().schedule(MS, 5_000).unwrap();
    let mut fired = 0;
    while fired < 5_001 {
        done.recv_timeout(PATIENCE).expect("the handler waits for its own shard for ever");
        fired += 1;
    }
}

#[test]
fn every_timer_fires_once_while_leaders_change() {
    const TIMERS: usize = 20_000;
    let (counts, early) = (Arc::new(Mutex::new(vec![0_u8; TIMERS])), Arc::new(AtomicU64::new(0)));
    let (counting, judging) = (Arc::clone(&counts), Arc::clone(&early));
    let engine = Builder::new()
        .shards(2)
        .workers(3)
        .start(move |fired: Fired<'_, (usize, Instant, Duration)>| {
            let (n, armed, delay) = fired.payload;
            judging.fetch_add(u64::from(armed.elapsed() < delay), Ordering::Relaxed);
            counting.lock().unwrap()[n] += 1;
            // The durations go from quick to far longer than a leader's time limit.
            match n % 1_000 {
                0 => thread::sleep(7 * MS),
                1 => thread::sleep(2 * MS),
                _ => {}
            }
        })
        .unwrap();
    for n in 0..TIMERS {
        let delay = Duration::from_micros(1_000 + n as u64 * 7_919 % 1_000_000);
        engine.handle().schedule(delay, (n, Instant::now(), delay)).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while engine.handle().stats().fired < TIMERS as u64 && Instant::now() < end {
        thread::sleep(MS);
    }
    let takeovers = engine.handle().stats().total.takeovers;
    assert!(engine.handle().shutdown().is_empty());
    assert!(counts.lock().unwrap().iter().all(|&count| count == 1), "fired twice, or never");
    assert_eq!(early.load(Ordering::Relaxed), 0);
    assert!(takeovers > 0, "no leader was held up");
}

/// A handler blocks, and so holds up the shard's leader (the thread that runs the shard). The shutdown waits for this
/// handler, and returns the other timers.
#[test]
fn a_shutdown_waits_for_a_leader_that_is_held_up() {
    let engine = Builder::new().shards(1).workers(1).start(act).unwrap();
    let (gate, blocked) = mpsc::channel();
    engine.handle().schedule(MS, Act::Block(blocked)).unwrap();
    thread::sleep(20 * MS);
    let (sender, _fired) = mpsc::channel();
    engine.handle().schedule(5 * MS, Act::Report(sender)).unwrap();
    let opener = thread::spawn(move || {
        thread::sleep(50 * MS);
        drop(gate);
    });
    let begun = Instant::now();
    assert_eq!(engine.handle().shutdown().len(), 1);
    assert!(begun.elapsed() >= 20 * MS, "it did not wait for the handler");
    opener.join().unwrap();
}

/// Quick handlers stay on the shard's own thread. No second thread wakes.
#[test]
fn quick_handlers_run_on_the_shards_own_thread() {
    // The system may take the thread from its core for longer than a handler's time limit. Then another thread takes
    // the shard over, which is right.
    let is_disturbed = (0..20).all(|_| {
        let engine = Builder::new().shards(1).workers(2).start(act).unwrap();
        let mut threads = HashSet::new();
        for _ in 0..50 {
            let (sender, fired) = mpsc::channel();
            engine.handle().schedule(MS, Act::Report(sender)).unwrap();
            threads.insert(fired.recv_timeout(PATIENCE).unwrap());
        }
        let is_taken_over = engine.handle().stats().total.takeovers > 0;
        assert!(is_taken_over || threads.len() == 1, "{} threads", threads.len());
        is_taken_over
    });
    assert!(!is_disturbed, "the shard was taken over in every attempt");
}

/// The first leader has lost the shard to another thread, which runs a handler. Then the first leader's handler
/// returns, and the first leader leads the shard again. From then on, armings wake the first leader.
#[test]
fn a_leader_that_leads_again_is_woken() {
    for _ in 0..10 {
        let engine = Builder::new().shards(1).workers(2).start(act).unwrap();
        let report = |delay| {
            let (sender, fired) = mpsc::channel();
            engine.handle().schedule(delay, Act::Report(sender)).unwrap();
            fired.recv_timeout(PATIENCE).expect("fires, for its leader is woken")
        };
        let (gate, blocked) = mpsc::channel();
        engine.handle().schedule(MS, Act::Block(blocked)).unwrap();
        thread::sleep(20 * MS);
        // This number of timers goes to the workers after a takeover.
        for _ in 0..16 {
            report(MS);
            thread::sleep(MS);
        }
        engine.handle().schedule(MS, Act::Release(gate)).unwrap();
        thread::sleep(20 * MS);
        report(5 * MS);
        assert!(engine.handle().shutdown().is_empty());
    }
}

/// A shard's only permit is in use elsewhere, so the shard pushes jobs all the time. The idle thread must take over the
/// shard of the leader that is stuck, although it cannot run the jobs.
#[test]
fn a_stuck_leader_is_followed_while_jobs_wait() {
    let engine = Builder::new().shards(2).workers(1).lane_capacity(64).start(act).unwrap();
    let handle = engine.handle();
    let (gate, blocked) = mpsc::channel();
    let (sender, began) = mpsc::channel();
    handle.use_shard(0);
    handle.schedule(MS, Act::ReportAndBlock(sender, blocked)).unwrap();
    // The permit is free, since shard 1 has no timers yet.
    assert_eq!(began.recv_timeout(PATIENCE).unwrap(), "tb-shard-0");
    handle.use_shard(1);
    let (sender, fired) = mpsc::channel();
    let (mut scheduled, end) = (0, Instant::now() + PATIENCE);
    while handle.stats().shards[0].takeovers == 0 && Instant::now() < end {
        handle.schedule(MS, Act::Report(sender.clone())).unwrap();
        scheduled += 1;
        thread::sleep(MS);
    }
    assert_eq!(handle.stats().shards[0].takeovers, 1);
    drop((gate, sender));
    assert_eq!(fired.iter().count(), scheduled);
}
