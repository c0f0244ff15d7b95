//! One-shots that are due together, so that a turn hands all of them out. Before their handlers begin, they are
//! cancelled or returned. Each timer has one end.

use crate::every_dispatch;
use crate::support::{Gate, Log, MS, assert_settled, lock, wait_until, within_patience};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use tourbillon::{Cancel, Engine, Fired, TimerId};

/// The number of timers that are due together: two chunks of tickets, in one batch.
const TIMERS: u64 = 64;

fn schedule(engine: &Engine<u64>) -> Vec<TimerId> {
    engine.handle().schedule_batch((0..TIMERS).map(|n| (MS, n))).unwrap()
}

/// Asserts that each timer has one end: its handler has run, or it is in `others`. If one thread has run all handlers,
/// only the first handler has run.
fn assert_one_end(ran: &[(ThreadId, u64)], others: &[u64]) {
    let mut ends: Vec<u64> = ran.iter().map(|&(_, payload)| payload).chain(others.iter().copied()).collect();
    ends.sort_unstable();
    assert_eq!(ends, (0..TIMERS).collect::<Vec<_>>(), "{ran:?} have run");
    let threads: HashSet<_> = ran.iter().map(|(thread, _)| thread).collect();
    assert!(ran.len() == 1 || threads.len() > 1, "{ran:?} have run");
}

#[test]
fn the_first_handler_cancels_the_timers_that_are_due_with_its_own() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (ids, log, is_first) = (Arc::new(Mutex::new(Vec::new())), Log::new(), AtomicBool::new(true));
            let (neighbours, ran) = (Arc::clone(&ids), log.clone());
            let (sender, cancels) = mpsc::channel();
            let engine = builder
                .start(move |timer: Fired<'_, u64>| {
                    ran.push((thread::current().id(), timer.payload));
                    if is_first.swap(false, Ordering::SeqCst) {
                        let (engine, ids) = (timer.engine(), lock(&neighbours));
                        let cancelled = ids.iter().filter_map(|&id| engine.cancel(id).payload());
                        sender.send(cancelled.collect::<Vec<_>>()).unwrap();
                    }
                })
                .unwrap();
            {
                // The first handler waits for the ids.
                let mut ids = lock(&ids);
                *ids = schedule(&engine);
            }
            let cancelled = cancels.recv().unwrap();
            wait_until("all have ended", || engine.handle().is_empty());
            assert!(engine.handle().shutdown().is_empty());
            let (ran, stats) = (log.take(), engine.handle().stats());
            assert_one_end(&ran, &cancelled);
            assert_eq!((stats.fired, stats.cancelled), (ran.len() as u64, cancelled.len() as u64));
            assert_eq!(stats.total.panics, 0);
            assert_settled(&stats);
        });
    }
}

#[test]
fn timers_that_are_cancelled_while_the_first_handler_runs_do_not_run() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (log, gate) = (Log::new(), Gate::new());
            let (ran, at_gate) = (log.clone(), gate.clone());
            let engine = builder
                .start(move |timer: Fired<'_, u64>| {
                    ran.push(timer.payload);
                    at_gate.pass();
                })
                .unwrap();
            let ids = schedule(&engine);
            gate.await_arrival();
            let queued = engine.handle().stats().total.queued_timers;
            assert!(queued >= TIMERS - 2, "{queued} timers are in chunks");
            let cancelled: Vec<u64> = ids
                .iter()
                .step_by(2)
                .filter_map(|&id| match engine.handle().cancel(id) {
                    Cancel::Cancelled(payload) => Some(payload),
                    outcome => {
                        assert_eq!(outcome, Cancel::Running);
                        None
                    }
                })
                .collect();
            assert!(cancelled.len() as u64 >= TIMERS / 2 - 2, "two handlers run at a time, at most");
            gate.open();
            wait_until("the others have begun", || engine.handle().is_empty());
            assert!(engine.handle().shutdown().is_empty());
            let expected: Vec<_> = (0..TIMERS).filter(|payload| !cancelled.contains(payload)).collect();
            assert_eq!(log.take_sorted(), expected);
            let stats = engine.handle().stats();
            assert_eq!((stats.cancelled, stats.total.panics), (cancelled.len() as u64, 0));
            assert_settled(&stats);
        });
    }
}

/// The shutdown does not wait inside the handler, and no further handler begins. Handlers that another thread has begun
/// end later.
#[test]
fn the_first_handler_shuts_the_engine_down_before_the_timers_that_are_due_with_its_own() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (log, is_first) = (Log::new(), AtomicBool::new(true));
            let ran = log.clone();
            let (sender, unfired) = mpsc::channel();
            let engine = builder
                .start(move |timer: Fired<'_, u64>| {
                    ran.push((thread::current().id(), timer.payload));
                    if is_first.swap(false, Ordering::SeqCst) {
                        sender.send(timer.engine().shutdown()).unwrap();
                    }
                })
                .unwrap();
            schedule(&engine);
            let returned: Vec<_> = unfired.recv().unwrap().iter().map(|timer| timer.payload).collect();
            assert!(engine.handle().shutdown().is_empty());
            let (ran, stats) = (log.take(), engine.handle().stats());
            assert_one_end(&ran, &returned);
            assert_eq!((stats.fired, stats.returned), (ran.len() as u64, returned.len() as u64));
            assert_eq!(stats.total.panics, 0);
            assert_settled(&stats);
        });
    }
}
