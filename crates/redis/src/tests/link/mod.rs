//! Tests the link on real servers, partly through a proxy that disturbs connections.

mod access;
mod calls;
mod cluster;
mod replicas;
mod sentinels;

use crate::link::{Call, Connect, Link, LinkError, Session};
use crate::script::Script;
use core::time::Duration;
use pollster::block_on;
use redis::Value;
use tourbillon_fault::Server;

static COUNT: Script = Script::new("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// A time that is longer than any test, for waits whose length makes no difference.
const LONG: Duration = Duration::from_secs(120);

fn open(connect: &Connect) -> Session {
    Session::open(connect).expect("a session")
}

fn single(url: &str) -> Connect {
    Connect::single(url).expect("a URL").patience(LONG).response_timeout(LONG)
}

fn connect_to(urls: &[String]) -> Connect {
    Connect::cluster(urls).expect("URLs").patience(LONG).response_timeout(LONG)
}

fn call(script: &'static Script, keys: &[&str], arguments: &[&str]) -> Call {
    let bytes = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    Call { script, keys: bytes(keys), arguments: bytes(arguments).into(), attempt: None }
}

fn run(
    session: &Session,
    script: &'static Script,
    keys: &[&str],
    arguments: &[&str],
) -> Result<Value, LinkError> {
    Ok(block_on(session.run(call(script, keys, arguments)))?.0)
}

fn count(session: &Session, key: &str) -> Result<i64, LinkError> {
    match run(session, &COUNT, &[key], &["1"])? {
        Value::Int(count) => Ok(count),
        other => panic!("a number, not {other:?}"),
    }
}

/// Adds 1 to a number on the server, and waits until the change is as durable as the session's
/// [`SyncPolicy`](crate::SyncPolicy) requires. Returns the sum.
fn count_safely(session: &Session, key: &str) -> Result<i64, LinkError> {
    let (count, witness) = block_on(session.run(call(&COUNT, &[key], &["1"])))?;
    block_on(witness.expect("the policy has a witness").confirm())?;
    let Value::Int(count) = count else { panic!("a number, not {count:?}") };
    Ok(count)
}

/// Returns the number that the server stores at a key, to which [`COUNT`] adds.
fn counted(server: &Server, key: &str) -> i64 {
    server.query::<Option<i64>>(&["GET", key]).unwrap_or(0)
}
