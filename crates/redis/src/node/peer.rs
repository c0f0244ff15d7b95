//! The entries of the registry of nodes, which a server stores.

use crate::deployment::millis;
use core::time::Duration;
use tourbillon_durable::UtcMillis;

/// A node of the deployment, as the registry on the server describes it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) incarnation: u64,
    pub(super) seen: UtcMillis,
    pub(super) record: NodeRecord,
}

/// The record that a node stores about itself in the registry.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeRecord {
    pub(super) name: Box<str>,
    pub(super) version: Box<str>,
    pub(super) since: UtcMillis,
    pub(super) ttl: Duration,
    /// True if the node listens to a channel of its own, through which other nodes see when its connection ends.
    pub(super) has_channel: bool,
}

impl NodeRecord {
    pub(super) fn write(&self) -> Vec<u8> {
        let Self { name, version, since, ttl, has_channel } = self;
        let (since, ttl, has_channel) = (since.as_millis(), millis(*ttl), u8::from(*has_channel));
        // `Settings::admit` refuses names with zero bytes, so zero bytes can separate the parts. New parts are added at
        // the end, because other versions read the parts by their places.
        format!("{name}\0{version}\0{since}\0{ttl}\0{has_channel}").into_bytes()
    }

    /// Parses a node's record, which any version of the program may have written. Missing parts become empty, and parts
    /// of later versions are ignored.
    pub(super) fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut parts = text.split('\0');
        let mut next = || parts.next().unwrap_or_default();
        let (name, version) = (next().into(), next().into());
        let mut number = || next().parse().unwrap_or_default();
        let since = UtcMillis::from_millis(number());
        let ttl = Duration::from_millis(number());
        Self { name, version, since, ttl, has_channel: number() == 1 }
    }
}

impl Peer {
    /// Returns whether the node's last sign of life, a heartbeat to the server, is younger than the node's `ttl`. A
    /// sign that is in the future by `ttl` or more does not count, because the clock was set back after it.
    pub(super) fn is_live(&self, now: UtcMillis) -> bool {
        self.seen + self.record.ttl > now && self.seen < now + self.record.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_node_is_read_as_it_was_written() {
        let record = NodeRecord {
            name: "rack 3".into(),
            version: "1.2.3".into(),
            since: UtcMillis::from_millis(77),
            ttl: Duration::from_millis(2_500),
            has_channel: true,
        };
        let read = NodeRecord::read(&record.write());
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
        for other in [&b""[..], b"a", b"a\0b\0c", b"\xff\0\0-1\0x", b"a\0b\x001\x002\0more"] {
            let _read = NodeRecord::read(other);
        }
    }

    #[test]
    fn a_sign_of_the_future_is_none_of_life() {
        let record = NodeRecord { ttl: Duration::from_secs(10), ..NodeRecord::default() };
        let peer = |seen| Peer { incarnation: 1, seen: UtcMillis::from_millis(seen), record: record.clone() };
        let now = UtcMillis::from_millis(100_000);
        for (seen, is_live) in
            [(100_000, true), (90_001, true), (90_000, false), (109_999, true), (110_000, false)]
        {
            assert_eq!(peer(seen).is_live(now), is_live, "{seen}");
        }
    }
}
