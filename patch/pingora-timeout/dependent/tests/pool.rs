//! The time limits of pooled connections run on the engine of their runtime, which counts them.

mod observing;

use observing::{MS, observed};
use pingora_pool::{ConnectionMeta, ConnectionPool};
use pingora_timeout_dependent::{pool_unread, pool_watched};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::duplex;
use tokio::sync::Mutex;

#[test]
fn an_unread_connection_is_removed_by_a_timer_of_the_engine() {
    let (pool, meta) = (ConnectionPool::new(4), ConnectionMeta::new(17, 1));
    let ((), time, fired) = observed(pool_unread(&pool, &meta, "connection", 40 * MS));
    assert_eq!((pool.get(&17), fired), (None, 1));
    assert!(time >= 40 * MS, "{time:?}");
}

#[test]
fn a_watched_connection_is_removed_by_a_timer_of_the_engine() {
    let (pool, meta) = (ConnectionPool::new(4), ConnectionMeta::new(17, 1));
    let (near, _far) = duplex(64);
    let connection = Arc::new(Mutex::new(near));
    let ((), time, fired) = observed(pool_watched(&pool, &meta, connection, 40 * MS));
    assert_eq!((pool.get(&17).is_none(), fired), (true, 1));
    assert!(time >= 40 * MS, "{time:?}");
}

/// The limit of a pooled connection follows a paused clock of tokio. The test needs the engine's feature `test-util`.
/// The engine measures the limit, because the limit is below the threshold for tokio's timer.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_connection_follows_a_paused_clock() {
    let limit = Duration::from_secs(14 * 60);
    let (pool, meta) = (ConnectionPool::new(4), ConnectionMeta::new(17, 1));
    let (begin, of_test) = (Instant::now(), tokio::time::Instant::now());
    pool_unread(&pool, &meta, "connection", limit).await;
    assert_eq!(pool.get(&17), None);
    assert!(of_test.elapsed() >= limit);
    assert!(begin.elapsed() < limit);
}
