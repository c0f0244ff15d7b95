//! Tests of slots, levels and their bitmaps.

use super::{Numbered, Random, Rig, ticket};
use crate::blocks::{BLOCK_TICKETS, Blocks};
use crate::level::Level;
use crate::slot::{Slot, SweepNext};
use crate::ticket::CHUNK_TICKETS;
use alloc::vec;
use alloc::vec::Vec;

#[test]
fn the_last_ticket_out_of_a_slot_clears_its_bit() {
    let mut blocks = Blocks::<Numbered>::new();
    let mut level = Level::<8>::new(1);
    level.push(&mut blocks, 256 * 7 + 3, ticket(256 * 7 + 3, 0));
    level.push(&mut blocks, 256 * 7 + 9, ticket(256 * 7 + 9, 1));
    assert_eq!(level.first_occupied(0), Some(7));
    let mut taken = Vec::new();
    assert_eq!(level.with_slot(7, |slot| slot.take(&mut blocks, 1, &mut taken)), 1);
    assert_eq!((taken.len(), level.first_occupied(0)), (1, Some(7)));
    assert_eq!(level.with_slot(7, |slot| slot.take(&mut blocks, usize::MAX, &mut taken)), 1);
    assert_eq!((taken.len(), level.first_occupied(0)), (2, None));
    assert_eq!(level.slot(7).earliest(), u64::MAX);

    // Slots are emptied by firing, by a cascade and by the sweep.
    let mut rig = Rig::<8>::at(0);
    for tick in [3, 300, 100_000] {
        rig.insert(tick);
        rig.advance(tick);
        assert_eq!((rig.wheel.tickets(), rig.wheel.wake_tick()), (0, None));
    }
}

#[test]
fn the_first_occupied_slot_is_found_from_every_position_of_the_ring() {
    fn body<const BITS: u32>() {
        let ring = Rig::<BITS>::RING;
        let mut blocks = Blocks::<Numbered>::new();
        for here in (0..ring + 3).chain(u64::MAX - ring - 3..u64::MAX) {
            for ahead in [1, 2, 31, 32, 63, 64, 65, ring / 2, ring - 2, ring - 1] {
                if ahead >= ring {
                    continue;
                }
                let Some(first) = here.checked_add(ahead) else { continue };
                let mut level = Level::<BITS>::new(0);
                level.push(&mut blocks, first, ticket(first, 0));
                assert_eq!(level.first_occupied(here), Some(first));
                if let Some(last) = here.checked_add(ring - 1) {
                    level.push(&mut blocks, last, ticket(last, 1));
                    assert_eq!(level.first_occupied(here), Some(first));
                }
            }
        }
    }
    every_radix!(body);
}

#[test]
fn a_ticket_goes_to_the_finest_level_whose_ring_reaches_it() {
    fn body<const BITS: u32>() {
        let mut random = Random(5);
        for _ in 0..20_000 {
            let position = random.of_any_size();
            let Some(tick) = position.checked_add(random.of_any_size().max(1)) else { continue };
            let reaches =
                |depth: u32| (tick >> (depth * BITS)) - (position >> (depth * BITS)) < Rig::<BITS>::RING;
            let finest = (0..).find(|&depth| reaches(depth)).unwrap();
            assert_eq!(
                Level::<BITS>::depth_for(tick, position),
                finest as usize,
                "{tick} seen from {position}"
            );
        }
    }
    every_radix!(body);
}

#[test]
fn a_slot_gives_back_what_was_put_into_it() {
    for count in [0, 1, 15, 16, 17, 31, 32, 33, 64, 65, 1_000] {
        for limit in [1, 5, BLOCK_TICKETS, 13, CHUNK_TICKETS, usize::MAX] {
            let (mut slot, mut blocks) = (Slot::EMPTY, Blocks::new());
            for index in 0..count {
                let tick = 100 + u64::from(index);
                slot.push(&mut blocks, tick, ticket(tick, index));
            }
            assert_eq!(slot.chunk_count(), (count as usize).div_ceil(CHUNK_TICKETS));
            let mut seen = vec![false; count as usize];
            loop {
                let (before, mut taken) = (slot.len(), Vec::new());
                assert_eq!(slot.take(&mut blocks, limit, &mut taken), limit.min(before));
                assert_eq!(slot.len() + taken.len(), before);
                if taken.is_empty() {
                    break;
                }
                for (_, number) in taken {
                    assert!(!core::mem::replace(&mut seen[number as usize], true));
                }
                assert!(slot.tickets(&blocks).iter().all(|(tick, _)| slot.earliest() <= tick.0));
            }
            assert!(seen.into_iter().all(|seen| seen));
            assert!(slot.is_empty());
        }
    }
}

/// Slots share the blocks. A slot's tickets are swept, taken and put back while other slots take the freed blocks.
#[test]
fn slots_keep_their_tickets_apart_whatever_is_done_to_them() {
    let mut random = Random(23);
    let mut blocks = Blocks::new();
    let mut slots = [Slot::EMPTY; 5];
    let mut held: [Vec<u32>; 5] = Default::default();
    let mut scratch = Vec::new();
    for number in 0..40_000 {
        let at = usize::try_from(random.below(5)).unwrap();
        let (slot, held) = (&mut slots[at], &mut held[at]);
        let divisor = u32::try_from(2 + random.below(40)).unwrap();
        let mut is_live = |&(_, number): &Numbered| !number.is_multiple_of(divisor);
        match random.below(40) {
            0 => {
                let limit = usize::try_from(random.below(70)).unwrap();
                let mut taken = Vec::new();
                slot.take(&mut blocks, limit, &mut taken);
                held.retain(|held| taken.iter().all(|(_, number)| number != held));
            }
            1 => {
                // A whole pass over the slot.
                let mut unswept = None;
                loop {
                    let step = slot.sweep_step(&mut blocks, unswept, &mut is_live);
                    unswept = match step.next {
                        SweepNext::Slot => break,
                        SweepNext::LastBlock => None,
                        SweepNext::Full(unswept) => Some(unswept),
                    };
                }
                held.retain(|&number| is_live(&ticket(0, number)));
            }
            2 => {
                let step = slot.drop_stale_first(&mut blocks, 20, &mut is_live, &mut scratch);
                let left: Vec<u32> = slot.tickets(&blocks).iter().map(|&(_, number)| number).collect();
                let dropped = held.extract_if(.., |number| !left.contains(number));
                assert!(
                    dropped.inspect(|number| assert!(number.is_multiple_of(divisor))).count() == step.dropped
                );
            }
            _ => {
                let tick = random.below(1_000);
                slot.push(&mut blocks, tick, ticket(tick, number));
                held.push(number);
            }
        }
        let mut tickets: Vec<u32> = slot.tickets(&blocks).iter().map(|&(_, number)| number).collect();
        tickets.sort_unstable();
        held.sort_unstable();
        assert_eq!(tickets, *held);
        assert!(slot.tickets(&blocks).iter().all(|(tick, _)| slot.earliest() <= tick.0));
    }
}

#[test]
fn emptied_slots_give_their_memory_back() {
    const TICKETS: u32 = 200_000;
    let (mut slot, mut blocks) = (Slot::EMPTY, Blocks::new());
    let mut kept = 0;
    for round in 0..3 {
        for number in 0..TICKETS {
            slot.push(&mut blocks, 1, ticket(1, number));
        }
        let full = blocks.heap_bytes();
        assert!(full < TICKETS as usize * 20, "{full} bytes");
        let taken = slot.take(&mut blocks, usize::MAX, &mut Vec::new());
        assert_eq!(taken, TICKETS as usize);
        assert!(blocks.heap_bytes() < 64 << 10, "{} bytes are kept", blocks.heap_bytes());
        assert!(round == 0 || blocks.heap_bytes() == kept, "more is kept each time");
        kept = blocks.heap_bytes();
    }
}
