//! The processor's counter. The engine reads it only where the kernel itself keeps time by this counter.

use super::system;
use super::upper::Source;

/// Reads the processor's counter, and the system's monotonic clock.
#[derive(Debug)]
pub(super) struct Processor(());

impl Processor {
    /// Returns the processor's counter, or `None` if the counter cannot be trusted. It can be trusted under two
    /// conditions. First, the kernel derives the system's monotonic clock from the counter: the engine checks the
    /// counter against that clock. Second, the counter runs at one rate in all states of the processor.
    pub(super) fn find() -> Option<Self> {
        (imp::is_invariant() && is_the_kernels_clock(imp::CLOCK_SOURCES)).then_some(Self(()))
    }
}

impl Source for Processor {
    #[inline(always)]
    fn counter(&self) -> u64 {
        imp::read()
    }

    fn truth(&self) -> u64 {
        system::true_now().as_nanos()
    }
}

fn is_the_kernels_clock(sources: &[&str]) -> bool {
    const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    !sources.is_empty()
        && std::fs::read_to_string(CURRENT).is_ok_and(|current| sources.contains(&current.trim()))
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod imp {
    use core::arch::x86_64::{__cpuid, _rdtsc, CpuidResult};

    /// The kernel's names for clock sources that are the time-stamp counter or are scaled from it.
    pub(super) const CLOCK_SOURCES: &[&str] = &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];

    /// Returns whether the counter runs at a constant rate in all power states: leaf 0x8000_0007, bit 8 of EDX.
    pub(super) fn is_invariant() -> bool {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        cpuid(EXTENDED).eax >= POWER && cpuid(POWER).edx & 1 << 8 != 0
    }

    #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
    fn cpuid(leaf: u32) -> CpuidResult {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { __cpuid(leaf) }
    }

    #[inline(always)]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the instruction; Linux lets a program use it unless the
        // program forbids it to itself.
        unsafe { _rdtsc() }
    }
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
mod imp {
    pub(super) const CLOCK_SOURCES: &[&str] = &["arch_sys_counter"];

    /// Returns true: the architecture guarantees a constant rate.
    pub(super) fn is_invariant() -> bool {
        true
    }

    #[inline(always)]
    pub(super) fn read() -> u64 {
        let count;
        // SAFETY: reads a register that Linux lets programs read; touches no memory.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
        }
        count
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod imp {
    pub(super) const CLOCK_SOURCES: &[&str] = &[];

    pub(super) fn is_invariant() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}
