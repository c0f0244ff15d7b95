//! Races in a delay queue: pushes, the end, the alarm, and receivers that look for items, stand in line and leave.
//!
//! One lock orders everything, so there is no ordering to weaken. Each row of the table names a change of the code: a
//! step is left out, or is split in two. Time stands still in a model. An item is due from the start, or comes due
//! between the model's two phases.
//!
//! | changed | models that go red |
//! |-----------|--------------------|
//! | Q1: `leave` passes nothing on | `a_receiver_goes_while_the_alarm_rings` |
//! | Q1: a look wakes nobody for the items that it leaves | `a_look_finds_more_than_it_takes`, `a_look_finds_items_while_a_receiver_sits_down`, `a_receiver_looks_unasked` |
//! | Q1: `ring` wakes nobody | all in which a receiver waits for the alarm |
//! | Q1: `poll` stands in line without a second look | `a_look_finds_items_while_a_receiver_sits_down` |
//! | Q1: a look wakes others before its own receiver has left the line | `a_receiver_in_line_looks_unasked`,
//! `a_look_finds_an_item_while_the_alarm_rings_for_another` |
//! | Q1: a look does not see that its receiver was woken during the look |
//! `a_look_finds_an_item_while_the_alarm_rings_for_another` |
//! | Q2: a receiver that stands in line keeps no watch | `an_item_comes_while_a_receiver_sits_down` |
//! | Q2: `push` keeps no watch | all in which a receiver waits for the alarm |
//! | Q2: `set_alarm` does not look at the note again | `two_pushes_set_the_alarm` |
//! | Q2: `ring` keeps no watch for the next item | `a_removal_races_with_the_ring` |
//! | Q2: `ring` leaves the alarm's watch in its place | `a_push_races_with_the_ring` |
//! | Q2: `keep_watch` does not see that the thread has left | `a_thread_that_watches_leaves_while_another_sits_down`, `a_thread_that_watches_takes_an_item` |
//! | Q2: `take` keeps no watch | `a_thread_that_watches_takes_an_item` |
//! | Q2: `leave` keeps no watch | `a_thread_that_watches_leaves_while_another_sits_down` |
//! | Q2: an earlier item leaves the watch to the thread | `an_earlier_item_comes_while_a_thread_sits_down` |
//! | Q3: `end` wakes nobody | `a_push_races_with_the_end`, `the_last_item_races_with_the_end` |
//! | Q3: `end` publishes the end first, and moves the items to the rest in a second step |
//! `whoever_sees_the_end_gets_the_rest`, `a_close_races_with_the_shutdown` |
//! | Q4: `close` copies the rest, and clears it in a second step | `a_close_races_with_a_close` |
//! | Q4: `push` does not look for the end | `a_push_races_with_the_end` |

use super::model;
use crate::sync::{ModelledMutex, Patience, StdArc, thread};
use crate::uses::delay_queue::items::{Alarm, Items};
use crate::uses::delay_queue::line::Place;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use tourbillon::wheel::TickLength;
use tourbillon::{Refusal, Timestamp};

/// The alarm of a queue in a model. The alarm stands for a timer of the engine, and rings when the model lets it ring.
#[derive(Default)]
struct Modelled(ModelledMutex<Option<Timestamp>>);

impl Alarm for Modelled {
    fn set(&self, moment: Timestamp) -> Result<(), Refusal> {
        *self.0.lock().unwrap() = Some(moment);
        Ok(())
    }
}

type Queue = StdArc<Items<u64, Modelled>>;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> Timestamp {
    Timestamp::ZERO + seconds * SECOND
}

fn queue() -> Queue {
    StdArc::new(Items::new(TickLength::new(SECOND).unwrap(), at(0), Modelled::default()))
}

fn push(queue: &Queue, seconds: u32) {
    assert!(queue.push(at(seconds), seconds.into()).is_ok(), "an open queue refused an item");
}

/// Lets the queue's alarm ring, if the alarm is set to `now` or earlier.
fn ring_if_set(queue: &Queue, now: Timestamp) {
    let is_set = queue.alarm.0.lock().unwrap().take_if(|moment| *moment <= now).is_some();
    if is_set {
        queue.ring(now);
    }
}

/// Whether a task was woken and has not polled the queue afterwards.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A receiver of one item. It is a task, or a thread that can sleep until a moment.
struct Task {
    queue: Queue,
    bell: Arc<Bell>,
    place: Option<Place>,
    received: Option<Option<u64>>,
    is_thread: bool,
    /// The moment at which a thread polls the queue even if it was not woken. `None` for a task.
    watches: Option<Timestamp>,
}

impl Task {
    fn new(queue: &Queue) -> Self {
        let queue = StdArc::clone(queue);
        Self { queue, bell: Arc::default(), place: None, received: None, is_thread: false, watches: None }
    }

    fn thread(queue: &Queue) -> Self {
        Self { is_thread: true, ..Self::new(queue) }
    }

    fn in_line(queue: &Queue) -> Self {
        let mut task = Self::new(queue);
        task.look(at(0));
        assert!(task.received.is_none(), "there was an item before any came");
        task
    }

    fn look(&mut self, now: Timestamp) {
        self.bell.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.bell));
        let received = if self.is_thread {
            self.queue.wait(&mut self.place, &waker, || now)
        } else {
            self.queue.poll(&mut self.place, &waker, || now).ok_or(None)
        };
        self.watches = received.as_ref().err().copied().flatten();
        self.received = received.ok().map(|due| due.map(|due| due.item));
    }

    /// Polls the queue for an item if the task was woken, as an executor does. A thread also polls at the moment in
    /// `watches`.
    fn look_if_woken(&mut self, now: Timestamp) {
        let is_time = |task: &Self| task.watches.is_some_and(|moment| moment <= now);
        while self.received.is_none() && (self.bell.0.load(Ordering::Relaxed) || is_time(self)) {
            self.look(now);
        }
    }

    fn leave(mut self) {
        if let Some(place) = self.place.take() {
            self.queue.leave(place, Patience::Endless);
        }
    }
}

/// An item is pushed while a receiver lines up. Legal endings: (a) the receiver finds the item; (b) the push sets the
/// alarm, which wakes the receiver; (c) the receiver sets the alarm.
#[test]
fn an_item_comes_while_a_receiver_sits_down() {
    for due in [0, 2] {
        model("an_item_comes_while_a_receiver_sits_down", move || {
            let queue = queue();
            let shared = StdArc::clone(&queue);
            let pushing = thread::spawn(move || push(&shared, due));
            let mut task = Task::new(&queue);
            task.look(at(0));
            pushing.join().unwrap();
            ring_if_set(&queue, at(due));
            task.look_if_woken(at(due));
            assert_eq!(task.received, Some(Some(due.into())), "the wake was lost");
        });
    }
}

/// A receiver waits in line, and two threads push. Legal ending: the alarm is set to the deadline of the earlier item.
#[test]
fn two_pushes_set_the_alarm() {
    model("two_pushes_set_the_alarm", || {
        let queue = queue();
        let mut task = Task::in_line(&queue);
        let shared = StdArc::clone(&queue);
        let pushing = thread::spawn(move || push(&shared, 3));
        push(&queue, 2);
        pushing.join().unwrap();
        ring_if_set(&queue, at(2));
        task.look_if_woken(at(2));
        assert_eq!(task.received, Some(Some(2)), "the alarm was set to the later item");
    });
}

/// The alarm rings for an item while another item is pushed. Two receivers stand in line, and each gets an item in the
/// end.
#[test]
fn a_push_races_with_the_ring() {
    model("a_push_races_with_the_ring", || {
        let queue = queue();
        let (mut first, mut second) = (Task::in_line(&queue), Task::in_line(&queue));
        push(&queue, 1);
        let shared = StdArc::clone(&queue);
        let pushing = thread::spawn(move || push(&shared, 2));
        ring_if_set(&queue, at(1));
        pushing.join().unwrap();
        first.look_if_woken(at(1));
        second.look_if_woken(at(1));
        // An alarm for an item that a receiver has already taken rings for nothing, and is set again.
        ring_if_set(&queue, at(1));
        ring_if_set(&queue, at(2));
        first.look_if_woken(at(2));
        second.look_if_woken(at(2));
        let received = [first.received, second.received];
        assert!(received == [Some(Some(1)), Some(Some(2))], "{received:?}");
    });
}

/// The alarm rings for an item while that item is removed. The receiver gets this item or the next item.
#[test]
fn a_removal_races_with_the_ring() {
    model("a_removal_races_with_the_ring", || {
        let queue = queue();
        let mut task = Task::in_line(&queue);
        let first = queue.push(at(1), 1).ok().expect("an open queue takes items");
        push(&queue, 2);
        let shared = StdArc::clone(&queue);
        let removing = thread::spawn(move || shared.remove(first));
        ring_if_set(&queue, at(1));
        let removed = removing.join().unwrap();
        task.look_if_woken(at(1));
        ring_if_set(&queue, at(2));
        task.look_if_woken(at(2));
        assert_eq!(
            task.received,
            Some(Some(if removed.is_some() { 2 } else { 1 })),
            "the alarm was not set again"
        );
    });
}

/// Two receivers stand in line, and two items are due. A third receiver polls the queue without being woken, while the
/// alarm rings. Both items are received.
#[test]
fn a_receiver_looks_unasked() {
    model("a_receiver_looks_unasked", || {
        let queue = queue();
        let (mut first, mut second) = (Task::in_line(&queue), Task::in_line(&queue));
        push(&queue, 1);
        push(&queue, 1);
        let shared = StdArc::clone(&queue);
        let looking = thread::spawn(move || shared.take(|| at(1)).is_some());
        ring_if_set(&queue, at(1));
        let has_taken = looking.join().unwrap();
        first.look_if_woken(at(1));
        second.look_if_woken(at(1));
        let received = usize::from(first.received.is_some()) + usize::from(second.received.is_some());
        assert!(has_taken && received == 1, "an item lies there, and its receiver sleeps");
    });
}

/// Two receivers stand in line. The first receiver polls the queue without being woken, and takes an item. At the same
/// time a second item of the same tick is pushed, and the alarm rings. The polling receiver is a task, or a thread that
/// may sleep until the next deadline. Legal endings: (a) the poll finds both items, and wakes the other receiver; (b)
/// the ring wakes a receiver for each item that it finds.
#[test]
fn a_receiver_in_line_looks_unasked() {
    for is_thread in [false, true] {
        for is_first in [true, false] {
            model("a_receiver_in_line_looks_unasked", move || {
                let queue = queue();
                push(&queue, 1);
                let stand = |is_thread| {
                    let mut task = Task { is_thread, ..Task::new(&queue) };
                    task.look(at(0));
                    task
                };
                let (mut looking, mut waiting);
                if is_first {
                    looking = stand(is_thread);
                    waiting = stand(false);
                } else {
                    waiting = stand(false);
                    looking = stand(is_thread);
                }
                let unasked = thread::spawn(move || {
                    looking.look(at(1));
                    looking.received
                });
                push(&queue, 1);
                ring_if_set(&queue, at(1));
                assert_eq!(unasked.join().unwrap(), Some(Some(1)));
                // An alarm that the look or the push has set rings, too.
                ring_if_set(&queue, at(1));
                waiting.look_if_woken(at(1));
                assert_eq!(waiting.received, Some(Some(1)), "a receiver sleeps beside an item that is due");
            });
        }
    }
}

/// Two receivers stand in line, and two items are due at a tick. One receiver polls the queue at that tick, while the
/// alarm rings for the first item. Legal endings: (a) the poll finds both items, and wakes the other receiver for an
/// item; (b) the ring wakes the polling receiver. Then this receiver takes the first item, and its poll wakes the other
/// receiver for the second item.
#[test]
fn a_look_finds_an_item_while_the_alarm_rings_for_another() {
    model("a_look_finds_an_item_while_the_alarm_rings_for_another", || {
        let queue = queue();
        push(&queue, 1);
        push(&queue, 2);
        let (mut looking, mut waiting) = (Task::in_line(&queue), Task::in_line(&queue));
        let ours = StdArc::clone(&queue);
        let ringing = thread::spawn(move || ring_if_set(&ours, at(1)));
        looking.look(at(2));
        ringing.join().unwrap();
        ring_if_set(&queue, at(2));
        waiting.look_if_woken(at(2));
        let received = [looking.received, waiting.received].map(Option::flatten);
        assert_eq!(received, [Some(1), Some(2)], "a receiver sleeps beside an item that is due");
    });
}

/// A receiver finds two items before the alarm rings, and takes an item. The queue wakes the receiver in line for the
/// other item.
#[test]
fn a_look_finds_more_than_it_takes() {
    model("a_look_finds_more_than_it_takes", || {
        let queue = queue();
        let mut waiting = Task::in_line(&queue);
        push(&queue, 1);
        push(&queue, 1);
        let shared = StdArc::clone(&queue);
        let looking = thread::spawn(move || shared.take(|| at(1)));
        let mut late = Task::new(&queue);
        late.look(at(0));
        assert!(looking.join().unwrap().is_some());
        waiting.look_if_woken(at(1));
        late.look_if_woken(at(1));
        assert!(
            waiting.received.or(late.received).is_some(),
            "an item was found due, and no receiver was woken for it"
        );
    });
}

/// A receiver finds two items and takes an item, while another receiver lines up. The other receiver gets the other
/// item.
#[test]
fn a_look_finds_items_while_a_receiver_sits_down() {
    model("a_look_finds_items_while_a_receiver_sits_down", || {
        let queue = queue();
        push(&queue, 1);
        push(&queue, 1);
        let shared = StdArc::clone(&queue);
        let looking = thread::spawn(move || shared.take(|| at(1)).is_some());
        let mut task = Task::new(&queue);
        task.look(at(0));
        assert!(looking.join().unwrap());
        task.look_if_woken(at(1));
        assert_eq!(task.received, Some(Some(1)), "the receiver sleeps beside an item that is due");
    });
}

/// A thread lines up, and will wake by itself when an item is due. At the same time an earlier item is pushed. Legal
/// endings: (a) the thread wakes by itself for the earlier item; (b) the alarm is set for the earlier item.
#[test]
fn an_earlier_item_comes_while_a_thread_sits_down() {
    model("an_earlier_item_comes_while_a_thread_sits_down", || {
        let queue = queue();
        push(&queue, 3);
        let shared = StdArc::clone(&queue);
        let pushing = thread::spawn(move || push(&shared, 2));
        let mut task = Task::thread(&queue);
        task.look(at(0));
        pushing.join().unwrap();
        ring_if_set(&queue, at(2));
        task.look_if_woken(at(2));
        assert_eq!(task.received, Some(Some(2)), "the thread sleeps past an item");
    });
}

/// The thread that would wake by itself for the next item leaves, while another thread lines up. The other thread
/// receives the item in time.
#[test]
fn a_thread_that_watches_leaves_while_another_sits_down() {
    model("a_thread_that_watches_leaves_while_another_sits_down", || {
        let queue = queue();
        push(&queue, 2);
        let mut watching = Task::thread(&queue);
        watching.look(at(0));
        assert_eq!(watching.watches, Some(at(2)));
        let leaving = thread::spawn(move || watching.leave());
        let mut other = Task::thread(&queue);
        other.look(at(0));
        leaving.join().unwrap();
        ring_if_set(&queue, at(2));
        other.look_if_woken(at(2));
        assert_eq!(other.received, Some(Some(2)), "nobody keeps the watch");
    });
}

/// A thread waits for the first item with a timeout, and a task waits in line behind the thread. The thread takes the
/// first item. The task receives the second item in time.
#[test]
fn a_thread_that_watches_takes_an_item() {
    model("a_thread_that_watches_takes_an_item", || {
        let queue = queue();
        push(&queue, 1);
        let mut watching = Task::thread(&queue);
        watching.look(at(0));
        let mut other = Task::in_line(&queue);
        let shared = StdArc::clone(&queue);
        let pushing = thread::spawn(move || push(&shared, 2));
        watching.look_if_woken(at(1));
        assert_eq!(watching.received, Some(Some(1)));
        pushing.join().unwrap();
        ring_if_set(&queue, at(2));
        other.look_if_woken(at(2));
        assert_eq!(other.received, Some(Some(2)), "nobody keeps the watch");
    });
}

/// The first of two receivers in line leaves while the alarm rings. The second receiver gets the item.
#[test]
fn a_receiver_goes_while_the_alarm_rings() {
    model("a_receiver_goes_while_the_alarm_rings", || {
        let queue = queue();
        let (first, mut second) = (Task::in_line(&queue), Task::in_line(&queue));
        push(&queue, 1);
        let shared = StdArc::clone(&queue);
        let ringing = thread::spawn(move || ring_if_set(&shared, at(1)));
        first.leave();
        ringing.join().unwrap();
        second.look_if_woken(at(1));
        assert_eq!(second.received, Some(Some(1)), "the wake went with the first");
    });
}

/// A push races with the end of the queue, while a receiver waits. Legal endings: (a) the call that ends the queue
/// returns the item; (b) the push fails and returns the item. In both cases the receiver learns that the queue has
/// ended.
#[test]
fn a_push_races_with_the_end() {
    model("a_push_races_with_the_end", || {
        let queue = queue();
        let mut waiting = Task::in_line(&queue);
        let shared = StdArc::clone(&queue);
        let pushing = thread::spawn(move || shared.push(at(2), 7).err().map(|(_, item)| item));
        let left = queue.close(at(1), Patience::Endless);
        let refused = pushing.join().unwrap();
        assert_eq!(left.first().copied().xor(refused), Some(7), "lost, or there twice");
        waiting.look_if_woken(at(1));
        assert_eq!(waiting.received, Some(None), "a receiver does not see the end");
        assert_eq!(queue.len(), 0, "an item is left in a queue that is over");
    });
}

/// The last item comes due while the queue ends, and two receivers wait. One receiver gets the item. The other receiver
/// learns that the queue has ended.
#[test]
fn the_last_item_races_with_the_end() {
    model("the_last_item_races_with_the_end", || {
        let queue = queue();
        let mut waiting = [Task::in_line(&queue), Task::in_line(&queue)];
        push(&queue, 1);
        let shared = StdArc::clone(&queue);
        let ringing = thread::spawn(move || ring_if_set(&shared, at(1)));
        assert!(queue.close(at(1), Patience::Endless).is_empty());
        ringing.join().unwrap();
        waiting.iter_mut().for_each(|task| task.look_if_woken(at(1)));
        let mut received: Vec<_> = waiting.iter().map(|task| task.received).collect();
        received.sort_unstable();
        assert_eq!(received, [Some(None), Some(Some(1))]);
    });
}

/// A shutdown ends a queue, while a receiver waits and another thread looks whether the queue has ended. Each of them
/// that sees the end closes the queue, and the first close returns the item.
#[test]
fn whoever_sees_the_end_gets_the_rest() {
    model("whoever_sees_the_end_gets_the_rest", || {
        let queue = queue();
        push(&queue, 2);
        let mut waiting = Task::in_line(&queue);
        let shared = StdArc::clone(&queue);
        let ending = thread::spawn(move || shared.end(at(1), Patience::Endless));
        let shared = StdArc::clone(&queue);
        let looking =
            thread::spawn(move || shared.is_ended().then(|| shared.close(at(1), Patience::Endless)));
        waiting.look_if_woken(at(1));
        let ours = waiting.received.map(|received| {
            assert_eq!(received, None, "an item came that was not due");
            queue.close(at(1), Patience::Endless)
        });
        ending.join().unwrap();
        let theirs = looking.join().unwrap();
        if ours.is_some() || theirs.is_some() {
            let returned = [ours, theirs].map(Option::unwrap_or_default).concat();
            assert_eq!(returned, [2], "whoever saw the end did not get the rest");
        }
    });
}

/// A close races with the shutdown. The close returns the item, whichever of them ends the queue.
#[test]
fn a_close_races_with_the_shutdown() {
    model("a_close_races_with_the_shutdown", || {
        let queue = queue();
        push(&queue, 2);
        let shared = StdArc::clone(&queue);
        let ending = thread::spawn(move || shared.end(at(1), Patience::Endless));
        let left = queue.close(at(1), Patience::Endless);
        ending.join().unwrap();
        assert_eq!((left, queue.close(at(1), Patience::Endless).len()), (vec![2], 0));
    });
}

/// Two closes race. One of them returns the item.
#[test]
fn a_close_races_with_a_close() {
    model("a_close_races_with_a_close", || {
        let queue = queue();
        push(&queue, 2);
        let shared = StdArc::clone(&queue);
        let closing = thread::spawn(move || shared.close(at(1), Patience::Endless));
        let ours = queue.close(at(1), Patience::Endless);
        assert_eq!([ours, closing.join().unwrap()].concat(), [2]);
    });
}
