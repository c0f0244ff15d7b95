//! Connections: addresses to listen at, TLS, limits of size and time, and the end of all.
//!
//! The times are kept by the timer engine: a connection has one timer, which each change of its state moves.

mod activity;
mod body;
mod connection;
mod limits;
mod tls;

pub use limits::Limits;
pub use tls::{Tls, TlsError};

use axum::body::Body;
use connection::Answers;
use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use http::{Request, Response};
use std::io;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tourbillon::future::Wakeup;
use tourbillon::{BuildError, Handle, Shards};
use tower_service::Service;

/// The pause after an error of `accept`: the process may have no file descriptors left, for example.
const PAUSE: Duration = Duration::from_millis(50);

/// Sockets that listen.
#[derive(Debug)]
pub struct Listeners(Vec<TcpListener>);

impl Listeners {
    /// Listens at these addresses. A port of zero is any free one.
    ///
    /// # Errors
    ///
    /// Fails with the address that the system refuses.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listeners = Vec::new();
        for &address in addresses {
            listeners.push(TcpListener::bind(address).await.map_err(|error| (address, error))?);
        }
        Ok(Self(listeners))
    }

    /// The addresses, with the ports that the system chose.
    ///
    /// # Errors
    ///
    /// Fails if the system does not return an address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(TcpListener::local_addr).collect()
    }
}

/// A server that accepts connections. All of them end when it is dropped.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    engine: Handle<Wakeup>,
    stop: watch::Sender<bool>,
    /// Changes when the connections are to be dropped.
    abort: watch::Sender<bool>,
    places: Arc<Semaphore>,
}

impl Server {
    /// Begins to accept connections, in tasks of the calling runtime. The service answers the requests: a
    /// [`Router`](axum::Router), for example.
    ///
    /// # Errors
    ///
    /// Fails if the timer engine cannot be started.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start<S>(
        listeners: Listeners,
        service: &S,
        tls: Option<&Tls>,
        limits: Limits,
    ) -> Result<Self, BuildError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let engine = Shards::current()?.futures().clone();
        let places = Arc::new(Semaphore::new(limits.connections as usize));
        let (stop, abort) = (watch::Sender::new(false), watch::Sender::new(false));
        for listener in listeners.0 {
            let acceptor = Acceptor {
                service: service.clone(),
                tls: tls.cloned(),
                limits,
                engine: engine.clone(),
                places: Arc::clone(&places),
                stop: stop.subscribe(),
                abort: abort.subscribe(),
            };
            drop(tokio::spawn(acceptor.run(listener)));
        }
        Ok(Self { limits, engine, stop, abort, places })
    }

    /// Accepts no more connections, and ends each when its request under way has been answered.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until all connections have ended, at most so long. Returns whether they have.
    pub async fn ended(&self, patience: Duration) -> bool {
        let all = self.places.acquire_many(self.limits.connections);
        self.engine.timeout(patience, all).await.is_ok()
    }

    /// Drops all connections.
    pub fn abort(&self) {
        self.stop();
        self.abort.send_replace(true);
    }
}

/// What a task that accepts connections needs.
struct Acceptor<S> {
    service: S,
    tls: Option<Tls>,
    limits: Limits,
    engine: Handle<Wakeup>,
    places: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
    abort: watch::Receiver<bool>,
}

impl<S: Answers> Acceptor<S> {
    async fn run(self, listener: TcpListener) {
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                _stop = stop.wait_for(|stop| *stop) => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _peer)) = accepted else {
                self.engine.sleep(PAUSE).await;
                continue;
            };
            match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => self.serve(stream, place),
                Err(_none) => self.refuse(&stream),
            }
        }
    }

    fn serve(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        // Answers are small and written at once. Without this they are no less right.
        let _small_answers = stream.set_nodelay(true);
        let (service, engine, limits) = (self.service.clone(), self.engine.clone(), self.limits);
        let (stop, mut abort) = (self.stop.clone(), self.abort.clone());
        let tls = self.tls.as_ref().map(Tls::config);
        let connection = async move {
            let Some(config) = tls else {
                return connection::serve(stream, service, engine, limits, stop).await;
            };
            let handshake = TlsAcceptor::from(config).accept(stream);
            if let Ok(Ok(stream)) = engine.timeout(limits.header_timeout, handshake).await {
                connection::serve(stream, service, engine, limits, stop).await;
            }
        };
        drop(tokio::spawn(async move {
            tokio::select! {
                biased;
                _abort = abort.wait_for(|abort| *abort) => {}
                () = connection => {}
            }
            drop(place);
        }));
    }

    /// Closes a connection for which there is no place, with an answer if it can be read.
    fn refuse(&self, stream: &TcpStream) {
        if self.tls.is_none() {
            let _best_effort = stream.try_write(
                b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n",
            );
        }
    }
}
