//! Namespaces: their limits and their signing secrets.

use super::files;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;
use tourbillon_api::{Moment, NamespaceLimits, Problem};
use url::Host;

/// The namespace that is always there.
pub(crate) const DEFAULT: &str = "default";

/// A namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) limits: NamespaceLimits,
    /// The signing secrets, the newest first.
    #[serde(default)]
    pub(crate) secrets: Vec<SigningSecret>,
}

/// A signing secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SigningSecret {
    pub(crate) secret: Box<str>,
    pub(crate) made: Moment,
    /// The moment from which it signs no more.
    pub(crate) until: Option<Moment>,
}

pub(crate) type Map = BTreeMap<Box<str>, Arc<Namespace>>;

/// The greatest number of allowed hosts.
const MOST_HOSTS: usize = 100;

impl Namespace {
    /// The secrets that sign at this moment, the newest first.
    pub(crate) fn active_secrets(&self) -> impl Iterator<Item = &SigningSecret> {
        let now = now();
        self.secrets.iter().filter(move |secret| secret.until.is_none_or(|until| now < until))
    }
}

pub(super) fn now() -> Moment {
    moment_in(Duration::ZERO)
}

pub(super) fn moment_in(span: Duration) -> Moment {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment::from_millis(u64::try_from((now + span).as_millis()).unwrap_or(u64::MAX))
}

/// Whether callbacks of a namespace may go to this host and port.
pub(crate) fn allows_host(limits: &NamespaceLimits, host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let matches = |allowed: &String| match allowed.strip_prefix("*.") {
        Some(domain) => {
            let before = name.strip_suffix(domain);
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        }
        None => allowed == name,
    };
    limits.allowed_hosts.is_empty() || limits.allowed_hosts.iter().any(matches)
}

/// The limits in the form in which they are compared, or the fault of a field.
pub(super) fn canonical(mut limits: NamespaceLimits) -> Result<NamespaceLimits, Problem> {
    for (field, limit) in [("rate_per_second", limits.rate_per_second), ("concurrency", limits.concurrency)] {
        if limit == Some(0) {
            let detail = "at least 1; `paused` holds deliveries back";
            return Err(Problem::field(format!("/{field}"), detail));
        }
    }
    if limits.allowed_hosts.len() > MOST_HOSTS {
        return Err(Problem::field("/allowed_hosts", format!("at most {MOST_HOSTS} hosts")));
    }
    for (at, allowed) in limits.allowed_hosts.iter_mut().enumerate() {
        let (star, name) = allowed.strip_prefix("*.").map_or(("", &**allowed), |name| ("*.", name));
        let is_host =
            |host: &Host| !name.contains('*') && (star.is_empty() || matches!(host, Host::Domain(_)));
        let host = Host::parse(name).ok().filter(is_host);
        let Some(host) = host else {
            let detail = "a host's name or address without a port; a name may begin with `*.`";
            return Err(Problem::field(format!("/allowed_hosts/{at}"), detail));
        };
        *allowed = format!("{star}{host}");
    }
    Ok(limits)
}

/// The namespaces of a service.
#[derive(Debug)]
pub(crate) struct Namespaces {
    path: PathBuf,
    /// Held by the one change that is written.
    writing: Mutex<()>,
    map: RwLock<Arc<Map>>,
}

impl Namespaces {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut map: Map = files::read(path)?.unwrap_or_default();
        map.entry(DEFAULT.into()).or_default();
        Ok(Self { path: path.to_owned(), writing: Mutex::new(()), map: RwLock::new(Arc::new(map)) })
    }

    /// All namespaces as they are now.
    pub(crate) fn all(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A namespace, if there is one with this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Namespace>> {
        self.all().get(name).cloned()
    }

    /// Changes the namespaces and returns once the change is on the disk. Blocks.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Map) -> T) -> io::Result<T> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = Map::clone(&self.all());
        let answer = change(&mut map);
        map.entry(DEFAULT.into()).or_default();
        files::replace(&self.path, &map)?;
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(hosts: &[&str]) -> NamespaceLimits {
        let allowed_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        NamespaceLimits { allowed_hosts, ..NamespaceLimits::default() }
    }

    #[test]
    fn hosts_are_allowed_by_name_and_with_their_subdomains() {
        let given = ["Example.com", "*.EXAMPLE.org", "10.1.2.3", "[::1]", "*.bücher.example", "0x7f.1"];
        let limits = canonical(limits(&given)).unwrap();
        for (host, is_allowed) in [
            ("example.com:443", true),
            ("a.example.com:443", false),
            ("example.org:8080", true),
            ("a.b.example.org:443", true),
            ("badexample.org:443", false),
            ("10.1.2.3:80", true),
            ("10.1.2.4:80", false),
            ("[::1]:443", true),
            ("x.xn--bcher-kva.example:443", true),
            ("127.0.0.1:80", true),
            ("evil.example:443", false),
        ] {
            assert_eq!(allows_host(&limits, host), is_allowed, "{host}");
        }
        assert!(allows_host(&NamespaceLimits::default(), "anything:1"));
    }

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        for wrong in ["", "*.", "a b", "*.10.0.0.1", "http://a", "a:443", "*"] {
            let problem = canonical(limits(&[wrong])).unwrap_err();
            assert_eq!(problem.errors[0].pointer, "/allowed_hosts/0", "{wrong}");
        }
        for zero in [
            NamespaceLimits { rate_per_second: Some(0), ..NamespaceLimits::default() },
            NamespaceLimits { concurrency: Some(0), ..NamespaceLimits::default() },
        ] {
            assert!(canonical(zero).is_err());
        }
    }
}
