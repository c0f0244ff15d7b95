//! The options of an engine, as C passes them.

use crate::status::{Failure, tb_status};
use std::time::Duration;
use tourbillon::{Builder, SystemClock};

/// How due timers reach the program: by callbacks or as events.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tb_delivery {
    /// Callbacks run on the engine's worker threads.
    TB_POOL = 0,
    /// Callbacks run on the threads of the shards. They should only wake a thread or enqueue an item, because a slow
    /// callback delays its whole shard.
    TB_INLINE = 1,
    /// No callbacks run. Each due timer becomes an event, and stays pending until `tb_poll` has taken its event.
    TB_POLLED = 2,
}

/// Whether the shards' threads are pinned to cores.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tb_pinning {
    /// Each thread is pinned to a core that the process may use.
    TB_PINNED = 0,
    /// The system's scheduler places the threads.
    TB_UNPINNED = 1,
}

/// The clock by which deadlines are measured.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tb_clock {
    /// The system's monotonic clock (`CLOCK_MONOTONIC`), read in the cheapest way that the machine has.
    TB_CLOCK_MONOTONIC = 0,
    /// The system's monotonic clock, read by a call to the system each time.
    TB_CLOCK_SYSTEM = 1,
    /// `CLOCK_BOOTTIME`, which counts the time of a suspend. A timer that became due during a suspend fires within a
    /// second of the resume. Linux only: elsewhere `TB_UNSUPPORTED`.
    TB_CLOCK_BOOT = 2,
}

/// The options of an engine. 0 means the default in every field but `size`; start with `TB_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tb_options {
    /// `sizeof(tb_options)`: later versions may add fields.
    pub size: usize,
    /// The length of a tick in nanoseconds, which is the resolution of deadlines: 1 us to 1 h; by default 1 ms.
    pub tick_ns: u64,
    /// The capacity of a lane, which is a thread's queue to a shard: the number of timers that the thread may schedule
    /// or arm before the shard takes them from the lane. If the lane is full, the thread's calls wait or are refused.
    /// From 64 to 2^32; by default 65,536. On an engine with two groups of timers (see `capacity`), each group has
    /// lanes of its own.
    pub lane_capacity: u64,
    /// The number of shards, each of them a wheel with a thread of its own: 1 to 1,024; by default one for each core.
    pub shards: u32,
    /// The number of workers for `TB_POOL`: 1 to 1,024; by default as many as shards.
    pub workers: u32,
    /// The number of slots for timers; by default 16,777,216. A one-shot has a slot while it is pending or
    /// its callback runs. A timer or a periodic task has a slot from its creation on, armed or not. A one-shot that is
    /// moved or replaced keeps its slot, unless its callback has begun. Each thread that uses the engine keeps vacant
    /// slots in reserve for its next timers: up to 512, and at most 1/32 of the capacity. Other threads cannot use
    /// these slots. So a call may fail with `TB_FULL` although fewer timers than the capacity exist.
    ///
    /// An engine with `TB_POLLED`, with `loops`, or from `tb_engine_create_driven` has two groups of timers: one-shots
    /// by key together with periodic tasks, and everything else. `capacity` is then the limit of each group.
    pub capacity: u32,
    /// How due timers reach the program: a value of `tb_delivery`.
    pub delivery: u32,
    /// Whether the shards' threads are pinned to cores: a value of `tb_pinning`.
    pub pinning: u32,
    /// The clock by which deadlines are measured: a value of `tb_clock`. An engine from `tb_engine_create_driven`
    /// ignores this option, because it has a clock of its own.
    pub clock: u32,
    /// The number of the program's own event loops that drive the engine by `tb_loop_turn`: 1 to 1,024. With loops, the
    /// engine starts no threads, and has as many shards as loops; `shards` and `workers` must be 0, and `delivery` must
    /// not be `TB_POLLED`. By default (0) there are no loops.
    pub loops: u32,
    /// Must be 0.
    pub reserved: u32,
}

const DEFAULTS: tb_options = tb_options {
    size: size_of::<tb_options>(),
    tick_ns: 0,
    lane_capacity: 0,
    shards: 0,
    workers: 0,
    capacity: 0,
    delivery: 0,
    pinning: 0,
    clock: 0,
    loops: 0,
    reserved: 0,
};

fn invalid<T>(message: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Failure> {
    Err(Failure::new(tb_status::TB_INVALID, message))
}

impl tb_options {
    /// Reads options from C. If the pointer is null, every option has its default.
    ///
    /// # Safety
    ///
    /// The [contract](crate#contract): as many bytes may be read as `size` in the struct says.
    pub(crate) unsafe fn read(options: *const Self) -> Result<Self, Failure> {
        if options.is_null() {
            return Ok(DEFAULTS);
        }
        // SAFETY: the contract.
        let size = unsafe { options.cast::<usize>().read() };
        if size < size_of::<usize>() || size > 4_096 {
            return invalid(format!("options.size is {size}, but must be sizeof(tb_options)"));
        }
        // SAFETY: the contract.
        let bytes = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
        let (known, newer) = bytes.split_at(size.min(size_of::<Self>()));
        if newer.iter().any(|&byte| byte != 0) {
            return invalid("options has a field that this version does not know");
        }
        let mut read = DEFAULTS;
        // SAFETY: `known` is no longer than `read`, and any bytes are a valid `tb_options`.
        unsafe { (&raw mut read).cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len()) };
        Ok(read)
    }

    pub(crate) fn delivery(&self) -> Result<tb_delivery, Failure> {
        match self.delivery {
            0 => Ok(tb_delivery::TB_POOL),
            1 => Ok(tb_delivery::TB_INLINE),
            2 => Ok(tb_delivery::TB_POLLED),
            other => invalid(format!("options.delivery is {other}, which is not a tb_delivery")),
        }
    }

    /// Returns the number of event loops of the program that run the engine's shards. Each loop runs one shard. Returns
    /// 0 for an engine without loops.
    pub(crate) fn loops(&self) -> Result<usize, Failure> {
        if self.reserved != 0 {
            return invalid("options.reserved is not 0");
        }
        if self.loops != 0 && (self.shards != 0 || self.workers != 0) {
            return invalid("options.shards and options.workers must be 0 if options.loops is not");
        }
        if self.loops != 0 && self.delivery()? == tb_delivery::TB_POLLED {
            return invalid("options.delivery is TB_POLLED, but loops get callbacks: see tb_loop_turn");
        }
        Ok(self.loops as usize)
    }

    /// Makes a builder with these options. The builder can make shards that have threads, shards that the program's
    /// event loops run, or shards that `tb_engine_advance` runs.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let mut builder = self.of_an_engine(Builder::new());
        if self.tick_ns != 0 {
            builder = builder.tick(Duration::from_nanos(self.tick_ns));
        }
        if self.shards != 0 {
            builder = builder.shards(self.shards as usize);
        }
        if self.workers != 0 {
            builder = builder.workers(self.workers as usize);
        }
        match self.pinning {
            0 => {}
            1 => builder = builder.unpinned(),
            other => return invalid(format!("options.pinning is {other}, which is not a tb_pinning")),
        }
        match self.clock {
            0 => {}
            1 => builder = builder.clock(SystemClock::new()),
            2 => builder = with_boot_clock(builder)?,
            other => return invalid(format!("options.clock is {other}, which is not a tb_clock")),
        }
        Ok(match self.delivery()? {
            tb_delivery::TB_POOL => builder,
            tb_delivery::TB_INLINE | tb_delivery::TB_POLLED => builder.inline(),
        })
    }

    /// Adds to `builder` the options that belong to an engine and not to its shards.
    pub(crate) fn of_an_engine(&self, mut builder: Builder) -> Builder {
        if self.lane_capacity != 0 {
            builder = builder.lane_capacity(self.lane_capacity);
        }
        if self.capacity != 0 {
            builder = builder.capacity(self.capacity);
        }
        builder
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "it fails elsewhere")]
fn with_boot_clock(builder: Builder) -> Result<Builder, Failure> {
    Ok(builder.clock(tourbillon::BootClock::new()))
}

#[cfg(not(target_os = "linux"))]
fn with_boot_clock(_: Builder) -> Result<Builder, Failure> {
    Err(Failure::new(tb_status::TB_UNSUPPORTED, "this system has no CLOCK_BOOTTIME"))
}
