//! Timers of which the service does not know what became of them.
//!
//! A delivery whose end was stored, but not answered by the store, ends for the runtime with its lease lost. The timer
//! may be parked then, and the board does not know of it; or it may be dead. So each such timer is read from the store.
//! A timer that has died with the lease of a process that is gone is read, too, since the event of it has but its id.

use super::board::Board;
use super::died::Died;
use super::reason::Reason;
use super::usher::Usher;
use crate::service::{Events, event};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tourbillon_api::{self as api, EventKind};
use tourbillon_durable::state::State;
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::timer::{Timer, TimerId};

/// The greatest number of timers that are to be read one by one. If there are more, all parked timers are read.
const MOST: usize = 10_000;
/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Doubts {
    doubtful: Mutex<Doubtful>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Doubtful {
    timers: VecDeque<TimerId>,
    are_too_many: bool,
}

/// What is to be read.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    One(TimerId),
    AllParked,
}

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, Doubtful> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a timer read. Does not block.
    pub(crate) fn add(&self, id: TimerId) {
        let mut doubtful = self.lock();
        if doubtful.timers.len() < MOST {
            doubtful.timers.push_back(id);
        } else {
            doubtful.are_too_many = true;
        }
        drop(doubtful);
        self.changed.notify_one();
    }

    /// Lets the reader see that the board is closed.
    pub(crate) fn close(&self) {
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Read> {
        let mut doubtful = self.lock();
        let one = doubtful.timers.pop_front().map(Read::One);
        one.or_else(|| core::mem::take(&mut doubtful.are_too_many).then_some(Read::AllParked))
    }

    /// Reads timers until the board is closed.
    pub(crate) async fn run(
        self: Arc<Self>,
        store: Arc<dyn TimerStore>,
        board: Arc<Board>,
        usher: Arc<Usher>,
        events: Events,
    ) {
        while !board.is_closed() {
            match self.next() {
                None => self.changed.notified().await,
                Some(Read::AllParked) => usher.find_parked(&*store).await,
                Some(Read::One(id)) => match store.get(id.into()).await {
                    Ok(timer) => timer.iter().for_each(|timer| settle(timer, &board, &events)),
                    Err(_) => {
                        self.lock().timers.push_front(id);
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }
}

fn settle(timer: &Timer, board: &Board, events: &Events) {
    match &timer.state {
        State::Parked(reason) => Reason::parse(reason).into_iter().for_each(|reason| board.parked(reason)),
        State::Dead(_) => {
            Died {
                namespace: &timer.namespace,
                id: timer.id,
                key: timer.key.as_deref(),
                attempt: Some(timer.failures),
                error: timer.last_error.as_deref(),
            }
            .log();
            events.show(|| api::Event {
                id: Some(timer.id.to_string()),
                key: timer.key.as_deref().map(str::to_owned),
                detail: timer.last_error.as_deref().map(str::to_owned),
                ..event(EventKind::Dead, &timer.namespace)
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_doubts_is_bounded() {
        let doubts = Doubts::default();
        for number in 0..MOST as u128 + 5 {
            doubts.add(TimerId::from_u128(number));
        }
        for number in 0..MOST as u128 {
            assert_eq!(doubts.next(), Some(Read::One(TimerId::from_u128(number))));
        }
        assert_eq!((doubts.next(), doubts.next()), (Some(Read::AllParked), None));
    }
}
