//! Namespaces: their limits and their signing secrets.

use super::Service;
use super::files;
use crate::convert::{is_name, unavailable};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Instant, SystemTime};
use tourbillon_api::{Moment, NamespaceLimits, NamespaceView, NewSecret, Problem, ProblemKind, SecretView};
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

type Map = BTreeMap<Box<str>, Arc<Namespace>>;

/// The time for which a former secret signs beside the new one.
const ROTATION: Duration = Duration::from_secs(86_400);
/// The greatest number of secrets that sign at a time.
const MOST_SECRETS: usize = 10;
/// The length of a secret, in bytes.
const SECRET: usize = 32;
/// The greatest number of allowed hosts.
const MOST_HOSTS: usize = 100;
/// The longest time for which the removal of a namespace waits for timers that are being stored in it.
const SETTLING: Duration = Duration::from_secs(5);

impl Namespace {
    /// The secrets that sign at this moment, the newest first.
    pub(crate) fn active_secrets(&self) -> impl Iterator<Item = &SigningSecret> {
        let now = now();
        self.secrets.iter().filter(move |secret| secret.until.is_none_or(|until| now < until))
    }
}

fn now() -> Moment {
    moment_in(Duration::ZERO)
}

fn moment_in(span: Duration) -> Moment {
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
fn canonical(mut limits: NamespaceLimits) -> Result<NamespaceLimits, Problem> {
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

fn failed(error: &io::Error) -> Problem {
    Problem::new(ProblemKind::StoreUnavailable, format!("the namespaces are not stored: {error}"))
        .with_unknown_outcome()
        .with_retry_after_ms(1_000)
}

impl Service {
    /// Changes the namespaces on a thread that may block.
    async fn change_namespaces<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Map) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let service = self.clone();
        let changed = tokio::task::spawn_blocking(move || service.namespaces().change(change)).await;
        let changed = changed.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
        let answer = changed.map_err(|error| failed(&error))?;
        self.deliveries().look_everywhere();
        answer
    }

    /// Sets the limits of a namespace, which is made if there is none. Returns whether it was made.
    pub(crate) async fn set_namespace(
        &self,
        name: &str,
        limits: NamespaceLimits,
    ) -> Result<(bool, NamespaceView), Problem> {
        if !is_name(name) {
            let detail = "a name has 1 to 64 letters, digits, `-`, `_` or `.`";
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let limits = canonical(limits)?;
        let of: Box<str> = name.into();
        let is_new = self
            .change_namespaces(move |map| {
                let former = map.get(&of).map(|namespace| namespace.secrets.clone());
                let is_new = former.is_none();
                map.insert(of, Arc::new(Namespace { limits, secrets: former.unwrap_or_default() }));
                Ok(is_new)
            })
            .await?;
        Ok((is_new, self.show_namespace(name).await?))
    }

    /// Removes a namespace, which must have no timers.
    pub(crate) async fn remove_namespace(&self, name: &str) -> Result<(), Problem> {
        let has_timers = || Problem::new(ProblemKind::NamespaceNotEmpty, "timers are stored in it");
        if name == DEFAULT {
            return Err(Problem::new(ProblemKind::NamespaceNotEmpty, "the namespace `default` stays"));
        }
        if self.has_timers(name).await? {
            return Err(has_timers());
        }
        let of: Box<str> = name.into();
        let there_is_none = || Problem::new(ProblemKind::NotFound, "there is no such namespace");
        let removed = self.change_namespaces(move |map| map.remove(&of).ok_or_else(there_is_none)).await?;
        // From now on no timer is stored in it, but for those that were admitted before.
        let begin = Instant::now();
        while Arc::strong_count(&removed) > 1 && begin.elapsed() < SETTLING {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if Arc::strong_count(&removed) > 1 || self.has_timers(name).await? {
            let of: Box<str> = name.into();
            self.change_namespaces(move |map| {
                map.entry(of).or_insert(removed);
                Ok(())
            })
            .await?;
            return Err(has_timers());
        }
        Ok(())
    }

    async fn has_timers(&self, name: &str) -> Result<bool, Problem> {
        let counts = self.timers().counts().await.map_err(|error| unavailable(&error))?;
        Ok(counts.by_namespace.iter().any(|((namespace, _), count)| **namespace == *name && *count > 0))
    }

    /// A namespace with its numbers, or the problem that there is none.
    pub(crate) async fn show_namespace(&self, name: &str) -> Result<NamespaceView, Problem> {
        self.namespace(name)?;
        let mut views = self.show_namespaces(|other| other == name).await?;
        views.pop().ok_or_else(|| Problem::new(ProblemKind::NotFound, "there is no such namespace"))
    }

    /// The namespaces that are wanted, with their numbers.
    pub(crate) async fn show_namespaces(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<NamespaceView>, Problem> {
        use tourbillon_durable::state::Phase::{Dead, Leased, Parked, Pending};
        let counts = self.timers().counts().await.map_err(|error| unavailable(&error))?;
        let all = self.namespaces().all();
        let wanted = all.iter().filter(|(name, _)| is_wanted(name));
        Ok(wanted
            .map(|(name, namespace)| {
                let count = |phase| counts.by_namespace.get(&(name.clone(), phase)).copied().unwrap_or(0);
                NamespaceView {
                    name: name.to_string(),
                    limits: namespace.limits.clone(),
                    secrets: namespace
                        .active_secrets()
                        .map(|secret| SecretView { made: secret.made, until: secret.until })
                        .collect(),
                    pending: count(Pending),
                    leased: count(Leased),
                    parked: count(Parked),
                    dead: count(Dead),
                }
            })
            .collect())
    }

    /// Makes a new signing secret for a namespace. The former ones sign beside it for a day.
    pub(crate) async fn make_secret(&self, name: &str) -> Result<NewSecret, Problem> {
        self.namespace(name)?;
        let mut bytes = [0; SECRET];
        getrandom::fill(&mut bytes)
            .map_err(|error| Problem::new(ProblemKind::Internal, format!("no random number: {error}")))?;
        let secret = format!("whsec_{}", BASE64_STANDARD.encode(bytes));
        let (name, new): (Box<str>, Box<str>) = (name.into(), secret.as_str().into());
        let former_until = self
            .change_namespaces(move |map| {
                let gone = || Problem::new(ProblemKind::NotFound, "there is no such namespace");
                let namespace = map.get(&name).ok_or_else(gone)?;
                let until = moment_in(ROTATION);
                let former = namespace.active_secrets().cloned();
                let former =
                    former.map(|old| SigningSecret { until: Some(old.until.unwrap_or(until)), ..old });
                let mut secrets = vec![SigningSecret { secret: new, made: now(), until: None }];
                secrets.extend(former);
                if secrets.len() > MOST_SECRETS {
                    let detail = format!("{MOST_SECRETS} secrets sign, as many as there may be");
                    return Err(Problem::new(ProblemKind::LimitReached, detail));
                }
                let former_until = secrets.get(1).and_then(|secret| secret.until);
                let limits = namespace.limits.clone();
                map.insert(name, Arc::new(Namespace { limits, secrets }));
                Ok(former_until)
            })
            .await?;
        Ok(NewSecret { secret, former_until })
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
