//! One connection, from its first byte to its end.

use super::activity::{Activity, Observed, UnderWay};
use super::body::{Answering, BodyFault, Fault, Received};
use super::limits::Limits;
use axum::body::Body as Answer;
use core::convert::Infallible;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, ready};
use core::time::Duration;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tourbillon::Handle;
use tourbillon::future::{Sleep, Wakeup};
use tourbillon_api::{Problem, ProblemKind};
use tourbillon_hyper::TourbillonTimer;
use tower_service::Service;

/// The time between two looks at a connection that has no deadline.
const LOOK: Duration = Duration::from_secs(30);
/// The time between two pings of HTTP/2, and the time for the answer.
const PING: Duration = Duration::from_secs(20);
/// The greatest number of requests at a time on one connection of HTTP/2.
const STREAMS: u32 = 256;

/// What answers requests.
pub(super) trait Answers:
    Service<Request<Answer>, Response = Response<Answer>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Answer>, Response = Response<Answer>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Serves the requests of one connection. `stop` changes once when the requests under way are to be the last.
pub(super) async fn serve<S>(
    stream: S,
    service: impl Answers,
    engine: Handle<Wakeup>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::new(engine.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let is_http2 = request.version() == Version::HTTP_2;
        let under_way = UnderWay::begin(&activity, is_http2);
        answer(request, service.clone(), engine.clone(), limits, under_way)
    });
    let timer = TourbillonTimer::new(engine.clone());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The header has its timeout here, so that a connection may be idle for longer than a header may take.
    builder.http1().timer(timer.clone()).header_read_timeout(None).max_buf_size(limits.header);
    builder
        .http2()
        .timer(timer)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(limits.header).unwrap_or(u32::MAX));
    let io = TokioIo::new(Observed::new(stream, Arc::clone(&activity)));
    let mut connection = pin!(builder.serve_connection(io, service));
    let sleep = engine.sleep(limits.header_timeout);
    let mut patience = Patience { activity: Arc::clone(&activity), limits, sleep, engine: engine.clone() };
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            // A fault of the connection concerns the client alone.
            _ended = &mut connection => return,
            _changed = stop.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut patience => return,
        }
    }
}

/// Ends once the connection's time is over.
struct Patience {
    activity: Arc<Activity>,
    limits: Limits,
    sleep: Sleep,
    engine: Handle<Wakeup>,
}

impl Future for Patience {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let deadline = this.activity.deadline(&this.limits);
            let wake = deadline.unwrap_or_else(|| {
                // The sleep stays for a while: an answer would otherwise move it twice.
                let now = this.engine.now();
                if this.sleep.deadline() > now { this.sleep.deadline() } else { now + LOOK }
            });
            if this.sleep.deadline() != wake {
                this.sleep.reset(wake);
            }
            ready!(Pin::new(&mut this.sleep).poll(cx));
            if deadline.is_some_and(|deadline| deadline <= this.engine.now()) {
                return Poll::Ready(());
            }
        }
    }
}

/// Answers one request.
async fn answer(
    request: Request<Incoming>,
    mut service: impl Answers,
    engine: Handle<Wakeup>,
    limits: Limits,
    under_way: UnderWay,
) -> Result<Response<Answering>, Infallible> {
    let is_http2 = request.version() == Version::HTTP_2;
    let fault = Fault::default();
    let response = if request.body().size_hint().lower() > limits.body as u64 {
        refusal(BodyFault::TooLarge, &limits)
    } else {
        let request = request.map(|body| Answer::new(Received::new(body, &engine, &limits, fault.clone())));
        let response = service.call(request).await.unwrap_or_else(|never| match never {});
        fault.get().map_or(response, |fault| refusal(fault, &limits))
    };
    let mut response = response.map(|body| Answering { body, under_way });
    if fault.get().is_some() && !is_http2 {
        // The rest of the body is still to come.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// The answer to a request whose body was not read to its end.
fn refusal(fault: BodyFault, limits: &Limits) -> Response<Answer> {
    let problem = match fault {
        BodyFault::TooLarge => {
            Problem::new(ProblemKind::TooLarge, format!("a request has at most {} bytes", limits.body))
        }
        BodyFault::TimedOut => Problem::new(
            ProblemKind::Timeout,
            format!("the body did not arrive within {} ms", limits.body_timeout.as_millis()),
        ),
    };
    crate::http::refused(problem)
}
