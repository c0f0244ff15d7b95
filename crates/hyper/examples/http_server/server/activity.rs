//! Keeps since when the client of a connection has been silent.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tourbillon::future::Wakeup;
use tourbillon::{Handle, Timestamp};

/// Whether a connection waits for a handler, and when bytes last came or went. Only the connection's task uses this
/// value, so its atomics need no ordering.
#[derive(Debug)]
pub(super) struct Activity {
    engine: Handle<Wakeup>,
    last_sign: AtomicU64,
    is_handling: AtomicBool,
}

impl Activity {
    pub(super) fn new(engine: Handle<Wakeup>) -> Self {
        let last_sign = AtomicU64::new(engine.now().as_nanos());
        Self { engine, last_sign, is_handling: AtomicBool::new(false) }
    }

    /// Returns the moment from which on the server has waited for the client. Returns the end of time while a handler
    /// works.
    pub(super) fn silent_since(&self) -> Timestamp {
        if self.is_handling.load(Ordering::Relaxed) {
            return Timestamp::MAX;
        }
        Timestamp::from_nanos(self.last_sign.load(Ordering::Relaxed))
    }

    fn note(&self) {
        self.last_sign.store(self.engine.now().as_nanos(), Ordering::Relaxed);
    }
}

/// Marks the connection as handling a request until this value is dropped.
#[derive(Debug)]
pub(super) struct Handling(Arc<Activity>);

impl Handling {
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        activity.is_handling.store(true, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.0.is_handling.store(false, Ordering::Relaxed);
        self.0.note();
    }
}

/// A socket for hyper. The socket notes the time whenever bytes come or go.
#[derive(Debug)]
pub(super) struct ObservedStream {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl ObservedStream {
    pub(super) fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn note_some(&self, count: usize) {
        if count > 0 {
            self.activity.note();
        }
    }
}

impl Read for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // The bytes are copied, since hyper lends its uninitialised memory only to unsafe code.
        let mut bytes = [0; 4_096];
        let room = cursor.remaining().min(bytes.len());
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        self.note_some(buffer.filled().len());
        Poll::Ready(Ok(()))
    }
}

impl Write for ObservedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.note_some(count);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tourbillon::Builder;

    #[test]
    fn silence_begins_with_the_end_of_a_handler_and_not_within() {
        let mut engine = Builder::new().driven_futures().unwrap();
        let start = engine.handle().now();
        let activity = Arc::new(Activity::new(Handle::clone(engine.handle())));
        assert_eq!(activity.silent_since(), start);
        let handling = Handling::begin(&activity);
        engine.advance(Duration::from_secs(7));
        assert_eq!(activity.silent_since(), Timestamp::MAX);
        drop(handling);
        engine.advance(Duration::from_secs(1));
        assert_eq!(activity.silent_since(), start + Duration::from_secs(7));
    }
}
