//! Messages from the engine to an event loop. The engine's handler closes nothing. It notifies the event loop that owns
//! the connection.

use mio::Waker;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use tourbillon::{Fired, Timestamp};

/// The sender of firings to an event loop, and the waker that wakes the loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    firings: Sender<Firing>,
    waker: Waker,
}

/// The payload of a connection's timer: the mailbox of the connection's loop, and the connection's index.
#[derive(Clone, Debug)]
pub(crate) struct IdleTimeout {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connection: usize,
}

/// The message that a timer's handler sends to an event loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Firing {
    pub(crate) connection: usize,
    /// The deadline for which the timer fired. The timer may have been armed again after the firing.
    pub(crate) deadline: Timestamp,
    pub(crate) handler_began: Timestamp,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> (Self, Receiver<Firing>) {
        let (firings, receiver) = mpsc::channel();
        (Self { firings, waker }, receiver)
    }

    pub(crate) fn wake(&self) -> io::Result<()> {
        self.waker.wake()
    }
}

/// Sends the timer's firing to the event loop of its connection. The engine's handler calls this.
pub(crate) fn tell_event_loop(timer: Fired<'_, IdleTimeout>) {
    let handler_began = timer.engine().now();
    let deadline = timer.deadline;
    let IdleTimeout { mailbox, connection } = timer.payload;
    // The send fails if the event loop has ended with an error.
    mailbox.firings.send(Firing { connection, deadline, handler_began }).unwrap_or_default();
    mailbox.wake().expect("an event loop can be woken");
}
