//! The stored layout: the names of the keys, and the bytes that a shard stores for a timer.

mod entry;
mod keys;
mod redirect;
mod slice;
mod slot;

pub(crate) use entry::{
    Entry, Found, KEYLESS, count_field, counted_of, entries, id_at_end, id_bytes, id_of, is_keyless,
    is_leased, key_beginning, key_entry, keyless_entry, label_entry, mark_of, member_of, moment_bytes,
    namespace_of, part, phase_byte, place_entry, set_of, stopped_beginning, token_bytes, without_id,
};
pub(crate) use keys::{Layout, MOST_SHARDS, Part, REDIRECT_HASHES, VERSION, fresh_deployment_id, version_in};
pub(crate) use redirect::Redirect;
pub(crate) use slice::{LANES, PERIOD, Slice, lane_of, period_of, start_of};
pub(crate) use slot::{SLOTS, Shard, slot_of};
