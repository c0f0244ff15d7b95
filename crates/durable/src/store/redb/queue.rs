//! The requests on their way to the thread that commits.
//!
//! The thread takes the requests that wait as a batch. While it waits for more of them it sleeps until so many are
//! there as it wants, or until its time is over: a batch wakes the thread once. A channel of the standard library wakes
//! its reader for each message that it waits for.

use super::request::Request;
use core::mem;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    /// The number of requests at which the thread wakes up, while it sleeps.
    wakes_at: Option<usize>,
    /// The sender or the receiver is gone.
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The callers' side of a queue. The thread ends after the last request once it is dropped.
pub(super) struct Sender(Arc<Queue>);

/// The thread's side of a queue. Requests that it has not taken are lost once it is dropped.
pub(super) struct Receiver(Arc<Queue>);

/// A new queue.
pub(super) fn queue() -> (Sender, Receiver) {
    let queue = Arc::<Queue>::default();
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

/// What came out of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// So many requests are there as were wanted.
    Enough,
    /// The time is over.
    Timeout,
    /// No more requests come.
    Closed,
}

impl Sender {
    /// Sends a request, unless the thread has ended. Returns whether it was sent.
    pub(super) fn send(&self, request: Request) -> bool {
        let mut state = self.0.lock();
        if state.is_closed {
            return false;
        }
        state.requests.push_back(request);
        let is_awaited = state.wakes_at.is_some_and(|wanted| wanted <= state.requests.len());
        if is_awaited {
            state.wakes_at = None;
        }
        drop(state);
        if is_awaited {
            self.0.changed.notify_one();
        }
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl Receiver {
    /// Waits until so many requests are there, until this moment, or until no more come.
    pub(super) fn wait(&self, wanted: usize, until: Option<Instant>) -> Waited {
        let mut state = self.0.lock();
        let waited = loop {
            if state.requests.len() >= wanted {
                break Waited::Enough;
            }
            if state.is_closed {
                break Waited::Closed;
            }
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            state.wakes_at = Some(wanted);
            state = match rest {
                None => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(rest) if rest.is_zero() => break Waited::Timeout,
                Some(rest) => {
                    self.0.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        state.wakes_at = None;
        waited
    }

    /// Takes requests in their order until they have so many operations, or none is left.
    pub(super) fn take(&self, most: usize) -> VecDeque<Request> {
        let mut state = self.0.lock();
        let mut operations = 0;
        let within = |request: &Request| {
            let is_within = operations < most;
            operations += request.operations();
            is_within
        };
        let count = state.requests.iter().map(within).take_while(|is_within| *is_within).count();
        let rest = state.requests.split_off(count);
        mem::replace(&mut state.requests, rest)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let lost = mem::take(&mut state.requests);
        drop(state);
        // Their callers' wakers run outside of the lock.
        drop(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;
    use core::time::Duration;
    use futures_channel::oneshot;

    type Answer = oneshot::Receiver<Result<bool, StoreError>>;

    fn request() -> (Request, Answer) {
        let (reply, answer) = oneshot::channel();
        (Request::Compact(reply), answer)
    }

    fn sent(sender: &Sender, count: usize) -> Vec<Answer> {
        let send = |_| {
            let (request, answer) = request();
            assert!(sender.send(request));
            answer
        };
        (0..count).map(send).collect()
    }

    #[test]
    fn a_wait_ends_with_the_requests_the_time_or_the_sender() {
        let (sender, receiver) = queue();
        assert_eq!(receiver.wait(1, Some(Instant::now())), Waited::Timeout);
        let _answers = sent(&sender, 2);
        assert_eq!(receiver.wait(2, None), Waited::Enough);
        assert_eq!(receiver.wait(3, Some(Instant::now() + Duration::from_millis(1))), Waited::Timeout);
        drop(sender);
        assert_eq!(receiver.wait(2, None), Waited::Enough, "what was sent is served");
        assert_eq!(receiver.wait(3, None), Waited::Closed);
    }

    #[test]
    fn a_thread_that_waits_for_several_requests_is_woken_by_the_last_one() {
        let (sender, receiver) = queue();
        let queue = Arc::clone(&receiver.0);
        let waiting = std::thread::spawn(move || {
            assert_eq!(receiver.wait(3, None), Waited::Enough);
            receiver.take(usize::MAX).len()
        });
        while queue.lock().wakes_at.is_none() {
            std::thread::yield_now();
        }
        let _first = sent(&sender, 2);
        assert_eq!(queue.lock().wakes_at, Some(3), "nobody has woken the thread");
        let _last = sent(&sender, 1);
        assert_eq!(waiting.join().unwrap(), 3);
    }

    #[test]
    fn requests_are_taken_up_to_a_number_of_operations() {
        let (sender, receiver) = queue();
        let _answers = sent(&sender, 5);
        assert_eq!([receiver.take(2).len(), receiver.take(10).len(), receiver.take(1).len()], [2, 3, 0]);
    }

    #[test]
    fn requests_that_nobody_takes_are_lost() {
        let (sender, receiver) = queue();
        let mut answers = sent(&sender, 1);
        drop(receiver);
        assert!(answers[0].try_recv().is_err());
        assert!(!sender.send(request().0));
    }
}
