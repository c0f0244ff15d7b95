//! Runs `tourbillond demo`. It starts a service and a receiver of callbacks on this machine, with files in a temporary
//! folder.
//!
//! Three timers show the abilities of the service. The first timer's callback arrives. The second timer's callback
//! fails and is repeated. The third timer is cancelled. The timers are created over HTTP, as by any client.

use super::terminal::{Failure, Outcome, print};
use crate::config::Config;
use crate::listen::{Limits, Listeners, Server};
use crate::service::Service;
use crate::task;
use axum::body::Bytes;
use clap::{Arg, ArgAction, ArgMatches, Command};
use core::convert::Infallible;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(super) fn command() -> Command {
    Command::new("demo")
        .about("Shows callbacks arrive, with a receiver on this machine and files in a temporary folder")
        .arg(
            Arg::new("exit")
                .long("exit")
                .action(ArgAction::SetTrue)
                .help("Ends after the demonstration, instead of with Ctrl-C"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let shown = runtime.block_on(show(matches.get_flag("exit")));
    runtime.shutdown_background();
    shown.map(|()| ExitCode::SUCCESS)
}

/// The state of the demonstration's receiver of callbacks. The receiver answers the first callback to `/unsure` with
/// 503.
#[derive(Clone)]
struct Receiver {
    received: mpsc::UnboundedSender<Received>,
    has_failed: Arc<Mutex<bool>>,
}

/// A callback that the demonstration's receiver has received, with the status of the receiver's answer.
struct Received {
    path: String,
    id: String,
    attempt: String,
    body: Bytes,
    status: StatusCode,
}

async fn receive(receiver: Receiver, request: Request<Incoming>) -> StatusCode {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let mut has_failed = receiver.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
    let status = if path == "/unsure" && !*has_failed {
        *has_failed = true;
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::NO_CONTENT
    };
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("?").to_owned();
    let received =
        Received { path, id: header("webhook-id"), attempt: header("tourbillon-attempt"), body, status };
    // After the demonstration, callbacks of the user's own timers are printed as well.
    let _ended = receiver.received.send(received);
    status
}

/// Answers the callbacks that arrive at `listener`, over plain HTTP/1.1. Does not use [`Server`], because the compiler
/// would then generate the code of `Server` a second time, for a second type of service.
async fn receive_all(listener: TcpListener, receiver: Receiver) {
    while let Ok((stream, _)) = listener.accept().await {
        let receiver = receiver.clone();
        let service = service_fn(move |request| {
            let receiver = receiver.clone();
            async move {
                let mut answer = Response::new(Empty::<Bytes>::new());
                *answer.status_mut() = receive(receiver, request).await;
                Ok::<_, Infallible>(answer)
            }
        });
        drop(tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service)));
    }
}

/// Sends a request with a JSON body to the service. Returns the JSON of the answer. Fails if the status is not a
/// success.
async fn send(service: SocketAddr, method: &str, path: &str, body: Value) -> Result<Value, Failure> {
    let stream = TcpStream::connect(service).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    drop(tokio::spawn(connection));
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", service.to_string())
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let answer: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
    if status.is_success() { Ok(answer) } else { Err(format!("{method} {path}: {status}: {answer}").into()) }
}

/// The moment at which the demonstration began. Its methods print lines that begin with the time since this moment.
struct Clock(Instant);

impl Clock {
    fn say(&self, line: impl core::fmt::Display) -> Result<(), Failure> {
        say_at(self.0.elapsed(), line)
    }

    fn say_received(&self, received: &Received) -> Result<(), Failure> {
        let Received { path, id, attempt, body, status } = received;
        let body = String::from_utf8_lossy(body);
        self.say(format_args!("<- callback {path} {body}, attempt {attempt} of {id}; answered {status}"))
    }
}

fn say_at(time: Duration, line: impl core::fmt::Display) -> Result<(), Failure> {
    print(format_args!("{:6.2} s  {line}\n", time.as_secs_f64()))
}

/// Listens on the service's usual address. If another program uses this address, listens on a free port of this machine
/// instead.
async fn listen() -> Result<Listeners, Failure> {
    let usual = Config::default().listen;
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match Listeners::bind(&usual).await {
        Ok(listeners) => Ok(listeners),
        Err(_taken) => Listeners::bind(&[free]).await.map_err(|(_, error)| error.into()),
    }
}

/// Runs the service and the demonstration. With `ends`, returns after the demonstration, and fails at Ctrl-C. Without
/// `ends`, runs both until Ctrl-C. The service is always closed before its folder is removed.
async fn show(ends: bool) -> Result<(), Failure> {
    // A single future waits for the signal all the time. With a new future for each wait, a signal could be lost in
    // between. After the first poll, a signal no longer ends the process. Otherwise a signal during the steps below
    // would leave the folder.
    let mut interrupt = core::pin::pin!(tokio::signal::ctrl_c());
    let interrupted = |signal: io::Result<()>| {
        signal?;
        if ends { Err("interrupted before the end of the demonstration".into()) } else { Ok(()) }
    };
    if let Some(signal) = interrupt.as_mut().now_or_never() {
        return interrupted(signal);
    }
    let folder = tempfile::Builder::new().prefix("tourbillond-demo-").tempdir()?;
    let listeners = listen().await?;
    let addresses = listeners.addresses()?;
    let address = *addresses.first().ok_or("no address")?;
    let mut settings = Config { data: folder.path().to_owned(), ..Config::default() }.settings()?;
    // The receiver speaks plain HTTP, and it is on this machine. The service permits neither by default.
    settings.rules.allow_http = true;
    settings.caller.guard.allow_private = true;
    settings.caller.guard.own.extend(&addresses);
    let service = Service::open(settings)?;
    let server = Server::start(listeners, &service, None, Limits::default());
    let shown = match &server {
        Ok(server) => {
            let shown = tokio::select! {
                shown = demonstrate(address, ends) => shown,
                signal = interrupt => interrupted(signal),
            };
            server.stop();
            shown
        }
        // The service is closed before this error is returned.
        Err(_) => Ok(()),
    };
    task::blocking(move || service.close(Duration::from_secs(1))).await?;
    server?.abort();
    shown
}

/// Creates the three timers, and prints their callbacks. Without `ends`, then prints further callbacks, and never
/// returns.
async fn demonstrate(address: SocketAddr, ends: bool) -> Result<(), Failure> {
    let (sender, mut received) = mpsc::unbounded_channel();
    let receiver = Receiver { received: sender, has_failed: Arc::default() };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let hooks = format!("http://{}", listener.local_addr()?);
    task::start(receive_all(listener, receiver));

    print(format_args!("The service listens on http://{address}, a receiver of callbacks on {hooks}.\n\n"))?;
    let clock = Clock(Instant::now());
    let place = async |key: &str, delay_ms: u64, path: &str| {
        let timer = json!({
            "delay_ms": delay_ms,
            "callback": { "url": format!("{hooks}{path}"), "json": { "timer": key } },
            "policy": { "backoff": { "kind": "fixed", "pause_ms": 1_500 } },
        });
        // The delay counts from a moment between the request and its answer.
        let begun = clock.0.elapsed();
        let answer = send(address, "PUT", &format!("/v1/namespaces/default/timers/{key}"), timer).await?;
        let id = &answer["id"];
        say_at(begun, format_args!("-> the timer {key} is stored, due in {} s: {id}", delay_ms / 1_000))
    };
    place("reminder", 5_000, "/reminder").await?;
    place("unsure", 3_000, "/unsure").await?;
    place("regretted", 4_000, "/regretted").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = send(address, "DELETE", "/v1/namespaces/default/timers/regretted", Value::Null).await?;
    clock.say(format_args!("-> the timer regretted is cancelled: {}", answer["result"]))?;

    // One callback of `reminder` is expected, and two of `unsure`, since the first of them fails.
    let mut missing = 3;
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while missing > 0 {
        let next = tokio::time::timeout_at(end, received.recv()).await;
        let Ok(Some(callback)) = next else {
            return Err("the callbacks have not arrived within 30 s".into());
        };
        if callback.path == "/regretted" {
            return Err("the callback of a cancelled timer has arrived".into());
        }
        clock.say_received(&callback)?;
        missing -= 1;
    }
    // The due moment of the cancelled timer has passed.
    clock.say("   the callback of the cancelled timer has not arrived")?;
    print(format_args!("{}", how_to_go_on(address, &hooks)))?;
    // The receiver keeps its sender as long as it runs, so the loop does not end by itself.
    while !ends && let Some(callback) = received.recv().await {
        clock.say_received(&callback)?;
    }
    Ok(())
}

fn how_to_go_on(service: SocketAddr, hooks: &str) -> String {
    format!(
        "
The service runs until Ctrl-C. In another terminal:

curl -X PUT http://{service}/v1/namespaces/default/timers/mine -H 'content-type: application/json' \\
  -d '{{ \"delay_ms\": 2000, \"callback\": {{ \"url\": \"{hooks}/mine\", \"json\": {{ \"n\": 1 }} }} }}'
curl http://{service}/v1/namespaces/default/timers/mine
curl -X DELETE http://{service}/v1/namespaces/default/timers/mine

"
    )
}
