//! Races of items that come due, of receivers that look, stand in line and leave, and of the end of a queue.
//!
//! One lock orders everything but the flag of the end, which the locks of the map order. There is no ordering to
//! weaken, so each row names a step that was left out, or one step that was made two.
//!
//! | mutilated | models that go red |
//! |-----------|--------------------|
//! | Q1: `leave` passes nothing on | `a_receiver_goes_while_an_item_comes` |
//! | Q1: `poll` takes an item and gives its place up in two steps, as an earlier version did | `a_receiver_looks_unasked` |
//! | Q1: `poll` stands in line without a second look | `a_receiver_looks_unasked`, `an_item_comes_while_a_receiver_sits_down` |
//! | Q1: `put` wakes no receiver | all but `a_push_races_with_the_end` |
//! | Q2: `put` does not wake all receivers at the end | `the_last_item_races_with_the_end` |
//! | Q2: `settle` does not wake all receivers at the end | `the_last_item_races_with_the_end` |
//! | Q2: the queue is over while items are under way | `the_last_item_races_with_the_end` |
//! | Q3: `push` does not look for the end after placing | `a_push_races_with_the_end` |
//! | Q3: `end` drains before it sets the flag | `a_push_races_with_the_end` |

use super::model;
use crate::sync::{ModelledMutex, StdArc, thread};
use crate::uses::delay_queue::due::{Due, NotPushed};
use crate::uses::delay_queue::line::Place;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Whether a task was woken and has not looked since.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A task that wants one item.
struct Task {
    due: StdArc<Due<u64>>,
    bell: Arc<Bell>,
    place: Option<Place>,
    received: Option<Option<u64>>,
}

impl Task {
    fn new(due: &StdArc<Due<u64>>) -> Self {
        Self { due: StdArc::clone(due), bell: Arc::default(), place: None, received: None }
    }

    fn in_line(due: &StdArc<Due<u64>>) -> Self {
        let mut task = Self::new(due);
        task.look();
        assert!(task.received.is_none(), "there was an item before any came");
        task
    }

    fn look(&mut self) {
        self.bell.0.store(false, Ordering::Relaxed);
        self.received = self.due.poll(&mut self.place, &Waker::from(Arc::clone(&self.bell)));
    }

    /// Looks whenever the task was woken, as an executor does.
    fn look_if_woken(&mut self) {
        while self.received.is_none() && self.bell.0.load(Ordering::Relaxed) {
            self.look();
        }
    }

    fn leave(mut self) {
        if let Some(place) = self.place.take() {
            self.due.leave(place);
        }
    }
}

/// A queue with items that are under way.
fn with_items(count: u64) -> StdArc<Due<u64>> {
    let due = StdArc::new(Due::new());
    for _ in 0..count {
        let pushed = due.push(0, |_, _| Ok::<(), ()>(()), |_| None);
        assert!(pushed.is_ok(), "an open queue refused an item");
    }
    due
}

/// Legal endings: (a) the receiver finds the item; (b) the receiver stands in line first, and is woken.
#[test]
fn an_item_comes_while_a_receiver_sits_down() {
    model("an_item_comes_while_a_receiver_sits_down", || {
        let due = with_items(1);
        let timer = StdArc::clone(&due);
        let firing = thread::spawn(move || timer.put(1));
        let mut task = Task::new(&due);
        task.look();
        firing.join().unwrap();
        task.look_if_woken();
        assert_eq!(task.received, Some(Some(1)), "the wake was lost");
    });
}

/// Two receivers stand in line, two items come, and the second receiver looks meanwhile without being woken: each gets
/// an item in the end. The first receiver may be woken for the item that the second takes, and be behind the second
/// when the other item comes.
#[test]
fn a_receiver_looks_unasked() {
    model("a_receiver_looks_unasked", || {
        let due = with_items(2);
        let (mut first, mut second) = (Task::in_line(&due), Task::in_line(&due));
        let timers = StdArc::clone(&due);
        let looking = thread::spawn(move || {
            second.look();
            second
        });
        let firing = thread::spawn(move || {
            timers.put(1);
            first.look_if_woken();
            timers.put(2);
            first
        });
        let (mut first, mut second) = (firing.join().unwrap(), looking.join().unwrap());
        first.look_if_woken();
        second.look_if_woken();
        assert!(
            first.received.is_some() && second.received.is_some(),
            "an item lies there, and its receiver sleeps"
        );
    });
}

/// The first of two receivers in line leaves while an item comes: the second gets it.
#[test]
fn a_receiver_goes_while_an_item_comes() {
    model("a_receiver_goes_while_an_item_comes", || {
        let due = with_items(1);
        let (first, mut second) = (Task::in_line(&due), Task::in_line(&due));
        let timer = StdArc::clone(&due);
        let firing = thread::spawn(move || timer.put(1));
        first.leave();
        firing.join().unwrap();
        second.look_if_woken();
        assert_eq!(second.received, Some(Some(1)), "the wake went with the first");
    });
}

/// A push races with the end. Legal endings: (a) the drain finds the item; (b) the push gets the item back. Then the
/// queue is over.
#[test]
fn a_push_races_with_the_end() {
    model("a_push_races_with_the_end", || {
        let due = StdArc::new(Due::new());
        let map = StdArc::new(ModelledMutex::new(None));
        let (pushing, its_map) = (StdArc::clone(&due), StdArc::clone(&map));
        let push = thread::spawn(move || {
            let place = |_, item| {
                *its_map.lock().unwrap() = Some(item);
                Ok::<(), ()>(())
            };
            match pushing.push(7, place, |_| its_map.lock().unwrap().take()) {
                Err(NotPushed::Closed(item)) => Some(item),
                _ => None,
            }
        });
        let mut drained = None;
        due.end(|| {
            drained = map.lock().unwrap().take();
            u64::from(drained.is_some())
        });
        let refused: Option<u64> = push.join().unwrap();
        assert_eq!(refused.xor(drained), Some(7), "lost, or there twice");
        assert_eq!(due.take(), Some(None::<u64>), "the queue is not over, though it has ended and is empty");
        assert_eq!(due.len(), 0, "an item is left in a queue that is over");
    });
}

/// The last item comes due while the queue ends: each waiting receiver gets the item or the end, the end after the
/// item.
#[test]
fn the_last_item_races_with_the_end() {
    model("the_last_item_races_with_the_end", || {
        let due = with_items(1);
        let mut waiting = [Task::in_line(&due), Task::in_line(&due)];
        let timer = StdArc::clone(&due);
        let firing = thread::spawn(move || timer.put(1));
        due.end(|| 0);
        let at_once = due.take();
        assert!(at_once != Some(None) || due.len() == 0, "the end before the item");
        firing.join().unwrap();
        waiting.iter_mut().for_each(Task::look_if_woken);
        let received: Vec<_> = waiting.iter().map(|task| task.received).chain([at_once]).collect();
        assert_eq!(
            received.iter().filter(|&&received| received == Some(Some(1))).count(),
            1,
            "the last item was lost, or received twice"
        );
        assert!(waiting.iter().all(|task| task.received.is_some()), "one that waits does not see the end");
    });
}
