//! The handshake of a connection, and its stream.

use super::binding::end_point;
use super::client::{PROTOCOL, client_config};
use super::fault::Fault;
use super::settings::{Mode, Tls};
use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use rustls::pki_types::ServerName;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Makes the handshakes of one attempt to connect, which may try several addresses.
#[derive(Clone)]
pub(crate) struct Connector {
    mode: Mode,
    tls: Tls,
    is_direct: bool,
    record: Arc<Record>,
}

/// The events of one attempt to connect.
#[derive(Default)]
struct Record {
    /// Whether a handshake with a server has begun.
    has_begun: AtomicBool,
    /// The fault of the last handshake that failed.
    fault: Mutex<Option<Fault>>,
}

impl Connector {
    pub(crate) fn new(mode: Mode, tls: Tls, is_direct: bool) -> Self {
        Self { mode, tls, is_direct, record: Arc::default() }
    }

    pub(crate) fn has_begun(&self) -> bool {
        // Relaxed order suffices, because the flag guards no other data.
        self.record.has_begun.load(Ordering::Relaxed)
    }

    /// Returns the fault of the last handshake that failed.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.record.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the handshake of a connection to this host.
    pub(crate) fn handshake(&self, host: &str) -> Handshake {
        Handshake { connector: self.clone(), host: host.to_owned() }
    }

    async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: String,
        socket: S,
    ) -> Result<Stream<S>, Fault> {
        let name = ServerName::try_from(host)
            .map_err(|_| Fault::new("for TLS, the host must be a DNS name or an IP address"))?;
        let (mode, tls) = (self.mode, self.tls.clone());
        // Files may be on a slow disk.
        let config = tokio::task::spawn_blocking(move || client_config(mode, &tls)).await;
        let config = config.map_err(|error| Fault::new(error.to_string()))??;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
        let stream = stream.map_err(|error| Fault::of_handshake(&error))?;
        // A server that does not confirm the name may be a server of another protocol.
        if self.is_direct && stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
            return Err(Fault::new(
                "the server has not said that it is PostgreSQL (ALPN), as sslnegotiation=direct needs",
            ));
        }
        Ok(Stream(stream))
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Infallible> {
        Ok(self.handshake(host))
    }
}

/// A handshake with one server.
pub(crate) struct Handshake {
    connector: Connector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Stream<S>, Fault>> + Send>>;

    fn connect(self, socket: S) -> Self::Future {
        Box::pin(async move {
            let record = Arc::clone(&self.connector.record);
            record.has_begun.store(true, Ordering::Relaxed);
            self.connector.shake(self.host, socket).await.inspect_err(|fault| {
                *record.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.clone());
            })
        })
    }
}

/// A connection with TLS.
pub(crate) struct Stream<S = Socket>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        certificate
            .and_then(|certificate| end_point(certificate))
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
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
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
