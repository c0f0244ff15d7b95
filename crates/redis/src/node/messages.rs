//! The messages that nodes publish to each other.
//!
//! | message | from | a node that receives it |
//! |---|---|---|
//! | `nodes` | a node that enters or leaves | gives a sign of life, and learns which nodes are live |
//! | `shards` | a node that released shards | claims the shards that are assigned to it and that it does not own |
//! | `<shard> <due>` | a commit | looks at the shard when the timer is due |
//! | `parked <reason>` | a commit that parks a timer | tells its [subscribers](crate::RedisStore::on_parked) |
//! | any other | a later version | does nothing |
//!
//! A message is sent to all nodes. A node that is not connected does not get it.

use super::this_node::Node;
use crate::layout::Shard;
use crate::link::Heard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tourbillon_durable::UtcMillis;

/// The first bytes of a message about a parked timer. The reason for parking follows.
const PARKED: &[u8] = b"parked ";

/// Encodes the message by which other nodes learn that a timer of this shard is due at `due`.
pub(crate) fn due_message(shard: Shard, due: UtcMillis) -> Vec<u8> {
    format!("{shard} {}", due.as_millis()).into_bytes()
}

/// Encodes the message by which other nodes learn that a timer was parked for this reason. A parked timer is set aside:
/// it is not delivered until an operation unparks it, or a client claims the timers that are parked for this reason.
pub(crate) fn parked_message(reason: &str) -> Vec<u8> {
    [PARKED, reason.as_bytes()].concat()
}

/// Parses a message of the form `<shard> <due>`, or returns `None` for any other message.
fn read(message: &[u8]) -> Option<(Shard, UtcMillis)> {
    let (shard, due) = core::str::from_utf8(message).ok()?.split_once(' ')?;
    Some((shard.parse().ok()?, UtcMillis::from_millis(due.parse().ok()?)))
}

impl Node {
    pub(super) fn deaf(&self) {
        self.hears.store(false, Ordering::Relaxed);
    }

    /// Subscribes to the messages of other nodes. Does nothing in a store that is subscribed, or that has no thread to
    /// act on messages.
    pub(super) fn listen(self: &Arc<Self>) {
        if !self.has_thread() || self.state().listening.is_some() {
            return;
        }
        // The subscription must not keep the node alive, because it ends only when the node is dropped or leaves.
        let weak = Arc::downgrade(self);
        let hear = move |heard: Heard<'_>| {
            if let Some(node) = weak.upgrade() {
                node.hear(heard);
            }
        };
        let channels = [self.keys.channel.clone(), self.channel_of(self.incarnation)];
        let listening = self.deployment.link.listen(&self.deployment.key, &channels, Box::new(hear));
        let mut state = self.state();
        // If the node has left since, the subscription is dropped here. Nothing would end it later.
        if state.is_member {
            state.listening = listening;
        }
    }

    fn hear(&self, heard: Heard<'_>) {
        match heard {
            Heard::Begin => {
                self.hears.store(true, Ordering::Relaxed);
                // Messages may have been lost before the subscription began, so the node asks for the state of its
                // shards.
                let mut state = self.state();
                state.is_stirred = true;
                state.hear_anew();
                state.shards.hint_all();
                // The subscribers are called without the lock, because they may use the store.
                drop(state);
                self.bell.ring();
                self.deployment.parkings.tell(None);
            }
            Heard::End => {
                self.deaf();
                self.state().hear_anew();
                // Without messages, the pause between polls is shorter. The bell ends a sleep that was computed with
                // the longer pause.
                self.bell.ring();
            }
            Heard::Message(b"nodes") => {
                self.state().is_stirred = true;
                self.bell.ring();
            }
            Heard::Message(b"shards") => {
                self.state().shards.hint_missing();
                self.bell.ring();
            }
            Heard::Message(message) => {
                if let Some(reason) = message.strip_prefix(PARKED) {
                    self.deployment.parkings.tell(Some(&String::from_utf8_lossy(reason)));
                } else if let Some((shard, due)) = read(message) {
                    self.note(shard, due);
                }
            }
        }
    }

    /// Records that a pending timer of this shard is due at `due`. If this node may have to deliver the timer, also
    /// wakes a runtime that would otherwise sleep beyond `due`.
    pub(crate) fn note(&self, shard: Shard, due: UtcMillis) {
        let is_served = {
            let mut state = self.state();
            state.shards.note(shard, due);
            // A store that is not a node becomes one by the claim that follows the wake, and may then get this shard.
            !state.is_member || state.shards.is_wanted(shard)
        };
        if is_served {
            self.deployment.alarm.wake_for(due);
        }
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
