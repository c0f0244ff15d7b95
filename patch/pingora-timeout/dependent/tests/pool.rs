//! The time limits of pooled connections run on the engine, which counts them. One test at a time: the engine is the
//! process's.

mod observing;

use observing::{MS, observed};
use pingora_pool::{ConnectionMeta, ConnectionPool};
use pingora_timeout_dependent::{pool_unread, pool_watched};
use std::sync::Arc;
use tokio::io::duplex;
use tokio::sync::Mutex;

static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn an_unread_connection_is_removed_by_a_timer_of_the_engine() {
    let _one = ONE_AT_A_TIME.lock();
    let (pool, meta) = (ConnectionPool::new(4), ConnectionMeta::new(17, 1));
    let ((), time, fired) = observed(pool_unread(&pool, &meta, "connection", 40 * MS));
    assert_eq!((pool.get(&17), fired), (None, 1));
    assert!(time >= 40 * MS, "{time:?}");
}

#[test]
fn a_watched_connection_is_removed_by_a_timer_of_the_engine() {
    let _one = ONE_AT_A_TIME.lock();
    let (pool, meta) = (ConnectionPool::new(4), ConnectionMeta::new(17, 1));
    let (near, _far) = duplex(64);
    let connection = Arc::new(Mutex::new(near));
    let ((), time, fired) = observed(pool_watched(&pool, &meta, connection, 40 * MS));
    assert_eq!((pool.get(&17).is_none(), fired), (true, 1));
    assert!(time >= 40 * MS, "{time:?}");
}
