//! Defines a namespace as it is stored, and checks its limits.

use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tourbillon_api::{Moment, NamespaceLimits, Problem};
use url::Host;

/// The name of the namespace that always exists.
pub(crate) const DEFAULT: &str = "default";

/// The settings of a namespace: its limits, and its secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespace {
    /// A random number, drawn when a client created the namespace. A later namespace of the same name has another
    /// number. 0 if no client has created the namespace.
    #[serde(default)]
    pub(crate) number: u64,
    pub(crate) limits: NamespaceLimits,
    /// The secrets that sign the namespace's callbacks, the newest first.
    #[serde(default)]
    pub(crate) secrets: Vec<SigningSecret>,
}

/// A secret that signs callbacks. Receivers verify the signatures with the same secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SigningSecret {
    pub(crate) secret: Box<str>,
    pub(crate) made: Moment,
    /// The moment from which the secret no longer signs callbacks. `None` if it has no end.
    pub(crate) until: Option<Moment>,
}

/// The namespaces as they are stored, in the shared document or in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredNamespaces {
    pub(crate) namespaces: BTreeMap<Box<str>, Namespace>,
    /// The *marks*: for each namespace that is being removed, the random number of its removal. See the module
    /// `removal`.
    #[serde(default)]
    pub(crate) removals: BTreeMap<Box<str>, u64>,
    /// The *origins*: random numbers of this document, and of the lost documents whose copies were added to it. See the
    /// module `namespaces`. A file has none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) origins: BTreeSet<u64>,
    #[serde(default)]
    pub(crate) copies: Copies,
}

/// The action of a node that has a copy of a lost document of namespaces, and finds this document instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Copies {
    /// The node adds its copy to the document.
    #[default]
    Added,
    /// The node adds its copy, and `tourbillond mend` waits for this. Until then, a start treats the document as lost.
    Awaited,
    /// The node drops its copy, because an administrator has chosen the namespaces of this document.
    Refused,
}

impl StoredNamespaces {
    /// Adds a random origin. Called before the document is created in a store without such a document.
    pub(crate) fn draw_origin(&mut self) -> io::Result<()> {
        self.origins.insert(getrandom::u64().map_err(io::Error::other)?);
        Ok(())
    }

    /// Ends the wait for the copy of a node. A copy that comes later is still added.
    pub(crate) fn await_no_copy(&mut self) {
        if self.copies == Copies::Awaited {
            self.copies = Copies::Added;
        }
    }

    /// Returns whether a node with a copy of these origins must add the copy to this document.
    pub(crate) fn lacks(&self, origins: &BTreeSet<u64>) -> bool {
        self.copies != Copies::Refused && !origins.is_subset(&self.origins)
    }

    /// Adds the namespaces, limits and secrets of `copy` that this document lacks, and the origins. Does not add the
    /// marks of removals, so the removals in `copy` end, and their namespaces stay.
    pub(crate) fn add(&mut self, copy: Self) {
        for (name, lost) in copy.namespaces {
            match self.namespaces.entry(name) {
                Entry::Vacant(place) => drop(place.insert(lost)),
                Entry::Occupied(there) => there.into_mut().add(lost),
            }
        }
        self.origins.extend(copy.origins);
        self.copies = Copies::Added;
    }
}

/// The greatest number of hosts in a namespace's list of allowed hosts.
const MOST_HOSTS: usize = 100;

impl Namespace {
    /// Adds the limits and secrets of `lost`, a namespace of the same name, that are not set here. Adds nothing if a
    /// client has created this namespace again.
    fn add(&mut self, lost: Self) {
        if self.number != 0 && self.number != lost.number {
            return;
        }
        self.number = lost.number;
        if self.limits == NamespaceLimits::default() {
            self.limits = lost.limits;
        }
        if self.secrets.is_empty() {
            self.secrets = lost.secrets;
        }
    }

    /// Returns the secrets with which the namespace signs callbacks at the moment `now` of the store's clock, the
    /// newest first. The clock of a single node does not count, because the nodes share the ends of the secrets.
    pub(crate) fn active_secrets(&self, now: Moment) -> impl Iterator<Item = &SigningSecret> {
        self.secrets.iter().filter(move |secret| secret.until.is_none_or(|until| now < until))
    }
}

/// Returns whether the callbacks of a namespace may go to this host. Ignores a port after the host.
pub(crate) fn allows_host(limits: &NamespaceLimits, host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    // An earlier version of the service may have stored a full stop at the end.
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

/// Checks the limits of a namespace, and normalises the names of the allowed hosts for [`allows_host`]. Fails with the
/// name of an invalid field.
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
        // `Host::parse` accepts `*` anywhere in a name, and empty parts, as in `.example.org`. No host of a callback
        // has such a name. An address has no subdomains.
        let is_host = |host: &Host| match host {
            Host::Domain(name) => !name.contains('*') && !name.split('.').any(str::is_empty),
            Host::Ipv4(_) | Host::Ipv6(_) => star.is_empty(),
        };
        let host = Host::parse(name).ok().map(|host| host.to_string());
        // The host of a callback has no full stop at its end, either. A name without its full stops may be an address.
        let host = host.and_then(|host| Host::parse(host.trim_end_matches('.')).ok()).filter(is_host);
        let Some(host) = host else {
            let detail = "a host's name or address without a port; `*.example.org` means all names that end in \
                          `.example.org`";
            return Err(Problem::field(format!("/allowed_hosts/{at}"), detail));
        };
        *allowed = format!("{star}{host}");
    }
    Ok(limits)
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

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        for wrong in [
            "",
            ".",
            "*.",
            "a b",
            "*.10.0.0.1",
            "*.10.0.0.1..",
            "http://a",
            "a:443",
            "*",
            ".example.org",
            "*..a",
            "a..b",
        ] {
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
