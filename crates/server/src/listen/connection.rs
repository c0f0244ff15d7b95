//! Serves a connection from its first byte to its end.

use super::activity::{Activity, Stage, UnderWay};
use super::body::{Answering, BodyFault, Fault, Received};
use super::limits::Limits;
use super::observed::Observed;
use super::places::{Place, Places};
use super::stream::Stream;
use crate::client::{Client, Notes};
use crate::http::Interface;
use crate::request_id::RequestId;
use crate::state::TokenHash;
use axum::body::Body as Answer;
use core::convert::Infallible;
use core::net::IpAddr;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, ready};
use core::time::Duration;
use http::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER};
use http::uri::Authority;
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::sync::Arc;
use tokio::sync::watch;
use tourbillon::Handle;
use tourbillon::future::{Sleep, Wakeup};
use tourbillon_api::{Problem, ProblemKind};
use tourbillon_hyper::TourbillonTimer;

/// The longest sleep of [`Patience`], the future that ends at the connection's deadline, if there is no deadline yet.
/// Then it asks again, because an answer over HTTP/2 can set a deadline without waking the connection's task.
const LOOK: Duration = Duration::from_secs(30);
/// The time between two HTTP/2 pings to the client. The client must answer a ping within the same time.
const PING: Duration = Duration::from_secs(20);
/// The greatest number of requests that an HTTP/2 connection may have under way.
const STREAMS: u32 = 100;
/// The greatest number of answers to unauthenticated requests that a connection keeps at one time, until its client
/// takes them. Beyond this number, a request gets a short refusal.
const MOST_UNAUTHENTICATED: usize = 4;
/// The number of bytes that an HTTP/2 client may send ahead, before the service reads them. The first value limits a
/// single body, and the second value all bodies of the connection.
const WINDOWS: (u32, u32) = (64 << 10, 128 << 10);

/// Serves the requests of a connection. Once `stop` is true, takes no further requests.
pub(super) async fn serve(
    stream: Stream,
    interface: Interface,
    engine: Handle<Wakeup>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    place: &mut Place,
) {
    let (activity, peer) = (Arc::clone(&place.activity), place.peer);
    let places = place.places();
    let service = service_fn(|request: Request<Incoming>| {
        let id = RequestId::of(request.headers());
        // The request counts from here and not from the start of the future: over HTTP/2 the future is a task of its
        // own, which may begin later. Until then the connection would look idle.
        let under_way = UnderWay::begin(&activity, request.version() == Version::HTTP_2);
        // The future is boxed. Otherwise an HTTP/2 answer would keep the future's memory while it waits for its client.
        let arrived = ArrivedRequest { request, id, under_way, peer, places: Arc::clone(&places) };
        Box::pin(answer(arrived, interface.clone(), engine.clone(), limits))
    });
    let timer = TourbillonTimer::new(engine.clone());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // `Patience` limits the time for a header instead. So a connection may be idle for longer than a header may take to
    // arrive.
    // hyper's `half_close` stays off. With it, hyper would not notice during a request that the client has closed its
    // half. `Observed` decides instead when hyper sees the half-close.
    builder.http1().timer(timer.clone()).header_read_timeout(None).max_buf_size(limits.header);
    builder
        .http2()
        .timer(timer)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_header_list_size(u32::try_from(limits.header).unwrap_or(u32::MAX));
    let io = TokioIo::new(Observed::new(stream, Arc::clone(&activity)));
    let mut connection = pin!(builder.serve_connection(io, service));
    let sleep = engine.sleep(limits.header_timeout);
    let mut patience = Patience { activity: Arc::clone(&activity), limits, sleep, engine: engine.clone() };
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            // The connection is polled before `Patience`, because its poll changes the state from which `Patience`
            // computes the deadline.
            // An error of the connection concerns only its own client.
            _ended = &mut connection => return,
            // Without the condition, this branch would be ready at once in each later turn, and the loop would never
            // wait again.
            _changed = stop.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                activity.note_stop();
                connection.as_mut().graceful_shutdown();
            }
            () = &mut patience => return,
            () = place.left() => {
                if activity.idleness().is_some() || activity.strangeness().is_some() {
                    return;
                }
                // The connection has lost its place, but a request arrived just before. This request is still answered.
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A future that ends once the connection's deadline has passed.
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
                // There is no deadline at present. A sleep that has not ended stays as it is. Otherwise each request
                // would set the sleep twice: at its start and at its end.
                let now = this.engine.now();
                let look = LOOK.min(this.limits.write_timeout);
                if this.sleep.deadline() > now { this.sleep.deadline() } else { now + look }
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

/// A request that has arrived: the request, its id, the address of its client, and its entry in the connection's list
/// of running requests.
struct ArrivedRequest {
    request: Request<Incoming>,
    id: RequestId,
    under_way: UnderWay,
    peer: IpAddr,
    places: Arc<Places>,
}

/// Passes facts about a request to its connection.
struct RequestNotes {
    stage: Stage,
    places: Arc<Places>,
}

impl Notes for RequestNotes {
    fn waits(&self) {
        self.stage.note_waits();
    }

    fn begin_wait(&self) -> bool {
        self.stage.begin_wait(|token| self.places.waiting().take(token))
    }

    fn is_known(&self, token: Option<TokenHash>) {
        self.stage.note_known(token);
    }
}

/// Answers a request. Refuses the request if it does not name its host properly, or if its body cannot be read.
async fn answer(
    arrived: ArrivedRequest,
    interface: Interface,
    engine: Handle<Wakeup>,
    limits: Limits,
) -> Result<Response<Answering>, Infallible> {
    let ArrivedRequest { mut request, id, under_way, peer, places } = arrived;
    let is_http2 = request.version() == Version::HTTP_2;
    let fault = Fault::default();
    let stage = under_way.stage();
    let notes = Arc::new(RequestNotes { stage: stage.clone(), places: Arc::clone(&places) });
    request.extensions_mut().insert(Client { peer, id: id.clone(), notes });
    let account = interface.account(&request);
    let response = if !has_one_host(&request) {
        bad_host(&id)
    } else if request.body().size_hint().lower() > limits.body as u64 {
        refusal(BodyFault::TooLarge, &limits, &id)
    } else {
        let request =
            request.map(|body| Answer::new(Received::new(body, &engine, &limits, fault.clone(), stage)));
        let response = interface.answer(&account, request).await;
        // The handler only knows that it could not read the body. `fault` has the reason.
        fault.get().map_or(response, |fault| refusal(fault, &limits, &id))
    };
    let noted = under_way.note_answer(MOST_UNAUTHENTICATED);
    if noted.makes_a_stranger {
        places.note_stranger();
    }
    let mut response = if noted.is_beyond { too_many() } else { response };
    account.settle(&mut response);
    let mut response = response.map(|body| Answering::new(body, under_way, is_http2));
    // HTTP/2 forbids the header `connection`, and each of its requests has a stream of its own.
    if fault.get().is_some() && !is_http2 {
        // The rest of the body is still to come, so the connection cannot take another request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Returns whether a request names its host as its HTTP version demands. Refuses a request with two hosts, because a
/// proxy and the service might each use a different host.
fn has_one_host(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => host.is_empty() || Authority::try_from(host.as_bytes()).is_ok(),
        (Some(_), Some(_)) => false,
    }
}

/// Makes the answer to a request that does not name its host properly.
fn bad_host(id: &RequestId) -> Response<Answer> {
    let detail = "a request with HTTP/1.1 has one header Host, with a host and perhaps a port";
    crate::http::refused(Problem::new(ProblemKind::BadRequest, detail), id)
}

/// Makes the answer for a client that leaves too many answers to unauthenticated requests unread. The answer has no
/// body, so it does not wait for the client.
fn too_many() -> Response<Answer> {
    let mut response = Response::new(Answer::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Makes the answer to a request whose body was too large or too slow.
fn refusal(fault: BodyFault, limits: &Limits, id: &RequestId) -> Response<Answer> {
    let problem = match fault {
        BodyFault::TooLarge => {
            Problem::new(ProblemKind::TooLarge, format!("a request has at most {} bytes", limits.body))
        }
        BodyFault::TimedOut => Problem::new(
            ProblemKind::Timeout,
            format!("the body did not arrive within {} ms", limits.body_timeout.as_millis()),
        ),
    };
    crate::http::refused(problem, id)
}
