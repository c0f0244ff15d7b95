//! tokio-util's `DelayQueue`, one for each job. A queue has one owner, which inserts, removes and resets items, and
//! polls the queue for expired items. With several threads, each thread has its own queue.
//!
//! For the earliest deadline, the queue has a `Sleep` of the runtime on which the job runs. The owner handles expired
//! items on its own thread, while it lets time pass. In an open loop the owner polls in between without waiting. There,
//! a spare worker of the runtime turns the driver. A queue that is not polled waits for nothing.
//!
//! Keys are reused after their items have expired. So the owner must know which items remain, as in the documentation's
//! example. Here the owner checks that it has removed the intended item.

use super::tokio_runtime::TokioRuntime;
use super::{Caller, Clock, Connections, Contestant, OnFire, OneShots, Owned, Reads};
use crate::common::{Payload, payload};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::{Expired, Key};

/// A contestant: tokio-util's `DelayQueue`, with a queue for each job. If `SPARE` is true, the runtime has one worker
/// more than jobs.
pub(crate) struct DelayQueues<const SPARE: bool> {
    runtime: TokioRuntime,
    on_fire: Arc<dyn Fn(Payload) + Send + Sync>,
}

impl<const SPARE: bool> Contestant for DelayQueues<SPARE> {
    const NAME: &'static str = "tokio-util, DelayQueue";
    const READS: Reads = Reads::EachArm(Clock::Instant);

    fn start(threads: usize, on_fire: impl OnFire) -> Self {
        Self { runtime: TokioRuntime::start(threads + usize::from(SPARE)), on_fire: Arc::new(on_fire) }
    }

    fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
        self.runtime.run(jobs)
    }

    fn settle(&self, time: Duration) {
        self.runtime.turn(time);
    }
}

impl<const SPARE: bool> OneShots for DelayQueues<SPARE> {
    type Caller = Owner;

    fn caller(&self) -> Owner {
        Owner { queue: DelayQueue::new(), on_fire: Arc::clone(&self.on_fire) }
    }
}

pub(crate) struct Owner {
    queue: DelayQueue<Payload>,
    on_fire: Arc<dyn Fn(Payload) + Send + Sync>,
}

impl Owner {
    fn fire_expired(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(context) {
            (self.on_fire)(expired.into_inner());
        }
    }

    /// Puts the item `other` back into the queue. The caller has removed `other` by mistake: it wanted an expired item,
    /// whose key the queue has reused for `other`.
    #[cold]
    fn put_back(&mut self, other: &Expired<Payload>) {
        let key = self.queue.insert_at(*other.get_ref(), other.deadline());
        assert_eq!(key, other.key(), "the key that was freed last is reused first");
    }
}

impl Caller for Owner {
    /// The name of a timer: the key of its item in the queue, and the number in the item's payload.
    type Id = (Key, u64);

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> (Key, u64) {
        (self.queue.insert(payload, delay), payload[0])
    }

    #[inline]
    fn cancel(&mut self, (key, number): (Key, u64)) -> bool {
        let Some(removed) = self.queue.try_remove(&key) else { return false };
        let is_meant = *removed.get_ref() == payload(number);
        if !is_meant {
            self.put_back(&removed);
        }
        is_meant
    }

    fn turn(&mut self) {
        self.fire_expired(&mut Context::from_waker(Waker::noop()));
    }

    async fn pass(&mut self, time: Duration) {
        let mut end = pin!(sleep(time));
        poll_fn(|context| {
            self.fire_expired(context);
            end.as_mut().poll(context)
        })
        .await;
    }
}

impl<const SPARE: bool> Owned for DelayQueues<SPARE> {
    type Connections = KeyEach;

    const DISARMS: bool = true;

    fn connect(&self, count: usize) -> KeyEach {
        let keys = vec![None; count];
        KeyEach { queue: DelayQueue::new(), keys, runtime: Handle::current(), is_outside: false }
    }

    fn pending(&self, all: &mut [KeyEach]) -> usize {
        let pending = all.iter_mut().map(KeyEach::pending).sum();
        self.runtime.turn(Duration::from_millis(1));
        pending
    }
}

/// A queue of deadlines, and each connection's key in the queue. A connection without a deadline has no key.
pub(crate) struct KeyEach {
    queue: DelayQueue<Payload>,
    keys: Vec<Option<Key>>,
    runtime: Handle,
    /// Whether the caller is outside a task, so that the runtime's context is missing.
    is_outside: bool,
}

impl KeyEach {
    fn pending(&mut self) -> usize {
        self.is_outside = true;
        let _context = self.runtime.enter();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            let [at, _] = expired.into_inner();
            self.keys[usize::try_from(at).expect("an index")] = None;
        }
        self.queue.len()
    }

    #[inline]
    fn insert_or_reset(&mut self, at: u32, delay: Duration) {
        let key = &mut self.keys[at as usize];
        match key {
            Some(key) => self.queue.reset(key, delay),
            None => *key = Some(self.queue.insert(payload(u64::from(at)), delay)),
        }
    }

    #[cold]
    fn insert_or_reset_outside(&mut self, at: u32, delay: Duration) {
        let runtime = self.runtime.clone();
        let _context = runtime.enter();
        self.insert_or_reset(at, delay);
    }
}

impl Connections for KeyEach {
    const BYTES_OF_HANDLE: usize = size_of::<Option<Key>>();

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        if self.is_outside {
            self.insert_or_reset_outside(at, delay);
        } else {
            self.insert_or_reset(at, delay);
        }
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        let key = self.keys[at as usize].take().expect("it was armed");
        let removed = self.queue.remove(&key);
        assert_eq!(removed.into_inner()[0], u64::from(at));
    }
}
