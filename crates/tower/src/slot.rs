//! The slot of one service. A slot is the permission for one call of the service. A service reserves a slot before a
//! call, and gives the slot back if no call comes.

use crate::slots::{Changes, Number, Rate, Slots, Turn};
use crate::timers::Timers;
use std::fmt;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tourbillon::Timestamp;
use tourbillon::future::Sleep;

/// A rate limit that several services share: the slots of the rate, and the engine whose timers the waiting services
/// use.
pub(crate) struct Limit {
    slots: Mutex<Slots>,
    timers: Timers,
}

impl Limit {
    pub(crate) fn new(rate: Rate, timers: Timers) -> Arc<Self> {
        Arc::new(Self { slots: Mutex::new(Slots::new(rate)), timers })
    }

    pub(crate) fn rate(&self) -> Rate {
        self.lock().rate()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `change` with the slots, which are locked during the call. After the release of the lock, wakes the tasks
    /// of the waiting services to which `change` has given or promised a slot.
    fn change(&self, change: impl FnOnce(&mut Slots) -> Changes) {
        let changes = change(&mut self.lock());
        changes.apply();
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate { calls, period } = self.rate();
        f.debug_struct("Limit").field("calls", &calls).field("period", &period).finish_non_exhaustive()
    }
}

/// The state of one service under a limit: the service has reserved a slot (the permission for one call), waits for a
/// slot, or neither. A clone shares the limit, but its service has not reserved a slot yet.
#[derive(Debug)]
pub(crate) struct Slot {
    limit: Arc<Limit>,
    state: State,
    /// The sleep until the end of the present period, while the service waits and a slot of the next period is promised
    /// to it. Otherwise usually `None`.
    sleep: Option<Sleep>,
}

#[derive(Debug)]
enum State {
    /// The service has no slot, and does not wait for one.
    Idle,
    /// The service waits for a slot, or has got a slot that it has not seen yet.
    Waiting(Number),
    /// The service has a slot, and may be called.
    Reserved,
}

impl Slot {
    pub(crate) fn new(limit: Arc<Limit>) -> Self {
        Self { limit, state: State::Idle, sleep: None }
    }

    pub(crate) fn limit(&self) -> &Arc<Limit> {
        &self.limit
    }

    /// Reserves a slot for the service. Returns `Pending` until the service has a slot.
    pub(crate) fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.reserve_or_wait(cx) {
                Turn::Now => {
                    self.state = State::Reserved;
                    self.sleep = None;
                    return Poll::Ready(());
                }
                Turn::At(number, end) => {
                    self.state = State::Waiting(number);
                    if self.sleep.as_ref().is_none_or(|sleep| sleep.deadline() != end) {
                        self.sleep = Some(self.limit.timers.sleep_until(end));
                    }
                    if let Some(sleep) = &mut self.sleep {
                        let outcome = ready!(pin!(sleep.try_wait()).poll(cx));
                        if outcome.is_err() {
                            // The sleep began in a tokio runtime that has ended, and goes on where the service is now.
                            *sleep = self.limit.timers.sleep_until(end);
                            ready!(Pin::new(sleep).poll(cx));
                        }
                    }
                }
                Turn::Later(number) => {
                    self.state = State::Waiting(number);
                    return Poll::Pending;
                }
            }
        }
    }

    fn reserve_or_wait(&self, cx: &Context<'_>) -> Turn {
        let number = match self.state {
            State::Idle => None,
            State::Waiting(number) => Some(number),
            State::Reserved => return Turn::Now,
        };
        let end = {
            let mut slots = self.limit.lock();
            if slots.try_reserve(number) {
                return Turn::Now;
            }
            slots.end()
        };
        // Reading the clock and cloning the waker run code of other crates. So both happen without the lock.
        let ended = self.has_come(end).then_some(end);
        let waker = cx.waker().clone();
        let (turn, changes) = self.limit.lock().reserve_or_wait(number, waker, ended);
        changes.apply();
        turn
    }

    /// Returns whether `end`, the end of a period, has come by the clock of the limit's engine. Checks the service's
    /// own sleep if its deadline is `end`, and otherwise makes a new sleep for the check.
    fn has_come(&self, end: Timestamp) -> bool {
        match &self.sleep {
            Some(sleep) if sleep.deadline() == end => sleep.is_elapsed(),
            _ => self.limit.timers.sleep_until(end).is_elapsed(),
        }
    }

    /// Uses up the slot for a call. Returns false if the service has no slot.
    #[must_use]
    pub(crate) fn use_up(&mut self) -> bool {
        if !matches!(self.state, State::Reserved) {
            return false;
        }
        let timers = &self.limit.timers;
        let now = timers.now();
        self.limit.change(|slots| slots.use_up(now, |end| timers.sleep_until(end).is_elapsed()));
        self.state = State::Idle;
        true
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.limit))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Waiting(number) => self.limit.change(|slots| slots.leave(number)),
            State::Reserved => self.limit.change(Slots::give_back),
        }
    }
}
