//! The bodies of requests and answers: a limit of size and time for the one, the end of the request for the other.

use super::activity::UnderWay;
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

/// The reason why a request's body was not read to its end.
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

/// The fault of a request's body, for the layer that writes the answer.
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

/// The body of a request, which ends with a fault once it is too large or too slow.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    left: usize,
    engine: Handle<Wakeup>,
    deadline: Timestamp,
    /// Made when the body is first waited for: most bodies arrive with their header.
    sleep: Option<Sleep>,
    fault: Fault,
}

impl Received {
    pub(super) fn new(body: Incoming, engine: &Handle<Wakeup>, limits: &Limits, fault: Fault) -> Self {
        let deadline = engine.now() + limits.body_timeout;
        Self { body, left: limits.body, engine: engine.clone(), deadline, sleep: None, fault }
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
            let Some(frame) = frame.transpose()? else { return Poll::Ready(None) };
            let length = frame.data_ref().map_or(0, Bytes::len);
            return Poll::Ready(Some(match this.left.checked_sub(length) {
                Some(left) => {
                    this.left = left;
                    Ok(frame)
                }
                None => Err(this.fault.note(BodyFault::TooLarge).into()),
            }));
        }
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

/// The body of an answer. Its request is under way until the body is dropped.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) body: Answer,
    #[expect(dead_code, reason = "dropping it is its use")]
    pub(super) under_way: UnderWay,
}

impl Body for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
