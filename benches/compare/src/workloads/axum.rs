//! An HTTP server on axum with a header, a request and an idle timeout, under the load tool wrk.

use super::load::{MOST_ACCEPTED, listen};
use super::wrk;
use crate::case::Case;
use crate::contestants::{OursServer, ServerTimers, TOO_LATE, TokioServer, UnlimitedServer};
use crate::process::{cannot, cpu_time};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use axum::Router;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::future::{pending, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "axum",
    operation: "a server on axum with header, request and idle timeouts, under the load tool wrk",
    family: Family::Servers,
    about: "The server is hyper-util's for HTTP/1 with axum's router, on a runtime with tokio's defaults, and a process \
        of its own. hyper limits the header and the wait for it: it makes a sleep for each request. A tower layer \
        limits the request: the handler waits once, so that this timer is armed, too. A sleep beside the connection \
        limits its silence: the connection's task moves it whenever bytes came or went. By our timers these are \
        `TourbillonTimer`, `TimeoutLayer` of `tourbillon-tower`, and `tourbillon::time`; by tokio's they are \
        hyper-util's `TokioTimer`, tower's `TimeoutLayer`, and `tokio::time`. No limit passes during the measurement. \
        wrk runs with one thread on the same cores, and each of its connections sends its next request when it has \
        the response to its last one. *Requests*, and the time that a *response* takes, are as wrk reports them. *CPU \
        a request* is the processor time of the server's process, by its own clock and without wrk's, over wrk's \
        requests. Checked: wrk reports no error; before the measurement, each of the three limits ends a client that \
        stalls, and not before its time.",
    reading: "The difference to the row *without timeouts* is the price of the timeouts. wrk and the server compete for \
        the cores, so that a server which takes more of them also slows the load down.",
    cases,
    columns: |_| {
        vec![
            Column::new("rate", "requests", "1/s"),
            Column::new("each", "time a request", "µs"),
            Column::new("cpu", "CPU a request", "µs"),
            Column::new("p50", "a response, p50", "ms"),
            Column::new("p99", "p99", "ms"),
        ]
    },
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        vec![
            Entrant::server::<OursServer<false>>(turn::<OursServer<false>>),
            Entrant::server::<TokioServer<false>>(turn::<TokioServer<false>>),
            Entrant::server::<TokioServer<true>>(turn::<TokioServer<true>>),
            Entrant::server::<UnlimitedServer>(turn::<UnlimitedServer>),
        ]
    },
};

fn cases(scale: Scale) -> Vec<Case> {
    let connections = scale.pick([100, 1_000], [100, 1_000], [4, 8]);
    let (time_ms, lead_ms) = scale.pick((4_000, 1_000), (1_000, 0), (1_000, 0));
    let case = |timers| {
        let name = format!("wrk with {} connections", thousands(timers));
        Case { timers, time_ms, lead_ms, ..Case::named(name) }
    };
    connections.map(case).into()
}

/// The time limits of a server's connections.
#[derive(Clone, Copy)]
struct Limits {
    /// How long a header may take, including the wait for the header's first byte.
    header: Duration,
    /// How long a handler may take.
    request: Duration,
    /// How long a connection may be silent: no byte comes or goes.
    idle: Duration,
}

/// The limits during the measurement. They are so long that none of them ends a connection.
const LONG: Limits = Limits {
    header: Duration::from_secs(30),
    request: Duration::from_secs(10),
    idle: Duration::from_secs(60),
};

/// A socket that notes whether bytes have come or gone. Only the connection's task uses the note, so that it needs no
/// ordering.
struct Observed {
    stream: TcpStream,
    has_moved: Arc<AtomicBool>,
}

impl Observed {
    fn note(&self, count: usize) {
        if count > 0 {
            self.has_moved.store(true, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.note(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Observed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.note(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        self.note(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Starts a server in the runtime of the calling task. Returns its address.
async fn start<T: ServerTimers>(limits: Limits) -> SocketAddr {
    let (listener, address) = listen(MOST_ACCEPTED);
    tokio::spawn(accept::<T>(listener, limits));
    address
}

async fn accept<T: ServerTimers>(listener: TcpListener, limits: Limits) {
    let app = Router::new().route("/", get(answer)).route("/slow", get(pending::<()>));
    let app = T::limit_requests(app, limits.request);
    let mut http = auto::Builder::new(TokioExecutor::new()).http1_only();
    T::limit_headers(&mut http, limits.header);
    let http = Arc::new(http);
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option of TCP");
        tokio::spawn(serve::<T>(stream, Arc::clone(&http), app.clone(), limits.idle));
    }
}

/// Answers after one yield, so that the runtime checks the sockets before the answer. A handler that waits for a
/// database yields, too.
async fn answer() -> &'static str {
    yield_now().await;
    "hello\n"
}

/// Serves a connection until it ends or is silent for too long.
async fn serve<T: ServerTimers>(
    stream: TcpStream,
    http: Arc<auto::Builder<TokioExecutor>>,
    app: Router,
    limit: Duration,
) {
    let has_moved = Arc::new(AtomicBool::new(false));
    let observed = Observed { stream, has_moved: Arc::clone(&has_moved) };
    let mut connection = pin!(http.serve_connection(TokioIo::new(observed), TowerToHyperService::new(app)));
    let mut silence = pin!(T::sleep_until(Instant::now() + limit));
    poll_fn(|cx| {
        // A client that leaves makes its connection end with an error. The server has no fault then.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if has_moved.swap(false, Ordering::Relaxed) {
            T::reset(silence.as_mut(), Instant::now() + limit);
        }
        silence.as_mut().poll(cx)
    })
    .await;
}

/// Checks that each limit ends a client that stalls, and not before its time.
async fn check<T: ServerTimers>() {
    const SHORT: Duration = Duration::from_millis(40);
    let half_a_header = stall::<T>(Limits { header: SHORT, ..LONG }, b"GET / HTTP/1.1\r\n");
    let slow = b"GET /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let slow = stall::<T>(Limits { request: SHORT, ..LONG }, slow);
    let silent = stall::<T>(Limits { idle: SHORT, ..LONG }, b"");
    let (header, request, idle) = tokio::join!(half_a_header, slow, silent);
    for (name, (time, _)) in [("header", &header), ("request", &request), ("idle", &idle)] {
        assert!((SHORT..LONG.request).contains(time), "{}: the {name} timeout after {time:?}", T::NAME);
    }
    let status = format!("HTTP/1.1 {} ", TOO_LATE.as_u16());
    assert!(request.1.starts_with(status.as_bytes()), "{}: a slow request", T::NAME);
}

/// Sends `bytes` to a server, and waits until the server closes the connection. Returns the time that this takes, and
/// the bytes that the server sends before.
async fn stall<T: ServerTimers>(limits: Limits, bytes: &[u8]) -> (Duration, Vec<u8>) {
    let address = start::<T>(limits).await;
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).await.expect("the server is there");
    stream.write_all(bytes).await.expect("the server is there");
    let mut received = Vec::new();
    // A server that gives up with bytes unread resets the connection.
    drop(stream.read_to_end(&mut received).await);
    (begin.elapsed(), received)
}

fn turn<T: ServerTimers>(case: &Case) -> Figures {
    if !wrk::is_here() {
        cannot(wrk::why_not());
    }
    let runtime = T::runtime();
    if T::LIMITS {
        runtime.block_on(runtime.spawn(check::<T>())).expect("the limits hold");
    }
    let server = runtime.block_on(runtime.spawn(start::<T>(LONG))).expect("the server starts");
    let load = |time: Duration| {
        wrk::run(server, case.timers, time.as_secs()).unwrap_or_else(|error| panic!("{}: {error}", T::NAME))
    };
    if !case.lead().is_zero() {
        load(case.lead());
    }
    let before = cpu_time();
    let report = load(case.time());
    let cpu = cpu_time().zip(before).map(|(after, before)| after - before);
    Figures::default()
        .number("rate", report.requests / report.seconds)
        .number("each", report.seconds * 1e6 / report.requests)
        .number("cpu", cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / report.requests))
        .number("p50", report.p50)
        .number("p99", report.p99)
}
