//! Runs the cases under smol, whose own timer is not used.

use crate::cases::{BlockOn, Runtime};
use smol::channel::Sender;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::TcpStream;
use smol::{Executor, Task};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// An executor of smol, and three threads that run its tasks until this value is dropped.
struct Smol {
    executor: Arc<Executor<'static>>,
    running: Option<Sender<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl BlockOn for Smol {
    fn new() -> Self {
        let executor = Arc::new(Executor::new());
        let (running, end) = smol::channel::bounded(1);
        let work = |_| {
            let (executor, end) = (Arc::clone(&executor), end.clone());
            thread::spawn(move || {
                smol::block_on(executor.run(end.recv())).expect_err("it ends when there is no sender");
            })
        };
        let workers = (0..3).map(work).collect();
        Self { executor, running: Some(running), workers }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        smol::block_on(future)
    }
}

impl Drop for Smol {
    fn drop(&mut self) {
        drop(self.running.take());
        for worker in self.workers.drain(..) {
            worker.join().unwrap();
        }
    }
}

impl Runtime for Smol {
    type Task<T: Send + 'static> = Task<T>;
    type Stream = TcpStream;

    fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.executor.spawn(future)
    }

    async fn join<T: Send + 'static>(task: Task<T>) -> T {
        task.await
    }

    fn cancel(task: Task<()>) {
        drop(task);
    }

    async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }

    async fn write(stream: &mut TcpStream, byte: u8) -> io::Result<()> {
        stream.write_all(&[byte]).await
    }

    async fn read(stream: &mut TcpStream) -> io::Result<u8> {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        Ok(byte[0])
    }
}

crate::cases::test_one_task!(Smol);
crate::cases::test_many_tasks!(Smol);
