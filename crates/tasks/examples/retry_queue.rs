//! Requests that fail and are tried again, each time after twice the pause: a delay queue between two workers.
//!
//! Each request fails as often as its number says, modulo five. When a request fails, the worker pushes it back. A
//! request that has failed too often is given up. When the last request is done, the queue is closed and the workers
//! end.
//!
//! `cargo run -p tourbillon-tasks --example retry_queue`
#![expect(clippy::print_stdout, reason = "the summary is for whoever runs this program")]

use std::error::Error;
use std::fmt;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::DelayQueue;

const REQUESTS: u64 = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MOST_ATTEMPTS: u32 = 4;

struct Request {
    number: u64,
    attempts: u32,
}

impl Request {
    /// Attempts the request, and returns whether the attempt succeeds.
    fn attempt(&mut self) -> bool {
        self.attempts += 1;
        u64::from(self.attempts) > self.number % 5
    }
}

/// Counts of requests by the way in which they ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) attempts: u64,
    pub(crate) succeeded: u64,
    pub(crate) given_up: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run()?);
    Ok(())
}

pub(crate) fn run() -> Result<Summary, Box<dyn Error>> {
    let tasks = TaskEngine::new()?;
    let queue = tasks.handle().delay_queue();
    for number in 0..REQUESTS {
        queue.push(Duration::ZERO, Request { number, attempts: 0 })?;
    }
    let summary = Mutex::new(Summary::default());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| work(&queue, &summary));
        }
    });
    Ok(summary.into_inner()?)
}

fn work(queue: &DelayQueue<Request>, summary: &Mutex<Summary>) {
    while let Ok(due) = queue.recv() {
        let mut request = due.item;
        let has_succeeded = request.attempt();
        let mut summary = summary.lock().expect("no worker panics");
        summary.attempts += 1;
        if has_succeeded {
            summary.succeeded += 1;
        } else if request.attempts == MOST_ATTEMPTS {
            summary.given_up += 1;
        } else {
            let pause = FIRST_PAUSE * 2_u32.pow(request.attempts - 1);
            queue.push(pause, request).expect("it is not closed before all are done");
        }
        if summary.succeeded + summary.given_up == REQUESTS {
            queue.close();
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempts, succeeded, given_up } = self;
        write!(f, "{attempts} attempts: {succeeded} requests succeeded, {given_up} were given up")
    }
}
