//! Queues whose items are received when they are due. The figures are the cost of a push with its removal, and of
//! receiving many items.

use super::LONG;
use crate::case::Case;
use crate::common::{Chance, Payload, payload};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio_util::time::DelayQueue;
use tourbillon_book::figure::thousands;
use tourbillon_tasks::TaskEngine;

pub(super) const WORKLOAD: Workload = Workload {
    name: "queue",
    operation: "an item is pushed and taken back, among others that stay; then as many items, due at one instant, are received \
        by one thread that waits for them",
    family: Family::Tasks,
    about: "tokio-util's queue has one owner, which pushes, removes and receives. Behind a mutex several \
        threads could share it, as they can share ours. Checked: each item is removed or received, and none \
        before it is due.",
    reading: "Any thread may push to our queue or receive, under a lock. The thread that receives moves due items to the list \
        of due items itself.",
    cases,
    columns: |_| {
        vec![
            Column::new("pair", "pushed and taken back", "ns"),
            Column::new("last", "the last received after", "ms"),
        ]
    },
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        vec![
            Entrant::here("DelayQueue", true, ours),
            Entrant::here("tokio-util, DelayQueue", false, tokio_util::<RefCell<Items>>),
            Entrant::here("tokio-util, DelayQueue behind a Mutex", false, tokio_util::<Mutex<Items>>),
        ]
    },
};

/// The number of different delays in the pushes and removals.
const DELAYS: usize = 1_024;

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(100_000, 10_000, 100);
    let operations = scale.pick(1_000_000, 50_000, 200);
    let lead_ms = scale.pick(500, 200, 50);
    vec![Case { timers, operations, lead_ms, ..Case::named(format!("{} items", thousands(timers))) }]
}

/// Calls `fill` to push the items that stay in the queue. Then measures `pair`, a push and a removal.
fn pairs(case: &Case, mut fill: impl FnMut(u64, Duration), mut pair: impl FnMut(u64, Duration)) -> f64 {
    let mut chance = Chance::new(1);
    let mut delay = || Duration::from_nanos(chance.within(&LONG));
    (0..case.timers as u64).for_each(|number| fill(number, delay()));
    let delays: Vec<Duration> = (0..DELAYS).map(|_| delay()).collect();
    let start = Instant::now();
    for number in 0..case.operations {
        pair(number as u64, delays[number % DELAYS]);
    }
    start.elapsed().as_secs_f64() * 1e9 / case.operations as f64
}

/// Items that are all due at one instant. A test fails unless each item is received once.
struct Due {
    at: Instant,
    is_received: Vec<bool>,
}

impl Due {
    /// Pushes all of the case's items by calling `push`.
    fn push(case: &Case, mut push: impl FnMut(u64, Duration)) -> Self {
        let at = Instant::now() + case.lead();
        for number in 0..case.timers as u64 {
            push(number, at.saturating_duration_since(Instant::now()));
        }
        Self { at, is_received: vec![false; case.timers] }
    }

    fn receive(&mut self, item: Payload) {
        let [number, check] = item;
        assert_eq!(number, !check);
        let index = usize::try_from(number).expect("an index");
        assert!(!std::mem::replace(&mut self.is_received[index], true), "item {number} was received twice");
    }

    /// Returns the milliseconds from the items' due instant until now. Panics if an item was not received.
    fn end(&self) -> f64 {
        assert!(self.is_received.iter().all(|is_received| *is_received));
        let now = Instant::now();
        assert!(now >= self.at, "the items were received before they were due");
        (now - self.at).as_secs_f64() * 1e3
    }
}

fn figures(pair: f64, due: &Due) -> Figures {
    Figures::default().number("pair", pair).number("last", due.end())
}

fn ours(case: &Case) -> Figures {
    let tasks = TaskEngine::new().expect("the system gives us threads");
    let queue = tasks.handle().delay_queue();
    let pair = pairs(
        case,
        |number, delay| {
            queue.push(delay, payload(number)).expect("there is room");
        },
        |number, delay| {
            let id = queue.push(delay, payload(number)).expect("there is room");
            assert_eq!(queue.remove(id), Some(payload(number)));
        },
    );
    let mut due = Due::push(case, |number, delay| {
        queue.push(delay, payload(number)).expect("there is room");
    });
    for _ in 0..case.timers {
        due.receive(queue.recv().expect("nobody closes the queue").item);
    }
    let figures = figures(pair, &due);
    assert_eq!(queue.len(), case.timers);
    figures
}

type Items = DelayQueue<Payload>;

/// Access to a queue of tokio-util, with or without a lock.
trait Access: From<Items> {
    fn with<R>(&self, call: impl FnOnce(&mut Items) -> R) -> R;
}

impl Access for RefCell<Items> {
    fn with<R>(&self, call: impl FnOnce(&mut Items) -> R) -> R {
        call(&mut self.borrow_mut())
    }
}

impl Access for Mutex<Items> {
    fn with<R>(&self, call: impl FnOnce(&mut Items) -> R) -> R {
        call(&mut self.lock().expect("nobody panics"))
    }
}

fn tokio_util<Q: Access>(case: &Case) -> Figures {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().expect("the system gives us a timer");
    runtime.block_on(async {
        let queue = Q::from(DelayQueue::new());
        let push = |number, delay| queue.with(|queue| queue.insert(payload(number), delay));
        let pair = pairs(
            case,
            |number, delay| {
                push(number, delay);
            },
            |number, delay| {
                let key = push(number, delay);
                let removed = queue.with(|queue| queue.remove(&key));
                assert_eq!(removed.into_inner(), payload(number));
            },
        );
        let mut due = Due::push(case, |number, delay| {
            push(number, delay);
        });
        for _ in 0..case.timers {
            let expired = poll_fn(|context| queue.with(|queue| queue.poll_expired(context)));
            due.receive(expired.await.expect("there are more").into_inner());
        }
        let figures = figures(pair, &due);
        assert_eq!(queue.with(|queue| queue.len()), case.timers);
        figures
    })
}
