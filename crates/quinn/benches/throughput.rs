//! quinn's work by tokio's timer and by the engine's, and the cost of one reset of a timer.
//!
//! `cargo bench -p tourbillon-quinn` prints each figure as the median and the range of its rounds. The two runtimes
//! take turns within a round, on endpoints that are made for the round. Beside each rate is the processor time of the
//! whole process, with both peers. Under `cargo test --benches` each part runs once with tiny numbers, to show that it
//! works.
#![expect(clippy::print_stdout, reason = "the program prints its figures")]

#[path = "../examples/transfer/peers.rs"]
mod peers;

use peers::Peers;
use quinn::{AsyncTimer, AsyncUdpSocket, Connection, Endpoint, Runtime, TransportConfig};
use std::future::poll_fn;
use std::hint::black_box;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{array, io};
use tokio::runtime::{self, Builder};
use tokio::task::unconstrained;

type AnyRuntime = Arc<dyn Runtime>;

type Contestant = (&'static str, fn() -> AnyRuntime);

const CONTESTANTS: [Contestant; 2] = [
    ("tokio", || Arc::new(quinn::TokioRuntime)),
    ("tourbillon", || Arc::new(tourbillon_quinn::TokioRuntime)),
];

/// The number of streams that are open at the same time.
const AT_ONCE: usize = 100;
/// The length of the message of a small stream or a request, in bytes.
const MESSAGE: usize = 64;
/// The number of bytes of one write to a large stream.
const BLOCK: usize = 64 << 10;
const MS: Duration = Duration::from_millis(1);

struct Sizes {
    rounds: usize,
    /// The length of the large stream, in MiB.
    mebibytes: usize,
    /// The number of small streams.
    streams: usize,
    connections: usize,
    requests_each: usize,
    resets: u32,
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let sizes = if is_bench {
        Sizes {
            rounds: 15,
            mebibytes: 128,
            streams: 20_000,
            connections: 100,
            requests_each: 200,
            resets: 100_000,
        }
    } else {
        Sizes { rounds: 1, mebibytes: 1, streams: 200, connections: 3, requests_each: 5, resets: 100 }
    };
    works(&sizes);
    resets(&sizes);
}

// --- Work over connections ---

/// A kind of work, with the unit in which its amount is counted.
struct Work {
    name: String,
    unit: &'static str,
    amount: usize,
    run: Run,
}

/// A function that does the work once. It gets the sizes, the server's runtime and the client's runtime.
type Run = fn(&Sizes, AnyRuntime, AnyRuntime) -> Spent;

/// The cost of an amount of work: the time that it took, and the processor time of the process.
struct Spent {
    time: Duration,
    processor: Duration,
}

fn works(sizes: &Sizes) {
    let works = [
        Work {
            name: format!("one stream of {} MiB", sizes.mebibytes),
            unit: "MiB",
            amount: sizes.mebibytes,
            run: large_stream,
        },
        Work {
            name: format!("{} streams of {MESSAGE} bytes, {AT_ONCE} at a time", sizes.streams),
            unit: "stream",
            amount: sizes.streams,
            run: small_streams,
        },
        Work {
            name: format!("{} connections, {} requests on each", sizes.connections, sizes.requests_each),
            unit: "request",
            amount: sizes.connections * sizes.requests_each,
            run: requests,
        },
    ];
    for work in works {
        compare(&work, sizes);
    }
}

fn compare(work: &Work, sizes: &Sizes) {
    println!("{}", work.name);
    let amount = work.amount as f64;
    // These runs also warm up.
    for (name, make) in CONTESTANTS {
        let counted = Arc::new(Counted::new(make()));
        (work.run)(sizes, make(), counted.clone());
        let resets = counted.resets.load(Ordering::Relaxed) as f64;
        println!(
            "  {name:<12} the client's timers were reset {:.2} times for each {}",
            resets / amount,
            work.unit
        );
    }
    let mut rates: [Vec<f64>; 2] = array::from_fn(|_| Vec::new());
    let mut costs: [Vec<f64>; 2] = array::from_fn(|_| Vec::new());
    for round in 0..sizes.rounds {
        for turn in 0..CONTESTANTS.len() {
            let contestant = (round + turn) % CONTESTANTS.len();
            let make = CONTESTANTS[contestant].1;
            let spent = (work.run)(sizes, make(), make());
            rates[contestant].push(amount / spent.time.as_secs_f64());
            costs[contestant].push(spent.processor.as_secs_f64() * 1e6 / amount);
        }
    }
    for (contestant, (name, _)) in CONTESTANTS.iter().enumerate() {
        println!(
            "  {name:<12} {} {}s a second, {} µs of processor time for each",
            figure(&mut rates[contestant]),
            work.unit,
            figure(&mut costs[contestant]),
        );
    }
    let ratios = |figures: &[Vec<f64>; 2]| -> Vec<f64> {
        figures[1].iter().zip(&figures[0]).map(|(ours, tokio_s)| ours / tokio_s).collect()
    };
    println!(
        "  ours to tokio's, within a round: rate {}, processor time {}",
        figure(&mut ratios(&rates)),
        figure(&mut ratios(&costs)),
    );
}

/// Returns the median of the values, and their range.
fn figure(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let (least, median, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    let digits = if median < 10.0 { 3 } else { usize::from(median < 1_000.0) };
    format!("{median:.digits$} ({least:.digits$}..{most:.digits$})")
}

fn measured(work: impl FnOnce()) -> Spent {
    let (begin, before) = (Instant::now(), processor_time());
    work();
    Spent { time: begin.elapsed(), processor: processor_time() - before }
}

#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("not negative")
}

/// Returns zero. The benchmark measures processor time only on Linux.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Duration {
    Duration::ZERO
}

fn peers() -> Peers {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_uni_streams(1_024_u32.into());
    Peers::new(transport).expect("a certificate")
}

fn one_thread() -> runtime::Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A client and a server on a thread each, with one connection.
struct Pair {
    client: runtime::Runtime,
    connection: Connection,
    /// The thread of the server. The thread ends with the connection.
    server: JoinHandle<()>,
    /// The number of bytes that the server has received.
    received: Arc<AtomicU64>,
}

impl Pair {
    fn start(server: AnyRuntime, client: AnyRuntime) -> Self {
        let (peers, (sender, address)) = (peers(), mpsc::channel());
        let received = Arc::new(AtomicU64::new(0));
        let (listening, reading) = (peers.clone(), Arc::clone(&received));
        let server = thread::spawn(move || {
            one_thread().block_on(async {
                let endpoint = listening.listen(server).expect("a socket");
                sender.send(endpoint.local_addr().expect("an address")).expect("the client waits");
                read_all(endpoint, &reading).await;
            });
        });
        let address = address.recv().expect("the server listens");
        let runtime = one_thread();
        let connection = runtime.block_on(peers.connect(address, client)).expect("a connection");
        Self { client: runtime, connection, server, received }
    }

    /// Ends the connection after the server has received `bytes` bytes.
    fn end(self, bytes: usize) {
        self.client.block_on(async {
            while self.received.load(Ordering::Relaxed) != bytes as u64 {
                tokio::time::sleep(MS).await;
            }
            self.connection.close(0_u32.into(), b"");
            while !self.server.is_finished() {
                tokio::time::sleep(MS).await;
            }
        });
        self.server.join().expect("the server ends");
    }
}

/// Reads all streams of one connection, and counts their bytes.
async fn read_all(endpoint: Endpoint, received: &Arc<AtomicU64>) {
    let connection = endpoint.accept().await.expect("a client").await.expect("a connection");
    while let Ok(mut stream) = connection.accept_uni().await {
        let received = Arc::clone(received);
        tokio::spawn(async move {
            while let Some(chunk) = stream.read_chunk(usize::MAX, false).await.expect("the stream is whole") {
                received.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
            }
        });
    }
}

/// Sends `count` blocks in one stream, and waits until the server has received them.
async fn send_blocks(connection: &Connection, count: usize) {
    let block = vec![0xa5; BLOCK];
    let mut stream = connection.open_uni().await.expect("a stream");
    for _ in 0..count {
        stream.write_all(&block).await.expect("the server reads");
    }
    stream.finish().expect("once");
    stream.stopped().await.expect("the server has read all");
}

fn large_stream(sizes: &Sizes, server: AnyRuntime, client: AnyRuntime) -> Spent {
    let pair = Pair::start(server, client);
    let blocks = (sizes.mebibytes << 20) / BLOCK;
    let before = blocks.div_ceil(8);
    pair.client.block_on(send_blocks(&pair.connection, before));
    let spent = measured(|| pair.client.block_on(send_blocks(&pair.connection, blocks)));
    pair.end((before + blocks) * BLOCK);
    spent
}

/// Sends a message on each of `count` streams. At most [`AT_ONCE`] streams are open at a time.
async fn send_messages(connection: &Connection, count: usize) {
    let senders: Vec<_> = (0..AT_ONCE)
        .map(|sender| {
            let connection = connection.clone();
            tokio::spawn(async move {
                for _ in (sender..count).step_by(AT_ONCE) {
                    let mut stream = connection.open_uni().await.expect("a stream");
                    stream.write_all(&[0xa5; MESSAGE]).await.expect("the server reads");
                    stream.finish().expect("once");
                    stream.stopped().await.expect("the server has read all");
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("a sender ends");
    }
}

fn small_streams(sizes: &Sizes, server: AnyRuntime, client: AnyRuntime) -> Spent {
    let pair = Pair::start(server, client);
    let before = sizes.streams.div_ceil(8);
    pair.client.block_on(send_messages(&pair.connection, before));
    let spent = measured(|| pair.client.block_on(send_messages(&pair.connection, sizes.streams)));
    pair.end((before + sizes.streams) * MESSAGE);
    spent
}

/// Answers each request of each connection with the request's own bytes.
async fn answer_all(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await.expect("a connection");
            while let Ok((mut answer, mut request)) = connection.accept_bi().await {
                let request = request.read_to_end(MESSAGE).await.expect("the request is whole");
                answer.write_all(&request).await.expect("the client reads");
                answer.finish().expect("once");
            }
        });
    }
}

async fn request(connection: &Connection, count: usize) {
    for _ in 0..count {
        let (mut request, mut answer) = connection.open_bi().await.expect("a stream");
        request.write_all(&[0xa5; MESSAGE]).await.expect("the server reads");
        request.finish().expect("once");
        let answer = answer.read_to_end(MESSAGE).await.expect("the answer is whole");
        assert_eq!(answer, [0xa5; MESSAGE]);
    }
}

async fn connect_all(
    peers: &Peers,
    count: usize,
    address: SocketAddr,
    runtime: &AnyRuntime,
) -> Vec<Connection> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(peers.connect(address, Arc::clone(runtime)).await.expect("a connection"));
    }
    connections
}

/// Measures requests on several connections. The server and all clients run in one runtime with two workers.
fn requests(sizes: &Sizes, server: AnyRuntime, client: AnyRuntime) -> Spent {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let peers = peers();
    let connections = runtime.block_on(async {
        let endpoint = peers.listen(server).expect("a socket");
        let address = endpoint.local_addr().expect("an address");
        tokio::spawn(answer_all(endpoint));
        connect_all(&peers, sizes.connections, address, &client).await
    });
    let on_all = |count: usize| {
        let clients: Vec<_> = connections
            .iter()
            .cloned()
            .map(|connection| runtime.spawn(async move { request(&connection, count).await }))
            .collect();
        for client in clients {
            runtime.block_on(client).expect("a client ends");
        }
    };
    on_all(sizes.requests_each.div_ceil(8));
    measured(|| on_all(sizes.requests_each))
}

// --- Counting resets ---

/// A runtime that counts the resets of its timers.
#[derive(Debug)]
struct Counted {
    runtime: AnyRuntime,
    resets: Arc<AtomicU64>,
}

impl Counted {
    fn new(runtime: AnyRuntime) -> Self {
        Self { runtime, resets: Arc::default() }
    }
}

impl Runtime for Counted {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(CountedTimer { timer: self.runtime.new_timer(deadline), resets: Arc::clone(&self.resets) })
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.runtime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        self.runtime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        self.runtime.now()
    }
}

#[derive(Debug)]
struct CountedTimer {
    timer: Pin<Box<dyn AsyncTimer>>,
    resets: Arc<AtomicU64>,
}

impl AsyncTimer for CountedTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.timer.as_mut().reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }
}

// --- The cost of a reset ---

/// The deadlines of successive resets, as times after the start of a round.
struct Pattern {
    name: &'static str,
    deadline: fn(u32) -> Duration,
    /// The largest number of resets in a round of this pattern. `u32::MAX` if the pattern sets no limit.
    most: u32,
}

const STEP: Duration = Duration::from_micros(1);
const ACK: Duration = Duration::from_millis(25);
const IDLE: Duration = Duration::from_secs(30);

fn resets(sizes: &Sizes) {
    let patterns = [
        Pattern { name: "later by 1 µs", deadline: |n| IDLE + n * STEP, most: u32::MAX },
        Pattern {
            name: "25 ms and 30 s ahead in turn",
            deadline: |n| if n % 2 == 0 { ACK } else { IDLE } + n * STEP,
            most: u32::MAX,
        },
        Pattern { name: "earlier by 1 µs", deadline: |n| IDLE - n * STEP, most: 256 },
    ];
    for pattern in patterns {
        println!("a reset and a poll, each deadline {}", pattern.name);
        let mut nanos: [Vec<f64>; 2] = array::from_fn(|_| Vec::new());
        for round in 0..sizes.rounds {
            for turn in 0..CONTESTANTS.len() {
                let contestant = (round + turn) % CONTESTANTS.len();
                let count = sizes.resets.min(pattern.most);
                nanos[contestant].push(nanos_of_a_reset(CONTESTANTS[contestant].1(), &pattern, count));
            }
        }
        for (contestant, (name, _)) in CONTESTANTS.iter().enumerate() {
            println!("  {name:<12} {} ns", figure(&mut nanos[contestant]));
        }
    }
}

fn nanos_of_a_reset(runtime: AnyRuntime, pattern: &Pattern, count: u32) -> f64 {
    one_thread().block_on(unconstrained(async {
        let begin = Instant::now();
        let mut timer = runtime.new_timer(begin + IDLE);
        poll_fn(|cx| {
            assert!(timer.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        // The task that turns the engine's timers has begun to sleep.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let begin = Instant::now();
        poll_fn(|cx| {
            let timed = Instant::now();
            for n in 0..count {
                timer.as_mut().reset(begin + (pattern.deadline)(n));
                black_box(timer.as_mut().poll(cx).is_pending());
            }
            Poll::Ready(timed.elapsed().as_nanos() as f64 / f64::from(count))
        })
        .await
    }))
}
