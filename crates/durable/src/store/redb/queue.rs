//! Carries requests to the thread that commits.
//!
//! The thread takes all waiting requests as a batch. While it waits for more requests, it sleeps until the wanted
//! number has arrived or a deadline has passed, so it wakes once for a batch. A channel of the standard library would
//! wake it for each request.
//!
//! At the end of a sync, a [`Bell`] notifies the queue. On a quick disk, the thread that commits makes the sync itself.

use super::request::Request;
use core::mem;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Default)]
struct QueueState {
    requests: VecDeque<Request>,
    /// The number of queued requests whose answers do not wait for the disk.
    urgent: usize,
    /// The condition that wakes the thread that commits. `None` while the thread does not sleep.
    awaits: Option<Wanted>,
    /// Whether a sync has ended since the thread that commits last took requests from the queue.
    has_ended: bool,
    /// The number of queued requests for which the thread that commits waits before it makes the next batch.
    /// [`Bell::expect`] sets this number at the end of a sync, when the callers that waited for the sync are answered.
    /// Each of these callers is expected to send another request. So the number is the sum of these callers and the
    /// requests that are already queued. `None` once the thread has taken requests from the queue.
    gathered: Option<usize>,
    /// Whether the thread that commits has work besides the requests: it must start another sync, or handle the error
    /// of a sync.
    has_other_work: bool,
    /// Whether the sender or the receiver of the queue was dropped.
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle by which callers add requests to the queue. After the sender is dropped, the thread that commits serves
/// the remaining requests and ends.
pub(super) struct Sender(Arc<Queue>);

/// The handle by which the thread that commits takes requests from the queue. When the receiver is dropped, the
/// remaining requests are lost.
pub(super) struct Receiver(Arc<Queue>);

/// The handle by which a thread reports the end of a sync to the thread that commits.
#[derive(Clone)]
pub(super) struct Bell(Arc<Queue>);

/// Makes a queue, and returns its three handles.
pub(super) fn queue() -> (Sender, Receiver, Bell) {
    let queue = Arc::<Queue>::default();
    (Sender(Arc::clone(&queue)), Receiver(Arc::clone(&queue)), Bell(queue))
}

/// The condition for which a call of [`Receiver::wait`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The queue has a request, or [`Bell::ring`] has reported that the thread that commits must start another sync, or
    /// handle the error of a sync.
    Work,
    /// The queue has at least this number of requests.
    Requests(usize),
    /// The queue has a request whose answer does not wait for the disk, or a sync has ended.
    Urgent,
}

/// The reason why a call of [`Receiver::wait`] has ended. The caller passes a condition ([`Wanted`]) for which the call
/// waits, and may pass a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The condition is met.
    Enough,
    /// The deadline has passed, and the condition is not met.
    Timeout,
    /// The [`Sender`] of the queue was dropped, and the condition is not met. No further request can arrive.
    Closed,
}

impl QueueState {
    fn has(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Work => self.has_other_work || !self.requests.is_empty(),
            Wanted::Requests(number) => self.requests.len() >= number,
            Wanted::Urgent => self.urgent > 0 || self.has_ended,
        }
    }

    /// Returns whether the thread that commits sleeps and must now be woken, because its condition is met. Returns true
    /// only once for each sleep.
    fn wakes(&mut self) -> bool {
        let wakes = self.awaits.is_some_and(|wanted| self.has(wanted));
        if wakes {
            self.awaits = None;
        }
        wakes
    }
}

impl Sender {
    /// Adds a request to the queue, unless the thread that commits has ended. Returns whether the request was added.
    pub(super) fn send(&self, request: Request) -> bool {
        let mut state = self.0.lock();
        if state.is_closed {
            return false;
        }
        state.urgent += usize::from(request.is_urgent());
        state.requests.push_back(request);
        let wakes = state.wakes();
        drop(state);
        if wakes {
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

impl Bell {
    /// Notes that `callers` callers are about to be answered. Each of these callers may send another request after its
    /// answer. The thread that commits waits briefly for these requests before it makes the next batch.
    pub(super) fn expect(&self, callers: usize) {
        let mut state = self.0.lock();
        state.gathered = Some(state.requests.len() + callers);
    }

    /// Notes that a sync has ended. If `has_more_work` is true, also notes that the thread that commits must start
    /// another sync, or handle the error of this sync. Wakes the thread if it waits for the end of a sync or for work.
    pub(super) fn ring(&self, has_more_work: bool) {
        let mut state = self.0.lock();
        state.has_ended = true;
        state.has_other_work |= has_more_work;
        let wakes = state.wakes();
        drop(state);
        if wakes {
            self.0.changed.notify_one();
        }
    }
}

impl Receiver {
    /// Waits until the condition `wanted` is met, the deadline `until` has passed, or the sender is dropped.
    pub(super) fn wait(&self, wanted: Wanted, until: Option<Instant>) -> Waited {
        let mut state = self.0.lock();
        let waited = loop {
            // The condition is checked before `is_closed`, so that the requests of a dropped sender are served.
            if state.has(wanted) {
                break Waited::Enough;
            }
            if state.is_closed {
                break Waited::Closed;
            }
            let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
            state.awaits = Some(wanted);
            state = match rest {
                None => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(rest) if rest.is_zero() => break Waited::Timeout,
                Some(rest) => {
                    self.0.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        };
        state.awaits = None;
        // Only the main loop, which waits for `Work`, handles this report. The waits within a batch must not use it up.
        if wanted == Wanted::Work {
            state.has_other_work = false;
        }
        waited
    }

    /// Returns the number of queued requests for which the thread that commits should wait before it makes the next
    /// batch, as set by [`Bell::expect`]. `None` if requests were taken after the last call of `expect`.
    pub(super) fn gathered(&self) -> Option<usize> {
        self.0.lock().gathered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().requests.is_empty()
    }

    /// Takes requests in their order, until the taken requests together have `most` operations or more, or until the
    /// queue is empty.
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
        state.urgent = rest.iter().filter(|request| request.is_urgent()).count();
        (state.has_ended, state.gathered) = (false, None);
        mem::replace(&mut state.requests, rest)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let lost = mem::take(&mut state.requests);
        drop(state);
        // Dropping the requests wakes their callers, so the lock is released first.
        drop(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, StoreError};
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
        let (sender, receiver, _bell) = queue();
        assert_eq!(receiver.wait(Wanted::Requests(1), Some(Instant::now())), Waited::Timeout);
        let _answers = sent(&sender, 2);
        assert_eq!(receiver.wait(Wanted::Requests(2), None), Waited::Enough);
        assert_eq!(
            receiver.wait(Wanted::Requests(3), Some(Instant::now() + Duration::from_millis(1))),
            Waited::Timeout
        );
        drop(sender);
        assert_eq!(receiver.wait(Wanted::Requests(2), None), Waited::Enough, "what was sent is served");
        assert_eq!(receiver.wait(Wanted::Requests(3), None), Waited::Closed);
    }

    #[test]
    fn a_thread_that_waits_for_several_requests_is_woken_by_the_last_one() {
        let (sender, receiver, _bell) = queue();
        let queue = Arc::clone(&receiver.0);
        let waiting = std::thread::spawn(move || {
            assert_eq!(receiver.wait(Wanted::Requests(3), None), Waited::Enough);
            receiver.take(usize::MAX).len()
        });
        while queue.lock().awaits.is_none() {
            std::thread::yield_now();
        }
        let _first = sent(&sender, 2);
        assert_eq!(queue.lock().awaits, Some(Wanted::Requests(3)), "nobody has woken the thread");
        let _last = sent(&sender, 1);
        assert_eq!(waiting.join().unwrap(), 3);
    }

    #[test]
    fn requests_are_taken_up_to_a_number_of_operations() {
        let (sender, receiver, _bell) = queue();
        let _answers = sent(&sender, 5);
        assert_eq!([receiver.take(2).len(), receiver.take(10).len(), receiver.take(1).len()], [2, 3, 0]);
    }

    #[test]
    fn requests_that_nobody_takes_are_lost() {
        let (sender, receiver, _bell) = queue();
        let mut answers = sent(&sender, 1);
        drop(receiver);
        assert!(answers[0].try_recv().is_err());
        assert!(!sender.send(request().0));
    }

    #[test]
    fn a_thread_that_waits_for_the_disk_is_woken_by_what_does_not_and_by_the_end_of_the_sync() {
        let (sender, receiver, bell) = queue();
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        let (reply, _changed) = oneshot::channel();
        assert!(sender.send(Request::Apply(Vec::new(), Durability::PowerLoss, reply)));
        assert_eq!(receiver.wait(Wanted::Urgent, soon()), Waited::Timeout);
        let (reply, _ended) = oneshot::channel();
        assert!(sender.send(Request::Apply(Vec::new(), Durability::ProcessCrash, reply)));
        assert_eq!(receiver.wait(Wanted::Urgent, soon()), Waited::Enough);
        assert_eq!(receiver.take(1_000).len(), 2, "both, in their order");
        assert_eq!(receiver.wait(Wanted::Urgent, soon()), Waited::Timeout);
        bell.expect(3);
        bell.ring(false);
        assert_eq!(receiver.gathered(), Some(3));
        assert_eq!(receiver.wait(Wanted::Urgent, soon()), Waited::Enough);
        assert_eq!(receiver.wait(Wanted::Work, soon()), Waited::Timeout, "nothing is to be done");
        bell.ring(true);
        assert_eq!(receiver.wait(Wanted::Work, soon()), Waited::Enough);
        assert_eq!(receiver.wait(Wanted::Work, soon()), Waited::Timeout, "a report is for one wait");
    }
}
