//! Wraps the stream of a connection in order to record its reads and writes.

use super::activity::Activity;
use super::stream::Stream;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection's stream that records reads and writes in the connection's [`Activity`]. If the client closes its half
/// of the connection, a read does not return the end of the stream at once. The read first waits until
/// [`Activity::poll_end`] is ready, for example because the running request must be answered before.
#[derive(Debug)]
pub(super) struct Observed {
    stream: Stream,
    activity: Arc<Activity>,
    has_ended: bool,
}

impl Observed {
    pub(super) fn new(stream: Stream, activity: Arc<Activity>) -> Self {
        Self { stream, activity, has_ended: false }
    }
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if !self.has_ended {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            if buffer.filled().len() > before {
                self.activity.note_read();
                return Poll::Ready(Ok(()));
            }
            // A read into a full buffer gets no bytes either, and is not the end of the stream.
            self.has_ended = buffer.remaining() > 0;
        }
        self.activity.poll_end(cx).map(Ok)
    }
}

impl AsyncWrite for Observed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.note_write(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.activity.note_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // TLS accepts a write although the socket is full. It waits for the socket in `poll_flush`.
        self.activity.note_write(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
