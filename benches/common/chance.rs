//! Random numbers from seeds. All contestants get the same numbers.

use std::ops::Range;

/// The SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number in `range`. The numbers are uniform, except for a bias of at most the range's length in
    /// 2^64.
    pub(crate) fn within(&mut self, range: &Range<u64>) -> u64 {
        let length = u128::from(range.end - range.start);
        range.start + ((u128::from(self.next()) * length) >> 64) as u64
    }

    /// Returns the numbers from 0 to below `count` in random order.
    pub(crate) fn order(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(count).expect("fewer than 2^32")).collect();
        for last in (1..count as u64).rev() {
            let other = self.within(&(0..last + 1));
            order.swap(index(last), index(other));
        }
        order
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}
