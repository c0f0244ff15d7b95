//! Connections that know how far an exchange on them has come.
//!
//! A server may close a kept connection at any moment. If it does so while the next request is on its way, the request
//! fails though nobody has refused it. The connection shows that this has happened: it was used before, and no byte of
//! an answer has come since the request.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::Error;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

/// How far the exchanges on a connection have come. The clones are of the same connection.
#[derive(Clone, Debug, Default)]
struct Progress(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The number of requests of which something was written.
    requests: u64,
    /// Something was read since the last write.
    is_answered: bool,
}

impl Progress {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn written(&self) {
        self.change(|state| {
            state.requests += u64::from(state.requests == 0 || state.is_answered);
            state.is_answered = false;
        });
    }
}

/// Whether a request failed on a connection that was used before, without a byte of an answer.
pub(crate) fn was_closed_at_that_moment(error: &Error) -> bool {
    let mut extras = http::Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    let mut is_so = false;
    if let Some(progress) = extras.get::<Progress>() {
        progress.change(|state| is_so = state.requests > 1 && !state.is_answered);
    }
    is_so
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
