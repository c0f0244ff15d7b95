//! Tests of short tickets, which have the low bits of their tick only.

use super::{Numbered, Random, Rig, ticket};
use crate::{Progress, Tick, Ticket, TicketWheel};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A ticket with the low `BITS` bits of its tick, and the number by which the test knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short<const BITS: u32> {
    low: u64,
    number: u32,
}

impl<const BITS: u32> Short<BITS> {
    fn new(tick: u64, number: u32) -> Self {
        Self { low: tick & (u64::MAX >> (64 - BITS)), number }
    }
}

impl<const BITS: u32> Ticket for Short<BITS> {
    const TICK_BITS: u32 = BITS;

    fn tick(&self) -> Tick {
        Tick(self.low)
    }
}

/// A wheel of short tickets, a wheel of long tickets with the same timers, and a sorted map of these timers.
struct Pair<const TICK_BITS: u32, const BITS: u32> {
    short: TicketWheel<Short<TICK_BITS>, BITS>,
    long: TicketWheel<Numbered, BITS>,
    /// The live timers: the tick of each number.
    pending: BTreeMap<u32, u64>,
    /// The ticks of all tickets, live and stale.
    ticks: Vec<u64>,
}

impl<const TICK_BITS: u32, const BITS: u32> Pair<TICK_BITS, BITS> {
    fn at(position: u64) -> Self {
        let position = Tick(position);
        Self {
            short: TicketWheel::new(position),
            long: TicketWheel::new(position),
            pending: BTreeMap::new(),
            ticks: Vec::new(),
        }
    }

    fn insert(&mut self, tick: u64) {
        let number = u32::try_from(self.ticks.len()).unwrap();
        self.ticks.push(tick);
        self.pending.insert(number, tick);
        self.short.insert_at(Tick(tick), Short::new(tick, number));
        self.long.insert(ticket(tick, number));
    }

    fn advance(&mut self, to: u64, budget: usize) -> Progress {
        let Self { short, long, pending, ticks } = self;
        let (mut by_short, mut by_long) = (Vec::new(), Vec::new());
        let progress = short.advance(
            Tick(to),
            budget,
            |ticket| pending.contains_key(&ticket.number),
            |chunk| by_short.push(chunk.iter().map(|ticket| ticket.number).collect::<Vec<_>>()),
        );
        let as_long = long.advance(
            Tick(to),
            budget,
            |(_, number)| pending.contains_key(number),
            |chunk| by_long.push(chunk.iter().map(|&(_, number)| number).collect::<Vec<_>>()),
        );
        assert_eq!((progress, &by_short), (as_long, &by_long), "the wheels hand out other tickets");
        let reached = short.position().0.max(to);
        for number in by_short.into_iter().flatten() {
            assert!(ticks[number as usize] <= reached, "a ticket is early");
            pending.remove(&number);
        }
        if progress == Progress::Settled {
            assert!(pending.values().all(|&tick| tick > to), "a ticket is late");
        }
        progress
    }

    fn drop_stale_first(&mut self) {
        let Self { short, long, pending, .. } = self;
        let first = short.drop_stale_first(|ticket| pending.contains_key(&ticket.number));
        assert_eq!(first, long.drop_stale_first(|(_, number)| pending.contains_key(number)));
    }

    fn sweep(&mut self, tickets: usize) {
        let Self { short, long, pending, .. } = self;
        let done = short.sweep(tickets, |ticket| pending.contains_key(&ticket.number));
        assert_eq!(done, long.sweep(tickets, |(_, number)| pending.contains_key(number)));
    }

    fn check(&self) {
        self.short.check_invariants();
        let Self { short, long, pending, .. } = self;
        assert_eq!((short.len(), short.position()), (long.len(), long.position()));
        assert_eq!(short.wake_tick(), long.wake_tick(), "the wheels wake at other ticks");
        if let Some(&first) = pending.values().min() {
            let wake = short.wake_tick().expect("a ticket for each pending timer");
            assert!(wake.0 <= first.max(short.position().0), "woken after the first timer");
        }
    }
}

/// Makes random operations on a wheel of short tickets and a wheel of long tickets, and compares the wheels.
fn compare<const TICK_BITS: u32, const BITS: u32>() {
    for (seed, start) in (1..).zip([0, 1 << 16, (1 << 24) - 700, 1 << 63, u64::MAX - 1_000]) {
        let mut random = Random(seed);
        let mut pair = Pair::<TICK_BITS, BITS>::at(start);
        for _ in 0..1_500 {
            let position = pair.short.position().0;
            let ahead = random.of_any_size();
            match random.below(16) {
                0..=5 => pair.insert(position.saturating_add(ahead)),
                6 => pair.insert(position.saturating_sub(ahead)),
                7 => (0..random.below(100))
                    .for_each(|n| pair.insert(position.saturating_add(ahead / 8 + n / 3))),
                8 | 9 => {
                    let stale: BTreeSet<u64> =
                        (0..10).map(|_| random.below(pair.ticks.len() as u64 + 1)).collect();
                    pair.pending.retain(|&number, _| !stale.contains(&u64::from(number)));
                }
                10 => pair.pending.retain(|number, _| !number.is_multiple_of(3)),
                11 => pair.drop_stale_first(),
                12 => pair.sweep(usize::try_from(random.below(200)).unwrap()),
                13 => {
                    let budget = usize::try_from(random.below(40)).unwrap();
                    let _ = pair.advance(position.saturating_add(ahead >> 24), budget);
                }
                14 => {
                    let _ = pair.advance(position.saturating_add(ahead >> 32), usize::MAX);
                }
                _ => {
                    pair.drop_stale_first();
                    let to = pair.short.wake_tick().unwrap_or_default();
                    let _ = pair.advance(to.0, usize::MAX);
                }
            }
            pair.check();
        }
        assert_eq!(pair.advance(u64::MAX, usize::MAX), Progress::Settled);
        assert!(pair.pending.is_empty() && pair.short.is_empty());
    }
}

#[test]
fn a_wheel_of_short_tickets_does_what_a_wheel_of_long_ones_does() {
    fn body<const BITS: u32>() {
        compare::<1, BITS>();
        compare::<5, BITS>();
        compare::<8, BITS>();
        compare::<16, BITS>();
        compare::<23, BITS>();
        compare::<63, BITS>();
    }
    every_radix!(body);
}

/// Just before and after each power of two, ticks differ in the high bits, which short tickets do not store.
#[test]
fn short_tickets_are_on_their_tick_around_every_power_of_two() {
    fn body<const BITS: u32>() {
        for start in [0, 1, (1 << 16) - 1, 1 << 16, (1 << 24) + 12_345, (1 << 40) - 2] {
            let mut pair = Pair::<16, BITS>::at(start);
            let mut ticks = BTreeSet::new();
            for power in 0..48 {
                for around in [-1_i64, 0, 1] {
                    let tick = (start + (1 << power)).saturating_add_signed(around);
                    if tick > start && ticks.insert(tick) {
                        pair.insert(tick);
                    }
                }
            }
            for tick in ticks {
                assert_eq!(pair.advance(tick - 1, usize::MAX), Progress::Settled);
                let before = pair.pending.len();
                assert_eq!(pair.advance(tick, usize::MAX), Progress::Settled);
                assert_eq!(pair.pending.len() + 1, before);
                pair.check();
            }
        }
    }
    every_radix!(body);
}

#[test]
fn a_short_ticket_takes_half_the_memory_of_a_long_one_while_its_slot_is_near() {
    const TICKETS: u32 = 100_000;
    /// An entry of 8 bytes.
    #[derive(Clone, Copy)]
    struct Eight {
        number: u32,
        low: u16,
    }

    impl Ticket for Eight {
        const TICK_BITS: u32 = 16;

        fn tick(&self) -> Tick {
            Tick(self.low.into())
        }
    }

    let bytes = |ahead: u64| {
        let mut wheel = TicketWheel::<Eight, 8>::new(Tick(0));
        for number in 0..TICKETS {
            let tick = ahead + u64::from(number);
            wheel.insert_at(Tick(tick), Eight { number, low: u16::try_from(tick & 0xffff).unwrap() });
        }
        let levels = 3 * (usize::try_from(Rig::<8>::RING).unwrap() * 16);
        let bytes = wheel.heap_bytes();
        let mut numbers = BTreeSet::new();
        let take = |chunk: Vec<Eight>| numbers.extend(chunk.into_iter().map(|ticket| ticket.number));
        assert_eq!(wheel.advance(Tick(u64::MAX), usize::MAX, |_| true, take), Progress::Settled);
        assert_eq!(numbers.len(), TICKETS as usize);
        (bytes - levels) / TICKETS as usize
    };
    assert_eq!((bytes(1 << 20), bytes(1 << 40)), (8, 16));
}
