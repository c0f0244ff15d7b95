//! Hints: what a commit says to the owner of another shard, and what arrives from the others.
//!
//! | message | from | a node that receives it |
//! |---|---|---|
//! | `nodes` | a node that comes or goes | gives a sign of life, and learns of it |
//! | `shards` | a node that released shards | claims those that it wants and does not own |
//! | `<shard> <due>` | a commit | looks at the shard when the timer is due |
//! | `parked <reason>` | a commit that parks a timer | tells its [subscribers](crate::RedisStore::on_parked) |
//! | any other | a later version | does nothing |
//!
//! A message is sent to all nodes, and is lost for those that are not connected.

use super::LONGEST_POLL;
use crate::commit::{Commit, Known};
use crate::connect::Heard;
use crate::layout::Shard;
use crate::shared::Core;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::State;
use tourbillon_durable::store::dry_run::Changes;

impl super::Nodes {
    pub(super) fn deaf(&self) {
        self.hears.store(false, Ordering::Relaxed);
    }
}

/// The beginning of a message that a timer is parked. The reason follows.
const PARKED: &[u8] = b"parked ";

/// The shard and the due moment of a message.
fn read(message: &[u8]) -> Option<(Shard, UtcMillis)> {
    let (shard, due) = core::str::from_utf8(message).ok()?.split_once(' ')?;
    Some((shard.parse().ok()?, UtcMillis::from_millis(due.parse().ok()?)))
}

impl Core {
    /// Subscribes to the others' messages, if this store has a thread that can act on them.
    pub(super) fn listen(self: &Core) {
        if !self.nodes.has_thread() || self.nodes.state().listening.is_some() {
            return;
        }
        let Some(this) = self.this.upgrade() else { return };
        let weak = Arc::downgrade(&this);
        let hear = move |heard: Heard<'_>| {
            if let Some(core) = weak.upgrade() {
                core.hear(heard);
            }
        };
        let channels = [self.nodes.keys.channel.clone(), self.nodes.channel_of(self.nodes.incarnation)];
        let listening = self.link.listen(&self.deployment.key, &channels, Box::new(hear));
        let mut state = self.nodes.state();
        if state.is_member {
            state.listening = listening;
        }
    }

    fn hear(&self, heard: Heard<'_>) {
        let nodes = &self.nodes;
        match heard {
            Heard::Begin => {
                nodes.hears.store(true, Ordering::Relaxed);
                // What was said before is lost.
                let mut state = nodes.state();
                state.is_stirred = true;
                state.hear_anew();
                state.shards.hint_all();
                drop(state);
                nodes.bell.ring();
                self.tell_parked(None);
            }
            Heard::End => {
                nodes.deaf();
                nodes.state().hear_anew();
                nodes.bell.ring();
            }
            Heard::Message(b"nodes") => {
                nodes.state().is_stirred = true;
                nodes.bell.ring();
            }
            Heard::Message(b"shards") => {
                nodes.state().shards.hint_missing();
                nodes.bell.ring();
            }
            Heard::Message(message) => {
                if let Some(reason) = message.strip_prefix(PARKED) {
                    self.tell_parked(Some(&String::from_utf8_lossy(reason)));
                } else if let Some((shard, due)) = read(message) {
                    self.note(shard, due);
                }
            }
        }
    }

    /// Takes note of a timer that is pending now, and wakes the subscribers if they must know of it.
    pub(crate) fn note(&self, shard: Shard, due: UtcMillis) {
        let is_served = {
            let mut state = self.nodes.state();
            state.shards.note(shard, due);
            !state.is_member || state.shards.is_wanted(shard)
        };
        if is_served {
            self.wake_for(due);
        }
    }

    /// Adds hints to a commit for the shards of other nodes whose timers may be due before they look.
    pub(crate) fn hint(&self, commit: &mut Commit<'_>, known: &Known, changes: &Changes) {
        let soon = self.time.now() + LONGEST_POLL;
        let mut firsts = BTreeMap::<Shard, UtcMillis>::new();
        for (shard, due) in self.pending(known, changes).filter(|(_, due)| *due < soon) {
            firsts.entry(shard).and_modify(|first| *first = due.min(*first)).or_insert(due);
        }
        for (shard, due) in firsts {
            if !self.nodes.state().shards.is_owned(shard) {
                let message = format!("{shard} {}", due.as_millis()).into_bytes();
                commit.hint(shard, due, LONGEST_POLL, &self.nodes, message);
            }
        }
        for change in &changes.timers {
            let before = change.before.as_ref().map(|timer| &timer.state);
            if let Some(timer) = &change.after
                && let State::Parked(reason) = &timer.state
                && before != Some(&timer.state)
            {
                let found = known.timers.get(&timer.id).map(|found| found.shard);
                let home = || Commit::home(&self.layout, known, changes);
                let shard = found.or_else(home).unwrap_or_else(|| self.layout.home_of(timer));
                commit.say(shard, &self.nodes.keys.channel, &[PARKED, reason.as_bytes()].concat());
            }
        }
    }

    /// The shards and the due moments of timers that a commit makes pending.
    pub(crate) fn pending(
        &self,
        known: &Known,
        changes: &Changes,
    ) -> impl Iterator<Item = (Shard, UtcMillis)> {
        let after = changes.timers.iter().filter_map(|change| change.after.as_ref());
        let pending = after.filter(|timer| timer.state == State::Pending);
        pending.map(|timer| {
            let found = known.timers.get(&timer.id).map(|found| found.shard);
            // A new timer without a key is with the timer that it follows.
            let follows = || Commit::home(&self.layout, known, changes).filter(|_| timer.key.is_none());
            (found.or_else(follows).unwrap_or_else(|| self.layout.home_of(timer)), timer.due)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_no_hint_says_nothing() {
        assert_eq!(read(b"17 1780000000000"), Some((17, UtcMillis::from_millis(1_780_000_000_000))));
        for other in [&b""[..], b"17", b"17 ", b" 5", b"70000 5", b"1 2 3", b"-1 5", b"\xff 5"] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }
}
