#![doc = include_str!("../README.md")]

/// Gives free memory of the heap back to the system. Returns whether any memory was given back.
///
/// Works only with the allocator of glibc. With another allocator, does nothing and returns false. Other allocators
/// give memory back by themselves, or have no function for this.
///
/// The call takes some milliseconds for each hundred megabytes of freed memory. During the call, other threads that
/// allocate may wait for the part of the heap that they use. Any thread may call the function at any time.
#[must_use = "whether there was anything to give back; `let _ = ` if it is all the same"]
pub fn give_back() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` has no preconditions. Like every call of the allocator, it locks the data that it
        // changes.
        let was_given_back = unsafe { libc::malloc_trim(0) };
        was_given_back != 0
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Returns how much memory of this process is in RAM, in MiB.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    }

    fn fill(number: u32) -> u8 {
        u8::try_from(number % 251).unwrap()
    }

    #[test]
    fn pages_between_blocks_that_stay_are_given_back() {
        let blocks: Vec<Vec<u8>> = (0..16_000_u32).map(|number| vec![fill(number); 8 << 10]).collect();
        let full = resident();
        // Every hundredth block stays. So the heap does not end before the freed blocks.
        let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(100).collect();
        assert!(resident() > full / 2, "glibc keeps them");
        assert!(give_back());
        assert!(resident() < full / 2, "{} of {full} MiB", resident());
        assert!((0..16_000).step_by(100).zip(&kept).all(|(number, block)| block[0] == fill(number)));
    }
}
