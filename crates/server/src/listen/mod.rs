//! Accepts connections and serves them, with TLS and limits, until the server stops.
//!
//! The timer engine measures all times. Each connection has a single timer, which is set again when the connection's
//! state changes.

mod activity;
mod body;
mod connection;
mod limits;
mod observed;
mod places;
mod stream;
mod waiting;

pub use limits::Limits;

use crate::http::Interface;
use crate::service::Service;
use crate::task;
use crate::tls::Tls;
use activity::Activity;
use core::net::SocketAddr;
use core::time::Duration;
use places::{Place, Places};
use std::io;
use std::sync::Arc;
use stream::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tourbillon::future::Wakeup;
use tourbillon::{BuildError, Handle, Shards};

/// The pause after a failed attempt to accept a connection, for example because the process has no free file
/// descriptor.
const PAUSE: Duration = Duration::from_millis(50);

/// The time between two checks for ended connections. If enough connections have ended, their memory goes back to the
/// system.
const LOOK: Duration = Duration::from_secs(10);

/// The greatest number of connections of probes. They have places of their own, so that probes cannot take the places
/// of other clients.
const MOST_PROBES: u32 = 64;

/// The sockets on which a server listens.
#[derive(Debug)]
pub struct Listeners(Vec<TcpListener>);

impl Listeners {
    /// Listens at the addresses. For port zero, the system chooses a free port.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses an address. The error names the refused address.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listeners = Vec::new();
        for &address in addresses {
            listeners.push(TcpListener::bind(address).await.map_err(|error| (address, error))?);
        }
        Ok(Self(listeners))
    }

    /// Returns the addresses of the sockets. For port zero, the address has the port that the system has chosen.
    ///
    /// # Errors
    ///
    /// Fails if the system does not tell the address of a socket.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(TcpListener::local_addr).collect()
    }
}

/// A server that accepts connections and serves their requests. Dropping the value ends all its connections.
#[derive(Debug)]
pub struct Server {
    engine: Handle<Wakeup>,
    stop: watch::Sender<bool>,
    /// Becomes true when the server must drop all connections at once.
    abort: watch::Sender<bool>,
    places: Arc<Places>,
}

impl Server {
    /// Begins to accept connections, in tasks of the calling runtime. Each connection serves the HTTP interface of
    /// `service`.
    ///
    /// # Errors
    ///
    /// Fails if the timer engine cannot be started.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start(
        listeners: Listeners,
        service: &Service,
        tls: Option<&Tls>,
        limits: Limits,
    ) -> Result<Self, BuildError> {
        Self::serve(listeners, &crate::http::interface(service.clone()), tls, limits)
    }

    /// Begins to accept connections of probes, as [`start`](Self::start) does. They get `/healthz`, `/readyz` and
    /// `/metrics` without a token, and nothing else.
    pub(crate) fn start_probes(
        listeners: Listeners,
        service: &Service,
        limits: Limits,
    ) -> Result<Self, BuildError> {
        let limits = Limits { connections: limits.connections.min(MOST_PROBES), ..limits };
        Self::serve(listeners, &crate::http::probes(service.clone()), None, limits)
    }

    fn serve(
        listeners: Listeners,
        interface: &Interface,
        tls: Option<&Tls>,
        limits: Limits,
    ) -> Result<Self, BuildError> {
        let engine = Shards::current()?.futures().clone();
        let places = Arc::new(Places::new(limits.connections as usize));
        let (stop, abort) = (watch::Sender::new(false), watch::Sender::new(false));
        for listener in listeners.0 {
            let acceptor = Acceptor {
                interface: interface.clone(),
                tls: tls.cloned(),
                limits,
                engine: engine.clone(),
                places: Arc::clone(&places),
                stop: stop.subscribe(),
                abort: abort.subscribe(),
            };
            task::start(acceptor.run(listener));
        }
        task::start(give_memory_back(Arc::clone(&places), engine.clone(), stop.subscribe()));
        Ok(Self { engine, stop, abort, places })
    }

    /// Stops accepting connections. Each open connection ends once its running requests are answered.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for at most the time `patience` until all connections have ended. Returns whether all have ended.
    pub async fn ended(&self, patience: Duration) -> bool {
        self.engine.timeout(patience, self.places.ended()).await.is_ok()
    }

    /// Drops all connections at once, even connections with running requests.
    pub fn abort(&self) {
        self.stop();
        self.abort.send_replace(true);
    }
}

/// Gives memory back to the system each time many connections have ended. Runs until the server stops.
async fn give_memory_back(places: Arc<Places>, engine: Handle<Wakeup>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            biased;
            _stop = stop.wait_for(|stop| *stop) => return,
            () = engine.sleep(LOOK) => {}
        }
        if places.have_emptied() {
            // This call may block for some time.
            let _was_any = task::blocking(tourbillon_heap::give_back).await;
        }
    }
}

/// Accepts the connections of one listening socket, and starts a task for each connection.
struct Acceptor {
    interface: Interface,
    tls: Option<Tls>,
    limits: Limits,
    engine: Handle<Wakeup>,
    places: Arc<Places>,
    stop: watch::Receiver<bool>,
    abort: watch::Receiver<bool>,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                _stop = stop.wait_for(|stop| *stop) => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                self.engine.sleep(PAUSE).await;
                continue;
            };
            let activity = Arc::new(Activity::new(self.engine.clone()));
            match self.places.take(peer.ip(), activity) {
                Some(place) => self.serve(stream, place),
                None => self.refuse(&stream),
            }
        }
    }

    fn serve(&self, stream: TcpStream, mut place: Place) {
        // An error is ignored. Without this option, small answers are only sent a little later.
        let _small_answers = stream.set_nodelay(true);
        let (interface, engine, limits) = (self.interface.clone(), self.engine.clone(), self.limits);
        let (stop, mut abort) = (self.stop.clone(), self.abort.clone());
        let tls = self.tls.as_ref().map(Tls::config);
        // The future is boxed, so the task holds a single copy of it.
        let connection = Box::pin(async move {
            let stream = match tls {
                None => Stream::Plain(stream),
                Some(config) => {
                    let handshake = TlsAcceptor::from(config).accept(stream);
                    let mut stopping = stop.clone();
                    let stream = tokio::select! {
                        biased;
                        stream = engine.timeout(limits.header_timeout, handshake) => stream,
                        () = place.left() => return,
                        _stop = stopping.wait_for(|stop| *stop) => return,
                    };
                    let Ok(Ok(stream)) = stream else { return };
                    Stream::Tls(Box::new(stream))
                }
            };
            connection::serve(stream, interface, engine, limits, stop, &mut place).await;
        });
        drop(tokio::spawn(async move {
            tokio::select! {
                biased;
                _abort = abort.wait_for(|abort| *abort) => {}
                () = connection => {}
            }
        }));
    }

    /// Refuses a new connection, because no place is free. A client without TLS gets an answer with the status 503.
    fn refuse(&self, stream: &TcpStream) {
        if self.tls.is_none() {
            // The write must not wait for the client, because this task also accepts all other connections.
            let _best_effort = stream.try_write(
                b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n",
            );
        }
    }
}
