//! A TCP proxy that causes faults in the connections through it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How a proxy treats the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The proxy forwards all bytes.
    #[default]
    Pass,
    /// The proxy forwards requests, and drops replies.
    LoseReplies,
    /// The proxy drops requests. It forwards replies, and messages to a subscriber.
    LoseRequests,
    /// The proxy flips a bit in each piece of a reply.
    Damage,
    /// The proxy drops all bytes. Neither side sees the connection end, so it is half open.
    Silence,
    /// The proxy closes a new connection at once.
    Refuse,
}

/// The bytes to find in replies, and the bytes that replace them. Both have the same length.
type Rewriting = (Vec<u8>, Vec<u8>);

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    /// How the proxy treats connections that it accepts from now on.
    coming: Fate,
    delay: Duration,
    rewriting: Option<Rewriting>,
    links: Vec<Arc<Link>>,
    accepted: usize,
    lost_replies: usize,
    /// How many more pieces of replies the proxy forwards before the loss that [`Proxy::lose_after`] has planned.
    /// `None` if no loss is planned.
    passing: Option<usize>,
}

#[derive(Debug)]
struct Link {
    fate: Mutex<Fate>,
    client: TcpStream,
    server: TcpStream,
}

impl Link {
    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        for stream in [&self.client, &self.server] {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A proxy in front of a server, for faults of the network. Dropping the value closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy that forwards connections to the server at `target`.
    #[must_use]
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::<Shared>::default();
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, target, &shared))
        };
        Self { address, shared, accepting: Some(accepting) }
    }

    /// Returns the address at which the proxy accepts clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the proxy's address as a URL for a Redis client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Makes the proxy delay each piece of data by `delay`, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Makes the proxy replace the text `from` by `to` in all replies. Both texts must have the same length.
    pub fn rewrite(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len(), "the length of a reply stays");
        self.shared.state().rewriting = Some((from.into(), to.into()));
    }

    /// Closes all open connections. New connections still work.
    pub fn cut(&self) {
        for link in self.shared.state().links.drain(..) {
            link.close();
        }
    }

    /// Calls `is_meant` once for each open connection, and closes the connection if the call returns true.
    pub fn cut_some(&self, mut is_meant: impl FnMut() -> bool) {
        for link in self.shared.state().links.extract_if(.., |_| is_meant()) {
            link.close();
        }
    }

    /// Sets how the proxy treats all open connections. The proxy never sends dropped bytes later.
    pub fn doom(&self, fate: Fate) {
        for link in &self.shared.state().links {
            *link.fate() = fate;
        }
    }

    /// Makes one connection lose its replies. First the proxy forwards `replies` more pieces of replies, on any
    /// connections. A piece is the data that the proxy reads at once. The connection with the next piece then loses
    /// this piece and all later replies.
    pub fn lose_after(&self, replies: usize) {
        self.shared.state().passing = Some(replies);
    }

    /// Sets how the proxy treats connections that it accepts from now on.
    pub fn greet(&self, fate: Fate) {
        self.shared.state().coming = fate;
    }

    /// Returns the number of connections that the proxy has accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }

    /// Returns the number of pieces of replies that the proxy has dropped.
    #[must_use]
    pub fn lost_replies(&self) -> usize {
        self.shared.state().lost_replies
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.cut();
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let mut state = shared.state();
        if state.is_closed {
            break;
        }
        let Ok(client) = client else { continue };
        state.accepted += 1;
        let fate = state.coming;
        drop(state);
        if fate == Fate::Refuse {
            continue;
        }
        let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(30)) else { continue };
        drop(client.set_nodelay(true));
        drop(server.set_nodelay(true));
        let link = Arc::new(Link { fate: Mutex::new(fate), client, server });
        let mut state = shared.state();
        if state.is_closed {
            link.close();
            break;
        }
        state.links.push(Arc::clone(&link));
        drop(state);
        for is_reply in [false, true] {
            let (link, shared) = (Arc::clone(&link), Arc::clone(shared));
            // The thread ends with the connection.
            drop(thread::spawn(move || pump(&link, is_reply, &shared)));
        }
    }
}

/// Copies the bytes of one direction of a connection until the connection ends. `is_reply` selects the direction to the
/// client.
fn pump(link: &Arc<Link>, is_reply: bool, shared: &Shared) {
    let (mut from, mut to) =
        if is_reply { (&link.server, &link.client) } else { (&link.client, &link.server) };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let (delay, rewriting) = {
            let state = shared.state();
            (state.delay, state.rewriting.clone())
        };
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        let piece = &mut buffer[..count];
        if let Some((old, new)) = rewriting.filter(|_| is_reply) {
            rewrite(piece, &old, &new);
        }
        if is_reply {
            let mut state = shared.state();
            match state.passing {
                Some(0) => {
                    state.passing = None;
                    *link.fate() = Fate::LoseReplies;
                }
                Some(left) => state.passing = Some(left - 1),
                None => {}
            }
        }
        let fate = *link.fate();
        if let (Fate::Damage, true, Some(last)) = (fate, is_reply, piece.last_mut()) {
            *last ^= 1;
        }
        match fate {
            Fate::LoseReplies | Fate::Silence if is_reply => shared.state().lost_replies += 1,
            Fate::Silence => {}
            Fate::LoseRequests if !is_reply => {}
            _ if to.write_all(piece).is_err() => break,
            _ => {}
        }
    }
    // If the connection is half open, the other side must see no end.
    if *link.fate() != Fate::Silence {
        link.close();
        shared.state().links.retain(|other| !Arc::ptr_eq(other, link));
    }
}

fn rewrite(piece: &mut [u8], old: &[u8], new: &[u8]) {
    for at in 0..piece.len() {
        if let Some(place) = piece.get_mut(at..at + old.len())
            && place == old
        {
            place.copy_from_slice(new);
        }
    }
}
