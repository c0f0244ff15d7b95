//! Tests of the wheel and of its parts. Most compare a wheel with a list of timers (`Rig`).

extern crate std;

use crate::{Expired, Progress, Tick, TimerId, Wheel};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
// The modules take these from here: no other file of the crate names the standard library.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs a test body with the smallest radix, with a radix of 64 and with the default radix.
macro_rules! every_radix {
    ($body:ident) => {{
        $body::<5>();
        $body::<6>();
        $body::<8>();
    }};
}

mod advancing;
mod costs;
mod fire_closure;
mod firing;
mod ids;
mod moving;
mod next_expiry;
mod short;
mod slots;
mod stale;

/// A wheel, and the list of the timers that the wheel must hold. A timer's payload is the tick for which the timer was
/// inserted.
struct Rig<const BITS: u32> {
    wheel: Wheel<u64, BITS>,
    /// The tick at which each pending timer is due.
    pending: BTreeMap<TimerId, u64>,
    /// The payload of each timer that was ever inserted.
    payloads: BTreeMap<TimerId, u64>,
}

impl<const BITS: u32> Rig<BITS> {
    /// The number of ticks in one revolution of level 0. A slot of level 1 has the same width.
    const REVOLUTION: u64 = 1 << BITS;
    /// The number of slots in a level's ring: two revolutions.
    const RING: u64 = 2 << BITS;
    /// The number of levels that a wheel needs to reach every tick.
    const LEVELS: u32 = u64::BITS.div_ceil(BITS);

    fn at(position: u64) -> Self {
        Self { wheel: Wheel::new(Tick(position)), pending: BTreeMap::new(), payloads: BTreeMap::new() }
    }

    fn insert(&mut self, tick: u64) -> TimerId {
        let id = self.wheel.insert(Tick(tick), tick);
        assert_eq!(self.payloads.insert(id, tick), None, "an id was given out twice");
        self.pending.insert(id, tick);
        self.check();
        id
    }

    fn cancel(&mut self, id: TimerId) {
        let payload = self.pending.remove(&id).map(|_| self.payloads[&id]);
        assert_eq!((self.wheel.get(id).copied(), self.wheel.get_mut(id).copied()), (payload, payload));
        assert_eq!(self.wheel.cancel(id), payload);
        assert_eq!((self.wheel.get(id).copied(), self.wheel.get_mut(id).copied()), (None, None));
        self.check();
    }

    /// Moves a timer if it is pending.
    fn reschedule(&mut self, id: TimerId, tick: u64) {
        let pending = self.pending.get_mut(&id).map(|pending| *pending = tick);
        assert_eq!(self.wheel.reschedule(id, Tick(tick)), pending.is_some());
        self.check();
    }

    /// Makes one advance. Returns the ticks of the timers that fired, sorted.
    fn step(&mut self, to: u64, budget: usize) -> (Vec<u64>, Progress) {
        let mut fired = Vec::new();
        let Self { wheel, pending, payloads } = self;
        let progress = wheel.advance(Tick(to), budget, |wheel, Expired { id, tick, payload }| {
            assert_eq!(pending.remove(&id), Some(tick.0), "fired twice, or though cancelled or moved");
            assert!(tick.0 <= to.max(wheel.position().0), "early");
            assert_eq!(payload, payloads[&id]);
            fired.push(tick.0);
        });
        self.check();
        fired.sort_unstable();
        (fired, progress)
    }

    /// Advances the wheel without a budget, so that all due timers fire.
    fn advance(&mut self, to: u64) -> Vec<u64> {
        let before = self.wheel.position().0;
        let (fired, progress) = self.step(to, usize::MAX);
        assert_eq!(progress, Progress::Settled);
        assert_eq!(self.wheel.position(), Tick(to.max(before)));
        assert!(self.pending.values().all(|&tick| tick > to));
        fired
    }

    fn check(&mut self) {
        self.wheel.check_invariants();
        let held: BTreeMap<TimerId, u64> = self.wheel.iter().map(|(id, payload)| (id, *payload)).collect();
        assert!(held.keys().eq(self.pending.keys()));
        assert!(held.iter().all(|(id, payload)| self.payloads[id] == *payload));
        assert_eq!(self.wheel.len(), self.pending.len());
        assert_eq!(self.wheel.is_empty(), self.pending.is_empty());
        check_sweep_bound(&self.wheel);
        let next = self.wheel.next_expiry().map(|tick| tick.0);
        match self.pending.values().min() {
            None => assert_eq!(next, None),
            Some(&first) => {
                let position = self.wheel.position().0;
                assert!(
                    next.is_some_and(|next| (position..=first.max(position)).contains(&next)),
                    "{next:?}"
                );
            }
        }
    }
}

/// Checks that the wheel has no more stale tickets (requests to check ended timers) than [`Wheel::tickets`] allows.
fn check_sweep_bound<T, const BITS: u32>(wheel: &Wheel<T, BITS>) {
    let (tickets, live) = (wheel.tickets(), wheel.len());
    assert!(2 * tickets <= 5 * live + 2 * 2_048, "{tickets} tickets held for {live} timers");
}

/// The generator of random numbers xorshift64*. It gives the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// Returns a random number. Each number of bits is equally likely.
    fn of_any_size(&mut self) -> u64 {
        self.next() >> self.below(64)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap();
            items.swap(at, other);
        }
    }
}

/// A ticket: the tick at which it is due, and the number by which the test knows it.
type Numbered = (Tick, u32);

fn ticket(tick: u64, number: u32) -> Numbered {
    (Tick(tick), number)
}

#[test]
fn random_operations_keep_every_invariant() {
    fn body<const BITS: u32>() {
        for (seed, start) in (1..).zip([0, 1 << 30, 1 << 36, 1 << 63, u64::MAX - 1_000]) {
            let mut random = Random(seed);
            let mut rig = Rig::<BITS>::at(start);
            let mut ids = Vec::new();
            for _ in 0..600 {
                let position = rig.wheel.position().0;
                let ahead = random.of_any_size();
                let budget = usize::try_from(random.below(40)).unwrap();
                match random.below(12) {
                    0..=4 => ids.push(rig.insert(position.saturating_add(ahead))),
                    5 => ids.push(rig.insert(position.saturating_sub(ahead))),
                    6 if !ids.is_empty() => {
                        rig.cancel(ids[usize::try_from(random.below(ids.len() as u64)).unwrap()]);
                    }
                    7 | 8 if !ids.is_empty() => {
                        let id = ids[usize::try_from(random.below(ids.len() as u64)).unwrap()];
                        rig.reschedule(id, position.saturating_add(ahead));
                    }
                    9 => {
                        rig.advance(position.saturating_add(ahead >> 32));
                    }
                    10 => {
                        drop(rig.step(position.saturating_add(ahead >> 24), budget));
                    }
                    _ => {
                        let next = rig.wheel.next_expiry().unwrap_or_default();
                        drop(rig.step(next.0, 1 + budget));
                    }
                }
            }
            rig.advance(u64::MAX);
            assert!(rig.wheel.is_empty());
            assert_eq!(rig.wheel.tickets(), 0);
        }
    }
    every_radix!(body);
}
