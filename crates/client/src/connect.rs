//! Makes connections, by TCP and TLS, within a single time limit.

use crate::error::{BuildError, with_causes};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tower_service::Service;

/// A connector that resolves the name of a host, and connects to its address. For an `https` URL, the connector also
/// performs the TLS handshake.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    timeout: Duration,
}

impl Connector {
    /// Makes a connector that trusts the web's certificate authorities and, in addition, these certificates.
    pub(crate) fn new(
        certificates: &[CertificateDer<'static>],
        timeout: Duration,
    ) -> Result<Self, BuildError> {
        let fault = |error: rustls::Error| BuildError::Certificate(error.to_string().into());
        let mut roots = rustls::RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for certificate in certificates {
            roots.add(certificate.clone()).map_err(fault)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(fault)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let inner = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self { inner, timeout })
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let timeout = self.timeout;
        Box::pin(async move {
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected.map_err(|error| io::Error::other(with_causes(&*error))),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time")),
            }
        })
    }
}
