//! The clients and the backend of the workload `requests`. They are a process of their own, so that their processor
//! time is not the proxy's.
//!
//! One thread is the backend, and receives the clients' answers. The other thread sends the requests, each at its
//! planned moment, on the connection that has been free for the longest time. A request that finds no connection free
//! waits, and its time counts from the planned moment.

use super::shots::Sorted;
use crate::case::Case;
use crate::common::Chance;
use crate::process::cpu_time;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Lines};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

/// The number of bytes of a request and of an answer.
pub(super) const MESSAGE: usize = 64;
pub(super) type Message = [u8; MESSAGE];

/// The first byte of a request that must be answered, and the first byte of the answer.
const ANSWERED: u8 = 1;
/// The first byte of a request that the backend leaves without an answer.
const UNANSWERED: u8 = 2;
/// The first byte of an answer that the proxy makes in place of the backend's.
pub(super) const GIVEN_UP: u8 = 3;
/// The index, in a message, of the byte that repeats the request's first byte. An answer has the same byte there.
const WANTED: usize = 1;
const PLANNED: std::ops::Range<usize> = 8..16;
const CLIENT: std::ops::Range<usize> = 16..24;

/// The number of requests of which the backend leaves one without an answer.
const RARE: u64 = 1_000;
/// The time after which a request without an answer makes the measurement fail.
const PATIENCE: Duration = Duration::from_secs(10);

/// The byte that the proxy sends when it has accepted a connection.
pub(super) const WELCOME: u8 = 4;
/// The greatest number of connections that wait for the proxy's welcome. The system would drop further connections.
const MOST_WAITING: usize = 100;

/// The number of connections that a listener may have to queue, as long as the system permits as many.
pub(super) const MOST_ACCEPTED: usize = 4_096;

/// Listens on a free port of this machine, with room for `count` connections that nobody has accepted yet.
pub(super) fn listen(count: usize) -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("the system gives us a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let listener = socket.listen(u32::try_from(count).expect("some connections")).expect("it is bound");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// The line that marks the start of the measured time. The line `END` marks the end.
pub(super) const BEGIN: &str = "begin";
pub(super) const END: &str = "end";

/// The measurements of the requests that were planned in the measured time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) requests: u64,
    /// The time from the planned moment of a request to the backend's answer, in ms.
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p999: Option<f64>,
    /// The processor time of this process for each request, in µs.
    pub(super) cpu: Option<f64>,
}

/// The process with clients and backend, as the proxy sees it.
pub(super) struct Load {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Load {
    /// Starts the clients and the backend. The clients connect to `proxy` at once.
    pub(super) fn start(proxy: SocketAddr, case: &Case, leaves_unanswered: bool) -> Self {
        let case = serde_json::to_string(case).expect("a case is JSON");
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(program)
            .args(["load", &proxy.to_string(), &case, &leaves_unanswered.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the system gives us a process");
        let output = child.stdout.take().expect("it is piped");
        Self { child, lines: BufReader::new(output).lines() }
    }

    /// Returns the next line that the process prints: the backend's address, [`BEGIN`], [`END`] and the record.
    pub(super) fn line(&mut self) -> String {
        self.lines.next().expect("the clients' checks hold").expect("a line")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Both calls fail if the process has ended already, which does no harm.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Acts as the process with the clients and the backend.
pub(crate) fn play(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [proxy, case, leaves_unanswered] = arguments else {
        return Err("a load is an address, a case, and whether requests stay unanswered".into());
    };
    let (proxy, leaves_unanswered): (SocketAddr, bool) = (proxy.parse()?, leaves_unanswered.parse()?);
    let case: Case = serde_json::from_str(case)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let record = runtime.block_on(async {
        let (backend, address) = listen(MOST_ACCEPTED);
        println!("{address}");
        tokio::spawn(serve(backend));
        let mut streams = Vec::new();
        while streams.len() < case.timers {
            let welcomed = streams.len();
            for _ in welcomed..case.timers.min(welcomed + MOST_WAITING) {
                streams.push(TcpStream::connect(proxy).await?);
            }
            for stream in &mut streams[welcomed..] {
                assert_eq!(stream.read_u8().await?, WELCOME);
            }
        }
        measure(streams, &case, leaves_unanswered).await
    })?;
    println!("{}", serde_json::to_string(&record)?);
    Ok(())
}

/// Accepts the proxy's connections. Answers each request that asks for an answer.
async fn serve(backend: TcpListener) {
    loop {
        let (mut stream, _) = backend.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option of TCP");
        tokio::spawn(async move {
            while let Some(message) = read(&mut stream).await {
                if message[0] == ANSWERED && stream.write_all(&message).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Reads a message. Returns `None` if the connection has ended.
async fn read(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Message> {
    // There is never more than a message. A read that does not fill its buffer spares tokio another read.
    let mut buffer = [0; MESSAGE + 1];
    let mut length = 0;
    while length < MESSAGE {
        match stream.read(&mut buffer[length..]).await {
            Ok(count) if count > 0 => length += count,
            _ => return None,
        }
    }
    assert_eq!(length, MESSAGE, "more than a message");
    buffer[..MESSAGE].try_into().ok()
}

async fn measure(
    streams: Vec<TcpStream>,
    case: &Case,
    leaves_unanswered: bool,
) -> Result<Record, Box<dyn Error>> {
    let start = Instant::now();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (is_free, free) = channel();
    let mut writers = Vec::new();
    for (client, stream) in streams.into_iter().enumerate() {
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        writers.push(writer);
        is_free.send(client)?;
        let receiver = Answers { start, lead: case.lead(), times: Arc::clone(&answers) };
        tokio::spawn(receive(reader, client, is_free.clone(), receiver));
    }
    let (done, sent) = oneshot::channel();
    let sender = Requests { start, case: case.clone(), leaves_unanswered };
    thread::spawn(move || done.send(sender.send(&writers, &free)));
    let (requests, cpu) = sent.await?;
    let times = Sorted::new(std::mem::take(&mut *answers.lock().expect("no task panics with it")));
    Ok(Record {
        requests,
        p50: times.millis(0.5),
        p99: times.millis(0.99),
        p999: times.millis(0.999),
        cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / requests as f64),
    })
}

/// The times of the answers to requests that were planned in the measured time, in ns.
struct Answers {
    start: Instant,
    lead: Duration,
    times: Arc<Mutex<Vec<u64>>>,
}

/// Receives the answers to the requests of one client.
async fn receive(mut reader: OwnedReadHalf, client: usize, is_free: Sender<usize>, answers: Answers) {
    while let Some(answer) = read(&mut reader).await {
        assert_eq!(answer[CLIENT], client.to_le_bytes(), "an answer to somebody else");
        let wanted = if answer[WANTED] == ANSWERED { ANSWERED } else { GIVEN_UP };
        assert_eq!(answer[0], wanted, "an answer to something else");
        let planned = u64::from_le_bytes(answer[PLANNED].try_into().expect("eight bytes"));
        let planned = Duration::from_nanos(planned);
        if wanted == ANSWERED && planned >= answers.lead {
            let time = nanos(answers.start.elapsed() - planned);
            answers.times.lock().expect("no task panics with it").push(time);
        }
        if is_free.send(client).is_err() {
            return;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than 584 years")
}

/// The requests of all clients.
struct Requests {
    start: Instant,
    case: Case,
    leaves_unanswered: bool,
}

impl Requests {
    /// Sends all requests, and waits for their answers. Returns the number of requests in the measured time, and the
    /// processor time of the process during that time.
    fn send(&self, writers: &[OwnedWriteHalf], free: &Receiver<usize>) -> (u64, Option<Duration>) {
        let (begin, end) = (self.case.lead(), self.case.lead() + self.case.time());
        let gaps = 0..2_000_000_000 / self.case.rate;
        let mut chance = Chance::new(self.case.rate);
        let (mut planned, mut requests, mut before) = (Duration::ZERO, 0, None);
        loop {
            planned += Duration::from_nanos(chance.within(&gaps));
            if requests == 0 && planned >= begin {
                self.sleep_until(begin);
                println!("{BEGIN}");
                before = cpu_time();
            }
            if planned >= end {
                break;
            }
            requests += u64::from(planned >= begin);
            self.sleep_until(planned);
            let client = free.recv_timeout(PATIENCE).expect("a connection becomes free");
            let is_unanswered = self.leaves_unanswered && chance.within(&(0..RARE)) == 0;
            let message = request(if is_unanswered { UNANSWERED } else { ANSWERED }, planned, client);
            write(&writers[client], &message);
        }
        self.sleep_until(end);
        println!("{END}");
        let cpu = cpu_time().zip(before).map(|(after, before)| after - before);
        for _ in writers {
            free.recv_timeout(PATIENCE).expect("each request has its answer");
        }
        (requests, cpu)
    }

    fn sleep_until(&self, moment: Duration) {
        thread::sleep(moment.saturating_sub(self.start.elapsed()));
    }
}

fn request(wanted: u8, planned: Duration, client: usize) -> Message {
    let mut message = [0; MESSAGE];
    message[0] = wanted;
    message[WANTED] = wanted;
    message[PLANNED].copy_from_slice(&nanos(planned).to_le_bytes());
    message[CLIENT].copy_from_slice(&client.to_le_bytes());
    message
}

/// Writes a message. The connection has room for the message, because no other message of the connection is on its way.
fn write(writer: &OwnedWriteHalf, message: &Message) {
    loop {
        match writer.try_write(message) {
            Ok(count) => {
                assert_eq!(count, MESSAGE, "a part of a message");
                return;
            }
            // The runtime has not seen yet that a new connection is ready.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) => panic!("a request cannot be sent: {error}"),
        }
    }
}
