//! Tests bodies with limits, on a clock that a test moves, and over a socket.
#![cfg(feature = "http-body")]

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, DrivenEngine};
use tourbillon_tower::{Elapsed, Part, TimeoutBody, TimeoutError};

const SECOND: Duration = Duration::from_secs(1);

/// The results that the next polls of a body return: data, the end, or an error. While the script is empty, a poll
/// returns "pending".
type Script = Arc<Mutex<VecDeque<Option<io::Result<&'static str>>>>>;

/// A body whose polls return the entries of a script.
struct Scripted(Script);

impl Body for Scripted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.0.lock().unwrap().pop_front() {
            None => Poll::Pending,
            Some(None) => Poll::Ready(None),
            Some(Some(data)) => {
                Poll::Ready(Some(data.map(|data| Frame::data(Bytes::from_static(data.as_bytes())))))
            }
        }
    }
}

/// A body with limits, the engine of the limits, and the script of the inner body.
struct Test {
    engine: DrivenEngine<Wakeup>,
    body: TimeoutBody<Scripted>,
    script: Script,
}

/// The result of a poll of a body with limits.
#[derive(Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    Data,
    End,
    Failed,
    Elapsed(Part),
}

impl Test {
    fn new(limit: impl FnOnce(TimeoutBody<Scripted>) -> TimeoutBody<Scripted>) -> Self {
        let engine = Builder::new().driven_futures().unwrap();
        let script = Script::default();
        let body = limit(TimeoutBody::new(Scripted(Arc::clone(&script))).on(engine.handle()));
        Self { engine, body, script }
    }

    fn put(&self, frame: Option<io::Result<&'static str>>) {
        self.script.lock().unwrap().push_back(frame);
    }

    fn poll_raw(&mut self) -> Poll<Option<Result<Frame<Bytes>, TimeoutError<io::Error>>>> {
        Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn poll(&mut self) -> Given {
        match self.poll_raw() {
            Poll::Pending => Given::Nothing,
            Poll::Ready(None) => Given::End,
            Poll::Ready(Some(Ok(_))) => Given::Data,
            Poll::Ready(Some(Err(TimeoutError::Inner(_)))) => Given::Failed,
            Poll::Ready(Some(Err(TimeoutError::Elapsed(elapsed)))) => Given::Elapsed(elapsed.part()),
        }
    }

    fn elapsed(&mut self) -> Elapsed {
        match self.poll_raw() {
            Poll::Ready(Some(Err(TimeoutError::Elapsed(elapsed)))) => elapsed,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_body_that_is_silent_elapses_at_its_limit_and_not_before() {
    let mut test = Test::new(|body| body.idle(SECOND));
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(Duration::from_nanos(1));
    let elapsed = test.elapsed();
    assert_eq!((elapsed.part(), elapsed.limit()), (Part::BodyIdle, SECOND));
    assert_eq!(elapsed.to_string(), "no frame of the body within 1s");
}

#[test]
fn each_frame_begins_the_silence_anew_on_the_same_timer() {
    let mut test = Test::new(|body| body.idle(SECOND));
    for _ in 0..5 {
        assert_eq!(test.poll(), Given::Nothing);
        test.engine.advance(SECOND * 3 / 4);
        test.put(Some(Ok("data")));
        assert_eq!(test.poll(), Given::Data);
        assert_eq!(test.engine.handle().stats().owned.alive, 1);
    }
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(SECOND);
    assert_eq!(test.poll(), Given::Elapsed(Part::BodyIdle));
    assert_eq!(test.engine.handle().stats().owned.fired, 1);
}

#[test]
fn the_time_in_which_nobody_polls_is_not_silence() {
    let mut test = Test::new(|body| body.idle(SECOND));
    test.engine.advance(10 * SECOND);
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(SECOND / 2);
    test.put(Some(Ok("data")));
    assert_eq!(test.poll(), Given::Data);
    test.engine.advance(10 * SECOND);
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(SECOND);
    assert_eq!(test.poll(), Given::Elapsed(Part::BodyIdle));
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_silence_that_has_ended_wakes_nobody() {
    let mut test = Test::new(|body| body.idle(SECOND));
    let bell = Arc::new(Bell::default());
    let waker = Arc::clone(&bell).into();
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut test.body).poll_frame(&mut cx).is_pending());
    test.put(Some(Ok("data")));
    assert!(Pin::new(&mut test.body).poll_frame(&mut cx).is_ready());
    test.engine.advance(10 * SECOND);
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    // While the body still waits for a frame, the limit wakes its task.
    assert!(Pin::new(&mut test.body).poll_frame(&mut cx).is_pending());
    test.engine.advance(SECOND);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_frame_that_is_there_is_not_refused_for_silence() {
    let mut test = Test::new(|body| body.idle(SECOND));
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(10 * SECOND);
    test.put(Some(Ok("data")));
    assert_eq!(test.poll(), Given::Data);
    test.put(None);
    assert_eq!(test.poll(), Given::End);
}

#[test]
fn a_body_that_drips_elapses_in_total() {
    let mut test = Test::new(|body| body.idle(SECOND).total(3 * SECOND));
    for _ in 0..5 {
        assert_eq!(test.poll(), Given::Nothing);
        test.engine.advance(SECOND / 2);
        test.put(Some(Ok("data")));
        assert_eq!(test.poll(), Given::Data);
    }
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(SECOND / 2);
    assert_eq!(test.poll(), Given::Elapsed(Part::BodyTotal));
}

#[test]
fn a_body_that_is_never_waited_for_elapses_in_total_all_the_same() {
    let mut test = Test::new(|body| body.total(3 * SECOND));
    for _ in 0..3 {
        test.put(Some(Ok("data")));
        assert_eq!(test.poll(), Given::Data);
        test.engine.advance(SECOND);
    }
    test.put(Some(Ok("data")));
    let elapsed = test.elapsed();
    assert_eq!((elapsed.part(), elapsed.limit()), (Part::BodyTotal, 3 * SECOND));
    assert_eq!(elapsed.to_string(), "the body had not ended within 3s");
    assert_eq!(test.engine.handle().stats().owned.alive, 0);
}

#[test]
fn the_end_of_a_body_is_never_too_late_and_its_errors_are_passed_on() {
    let mut test = Test::new(|body| body.idle(SECOND).total(SECOND));
    test.engine.advance(10 * SECOND);
    test.put(Some(Err(io::Error::other("reset"))));
    assert_eq!(test.poll(), Given::Failed);
    test.put(None);
    assert_eq!(test.poll(), Given::End);
}

#[test]
fn a_limit_of_zero_and_the_longest_one() {
    let mut test = Test::new(|body| body.idle(Duration::ZERO));
    test.put(Some(Ok("data")));
    assert_eq!(test.poll(), Given::Data);
    assert_eq!(test.poll(), Given::Elapsed(Part::BodyIdle));

    let mut test = Test::new(|body| body.idle(Duration::MAX).total(Duration::MAX));
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(Duration::from_secs(100 * 365 * 24 * 3_600));
    assert_eq!(test.poll(), Given::Nothing);
    test.put(Some(Ok("data")));
    assert_eq!(test.poll(), Given::Data);
}

#[test]
fn a_body_without_a_limit_is_as_it_was() {
    let mut test = Test::new(|body| body);
    assert_eq!(test.poll(), Given::Nothing);
    test.engine.advance(100 * SECOND);
    assert_eq!(test.poll(), Given::Nothing);
    assert_eq!(test.engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_shutdown_says_so() {
    for part in [Part::BodyIdle, Part::BodyTotal] {
        let mut test = Test::new(|body| match part {
            Part::BodyIdle => body.idle(SECOND),
            _ => body.total(SECOND),
        });
        assert_eq!(test.poll(), Given::Nothing);
        drop(test.engine.handle().shutdown());
        let elapsed = test.elapsed();
        assert_eq!((elapsed.part(), elapsed.is_shut_down()), (part, true));
    }
}

#[test]
fn size_and_end_stay() {
    let body = TimeoutBody::new(Full::new(Bytes::from_static(b"hello"))).idle(SECOND).total(SECOND);
    assert_eq!(body.size_hint().exact(), SizeHint::with_exact(5).exact());
    assert!(!body.is_end_stream());
    assert!(TimeoutBody::new(Full::new(Bytes::new())).is_end_stream());
}

#[test]
fn a_response_whose_body_stalls_is_cut_off_over_a_socket() {
    const IDLE: Duration = Duration::from_millis(150);
    let engine = Builder::new().start_futures().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let timers = engine.handle().clone();
    let stalling = async move || {
        let script = Script::default();
        script.lock().unwrap().push_back(Some(Ok("begin")));
        axum::body::Body::new(TimeoutBody::new(Scripted(script)).on(&timers).idle(IDLE))
    };
    let app = axum::Router::new().route("/", axum::routing::get(stalling));
    runtime.spawn(async { axum::serve(listener, app).await });

    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let begin = Instant::now();
    client.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(begin.elapsed() >= IDLE);
    let received = String::from_utf8(received).unwrap();
    // The answer has one chunk and lacks the last chunk, so the client knows that data are missing.
    assert!(received.starts_with("HTTP/1.1 200") && received.ends_with("5\r\nbegin\r\n"), "{received:?}");
}
