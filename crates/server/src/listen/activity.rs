//! Records the state of a connection: the event that it waits for, and since when it waits.
//!
//! A request is *authenticated* if its token or its session is valid, or if the service needs no tokens. A connection
//! is a *stranger's* if it has had requests answered, and none of its requests was authenticated.
//!
//! | the connection | its time begins with | and lasts |
//! |---|---|---|
//! | has sent no request yet | the connection | the header timeout |
//! | has sent a part of a header (HTTP/1) | the part's first byte | the header timeout |
//! | has no request under way | the end of the last answer | the idle timeout |
//! | has a request under way | | without end: bodies have their own timeout |
//! | has no request under way, and the server stops | the stop | a moment for the last frames |
//! | takes no byte of any answer | the first write that waits | the write timeout |
//! | takes nothing of one answer (HTTP/2) | the piece that waits | the write timeout, at most twice |
//!
//! An HTTP/2 connection without a request under way is idle, even if it sends frames. An answer to a ping does not
//! count as progress of an answer.
//!
//! # A client that closes its half
//! A client with HTTP/1 may close its half of the connection after a request, and wait for the answer. This is a
//! *half-close*. A client that has gone away looks the same. So while a request that has arrived in full is under way,
//! the half-close is hidden from the task that reads from the connection. The task sees the half-close only after the
//! answer is written.
//!
//! A long poll and a stream of events are exceptions, because they may wait without end. They end at the half-close.
//! Otherwise a timer could be handed to a client that has gone away. The timer would then be late by the length of its
//! lease.

use super::limits::Limits;
use super::waiting::WaitingPlace;
use crate::state::TokenHash;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon::future::Wakeup;
use tourbillon::{Handle, Timestamp};

/// The state of a connection: its requests, and the moments from which its time limits are counted. The connection's
/// stream, its requests and the future that ends at its deadline share this value.
#[derive(Debug)]
pub(super) struct Activity {
    engine: Handle<Wakeup>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The requests of the connection whose answers have not ended. The list is short.
    under_way: Vec<Request>,
    /// The number that the next request of the connection gets.
    next: u64,
    has_sent_a_request: bool,
    /// Whether any request of the connection was authenticated: its token or its session is valid, or the service needs
    /// no tokens.
    has_authenticated_request: bool,
    /// The token of the last authenticated request. `None` if the service needs no tokens.
    token: Option<TokenHash>,
    /// The connection's place among the connections whose requests wait for an event. `None` while no request waits.
    waiting: Option<WaitingPlace>,
    /// Whether the connection has had an answer to a request that was not authenticated.
    has_answered_unauthenticated: bool,
    is_http2: bool,
    /// The moment at which the connection's last answer ended. Before the first answer, the moment at which the
    /// connection began.
    quiet_since: Timestamp,
    /// The moment at which the client's first byte after the moment `quiet_since` arrived. Over HTTP/1, the header of
    /// the next request begins with this byte. `None` before this byte, and again once the request has begun.
    first_byte: Option<Timestamp>,
    /// The moment at which a write of an answer began to wait for the client. `None` if no write waits.
    blocked_since: Option<Timestamp>,
    /// The waker of the task that reads from the connection. Set if the client has closed its half of the connection,
    /// but [`hides_half_close`](State::hides_half_close) still hides this half-close from the task.
    reader: Option<Waker>,
    /// The moment at which the server began to stop. `None` before the stop.
    stopping_since: Option<Timestamp>,
}

#[derive(Debug)]
struct Request {
    number: u64,
    /// Whether the request needs no further bytes of its body: the body has arrived in full, or its reader was dropped.
    is_complete: bool,
    /// Whether the client has closed its half of the connection during this request.
    has_ended: bool,
    /// Whether the request has asked for more of its body after the client had closed its half of the connection.
    wants_more: bool,
    /// Whether the request may wait without end, as a long poll does.
    waits: bool,
    /// Whether the request was authenticated: its token or its session is valid, or the service needs no tokens.
    is_authenticated: bool,
    /// Whether the request has its answer, and was not authenticated. Stays false if a refusal has replaced the answer,
    /// because too many answers to unauthenticated requests already waited for the client.
    is_answered_unauthenticated: bool,
    /// The moment at which the connection last took a piece of the answer in order to send it. `None` once the
    /// connection asks for the next piece.
    offered: Option<Timestamp>,
}

impl State {
    fn request(&mut self, number: u64) -> Option<&mut Request> {
        self.under_way.iter_mut().find(|request| request.number == number)
    }

    /// Returns whether a half-close is hidden from the task that reads from the connection. In a half-close, the client
    /// closes its half of the connection. Over HTTP/1, a half-close is hidden while a request is under way, or while a
    /// write waits. But no half-close is hidden if a request may wait without end, or needs more bytes of its body.
    /// Over HTTP/2, no half-close is hidden.
    fn hides_half_close(&self) -> bool {
        let is_in_vain = self.under_way.iter().any(|request| request.waits || request.wants_more);
        let is_answering = !self.under_way.is_empty() || self.blocked_since.is_some();
        !self.is_http2 && !is_in_vain && is_answering
    }

    /// Takes the waker of the task that reads from the connection, in order to wake this task. The task waits while a
    /// half-close by the client is hidden from it. Returns `None` if no task waits, or if
    /// [`hides_half_close`](Self::hides_half_close) still returns true.
    fn wanted(&mut self) -> Option<Waker> {
        if self.hides_half_close() { None } else { self.reader.take() }
    }
}

/// The rank of an idle connection in the order in which the server closes idle connections to make room for new
/// connections. Connections that never sent a request are closed first, and then the connections that have been quiet
/// longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idleness {
    pub(super) has_sent_a_request: bool,
    pub(super) since: Timestamp,
}

/// The rank of a stranger's connection in the order in which the server closes strangers' connections. A connection is
/// a stranger's if it has had requests answered, and none of its requests was authenticated. Connections without a
/// running request are closed first, and then the connections that have been quiet longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Strangeness {
    pub(super) is_waiting: bool,
    pub(super) since: Timestamp,
}

/// The time for which a connection without a running request stays open after the server began to stop. In this time,
/// the connection sends its last frames, which announce to the client that it ends.
const LAST_FRAMES: Duration = Duration::from_millis(100);

impl Activity {
    pub(super) fn new(engine: Handle<Wakeup>) -> Self {
        let state = State {
            under_way: Vec::new(),
            next: 0,
            has_sent_a_request: false,
            has_authenticated_request: false,
            token: None,
            waiting: None,
            has_answered_unauthenticated: false,
            is_http2: false,
            quiet_since: engine.now(),
            first_byte: None,
            blocked_since: None,
            reader: None,
            stopping_since: None,
        };
        Self { engine, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `change` to the state of the connection. Wakes the task that reads from the connection if a half-close
    /// by the client was hidden from it, and [`hides_half_close`](State::hides_half_close) is false after the change.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let wanted = state.wanted();
        // The waker is called without the lock, because a waker is foreign code that may run anything.
        drop(state);
        if let Some(waker) = wanted {
            waker.wake();
        }
    }

    /// Returns the moment at which the connection must be closed unless its state changes first. Returns `None` if the
    /// state may last without end.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Timestamp> {
        let state = self.lock();
        let offered = state.under_way.iter().filter_map(|request| request.offered).min();
        let untaken = state.blocked_since.into_iter().chain(offered).min();
        let untaken = untaken.map(|since| since + limits.write_timeout);
        // While the server stops, the write timeout limits the rest of the last answer.
        let is_writing = state.stopping_since.is_some() && state.blocked_since.is_some();
        let is_waiting = state.under_way.is_empty() && !is_writing;
        let waiting = is_waiting.then(|| match (state.stopping_since, state.first_byte) {
            (Some(since), _) => since.max(state.quiet_since) + LAST_FRAMES,
            // This case stands before the next one. Otherwise a client could gain time by a late first byte.
            _ if !state.has_sent_a_request => state.quiet_since + limits.header_timeout,
            (None, Some(first)) if !state.is_http2 => first + limits.header_timeout,
            _ => state.quiet_since + limits.idle_timeout,
        });
        untaken.into_iter().chain(waiting).min()
    }

    /// Returns the connection's rank in the order in which the server closes idle connections to make room for new
    /// connections. Returns `None` if the connection works on a request that has arrived in full.
    pub(super) fn idleness(&self) -> Option<Idleness> {
        let state = self.lock();
        let is_idle = !state.under_way.iter().any(|request| request.is_complete);
        is_idle.then_some(Idleness { has_sent_a_request: state.has_sent_a_request, since: state.quiet_since })
    }

    /// Returns the connection's rank in the order in which the server closes strangers' connections. A connection is a
    /// stranger's if it has had requests answered, and none of its requests was authenticated. Returns `None` for other
    /// connections.
    pub(super) fn strangeness(&self) -> Option<Strangeness> {
        let state = self.lock();
        let is_strange = state.has_answered_unauthenticated && !state.has_authenticated_request;
        let is_waiting = !state.under_way.is_empty();
        is_strange.then_some(Strangeness { is_waiting, since: state.quiet_since })
    }

    /// Records that the server has begun to stop.
    pub(super) fn note_stop(&self) {
        self.lock().stopping_since = Some(self.engine.now());
    }

    pub(super) fn note_read(&self) {
        let mut state = self.lock();
        if state.under_way.is_empty() && state.first_byte.is_none() {
            state.first_byte = Some(self.engine.now());
        }
    }

    pub(super) fn note_write(&self, is_blocked: bool) {
        self.change(|state| {
            // The clock is read only if a write begins to wait. Most writes do not wait.
            state.blocked_since =
                is_blocked.then(|| state.blocked_since.unwrap_or_else(|| self.engine.now()));
        });
    }

    /// Called by the task that reads from the connection, after the client has closed its half of the connection. Is
    /// ready if the task may see this half-close. Is pending while the half-close is hidden from the task, as
    /// [`hides_half_close`](State::hides_half_close) decides.
    pub(super) fn poll_end(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.hides_half_close() {
            return Poll::Ready(());
        }
        let mut is_new = false;
        for request in &mut state.under_way {
            is_new |= !core::mem::replace(&mut request.has_ended, true);
        }
        state.reader = Some(cx.waker().clone());
        drop(state);
        if is_new {
            // The request runs in the task of the reader. The task is woken to find out whether the request's body
            // needs more bytes.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// The effects that an answer to a request has on the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Whether the connection sends a refusal instead of this answer, because too many answers to unauthenticated
    /// requests already wait for the client.
    pub(super) is_beyond: bool,
    /// Whether this answer makes the connection a stranger's: it is the connection's first answer to an unauthenticated
    /// request, and none of the connection's requests was authenticated.
    pub(super) makes_a_stranger: bool,
}

/// A request that is under way at its connection. Dropping the value ends the request.
#[derive(Debug)]
pub(super) struct UnderWay(Stage);

impl UnderWay {
    pub(super) fn begin(activity: &Arc<Activity>, is_http2: bool) -> Self {
        let mut state = activity.lock();
        let number = state.next;
        state.next += 1;
        state.under_way.push(Request {
            number,
            is_complete: false,
            has_ended: false,
            wants_more: false,
            waits: false,
            is_authenticated: false,
            is_answered_unauthenticated: false,
            offered: None,
        });
        state.has_sent_a_request = true;
        state.is_http2 = is_http2;
        state.first_byte = None;
        drop(state);
        Self(Stage { activity: Arc::clone(activity), number })
    }

    pub(super) fn stage(&self) -> Stage {
        self.0.clone()
    }

    /// Records that the request has its answer, and returns the effects of the answer on the connection. At most
    /// `most_unauthenticated` answers to unauthenticated requests may wait for the connection's client at one time. If
    /// this answer exceeds the limit, a refusal must be sent instead ([`Noted::is_beyond`]).
    pub(super) fn note_answer(&self, most_unauthenticated: usize) -> Noted {
        let mut state = self.0.activity.lock();
        let waiting = state.under_way.iter().filter(|request| request.is_answered_unauthenticated).count();
        // The request is always in the list, because only the drop of `self` removes it.
        let Some(request) = state.request(self.0.number) else { return Noted::default() };
        let (is_known, is_beyond) =
            (request.is_authenticated, !request.is_authenticated && waiting >= most_unauthenticated);
        request.is_answered_unauthenticated = !is_known && !is_beyond;
        // An authenticated request must not clear the flag, so the former value is added again.
        let was_without = core::mem::replace(&mut state.has_answered_unauthenticated, !is_known);
        state.has_answered_unauthenticated |= was_without;
        Noted { is_beyond, makes_a_stranger: !is_known && !was_without && !state.has_authenticated_request }
    }

    /// Records that the client has taken the previous piece of the answer. Does nothing before the first piece.
    pub(super) fn note_taken(&self) {
        self.0.change(|request| request.offered = None);
    }

    /// Records that the connection has taken a piece of the answer in order to send it.
    pub(super) fn note_offered(&self) {
        let now = self.0.activity.engine.now();
        self.0.change(|request| request.offered = Some(now));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let now = self.0.activity.engine.now();
        self.0.activity.change(|state| {
            state.under_way.retain(|request| request.number != self.0.number);
            if !state.under_way.iter().any(|request| request.waits) {
                state.waiting = None;
            }
            state.quiet_since = now;
        });
    }
}

/// A handle to a request under way. With it, the parts of the server that work on the request record their progress.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    activity: Arc<Activity>,
    number: u64,
}

impl Stage {
    fn change(&self, change: impl FnOnce(&mut Request)) {
        self.activity.change(|state| {
            // The answer may have ended before, which removes the request.
            if let Some(request) = state.request(self.number) {
                change(request);
            }
        });
    }

    /// Records that the request waits for bytes of its body that have not arrived. If the client has already closed its
    /// half of the connection, these bytes never arrive. In this case, the half-close is no longer hidden from the task
    /// that reads from the connection, so that the connection ends.
    pub(super) fn note_wants_more(&self) {
        self.change(|request| request.wants_more |= request.has_ended);
    }

    /// Records that no further bytes of the request's body are awaited.
    pub(super) fn note_complete(&self) {
        self.change(|request| request.is_complete = true);
    }

    /// Records that the request may wait without end, as a long poll does.
    pub(super) fn note_waits(&self) {
        self.change(|request| request.waits = true);
    }

    /// Records that the request is authenticated, and its token.
    pub(super) fn note_known(&self, token: Option<TokenHash>) {
        let mut state = self.activity.lock();
        state.has_authenticated_request = true;
        state.token = token;
        drop(state);
        self.change(|request| request.is_authenticated = true);
    }

    /// Reserves a place among the connections whose requests wait, until none of this connection's requests waits. If
    /// the connection has no place yet, `take` takes one for its token. Returns false if none is free.
    pub(super) fn begin_wait(&self, take: impl FnOnce(Option<TokenHash>) -> Option<WaitingPlace>) -> bool {
        let mut state = self.activity.lock();
        if state.waiting.is_none() {
            state.waiting = take(state.token);
        }
        state.waiting.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon::{Builder, DrivenEngine};

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits {
            header_timeout: 10 * SECOND,
            idle_timeout: 75 * SECOND,
            write_timeout: 30 * SECOND,
            ..Limits::default()
        }
    }

    fn begin() -> (DrivenEngine<Wakeup>, Arc<Activity>, Timestamp) {
        let engine = Builder::new().driven_futures().unwrap();
        let activity = Arc::new(Activity::new(Handle::clone(engine.handle())));
        let start = engine.handle().now();
        (engine, activity, start)
    }

    #[test]
    fn each_stage_of_a_connection_has_its_time() {
        let (mut engine, activity, start) = begin();
        let limits = limits();
        assert_eq!(activity.deadline(&limits), Some(start + 10 * SECOND), "no request yet");
        engine.advance(SECOND);
        activity.note_read();
        assert_eq!(activity.deadline(&limits), Some(start + 10 * SECOND), "the first byte buys no time");

        let request = UnderWay::begin(&activity, false);
        assert_eq!(activity.deadline(&limits), None, "a request is under way");
        activity.note_write(true);
        engine.advance(SECOND);
        activity.note_write(true);
        assert_eq!(activity.deadline(&limits), Some(start + 31 * SECOND), "the client does not read");
        activity.note_write(false);
        assert_eq!(activity.deadline(&limits), None);

        drop(request);
        assert_eq!(activity.deadline(&limits), Some(start + 77 * SECOND), "idle");
        engine.advance(20 * SECOND);
        activity.note_read();
        engine.advance(SECOND);
        activity.note_read();
        assert_eq!(activity.deadline(&limits), Some(start + 32 * SECOND), "a part of a header");

        drop(UnderWay::begin(&activity, true));
        activity.note_read();
        assert_eq!(activity.deadline(&limits), Some(start + 98 * SECOND), "frames are no request");

        let request = UnderWay::begin(&activity, true);
        activity.note_stop();
        assert_eq!(activity.deadline(&limits), None, "a request is under way at the stop");
        activity.note_write(true);
        drop(request);
        let now = engine.handle().now();
        assert_eq!(
            activity.deadline(&limits),
            Some(now + 30 * SECOND),
            "a part of the answer is to be written"
        );
        activity.note_write(false);
        assert_eq!(activity.deadline(&limits), Some(now + LAST_FRAMES));
    }

    #[test]
    fn the_answer_that_waits_longest_decides() {
        let (mut engine, activity, start) = begin();
        let (first, second) = (UnderWay::begin(&activity, true), UnderWay::begin(&activity, true));
        first.note_offered();
        engine.advance(SECOND);
        second.note_offered();
        activity.note_write(false);
        assert_eq!(activity.deadline(&limits()), Some(start + 30 * SECOND), "writes are of other streams");
        first.note_taken();
        assert_eq!(activity.deadline(&limits()), Some(start + 31 * SECOND));
        drop(second);
        assert_eq!(activity.deadline(&limits()), None);
    }

    #[test]
    fn few_answers_without_a_right_wait_for_the_client() {
        let (_engine, activity, _) = begin();
        let known = UnderWay::begin(&activity, true);
        known.stage().note_known(None);
        assert!(!known.note_answer(0).is_beyond);
        let first = UnderWay::begin(&activity, true);
        assert!(!first.note_answer(1).is_beyond);
        let second = UnderWay::begin(&activity, true);
        assert!(second.note_answer(1).is_beyond);
        drop(first);
        assert!(!UnderWay::begin(&activity, true).note_answer(1).is_beyond);
    }

    #[test]
    fn a_connection_is_a_strangers_until_a_request_shows_a_right() {
        let (_engine, activity, _) = begin();
        assert_eq!(activity.strangeness(), None, "it has sent nothing");
        let first = UnderWay::begin(&activity, true);
        assert_eq!(activity.strangeness(), None, "it is not answered");
        assert!(first.note_answer(4).makes_a_stranger);
        assert!(activity.strangeness().is_some_and(|strange| strange.is_waiting));
        drop(first);
        assert!(activity.strangeness().is_some_and(|strange| !strange.is_waiting));
        let second = UnderWay::begin(&activity, true);
        assert!(!second.note_answer(4).makes_a_stranger, "it was one before");
        let third = UnderWay::begin(&activity, true);
        third.stage().note_known(None);
        assert_eq!(activity.strangeness(), None);
        third.note_answer(4);
        drop((second, third));
        let fourth = UnderWay::begin(&activity, true);
        assert!(!fourth.note_answer(4).makes_a_stranger, "it has shown a right");
        assert_eq!(activity.strangeness(), None);
    }

    #[test]
    fn the_end_of_the_clients_half_is_shown_when_it_costs_no_answer() {
        let (_engine, activity, _) = begin();
        let cx = Context::from_waker(Waker::noop());
        let is_shown = || activity.poll_end(&cx).is_ready();
        assert!(is_shown(), "no request");
        let request = UnderWay::begin(&activity, false);
        request.stage().note_wants_more();
        assert!(!is_shown(), "the body may be on its way to the request");
        request.stage().note_wants_more();
        assert!(is_shown(), "the body will not come any more");
        drop(request);
        let request = UnderWay::begin(&activity, false);
        request.stage().note_complete();
        assert!(!is_shown(), "the answer is wanted");
        request.stage().note_waits();
        assert!(is_shown(), "nobody fetches a timer for a client that has gone");
        drop(request);
        let request = UnderWay::begin(&activity, false);
        request.stage().note_complete();
        activity.note_write(true);
        drop(request);
        assert!(!is_shown(), "a part of the answer is to be written");
        activity.note_write(false);
        assert!(is_shown());
    }
}
