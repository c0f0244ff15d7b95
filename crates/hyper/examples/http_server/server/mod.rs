//! An HTTP/1 server on hyper, with tokio for its sockets and an engine for its time.
//!
//! | timeout | begins | ends | a late client is |
//! |---|---|---|---|
//! | header | with the connection, or with the end of the answer before | with the last byte of the header | disconnected |
//! | idle | with each byte in either direction, or with the end of a handler | with the next byte | disconnected |
//! | request | with the last byte of the header | with the last byte of the body; with the answer of the handler | answered 408; answered 503 |
//!
//! The header timeout is hyper's own, on a [`TourbillonTimer`](tourbillon_hyper::TourbillonTimer). hyper counts the
//! wait for the first byte as part of it, so an idle timeout that is longer never passes between requests. A client is
//! not idle while the handler has a request of it: the request timeout is for that. Sending the answer is limited by
//! silence alone, so that a long answer may take its time.
//!
//! A connection has one timer for being idle, moved by each byte: that is a store and a load. A request has another, if
//! its handler does not answer at once.

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

/// How long the server waits, when no connection can be accepted, before it tries again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long each stage of a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a header, and the wait for it.
    pub header: Duration,
    /// Between two bytes, while the client is waited for.
    pub idle: Duration,
    /// For the body of a request and its handler.
    pub request: Duration,
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    engine: Handle<Wakeup>,
    timeouts: Timeouts,
}

impl Server {
    /// Listens on `address`; port 0 is any free port.
    ///
    /// # Errors
    ///
    /// When the system refuses the address.
    pub(crate) async fn bind(
        address: SocketAddr,
        engine: Handle<Wakeup>,
        timeouts: Timeouts,
    ) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, engine, timeouts })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves each connection in a task of its own, and tells `on_end` how it ended. Runs until it is dropped.
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
