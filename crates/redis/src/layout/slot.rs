//! The slots of a Redis Cluster, and the hash tags that put the shards of a deployment into slots.

/// The number of a shard, from 0.
pub(crate) type Shard = u16;

/// The number of slots of a Redis Cluster.
pub(crate) const SLOTS: u32 = 16_384;

/// Each shard has a range of slots. The shard's hash tag is in one of the middle slots of this range, and `WIDTH` is
/// the number of these middle slots. If the range has fewer slots, the hash tag may be in any slot of the range.
const WIDTH: u32 = 64;

/// The CRC-16 (XMODEM) of each byte.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let mut sum = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = sum << 1 ^ if sum & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
};

/// Computes the CRC-16 (XMODEM) from which Redis Cluster derives slots. `sum` is the checksum of the preceding bytes,
/// or 0 if no bytes precede.
fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, byte| sum << 8 ^ CRC16[usize::from(sum.to_be_bytes()[0] ^ byte)])
}

/// Returns the slot of a key. If the key has text in braces, the slot depends only on the first such text.
pub(crate) fn slot_of(key: &[u8]) -> u32 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        // Redis ignores a pair of braces without text, and uses the whole key.
        let length = rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
        rest.get(..length)
    });
    u32::from(crc16(0, tag.unwrap_or(key))) % SLOTS
}

/// Returns the hash tag of a shard: the text `<name>:<shard>.<n>`. The number `n` is the smallest number for which the
/// slot of the tag is one of the middle slots of the shard's range. So the tags lie evenly over the slots, and thus
/// over primaries with equal ranges of slots. In a cluster of three or six primaries, the range of a primary may end
/// within the range of a shard. With 4 to 64 shards, the range of a primary never ends at the middle slots of the
/// shard's range.
pub(super) fn tag_of(name: &str, shard: Shard, shards: u16) -> Box<str> {
    let share = SLOTS / u32::from(shards.max(1));
    let width = share.min(WIDTH);
    let first = u32::from(shard) * share + (share - width) / 2;
    let wanted = first..first + width;
    let beginning = format!("{name}:{shard}.");
    // Hundreds of numbers are tried for each shard, so the checksum of the beginning is computed only once.
    let sum = crc16(0, beginning.as_bytes());
    let is_meant = |n: &u32| wanted.contains(&(u32::from(crc16(sum, n.to_string().as_bytes())) % SLOTS));
    let n = (0..u32::MAX).find(is_meant).unwrap_or_default();
    format!("{beginning}{n}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_redis_cluster() {
        // This is the value in the specification of Redis Cluster. `CLUSTER KEYSLOT` answers the same.
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        for key in ["{foo}", "a{foo}b", "{foo}{bar}", "tb:{foo}:meta"] {
            assert_eq!(slot_of(key.as_bytes()), 12_182, "{key}");
        }
        // Without a tag, or with an empty tag, the whole key counts.
        for key in ["{foo", "foo}", "{}foo", "}{"] {
            assert_eq!(slot_of(key.as_bytes()), u32::from(crc16(0, key.as_bytes())) % SLOTS, "{key}");
        }
        assert_eq!(crc16(crc16(0, b"1234"), b"56789"), 0x31c3);
    }
}
