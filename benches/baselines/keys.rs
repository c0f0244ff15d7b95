//! A map with number keys that no attacker chooses. It is the standard map with a hash of one multiplication.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// Fibonacci hashing of a key. The map takes the index from the low bits, and the tag from the high bits. So the high
/// bits are added to the low bits.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn write_u64(&mut self, key: u64) {
        let product = u128::from(key ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
