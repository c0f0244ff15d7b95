//! The reasons for which the service parks timers, as they are stored with them.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

/// What a parked timer waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// The end of a namespace's pause.
    Paused(Box<str>),
    /// A place in a namespace's share of the service's places.
    Share(Box<str>),
    /// A place in a namespace's share of the places for hosts that are slow or not known.
    Slow(Box<str>),
    /// A place among the deliveries of a namespace.
    Concurrency(Box<str>),
    /// The moment that the rate of a namespace permits.
    Rate(Box<str>),
    /// A place at a host and port, or the host's recovery.
    Host(Box<str>),
    /// A receiver that fetches from a queue of a namespace.
    Queue(Box<str>, Box<str>),
}

/// The greatest length of a host in a reason: the store has a limit for reasons.
const LONGEST_HOST: usize = 200;

impl Reason {
    /// The reason for a host and port. A host that is too long for a reason is cut, and has a number instead of its
    /// end.
    pub(crate) fn host(host: &str) -> Self {
        if host.len() <= LONGEST_HOST {
            return Self::Host(host.into());
        }
        // The hasher of the standard library without a key is the same in each start of a version.
        let mut hasher = DefaultHasher::new();
        host.hash(&mut hasher);
        let end = (0..=LONGEST_HOST).rev().find(|at| host.is_char_boundary(*at)).unwrap_or(0);
        Self::Host(format!("{}~{:016x}", &host[..end], hasher.finish()).into())
    }

    /// The word of the reason's kind.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Paused(_) => "paused",
            Self::Share(_) => "share",
            Self::Slow(_) => "slow",
            Self::Concurrency(_) => "concurrency",
            Self::Rate(_) => "rate",
            Self::Host(_) => "host",
            Self::Queue(..) => "queue",
        }
    }

    /// The reason that is stored as this text, if the service parks timers for it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "paused" => Some(Self::Paused(rest.into())),
            "share" => Some(Self::Share(rest.into())),
            "slow" => Some(Self::Slow(rest.into())),
            "concurrency" => Some(Self::Concurrency(rest.into())),
            "rate" => Some(Self::Rate(rest.into())),
            "host" => Some(Self::Host(rest.into())),
            "queue" => {
                rest.split_once('/').map(|(namespace, queue)| Self::Queue(namespace.into(), queue.into()))
            }
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
            Self::Host(host) => write!(f, "host:{host}"),
            Self::Queue(namespace, queue) => write!(f, "queue:{namespace}/{queue}"),
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
            Reason::host("[::1]:8080"),
            Reason::host(&format!("{}:443", "x".repeat(250))),
            Reason::Queue("a".into(), "b-c".into()),
        ] {
            let text = reason.to_string();
            assert!(text.len() <= 255, "{text}");
            assert_eq!(Reason::parse(&text), Some(reason));
        }
        for other in ["paused", "no handler: mail", "", "weather:rain", "queue:a"] {
            assert_eq!(Reason::parse(other), None, "{other}");
        }
        let long = |end: &str| Reason::host(&format!("{}{end}", "x".repeat(250)));
        assert_ne!(long("a:443"), long("b:443"));
    }
}
