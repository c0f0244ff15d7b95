//! Tests servers on which a store refuses to open.

use super::plain;
use crate::{Connect, RedisStore, SyncPolicy, check};
use pollster::block_on;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{StoreErrorKind, TimerStore};
use tourbillon_fault::Server;

/// A function that changes the bytes of a server's reply.
type Change = fn(&mut [u8]);

/// Returns the port of a proxy that applies `change` to each reply of the server on `port`.
fn changing(port: u16, change: Change) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pass(from, to, |_| {}));
            thread::spawn(move || pass(server, client, change));
        }
    });
    own
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: Change) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        change(&mut bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _closed = to.shutdown(Shutdown::Both);
}

/// Overwrites the bytes that follow each occurrence of `after` with `by`.
fn replace(bytes: &mut [u8], after: &[u8], by: &[u8]) {
    let places: Vec<usize> = bytes
        .windows(after.len())
        .enumerate()
        .filter(|(_, window)| *window == after)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        if let Some(place) = bytes.get_mut(at + after.len()..at + after.len() + by.len()) {
            place.copy_from_slice(by);
        }
    }
}

/// Verifies that a store on this port is refused with the text `words`, and that it opens if the servers are not
/// checked.
#[track_caller]
fn is_refused(port: u16, words: &str) {
    let builder = || RedisStore::builder("d").shards(2).poll(None);
    let error = plain::open(builder(), port).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Limit, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    let store = plain::open(builder().unchecked(), port).unwrap();
    block_on(store.counts()).unwrap();
}

#[test]
fn servers_on_which_timers_are_unsafe_are_refused() {
    let Some(server) = Server::start(&[]) else { return };
    is_refused(changing(server.port(), |bytes| replace(bytes, b"redis_version:", b"6.2")), "at least 7.0");
    // This replaces the first four digits of the seconds in the reply to `TIME`. The fourth digit counts about eleven
    // days.
    let late = |bytes: &mut [u8]| replace(bytes, b"*2\r\n$10\r\n", b"1000");
    is_refused(changing(server.port(), late), "is needed");
    let fine = changing(server.port(), |_| {});
    plain::open(RedisStore::builder("d").poll(None), fine).unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    is_refused(server.port(), "timers would be evicted");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap();
    server.command(&["HSET", "tb:{d}:deployment", "version", "99"]);
    let newer = plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap_err();
    assert_eq!(newer.kind(), StoreErrorKind::NewerSchema);
}

/// Tests settings that no attempt to connect can fulfil. The refusal must not wait for the end of the patience.
#[test]
fn servers_that_do_not_fit_the_settings_are_refused_at_once() {
    let Some(server) = Server::start(&[]) else { return };
    let url = server.url();
    let mut misfits =
        vec![Connect::cluster([&url, &url]).unwrap(), Connect::sentinel([&url], "primary").unwrap()];
    let version = server.info("redis_version").unwrap();
    if version.starts_with("7.0.") {
        let sync = SyncPolicy::WaitAof { replicas: 0, timeout: Duration::from_millis(100) };
        misfits.push(Connect::single(&url).unwrap().sync(sync));
    }
    for connect in misfits {
        let begin = Instant::now();
        let builder = || RedisStore::builder("d").shards(2).poll(None);
        for report in [block_on(check(&connect)).unwrap(), block_on(builder().check(&connect)).unwrap()] {
            assert!(report.is_refused() && !report.is_unanswered(), "{report}");
            assert!(report.to_string().contains("do not fit the settings"), "{report}");
        }
        for builder in [builder(), builder().unchecked()] {
            let error = block_on(builder.open(&connect)).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Limit, "{error}");
        }
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    }
    // A server that does not answer may fit.
    let connect = Connect::cluster([url.as_str(), "redis://127.0.0.1:1"]).unwrap();
    assert!(block_on(check(&connect.patience(Duration::from_millis(500)))).unwrap().is_unanswered());
}

/// Tests a task that blocks on a future of the store. A tokio runtime limits how many answers a task may receive before
/// it yields, and a blocked task does not yield.
#[test]
fn a_thread_may_block_within_a_task_of_a_runtime_until_many_shards_have_answered() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = block_on(RedisStore::builder("d").shards(256).split().open(&connect)).unwrap();
        assert_eq!(block_on(store.counts()).unwrap().quarantined, 0);
    });
}
