//! A connection of the server, and the handler of its timer.

use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, OnceLock};
use tourbillon::{Fired, Timestamp};

/// The first thing that the server says: the connection is accepted and its timer armed.
pub(crate) const GREETING: &[u8] = b"!";

/// A socket, shared by its event loop and its timer: while either holds it, no other connection gets its number.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    timed_out: OnceLock<TimedOut>,
}

/// When the engine closed a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedOut {
    pub(crate) before_close: Timestamp,
    pub(crate) after_close: Timestamp,
}

/// The engine's handler: shuts the socket down, whereupon both its event loop and its client see the end.
pub(crate) fn close_idle(timer: Fired<'_, Arc<Connection>>) {
    let engine = timer.engine();
    let connection = timer.payload;
    let before_close = engine.now();
    // It fails when the client has left this very moment: then there is nothing to shut down.
    connection.stream.shutdown(Shutdown::Both).unwrap_or_default();
    let timed_out = TimedOut { before_close, after_close: engine.now() };
    connection.timed_out.set(timed_out).expect("a connection has one timer, and it fires once");
}

/// What a read found.
pub(crate) struct Heard {
    pub(crate) bytes: usize,
    pub(crate) ended: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, timed_out: OnceLock::new() }
    }

    /// When the engine closed it, if it did.
    pub(crate) fn timed_out(&self) -> Option<TimedOut> {
        self.timed_out.get().copied()
    }

    pub(crate) fn greet(&self) {
        // It fails when the client has left already: its end is still to be heard.
        (&self.stream).write_all(GREETING).unwrap_or_default();
    }

    /// Reads whatever there is.
    pub(crate) fn hear(&self) -> Heard {
        let mut heard = Heard { bytes: 0, ended: false };
        let mut buffer = [0; 1_024];
        loop {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => heard.ended = true,
                Ok(bytes) => heard.bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return heard,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => heard.ended = true,
            }
            if heard.ended {
                return heard;
            }
        }
    }
}
