//! Rendezvous hashing: computes which of several nodes a shard belongs to.
//!
//! Each pair of node and shard has a weight, and a shard belongs to the node with the greatest weight. A new node takes
//! shards from all other nodes, and no shard moves between the others. The shards of a node that leaves are spread over
//! all other nodes.

use crate::layout::Shard;

/// Returns the node to which a shard belongs, or `None` if `nodes` is empty.
pub(super) fn owner(nodes: &[u64], shard: Shard) -> Option<u64> {
    // The number of the node decides between equal weights, so that all nodes agree for any order of `nodes`.
    nodes.iter().copied().max_by_key(|node| (weight(*node, shard), *node))
}

/// Returns the weight of a node for a shard: a pseudorandom number from the finaliser of SplitMix64, applied to the
/// node and then to the shard.
fn weight(node: u64, shard: Shard) -> u64 {
    // Nodes of several versions divide the shards between them, so all versions must compute the same weights.
    // Otherwise, no node might want a shard, and the shard's timers would not be delivered.
    mixed(mixed(node) ^ u64::from(shard).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Returns the numbers of `count` nodes: 1, 2, 3 and so on. Such numbers differ in few bits, so they are the worst
    /// case for [`weight`]: a weaker hash function would divide the shards unevenly.
    fn nodes(count: u64) -> Vec<u64> {
        (1..=count).collect()
    }

    #[test]
    fn shards_are_divided_evenly() {
        for count in [2, 3, 5, 10] {
            let nodes = nodes(count);
            let mut shares = BTreeMap::<u64, u64>::new();
            for shard in 0..1_024 {
                *shares.entry(owner(&nodes, shard).unwrap()).or_default() += 1;
            }
            let share = 1_024 / count;
            let is_even = |count: &u64| count.abs_diff(share) <= share / 3;
            assert!(shares.len() as u64 == count && shares.values().all(is_even), "{count}: {shares:?}");
        }
    }

    #[test]
    fn a_node_that_comes_takes_shards_and_moves_no_others() {
        let (few, many) = (nodes(4), nodes(5));
        let moved: Vec<Shard> =
            (0..1_024).filter(|shard| owner(&few, *shard) != owner(&many, *shard)).collect();
        assert!(moved.iter().all(|shard| owner(&many, *shard) == Some(5)));
        assert!((120..300).contains(&moved.len()), "{} of 1,024 moved, and a fifth was meant", moved.len());
    }

    #[test]
    fn the_order_of_the_nodes_makes_no_difference() {
        let mut nodes = nodes(7);
        let before: Vec<_> = (0..64).map(|shard| owner(&nodes, shard)).collect();
        nodes.reverse();
        assert_eq!(before, (0..64).map(|shard| owner(&nodes, shard)).collect::<Vec<_>>());
        assert_eq!(owner(&[], 1), None);
    }
}
