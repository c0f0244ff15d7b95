//! Starts Sentinels, and a primary with a replica that a Sentinel watches.

use crate::server::Server;
use crate::wait::eventually;
use std::fs;
use std::time::Duration;

/// How long a server may be silent before the Sentinel considers it dead. Even a slow server answers within this time.
const LONG: Duration = Duration::from_secs(60);

/// Starts a Sentinel that knows `primary` by the name [`Watched::NAME`], as after a failover with the configuration
/// epoch `epoch`. Panics if no `redis-server` is installed.
#[must_use]
pub fn watch(primary: &Server, epoch: u64) -> Server {
    Server::launch(|folder| {
        let file = folder.join("sentinel.conf");
        let name = Watched::NAME;
        let port = primary.port();
        let long = LONG.as_millis();
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {name} {long}\n\
             sentinel failover-timeout {name} 6000\n\
             sentinel config-epoch {name} {epoch}\n"
        );
        fs::write(&file, text).expect("a file in a temporary folder");
        vec![file.to_string_lossy().into_owned(), "--sentinel".to_owned()]
    })
}

/// A Redis primary, its replica, and one Sentinel. The Sentinel needs no vote of another Sentinel.
#[derive(Debug)]
pub struct Watched {
    /// The server that starts as the primary.
    pub first: Server,
    /// The server that starts as the replica.
    pub second: Server,
    /// The Sentinel that watches the primary and the replica.
    pub sentinel: Server,
}

impl Watched {
    /// The name by which the Sentinel knows the primary.
    pub const NAME: &str = "timers";

    /// Starts the primary, the replica and the Sentinel. Waits until the replica follows and the Sentinel knows both
    /// servers. Returns `None` if no `redis-server` is installed.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let first = Server::start(arguments)?;
        let second = Server::start(&Self::following(arguments, &first.port().to_string()))?;
        Some(Self::join(first, second))
    }

    /// Works as [`start`](Self::start), but shifts the replica's time of day by `seconds`. Also returns `None` if no C
    /// compiler is installed.
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
        let sentinel = watch(&first, 0);
        // Without this command, the Sentinel asks for roles only every ten seconds. Sentinels before 7.0 lack the
        // command.
        drop(sentinel.try_query::<redis::Value>(&["SENTINEL", "DEBUG", "INFO-PERIOD", "500"]));
        eventually("the Sentinel knows the replica", || {
            let answer = sentinel.try_query::<Vec<redis::Value>>(&["SENTINEL", "REPLICAS", Self::NAME]);
            answer.is_ok_and(|replicas| replicas.len() == 1)
        });
        Self { first, second, sentinel }
    }

    /// Sets how long a server may be silent before the Sentinel considers it dead. [`start`](Self::start) sets a
    /// minute, so that a busy machine changes no roles.
    pub fn down_after(&self, time: Duration) {
        down_after(&self.sentinel, time);
    }

    /// Waits until the replica of a killed primary has taken over, starts the old primary again, and waits until it
    /// follows the new primary. The caller must have killed the primary.
    ///
    /// # Panics
    ///
    /// If a step takes more than three minutes.
    pub fn fail_over(&mut self) {
        let Self { first, second, sentinel } = self;
        let (old, new) = if first.pid() == 0 { (first, second) } else { (second, first) };
        down_after(sentinel, Duration::from_secs(1));
        // If the old primary came back before the Sentinel had noticed its end, it would stay the primary, with an
        // empty memory.
        takes_over(sentinel, new);
        // Until the old primary follows, it must not replace a new primary that is slow for a second.
        down_after(sentinel, LONG);
        old.restart();
        // The Sentinel turns the old primary into a replica, which takes some time.
        follows(old);
    }

    /// Makes the Sentinel swap the roles of the two running servers. Returns when the servers have swapped.
    ///
    /// # Panics
    ///
    /// If a step takes more than three minutes.
    pub fn change_roles(&mut self) {
        let Self { first, second, sentinel } = self;
        let is_first = first.info("role").as_deref() == Some("master");
        let (old, new) = if is_first { (first, second) } else { (second, first) };
        // The Sentinel refuses until it knows that the replica follows.
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
