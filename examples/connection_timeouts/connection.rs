//! A connection of the server.

use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};

/// The first thing that the server says: the connection is accepted and its timer armed.
pub(crate) const GREETING: &[u8] = b"!";

/// A socket. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
}

/// What a read found.
pub(crate) struct Heard {
    pub(crate) bytes: usize,
    pub(crate) ended: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream }
    }

    pub(crate) fn greet(&mut self) {
        // It fails when the client has left already: its end is still to be heard.
        self.stream.write_all(GREETING).unwrap_or_default();
    }

    /// Reads whatever there is.
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
