//! Timers that the reactor of smol turns, with `async-io` below: idle timeouts of connections, and a timer that another
//! thread arms.
//!
//! A task of the local executor turns the shard. Between two turns it sleeps by `smol::Timer` until the shard's next
//! deadline. Timeouts and handlers run on the executor's thread. There is no thread for timers.
//!
//! `cargo run --features smol --bin smol`

use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use smol::{LocalExecutor, Timer};
use std::io;
use tourbillon::Handle;
use tourbillon::future::Wakeup;
use tourbillon_reactors::{CONNECTIONS, Failure, IDLE, Timers};

/// Echoes bytes until the client has been idle for too long.
async fn serve(mut stream: TcpStream, timers: Handle<Wakeup>) -> io::Result<()> {
    let mut buffer = [0; 64];
    let mut timeout = timers.reusable_timeout();
    while let Ok(length) = timeout.timeout(IDLE, stream.read(&mut buffer)).await {
        match length? {
            0 => break,
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let (timers, shard) = Timers::new()?;
    let executor = LocalExecutor::new();
    let report = smol::block_on(executor.run(async {
        executor.spawn(shard.turn_as_task(Timer::after)).detach();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let futures = timers.futures();
        let clients = timers.start_clients(listener.local_addr()?);
        let mut serving = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await?;
            serving.push(executor.spawn(serve(stream, futures.clone())));
        }
        for connection in serving {
            connection.await?;
        }
        clients.report().await
    }))?;
    println!("{report}");
    Ok(())
}
