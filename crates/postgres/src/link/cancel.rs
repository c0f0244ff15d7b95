//! Cancels the statement of a connection, by a request on a connection of its own.

use super::connect::Connect;
use super::tls::{Connector, Fault, Handshake, Stream};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use futures_util::future::join_all;
use std::io::{self, IoSlice};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_postgres::CancelToken;
use tokio_postgres::config::Host;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A request to one server.
type Request<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

impl Connect {
    /// Asks the server to end the statement that runs on the connection of this token, and waits until the server has
    /// done so, for the response timeout at most. The server does not say whether a statement was running.
    ///
    /// The token does not name the server of its connection. So each server gets the request, at each address of its
    /// name. The other servers do not know the token's secret, and do nothing.
    pub(super) async fn cancel(&self, token: &CancelToken) {
        let mut requests: Vec<Request<'_>> = Vec::new();
        for index in 0..self.config.get_hosts().len() {
            requests.push(Box::pin(self.send(token, index)));
        }
        let _best_effort = timeout(self.response_timeout, join_all(requests)).await;
    }

    /// Sends the request to the server number `index` of the address.
    async fn send(&self, token: &CancelToken, index: usize) -> io::Result<()> {
        let config = &self.config;
        let Some(host) = config.get_hosts().get(index) else { return Ok(()) };
        let ports = config.get_ports();
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5_432);
        match (host, config.get_hostaddrs().get(index)) {
            (Host::Unix(folder), _) => {
                let path = folder.join(format!(".s.PGSQL.{port}"));
                self.send_on(token, "", UnixStream::connect(path).await?).await
            }
            (Host::Tcp(name), Some(address)) => {
                self.send_on(token, name, TcpStream::connect((*address, port)).await?).await
            }
            (Host::Tcp(name), None) => {
                let addresses = lookup_host((name.as_str(), port)).await?;
                let requests = addresses
                    .map(async |address| self.send_on(token, name, TcpStream::connect(address).await?).await);
                join_all(requests).await.into_iter().collect()
            }
        }
    }

    /// Sends the request on a connection to the host of this name.
    async fn send_on<S>(&self, token: &CancelToken, host: &str, wire: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mode = self.mode().map_err(io::Error::other)?;
        // The token says whether its connection has TLS. So the request goes the same way.
        let handshake = Connector::new(mode, self.tls.clone(), self.is_direct()).handshake(host);
        token.cancel_query_raw(Lasting(wire), OfRequest(handshake)).await.map_err(io::Error::other)
    }
}

/// A connection that the other side ends: a shutdown waits for this end.
///
/// The driver ends the connection of a request at once. pgbouncer then forgets a request that it has not passed on yet,
/// and pgbouncer 1.18 has ended itself by an error when it had just passed the request on. libpq waits, too.
struct Lasting<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Lasting<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lasting<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Lasting<Stream<S>> {
    fn channel_binding(&self) -> ChannelBinding {
        self.0.channel_binding()
    }
}

/// The handshake of the connection of a request.
struct OfRequest(Handshake);

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> TlsConnect<S> for OfRequest {
    type Stream = Lasting<Stream<S>>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Fault>> + Send>>;

    fn connect(self, wire: S) -> Self::Future {
        Box::pin(async move { self.0.connect(wire).await.map(Lasting) })
    }
}
