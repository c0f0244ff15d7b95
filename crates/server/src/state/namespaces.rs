//! Keeps the namespaces, with their limits and the secrets that sign their callbacks.

use super::cluster::ClusterStore;
use super::namespace_storage::NamespaceStorage;
use crate::clock::now;
use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use pollster::block_on;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use tokio::time::timeout;
use tourbillon_api::{Moment, NamespaceLimits, Problem, ProblemKind};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::store::Counts;
use url::Host;

/// The name of the namespace that always exists.
pub(crate) const DEFAULT: &str = "default";

/// The settings of a namespace: its limits, and its secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) limits: NamespaceLimits,
    /// The secrets that sign the namespace's callbacks, the newest first.
    #[serde(default)]
    pub(crate) secrets: Vec<SigningSecret>,
    /// The number of the removal that is under way: see the module `removal`. `None` if the namespace is not being
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removal: Option<u64>,
    /// Shared with the values that this value has replaced, so that [`is_held`](Self::is_held) finds their holders.
    #[serde(skip)]
    pub(super) former: Arc<()>,
}

/// A secret that signs callbacks. Receivers verify the signatures with the same secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SigningSecret {
    pub(crate) secret: Box<str>,
    pub(crate) made: Moment,
    /// The moment from which the secret no longer signs callbacks. `None` if it has no end.
    pub(crate) until: Option<Moment>,
}

pub(crate) type Map = BTreeMap<Box<str>, Arc<Namespace>>;

/// Returns the problem of each request about a namespace that is being removed. The client may send the request again,
/// because the removal may find timers, and then the namespace stays.
pub(crate) fn being_removed() -> Problem {
    let detail = "a removal of this namespace is under way";
    Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(1_000)
}

/// The greatest number of hosts in a namespace's list of allowed hosts.
const MOST_HOSTS: usize = 100;

impl Namespace {
    /// Returns the namespace after a change of its limits or secrets.
    pub(crate) fn changed(&self, limits: NamespaceLimits, secrets: Vec<SigningSecret>) -> Self {
        Self { limits, secrets, removal: None, former: Arc::clone(&self.former) }
    }

    /// Returns whether a further holder has the namespace `this`, or has it as it was before a change. The removal of a
    /// namespace waits for the holders, because each of them may still store a timer or a schedule.
    pub(crate) fn is_held(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) > 1 || Arc::strong_count(&this.former) > 1
    }

    /// Returns the secrets with which the namespace signs callbacks now, the newest first.
    pub(crate) fn active_secrets(&self) -> impl Iterator<Item = &SigningSecret> {
        let now = now();
        self.secrets.iter().filter(move |secret| secret.until.is_none_or(|until| now < until))
    }
}

/// Returns whether the callbacks of a namespace may go to this host. Ignores a port after the host.
pub(crate) fn allows_host(limits: &NamespaceLimits, host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    // A former version may have stored a full stop at the end.
    let matches = |allowed: &String| match allowed.trim_end_matches('.').strip_prefix("*.") {
        Some(domain) => {
            let before = name.strip_suffix(domain);
            // `*.example.org` also permits `example.org` itself, but not `badexample.org`.
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        }
        None => allowed.trim_end_matches('.') == name,
    };
    limits.allowed_hosts.is_empty() || limits.allowed_hosts.iter().any(matches)
}

/// Checks the limits of a namespace, and normalises the names of the allowed hosts, so that [`allows_host`] can compare
/// them. Fails with the name of an invalid field.
pub(crate) fn canonical(mut limits: NamespaceLimits) -> Result<NamespaceLimits, Problem> {
    for (field, limit, detail) in [
        ("rate_per_second", limits.rate_per_second, "at least 1; `paused` holds deliveries back"),
        ("concurrency", limits.concurrency, "at least 1; `paused` holds deliveries back"),
        ("creations_per_second", limits.creations_per_second, "at least 1; `max_timers` of 0 permits none"),
    ] {
        if limit == Some(0) {
            return Err(Problem::field(format!("/{field}"), detail));
        }
    }
    if limits.allowed_hosts.len() > MOST_HOSTS {
        return Err(Problem::field("/allowed_hosts", format!("at most {MOST_HOSTS} hosts")));
    }
    for (at, allowed) in limits.allowed_hosts.iter_mut().enumerate() {
        let (star, name) = allowed.strip_prefix("*.").map_or(("", &**allowed), |name| ("*.", name));
        // `Host::parse` accepts `*` anywhere in a name. An address has no subdomains.
        let is_host =
            |host: &Host| !name.contains('*') && (star.is_empty() || matches!(host, Host::Domain(_)));
        let host = Host::parse(name).ok().map(|host| host.to_string());
        // The host of a callback has no full stop at its end, either. A name without its full stops may be an address.
        let host = host.and_then(|host| Host::parse(host.trim_end_matches('.')).ok()).filter(is_host);
        let Some(host) = host else {
            let detail = "a host's name or address without a port; a name may begin with `*.`";
            return Err(Problem::field(format!("/allowed_hosts/{at}"), detail));
        };
        *allowed = format!("{star}{host}");
    }
    Ok(limits)
}

/// The age at which a node's copy of the namespaces becomes old. Before a node creates a timer, it reads the namespaces
/// again if its copy is old. A node that removes a namespace waits for this time, so that the other nodes notice the
/// removal.
pub(crate) const VIEW: Duration = Duration::from_secs(5);
/// The longest time for which the creation of a timer waits for a new copy of the namespaces. After a failed read, no
/// creation waits again before the time [`AGAIN`] has passed.
const PATIENCE: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_secs(1);
/// The greatest number of attempts to change the namespaces. An attempt fails if another node changes the namespaces at
/// the same time.
const TURNS: usize = 64;

/// This node's copy of the namespaces. The copy gets the changes of other nodes when the stored namespaces are next
/// read.
pub(crate) struct Namespaces {
    storage: NamespaceStorage,
    /// Locked while this process changes the stored namespaces, so that its changes do not overlap.
    writing: Mutex<()>,
    /// Locked while this process reads the stored namespaces. Of two reads at the same time, the later one could get an
    /// older state than the earlier one. The value is the answer of the last call of [`renew`](Self::renew).
    reading: tokio::sync::Mutex<bool>,
    known: RwLock<Known>,
    /// The moment of the last failed attempt to read the namespaces again before a timer is created. `None` if no
    /// attempt has failed.
    failed: Mutex<Option<Instant>>,
}

/// The version of a copy that this node has stored and not read again. No stored document has this version.
const UNREAD: u64 = u64::MAX;

/// The namespaces as they were last read or stored, with the version of the stored document.
#[derive(Clone)]
struct Known {
    /// The namespaces that are not being removed.
    map: Arc<Map>,
    /// The namespaces that are being removed, each with the moment since which the copy has had its mark.
    removed: BTreeMap<Box<str>, (Arc<Namespace>, Instant)>,
    version: u64,
    /// A moment just before the read. The copy includes all changes before this moment.
    at: Instant,
    /// The version that this node's last change has replaced, and a moment after the change. A read that began before
    /// this moment may still answer with this version, which is old. A later read answers with it only if the store has
    /// lost the change, for example by a failover. `None` before the first change.
    replaced: Option<(u64, Instant)>,
}

impl Known {
    /// Replaces the copy by a newer copy.
    fn renew(&mut self, version: u64, map: Map) {
        let (removed, map): (Map, Map) =
            map.into_iter().partition(|(_, namespace)| namespace.removal.is_some());
        let now = Instant::now();
        let since = |name: &str, namespace: &Namespace| match self.removed.get(name) {
            Some((before, since)) if before.removal == namespace.removal => *since,
            _ => now,
        };
        let removed = removed.into_iter().map(|(name, namespace)| {
            let since = since(&name, &namespace);
            (name, (namespace, since))
        });
        self.removed = removed.collect();
        let mut map = completed(map);
        for (name, namespace) in Arc::make_mut(&mut map) {
            // A removal must find the holders of the former value: see `Namespace::is_held`.
            match self.map.get(name) {
                Some(before) if *before == *namespace => *namespace = Arc::clone(before),
                Some(before) => Arc::make_mut(namespace).former = Arc::clone(&before.former),
                None => {}
            }
        }
        (self.map, self.version) = (map, version);
    }

    /// Returns all stored namespaces, including those that are being removed.
    fn all(&self) -> Map {
        let removed = self.removed.iter().map(|(name, (namespace, _))| (name.clone(), Arc::clone(namespace)));
        self.map
            .iter()
            .map(|(name, namespace)| (name.clone(), Arc::clone(namespace)))
            .chain(removed)
            .collect()
    }
}

impl fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespaces").field("is_shared", &self.storage.is_shared()).finish_non_exhaustive()
    }
}

fn completed(mut map: Map) -> Arc<Map> {
    map.entry(DEFAULT.into()).or_default();
    Arc::new(map)
}

impl Namespaces {
    /// Reads the stored namespaces for the first time. Blocks the calling thread.
    pub(crate) fn open(storage: NamespaceStorage) -> io::Result<Self> {
        let at = Instant::now();
        let (version, mut map) = block_on(storage.read::<Map>())?;
        if !storage.is_shared() {
            // The processes of these removals have ended.
            map.values_mut().for_each(|namespace| Arc::make_mut(namespace).removal = None);
        }
        let (empty, removed) = (Arc::default(), BTreeMap::new());
        let mut known = Known { map: empty, removed, version, at, replaced: None };
        known.renew(version, map);
        let (writing, reading, failed) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { storage, writing, reading, known: RwLock::new(known), failed })
    }

    fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all namespaces in this node's copy, without those that are being removed.
    pub(crate) fn all(&self) -> Arc<Map> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).map)
    }

    /// Returns all stored namespaces in this node's copy as they are without removals.
    pub(crate) fn without_removals(&self) -> Map {
        let mut all = self.known().all();
        for namespace in all.values_mut().filter(|namespace| namespace.removal.is_some()) {
            Arc::make_mut(namespace).removal = None;
        }
        all
    }

    /// Returns the namespace with this name, or `None` if this node's copy does not have it.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Namespace>> {
        self.all().get(name).cloned()
    }

    /// Returns the namespace with this name. Fails if this node's copy does not have it, or if it is being removed.
    pub(crate) fn require(&self, name: &str) -> Result<Arc<Namespace>, Problem> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.map.get(name) {
            Some(namespace) => Ok(Arc::clone(namespace)),
            None if known.removed.contains_key(name) => Err(being_removed()),
            None => Err(Problem::new(ProblemKind::NotFound, format!("there is no namespace {name:?}"))),
        }
    }

    /// Returns the namespace with this name. First reads the namespaces again if this node's copy is old. Fails if the
    /// namespace does not exist, or if it is being removed.
    ///
    /// Called before something is stored in the namespace, because another node may have removed the namespace.
    pub(crate) async fn require_fresh(&self, name: &str) -> Result<Arc<Namespace>, Problem> {
        self.freshen().await;
        self.require(name)
    }

    /// Returns the names of namespaces that have stored timers or schedules, but are missing in this node's copy.
    pub(crate) fn missing(&self, counts: &Counts) -> Vec<Box<str>> {
        let known = self.known().all();
        let stored = counts.by_namespace.iter().filter(|(_, count)| **count > 0);
        let names = stored.map(|((name, _), _)| name.strip_prefix(Schedules::NAMESPACES).unwrap_or(name));
        // A program without namespaces stores its timers under the empty name, which no namespace of the service has.
        let names: BTreeSet<_> =
            names.filter(|name| !name.is_empty() && !known.contains_key(*name)).collect();
        names.into_iter().map(Box::from).collect()
    }

    /// Returns whether other nodes can change the namespaces.
    pub(crate) fn is_shared(&self) -> bool {
        self.storage.is_shared()
    }

    /// Returns the store that the nodes of the deployment share, or `None` if the namespaces are in a file.
    pub(crate) fn shared(&self) -> Option<Arc<dyn ClusterStore>> {
        match &self.storage {
            NamespaceStorage::File(_) => None,
            NamespaceStorage::Shared(store) => Some(Arc::clone(store)),
        }
    }

    /// Reads the stored namespaces again. Returns whether another node had changed them.
    pub(crate) async fn renew(&self) -> io::Result<bool> {
        let asked = Instant::now();
        let mut has_changed = self.reading.lock().await;
        // A read that began during the wait also serves this call.
        if self.known().at <= asked {
            let at = Instant::now();
            let (version, map) = self.storage.read().await?;
            *has_changed = self.take(version, map, at);
        }
        Ok(*has_changed)
    }

    /// Reads the stored namespaces again if this node's copy is old. If the read fails, the old copy stays in use,
    /// because the server that stores the namespaces may be down while the servers that store the timers still answer.
    /// If a timer is then created in a removed namespace, the timer is not delivered when it is due, but stays in the
    /// store.
    pub(crate) async fn freshen(&self) {
        if !self.is_shared() || self.known().at.elapsed() <= VIEW {
            return;
        }
        let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed().is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        if !matches!(timeout(PATIENCE, self.renew()).await, Ok(Ok(_))) {
            *failed() = Some(Instant::now());
        }
    }

    /// Replaces this node's copy by the result of a read, unless this node has replaced the result in the store.
    /// Returns whether the namespaces have changed. `at` is a moment just before the read.
    fn take(&self, version: u64, map: Map, at: Instant) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_replaced = known.replaced.is_some_and(|(replaced, since)| version == replaced && at <= since);
        if is_replaced {
            return false;
        }
        known.at = at;
        if version == known.version {
            return false;
        }
        known.renew(version, map);
        true
    }

    /// Replaces this node's copy by the namespaces that this node has stored in place of the version `replaced`. If a
    /// read has already replaced this version, its result includes the change, and stays.
    fn stored(&self, replaced: u64, map: Map) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.version == replaced {
            known.renew(UNREAD, map);
        }
        known.replaced = Some((replaced, Instant::now()));
    }

    /// Changes the namespaces with `change`, and returns once the change is stored. If another node has changed the
    /// namespaces in between, calls `change` again with the newer namespaces. Blocks the calling thread.
    pub(crate) fn change<T>(&self, mut change: impl FnMut(&mut Map) -> T) -> io::Result<T> {
        self.try_change(|map| Ok::<_, Infallible>(change(map))).map(|Ok(answer)| answer)
    }

    /// Changes the namespaces as [`change`](Self::change) does, unless `change` refuses. Stores nothing then, but first
    /// makes sure that `change` has seen the newest namespaces. Blocks the calling thread.
    pub(crate) fn try_change<T, E>(
        &self,
        mut change: impl FnMut(&mut Map) -> Result<T, E>,
    ) -> io::Result<Result<T, E>> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TURNS {
            let known = self.known();
            let (version, mut map) = (known.version, known.all());
            let answer = change(&mut map);
            if answer.is_err() {
                if self.is_shared() {
                    block_on(self.renew())?;
                }
                if self.known().version == version {
                    return Ok(answer);
                }
                continue;
            }
            map.entry(DEFAULT.into()).or_default();
            if block_on(self.storage.replace(version, &map))? {
                if self.is_shared() {
                    self.stored(version, map);
                    // The change has given the document a new version, which only a read can tell. If the store does
                    // not answer now, the copy is renewed within a second after the store answers again.
                    let _is_known = block_on(self.renew());
                } else {
                    self.known.write().unwrap_or_else(PoisonError::into_inner).renew(version, map);
                }
                return Ok(answer);
            }
            block_on(self.renew())?;
        }
        Err(io::Error::other(format!("other nodes changed the namespaces during {TURNS} attempts")))
    }

    /// Returns the namespaces whose marks this node's copy has had for the time `age`, each with the number of its
    /// removal. The processes of these removals have died.
    pub(crate) fn stale_removals(&self, age: Duration) -> Vec<(Box<str>, u64)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let stale = known.removed.iter().filter(|(_, (_, since))| since.elapsed() >= age);
        stale.filter_map(|(name, (namespace, _))| Some((name.clone(), namespace.removal?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::double::{self, Documents, Looks, Node};
    use core::pin::pin;
    use core::sync::atomic::Ordering;
    use core::task::{Context, Waker};
    use tokio::sync::oneshot;
    use tourbillon_durable::store::Hooked;

    fn limits(hosts: &[&str]) -> NamespaceLimits {
        let allowed_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        NamespaceLimits { allowed_hosts, ..NamespaceLimits::default() }
    }

    #[test]
    fn hosts_are_allowed_by_name_and_with_their_subdomains() {
        let given = [
            "Example.com",
            "*.EXAMPLE.org",
            "10.1.2.3",
            "[::1]",
            "*.bücher.example",
            "0x7f.1",
            "dot.example.",
            "*.dots.example.",
        ];
        let mut limits = canonical(limits(&given)).unwrap();
        assert_eq!(canonical(limits.clone()).unwrap(), limits);
        limits.allowed_hosts.extend(["stored.example.", "*.former.example."].map(str::to_owned));
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
            ("dot.example:443", true),
            ("a.dots.example:443", true),
            ("stored.example:443", true),
            ("a.former.example:443", true),
        ] {
            assert_eq!(allows_host(&limits, host), is_allowed, "{host}");
        }
        assert!(allows_host(&NamespaceLimits::default(), "anything:1"));
    }

    fn shared(documents: &Documents, incarnation: u64) -> (Arc<Hooked<Node>>, Namespaces) {
        let node = double::node(documents, incarnation);
        let store: Arc<dyn ClusterStore> = Arc::clone(&node) as _;
        (node, Namespaces::open(NamespaceStorage::Shared(store)).unwrap())
    }

    fn insert(namespaces: &Namespaces, name: &str) {
        namespaces.change(|map| drop(map.insert(name.into(), Arc::default()))).unwrap();
    }

    #[test]
    fn a_namespace_that_was_stored_is_known_although_the_next_read_fails() {
        let documents = Documents::default();
        let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
        node.hook().fails_reads.store(true, Ordering::Relaxed);
        insert(&one, "a");
        assert!(one.require("a").is_ok());
        node.hook().fails_reads.store(false, Ordering::Relaxed);
        insert(&other, "b");
        insert(&one, "c");
        assert_eq!(one.all().keys().map(|name| &**name).collect::<Vec<_>>(), ["a", "b", "c", DEFAULT]);
        assert!(block_on(other.renew()).unwrap());
        assert_eq!(one.all(), other.all());
    }

    #[test]
    fn a_read_under_way_brings_no_replaced_namespaces_back() {
        let documents = Documents::default();
        let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
        insert(&one, "a");
        let fails = |fails| node.hook().fails_reads.store(fails, Ordering::Relaxed);
        let Known { version, map, .. } = one.known();
        let inserted = one.change(|map| {
            // A read that begins after the change has begun still finds the old namespaces.
            assert!(!block_on(one.renew()).unwrap());
            fails(true);
            map.insert("b".into(), Arc::default());
            Instant::now()
        });
        assert!(one.require("b").is_ok());
        // A read that began just before the change answers now.
        assert!(!one.take(version, Map::clone(&map), inserted.unwrap()));
        assert!(one.require("b").is_ok());
        // A read that begins now finds the old namespaces only if the store has lost the change.
        assert!(one.take(version, Map::clone(&map), Instant::now()));
        assert!(one.require("b").is_err());
        fails(false);
        insert(&other, "c");
        assert!(block_on(one.renew()).unwrap());
        assert!(one.require("b").is_ok() && one.require("c").is_ok());
    }

    #[test]
    fn of_two_reads_under_way_neither_brings_older_namespaces_back() {
        let documents = Documents::default();
        let ((node, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
        let ((first_may_end, first), (second_may_end, second)) = (oneshot::channel(), oneshot::channel());
        node.hook().waits.lock().unwrap().extend([(Looks::After, first), (Looks::Before, second)]);
        let mut context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (pin!(one.renew()), pin!(one.renew()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        insert(&other, "a");
        first_may_end.send(()).unwrap();
        assert!(first.as_mut().poll(&mut context).is_ready());
        assert!(one.require("a").is_ok());
        second_may_end.send(()).unwrap();
        assert!(second.as_mut().poll(&mut context).is_ready());
        assert!(one.require("a").is_ok());
    }

    #[test]
    fn calls_that_wait_for_a_read_share_the_next_read() {
        let documents = Documents::default();
        let (node, one) = shared(&documents, 1);
        let (first_may_end, first) = oneshot::channel();
        let (second_may_end, second) = oneshot::channel();
        let (_never, third) = oneshot::channel();
        let reads = [first, second, third].map(|read| (Looks::Before, read));
        node.hook().waits.lock().unwrap().extend(reads);
        let mut context = Context::from_waker(Waker::noop());
        let mut calls = [(); 3].map(|()| Box::pin(one.renew()));
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
        first_may_end.send(()).unwrap();
        second_may_end.send(()).unwrap();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(node.hook().waits.lock().unwrap().len(), 1, "the reads that were not made");
    }

    #[test]
    fn the_holders_of_a_namespace_are_found_after_a_change_of_any_node() {
        let documents = Documents::default();
        let ((_, one), (_, other)) = (shared(&documents, 1), shared(&documents, 2));
        insert(&one, "a");
        assert!(block_on(other.renew()).unwrap());
        let held = one.get("a").unwrap();
        let limit = |most| {
            move |map: &mut Map| {
                let limits = NamespaceLimits { max_timers: Some(most), ..NamespaceLimits::default() };
                let changed = map["a"].changed(limits, Vec::new());
                map.insert("a".into(), Arc::new(changed));
            }
        };
        other.change(limit(1)).unwrap();
        assert!(block_on(one.renew()).unwrap());
        one.change(limit(2)).unwrap();
        let removed = one.change(|map| map.remove("a").unwrap()).unwrap();
        assert!(Namespace::is_held(&removed));
        drop(held);
        assert!(!Namespace::is_held(&removed));
    }

    #[test]
    fn a_refused_change_writes_no_namespaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("namespaces.json");
        let namespaces = Namespaces::open(NamespaceStorage::File(path.clone())).unwrap();
        assert_eq!(namespaces.try_change(|_| Err::<(), _>("no")).unwrap(), Err("no"));
        assert!(!path.exists(), "on a full disk, the write would hide the reason of the refusal");
        namespaces.change(|_| ()).unwrap();
        assert!(path.exists());
    }

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        for wrong in ["", ".", "*.", "a b", "*.10.0.0.1", "*.10.0.0.1..", "http://a", "a:443", "*"] {
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
