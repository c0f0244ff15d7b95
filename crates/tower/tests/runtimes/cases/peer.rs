//! A peer that answers some bytes and is silent after others. It uses blocking sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

/// A byte that the peer sends back.
pub(crate) const ANSWER: u8 = b'?';
/// A byte that the peer does not answer.
pub(crate) const SILENCE: u8 = b'-';

/// A peer that serves one connection until the client closes it.
pub(crate) struct Peer {
    address: SocketAddr,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                if byte == [ANSWER] {
                    stream.write_all(&byte).unwrap();
                }
            }
        });
        Self { address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
