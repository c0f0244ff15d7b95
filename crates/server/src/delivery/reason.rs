//! Defines the reasons for which the service parks timers, and their stored form.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::borrow::Cow;
use std::hash::DefaultHasher;
use tourbillon_durable::store::PAUSED;

/// The reason for which a timer is parked: the event or the permit for which the timer waits. A parked timer stays in
/// the store without a delivery. A permit allows one delivery to run. A reason also identifies the limit or the queue
/// for which the timer waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// The timer waits for the end of this namespace's pause.
    Paused(Box<str>),
    /// The timer waits for one of the service's permits. This namespace may have only a part of these permits.
    Share(Box<str>),
    /// The timer waits for one of the permits for callbacks to slow and unknown hosts. This namespace may have only a
    /// part of these permits.
    Slow(Box<str>),
    /// The timer waits until a running delivery of this namespace ends, because the namespace limits the number of its
    /// concurrent deliveries.
    Concurrency(Box<str>),
    /// The timer waits for the moment at which this namespace's limit of deliveries per second permits a delivery.
    Rate(Box<str>),
    /// The timer waits for one of its namespace's permits for callbacks to a host, or for the recovery of a failing
    /// host. The values are the namespace, and the host with its port.
    Host(Box<str>, Box<str>),
    /// The timer waits for the recovery of a failing path of a host. The values are the namespace, the host with its
    /// port, and a hash of the path.
    Path(Box<str>, Box<str>, u64),
    /// The timer waits for a receiver that fetches from its queue. The values are the namespace and the queue's name.
    Queue(Box<str>, Box<str>),
    /// The timer itself was paused, and waits for its resume. The service only counts such timers.
    TimerPaused,
}

/// The greatest length of a host in a reason, in bytes. The store limits the length of the stored reason.
const LONGEST_HOST: usize = 168;

/// Hashes a text. Two processes of the same version compute equal hashes for equal texts.
fn number_of(text: &str) -> u64 {
    // The hasher of the standard library uses no random key here. Another version of the library may compute another
    // hash. Timers that are parked under an old hash are then unparked, because no limiter with this hash is shut.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns the host as reasons contain it: a hash replaces the end of a host that is too long.
fn host_in_reasons(host: &str) -> Cow<'_, str> {
    if host.len() <= LONGEST_HOST {
        return host.into();
    }
    let number = format!("~{:016x}", number_of(host));
    let end = (0..=LONGEST_HOST - number.len()).rev().find(|at| host.is_char_boundary(*at)).unwrap_or(0);
    (host[..end].to_owned() + &number).into()
}

impl Reason {
    /// Makes the reason for which timers of a namespace are parked until a permit for the host is free, or until the
    /// host recovers from a failure. `host` may end with a port.
    pub(crate) fn host(namespace: &str, host: &str) -> Self {
        Self::Host(namespace.into(), host_in_reasons(host).into())
    }

    /// Makes the reason for which timers of a namespace are parked until a path of a host recovers from a failure.
    /// `host` may end with a port.
    pub(crate) fn path(namespace: &str, host: &str, path: &str) -> Self {
        Self::Path(namespace.into(), host_in_reasons(host).into(), number_of(path))
    }

    /// Returns whether the reason is about this host or one of its paths. `host` may end with a port.
    pub(crate) fn is_of_host(&self, host: &str) -> bool {
        matches!(self, Self::Host(_, own) | Self::Path(_, own, _) if **own == *host_in_reasons(host))
    }

    /// Returns the label under which metrics count timers that are parked for this kind of reason.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Paused(_) | Self::TimerPaused => "paused",
            Self::Share(_) => "share",
            Self::Slow(_) => "slow",
            Self::Concurrency(_) => "concurrency",
            Self::Rate(_) => "rate",
            Self::Host(..) => "host",
            Self::Path(..) => "path",
            Self::Queue(..) => "queue",
        }
    }

    /// Parses a reason from its stored form. Returns `None` if the text is not a reason of this service.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The last slash ends the name of the namespace. The name may have slashes if a library has stored the timers,
        // but hosts and queues have none.
        let pair = |text: &str| text.rsplit_once('/').map(|(first, second)| (first.into(), second.into()));
        if text == PAUSED {
            return Some(Self::TimerPaused);
        }
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "paused" => Some(Self::Paused(rest.into())),
            "share" => Some(Self::Share(rest.into())),
            "slow" => Some(Self::Slow(rest.into())),
            "concurrency" => Some(Self::Concurrency(rest.into())),
            "rate" => Some(Self::Rate(rest.into())),
            "host" => match pair(rest) {
                Some((namespace, host)) => Some(Self::Host(namespace, host)),
                // An earlier version shared the limit of a host among all namespaces, and wrote no namespace.
                None => Some(Self::Host("".into(), rest.into())),
            },
            "path" => {
                let (path, number) = rest.rsplit_once('#')?;
                let (namespace, host) = pair(path)?;
                u64::from_str_radix(number, 16).ok().map(|number| Self::Path(namespace, host, number))
            }
            "queue" => pair(rest).map(|(namespace, queue)| Self::Queue(namespace, queue)),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused(namespace) => write!(f, "paused:{namespace}"),
            Self::Share(namespace) => write!(f, "share:{namespace}"),
            Self::Slow(namespace) => write!(f, "slow:{namespace}"),
            Self::Concurrency(namespace) => write!(f, "concurrency:{namespace}"),
            Self::Rate(namespace) => write!(f, "rate:{namespace}"),
            // The store finds parked timers by the exact text of their reason. So the text of an earlier version is
            // written as it was read.
            Self::Host(namespace, host) if namespace.is_empty() => write!(f, "host:{host}"),
            Self::Host(namespace, host) => write!(f, "host:{namespace}/{host}"),
            Self::Path(namespace, host, number) => write!(f, "path:{namespace}/{host}#{number:016x}"),
            Self::Queue(namespace, queue) => write!(f, "queue:{namespace}/{queue}"),
            Self::TimerPaused => f.write_str(PAUSED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_as_they_are_written() {
        for reason in [
            Reason::Paused("a.b".into()),
            Reason::Share("a".into()),
            Reason::Slow("a".into()),
            Reason::Concurrency("a".into()),
            Reason::Rate("a".into()),
            Reason::host("a", "[::1]:8080"),
            Reason::host(&"n".repeat(64), &format!("{}:443", "x".repeat(250))),
            Reason::path("a", "b:443", "/c"),
            Reason::path(&"n".repeat(64), &format!("{}:443", "ü".repeat(250)), &"/".repeat(2_000)),
            Reason::Host("".into(), "b:443".into()),
            Reason::Queue("a".into(), "b-c".into()),
            Reason::Queue("a/b".into(), "c".into()),
            Reason::host("a/b", "c:443"),
            Reason::path("a/b", "c:443", "/d"),
            Reason::TimerPaused,
        ] {
            let text = reason.to_string();
            assert!(text.len() <= 255, "{text}");
            assert_eq!(Reason::parse(&text), Some(reason));
        }
        for other in [
            "path:a/b",
            "path:a#1",
            "path:a/b#x",
            "pausedly",
            "no handler: mail",
            "",
            "weather:rain",
            "queue:a",
        ] {
            assert_eq!(Reason::parse(other), None, "{other}");
        }
        let long = |end: &str| format!("{}{end}", "x".repeat(250));
        let (a, b) = (long("a:443"), long("b:443"));
        assert_ne!(Reason::host("n", &a), Reason::host("n", &b));
        let own = [Reason::host("n", &a), Reason::path("m", &a, "/")];
        assert!(own.iter().all(|reason| reason.is_of_host(&a) && !reason.is_of_host(&b)));
        assert!(!Reason::Rate("a".into()).is_of_host("a"));
    }
}
