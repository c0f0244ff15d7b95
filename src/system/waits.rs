//! The time for which a thread waited for a core although it could run, as the system's scheduler counts it.

/// The waits of a thread since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The time of all waits, in nanoseconds.
    pub(crate) nanos: u64,
    /// How often the thread got a core.
    pub(crate) times: u64,
}

/// Reads the waits of the thread that opened it. A reading takes a microsecond.
#[derive(Debug)]
pub(crate) struct WaitMeter(#[cfg(target_os = "linux")] std::fs::File);

impl WaitMeter {
    /// Opens the meter of the calling thread. Returns `None` if the system has none.
    pub(crate) fn of_current_thread() -> Option<Self> {
        #[cfg(target_os = "linux")]
        return std::fs::File::open("/proc/thread-self/schedstat").ok().map(Self);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns the waits so far; `None` if the system does not tell them any more.
    pub(crate) fn read(&self) -> Option<Waits> {
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::FileExt;
            let mut text = [0; 96];
            let len = self.0.read_at(&mut text, 0).ok()?;
            parse(core::str::from_utf8(text.get(..len)?).ok()?)
        }
        #[cfg(not(target_os = "linux"))]
        None
    }
}

/// Reads the text of a thread's `schedstat` (proc(5)): its time on cores, its time of waits, and how often it got a
/// core.
#[cfg(target_os = "linux")]
fn parse(text: &str) -> Option<Waits> {
    let mut numbers = text.split_ascii_whitespace().skip(1).map(str::parse);
    Some(Waits { nanos: numbers.next()?.ok()?, times: numbers.next()?.ok()? })
}

#[cfg(all(test, target_os = "linux", not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_systems_text_is_read_and_another_text_is_none() {
        assert_eq!(parse("123 4567 89\n"), Some(Waits { nanos: 4_567, times: 89 }));
        for text in ["", "1", "1 2", "1 x 3", "1 2 -3", "1 2 99999999999999999999999"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn waits_only_grow() {
        // A kernel without scheduler statistics has no such file.
        let Some(meter) = WaitMeter::of_current_thread() else { return };
        let before = meter.read().expect("the thread runs");
        crate::base::sync::sleep(core::time::Duration::from_millis(5));
        let after = meter.read().expect("the thread runs");
        assert!(after.nanos >= before.nanos && after.times >= before.times);
    }
}
