//! Connections over the loopback, by the timers of the engine.

#[path = "../examples/transfer/echo.rs"]
mod echo;
#[path = "../examples/transfer/peers.rs"]
mod peers;

use echo::{echo, noise, serve_one};
use peers::{BoxError, Peers};
use quinn::{Connection, ConnectionError, IdleTimeout, TransportConfig};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tourbillon_quinn::TokioRuntime;

const IDLE: Duration = Duration::from_millis(300);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES: usize = 1 << 20;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn peers(idle: Duration) -> Peers {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IdleTimeout::try_from(idle).unwrap()));
    Peers::new(transport).unwrap()
}

type Serving = JoinHandle<Result<ConnectionError, BoxError>>;

/// Starts a server for one connection in a task of its own.
fn serve(peers: &Peers) -> (SocketAddr, Serving) {
    let server = peers.listen(Arc::new(TokioRuntime)).unwrap();
    let address = server.local_addr().unwrap();
    (address, tokio::spawn(serve_one(server)))
}

/// Starts a server, and connects to it.
async fn connected(peers: &Peers) -> (Connection, Serving) {
    let (address, serving) = serve(peers);
    (peers.connect(address, Arc::new(TokioRuntime)).await.unwrap(), serving)
}

async fn check_echo(connection: &Connection, count: usize) {
    let data = noise(count);
    // Not by `assert_eq`, which would print the bytes.
    assert!(echo(connection, &data).await.unwrap() == data);
}

#[test]
fn data_arrive_whole_and_unharmed() {
    for runtime in [one_thread(), two_workers()] {
        runtime.block_on(async {
            let (connection, serving) = connected(&peers(PATIENCE)).await;
            for count in [0, 1, 1_200, BYTES] {
                check_echo(&connection, count).await;
            }
            let streams: Vec<_> = (0..50)
                .map(|n| {
                    let connection = connection.clone();
                    tokio::spawn(async move { check_echo(&connection, 100 * n).await })
                })
                .collect();
            for stream in streams {
                stream.await.unwrap();
            }
            connection.close(0_u32.into(), b"done");
            assert!(matches!(serving.await.unwrap().unwrap(), ConnectionError::ApplicationClosed(_)));
        });
    }
}

/// An idle timeout ends a silent connection, and not before its time. All tasks take turns on one thread, so quinn
/// notes the arrival of the last word only after the test has noted that moment.
#[test]
fn the_idle_timeout_ends_a_silent_connection_and_not_early() {
    one_thread().block_on(async {
        let (connection, serving) = connected(&peers(IDLE)).await;
        check_echo(&connection, BYTES / 8).await;
        let server_s_end = tokio::spawn(async { (serving.await.unwrap().unwrap(), Instant::now()) });
        let last_word = Instant::now();
        check_echo(&connection, 10).await;
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
        assert!(last_word.elapsed() >= IDLE, "{:?}", last_word.elapsed());
        assert!(last_word.elapsed() < PATIENCE);
        let (end, moment) = server_s_end.await.unwrap();
        assert_eq!(end, ConnectionError::TimedOut);
        assert!(moment - last_word >= IDLE, "{:?}", moment - last_word);
    });
}

#[test]
fn a_connection_that_is_used_outlives_its_idle_timeout() {
    two_workers().block_on(async {
        // This time is long enough even for a busy machine.
        let idle = 5 * IDLE;
        let (connection, _serving) = connected(&peers(idle)).await;
        let begin = Instant::now();
        while begin.elapsed() < idle + IDLE {
            check_echo(&connection, 10).await;
            tokio::time::sleep(IDLE / 10).await;
        }
        assert_eq!(connection.close_reason(), None);
    });
}

#[test]
fn a_server_and_a_client_have_runtimes_of_their_own() {
    let peers = peers(IDLE);
    let (sender, addresses) = mpsc::channel();
    let server = thread::spawn({
        let peers = peers.clone();
        move || {
            one_thread().block_on(async {
                let (address, serving) = serve(&peers);
                sender.send(address).unwrap();
                serving.await.unwrap().unwrap()
            })
        }
    });
    let address = addresses.recv().unwrap();
    one_thread().block_on(async {
        let connection = peers.connect(address, Arc::new(TokioRuntime)).await.unwrap();
        check_echo(&connection, BYTES).await;
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
    });
    assert_eq!(server.join().unwrap(), ConnectionError::TimedOut);
}

#[test]
fn a_connection_may_be_dropped_in_another_thread_after_the_end_of_its_runtime() {
    for runtime in [one_thread(), two_workers()] {
        let connection = runtime.block_on(async {
            let (connection, _serving) = connected(&peers(HOUR)).await;
            check_echo(&connection, 1_000).await;
            connection
        });
        drop(runtime);
        thread::spawn(move || drop(connection)).join().unwrap();
    }
}

#[test]
fn connections_leave_no_timer() {
    one_thread().block_on(async {
        let peers = peers(HOUR);
        let timers = || tourbillon::time::shards().unwrap().futures().stats().owned;
        for _ in 0..3 {
            let (connection, serving) = connected(&peers).await;
            check_echo(&connection, 1_000).await;
            assert!(timers().alive >= 2);
            connection.close(0_u32.into(), b"");
            assert!(matches!(serving.await.unwrap().unwrap(), ConnectionError::ApplicationClosed(_)));
        }
        // A closed connection remains for three times the time after which a packet counts as lost.
        let begin = Instant::now();
        while timers().alive > 0 {
            assert!(begin.elapsed() < PATIENCE, "{:?}", timers());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

// --- A clock that a test pauses ---

#[cfg(feature = "test-util")]
mod paused {
    use super::*;

    /// Moves data over a connection and then stays silent. Returns the time until the idle timeout, by the clock of the
    /// runtime.
    async fn silence(peers: &Peers, pauses: bool) -> Duration {
        let (connection, serving) = connected(peers).await;
        check_echo(&connection, BYTES / 8).await;
        let last_word = tokio::time::Instant::now();
        check_echo(&connection, 10).await;
        if pauses {
            tokio::time::pause();
        }
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
        assert_eq!(serving.await.unwrap().unwrap(), ConnectionError::TimedOut);
        last_word.elapsed()
    }

    #[test]
    fn an_idle_timeout_of_an_hour_passes_at_once_under_a_paused_clock() {
        let begin = Instant::now();
        let silence = one_thread().block_on(silence(&peers(HOUR), true));
        assert!((HOUR..HOUR + PATIENCE).contains(&silence), "{silence:?}");
        assert!(begin.elapsed() < PATIENCE);
    }

    #[test]
    fn data_arrive_unharmed_under_a_clock_that_was_paused_from_the_start() {
        let begin = Instant::now();
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let silence = runtime.block_on(silence(&peers(HOUR), false));
        assert!(silence >= HOUR, "{silence:?}");
        assert!(begin.elapsed() < PATIENCE);
    }
}
