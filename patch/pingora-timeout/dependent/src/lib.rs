//! A program that pools its connections by pingora-pool, and with the feature `core` reads responses by pingora-core.
//! Both depend on pingora-timeout, which the patch in this package's manifest replaces. The program itself names
//! neither pingora-timeout nor tourbillon.

use pingora_pool::{ConnectionMeta, ConnectionPool};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::sync::{Mutex, watch};

/// Puts a connection into the pool, and removes it when it has been idle for `limit`. The connection is not read.
pub async fn pool_unread<S>(pool: &ConnectionPool<S>, meta: &ConnectionMeta, connection: S, limit: Duration) {
    let (evicted, used) = pool.put(meta, connection);
    // Lives as long as the wait: no other part of the program closes the connection.
    let (_closes, closed) = watch::channel(false);
    pool.idle_timeout(meta, Some(limit), evicted, closed, used).await;
}

/// Puts a connection into the pool, and removes it when its peer closes it or sends data, or when it has been idle for
/// `limit`.
pub async fn pool_watched<S>(
    pool: &ConnectionPool<Arc<Mutex<S>>>,
    meta: &ConnectionMeta,
    connection: Arc<Mutex<S>>,
    limit: Duration,
) where
    S: AsyncRead + Unpin + Send,
{
    let watched = Arc::clone(&connection).lock_owned().await;
    let (evicted, used) = pool.put(meta, connection);
    pool.idle_poll(watched, meta, Some(limit), evicted, used).await;
}

/// Waits for the head of a response on a connection over which a request was sent.
///
/// # Errors
///
/// Fails if the server sends nothing for `limit`, closes the connection, or sends no HTTP.
#[cfg(feature = "core")]
pub async fn read_response(
    connection: tokio::net::TcpStream,
    limit: Duration,
) -> pingora_core::Result<usize> {
    use pingora_core::protocols::http::v1::client::HttpSession;
    use pingora_core::protocols::l4::stream::Stream;

    let mut session = HttpSession::new(Box::new(Stream::from(connection)));
    session.read_timeout = Some(limit);
    session.read_response().await
}
