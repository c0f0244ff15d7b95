//! The connector of the client. It resolves a name, checks the resulting addresses, and connects only to addresses that
//! have passed the check.

use crate::guard::{Blocked, Guard};
use crate::names::Resolver;
use crate::shortage::Shortage;
use core::future::Future;
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tower_service::Service;

/// A connector that connects only to addresses that the guard permits.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) guard: Arc<Guard>,
    pub(crate) resolver: Resolver,
    pub(crate) timeout: Duration,
}

impl Dialler {
    async fn dial(self, uri: Uri) -> io::Result<Dialled> {
        let invalid = |fault: &'static str| io::Error::new(io::ErrorKind::InvalidInput, fault);
        let host = uri.host().ok_or_else(|| invalid("no host"))?.trim_matches(['[', ']']).to_owned();
        let has_tls = uri.scheme_str() == Some("https");
        let default = if has_tls { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        let addresses = match host.parse() {
            Ok(literal) => vec![SocketAddr::new(literal, port)],
            Err(_) => match timeout(self.timeout, (self.resolver)(&host, port)).await? {
                Ok(addresses) => addresses,
                Err(error) => return Err(Shortage::of_socket(&error).map_or(error, io::Error::other)),
            },
        };
        self.guard.check_all(&addresses).map_err(io::Error::other)?;
        let mut last = invalid("no address");
        for address in addresses {
            match timeout(self.timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    let silence = has_tls.then(|| Box::pin(sleep(self.timeout)));
                    return Ok(Dialled { stream: TokioIo::new(stream), silence });
                }
                Ok(Err(error)) => match Shortage::of(&error, address) {
                    // Another address would find the same shortage.
                    Some(shortage) => return Err(io::Error::other(shortage)),
                    None => last = error,
                },
                Err(elapsed) => last = elapsed.into(),
            }
        }
        Err(last)
    }
}

impl Service<Uri> for Dialler {
    type Response = Dialled;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().dial(uri))
    }
}

/// A connection to a receiver.
pub(crate) struct Dialled {
    stream: TokioIo<TcpStream>,
    /// The time limit for the receiver's first byte in the TLS handshake. If it ends before this byte, the connection
    /// fails. `None` after this byte, and for a connection without TLS.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Read for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.silence = None;
        } else if let Some(silence) = &mut self.silence
            && silence.as_mut().poll(context).is_ready()
        {
            let fault = "the receiver does not answer the handshake of TLS";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, fault)));
        }
        read
    }
}

impl Write for Dialled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        self.stream.inner().connected()
    }
}

/// Returns the guard's refusal of an address, if the error or one of its causes is such a refusal.
pub(crate) fn blocked_in(error: &(dyn core::error::Error + 'static)) -> Option<Blocked> {
    find(error)
}

/// Returns the shortage of this machine, if the error or one of its causes is a [`Shortage`].
pub(crate) fn shortage_in(error: &(dyn core::error::Error + 'static)) -> Option<Shortage> {
    find(error)
}

/// Returns the first error of the type `T` among the error and its causes.
fn find<T: core::error::Error + Copy + 'static>(error: &(dyn core::error::Error + 'static)) -> Option<T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(*found);
        }
        // The `source` of an `io::Error` skips the error inside it, so that error is checked here.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| inner.downcast_ref::<T>()) {
            return Some(*found);
        }
        next = error.source();
    }
    None
}
