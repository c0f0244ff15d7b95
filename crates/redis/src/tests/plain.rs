//! A connection without comfort, for the tests of the store.

use crate::connect::{Answer, Link, LinkError};
use crate::script::Script;
use crate::store::{RedisBuilder, RedisStore};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex, oneshot};
use tourbillon_durable::store::StoreError;

pub(super) struct Plain {
    handle: Handle,
    shared: Arc<Shared>,
    _end: oneshot::Sender<()>,
}

struct Shared {
    client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Plain {
    pub(super) fn to(port: u16) -> Self {
        let client = redis::Client::open(("127.0.0.1", port)).unwrap();
        let shared = Arc::new(Shared { client, connection: Mutex::default() });
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::spawn(move || drop(runtime.block_on(ended)));
        Self { handle, shared, _end: end }
    }

    /// Runs a command, for what a test looks at from outside.
    pub(super) fn ask(&self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let shared = Arc::clone(&self.shared);
        let (sender, receiver) = oneshot::channel();
        self.handle.spawn(async move {
            let mut connection = shared.connection().await.unwrap();
            let _sent = sender.send(command.query_async(&mut connection).await.unwrap());
        });
        pollster::block_on(receiver).unwrap()
    }
}

impl Shared {
    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
        let new = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *connection = Some(new.clone());
        Ok(new)
    }

    async fn run(&self, script: &Script, keys: Vec<Vec<u8>>, arguments: Vec<Vec<u8>>) -> Result<Value, LinkError> {
        let mut connection = self.connection().await.map_err(LinkError::not_run)?;
        for (command, what) in [("EVALSHA", script.sha1()), ("EVAL", script.source())] {
            let mut command = redis::cmd(command);
            command.arg(what).arg(keys.len()).arg(&keys).arg(&arguments);
            match command.query_async(&mut connection).await {
                Ok(value) => return Ok(value),
                Err(error) if error.code() == Some("NOSCRIPT") => {}
                Err(error) => {
                    if error.is_io_error() || error.is_connection_dropped() {
                        self.connection.lock().await.take();
                    }
                    let is_answer = error.code().is_some() && !error.is_io_error();
                    return Err(if is_answer { LinkError::not_run(error) } else { LinkError::may_have_run_with(error) });
                }
            }
        }
        panic!("the server does not know a script that it was sent");
    }
}

impl Link for Plain {
    fn run<'a>(
        &'a self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        arguments: Vec<Vec<u8>>,
    ) -> Answer<'a, Value> {
        let shared = Arc::clone(&self.shared);
        let (sender, receiver) = oneshot::channel();
        self.handle.spawn(async move {
            let _sent = sender.send(shared.run(script, keys, arguments).await);
        });
        Box::pin(async move { receiver.await.expect("the connection's thread ends after the store") })
    }
}

/// Opens a store on a server.
pub(super) fn open(builder: RedisBuilder, port: u16) -> Result<RedisStore, StoreError> {
    pollster::block_on(builder.open_on(Arc::new(Plain::to(port))))
}
