//! Wraps the bodies of requests and of answers. The body of a request is limited in size and time. The body of an
//! answer reports the end of its request.

use super::activity::{Stage, UnderWay};
use super::limits::Limits;
use axum::body::Body as Answer;
use bytes::Bytes;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::sync::{Arc, OnceLock};
use tourbillon::future::{Sleep, Wakeup};
use tourbillon::{Handle, Timestamp};

/// The reason why the body of a request was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFault {
    TooLarge,
    TimedOut,
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is too large",
            Self::TimedOut => "the body did not arrive in time",
        })
    }
}

impl core::error::Error for BodyFault {}

/// Passes the reason why a body was not read. The reader of the body sets the reason, and the code that writes the
/// answer reads it.
#[derive(Clone, Debug, Default)]
pub(super) struct Fault(Arc<OnceLock<BodyFault>>);

impl Fault {
    pub(super) fn get(&self) -> Option<BodyFault> {
        self.0.get().copied()
    }

    fn note(&self, fault: BodyFault) -> BodyFault {
        *self.0.get_or_init(|| fault)
    }
}

/// The body of a request that arrives. A read fails once the body is too large or too slow.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    left: usize,
    engine: Handle<Wakeup>,
    deadline: Timestamp,
    /// The timer that ends at the deadline of the body. `None` until a read must wait, because most bodies arrive
    /// together with their header.
    sleep: Option<Sleep>,
    fault: Fault,
    stage: Stage,
}

impl Received {
    pub(super) fn new(
        body: Incoming,
        engine: &Handle<Wakeup>,
        limits: &Limits,
        fault: Fault,
        stage: Stage,
    ) -> Self {
        let deadline = engine.now() + limits.body_timeout;
        if body.is_end_stream() {
            stage.note_complete();
        }
        Self { body, left: limits.body, engine: engine.clone(), deadline, sleep: None, fault, stage }
    }
}

type BoxError = Box<dyn core::error::Error + Send + Sync>;

impl Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(fault) = this.fault.get() {
            return Poll::Ready(Some(Err(fault.into())));
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            let frame = frame.transpose()?;
            // Both are checked, because a reader that sees `is_end_stream` after the last frame need not ask for the
            // `None` behind it.
            if frame.is_none() || this.body.is_end_stream() {
                this.stage.note_complete();
            }
            let Some(frame) = frame else { return Poll::Ready(None) };
            let length = frame.data_ref().map_or(0, Bytes::len);
            return Poll::Ready(Some(match this.left.checked_sub(length) {
                Some(left) => {
                    this.left = left;
                    Ok(frame)
                }
                None => Err(this.fault.note(BodyFault::TooLarge).into()),
            }));
        }
        this.stage.note_wants_more();
        let sleep = this.sleep.get_or_insert_with(|| this.engine.sleep_until(this.deadline));
        ready!(Pin::new(sleep).poll(cx));
        Poll::Ready(Some(Err(this.fault.note(BodyFault::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // No more bytes of the body are awaited.
        self.stage.note_complete();
    }
}

/// The largest piece of an answer that an HTTP/2 connection gets at a time, in bytes.
const PIECE: usize = 16 << 10;

/// The body of an answer. The answer's request is under way until this value is dropped.
///
/// An answer over HTTP/2 is cut into pieces of at most [`PIECE`] bytes. The connection fetches a piece once the
/// client's flow-control window has space for all earlier pieces and for at least one further byte. So each fetch shows
/// that the client has accepted the earlier pieces, and at most one piece of each answer is in memory beyond the
/// client's window. The last byte of each data frame of `body` is a piece of its own. As this piece has only one byte,
/// the window has space for all of it when the connection fetches it.
#[derive(Debug)]
pub(super) struct Answering {
    body: Answer,
    under_way: UnderWay,
    is_http2: bool,
    /// The bytes of the current data frame of `body` that the connection has not fetched yet.
    rest: Bytes,
}

impl Answering {
    pub(super) fn new(body: Answer, under_way: UnderWay, is_http2: bool) -> Self {
        Self { body, under_way, is_http2, rest: Bytes::new() }
    }

    /// Returns the next piece for the connection: the first of the `bytes` of a data frame. Keeps the other bytes in
    /// the field `rest`.
    fn piece(&mut self, mut bytes: Bytes) -> Bytes {
        if !self.is_http2 || bytes.len() < 2 {
            return bytes;
        }
        self.rest = bytes.split_off(PIECE.min(bytes.len() - 1));
        bytes
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        this.under_way.note_taken();
        let bytes = if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)).transpose()?.map(Frame::into_data) {
                None => return Poll::Ready(None),
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                Some(Ok(bytes)) => bytes,
            }
        } else {
            core::mem::take(&mut this.rest)
        };
        let piece = this.piece(bytes);
        this.under_way.note_offered();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}
