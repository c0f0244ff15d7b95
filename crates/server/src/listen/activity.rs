//! What a connection waits for, and since when.
//!
//! | the connection | its time begins with | and lasts |
//! |---|---|---|
//! | has sent no request yet | the connection | the header timeout |
//! | has sent a part of a header (HTTP/1) | the part's first byte | the header timeout |
//! | has no request under way | the end of the last answer | the idle timeout |
//! | has a request under way | | without end: bodies have their own timeout |
//! | takes no byte of an answer | the first write that waits | the write timeout |
//!
//! A connection with HTTP/2 that has no request under way is idle whatever frames it sends.

use super::limits::Limits;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tourbillon::future::Wakeup;
use tourbillon::{Handle, Timestamp};

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    engine: Handle<Wakeup>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The requests that are under way, until the last byte of their answers.
    under_way: usize,
    has_sent_a_request: bool,
    is_http2: bool,
    /// The connection's start, or the end of the last answer.
    quiet_since: Timestamp,
    /// The first byte after that.
    first_byte: Option<Timestamp>,
    /// The first write that waits for the client.
    blocked_since: Option<Timestamp>,
}

impl Activity {
    pub(super) fn new(engine: Handle<Wakeup>) -> Self {
        let state = State {
            under_way: 0,
            has_sent_a_request: false,
            is_http2: false,
            quiet_since: engine.now(),
            first_byte: None,
            blocked_since: None,
        };
        Self { engine, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment at which the connection's patience ends, if it has an end.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Timestamp> {
        let state = self.lock();
        let blocked = state.blocked_since.map(|since| since + limits.write_timeout);
        let waiting = (state.under_way == 0).then(|| match state.first_byte {
            _ if !state.has_sent_a_request => state.quiet_since + limits.header_timeout,
            Some(first) if !state.is_http2 => first + limits.header_timeout,
            _ => state.quiet_since + limits.idle_timeout,
        });
        match (blocked, waiting) {
            (Some(blocked), Some(waiting)) => Some(blocked.min(waiting)),
            (blocked, waiting) => blocked.or(waiting),
        }
    }

    fn note_read(&self) {
        let mut state = self.lock();
        if state.under_way == 0 && state.first_byte.is_none() {
            state.first_byte = Some(self.engine.now());
        }
    }

    fn note_write(&self, is_blocked: bool) {
        let mut state = self.lock();
        if !is_blocked {
            state.blocked_since = None;
        } else if state.blocked_since.is_none() {
            state.blocked_since = Some(self.engine.now());
        }
    }
}

/// A request is under way for as long as this is alive.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Activity>);

impl UnderWay {
    pub(super) fn begin(activity: &Arc<Activity>, is_http2: bool) -> Self {
        let mut state = activity.lock();
        state.under_way += 1;
        state.has_sent_a_request = true;
        state.is_http2 = is_http2;
        state.first_byte = None;
        drop(state);
        Self(Arc::clone(activity))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        state.quiet_since = self.0.engine.now();
    }
}

/// A stream that notes what it waits for.
#[derive(Debug)]
pub(super) struct Observed<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Observed<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.activity.note_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
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
        if flushed.is_pending() {
            self.activity.note_write(true);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use tourbillon::Builder;

    #[test]
    fn each_stage_of_a_connection_has_its_time() {
        let mut engine = Builder::new().driven_futures().unwrap();
        let second = Duration::from_secs(1);
        let limits = Limits {
            header_timeout: 10 * second,
            idle_timeout: 75 * second,
            write_timeout: 30 * second,
            ..Limits::default()
        };
        let activity = Arc::new(Activity::new(Handle::clone(engine.handle())));
        let start = engine.handle().now();
        assert_eq!(activity.deadline(&limits), Some(start + 10 * second), "no request yet");
        engine.advance(second);
        activity.note_read();
        assert_eq!(activity.deadline(&limits), Some(start + 10 * second), "the first byte buys no time");

        let request = UnderWay::begin(&activity, false);
        assert_eq!(activity.deadline(&limits), None, "a request is under way");
        activity.note_write(true);
        engine.advance(second);
        activity.note_write(true);
        assert_eq!(activity.deadline(&limits), Some(start + 31 * second), "the client does not read");
        activity.note_write(false);
        assert_eq!(activity.deadline(&limits), None);

        drop(request);
        assert_eq!(activity.deadline(&limits), Some(start + 77 * second), "idle");
        engine.advance(20 * second);
        activity.note_read();
        engine.advance(second);
        activity.note_read();
        assert_eq!(activity.deadline(&limits), Some(start + 32 * second), "a part of a header");

        drop(UnderWay::begin(&activity, true));
        activity.note_read();
        assert_eq!(activity.deadline(&limits), Some(start + 98 * second), "frames are no request");
    }
}
