//! Payloads by id: a vector, a free list, and a generation for each place.

use crate::common::Payload;

/// The index of a timer's slot, and the slot's generation. A stale id has an older generation than the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    payload: Option<Payload>,
}

impl Slots {
    #[inline]
    pub(super) fn put(&mut self, payload: Payload) -> SlotId {
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize].payload = Some(payload);
                index
            }
            None => {
                self.slots.push(Slot { generation: 0, payload: Some(payload) });
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 timers")
            }
        };
        SlotId { index, generation: self.slots[index as usize].generation }
    }

    /// Removes the payload of the timer `id`, and makes the id stale.
    #[inline]
    pub(super) fn take(&mut self, id: SlotId) -> Option<Payload> {
        let slot = &mut self.slots[id.index as usize];
        if slot.generation != id.generation {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        slot.payload.take()
    }

    #[inline]
    pub(super) fn is_live(&self, id: SlotId) -> bool {
        self.slots[id.index as usize].generation == id.generation
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
