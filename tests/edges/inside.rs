//! Calls from inside: from handlers, panic hooks and the drops of payloads.

use crate::support::{HOUR, MS, PATIENCE, assert_settled, lock, wait_until, within_patience};
use crate::{OnDrop, every_dispatch};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Cancel, Fired, Handle, Refusal};

#[test]
fn a_handler_schedules_and_cancels() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (sender, done) = mpsc::channel();
            let engine = builder
                .start(move |timer: Fired<'_, u64>| {
                    let engine = timer.engine();
                    if timer.payload > 0 {
                        engine.schedule(Duration::ZERO, timer.payload - 1).unwrap();
                        let id = engine.schedule(HOUR, 7).unwrap();
                        let id = engine.reschedule(id, 2 * HOUR).unwrap();
                        assert_eq!(engine.cancel(id), Cancel::Cancelled(7));
                    } else {
                        sender.send(()).unwrap();
                    }
                })
                .unwrap();
            engine.handle().schedule(MS, 20).unwrap();
            done.recv().unwrap();
            assert!(engine.handle().shutdown().is_empty());
            let stats = engine.handle().stats();
            assert_eq!((stats.fired, stats.cancelled, stats.total.panics), (21, 40, 0));
            assert_settled(&stats);
        });
    }
}

#[test]
fn scheduling_and_cancelling_while_a_handler_unwinds_works() {
    // The calls come from a guard on the handler's stack, from the drop of the payload, and from the panic hook.
    let (sender, log) = mpsc::channel();
    let hooked: Arc<Mutex<Option<Handle<Option<OnDrop>>>>> = Arc::new(Mutex::new(None));
    let in_hook = Arc::clone(&hooked);
    let engine = Builder::new()
        .workers(2)
        .on_panic(move |panic| {
            assert_eq!(panic.downcast_ref(), Some(&"out"));
            lock(&in_hook).take().unwrap().schedule(MS, None).unwrap();
        })
        .start(move |timer: Fired<'_, Option<OnDrop>>| {
            if timer.payload.is_none() {
                return sender.send(()).unwrap();
            }
            let engine = timer.engine();
            let _guard = OnDrop::new(move || {
                assert!(thread::panicking());
                let id = engine.schedule(HOUR, None).unwrap();
                assert!(matches!(engine.cancel(id), Cancel::Cancelled(None)));
                engine.schedule(MS, None).unwrap();
            });
            std::panic::panic_any("out");
        })
        .unwrap();
    let handle = Handle::clone(engine.handle());
    *lock(&hooked) = Some(Handle::clone(engine.handle()));
    let payload = OnDrop::new(move || assert!(handle.schedule(MS, None).is_ok()));
    engine.handle().schedule(MS, Some(payload)).unwrap();
    for _ in 0..3 {
        assert_eq!(log.recv_timeout(PATIENCE), Ok(()));
    }
    assert!(engine.handle().shutdown().is_empty());
    assert_eq!(engine.handle().stats().total.panics, 1);
    assert_settled(&engine.handle().stats());
}

#[test]
fn a_hook_is_called_with_the_panic_and_survived_when_it_panics() {
    let (sender, log) = mpsc::channel();
    let engine = Builder::new()
        .inline()
        .on_panic(move |panic| {
            sender.send(panic.downcast_ref::<u64>().copied()).unwrap();
            panic!("a hook");
        })
        .start(|timer: Fired<'_, u64>| std::panic::panic_any(timer.payload))
        .unwrap();
    for payload in 0..3 {
        engine.handle().schedule(MS, payload).unwrap();
        assert_eq!(log.recv_timeout(PATIENCE), Ok(Some(payload)));
    }
    wait_until("all are counted", || engine.handle().stats().total.panics == 3);
}

#[test]
fn a_payloads_drop_may_use_the_engine_wherever_it_happens() {
    for builder in every_dispatch() {
        within_patience(move || {
            let engine = builder.start(|timer: Fired<'_, OnDrop>| drop(timer.payload)).unwrap();
            let (sender, log) = mpsc::channel();
            let armed = |place: &'static str| {
                let (handle, sender) = (Handle::clone(engine.handle()), sender.clone());
                OnDrop::new(move || {
                    let outcome = match handle.schedule(HOUR, OnDrop::nothing()) {
                        Ok(id) => matches!(handle.cancel(id), Cancel::Cancelled(_)).then_some(place),
                        Err(error) => (error.kind == Refusal::ShutDown).then_some("shut down"),
                    };
                    sender.send(outcome).unwrap();
                })
            };
            engine.handle().schedule(MS, armed("fired")).unwrap();
            assert_eq!(log.recv(), Ok(Some("fired")));
            let id = engine.handle().schedule(HOUR, armed("cancelled")).unwrap();
            drop(engine.handle().cancel(id));
            assert_eq!(log.recv(), Ok(Some("cancelled")));
            engine.handle().schedule(HOUR, armed("returned")).unwrap();
            drop(engine.handle().shutdown());
            assert_eq!(log.recv(), Ok(Some("shut down")));
            drop(engine.handle().schedule(HOUR, armed("refused")));
            assert_eq!(log.recv(), Ok(Some("shut down")));
            assert_settled(&engine.handle().stats());
        });
    }
}

#[test]
fn payloads_dropped_with_the_engine_may_use_it_and_may_panic() {
    within_patience(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let (count, (sender, log)) = (Arc::clone(&panics), mpsc::channel());
        let engine = Builder::new()
            .on_panic(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .start(|_: Fired<'_, OnDrop>| {})
            .unwrap();
        for n in 0..6 {
            let (handle, sender) = (Handle::clone(engine.handle()), sender.clone());
            let payload = OnDrop::new(move || {
                let refused = handle.schedule(MS, OnDrop::nothing()).is_err();
                let nothing = handle.shutdown().is_empty();
                sender.send((handle.is_shut_down(), refused, nothing)).unwrap();
                assert!(n % 2 == 0, "a payload's drop");
            });
            engine.handle().schedule(HOUR, payload).unwrap();
        }
        drop(engine);
        drop(sender);
        assert_eq!(log.into_iter().collect::<Vec<_>>(), [(true, true, true); 6]);
        assert_eq!(panics.load(Ordering::Relaxed), 3);
    });
}
