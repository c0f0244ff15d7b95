//! The connector of the client. It resolves a name, checks the resulting addresses, and connects only to addresses that
//! have passed the check.

use crate::guard::{Blocked, Guard};
use crate::names::Resolver;
use core::future::Future;
use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use http::Uri;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

/// A connector that connects only to addresses that the guard permits.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) guard: Arc<Guard>,
    pub(crate) resolver: Resolver,
    pub(crate) timeout: Duration,
}

impl Dialler {
    async fn dial(self, uri: Uri) -> io::Result<TokioIo<TcpStream>> {
        let invalid = |fault: &'static str| io::Error::new(io::ErrorKind::InvalidInput, fault);
        let host = uri.host().ok_or_else(|| invalid("no host"))?.trim_matches(['[', ']']).to_owned();
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        let addresses = match host.parse() {
            Ok(literal) => vec![SocketAddr::new(literal, port)],
            Err(_) => timeout(self.timeout, (self.resolver)(&host, port)).await??,
        };
        self.guard.check_all(&addresses).map_err(io::Error::other)?;
        let mut last = invalid("no address");
        for address in addresses {
            match timeout(self.timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(error)) => last = error,
                Err(elapsed) => last = elapsed.into(),
            }
        }
        Err(last)
    }
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().dial(uri))
    }
}

/// Returns the guard's refusal of an address, if the error or one of its causes is such a refusal.
pub(crate) fn blocked_in(error: &(dyn core::error::Error + 'static)) -> Option<Blocked> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(blocked) = error.downcast_ref::<Blocked>() {
            return Some(*blocked);
        }
        // The `source` of an `io::Error` skips the error inside it, so that error is checked here.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(blocked) = inner.and_then(|inner| inner.downcast_ref::<Blocked>()) {
            return Some(*blocked);
        }
        next = error.source();
    }
    None
}
