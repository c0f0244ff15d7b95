//! Batches of due tickets, on their way from a shard to workers.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence or step was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | H3: `want_check` | `a_job_that_is_dropped_is_sent_again` |
//! | H3: `take_check_wanted` | `a_job_that_is_dropped_is_sent_again` |
//! | H2: a job that ran in part waits again | `a_job_that_ran_in_part_and_is_dropped_is_sent_again` |
//! | F1: `wake_if_asleep_and`'s fence | `a_taken_batch_makes_room` |

use super::{model, sleep};
use crate::base::sync::{AtomicU64, Mutex, Ordering, StdArc, thread};
use crate::base::tick::{Tick, Timestamp};
use crate::base::ticket::Ticket;
use crate::dispatch::{Batch, Dispatcher, DueChunk, Fire, InFlight, Job, dispatch};
use crate::lockfree::roster::Roster;
use crate::shard::StationShared;

/// An engine that counts the tickets (due timers) that it fires. The engine informs its shard as a real engine does.
struct Firing {
    shard: StationShared,
    roster: StdArc<Roster>,
    dispatcher: Dispatcher,
    fired: AtomicU64,
}

impl Firing {
    fn new(dispatcher: &Dispatcher) -> StdArc<Self> {
        let roster = Roster::new(1);
        let (shard, dispatcher) = (StationShared::new(64, &roster), dispatcher.clone());
        StdArc::new(Self { shard, roster, dispatcher, fired: AtomicU64::new(0) })
    }

    fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Sleeps as a shard does until a check of the batches (groups of due timers) is requested. Then takes the request.
    fn sleep_until_a_check_is_wanted(&self) {
        self.roster.enter_current_thread(0);
        while !self.shard.is_check_wanted() {
            sleep(&self.shard.parker, None, || !self.shard.is_check_wanted());
        }
        self.shard.take_check_wanted();
    }
}

impl Fire for Firing {
    fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most && chunk.take().is_some() {
                called += 1;
                self.fired.fetch_add(1, Ordering::Relaxed);
            }
        }
        called
    }

    fn batch_taken(&self, _: usize) {
        self.shard.made_room();
    }

    fn job_dropped(&self, _: usize) {
        self.shard.want_check();
    }
}

fn batch(tickets: u32) -> StdArc<Batch> {
    let tickets = (0..tickets).map(|index| Ticket::new(Tick(0), index, 0)).collect();
    StdArc::new(Batch::new(0, vec![DueChunk::new(tickets, Timestamp::ZERO)]))
}

/// Makes an executor that keeps its jobs in a list, and returns the list. The list is locked only for moments in which
/// the model has no choice.
fn keeping() -> (Dispatcher, StdArc<Mutex<Vec<Job>>>) {
    let jobs = StdArc::new(Mutex::new(Vec::new()));
    let kept = StdArc::clone(&jobs);
    (Dispatcher::Executor(StdArc::new(move |job| kept.lock().unwrap().push(job))), jobs)
}

fn take_job(jobs: &Mutex<Vec<Job>>) -> Job {
    jobs.lock().unwrap().pop().expect("a job was sent")
}

/// Two workers take tickets from one chunk (a group of due tickets). Each ticket is fired once, by one worker.
#[test]
fn two_workers_take_each_ticket_once() {
    model("two_workers_take_each_ticket_once", || {
        let (dispatcher, jobs) = keeping();
        let firing = Firing::new(&dispatcher);
        let engine: StdArc<dyn Fire> = StdArc::<Firing>::clone(&firing);
        let batch = batch(3);
        assert!(dispatch(&engine, &batch), "the executor panicked");
        assert!(dispatch(&engine, &batch), "the executor panicked");
        let (mine, theirs) = (take_job(&jobs), take_job(&jobs));
        let worker = thread::spawn(move || theirs.run());
        mine.run();
        worker.join().unwrap();
        assert_eq!(firing.fired(), 3, "a ticket was fired twice or never");
    });
}

/// An executor drops a job while the shard goes to sleep. Legal endings: (a) the shard finds that a check of the
/// batches is wanted; (b) the shard is woken. In both endings, the check finds that no job waits. A lost wake is a
/// deadlock, which loom reports.
#[test]
fn a_job_that_is_dropped_is_sent_again() {
    model("a_job_that_is_dropped_is_sent_again", || {
        let (dispatcher, jobs) = keeping();
        let firing = Firing::new(&dispatcher);
        let engine: StdArc<dyn Fire> = StdArc::<Firing>::clone(&firing);
        let mut in_flight = InFlight::default();
        let batch = batch(1);
        assert!(dispatch(&engine, &batch), "the executor panicked");
        in_flight.push(batch);
        let job = take_job(&jobs);
        let executor = thread::spawn(move || drop(job));
        firing.sleep_until_a_check_is_wanted();
        in_flight.check(&engine);
        assert_eq!(jobs.lock().unwrap().len(), 1, "the check did not see that no job waits");
        executor.join().unwrap();
    });
}

/// An executor runs a job in part and then drops the job, while the shard goes to sleep. The legal endings are those of
/// `a_job_that_is_dropped_is_sent_again`. While the job waits for its next run, a check of the batches sends no other
/// job.
#[test]
fn a_job_that_ran_in_part_and_is_dropped_is_sent_again() {
    model("a_job_that_ran_in_part_and_is_dropped_is_sent_again", || {
        let (dispatcher, jobs) = keeping();
        let firing = Firing::new(&dispatcher);
        let engine: StdArc<dyn Fire> = StdArc::<Firing>::clone(&firing);
        let mut in_flight = InFlight::default();
        let batch = batch(2);
        assert!(dispatch(&engine, &batch), "the executor panicked");
        in_flight.push(batch);
        let mut job = take_job(&jobs);
        assert_eq!((job.run_some(1), job.is_done()), (1, false));
        in_flight.check(&engine);
        assert!(jobs.lock().unwrap().is_empty(), "the check took the job for one that has begun");
        let executor = thread::spawn(move || drop(job));
        firing.sleep_until_a_check_is_wanted();
        in_flight.check(&engine);
        take_job(&jobs).run();
        assert_eq!(firing.fired(), 2, "a ticket was fired twice or never");
        executor.join().unwrap();
    });
}

/// A shard has no room for some tickets, and goes to sleep. At the same time, a worker takes the last ticket of the
/// batch that takes up the room. Legal endings: (a) the shard finds the ticket taken; (b) the shard is woken.
#[test]
fn a_taken_batch_makes_room() {
    model("a_taken_batch_makes_room", || {
        let (dispatcher, jobs) = keeping();
        let firing = Firing::new(&dispatcher);
        let engine: StdArc<dyn Fire> = StdArc::<Firing>::clone(&firing);
        let mut in_flight = InFlight::default();
        let batch = batch(1);
        assert!(dispatch(&engine, &batch), "the executor panicked");
        in_flight.push(batch);
        let job = take_job(&jobs);
        let asleep = StdArc::clone(&firing);
        let shard = thread::spawn(move || {
            let shard = &asleep.shard;
            asleep.roster.enter_current_thread(0);
            shard.counters.held_back.set(1);
            while !in_flight.is_empty() {
                let may_sleep = || {
                    in_flight.forget_taken();
                    !in_flight.is_empty()
                };
                sleep(&shard.parker, None, may_sleep);
            }
        });
        job.run();
        shard.join().unwrap();
        assert_eq!(firing.fired(), 1, "a ticket was fired twice or never");
    });
}
