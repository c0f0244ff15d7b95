//! A proxy whose connections wait for each request and each answer with a timeout. The machine has no processor time to
//! spare.
//!
//! Clients, proxy and backend are tasks of one tokio runtime, which fills the cores. The timer's threads compete with
//! this runtime.

use super::shots::Sorted;
use crate::case::Case;
use crate::common::Chance;
use crate::process::cpu_time;
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tourbillon::future::Wakeup;
use tourbillon::{Builder, LoopShard};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "proxy",
    operation: "a proxy on tokio passes requests on and waits for the answers with timeouts, while its clients keep the cores busy",
    family: Family::Firing,
    about: "Each client sends its next small request when it has the answer to its last request. The backend leaves \
        1 of 100 requests without an answer: the proxy then gives up after 200 ms, closes the connection to the \
        backend, and answers in its place. The wait for the client's next request has a longer timeout, which is \
        never due. Clients, proxy and backend are tasks of one multi-threaded runtime with a worker for each core. \
        *Lateness* is the time at which the proxy's task finds that its timeout has passed, by its own `Instant`, \
        less the deadline. An *answer* is the time from a client's request to the backend's answer; answers of the \
        proxy itself do not count. The first half of a second is not recorded. Checked: each request has its answer, \
        and no timeout comes before its deadline.",
    reading: "A timeout that is due waits for its task, whatever the timer: the task is one of a thousand that are \
        ready. tokio fires its timers on a worker, which puts the tasks into its own queue. A task that a thread \
        outside of the runtime wakes waits in the queue that all workers share. In the row *turned by a task* a task \
        of the runtime turns a loop's shard, and no thread of the engine runs. The row *by tokio's names* uses \
        `tourbillon::time` without configuration.",
    cases,
    columns: |_| {
        vec![
            Column::new("rate", "requests", "1/s"),
            Column::new("answer_p50", "an answer, p50", "ms"),
            Column::new("answer_p99", "p99", "ms"),
            Column::new("late_p50", "lateness, p50", "ms"),
            Column::new("late_p99", "p99", "ms"),
            Column::new("late_p999", "p99.9", "ms"),
            Column::new("cpu", "CPU a request", "µs"),
        ]
    },
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        vec![
            Entrant::here("engine, own workers", true, |case| turn(case, &Ours::of(Builder::new()))),
            Entrant::here("engine, not pinned", true, |case| {
                turn(case, &Ours::of(Builder::new().unpinned()))
            }),
            Entrant::here("engine, turned by a task", true, |case| turn(case, &Turned::new())),
            Entrant::here("engine, by tokio's names", true, |case| turn(case, &Named)),
            Entrant::here("tokio", false, |case| turn(case, &Tokio)),
        ]
    },
};

/// The number of bytes of a request and of an answer.
const MESSAGE: usize = 64;
/// The first byte of a request that must be answered, and the first byte of the answer.
const ANSWERED: u8 = 1;
const UNANSWERED: u8 = 2;
const GIVEN_UP: u8 = 3;

const PATIENCE: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_secs(30);

type Message = [u8; MESSAGE];

fn cases(scale: Scale) -> Vec<Case> {
    let connections = scale.pick(1_000, 200, 8);
    let (time_ms, lead_ms) = scale.pick((3_000, 500), (500, 200), (300, 50));
    let name = format!("{} connections", thousands(connections));
    vec![Case { timers: connections, time_ms, lead_ms, ..Case::named(name) }]
}

/// The timers by which a proxy limits its requests.
trait Timers: Clone + Send + Sync + 'static {
    /// Starts the timers. The caller is on the runtime.
    fn begin(&self) {}

    /// Returns the future's output. Returns `None` if the future is not ready at `deadline`.
    fn within<F: Future<Output: Send> + Send>(
        &self,
        deadline: Instant,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;
}

#[derive(Clone)]
struct Ours(Arc<tourbillon::Engine<Wakeup>>);

impl Ours {
    fn of(builder: Builder) -> Self {
        Self(Arc::new(builder.start_futures().expect("the system gives us threads")))
    }
}

impl Timers for Ours {
    async fn within<F: Future<Output: Send> + Send>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Option<F::Output> {
        self.0.handle().timeout_at(deadline.into(), future).await.ok()
    }
}

/// Our timers on a shard of the engine. A task of the runtime turns the shard, as in the example `tokio_loop`.
#[derive(Clone)]
struct Turned {
    engine: Arc<tourbillon::Engine<Wakeup>>,
    shard: Arc<Mutex<Option<LoopShard>>>,
}

impl Turned {
    fn new() -> Self {
        let (shards, mut loops) = Builder::new().loops(1).expect("one loop");
        let engine = shards.engine().start_futures().expect("there are no threads to start");
        Self { engine: Arc::new(engine), shard: Arc::new(Mutex::new(loops.pop())) }
    }
}

impl Timers for Turned {
    fn begin(&self) {
        let shard = self.shard.lock().expect("no task panics with it").take();
        tokio::spawn(shard.expect("it begins once").turn_as_task(tokio::time::sleep));
    }

    async fn within<F: Future<Output: Send> + Send>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Option<F::Output> {
        self.engine.handle().timeout_at(deadline.into(), future).await.ok()
    }
}

/// Our timers by tokio's names, without configuration: the first future of the runtime spawns the task that turns them.
#[derive(Clone)]
struct Named;

impl Timers for Named {
    async fn within<F: Future<Output: Send> + Send>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Option<F::Output> {
        tourbillon::time::timeout_at(deadline.into(), future).await.ok()
    }
}

#[derive(Clone)]
struct Tokio;

impl Timers for Tokio {
    async fn within<F: Future<Output: Send> + Send>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Option<F::Output> {
        tokio::time::timeout_at(deadline.into(), future).await.ok()
    }
}

/// The measurements from requests between the moments `begin` and `end`.
struct Record {
    begin: Instant,
    end: Instant,
    /// The number of all requests, including those outside the measured time.
    requests: AtomicU64,
    answers: Mutex<Vec<u64>>,
    lateness: Mutex<Vec<u64>>,
}

impl Record {
    fn is_open(&self, at: Instant) -> bool {
        (self.begin..self.end).contains(&at)
    }

    fn keep(all: &Mutex<Vec<u64>>, own: Vec<u64>) {
        all.lock().expect("no task panics with it").extend(own);
    }

    fn sorted(all: &Mutex<Vec<u64>>) -> Sorted {
        Sorted::new(std::mem::take(&mut all.lock().expect("no task panics with it")))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than 584 years")
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
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

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.expect("the listener is there");
    stream.set_nodelay(true).expect("an option of TCP");
    stream
}

/// Reads requests from a connection. Answers each request that asks for an answer.
async fn serve(mut stream: TcpStream) {
    while let Some(message) = read(&mut stream).await {
        if message[0] == ANSWERED && stream.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// Passes the requests of one client to the backend, and the answers to the client.
async fn pass_on(mut client: TcpStream, backend: SocketAddr, timers: impl Timers, record: Arc<Record>) {
    let mut lateness = Vec::new();
    let mut stream = connect(backend).await;
    loop {
        let request = timers.within(Instant::now() + IDLE, read(&mut client)).await;
        let Some(request) = request.expect("no client is idle") else { break };
        stream.write_all(&request).await.expect("the backend is there");
        let deadline = Instant::now() + PATIENCE;
        let answer = match timers.within(deadline, read(&mut stream)).await {
            Some(answer) => answer.expect("the backend is there"),
            None => {
                let now = Instant::now();
                let late = now.checked_duration_since(deadline).expect("no timeout is early");
                if record.is_open(deadline) {
                    lateness.push(nanos(late));
                }
                stream = connect(backend).await;
                [GIVEN_UP; MESSAGE]
            }
        };
        client.write_all(&answer).await.expect("the client waits for it");
    }
    Record::keep(&record.lateness, lateness);
}

/// Sends requests to the proxy one after the other, until the record's end.
async fn ask(proxy: SocketAddr, seed: u64, record: Arc<Record>) {
    let (mut stream, mut chance) = (connect(proxy).await, Chance::new(seed));
    let mut answers = Vec::new();
    loop {
        let begin = Instant::now();
        if begin >= record.end {
            break;
        }
        let wanted = if chance.within(&(0..100)) == 0 { UNANSWERED } else { ANSWERED };
        stream.write_all(&[wanted; MESSAGE]).await.expect("the proxy is there");
        let answer = read(&mut stream).await.expect("each request has its answer");
        assert!(
            answer[0] == wanted && wanted == ANSWERED || answer[0] == GIVEN_UP,
            "an answer to something else"
        );
        record.requests.fetch_add(1, Ordering::Relaxed);
        if answer[0] == ANSWERED && record.is_open(begin) {
            answers.push(nanos(begin.elapsed()));
        }
    }
    Record::keep(&record.answers, answers);
}

fn turn(case: &Case, timers: &impl Timers) -> Figures {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().build().expect("the system gives us threads");
    let (record, cpu) = runtime.block_on(async {
        timers.begin();
        let ((backend, backend_address), (proxy, proxy_address)) = (listen().await, listen().await);
        let begin = Instant::now() + case.lead();
        let (requests, answers, lateness) = Default::default();
        let record = Arc::new(Record { begin, end: begin + case.time(), requests, answers, lateness });
        let backend = tokio::spawn(async move {
            loop {
                let (stream, _) = backend.accept().await.expect("a connection");
                stream.set_nodelay(true).expect("an option of TCP");
                tokio::spawn(serve(stream));
            }
        });
        let (timers, of_proxy, count) = (timers.clone(), Arc::clone(&record), case.timers);
        let proxy = tokio::spawn(async move {
            let mut connections = Vec::new();
            for _ in 0..count {
                let (client, _) = proxy.accept().await.expect("a connection");
                client.set_nodelay(true).expect("an option of TCP");
                let passing = pass_on(client, backend_address, timers.clone(), Arc::clone(&of_proxy));
                connections.push(tokio::spawn(passing));
            }
            for connection in connections {
                connection.await.expect("the proxy's checks hold");
            }
        });
        let clients: Vec<_> = (0..count as u64)
            .map(|seed| tokio::spawn(ask(proxy_address, seed, Arc::clone(&record))))
            .collect();
        let before = cpu_time();
        for client in clients {
            client.await.expect("the client's checks hold");
        }
        let cpu = cpu_time().zip(before).map(|(after, before)| after - before);
        proxy.await.expect("the proxy's checks hold");
        backend.abort();
        (record, cpu)
    });
    let count = record.answers.lock().expect("no task panics with it").len();
    let (answers, late) = (Record::sorted(&record.answers), Record::sorted(&record.lateness));
    assert!(answers.quantile(0.0).is_some() && late.quantile(0.0).is_some(), "nothing was recorded");
    let all = record.requests.load(Ordering::Relaxed) as f64;
    Figures::default()
        .number("rate", count as f64 / case.time().as_secs_f64())
        .number("answer_p50", answers.millis(0.5))
        .number("answer_p99", answers.millis(0.99))
        .number("late_p50", late.millis(0.5))
        .number("late_p99", late.millis(0.99))
        .number("late_p999", late.millis(0.999))
        .number("cpu", cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / all))
}
