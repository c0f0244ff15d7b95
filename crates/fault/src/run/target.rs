//! Names the servers of a run. The text form is passed to the nodes' processes.

use core::fmt;
use core::str::FromStr;
use std::time::Duration;
use tourbillon_redis::{Connect, SyncPolicy};

/// How long a client waits for a server's reply by default. The time is short, so that faults have effects even in a
/// short run.
const RESPONSE: Duration = Duration::from_secs(2);

/// How long a change waits for the replicas to have the change.
const WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Single,
    Sentinel(String),
    Cluster,
}

/// The Redis servers of a run, and the number of replicas that each change waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    kind: Kind,
    urls: Vec<String>,
    replicas: u32,
    response: Duration,
}

impl Target {
    /// Names a single Redis server by its URL.
    #[must_use]
    pub fn single(url: impl Into<String>) -> Self {
        Self { kind: Kind::Single, urls: vec![url.into()], replicas: 0, response: RESPONSE }
    }

    /// Names a primary that a Sentinel watches. `url` is the Sentinel's URL, and `name` the primary's name at the
    /// Sentinel.
    #[must_use]
    pub fn sentinel(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: Kind::Sentinel(name.into()), urls: vec![url.into()], replicas: 0, response: RESPONSE }
    }

    /// Names a Redis cluster by the URLs of its nodes.
    #[must_use]
    pub fn cluster(urls: Vec<String>) -> Self {
        Self { kind: Kind::Cluster, urls, replicas: 0, response: RESPONSE }
    }

    /// Makes each change wait until `replicas` replicas have the change.
    #[must_use]
    pub fn wait_for(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// Sets how long a client waits for a server's reply. The default is 2 s.
    #[must_use]
    pub fn response_timeout(self, response: Duration) -> Self {
        Self { response, ..self }
    }

    /// Returns how long a client waits for a server's reply.
    #[must_use]
    pub fn response(&self) -> Duration {
        self.response
    }

    /// Returns the settings with which a store connects to the servers.
    #[must_use]
    pub fn connect(&self) -> Connect {
        let connect = match (&self.kind, &self.urls[..]) {
            (Kind::Single, [url, ..]) => Connect::single(url),
            (Kind::Sentinel(name), urls) => Connect::sentinel(urls, name),
            (_, urls) => Connect::cluster(urls),
        };
        let sync = match self.replicas {
            0 => SyncPolicy::None,
            replicas => SyncPolicy::Wait { replicas, timeout: WAIT },
        };
        connect.expect("addresses of servers").response_timeout(self.response).sync(sync)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.kind {
            Kind::Single => ("single", ""),
            Kind::Sentinel(name) => ("sentinel", name.as_str()),
            Kind::Cluster => ("cluster", ""),
        };
        write!(f, "{kind},{name},{},{},{}", self.replicas, self.response.as_millis(), self.urls.join(","))
    }
}

impl FromStr for Target {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut parts = line.split(',');
        let mut part = || parts.next().ok_or(());
        let (kind, name, replicas, response) = (part()?, part()?, part()?, part()?);
        let kind = match kind {
            "single" => Kind::Single,
            "sentinel" => Kind::Sentinel(name.to_owned()),
            "cluster" => Kind::Cluster,
            _ => return Err(()),
        };
        let replicas = replicas.parse().map_err(drop)?;
        let response = Duration::from_millis(response.parse().map_err(drop)?);
        let urls: Vec<_> = parts.map(str::to_owned).collect();
        if urls.is_empty() { Err(()) } else { Ok(Self { kind, urls, replicas, response }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_was_written() {
        let url = || "redis://127.0.0.1:1".to_owned();
        for target in [
            Target::single(url()).response_timeout(Duration::from_secs(60)),
            Target::sentinel(url(), "timers").wait_for(2),
            Target::cluster(vec![url(), url()]),
        ] {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert_eq!("single,,0,2000".parse::<Target>(), Err(()));
    }
}
