//! Adds messages to a commit, which publishes them to other nodes.

use super::commit::{Commit, Hint, Known};
use super::transact::Transactions;
use crate::layout::Shard;
use crate::node::{LONGEST_POLL, due_message, parked_message};
use std::collections::BTreeMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::State;
use tourbillon_durable::store::dry_run::Changes;

impl Transactions {
    /// Adds messages for other nodes to a commit. If a timer becomes pending and may be due before the owner of its
    /// shard polls again, the owner gets a hint. If the commit parks a timer, that is, sets it aside for a reason, all
    /// nodes get this reason.
    pub(super) fn add_messages(&self, commit: &mut Commit<'_>, known: &Known, changes: &Changes) {
        let soon = self.deployment.time.now() + LONGEST_POLL;
        let mut firsts = BTreeMap::<Shard, UtcMillis>::new();
        for (shard, due) in self.made_pending(known, changes).filter(|(_, due)| *due < soon) {
            firsts.entry(shard).and_modify(|first| *first = due.min(*first)).or_insert(due);
        }
        for (shard, due) in firsts {
            // This node notes the timers of its own shards after the commit, without a message (`Transactions::after`).
            if !self.node.state().shards.is_owned(shard) {
                let hint = Hint {
                    due,
                    within: LONGEST_POLL,
                    sender: &self.node.id,
                    channel: &self.node.keys.channel,
                    message: due_message(shard, due),
                };
                commit.hint(shard, &hint);
            }
        }
        for change in &changes.timers {
            let before = change.before.as_ref().map(|timer| &timer.state);
            if let Some(timer) = &change.after
                && let State::Parked(reason) = &timer.state
                && before != Some(&timer.state)
            {
                // The script does not read the key of this change. In a cluster, the key must still be in the shard of
                // the commit, because a script names the keys of one shard.
                let found = known.timers.get(&timer.id).map(|found| found.shard);
                let home = || Commit::home(&self.deployment.layout, known, changes);
                let shard = found.or_else(home).unwrap_or_else(|| self.deployment.layout.home_of(timer));
                commit.say(shard, &self.node.keys.channel, &parked_message(reason));
            }
        }
    }

    /// Returns the shard and the due moment of each timer that the changes make pending.
    pub(super) fn made_pending(
        &self,
        known: &Known,
        changes: &Changes,
    ) -> impl Iterator<Item = (Shard, UtcMillis)> {
        let after = changes.timers.iter().filter_map(|change| change.after.as_ref());
        let pending = after.filter(|timer| timer.state == State::Pending);
        pending.map(|timer| {
            let found = known.timers.get(&timer.id).map(|found| found.shard);
            // A new timer without a key may follow another timer. Then that timer's shard stores the new timer, too.
            let follows =
                || Commit::home(&self.deployment.layout, known, changes).filter(|_| timer.key.is_none());
            (found.or_else(follows).unwrap_or_else(|| self.deployment.layout.home_of(timer)), timer.due)
        })
    }
}
