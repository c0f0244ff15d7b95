//! A connection of an echo server: it sends back the bytes that it receives.

use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use tourbillon::{TimerId, Timestamp};

/// The number of unsent bytes at which a connection is not read any more.
const MOST_UNSENT: usize = 64 * 1_024;
/// The largest number of reads of a connection in a turn. So a client that talks without a pause does not hold up the
/// others.
const READS_PER_TURN: usize = 16;

/// Says what a connection needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The socket must become readable or writable.
    Waiting,
    /// The connection needs nothing, but has used up its turn.
    Unfinished,
    /// The connection has ended: the client has ended its side, and has received everything.
    Finished,
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// The moment at which the connection will have been idle for too long.
    pub(crate) deadline: Timestamp,
    /// The timer, which is due at the deadline or before. `None` until the loop has read the clock.
    pub(crate) timer: Option<TimerId>,
    unsent: VecDeque<u8>,
    client_has_ended: bool,
    received: u64,
    sent: u64,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            deadline: Timestamp::MAX,
            timer: None,
            unsent: VecDeque::new(),
            client_has_ended: false,
            received: 0,
            sent: 0,
        }
    }

    /// Returns the number of bytes that were sent back.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of bytes that came from the client, and of bytes that the client took. While this number
    /// grows, the client is active.
    pub(crate) fn moved(&self) -> u64 {
        self.received + self.sent
    }

    /// Reads and writes until the socket would block, or until the turn is over.
    ///
    /// The poll reports edges: that a socket *became* readable or writable. So [`Status::Waiting`] is only returned
    /// when a read or a write would have blocked.
    pub(crate) fn serve(&mut self, buffer: &mut [u8]) -> io::Result<Status> {
        for _ in 0..READS_PER_TURN {
            self.send()?;
            if self.client_has_ended && self.unsent.is_empty() {
                return Ok(Status::Finished);
            }
            if self.client_has_ended || self.unsent.len() >= MOST_UNSENT {
                return Ok(Status::Waiting);
            }
            match self.stream.read(buffer) {
                Ok(0) => self.client_has_ended = true,
                Ok(bytes) => {
                    self.unsent.extend(&buffer[..bytes]);
                    self.received += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.unsent.is_empty() {
                        // A connection that waits keeps no memory for bytes.
                        self.unsent = VecDeque::new();
                    }
                    return Ok(Status::Waiting);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Status::Unfinished)
    }

    /// Writes until all bytes are sent, or until a write would block.
    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let (front, _) = self.unsent.as_slices();
            match self.stream.write(front) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.unsent.drain(..bytes);
                    self.sent += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
