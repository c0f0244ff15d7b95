//! An HTTP/1 server on hyper, with tokio for its sockets and an engine for its time.
//!
//! | timeout | begins | ends | a late client is |
//! |---|---|---|---|
//! | header | with the connection, or with the end of the answer before | with the last byte of the header | disconnected |
//! | idle | with each byte in either direction, or with the end of a handler | with the next byte | disconnected |
//! | request | with the last byte of the header | with the last byte of the body; with the answer of the handler | answered 408; answered 503 |
//!
//! The header timeout is hyper's own, on a [`TourbillonTimer`](tourbillon_hyper::TourbillonTimer). hyper includes the
//! wait for the first byte in this timeout. So an idle timeout that is longer never passes between requests. A client
//! is not idle while a handler works on its request: the request timeout limits the handler. Only silence limits the
//! sending of an answer, so a long answer may take its time.
//!
//! A connection has one timer for the idle timeout. Each byte moves that timer, which costs a store and a load. A
//! request has a second timer, if its handler does not answer at once.

mod activity;
mod connection;
mod content;
mod routes;

pub(crate) use connection::Ending;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tourbillon::Handle;
use tourbillon::future::Wakeup;

/// The pause after a connection could not be accepted, before the server accepts again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long each stage of a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// How long a header may take, including the wait for its first byte.
    pub header: Duration,
    /// How long a client may be silent while the server waits for it.
    pub idle: Duration,
    /// How long the body of a request and its handler may take together.
    pub request: Duration,
}

/// A server that listens at an address. The server accepts connections only while [`run`](Self::run) runs.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    engine: Handle<Wakeup>,
    timeouts: Timeouts,
}

impl Server {
    /// Listens on `address`. Port 0 stands for any free port.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses the address.
    pub(crate) async fn bind(
        address: SocketAddr,
        engine: Handle<Wakeup>,
        timeouts: Timeouts,
    ) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, engine, timeouts })
    }

    /// Returns the address on which the server listens.
    ///
    /// # Errors
    ///
    /// Fails if the system does not tell the address.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves each connection in a task of its own. Calls `on_end` when a connection has ended. Runs until the future
    /// is dropped.
    pub(crate) async fn run(self, on_end: impl Fn(SocketAddr, Ending) + Send + Sync + 'static) -> Infallible {
        let on_end = Arc::new(on_end);
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else {
                self.engine.sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (engine, on_end) = (self.engine.clone(), Arc::clone(&on_end));
            let connection = connection::serve(stream, engine, self.timeouts);
            drop(tokio::spawn(async move { on_end(peer, connection.await) }));
        }
    }
}
