//! Limits the memory for the bodies of requests. Each client may use only a part of this memory.
//!
//! The bytes of a body stay reserved until its request is answered. If the request announces a length, all of these
//! bytes are reserved before the first byte is read. Otherwise each frame reserves its own bytes when it arrives.
//! Announced bodies must not reserve by frames: many of them could fill the memory together, so that none could finish.
//!
//! If there is no memory for a body, the service reads nothing from its client and waits for at most [`PATIENCE`]. At
//! most [`MOST_WAITING`] bodies wait at the same time, and each client may have only a part of them.

use crate::share::Shares;
use axum::RequestExt as _;
use axum::body::Bytes;
use axum::extract::Request;
use core::fmt;
use core::hash::Hash;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::timeout;
use tourbillon_api::{Problem, ProblemKind};

/// The longest time for which a body waits for free memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// The greatest number of bodies that wait for memory.
const MOST_WAITING: usize = 128;
/// The time, in milliseconds, after which a client should repeat a request that found no memory.
const AGAIN_MS: u64 = 1_000;

/// Limits the memory for request bodies, in total and for each client. `C` identifies a client.
#[derive(Debug)]
pub(crate) struct Bodies<C> {
    state: Mutex<State<C>>,
    freed: Notify,
}

#[derive(Debug)]
struct State<C> {
    bytes: Shares<C>,
    /// The number of bodies of each client that wait for memory.
    waiting: Shares<C>,
}

impl<C: Clone + Eq + Hash> Bodies<C> {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        let state = State { bytes: Shares::of_many(all), waiting: Shares::new(MOST_WAITING) };
        Arc::new(Self { state: Mutex::new(state), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a reservation of memory for one body of `client`, with zero bytes at first.
    pub(crate) fn hold(self: &Arc<Self>, client: C) -> Hold<C> {
        Hold { bodies: Arc::clone(self), client, bytes: AtomicUsize::new(0) }
    }

    fn take(&self, client: &C, bytes: usize) -> bool {
        self.lock().bytes.take(client, bytes)
    }

    fn give_back(&self, client: &C, bytes: usize) {
        let mut state = self.lock();
        state.bytes.give_back(client, bytes);
        // A body that begins to wait after this check tries to reserve memory once more itself, and then finds the
        // freed memory. So it needs no signal.
        let somebody_waits = state.waiting.all() > 0;
        drop(state);
        if somebody_waits {
            self.freed.notify_waiters();
        }
    }
}

/// Counts a body as waiting for memory until this value is dropped.
struct Waiting<'b, C: Clone + Eq + Hash> {
    bodies: &'b Bodies<C>,
    client: &'b C,
}

impl<'b, C: Clone + Eq + Hash> Waiting<'b, C> {
    /// Counts a body as waiting for memory. Returns `None` if too many bodies already wait.
    fn begin(bodies: &'b Bodies<C>, client: &'b C) -> Option<Self> {
        bodies.lock().waiting.take(client, 1).then(|| Self { bodies, client })
    }
}

impl<C: Clone + Eq + Hash> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.bodies.lock().waiting.give_back(self.client, 1);
    }
}

/// The memory that is reserved in [`Bodies`] for one body. Dropping this value frees the memory.
pub(crate) struct Hold<C: Clone + Eq + Hash> {
    bodies: Arc<Bodies<C>>,
    client: C,
    bytes: AtomicUsize,
}

impl<C: Clone + Eq + Hash> Hold<C> {
    /// Reads the whole body of a request. Fails if the body is too large, if there is no memory for it, or if the
    /// connection breaks.
    pub(crate) async fn read(&self, request: Request) -> Result<Bytes, BodyFault> {
        // The announced length is read first, because the size hint of a limited body never exceeds the limit.
        let announced = request.body().size_hint().lower();
        let mut body = request.into_limited_body();
        if body.size_hint().upper().is_some_and(|most| most < announced) {
            return Err(BodyFault::TooLarge);
        }
        let mut left = usize::try_from(announced).map_err(|_| BodyFault::TooLarge)?;
        self.grow(left).await?;
        let (mut first, mut all) = (Bytes::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(BodyFault::of)?.into_data() else { continue };
            self.grow(bytes.len().saturating_sub(left)).await?;
            left = left.saturating_sub(bytes.len());
            if all.is_empty() && first.is_empty() {
                // Most bodies arrive as a single frame, which is then not copied.
                first = bytes;
            } else {
                if all.is_empty() {
                    all.reserve_exact(first.len() + bytes.len() + left);
                    all.extend_from_slice(&first);
                }
                all.extend_from_slice(&bytes);
            }
        }
        Ok(if all.is_empty() { first } else { all.into() })
    }

    /// Reserves memory for `bytes` further bytes of the body. If necessary, waits until other requests free memory.
    async fn grow(&self, bytes: usize) -> Result<(), BodyFault> {
        if !self.bodies.take(&self.client, bytes) {
            let _waiting = Waiting::begin(&self.bodies, &self.client).ok_or(BodyFault::NoRoom)?;
            timeout(PATIENCE, self.room(bytes)).await.map_err(|_| BodyFault::NoRoom)?;
        }
        // No await lies between the reservation and this addition, so a dropped request frees all of its memory.
        // Ordering: Relaxed. Only this request counts its bytes.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    async fn room(&self, bytes: usize) {
        loop {
            let mut freed = core::pin::pin!(self.bodies.freed.notified());
            // From here on, the end of another body wakes this task. The memory is requested only afterwards, so no
            // wake-up is lost.
            freed.as_mut().enable();
            if self.bodies.take(&self.client, bytes) {
                return;
            }
            freed.await;
        }
    }
}

impl<C: Clone + Eq + Hash> Drop for Hold<C> {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        if bytes > 0 {
            self.bodies.give_back(&self.client, bytes);
        }
    }
}

impl<C: Clone + Eq + Hash> fmt::Debug for Hold<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The reason why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum BodyFault {
    TooLarge,
    /// There is no memory for the body, or too many bodies already wait for memory.
    NoRoom,
    /// The connection has failed, or the client has aborted the body. The text is the error.
    Broken(String),
}

impl BodyFault {
    fn of(error: axum::Error) -> Self {
        // axum wraps the error of the limit, so the whole chain of causes is searched.
        let mut source: Option<&dyn core::error::Error> = Some(&error);
        while let Some(error) = source {
            if error.is::<LengthLimitError>() {
                return Self::TooLarge;
            }
            source = error.source();
        }
        Self::Broken(error.to_string())
    }
}

impl From<BodyFault> for Problem {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::TooLarge => Self::new(ProblemKind::TooLarge, "the body is too large"),
            BodyFault::NoRoom => {
                let detail = "as many bytes of bodies are under way as there may be";
                Self::new(ProblemKind::LimitReached, detail).with_retry_after_ms(AGAIN_MS)
            }
            BodyFault::Broken(error) => Self::new(ProblemKind::BadRequest, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    async fn read(hold: &Hold<u8>, bytes: usize) -> Result<usize, Problem> {
        let request = Request::new(Body::from(vec![b'x'; bytes]));
        Ok(hold.read(request).await?.len())
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_shared_and_given_back() {
        let bodies = Bodies::new(1_000);
        let (greedy, other) = (bodies.hold(1), bodies.hold(2));
        assert_eq!(read(&greedy, 750).await.unwrap(), 750);
        let refused = read(&bodies.hold(1), 1).await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (429, Some(AGAIN_MS)));
        assert_eq!(read(&other, 180).await.unwrap(), 180, "another client has a share");

        // A waiting body is read once other bodies leave room. A wait that is dropped leaves nothing behind.
        let late = bodies.hold(1);
        let waits = tokio::spawn(async move { read(&late, 500).await });
        let given_up = bodies.hold(1);
        assert!(timeout(Duration::from_secs(1), read(&given_up, 500)).await.is_err());
        drop((given_up, greedy));
        assert_eq!(waits.await.unwrap().unwrap(), 500);
        drop(other);
        let state = bodies.lock();
        assert!(state.bytes.are_gone() && state.waiting.are_gone());
    }

    #[tokio::test(start_paused = true)]
    async fn few_bodies_wait() {
        let bodies = Bodies::new(100);
        let all = bodies.hold(1);
        assert_eq!(read(&all, 75).await.unwrap(), 75);
        let wait = |_| {
            let hold = bodies.hold(1);
            tokio::spawn(async move { read(&hold, 75).await })
        };
        let most = crate::share::free_for(0, MOST_WAITING, 0);
        let waiting: Vec<_> = (0..most).map(wait).collect();
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begun = tokio::time::Instant::now();
        assert_eq!(read(&bodies.hold(1), 75).await.unwrap_err().status, 429);
        assert_eq!(begun.elapsed(), Duration::ZERO, "refused at once");
        assert_eq!(read(&bodies.hold(2), 75).await.unwrap_err().status, 429);
        assert!(begun.elapsed() >= PATIENCE, "another client's body may wait");
        for refused in waiting {
            assert_eq!(refused.await.unwrap().unwrap_err().status, 429);
        }
        let state = bodies.lock();
        assert!(state.waiting.are_gone());
    }
}
