//! Wraps connections in order to record the progress of requests on them.
//!
//! A server may close a kept connection at any moment. If the next request is on its way at that moment, the request
//! fails although the server has not refused it. Three facts indicate this: the connection was used before, no byte of
//! an answer has arrived since the request, and the connection ended shortly after the request was written. The facts
//! are the same if the receiver has read the request and crashed. So the request is sent once more, on a new
//! connection, but never a third time. A request that the receiver must not get twice has a connection of its own, and
//! is repeated only if no byte was written to the connection ([`Exchange::has_written`]).
//!
//! A request may be lost if it reaches a connection just as the connection ends. The connection's task has then
//! already emptied its channel, and the request stays in the channel while the sender waits for an answer. This
//! happened with hyper 1.9, about once in ten thousand requests to a receiver that closes the connection when the next
//! request arrives. So a caller also waits for the end of the connection ([`lost`]).

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
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
use tokio::time::Instant;
use tower_service::Service;

/// The time for which a request may still get an outcome after its connection has ended. After this time the request
/// counts as lost.
const GRACE: Duration = Duration::from_millis(100);
/// The greatest number of bytes that a server may send for the head of an answer, including informational answers
/// (1xx). So the limit also bounds the number of informational answers.
const HEAD: usize = 64 << 10;
/// The time after the last write to a connection during which the request counts as on its way to the server. If the
/// connection ends within this time, the request may be sent once more ([`Exchange::met_a_close`]).
const SHORTLY: Duration = Duration::from_secs(1);

/// The progress of a connection: the bytes read, the last write and the end. Clones refer to the same connection.
#[derive(Clone, Debug, Default)]
struct Progress(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The number of bytes that were read from the connection until now.
    read: usize,
    /// The value of `read` at the last write.
    read_before_write: usize,
    written: Option<Instant>,
    is_closed: bool,
}

impl Progress {
    fn of(connected: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        extras.remove()
    }

    /// Changes the recorded progress of the connection. Wakes waiting tasks only if the connection has closed.
    fn change(&self, change: impl FnOnce(&mut State)) {
        self.0.send_if_modified(|state| {
            change(state);
            state.is_closed
        });
    }

    fn written(&self) {
        self.change(|state| {
            state.written = Some(Instant::now());
            state.read_before_write = state.read;
        });
    }
}

/// The connection that a request uses, and its state before the request.
pub(crate) struct Exchange {
    progress: Progress,
    /// The number of bytes that were read from the connection before this request.
    read_before: usize,
}

impl Exchange {
    /// Returns whether the request probably failed because the server closed a reused connection while the request was
    /// on its way to the server. Must be called at once after the request has failed.
    pub(crate) fn met_a_close(&self) -> bool {
        let state = *self.progress.0.borrow();
        let ended_shortly = state.written.is_some_and(|written| written.elapsed() <= SHORTLY);
        self.read_before > 0 && state.read == self.read_before && ended_shortly
    }

    /// Returns whether a byte may have been written to the connection, by this request or by an earlier one.
    pub(crate) fn has_written(&self) -> bool {
        self.progress.0.borrow().written.is_some()
    }
}

/// Returns whether the error shows that no byte of the request was sent.
pub(crate) fn is_unsent(error: &Error) -> bool {
    let cause = core::error::Error::source(error).and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_canceled)
}

/// Waits until the request's connection has ended, and then for the duration [`GRACE`]. A request without an outcome by
/// then is lost. Stores the connection in `exchange` as soon as the request has a connection.
pub(crate) async fn lost(mut capture: CaptureConnection, exchange: &mut Option<Exchange>) {
    let progress = capture.wait_for_connection_metadata().await.as_ref().and_then(Progress::of);
    let Some(progress) = progress else { return core::future::pending().await };
    let mut states = progress.0.subscribe();
    let read_before = states.borrow().read;
    *exchange = Some(Exchange { progress, read_before });
    // This wait cannot fail, since the exchange holds the sender.
    let _is_closed = states.wait_for(|state| state.is_closed).await.is_ok();
    tokio::time::sleep(GRACE).await;
}

/// A connector that records the progress of its connections: the bytes read, the last write and the end. It also ends
/// a connection on which a server sends without end. Otherwise the client would parse the input until the attempt's
/// timeout, and use a whole core.
#[derive(Clone)]
pub(crate) struct Watched<C> {
    inner: C,
    connections: Arc<Connections>,
    most: usize,
}

/// The numbers of open connections and of running requests.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicUsize,
    running: AtomicUsize,
}

impl Connections {
    /// Returns an estimate of the number of open connections that no request uses.
    pub(crate) fn idle(&self) -> usize {
        // Ordering: Relaxed, here and below. The numbers only estimate how many connections are idle.
        self.open.load(Ordering::Relaxed).saturating_sub(self.running.load(Ordering::Relaxed))
    }

    /// Counts a running request until the returned value is dropped.
    pub(crate) fn begin_request(&self) -> Counted<'_> {
        Counted::new(&self.running)
    }
}

/// Adds one to a counter until the value is dropped.
pub(crate) struct Counted<'c>(&'c AtomicUsize);

impl<'c> Counted<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C> Watched<C> {
    /// Wraps the connector `inner`. `body` is the greatest number of bytes that the caller reads from an answer's body.
    /// If the server sends more than `body + HEAD` bytes between two writes of the client, the connection fails.
    pub(crate) fn new(inner: C, connections: Arc<Connections>, body: usize) -> Self {
        Self { inner, connections, most: body.saturating_add(HEAD) }
    }
}

impl<C> Service<Uri> for Watched<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = TokioIo<Wire<C::Response>>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, most) = (self.inner.call(uri), self.most);
        let connections = Arc::clone(&self.connections);
        Box::pin(async move {
            let inner = TokioIo::new(connecting.await?);
            connections.open.fetch_add(1, Ordering::Relaxed);
            Ok(TokioIo::new(Wire { inner, progress: Progress::default(), connections, most }))
        })
    }
}

/// A connection that a [`Watched`] connector has made. The connection records the number of bytes read, the last write
/// and its own end in the field `progress`.
pub(crate) struct Wire<T> {
    inner: TokioIo<T>,
    progress: Progress,
    /// The numbers that count this connection until it is dropped.
    connections: Arc<Connections>,
    /// The greatest number of bytes that the server may send between two writes of the client. After more bytes, the
    /// next read fails.
    most: usize,
}

impl<T> Drop for Wire<T> {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
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
        let state = *self.progress.0.borrow();
        if state.read - state.read_before_write > self.most {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the answer does not end")));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.progress.change(|state| state.read += bytes);
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
