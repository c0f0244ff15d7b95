//! Runs the cases under tokio, whose own timer is not running.

use crate::cases::{BlockOn, Runtime};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

struct Tokio(tokio::runtime::Runtime);

impl BlockOn for Tokio {
    fn new() -> Self {
        Self(Builder::new_multi_thread().worker_threads(3).enable_io().build().unwrap())
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }
}

impl Runtime for Tokio {
    type Task<T: Send + 'static> = JoinHandle<T>;
    type Stream = TcpStream;

    fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.spawn(future)
    }

    async fn join<T: Send + 'static>(task: JoinHandle<T>) -> T {
        task.await.unwrap()
    }

    fn cancel(task: JoinHandle<()>) {
        task.abort();
    }

    async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }

    async fn write(stream: &mut TcpStream, byte: u8) -> io::Result<()> {
        stream.write_all(&[byte]).await
    }

    async fn read(stream: &mut TcpStream) -> io::Result<u8> {
        stream.read_u8().await
    }
}

crate::cases::test_one_task!(Tokio);
crate::cases::test_many_tasks!(Tokio);
