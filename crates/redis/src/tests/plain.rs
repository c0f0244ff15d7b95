//! Opens connections and stores for the tests.

use crate::layout::{Layout, Part, Shard};
use crate::link::{Connect, Session};
use crate::{RedisBuilder, RedisStore};
use redis::Value;
use std::sync::Arc;
use tourbillon_durable::store::StoreError;

fn to(port: u16) -> Connect {
    Connect::single(&format!("redis://127.0.0.1:{port}")).unwrap()
}

/// A connection on which a test sends its own commands, without a store.
pub(super) struct Plain(Arc<Session>);

impl Plain {
    pub(super) fn to(port: u16) -> Self {
        Self(Arc::new(Session::open(&to(port)).unwrap()))
    }

    /// Returns the connection, for a store that shares it.
    pub(super) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.0)
    }

    /// Sends a command to the server, and returns the reply.
    pub(super) fn ask(&self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let mut pipeline = redis::pipe();
        pipeline.add_command(command);
        pollster::block_on(self.0.ask(pipeline)).unwrap().remove(0)
    }
}

/// Returns the name of the key that stores the records of a shard, in the deployment `d` with `shards` shards.
pub(super) fn records(shard: Shard, shards: u16) -> String {
    String::from_utf8(Layout::new("d", shards).key(shard, Part::Records)).unwrap()
}

pub(super) fn open(builder: RedisBuilder, port: u16) -> Result<RedisStore, StoreError> {
    pollster::block_on(builder.open(&to(port)))
}
