//! The payload of an engine for futures, and its handler.

use crate::base::sync::StdArc;
use crate::engine::{Core, Due, Handler, Payload};
use crate::lockfree::waker::WakerCell;
use core::task::Waker;

/// The payload of an engine for futures: the waker of a sleeping task.
#[derive(Debug)]
pub struct Wakeup {
    pub(super) cell: WakerCell,
}

impl Wakeup {
    pub(super) fn new() -> Self {
        Self { cell: WakerCell::new() }
    }
}

/// Returns the handler of an engine for futures. It wakes the task that waits for the timer.
pub(super) fn wake_up() -> Handler<Wakeup> {
    Box::new(|due: Due<'_, Wakeup>, _: &StdArc<Core<Wakeup>>| {
        let wakeup = match &due.payload {
            Payload::Taken(wakeup) => wakeup,
            Payload::Kept(wakeup) => *wakeup,
        };
        if let Some(waker) = wakeup.cell.fire(due.moment.deadline) {
            waker.wake();
        }
    })
}

/// Takes the waker out of the payload, so that a shutdown can wake the waiting task.
pub(super) fn take_waker(wakeup: &Wakeup) -> Option<Waker> {
    wakeup.cell.take()
}
