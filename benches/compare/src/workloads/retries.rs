//! A queue of jobs that are tried again. The figures are their lateness and their processor time.

use super::shots::Sorted;
use crate::case::Case;
use crate::common::Chance;
use crate::process::cpu_time;
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::time::DelayQueue as TokioQueue;
use tourbillon_book::figure::thousands;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::DelayQueue;

pub(super) const WORKLOAD: Workload = Workload {
    name: "retries",
    operation: "items with random deadlines within two seconds are pushed, and then received by consumers that wait for them",
    family: Family::Tasks,
    about: "Lateness is the time at which a consumer has an item, by the caller's `Instant`, less the deadline that was asked \
        for. CPU is that of the process from the first wait to the last item. tokio-util's queue has one owner: with one \
        consumer this is the consumer, and with two it is a task that hands the items to them by channels. The pushes \
        that are timed find memory that was touched: as many items were pushed before, and the queue was cleared. \
        Checked: each item is received once, and none before its deadline.",
    reading: "Threads that receive wake for a tick's items at a time. Tasks that receive on tokio are woken by our engine's \
        thread.",
    cases,
    columns: |_| {
        vec![
            Column::new("push", "a push", "ns"),
            Column::new("cpu", "CPU an item", "µs"),
            Column::new("p50", "p50", "ms"),
            Column::new("p99", "p99", "ms"),
            Column::new("p999", "p99.9", "ms"),
        ]
    },
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        vec![
            Entrant::here("DelayQueue, threads", true, threads),
            Entrant::here("DelayQueue, tokio tasks", true, tasks),
            Entrant::here("tokio-util, DelayQueue", false, tokio_util),
        ]
    },
};

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(100_000, 10_000, 100);
    let (time_ms, lead_ms) = (scale.pick(2_000, 500, 50), scale.pick(300, 200, 500));
    let case = |consumers| {
        let s = if consumers == 1 { "" } else { "s" };
        let name = format!("{} items, {consumers} consumer{s}", thousands(timers));
        Case { timers, time_ms, lead_ms, threads: vec![consumers], ..Case::named(name) }
    };
    vec![case(1), case(2)]
}

/// The items of a queue. An item is a number with a deadline.
struct Jobs {
    deadlines: Vec<Instant>,
    received: AtomicUsize,
    consumers: usize,
}

/// The items that a consumer has received, each with its lateness in nanoseconds.
type Received = Vec<(usize, u64)>;

impl Jobs {
    fn of(case: &Case) -> Self {
        let window = case.time_ms * 1_000_000;
        let mut chance = Chance::new(1);
        let begin = Instant::now() + case.lead();
        let deadline = |_| begin + Duration::from_nanos(chance.within(&(0..window)));
        let deadlines = (0..case.timers).map(deadline).collect();
        Self { deadlines, received: AtomicUsize::new(0), consumers: case.threads[0] }
    }

    /// Fills and clears `queue`, and then pushes each item again. Returns the time of the second pushes, in
    /// nanoseconds.
    fn push<Q>(&self, queue: &mut Q, push: impl Fn(&mut Q, usize, Instant), clear: impl Fn(&mut Q)) -> f64 {
        let push_all = |queue: &mut Q| {
            self.deadlines.iter().enumerate().for_each(|(item, deadline)| push(queue, item, *deadline));
        };
        push_all(queue);
        clear(queue);
        let begin = Instant::now();
        push_all(queue);
        let time = begin.elapsed();
        assert!(
            self.deadlines.iter().all(|deadline| Instant::now() < *deadline),
            "pushed before the first is due"
        );
        time.as_secs_f64() * 1e9 / self.deadlines.len() as f64
    }

    fn room(&self) -> Received {
        Vec::with_capacity(self.deadlines.len())
    }

    /// Notes that a consumer received `item`. Returns whether it was the last item.
    fn note(&self, received: &mut Received, item: usize) -> bool {
        let late = Instant::now().checked_duration_since(self.deadlines[item]);
        let late = late.expect("no item is received before its deadline");
        received.push((item, u64::try_from(late.as_nanos()).expect("less than 584 years")));
        self.received.fetch_add(1, Ordering::Relaxed) + 1 == self.deadlines.len()
    }

    fn figures(&self, push: f64, cpu: Option<Duration>, received: Vec<Received>) -> Figures {
        let mut is_received = vec![false; self.deadlines.len()];
        for (item, _) in received.iter().flatten() {
            assert!(!std::mem::replace(&mut is_received[*item], true), "item {item} was received twice");
        }
        assert!(is_received.iter().all(|is_received| *is_received));
        let late = Sorted::new(received.into_iter().flatten().map(|(_, late)| late).collect());
        let cpu = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.deadlines.len() as f64);
        Figures::default()
            .number("push", push)
            .number("cpu", cpu)
            .number("p50", late.millis(0.5))
            .number("p99", late.millis(0.99))
            .number("p999", late.millis(0.999))
    }
}

/// Returns the processor time that the process has used after the reading `before`.
fn since(before: Option<Duration>) -> Option<Duration> {
    Some(cpu_time()? - before?)
}

fn queue_of(tasks: &TaskEngine, jobs: &Jobs) -> (DelayQueue<usize>, f64) {
    let mut queue = tasks.handle().delay_queue();
    let push = |queue: &mut DelayQueue<usize>, item, deadline: Instant| {
        queue.push_at(deadline.into(), item).expect("there is room");
    };
    let push = jobs.push(&mut queue, push, |queue| drop(queue.clear()));
    (queue, push)
}

fn threads(case: &Case) -> Figures {
    let tasks = TaskEngine::new().expect("the system gives us threads");
    let jobs = Jobs::of(case);
    let (queue, push) = queue_of(&tasks, &jobs);
    let before = cpu_time();
    let consume = || {
        let mut received = jobs.room();
        while let Ok(due) = queue.recv() {
            if jobs.note(&mut received, due.item) {
                queue.close();
            }
        }
        received
    };
    let received = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..jobs.consumers).map(|_| scope.spawn(consume)).collect();
        consumers.into_iter().map(|consumer| consumer.join().expect("no consumer panics")).collect()
    });
    jobs.figures(push, since(before), received)
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    let mut builder = match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.max(1)).enable_time().build().expect("the system gives us threads")
}

fn tasks(case: &Case) -> Figures {
    let tasks = TaskEngine::new().expect("the system gives us threads");
    let jobs: &'static Jobs = Box::leak(Box::new(Jobs::of(case)));
    let (queue, push) = queue_of(&tasks, jobs);
    let runtime = runtime(jobs.consumers);
    let before = cpu_time();
    let consume = |queue: DelayQueue<usize>| async move {
        let mut received = jobs.room();
        let mut receiver = queue.receiver();
        while let Some(due) = poll_fn(|context| receiver.poll_recv(context)).await {
            if jobs.note(&mut received, due.item) {
                queue.close();
            }
        }
        received
    };
    let received = runtime.block_on(async {
        let consumers: Vec<_> = (0..jobs.consumers).map(|_| tokio::spawn(consume(queue.clone()))).collect();
        let mut all = Vec::new();
        for consumer in consumers {
            all.push(consumer.await.expect("no consumer panics"));
        }
        all
    });
    jobs.figures(push, since(before), received)
}

fn tokio_util(case: &Case) -> Figures {
    let jobs: &'static Jobs = Box::leak(Box::new(Jobs::of(case)));
    let runtime = runtime(jobs.consumers);
    let context = runtime.enter();
    let mut queue = TokioQueue::new();
    let push = |queue: &mut TokioQueue<usize>, item, deadline: Instant| {
        queue.insert_at(item, deadline.into());
    };
    let push = jobs.push(&mut queue, push, TokioQueue::clear);
    drop(context);
    let before = cpu_time();
    let received = if jobs.consumers == 1 {
        let mut received = jobs.room();
        runtime.block_on(async {
            while let Some(expired) = poll_fn(|context| queue.poll_expired(context)).await {
                jobs.note(&mut received, expired.into_inner());
            }
        });
        vec![received]
    } else {
        runtime.block_on(async {
            let mut senders = Vec::new();
            let consumers: Vec<_> = (0..jobs.consumers)
                .map(|_| {
                    let (sender, mut items) = unbounded_channel();
                    senders.push(sender);
                    tokio::spawn(async move {
                        let mut received = jobs.room();
                        while let Some(item) = items.recv().await {
                            jobs.note(&mut received, item);
                        }
                        received
                    })
                })
                .collect();
            let owner = tokio::spawn(async move {
                for turn in 0.. {
                    let Some(expired) = poll_fn(|context| queue.poll_expired(context)).await else { break };
                    let sender = &senders[turn % senders.len()];
                    sender.send(expired.into_inner()).expect("the consumers wait for the end");
                }
            });
            owner.await.expect("the owner does not panic");
            let mut all = Vec::new();
            for consumer in consumers {
                all.push(consumer.await.expect("no consumer panics"));
            }
            all
        })
    };
    jobs.figures(push, since(before), received)
}
