//! The choice of the chunks that are searched for stale tickets when they move to a finer level.

use crate::ticket::CHUNK_TICKETS;

/// Chooses which chunks of tickets are searched for stale tickets when they move to a finer level. A search reads a
/// word of each timer, rarely from the cache. So if hardly any ticket is stale, only one of eight chunks is searched.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// The number of chunks that are skipped after each search, as chosen by the last search.
    skips: u32,
    /// The number of chunks that remain to skip before the next search.
    left: u32,
}

impl Sampling {
    const MOST_SKIPS: u32 = 7;

    /// Returns whether the caller must search the next chunk for stale tickets. After the search, the caller must call
    /// [`note`](Self::note).
    pub(crate) fn takes_next(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_none()
    }

    /// Records how many tickets of a searched chunk were stale. The more tickets were stale, the sooner the next search
    /// comes.
    ///
    /// A small chunk, such as the last chunk of a slot, never makes the next search later: it says little.
    pub(crate) fn note(&mut self, stale: usize, searched: usize) {
        if 8 * stale > searched {
            self.skips = 0;
        } else if searched >= CHUNK_TICKETS / 2 {
            self.skips = (2 * self.skips + 1).min(Self::MOST_SKIPS);
        }
        self.left = self.skips;
    }
}
