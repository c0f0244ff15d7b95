//! Limits how long a body may take: for each frame, and as a whole.

use crate::error::{Elapsed, Part, TimeoutError};
use crate::timers::Timers;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tourbillon::future::{Sleep, Wakeup};
use tourbillon::{Handle, Timestamp};

/// A time limit of a body, and the sleep that ends when the limit has passed.
#[derive(Debug)]
struct Limit {
    part: Part,
    limit: Duration,
    sleep: Sleep,
}

impl Limit {
    fn elapsed(&self, is_shut_down: bool) -> Elapsed {
        Elapsed::new(self.part, self.limit, is_shut_down)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let outcome = ready!(pin!(self.sleep.try_wait()).poll(cx));
        Poll::Ready(self.elapsed(outcome.is_err()))
    }
}

pin_project! {
    /// A body with limits on its time, for a request or for a response.
    ///
    /// [`idle`](Self::idle) limits the wait for each frame. The wait begins when a poll finds no frame, and ends when
    /// the frame comes. The time from a frame to the next poll does not count. So a peer that reads slowly does not use
    /// up this limit, because no task polls the body during that time. [`total`](Self::total) limits the whole body,
    /// from the call of `total` to the body's end, whichever side is slow. This limit is checked whenever the body is
    /// polled. Both limits may be set. Without a limit, the body is unchanged.
    ///
    /// The idle limit never refuses a frame that is ready, and neither limit refuses the end of the body. The size hint
    /// and the end of the stream are those of the inner body, so the message keeps its `Content-Length`.
    ///
    /// # Time complexity
    ///
    /// For a frame that is ready at once, `idle` costs nothing and `total` costs a clock read. The first wait for a
    /// frame makes a timer. Each wait arms and disarms that timer, and each of these costs a store and a load.
    ///
    /// # Examples
    ///
    /// ```
    /// use http_body_util::{BodyExt, Full};
    /// use std::time::Duration;
    /// use tourbillon_tower::TimeoutBody;
    ///
    /// let body = TimeoutBody::new(Full::new(&b"hello"[..])).idle(Duration::from_secs(10)).total(Duration::from_secs(60));
    /// let read = pollster::block_on(body.collect()).expect("in time");
    /// assert_eq!(read.to_bytes(), "hello");
    /// ```
    #[derive(Debug)]
    pub struct TimeoutBody<B> {
        #[pin]
        body: B,
        timers: Timers,
        idle: Option<Limit>,
        is_waiting: bool,
        total: Option<Limit>,
    }
}

impl<B> TimeoutBody<B> {
    /// Makes a body that has no limits yet. Limits that are set later run on the current engine of
    /// the thread that sets them: see [`tourbillon::future`].
    pub fn new(body: B) -> Self {
        Self { body, timers: Timers::default(), idle: None, is_waiting: false, total: None }
    }

    /// Sets the engine for later limits: each limit that is set after this call runs on `engine`.
    #[must_use]
    pub fn on(self, engine: &Handle<Wakeup>) -> Self {
        Self { timers: Timers::on(engine), ..self }
    }

    /// Limits the time for which the body may wait for each frame.
    ///
    /// # Panics
    ///
    /// Panics if the limit runs on the process's own engine and the system cannot start the engine's threads.
    #[must_use]
    pub fn idle(self, limit: Duration) -> Self {
        let sleep = self.timers.sleep_until(Timestamp::MAX);
        Self { idle: Some(Limit { part: Part::BodyIdle, limit, sleep }), ..self }
    }

    /// Limits the time from now to the end of the body.
    ///
    /// # Panics
    ///
    /// See [`idle`](Self::idle).
    #[must_use]
    pub fn total(self, limit: Duration) -> Self {
        let sleep = self.timers.sleep_until(self.timers.deadline(limit));
        Self { total: Some(Limit { part: Part::BodyTotal, limit, sleep }), ..self }
    }

    /// Returns the body that this value wraps.
    pub fn get_ref(&self) -> &B {
        &self.body
    }

    /// Returns the body that this value wraps, and drops the limits.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body> Body for TimeoutBody<B> {
    type Data = B::Data;
    type Error = TimeoutError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        if let Poll::Ready(frame) = this.body.poll_frame(cx) {
            if let Some(idle) = this.idle
                && std::mem::take(this.is_waiting)
            {
                idle.sleep.disarm();
            }
            let passed = this.total.as_ref().filter(|total| total.sleep.is_elapsed());
            return Poll::Ready(match (frame, passed) {
                (Some(Ok(_)), Some(total)) => Some(Err(TimeoutError::Elapsed(total.elapsed(false)))),
                (frame, _) => frame.map(|frame| frame.map_err(TimeoutError::Inner)),
            });
        }
        if let Some(idle) = this.idle {
            if !std::mem::replace(this.is_waiting, true) {
                idle.sleep.reset(this.timers.deadline(idle.limit));
            }
            if let Poll::Ready(elapsed) = idle.poll(cx) {
                return Poll::Ready(Some(Err(TimeoutError::Elapsed(elapsed))));
            }
        }
        if let Some(total) = this.total
            && let Poll::Ready(elapsed) = total.poll(cx)
        {
            return Poll::Ready(Some(Err(TimeoutError::Elapsed(elapsed))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
