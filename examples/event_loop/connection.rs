//! A connection of an echo server: it sends back the bytes that it receives.

use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use tourbillon::{TimerId, Timestamp};

/// The number of unsent bytes at which the server stops reading from a connection.
const MOST_UNSENT: usize = 64 * 1_024;
/// The largest number of reads from a connection in a turn. A client that talks without a pause therefore does not hold
/// up other clients.
const READS_PER_TURN: usize = 16;

/// The condition under which a connection can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The connection goes on when its socket becomes readable or writable.
    Waiting,
    /// The connection has used up its turn, and could go on at once.
    Unfinished,
    /// The connection has ended. The client has closed its side, and has received all bytes.
    Finished,
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// The moment at which the connection has been idle for the timeout.
    pub(crate) deadline: Timestamp,
    /// The id of the connection's timer, which is due at the deadline or before. `None` until the loop has read the
    /// clock.
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

    /// Returns the number of bytes that the server has sent to the client.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of bytes that came from the client, plus the number that the client took. The client is
    /// active while the sum grows.
    pub(crate) fn moved(&self) -> u64 {
        self.received + self.sent
    }

    /// Reads and writes until the socket would block, or until the connection has used up its turn.
    ///
    /// The poll reports edges: that a socket *became* readable or writable. Therefore [`Status::Waiting`] is only
    /// returned when a read or a write would have blocked.
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

    /// Writes the unsent bytes until all are sent, or until a write would block.
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
