//! Timers that the reactor of compio turns: idle timeouts of connections, and a timer that another thread arms.
//!
//! A task of the runtime turns the shard. Between two turns it sleeps by `compio::time::sleep` until the shard's next
//! deadline. Timeouts and handlers run on the runtime's thread. There is no thread for timers. compio takes io_uring
//! where the system allows it, and polls otherwise.
//!
//! `cargo run --features compio --bin compio`

use compio::BufResult;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::{Runtime, spawn};
use compio::time::sleep;
use std::io;
use tourbillon::Handle;
use tourbillon::future::Wakeup;
use tourbillon_reactors::{CONNECTIONS, Failure, IDLE, Timers};

/// Echoes bytes until the client has been idle for too long.
async fn serve(mut stream: TcpStream, timers: Handle<Wakeup>) -> io::Result<()> {
    let mut timeout = timers.reusable_timeout();
    let mut buffer = Vec::with_capacity(64);
    // A read that is dropped by its timeout is cancelled. The system keeps its buffer until then.
    while let Ok(BufResult(length, received)) = timeout.timeout(IDLE, stream.read(buffer)).await {
        if length? == 0 {
            break;
        }
        let BufResult(sent, returned) = stream.write_all(received).await;
        sent?;
        buffer = returned;
        buffer.clear();
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let (timers, shard) = Timers::new()?;
    let report = Runtime::new()?.block_on(async {
        spawn(shard.turn_as_task(sleep)).detach();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let futures = timers.futures();
        let clients = timers.start_clients(listener.local_addr()?);
        let mut serving = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await?;
            serving.push(spawn(serve(stream, futures.clone())));
        }
        for connection in serving {
            connection.await.map_err(|_| "a connection's task has panicked")??;
        }
        clients.report().await
    })?;
    println!("{report}");
    Ok(())
}
