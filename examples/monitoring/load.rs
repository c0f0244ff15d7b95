//! A load of requests with timeouts. Many are pending, and nearly all are answered in time.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use tourbillon::{Handle, Refusal};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Of this number of requests, one gets no answer. Its timeout is short, so that some timers fire.
const UNANSWERED: u64 = 50;
const SHORT_TIMEOUT: Duration = Duration::from_millis(20);
const REQUESTS_EACH_ROUND: u64 = 100;
const ROUND: Duration = Duration::from_millis(5);

/// Keeps about `pending` timers pending, by schedules and cancels, until the engine is shut down.
pub(crate) fn run(engine: &Handle<u64>, pending: usize) {
    let mut requests = VecDeque::new();
    for number in 0.. {
        // The loop answers the oldest requests.
        while requests.len() >= pending.max(1) {
            if let Some(id) = requests.pop_front() {
                drop(engine.cancel(id));
            }
        }
        let is_answered = number % UNANSWERED > 0;
        match engine.try_schedule_at(engine.now() + if is_answered { TIMEOUT } else { SHORT_TIMEOUT }, number)
        {
            Ok(id) if is_answered => requests.push_back(id),
            Err(error) if error.kind == Refusal::ShutDown => return,
            // The engine counts refused requests.
            Ok(_) | Err(_) => {}
        }
        let is_filling = requests.len() + 1 < pending;
        if !is_filling && number % REQUESTS_EACH_ROUND == 0 {
            thread::sleep(ROUND);
        }
    }
}
