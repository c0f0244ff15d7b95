#![doc = include_str!("../README.md")]

/// Gives free memory back to the system, and returns whether there was any. Does nothing with allocators other than
/// glibc's, which give memory back by themselves or have no such call.
///
/// The call takes some milliseconds for each hundred megabytes that were freed. Threads that allocate during the call
/// wait for the part of the heap that they use. It can be called at any time from any thread.
#[must_use = "whether there was anything to give back; `let _ = ` if it is all the same"]
pub fn give_back() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the function has no demands, and locks the data that it changes, as every call of the allocator does.
        let was_given_back = unsafe { libc::malloc_trim(0) };
        was_given_back != 0
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// The memory that this process has in RAM, in MiB.
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
        // One block of a hundred stays, so that the heap does not end before them.
        let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(100).collect();
        assert!(resident() > full / 2, "glibc keeps them");
        assert!(give_back());
        assert!(resident() < full / 2, "{} of {full} MiB", resident());
        assert!((0..16_000).step_by(100).zip(&kept).all(|(number, block)| block[0] == fill(number)));
    }
}
