//! Receivers that are polled. The tests check which receiver each call wakes.

use crate::support::{MS, Rng, wait_until, within_patience};
use crate::{SECOND, item};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tourbillon_tasks::DrivenTasks;
use tourbillon_tasks::uses::{DelayQueue, DueItem, Receiver};

/// A waker that counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A task of the test: a receiver, and the waker that counts the task's wake-ups.
struct Task {
    receiver: Receiver<u64>,
    bell: Arc<Bell>,
}

impl Task {
    fn of(queue: &DelayQueue<u64>) -> Self {
        Self { receiver: queue.receiver(), bell: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Option<u64>> {
        let waker = Waker::from(Arc::clone(&self.bell));
        self.receiver.poll_recv(&mut Context::from_waker(&waker)).map(|due| due.map(item))
    }
}

fn waiting<const N: usize>() -> (DrivenTasks, DelayQueue<u64>, [Task; N]) {
    let tasks = DrivenTasks::new().unwrap();
    let queue = tasks.handle().delay_queue();
    let mut waiters = std::array::from_fn(|_| Task::of(&queue));
    waiters.iter_mut().for_each(|task| assert_eq!(task.poll(), Poll::Pending));
    (tasks, queue, waiters)
}

fn rings(waiters: &[Task]) -> Vec<usize> {
    waiters.iter().map(|task| task.bell.rings()).collect()
}

#[test]
fn each_item_wakes_one_waiter() {
    let (mut tasks, queue, mut waiters) = waiting::<3>();
    queue.push(SECOND, 1).unwrap();
    queue.push(2 * SECOND, 2).unwrap();
    tasks.advance(SECOND);
    assert_eq!(rings(&waiters), [1, 0, 0]);
    // The first receiver was woken and has not looked yet. So the second item wakes another receiver.
    tasks.advance(SECOND);
    assert_eq!(rings(&waiters), [1, 1, 0]);
    assert_eq!(waiters[1].poll(), Poll::Ready(Some(1)));
    assert_eq!(waiters[0].poll(), Poll::Ready(Some(2)));
    assert_eq!((waiters[2].poll(), rings(&waiters)), (Poll::Pending, vec![1, 1, 0]));
}

#[test]
fn a_waiter_that_goes_passes_its_wake_up_on() {
    let (mut tasks, queue, mut waiters) = waiting::<2>();
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    assert_eq!(rings(&waiters), [1, 0]);
    waiters[0].receiver = queue.receiver();
    assert_eq!(rings(&waiters), [1, 1]);
    assert_eq!(waiters[1].poll(), Poll::Ready(Some(1)));
}

#[test]
fn a_future_that_is_dropped_passes_its_wake_up_on_and_has_no_item() {
    let (mut tasks, queue, _) = waiting::<0>();
    let bells: [Arc<Bell>; 2] = std::array::from_fn(|_| Arc::default());
    let wakers = bells.each_ref().map(|bell| Waker::from(Arc::clone(bell)));
    let (mut first, mut second) = (Box::pin(queue.next()), pin!(queue.next()));
    assert!(first.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    assert_eq!((bells[0].rings(), bells[1].rings()), (1, 0));
    drop(first);
    assert_eq!((bells[0].rings(), bells[1].rings()), (1, 1));
    let second = second.as_mut().poll(&mut Context::from_waker(&wakers[1]));
    assert_eq!(second.map(|due| due.map(item)), Poll::Ready(Some(1)));
}

#[test]
fn one_that_was_too_slow_waits_again() {
    let (mut tasks, queue, mut waiters) = waiting::<1>();
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    assert_eq!((queue.recv().map(item), rings(&waiters)), (Ok(1), vec![1]));
    assert_eq!(waiters[0].poll(), Poll::Pending);
    queue.push(SECOND, 2).unwrap();
    tasks.advance(SECOND);
    assert_eq!((rings(&waiters), waiters[0].poll()), (vec![2], Poll::Ready(Some(2))));
}

#[test]
fn one_that_has_received_stands_in_line_no_more() {
    let (mut tasks, queue, mut waiters) = waiting::<2>();
    queue.push(SECOND, 1).unwrap();
    queue.push(2 * SECOND, 2).unwrap();
    tasks.advance(SECOND);
    // The second receiver took the item before the woken receiver. The woken receiver waits again and gets the next
    // item.
    assert_eq!((waiters[1].poll(), waiters[0].poll()), (Poll::Ready(Some(1)), Poll::Pending));
    tasks.advance(SECOND);
    assert_eq!((rings(&waiters), waiters[0].poll()), (vec![2, 0], Poll::Ready(Some(2))));
}

#[test]
fn one_that_looks_unasked_leaves_the_wake_up_of_the_next_item_to_another() {
    let (tasks, queue, mut waiters) = waiting::<2>();
    // The test moves the clock without a turn of the engine, so the alarm has not rung.
    let push = |tasks: &DrivenTasks| {
        let due = tasks.handle().now() + SECOND;
        let _ids = [1, 2].map(|n| queue.push_at(due, n).unwrap());
    };
    push(&tasks);
    tasks.clock().advance(SECOND);
    assert!(waiters[0].poll().is_ready());
    assert_eq!((rings(&waiters), waiters[1].poll().is_ready()), (vec![0, 1], true));
    // Next, the last receiver in line looks.
    waiters.iter_mut().for_each(|task| assert_eq!(task.poll(), Poll::Pending));
    push(&tasks);
    tasks.clock().advance(SECOND);
    assert!(waiters[1].poll().is_ready());
    assert_eq!((rings(&waiters), waiters[0].poll().is_ready()), (vec![1, 1], true));
}

#[test]
fn a_wake_up_for_an_item_that_is_gone_wakes_nobody_else() {
    let (mut tasks, queue, mut waiters) = waiting::<3>();
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    assert_eq!((queue.try_recv().map(item), rings(&waiters)), (Ok(1), vec![1, 0, 0]));
    let due = tasks.handle().now() + SECOND;
    let _ids = [2, 3].map(|n| queue.push_at(due, n).unwrap());
    tasks.clock().advance(SECOND);
    // One item is for the receiver that looks, and the other item wakes one receiver.
    assert!(waiters[0].poll().is_ready());
    assert_eq!(rings(&waiters), [1, 1, 0]);
}

#[test]
fn no_item_is_due_beside_receivers_that_all_sleep() {
    const MOST: usize = 4;
    let mut rng = Rng::new(11);
    let (mut tasks, queue, _) = waiting::<0>();
    let mut waiters: Vec<_> = (0..MOST).map(|_| (Task::of(&queue), false)).collect();
    let ring = |task: &Task, heard: usize| task.bell.rings() > heard;
    let mut heard = [0; MOST];
    let (mut pushed, mut received) = (0, 0);
    for round in 0..20_000 {
        if rng.below(3) == 0 {
            let due = tasks.handle().now() + MS * u32::try_from(rng.below(3)).unwrap();
            for n in 0..1 + rng.below(3) {
                queue.push_at(due, n).unwrap();
                pushed += 1;
            }
        }
        match rng.below(4) {
            0 => tasks.advance(MS),
            1 => tasks.clock().advance(MS),
            _ => {}
        }
        // Any receiver looks, whether it was woken or not. Some receivers leave instead.
        let n = rng.index(MOST);
        let (task, stands) = &mut waiters[n];
        heard[n] = task.bell.rings();
        if rng.below(8) == 0 {
            (task.receiver, *stands) = (queue.receiver(), false);
        } else {
            *stands = task.poll().is_pending();
            received += usize::from(!*stands);
        }
        if round % 8 > 0 {
            continue;
        }
        // All receivers that are woken look, until no receiver is woken any more.
        tasks.turn();
        while let Some(n) = (0..MOST).find(|&n| waiters[n].1 && ring(&waiters[n].0, heard[n])) {
            heard[n] = waiters[n].0.bell.rings();
            waiters[n].1 = waiters[n].0.poll().is_pending();
            received += usize::from(!waiters[n].1);
        }
        if waiters.iter().any(|(_, stands)| *stands) {
            let due = queue.try_recv().map(item);
            assert!(due.is_err(), "in round {round} an item was due beside a receiver that slept");
        }
    }
    assert!(received > pushed / 4, "{received} of {pushed}");
}

#[test]
fn the_task_that_polled_last_is_woken() {
    let (mut tasks, queue, mut waiters) = waiting::<1>();
    let old = std::mem::take(&mut waiters[0].bell);
    assert_eq!(waiters[0].poll(), Poll::Pending);
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    assert_eq!((old.rings(), rings(&waiters)), (0, vec![1]));
}

#[test]
fn the_end_wakes_all_who_wait() {
    let (_tasks, queue, mut waiters) = waiting::<3>();
    queue.close();
    assert_eq!(rings(&waiters), [1, 1, 1]);
    waiters.iter_mut().for_each(|task| assert_eq!(task.poll(), Poll::Ready(None)));
    let (tasks, _queue, mut waiters) = waiting::<2>();
    assert!(tasks.handle().shutdown().is_empty());
    assert_eq!((rings(&waiters), waiters[1].poll()), (vec![1, 1], Poll::Ready(None)));
}

#[test]
fn a_waker_that_panics_loses_no_item() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("boom");
        }
    }
    let (mut tasks, queue, _) = waiting::<0>();
    let mut receiver = queue.receiver();
    let waker = Waker::from(Arc::new(Bomb));
    assert_eq!(receiver.poll_recv(&mut Context::from_waker(&waker)), Poll::Pending);
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    assert_eq!((tasks.handle().stats().total.panics, queue.try_recv().map(item)), (1, Ok(1)));
}

// --- With threads ---

/// Runs a future on the calling thread. Parks the thread while the future waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn tasks_that_await_and_threads_that_block_share_the_items() {
    within_patience(|| {
        const COUNT: u64 = 3_000;
        let tasks = crate::threads();
        let queue = tasks.handle().delay_queue::<u64>();
        let mut received: Vec<u64> = thread::scope(|scope| {
            let awaiting = (0..2).map(|_| scope.spawn(|| block_on(collect(|| queue.next()))));
            let mut receivers: Vec<_> = awaiting.collect();
            receivers.push(scope.spawn(|| std::iter::from_fn(|| queue.recv().ok().map(item)).collect()));
            let mut rng = Rng::new(7);
            for n in 0..COUNT {
                queue.push(rng.nanos_below(Duration::from_micros(300)), n).unwrap();
            }
            wait_until("all are received", || queue.is_empty());
            assert!(queue.close().is_empty());
            receivers.into_iter().flat_map(|receiver| receiver.join().unwrap()).collect()
        });
        received.sort_unstable();
        assert_eq!(received, (0..COUNT).collect::<Vec<_>>());
    });
}

async fn collect<F: Future<Output = Option<DueItem<u64>>>>(mut next: impl FnMut() -> F) -> Vec<u64> {
    let mut items = Vec::new();
    while let Some(item) = next().await {
        items.push(item.item);
    }
    items
}

#[cfg(feature = "stream")]
mod stream {
    use super::*;
    use futures_core::Stream;
    use std::future::poll_fn;
    use std::pin::Pin;

    #[test]
    fn a_receiver_is_a_stream() {
        let (mut tasks, queue, _) = waiting::<0>();
        let (mut receiver, bell) = (queue.receiver(), Arc::new(Bell::default()));
        let waker = Waker::from(Arc::clone(&bell));
        let mut poll =
            || Pin::new(&mut receiver).poll_next(&mut Context::from_waker(&waker)).map(|due| due.map(item));
        assert_eq!(poll(), Poll::Pending);
        queue.push(SECOND, 1).unwrap();
        tasks.advance(SECOND);
        assert_eq!((bell.rings(), poll(), poll()), (1, Poll::Ready(Some(1)), Poll::Pending));
        queue.close();
        assert_eq!((bell.rings(), poll()), (2, Poll::Ready(None)));
    }

    #[test]
    fn a_stream_on_a_thread_brings_all_items() {
        within_patience(|| {
            let tasks = crate::threads();
            let queue = tasks.handle().delay_queue::<u64>();
            thread::scope(|scope| {
                let stream = scope.spawn(|| {
                    let mut receiver = queue.receiver();
                    block_on(async {
                        let mut items = Vec::new();
                        while let Some(item) = poll_fn(|cx| Pin::new(&mut receiver).poll_next(cx)).await {
                            items.push(item.item);
                        }
                        items
                    })
                });
                for n in 0..1_000 {
                    queue.push(Duration::from_micros(n % 300), n).unwrap();
                }
                wait_until("all are received", || queue.is_empty());
                queue.close();
                assert_eq!(stream.join().unwrap().len(), 1_000);
            });
        });
    }
}
