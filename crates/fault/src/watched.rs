//! A primary with a replica, watched by a Sentinel.

use crate::server::{Server, is_installed};
use crate::wait::eventually;
use std::fs;

/// A primary and its replica, and one Sentinel that decides by itself.
#[derive(Debug)]
pub struct Watched {
    /// The primary at the start.
    pub first: Server,
    /// Its replica at the start.
    pub second: Server,
    /// The Sentinel.
    pub sentinel: Server,
}

impl Watched {
    /// The name of the primary in Sentinel.
    pub const NAME: &str = "timers";

    /// Starts the three, and waits until the replica follows and the Sentinel knows both; `None` if no server is installed.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let owned = || arguments.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let first = Server::launch(|_| owned());
        let replica_of = ["--replicaof", "127.0.0.1", &first.port().to_string()].map(str::to_owned);
        let second = Server::launch(|_| owned().into_iter().chain(replica_of.clone()).collect());
        eventually("the replica follows", || second.info("master_link_status").as_deref() == Some("up"));
        let sentinel = Server::launch(|folder| {
            let file = folder.join("sentinel.conf");
            let name = Self::NAME;
            let port = first.port();
            let text = format!(
                "sentinel monitor {name} 127.0.0.1 {port} 1\n\
                 sentinel down-after-milliseconds {name} 2000\n\
                 sentinel failover-timeout {name} 6000\n"
            );
            fs::write(&file, text).expect("a file in a temporary folder");
            vec![file.to_string_lossy().into_owned(), "--sentinel".to_owned()]
        });
        eventually("the Sentinel knows the replica", || {
            let answer = sentinel.try_query::<Vec<redis::Value>>(&["SENTINEL", "REPLICAS", Self::NAME]);
            answer.is_ok_and(|replicas| replicas.len() == 1)
        });
        Some(Self { first, second, sentinel })
    }
}
