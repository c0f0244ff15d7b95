//! Cases with tasks on several threads, and with sockets.

use super::peer::{ANSWER, Peer, SILENCE};
use super::{HOUR, MS, PATIENCE, Runtime, await_alive, engine};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::{self, ThreadId};
use tourbillon::Handle;
use tourbillon::future::Wakeup;

pub(crate) fn ten_thousand_tasks_sleep_and_none_wakes_early<R: Runtime>(runtime: &R) {
    let engine = engine();
    let sleep = |index: u32| {
        let engine = engine.handle().clone();
        runtime.spawn(async move {
            for round in 1..=3 {
                let deadline = engine.now() + index * round % 97 * MS;
                engine.sleep_until(deadline).await;
                assert!(engine.now() >= deadline);
            }
        })
    };
    let tasks: Vec<R::Task<()>> = (0..10_000).map(sleep).collect();
    let all = async {
        for task in tasks {
            R::join(task).await;
        }
    };
    runtime.block_on(engine.handle().timeout(PATIENCE, all)).expect("all complete");
    await_alive(&engine, 0);
}

/// Sleeps again and again, until two polls in a row come on different threads or `is_over` is set. Returns whether the
/// task changed its thread.
async fn sleep_until_moved(engine: Handle<Wakeup>, is_over: Arc<AtomicBool>) -> bool {
    let mut thread: Option<ThreadId> = None;
    while !is_over.load(Ordering::Relaxed) {
        let deadline = engine.now() + MS;
        let mut sleep = pin!(engine.sleep_until(deadline));
        let mut has_moved = false;
        poll_fn(|cx| {
            let here = thread::current().id();
            has_moved |= thread.replace(here).is_some_and(|before| before != here);
            sleep.as_mut().poll(cx)
        })
        .await;
        assert!(engine.now() >= deadline);
        if has_moved {
            return true;
        }
    }
    false
}

pub(crate) fn a_task_that_moves_to_another_worker_still_wakes<R: Runtime>(runtime: &R) {
    let (engine, is_over) = (engine(), Arc::new(AtomicBool::new(false)));
    // These tasks block their workers for a while. A task that waits for a blocked worker moves to another worker.
    let hogs: Vec<_> = (0..4)
        .map(|_| {
            let (engine, is_over) = (engine.handle().clone(), Arc::clone(&is_over));
            runtime.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    thread::sleep(2 * MS);
                    engine.sleep(MS).await;
                }
            })
        })
        .collect();
    let movers: Vec<_> = (0..8)
        .map(|_| runtime.spawn(sleep_until_moved(engine.handle().clone(), Arc::clone(&is_over))))
        .collect();
    runtime.block_on(async {
        for mover in movers {
            assert!(engine.handle().timeout(PATIENCE, R::join(mover)).await.expect("it wakes, and moves"));
        }
        is_over.store(true, Ordering::Relaxed);
        for hog in hogs {
            R::join(hog).await;
        }
    });
    await_alive(&engine, 0);
}

pub(crate) fn a_read_from_a_socket_is_limited_request_by_request<R: Runtime>(runtime: &R) {
    let (engine, peer) = (engine(), Peer::start());
    runtime.block_on(async {
        let mut stream = R::connect(peer.address()).await.unwrap();
        let mut timeout = engine.handle().reusable_timeout();
        for _ in 0..10 {
            for _ in 0..10 {
                R::write(&mut stream, ANSWER).await.unwrap();
                let answer = timeout.timeout(PATIENCE, R::read(&mut stream)).await;
                assert_eq!(answer.expect("in time").unwrap(), ANSWER);
            }
            R::write(&mut stream, SILENCE).await.unwrap();
            let begin = engine.handle().now();
            assert!(timeout.timeout(10 * MS, R::read(&mut stream)).await.is_err());
            assert!(engine.handle().now() >= begin + 10 * MS);
        }
        // All requests of the loop have used a single timer.
        assert_eq!(engine.handle().stats().owned.alive, 1);
    });
    await_alive(&engine, 0);
}

pub(crate) fn a_sleep_is_put_off_by_each_byte<R: Runtime>(runtime: &R) {
    let (engine, peer) = (engine(), Peer::start());
    let idle_timeout = 50 * MS;
    runtime.block_on(async {
        let mut stream = R::connect(peer.address()).await.unwrap();
        let mut idle = engine.handle().sleep(idle_timeout);
        for _ in 0..200 {
            R::write(&mut stream, ANSWER).await.unwrap();
            let mut read = pin!(R::read(&mut stream));
            let race = poll_fn(|cx| match read.as_mut().poll(cx) {
                Poll::Ready(byte) => Poll::Ready(Some(byte)),
                Poll::Pending => Pin::new(&mut idle).poll(cx).map(|()| None),
            });
            match race.await {
                Some(byte) => assert_eq!(byte.unwrap(), ANSWER),
                // The answer took longer than the sleep, and has not arrived yet.
                None => {
                    assert!(engine.handle().now() >= idle.deadline());
                    read.await.unwrap();
                }
            }
            idle.reset_after(idle_timeout);
        }
        let last_byte = engine.handle().now();
        idle.reset_after(idle_timeout);
        R::write(&mut stream, SILENCE).await.unwrap();
        idle.await;
        assert!(engine.handle().now() >= last_byte + idle_timeout);
    });
    await_alive(&engine, 0);
}

pub(crate) fn a_cancelled_task_leaves_no_timer<R: Runtime>(runtime: &R) {
    let engine = engine();
    let sleep = |_| {
        let engine = engine.handle().clone();
        runtime.spawn(async move { engine.timeout(HOUR, engine.sleep(HOUR)).await.unwrap_or(()) })
    };
    let tasks: Vec<R::Task<()>> = (0..1_000).map(sleep).collect();
    await_alive(&engine, 2_000);
    tasks.into_iter().for_each(R::cancel);
    await_alive(&engine, 0);
    assert_eq!(engine.handle().stats().owned.fired, 0);
}
