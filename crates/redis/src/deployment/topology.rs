//! The difference between one server and a cluster, for the shards of a deployment.
//!
//! On one server, a script may name the keys of all shards. In a cluster, a script names the keys of one shard. A
//! *group* is the shards whose keys one script may name. Each group of a cluster may be on a server of its own, and a
//! server that fails makes only its own groups fail. The methods of [`Topology`] answer all questions about the
//! difference.
//!
//! | question | one server | cluster |
//! |---|---|---|
//! | which shards share a script | all | none |
//! | can some shards answer while others do not | no | yes |
//! | which script writes the redirect of a timer that is not in the shard of its id | the commit | a script before the commit; the redirect may be left behind |
//! | which ends of deliveries hold each other up | all | those of the same two shards: the timer's and its id's |

use crate::layout::{Layout, Shard};
use std::collections::BTreeMap;

/// The place of the shards: on one server, or spread over a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    OneServer,
    Cluster,
}

impl Topology {
    /// Returns `Cluster` for a link to a cluster, and `OneServer` for any other link.
    pub(crate) fn new(is_cluster: bool) -> Self {
        if is_cluster { Self::Cluster } else { Self::OneServer }
    }

    /// Returns the number of the group (shards whose keys one script may name) to which a shard belongs.
    fn group_of(self, shard: Shard) -> Shard {
        match self {
            Self::OneServer => 0,
            Self::Cluster => shard,
        }
    }

    /// Returns whether one script may name the keys of both shards.
    pub(crate) fn shares_script(self, one: Shard, other: Shard) -> bool {
        self.group_of(one) == self.group_of(other)
    }

    /// Divides shards into groups whose keys one script may name. No group is empty.
    pub(crate) fn groups(self, shards: impl IntoIterator<Item = Shard>) -> Vec<Vec<Shard>> {
        let mut groups: BTreeMap<Shard, Vec<Shard>> = BTreeMap::new();
        for shard in shards {
            groups.entry(self.group_of(shard)).or_default().push(shard);
        }
        groups.into_values().collect()
    }

    /// Divides a list of shards into groups whose keys one script may name. For each group, returns the indices of its
    /// shards in the list. No group is empty.
    pub(crate) fn places_by_script(self, shards: impl IntoIterator<Item = Shard>) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (place, shard) in shards.into_iter().enumerate() {
            groups.entry(self.group_of(shard)).or_default().push(place);
        }
        groups.into_values().collect()
    }

    /// Returns whether some groups of shards may answer while others do not, as in a cluster. If so, callers ask each
    /// group separately and leave failed groups out.
    pub(crate) fn fails_in_parts(self) -> bool {
        self == Self::Cluster
    }

    /// Returns whether a [redirect](crate::layout::Redirect) may lead to a shard that does not store the timer. On one
    /// server, the script that stores or removes a timer also writes or removes the redirect. In a cluster, these are
    /// separate scripts. If an operation stops between them, the redirect is left without its timer.
    pub(crate) fn has_loose_redirects(self) -> bool {
        self == Self::Cluster
    }

    /// Returns the number of queues in which a runtime sends the results of deliveries to the store
    /// ([`TimerStore::parts`](tourbillon_durable::store::TimerStore::parts)). While one queue waits for a server, the
    /// runtime continues to send the results in the other queues.
    pub(crate) fn queues(self, layout: &Layout) -> u32 {
        let shards = u32::from(layout.shards().end);
        match self {
            Self::OneServer => 1,
            Self::Cluster => shards * shards,
        }
    }

    /// Returns the number of the queue for the result of a timer's delivery. `home` is the shard that stores the timer,
    /// and `id_shard` is the shard to which the timer's id belongs. In a cluster, the store may need both shards to
    /// store the result, so the queue depends on both.
    pub(crate) fn queue_of(self, layout: &Layout, home: Shard, id_shard: Shard) -> u32 {
        match self {
            Self::OneServer => 0,
            Self::Cluster => u32::from(home) * u32::from(layout.shards().end) + u32::from(id_shard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_all_shards_of_one_server_and_one_shard_of_a_cluster() {
        let (server, cluster) = (Topology::OneServer, Topology::Cluster);
        assert_eq!(server.groups([3, 1, 2]), [[3, 1, 2]]);
        assert_eq!(cluster.groups([3, 1, 2]), [[1], [2], [3]]);
        assert!(server.groups([]).is_empty() && cluster.groups([]).is_empty());
        assert_eq!(server.places_by_script([5, 4, 5]), [[0, 1, 2]]);
        assert_eq!(cluster.places_by_script([5, 4, 5]), [vec![1], vec![0, 2]]);
        assert!(server.shares_script(1, 2) && !cluster.shares_script(1, 2) && cluster.shares_script(2, 2));
    }

    #[test]
    fn ends_that_need_the_same_two_shards_share_a_queue() {
        let layout = Layout::new("d", 4);
        assert_eq!(
            (Topology::OneServer.queues(&layout), Topology::OneServer.queue_of(&layout, 3, 2)),
            (1, 0)
        );
        let queue = |home, id_shard| Topology::Cluster.queue_of(&layout, home, id_shard);
        assert_eq!(Topology::Cluster.queues(&layout), 16);
        assert_eq!((queue(0, 0), queue(3, 2), queue(3, 3)), (0, 14, 15));
    }
}
