//! An echo server that closes connections that are idle or old.
//!
//! A thread serves each connection. The thread blocks in the socket. When it has received something, it reports that
//! through a handle. The callback finds the socket by the connection's id and shuts it down, which ends the thread.
//! Some clients say something and go, some fall silent, and one client never stops.
//!
//! `cargo run -p tourbillon-tasks --example idle_connections`
#![expect(clippy::print_stdout, reason = "the summary is for whoever runs this program")]

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::{Connection, Expired, Limit, Limits};

const IDLE: Duration = Duration::from_millis(300);
const OLD: Duration = Duration::from_millis(900);
const PAUSE: Duration = Duration::from_millis(10);

/// The behaviour of a client.
#[derive(Clone, Copy)]
enum Client {
    /// The client sends this number of words, and closes the connection.
    Polite(u32),
    /// The client sends a word, and then waits until the server disconnects it.
    Silent,
    /// The client sends words until the server disconnects it.
    Endless,
}

const CLIENTS: [Client; 7] = [
    Client::Polite(1),
    Client::Silent,
    Client::Polite(10),
    Client::Endless,
    Client::Silent,
    Client::Polite(20),
    Client::Silent,
];

/// Counts of connections by the way in which they ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) closed_by_client: usize,
    pub(crate) idle: usize,
    pub(crate) old: usize,
}

/// The open sockets, and a summary of the closed connections.
#[derive(Default)]
struct Server {
    sockets: Mutex<HashMap<SocketAddr, TcpStream>>,
    summary: Mutex<Summary>,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run()?);
    Ok(())
}

pub(crate) fn run() -> Result<Summary, Box<dyn Error>> {
    let (tasks, server) = (TaskEngine::new()?, Arc::new(Server::default()));
    let closer = Arc::clone(&server);
    let timeouts =
        tasks.handle().idle_timeouts(Limits::idle(IDLE).max_age(OLD), move |expired| closer.close(&expired));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        for client in CLIENTS {
            // A client that is disconnected while it talks gets an error, which is expected.
            scope.spawn(move || client.talk(address).unwrap_or_default());
        }
        for _ in CLIENTS {
            let (stream, peer) = listener.accept()?;
            server.sockets.lock().expect("nobody panics").insert(peer, stream.try_clone()?);
            let connection = timeouts.insert(peer)?;
            let server = &server;
            scope.spawn(move || server.serve(stream, connection));
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    // The drop waits for every callback that has begun.
    drop(tasks);
    let summary = std::mem::take(&mut *server.summary.lock().expect("nobody panics"));
    Ok(summary)
}

impl Server {
    /// Echoes until the client closes the connection or the callback shuts the socket down.
    fn serve(&self, mut stream: TcpStream, connection: Connection<SocketAddr>) {
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if !connection.touch() || stream.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let peer = *connection.id();
        // If `remove` returns true, the connection does not expire any more.
        if connection.remove() {
            self.sockets.lock().expect("nobody panics").remove(&peer);
            self.summary.lock().expect("nobody panics").closed_by_client += 1;
        }
    }

    /// Closes an expired connection.
    fn close(&self, expired: &Expired<SocketAddr>) {
        {
            let mut summary = self.summary.lock().expect("nobody panics");
            match expired.limit {
                Limit::Idle => summary.idle += 1,
                // The limit is the maximum age.
                _ => summary.old += 1,
            }
        }
        if let Some(stream) = self.sockets.lock().expect("nobody panics").remove(&expired.id) {
            // The shutdown fails if the client has gone by itself.
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }
}

impl Client {
    fn talk(self, server: SocketAddr) -> io::Result<()> {
        let mut stream = TcpStream::connect(server)?;
        let mut say = |word: &[u8; 5]| {
            stream.write_all(word)?;
            stream.read_exact(&mut [0; 5])
        };
        match self {
            Self::Polite(words) => (0..words).try_for_each(|_| {
                say(b"hello")?;
                thread::sleep(PAUSE);
                Ok(())
            }),
            Self::Silent => {
                say(b"hello")?;
                stream.read(&mut [0]).map(drop)
            }
            Self::Endless => loop {
                say(b"still")?;
                thread::sleep(PAUSE);
            },
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { closed_by_client, idle, old } = self;
        write!(f, "{closed_by_client} closed by their clients, {idle} idle, {old} old")
    }
}
