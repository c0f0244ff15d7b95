//! Connections that know how far an exchange on them has come.
//!
//! A server may close a kept connection at any moment. If it does so while the next request is on its way, the request
//! fails though nobody has refused it. The connection shows that this has happened: it was used before, and no byte of
//! an answer has come since the request.
//!
//! A request that is handed to a connection in the moment of its end may be lost between the two: the connection's task
//! has emptied its channel, and what is put there afterwards stays as long as the sender waits for an answer (hyper
//! 1.9, once in some ten thousand requests to a receiver that closes when the next request comes). So a caller waits
//! for the end of the connection as well ([`lost`]).

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use http::{Extensions, Uri};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::Error;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tower_service::Service;

/// The time within which a request fails whose connection has ended.
const GRACE: Duration = Duration::from_millis(100);

/// How far the exchanges on a connection have come. The clones are of the same connection.
#[derive(Clone, Debug, Default)]
struct Progress(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The number of requests of which something was written.
    requests: u64,
    /// Something was read since the last write.
    is_answered: bool,
    is_closed: bool,
}

impl Progress {
    fn of(connected: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        extras.remove()
    }

    /// Nobody waits for the change, unless it is the end.
    fn change(&self, change: impl FnOnce(&mut State)) {
        self.0.send_if_modified(|state| {
            change(state);
            state.is_closed
        });
    }

    fn written(&self) {
        self.change(|state| {
            state.requests += u64::from(state.requests == 0 || state.is_answered);
            state.is_answered = false;
        });
    }

    /// Whether the connection was used before, and no byte of an answer has come since the last request.
    fn has_failed_at_once(&self) -> bool {
        let state = *self.0.borrow();
        state.requests > 1 && !state.is_answered
    }
}

/// Whether a request was not sent, or failed on a connection that was used before, without a byte of an answer.
pub(crate) fn is_no_attempt(error: &Error) -> bool {
    let cause = core::error::Error::source(error).and_then(|cause| cause.downcast_ref::<hyper::Error>());
    let progress = || error.connect_info().and_then(Progress::of);
    cause.is_some_and(hyper::Error::is_canceled) || progress().is_some_and(|it| it.has_failed_at_once())
}

/// Waits until the request's connection has ended, and for what the request should come to by then.
pub(crate) async fn lost(mut capture: CaptureConnection) {
    let progress = capture.wait_for_connection_metadata().await.as_ref().and_then(Progress::of);
    match progress {
        // The sender is one of the connection's own, and is there.
        Some(progress) => _ = progress.0.subscribe().wait_for(|state| state.is_closed).await.is_ok(),
        None => core::future::pending().await,
    }
    tokio::time::sleep(GRACE).await;
}

/// A connector whose connections know how far their exchanges have come.
#[derive(Clone)]
pub(crate) struct Watched<C>(pub(crate) C);

impl<C> Service<Uri> for Watched<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = TokioIo<Wire<C::Response>>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async {
            let inner = TokioIo::new(connecting.await?);
            Ok(TokioIo::new(Wire { inner, progress: Progress::default() }))
        })
    }
}

/// A connection of [`Watched`].
pub(crate) struct Wire<T> {
    inner: TokioIo<T>,
    progress: Progress,
}

impl<T> Drop for Wire<T> {
    fn drop(&mut self) {
        self.progress.change(|state| state.is_closed = true);
    }
}

impl<T: Connection> Connection for Wire<T> {
    fn connected(&self) -> Connected {
        self.inner.inner().connected().extra(self.progress.clone())
    }
}

impl<T: Read + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.progress.change(|state| state.is_answered = true);
        }
        read
    }
}

impl<T: Write + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.progress.written();
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.progress.written();
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }
}
