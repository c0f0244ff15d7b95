//! A proxy with three timeouts for each request, under a load that leaves the cores some time.
//!
//! The clients and the backend are a process of their own (`load.rs`).

use super::load::{BEGIN, END, GIVEN_UP, Load, MESSAGE, MOST_ACCEPTED, Message, Record, WELCOME, listen};
use crate::case::Case;
use crate::contestants::{OursServer, ServerTimers, TokioServer, UnlimitedServer};
use crate::process::{cannot, cpu_time, may_open};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "requests",
    operation: "a proxy on tokio with three timeouts a request: how long an answer takes, and the proxy's processor time",
    family: Family::Servers,
    about: "Each client has a connection to the proxy, and the requests come at planned moments with random gaps, \
        whether or not earlier requests have their answers. A request takes the connection that has been free for the \
        longest time. The proxy limits the wait for the request, the request as a whole, and the wait for the \
        backend's answer. Each of the three arms a timer and drops it, unless the answer is there before the proxy \
        looks for it. The connections to the backend are shared, and each carries one request at a time. The backend \
        leaves 1 of 1,000 requests without an answer, and the proxy gives up after 200 ms; without timeouts, it \
        answers all. The proxy is a process on a runtime with tokio's defaults. Clients and backend are another \
        process, in which one thread sends, and the other receives and is the backend. The two processes share the \
        cores. *CPU a request* is the processor time of the proxy's process, by its own clock, over the requests of \
        the measured time. An *answer* is the time from a request's planned moment to the backend's answer, as the \
        client sees it. The first second is not recorded. Checked: each request has its own answer, from the proxy \
        itself only if the backend gave none, and no timeout comes before its time.",
    reading: "The difference to the row *without timeouts* is the price of the three timeouts. In the row *turned by \
        the runtime* the proxy uses `tourbillon::time` without configuration, and a task of the runtime turns the \
        timers. In the row *a reusable timeout each* a connection has a `ReusableTimeout` for each of its three \
        waits, in place of a new timer for each request. tokio's alternative timer is an option of its unstable builds.",
    cases,
    columns: |_| {
        vec![
            Column::new("cpu", "CPU a request", "µs"),
            Column::new("p50", "an answer, p50", "ms"),
            Column::new("p99", "p99", "ms"),
            Column::new("p999", "p99.9", "ms"),
            Column::new("load_cpu", "CPU of clients and backend a request", "µs"),
        ]
    },
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        vec![
            Entrant::server::<OursServer<false>>(turn::<OursServer<false>>),
            Entrant::server::<OursServer<true>>(turn::<OursServer<true>>),
            Entrant::server::<TokioServer<false>>(turn::<TokioServer<false>>),
            Entrant::server::<TokioServer<true>>(turn::<TokioServer<true>>),
            Entrant::server::<UnlimitedServer>(turn::<UnlimitedServer>),
        ]
    },
};

/// The limit of the wait for a client's next request. In the measurement, no wait reaches this limit.
const IDLE: Duration = Duration::from_secs(60);
/// The limit of a request as a whole. In the measurement, no request reaches this limit.
const REQUEST: Duration = Duration::from_secs(10);
/// The limit of the wait for the backend's answer.
const ANSWER: Duration = Duration::from_millis(200);
/// The number of files that a process may need beside its clients' connections. Most of these files are connections to
/// the backend.
const SPARE_FILES: u64 = 3_000;

fn cases(scale: Scale) -> Vec<Case> {
    let connections = scale.pick([1_000, 10_000], [200, 2_000], [8, 16]);
    let (rate, time_ms, lead_ms) = scale.pick((15_000, 4_000, 1_000), (5_000, 500, 200), (500, 200, 50));
    let case = |timers| {
        let name = format!("{} connections, {} requests a second", thousands(timers), thousands(rate));
        Case { timers, rate: rate as u64, time_ms, lead_ms, ..Case::named(name) }
    };
    connections.map(case).into()
}

/// The connections to the backend.
struct Backend {
    address: SocketAddr,
    free: Mutex<Vec<TcpStream>>,
}

impl Backend {
    /// Returns a connection that carries no request. Makes a new connection if all connections carry requests.
    async fn take(&self) -> TcpStream {
        let free = self.free.lock().expect("no task panics with it").pop();
        match free {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await.expect("the backend is there");
                stream.set_nodelay(true).expect("an option of TCP");
                stream
            }
        }
    }

    fn give_back(&self, stream: TcpStream) {
        self.free.lock().expect("no task panics with it").push(stream);
    }
}

/// Reads a message. Returns `None` if the peer has closed the connection.
async fn read(stream: &mut TcpStream) -> Option<Message> {
    let mut message = [0; MESSAGE];
    match stream.read_exact(&mut message).await {
        Ok(_) => Some(message),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("a message cannot be read: {error}"),
    }
}

/// Passes the requests of a client to the backend, and the answers to the client.
async fn pass_on<T: ServerTimers>(mut client: TcpStream, backend: Arc<Backend>) {
    let (mut idle, mut whole, mut wait) = (T::Limit::default(), T::Limit::default(), T::Limit::default());
    loop {
        let request = T::timeout(&mut idle, IDLE, read(&mut client)).await;
        let Some(request) = request.expect("no client is idle") else { return };
        let answer = T::timeout(&mut whole, REQUEST, answer::<T>(&mut wait, request, &backend)).await;
        let answer = answer.expect("the wait for an answer has a shorter limit");
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Returns the backend's answer, or the proxy's own answer after too long a wait.
async fn answer<T: ServerTimers>(wait: &mut T::Limit, request: Message, backend: &Backend) -> Message {
    let mut stream = backend.take().await;
    stream.write_all(&request).await.expect("the backend is there");
    let begin = Instant::now();
    match T::timeout(wait, ANSWER, read(&mut stream)).await {
        Some(answer) => {
            backend.give_back(stream);
            answer.expect("the backend is there")
        }
        None => {
            assert!(begin.elapsed() >= ANSWER, "no timeout is early");
            let mut answer = request;
            answer[0] = GIVEN_UP;
            answer
        }
    }
}

async fn accept<T: ServerTimers>(listener: TcpListener, backend: Arc<Backend>) {
    loop {
        let (mut client, _) = listener.accept().await.expect("a connection");
        client.set_nodelay(true).expect("an option of TCP");
        client.write_u8(WELCOME).await.expect("the client waits for it");
        tokio::spawn(pass_on::<T>(client, Arc::clone(&backend)));
    }
}

fn turn<T: ServerTimers>(case: &Case) -> Figures {
    if !may_open(case.timers as u64 + SPARE_FILES) {
        cannot("the system permits too few open files");
    }
    let runtime = T::runtime();
    let (listener, address) = runtime.block_on(async { listen(MOST_ACCEPTED) });
    let mut load = Load::start(address, case, T::LIMITS);
    let address = load.line().parse().expect("an address");
    let backend = Arc::new(Backend { address, free: Mutex::default() });
    runtime.spawn(accept::<T>(listener, backend));
    assert_eq!(load.line(), BEGIN);
    let before = cpu_time();
    assert_eq!(load.line(), END);
    let cpu = cpu_time().zip(before).map(|(after, before)| after - before);
    let record: Record = serde_json::from_str(&load.line()).expect("a record");
    Figures::default()
        .number("cpu", cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / record.requests as f64))
        .number("p50", record.p50)
        .number("p99", record.p99)
        .number("p999", record.p999)
        .number("load_cpu", record.cpu)
}
