//! Delay queues: items and their order, on the manual clock, and receivers that wait in real time.

use crate::support::{MS, PATIENCE, lock, within_patience};
use crate::{SECOND, is_empty, item, threads};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Refusal, Timestamp};
use tourbillon_tasks::DrivenTasks;
use tourbillon_tasks::keyed::MoveError;
use tourbillon_tasks::uses::{DelayQueue, PushErrorKind, RecvError, TryRecvError};

fn driven() -> (DrivenTasks, DelayQueue<u64>) {
    let tasks = DrivenTasks::start(Builder::new().tick(MS)).unwrap();
    let queue = tasks.handle().delay_queue();
    (tasks, queue)
}

fn all_due(queue: &DelayQueue<u64>) -> Vec<u64> {
    std::iter::from_fn(|| queue.try_recv().ok().map(item)).collect()
}

#[test]
fn items_are_received_by_their_deadlines_and_not_before() {
    let (mut tasks, queue) = driven();
    for delay in [3, 1, 2] {
        queue.push(delay * SECOND, u64::from(delay)).unwrap();
    }
    queue.push_at(Timestamp::ZERO + 4 * SECOND, 4).unwrap();
    tasks.advance(SECOND - MS);
    assert_eq!((queue.try_recv().map(item), queue.len()), (Err(TryRecvError::Empty), 4));
    tasks.advance(MS);
    assert_eq!(
        (queue.try_recv().map(item), queue.try_recv().map(item), queue.len()),
        (Ok(1), Err(TryRecvError::Empty), 3)
    );
    tasks.advance(10 * SECOND);
    assert_eq!((all_due(&queue), queue.len()), (vec![2, 3, 4], 0));
    // The queue has made its timer. The timer was never armed, since no receiver has waited.
    let stats = tasks.handle().stats();
    assert_eq!((queue.is_empty(), stats.owned.alive, stats.owned.posted), (true, 1, 0));
    drop(queue);
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn an_item_is_taken_back_or_moved_until_it_is_due() {
    let (mut tasks, queue) = driven();
    let ids = [1_u32, 2, 3].map(|n| queue.push(n * SECOND, n.into()).unwrap());
    assert_eq!(queue.deadline(ids[0]), Some(Timestamp::ZERO + SECOND));
    assert_eq!((queue.remove(ids[1]), queue.remove(ids[1]), queue.len()), (Some(2), None, 2));
    queue.reset(ids[0], 5 * SECOND).unwrap();
    tasks.advance(4 * SECOND);
    assert_eq!(all_due(&queue), [3]);
    assert_eq!((queue.remove(ids[2]), queue.reset(ids[2], SECOND)), (None, Err(MoveError::Absent)));
    tasks.advance(SECOND);
    // The item's deadline has passed, but no receiver has looked, so the item can be reset.
    queue.reset(ids[0], SECOND).unwrap();
    let other = queue.push(SECOND, 4).unwrap();
    tasks.advance(SECOND);
    let first = queue.try_recv().map(|due| due.id).unwrap();
    // The second item was found due and not received. Only a receiver can take it now.
    let second = if first == other { ids[0] } else { other };
    assert_eq!((queue.remove(second), queue.deadline(second), queue.len()), (None, None, 1));
    assert_eq!(queue.recv().map(|due| due.id), Ok(second));
}

#[test]
fn an_item_that_no_receiver_has_looked_for_can_be_taken_back_after_its_time() {
    let (mut tasks, queue) = driven();
    let id = queue.push(SECOND, 1).unwrap();
    tasks.advance(2 * SECOND);
    assert_eq!((queue.deadline(id), queue.remove(id)), (Some(Timestamp::ZERO + SECOND), Some(1)));
    assert_eq!(queue.try_recv().map(item), Err(TryRecvError::Empty));
}

#[test]
fn a_queue_that_is_cleared_goes_on() {
    let (mut tasks, queue) = driven();
    let ids: Vec<_> = (1..=4_u32).map(|n| queue.push(n.div_ceil(2) * SECOND, n.into()).unwrap()).collect();
    tasks.advance(SECOND);
    let first = queue.try_recv().map(item).unwrap();
    // One item was found due, and two items wait.
    let mut cleared = queue.clear();
    assert_eq!((cleared[0], queue.len(), queue.clear()), (3 - first, 0, vec![]));
    cleared.sort_unstable();
    assert_eq!(cleared, [3 - first, 3, 4]);
    assert!(ids.iter().all(|id| queue.remove(*id).is_none()));
    queue.push(SECOND, 5).unwrap();
    tasks.advance(5 * SECOND);
    assert_eq!(all_due(&queue), [5]);
}

#[test]
fn more_than_one_look_at_once_are_received_in_order() {
    let (mut tasks, queue) = driven();
    for n in (0..2_000_u64).rev() {
        queue.push(Duration::from_millis(n / 10), n).unwrap();
    }
    tasks.advance(SECOND);
    let received: Vec<u64> = all_due(&queue).into_iter().map(|n| n / 10).collect();
    assert!(received.is_sorted() && received.len() == 2_000);
}

#[test]
fn delays_may_be_nothing_or_for_ever() {
    let (mut tasks, queue) = driven();
    let never = queue.push(Duration::MAX, 1).unwrap();
    queue.push(Duration::ZERO, 2).unwrap();
    tasks.advance(MS);
    tasks.advance(Duration::from_secs(100 * 365 * 86_400));
    assert_eq!((all_due(&queue), queue.remove(never)), (vec![2], Some(1)));
}

#[test]
fn after_a_close_what_is_due_is_received_and_the_rest_comes_back() {
    let (mut tasks, queue) = driven();
    queue.push(SECOND, 1).unwrap();
    queue.push(3 * SECOND, 3).unwrap();
    queue.push(2 * SECOND, 2).unwrap();
    tasks.advance(2 * SECOND);
    assert_eq!(
        (queue.is_closed(), queue.close(), queue.close(), queue.is_closed()),
        (false, vec![3], vec![], true)
    );
    let refused = queue.push(SECOND, 4).unwrap_err();
    assert_eq!((refused.kind, refused.item), (PushErrorKind::Closed, 4));
    assert_eq!(
        (
            queue.recv().map(item),
            queue.recv_timeout(SECOND).map(item),
            queue.recv().map(item),
            queue.try_recv().map(item)
        ),
        (Ok(1), Ok(2), Err(RecvError), Err(TryRecvError::Closed))
    );
    assert_eq!(queue.recv_timeout(PATIENCE).map(item), Err(TryRecvError::Closed));
    drop(queue);
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn after_a_shutdown_it_is_as_after_a_close() {
    let (mut tasks, queue) = driven();
    queue.push(SECOND, 1).unwrap();
    let id = queue.push(2 * SECOND, 2).unwrap();
    tasks.advance(SECOND);
    assert!(tasks.handle().shutdown().is_empty());
    assert_eq!(
        (queue.recv().map(item), queue.recv().map(item), queue.remove(id), queue.is_closed()),
        (Ok(1), Err(RecvError), None, true)
    );
    let refused = queue.push(SECOND, 3).unwrap_err();
    assert_eq!((refused.kind, refused.item), (PushErrorKind::Refused(Refusal::ShutDown), 3));
    assert_eq!(queue.close(), [2]);
    // A queue that is made after the shutdown has ended already.
    let late = tasks.handle().delay_queue::<u64>();
    assert_eq!((late.recv().map(item), late.push(SECOND, 1).unwrap_err().item), (Err(RecvError), 1));
}

#[test]
fn dropping_the_engine_ends_its_queues_too() {
    let (tasks, queue) = driven();
    queue.push(SECOND, 1).unwrap();
    drop(tasks);
    assert_eq!((queue.recv().map(item), queue.close()), (Err(RecvError), vec![1]));
}

#[test]
fn items_go_with_the_last_handle() {
    let tasks = DrivenTasks::new().unwrap();
    let (queue, item) = (tasks.handle().delay_queue(), Arc::new(()));
    queue.push(SECOND, Arc::clone(&item)).unwrap();
    let receiver = queue.receiver();
    drop(queue);
    assert_eq!(Arc::strong_count(&item), 2);
    drop(receiver);
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn a_full_engine_refuses_the_first_item_and_gives_it_back() {
    let mut tasks = DrivenTasks::start(Builder::new().capacity(64)).unwrap();
    while tasks.handle().after(SECOND, || {}).is_ok() {}
    let queue = tasks.handle().delay_queue();
    let refused = queue.push(SECOND, 7).unwrap_err();
    assert_eq!((refused.kind, refused.item), (PushErrorKind::Refused(Refusal::EngineFull), 7));
    assert_eq!((queue.len(), queue.close().len()), (0, 0));
    let refused = queue.push(SECOND, 7).unwrap_err();
    assert_eq!((refused.kind, refused.item), (PushErrorKind::Closed, 7));
    let queue = tasks.handle().delay_queue();
    tasks.advance(SECOND);
    queue.push(SECOND, 7).unwrap();
    while tasks.handle().after(SECOND, || {}).is_ok() {}
    // The first push has made the queue's timer.
    queue.push(SECOND, 8).unwrap();
    tasks.advance(SECOND);
    assert_eq!(all_due(&queue).len(), 2);
}

#[test]
fn an_item_comes_with_its_id_and_its_deadline() {
    let (mut tasks, queue) = driven();
    let [first, second] = [1_u32, 2].map(|n| queue.push(n * SECOND, n.into()).unwrap());
    assert_eq!(queue.peek(), Some((first, Timestamp::ZERO + SECOND)));
    let later = Timestamp::ZERO + 3 * SECOND;
    queue.reset_at(first, later).unwrap();
    assert_eq!(
        (queue.peek(), queue.deadline(first)),
        (Some((second, Timestamp::ZERO + 2 * SECOND)), Some(later))
    );
    tasks.advance(5 * SECOND);
    let received = [(); 2].map(|()| queue.try_recv().map(|due| (due.item, due.id, due.deadline)));
    assert_eq!(received, [Ok((2, second, Timestamp::ZERO + 2 * SECOND)), Ok((1, first, later))]);
    assert_eq!((queue.peek(), queue.reset_at(first, later)), (None, Err(MoveError::Absent)));
}

#[test]
fn a_received_item_shows_how_late_it_was_found() {
    let (mut tasks, queue) = driven();
    queue.push(SECOND, 1).unwrap();
    queue.push(2 * SECOND, 2).unwrap();
    tasks.advance(SECOND + 30 * MS);
    let first = queue.try_recv().unwrap();
    assert_eq!((first.item, first.lateness), (1, 30 * MS));
    // The alarm finds the item due, for a receiver in line. The item then waits until the receiver comes.
    let mut receiver = queue.receiver();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(receiver.poll_recv(&mut cx).is_pending());
    tasks.advance(SECOND);
    let Poll::Ready(Some(second)) = receiver.poll_recv(&mut cx) else { panic!("it is due") };
    assert_eq!((second.item, second.lateness), (2, Duration::ZERO));
    assert_eq!(tasks.handle().now() - second.deadline, 30 * MS);
}

#[test]
fn all_that_receive_get_a_result_and_the_end_is_an_error() {
    let (mut tasks, queue) = driven();
    queue.push(SECOND, 1).unwrap();
    tasks.advance(SECOND);
    queue.push(SECOND, 2).unwrap();
    assert_eq!(queue.close(), [2]);
    assert_eq!((queue.recv().map(item), queue.recv().map(item)), (Ok(1), Err(RecvError)));
    assert_eq!(queue.recv_timeout(SECOND).map(item), Err(RecvError.into()));
    assert_eq!(
        (queue.try_recv().map(item), RecvError.to_string()),
        (Err(TryRecvError::Closed), "the queue has ended".into())
    );
}

/// A waker that closes a queue when it is woken, as an executor does that polls its task at once.
struct Closes {
    queue: DelayQueue<u64>,
    left: Mutex<Option<Vec<u64>>>,
}

impl Closes {
    fn new(queue: &DelayQueue<u64>) -> Arc<Self> {
        Arc::new(Self { queue: queue.clone(), left: Mutex::default() })
    }
}

impl Wake for Closes {
    fn wake(self: Arc<Self>) {
        let left = self.queue.close();
        *lock(&self.left) = Some(left);
    }
}

/// A task waits at the first queue. The end of that queue wakes the task, and the task closes the first queue or the
/// second queue. The second queue may be closed before the shutdown has ended it. Each item is returned by one call.
#[test]
fn a_task_that_the_end_wakes_closes_a_queue() {
    for (closes_own, ends_by_shutdown) in [(true, true), (true, false), (false, true), (false, false)] {
        let (tasks, first) = driven();
        let second = tasks.handle().delay_queue();
        for (queue, item) in [(&first, 1), (&second, 2)] {
            queue.push(SECOND, item).unwrap();
        }
        let closes = Closes::new(if closes_own { &first } else { &second });
        let mut receiver = first.receiver();
        let waker = Waker::from(Arc::clone(&closes));
        assert!(receiver.poll_recv(&mut Context::from_waker(&waker)).is_pending());
        let ours = if ends_by_shutdown {
            assert!(tasks.handle().shutdown().is_empty());
            Vec::new()
        } else {
            first.close()
        };
        let inside = lock(&closes.left).take().expect("the task was woken");
        let expected: (&[u64], &[u64]) = match (closes_own, ends_by_shutdown) {
            (true, true) => (&[], &[1]),
            (true, false) => (&[1], &[]),
            (false, true) => (&[], &[2]),
            (false, false) => (&[1], &[2]),
        };
        assert_eq!((&*ours, &*inside), expected, "{closes_own} {ends_by_shutdown}");
        let rest = [first.close(), second.close()].concat();
        assert_eq!(rest.len() + ours.len() + inside.len(), 2, "{closes_own} {ends_by_shutdown}");
    }
}

// --- Waiting, in real time ---

#[test]
fn a_receiver_waits_for_what_comes_due() {
    within_patience(|| {
        let tasks = threads();
        let queue = tasks.handle().delay_queue();
        let begin = Instant::now();
        queue.push(20 * MS, 7).unwrap();
        assert_eq!(queue.recv_timeout(MS).map(item), Err(TryRecvError::Empty));
        assert!(begin.elapsed() >= MS);
        assert_eq!((queue.recv().map(item), begin.elapsed() >= 20 * MS), (Ok(7), true));
        queue.push(MS, 8).unwrap();
        assert_eq!(queue.recv_timeout(Duration::MAX).map(item), Ok(8));
        assert_eq!(
            (queue.recv_timeout(Duration::ZERO).map(item), queue.try_recv().map(item)),
            (Err(TryRecvError::Empty), Err(TryRecvError::Empty))
        );
    });
}

#[test]
fn whoever_waits_hears_of_the_end() {
    for ends_by_shutdown in [false, true] {
        within_patience(move || {
            let tasks = threads();
            let queue = tasks.handle().delay_queue::<u64>();
            queue.push(PATIENCE, 7).unwrap();
            thread::scope(|scope| {
                let waiters: Vec<_> = (0..3)
                    .map(|_| scope.spawn(|| (queue.recv().map(item), queue.recv_timeout(PATIENCE).map(item))))
                    .collect();
                thread::sleep(5 * MS);
                if ends_by_shutdown {
                    assert!(tasks.handle().shutdown().is_empty());
                } else {
                    assert_eq!(queue.close(), [7]);
                }
                for waiter in waiters {
                    assert_eq!(waiter.join().unwrap(), (Err(RecvError), Err(TryRecvError::Closed)));
                }
            });
            assert_eq!(queue.close().len(), usize::from(ends_by_shutdown));
        });
    }
}
