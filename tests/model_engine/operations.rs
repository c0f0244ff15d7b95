//! The settings of an engine, the operations on it, and the strategies that draw both at random.

use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) tick: u64,
    pub(crate) shards: usize,
    pub(crate) capacity: u32,
    pub(crate) lane_capacity: u64,
}

/// An operation on the engine. Lengths of time are in ticks, with a fraction of 8 bits.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Schedule {
        caller: usize,
        delay: u64,
    },
    ScheduleAgo {
        caller: usize,
        ago: u64,
    },
    ScheduleLast {
        caller: usize,
    },
    Batch {
        caller: usize,
        delays: Vec<u64>,
    },
    Cancel {
        caller: usize,
        choice: usize,
    },
    Reschedule {
        caller: usize,
        choice: usize,
        delay: u64,
    },
    Make,
    Arm {
        choice: usize,
        delay: u64,
    },
    ArmAgo {
        choice: usize,
        ago: u64,
    },
    ArmAround {
        choice: usize,
        parts: u64,
        earlier: bool,
    },
    ArmAtUnit {
        choice: usize,
        units: u64,
        offset: u64,
    },
    /// Arms an owned timer whose handler arms it again several times.
    ArmAgain {
        choice: usize,
        delays: Vec<u64>,
    },
    Disarm {
        choice: usize,
    },
    Drop {
        choice: usize,
    },
    Advance {
        by: u64,
    },
    Stall {
        by: u64,
    },
    Turn,
    NextExpiry,
}

/// Draws a length of time in parts of a tick: near zero, near some ticks, or near the reach of a level.
pub(crate) fn parts() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..1_024_u64,
        4 => 0..100_000_u64,
        2 => 0..(1_u64 << 26),
        1 => (0..50_u32, 0..1_024_u64).prop_map(|(power, offset)| (1_u64 << power) + offset),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let callers = || 0..5_usize;
    prop_oneof![
        8 => (callers(), parts()).prop_map(|(caller, delay)| Op::Schedule { caller, delay }),
        1 => (callers(), parts()).prop_map(|(caller, ago)| Op::ScheduleAgo { caller, ago }),
        1 => callers().prop_map(|caller| Op::ScheduleLast { caller }),
        2 => (callers(), vec(parts(), 0..100)).prop_map(|(caller, delays)| Op::Batch { caller, delays }),
        6 => (callers(), any::<usize>()).prop_map(|(caller, choice)| Op::Cancel { caller, choice }),
        5 => (callers(), any::<usize>(), parts())
            .prop_map(|(caller, choice, delay)| Op::Reschedule { caller, choice, delay }),
        3 => Just(Op::Make),
        8 => (any::<usize>(), parts()).prop_map(|(choice, delay)| Op::Arm { choice, delay }),
        1 => (any::<usize>(), parts()).prop_map(|(choice, ago)| Op::ArmAgo { choice, ago }),
        5 => (any::<usize>(), parts(), any::<bool>())
            .prop_map(|(choice, parts, earlier)| Op::ArmAround { choice, parts, earlier }),
        3 => (any::<usize>(), 0..3_u64, 0..5_u64)
            .prop_map(|(choice, units, offset)| Op::ArmAtUnit { choice, units, offset }),
        2 => (any::<usize>(), vec(parts(), 1..20)).prop_map(|(choice, delays)| Op::ArmAgain { choice, delays }),
        4 => any::<usize>().prop_map(|choice| Op::Disarm { choice }),
        2 => any::<usize>().prop_map(|choice| Op::Drop { choice }),
        6 => parts().prop_map(|by| Op::Advance { by }),
        1 => parts().prop_map(|by| Op::Stall { by }),
        1 => Just(Op::Turn),
        1 => Just(Op::NextExpiry),
    ]
}

pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    let tick = prop_oneof![Just(1_000), Just(1_000_000), 1_000..20_000_000_u64];
    let capacity = prop_oneof![1..10_u32, Just(500), Just(1 << 24)];
    let lane_capacity = prop_oneof![Just(64), Just(1 << 16)];
    (tick, 1..5_usize, capacity, lane_capacity).prop_map(|(tick, shards, capacity, lane_capacity)| Settings {
        tick,
        shards,
        capacity,
        lane_capacity,
    })
}
