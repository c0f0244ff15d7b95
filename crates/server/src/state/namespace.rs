//! Defines a namespace as it is stored, and checks its limits.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) changes: Changes,
}

/// A secret that signs callbacks. Receivers verify the signatures with the same secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SigningSecret {
    pub(crate) secret: Box<str>,
    pub(crate) made: Moment,
    /// The moment from which the secret no longer signs callbacks. `None` if it has no end.
    pub(crate) until: Option<Moment>,
}

/// The moments at which a namespace in a shared document has changed, in milliseconds of the store's clock. The module
/// `stored_namespaces` says what they decide. A file and a backup have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Changes {
    /// The moment at which a client or a restore made the namespace, or at which a former namespace of this name was
    /// removed. 0 if neither has happened.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) since: u64,
    /// The moment at which a start made the namespace, because it had timers. 0 if none did.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) found: u64,
    /// The moments of the later changes of limits, by the names of the limits. The name [`ALL`] stands for a change of
    /// all limits, and the name [`SECRETS`] for a change of the secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) limits: BTreeMap<Box<str>, u64>,
}

/// The name of all limits of a namespace in [`Changes`].
pub(crate) const ALL: &str = "*";
/// The name of the secrets of a namespace in [`Changes`].
pub(super) const SECRETS: &str = "secrets";

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Changes {
    /// Returns the moment at which the limit `name` has last changed.
    pub(super) fn of_limit(&self, name: &str) -> u64 {
        let own = [ALL, name].map(|name| self.limits.get(name).copied().unwrap_or(0));
        own.into_iter().fold(self.since, u64::max)
    }

    /// Returns the moment of the last change.
    pub(super) fn last(&self) -> u64 {
        self.limits.values().copied().fold(self.since.max(self.found), u64::max)
    }

    /// Forgets the changes that a later change hides. Everything from before `since` is hidden.
    pub(super) fn hide_before(&mut self, since: u64) {
        self.since = self.since.max(since);
        if self.found <= self.since {
            self.found = 0;
        }
        let hidden = self.of_limit(ALL);
        self.limits.retain(|name, at| if &**name == ALL { *at > self.since } else { *at > hidden });
    }
}

/// The time for which the earlier secrets of a namespace still sign callbacks after a new secret was made, in
/// milliseconds.
pub(crate) const ROTATION: u64 = 86_400_000;
/// The greatest number of secrets with which a namespace signs its callbacks. Beyond this number, the oldest secret
/// stops signing.
const MOST_SECRETS: usize = 10;

/// Returns those of the secrets `made` that may still sign, the newest first, and each with its end. A secret ends a
/// day after the next secret was made, at this node or at another. The oldest secrets are left out, so that a namespace
/// can always get a new secret after a loss or a leak.
pub(crate) fn in_rotation(mut made: Vec<SigningSecret>) -> Vec<SigningSecret> {
    made.sort_by(|one, other| (other.made, &other.secret).cmp(&(one.made, &one.secret)));
    made.dedup_by(|same, first| {
        let is_same = same.secret == first.secret;
        if is_same {
            first.until = earlier(first.until, same.until);
        }
        is_same
    });
    let Some(newest) = made.first().map(|newest| newest.made) else { return made };
    let mut next = None;
    for secret in &mut made {
        let end = next.map(|next: Moment| Moment::from_millis(next.as_millis().saturating_add(ROTATION)));
        secret.until = earlier(secret.until, end);
        next = Some(secret.made);
    }
    made.retain(|secret| secret.until.is_none_or(|until| newest < until));
    made.truncate(MOST_SECRETS);
    made
}

/// Returns the earlier of two ends. `None` is no end.
fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    one.into_iter().chain(other).min()
}

/// The greatest number of hosts in a namespace's list of allowed hosts.
const MOST_HOSTS: usize = 100;

impl Namespace {
    /// Returns whether nobody has set anything in this namespace: a start has made it, or it is `default`.
    pub(crate) fn is_unset(&self) -> bool {
        self.number == 0 && self.limits == NamespaceLimits::default() && self.secrets.is_empty()
    }

    /// Returns this namespace as a backup has it, without the moments of its changes.
    pub(crate) fn without_changes(&self) -> Self {
        Self { changes: Changes::default(), ..self.clone() }
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

    /// Tests all orders in which nodes may learn of secrets that were made on different days.
    #[test]
    fn secrets_end_a_day_after_the_next_one_in_whatever_order_they_are_joined() {
        let secret = |day: u64| {
            let made = Moment::from_millis(day * ROTATION);
            SigningSecret { secret: day.to_string().into(), made, until: None }
        };
        let days = |secrets: &[SigningSecret]| -> Vec<(u64, Option<u64>)> {
            let day = |moment: Moment| moment.as_millis() / ROTATION;
            secrets.iter().map(|secret| (day(secret.made), secret.until.map(day))).collect()
        };
        // The secret of day 3 had ended on day 6. The secret of day 5 ends on day 7.
        let expected = [(6, None), (5, Some(7))];
        for order in [[3, 5, 6], [3, 6, 5], [5, 3, 6], [5, 6, 3], [6, 3, 5], [6, 5, 3]] {
            let joined = order.iter().fold(Vec::new(), |mut joined, day| {
                joined.push(secret(*day));
                in_rotation(joined)
            });
            assert_eq!(days(&joined), expected, "{order:?}");
            assert_eq!(in_rotation([joined.clone(), joined.clone()].concat()), joined);
        }
        assert_eq!(in_rotation((0..20).map(|_| secret(9)).collect()), [secret(9)]);
        let many: Vec<_> = (0..20_u64)
            .map(|number| SigningSecret {
                secret: number.to_string().into(),
                made: Moment::from_millis(number),
                until: None,
            })
            .collect();
        let left = in_rotation(many);
        assert!(left.len() == MOST_SECRETS && &*left[0].secret == "19" && left[0].until.is_none());
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
