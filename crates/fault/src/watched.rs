//! A primary with a replica, watched by a Sentinel.

use crate::server::Server;
use crate::wait::eventually;
use std::fs;
use std::time::Duration;

/// No server is taken for dead that is only slow.
const LONG: Duration = Duration::from_secs(60);

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

    /// Starts the three, and waits until the replica follows and the Sentinel knows both; `None` if no server is
    /// installed.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let first = Server::start(arguments)?;
        let second = Server::start(&Self::following(arguments, &first.port().to_string()))?;
        Some(Self::join(first, second))
    }

    /// As [`start`](Self::start), with a replica whose time of day is off by `seconds`. Also `None` without a compiler
    /// for C.
    #[must_use]
    pub fn start_shifted(arguments: &[&str], seconds: i64) -> Option<Self> {
        let first = Server::start(arguments)?;
        let second = Server::start_shifted(&Self::following(arguments, &first.port().to_string()), seconds)?;
        Some(Self::join(first, second))
    }

    fn following<'a>(arguments: &[&'a str], port: &'a str) -> Vec<&'a str> {
        [arguments, &["--replicaof", "127.0.0.1", port]].concat()
    }

    fn join(first: Server, second: Server) -> Self {
        eventually("the replica follows", || second.info("master_link_status").as_deref() == Some("up"));
        let sentinel = Server::launch(|folder| {
            let file = folder.join("sentinel.conf");
            let name = Self::NAME;
            let port = first.port();
            let long = LONG.as_millis();
            let text = format!(
                "sentinel monitor {name} 127.0.0.1 {port} 1\n\
                 sentinel down-after-milliseconds {name} {long}\n\
                 sentinel failover-timeout {name} 6000\n"
            );
            fs::write(&file, text).expect("a file in a temporary folder");
            vec![file.to_string_lossy().into_owned(), "--sentinel".to_owned()]
        });
        // It looks at roles every ten seconds otherwise. Sentinels before 7.0 have no such command.
        drop(sentinel.try_query::<redis::Value>(&["SENTINEL", "DEBUG", "INFO-PERIOD", "500"]));
        eventually("the Sentinel knows the replica", || {
            let answer = sentinel.try_query::<Vec<redis::Value>>(&["SENTINEL", "REPLICAS", Self::NAME]);
            answer.is_ok_and(|replicas| replicas.len() == 1)
        });
        Self { first, second, sentinel }
    }

    /// Lets the Sentinel take a server for dead after this time without an answer. At the start it is a minute, so that
    /// a machine that is busy changes no roles.
    pub fn down_after(&self, time: Duration) {
        down_after(&self.sentinel, time);
    }

    /// Waits until the replica of a primary that was killed has taken over, starts the old primary again, and waits
    /// until it follows.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn fail_over(&mut self) {
        let Self { first, second, sentinel } = self;
        let (old, new) = if first.pid() == 0 { (first, second) } else { (second, first) };
        down_after(sentinel, Duration::from_secs(1));
        // An old primary that is back before the Sentinel has noticed its end stays the primary, and its memory is
        // empty.
        takes_over(sentinel, new);
        // Nor must the old primary replace a new primary that is slow for a second, before the old primary follows.
        down_after(sentinel, LONG);
        old.restart();
        // The Sentinel makes it a replica, which takes its time.
        follows(old);
    }

    /// Lets the Sentinel change the roles of the two, which both run, and waits until it has.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn change_roles(&mut self) {
        let Self { first, second, sentinel } = self;
        let is_first = first.info("role").as_deref() == Some("master");
        let (old, new) = if is_first { (first, second) } else { (second, first) };
        // It refuses while it does not know that the replica follows.
        eventually("the Sentinel begins", || {
            sentinel.try_query::<String>(&["SENTINEL", "FAILOVER", Self::NAME]).is_ok()
        });
        takes_over(sentinel, new);
        follows(old);
    }
}

fn takes_over(sentinel: &Server, new: &Server) {
    eventually("the replica takes over", || new.info("role").as_deref() == Some("master"));
    eventually("the Sentinel names the new primary", || {
        let address: Vec<String> = sentinel.query(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Watched::NAME]);
        address.get(1) == Some(&new.port().to_string())
    });
}

fn follows(old: &Server) {
    eventually("the old primary follows", || old.info("master_link_status").as_deref() == Some("up"));
}

fn down_after(sentinel: &Server, time: Duration) {
    let milliseconds = time.as_millis().to_string();
    sentinel.command(&["SENTINEL", "SET", Watched::NAME, "down-after-milliseconds", &milliseconds]);
}
