//! A connection of the server.

use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};

/// The server's first message on a connection. It says that the connection is accepted and its timer armed.
pub(crate) const GREETING: &[u8] = b"!";

/// A connection with a socket. Dropping the value closes the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
}

/// The result of reading from a connection.
pub(crate) struct Heard {
    pub(crate) bytes: usize,
    pub(crate) ended: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream }
    }

    pub(crate) fn greet(&mut self) {
        // The write fails if the client has already left. In that case a read will find the end of the connection.
        self.stream.write_all(GREETING).unwrap_or_default();
    }

    /// Reads all bytes that have come on the connection.
    pub(crate) fn hear(&mut self) -> Heard {
        let mut heard = Heard { bytes: 0, ended: false };
        let mut buffer = [0; 1_024];
        loop {
            match self.stream.read(&mut buffer) {
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
