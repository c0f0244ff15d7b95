//! Moves data over QUIC between a client and a server on the loopback, by timers of the engine.
//!
//! The server sends back all that the client sends, and the client compares it. Then both are silent, and the idle
//! timeout ends the connection.
//!
//! `cargo run --release -p tourbillon-quinn --example transfer`
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs this program")]

mod echo;
mod peers;

use echo::{echo, noise, serve_one};
use peers::{BoxError, Peers};
use quinn::{ConnectionError, TransportConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon_quinn::TokioRuntime;

const BYTES: usize = 4 << 20;
const IDLE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE.try_into()?));
    let peers = Peers::new(transport)?;
    let server = peers.listen(Arc::new(TokioRuntime))?;
    let address = server.local_addr()?;
    let server = tokio::spawn(serve_one(server));
    let connection = peers.connect(address, Arc::new(TokioRuntime)).await?;

    let data = noise(BYTES);
    let begin = Instant::now();
    let received = echo(&connection, &data).await?;
    println!("{} KiB there and back in {:.0?}", data.len() >> 10, begin.elapsed());
    if received != data {
        return Err("the data came back changed".into());
    }

    let last_word = Instant::now();
    echo(&connection, b"last word").await?;
    let end = connection.closed().await;
    println!("client: {end}, {:.1?} after its last word (idle timeout {IDLE:?})", last_word.elapsed());
    let server_end = server.await??;
    println!("server: {server_end}");
    match (end, server_end) {
        (ConnectionError::TimedOut, ConnectionError::TimedOut) => Ok(()),
        _ => Err("the connection ended in another way".into()),
    }
}
