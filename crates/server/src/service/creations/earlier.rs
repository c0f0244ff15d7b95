//! Computes how the earlier changes of a batch change the number of stored timers.

use super::naming::Naming;
use crate::convert::unavailable;
use crate::service::names::{Named, by_key};
use std::collections::{HashMap, HashSet};
use tourbillon_api::{IfPresent, Problem};
use tourbillon_durable::Timers;
use tourbillon_durable::state::State;
use tourbillon_durable::timer::{Timer, TimerId};

/// The changes of a batch that come before a creation. Empty for a request that creates a single timer.
///
/// The store makes all changes of a batch in one transaction, after the checks. So this value computes their effects in
/// advance. Only if a limit is close does it read the timers that the changes name.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    changes: Vec<Change>,
    /// The number of creations among `changes`.
    creations: u64,
    /// The number of `changes`, from the first on, whose effects are in the fields below.
    followed: usize,
    /// The number of timers that the first `followed` changes add. Negative if they remove more timers than they add.
    added: i64,
    /// The keys that the first `followed` changes give or remove, each with whether a timer has it afterwards.
    keys: HashMap<Box<str>, bool>,
    /// The ids of the stored timers that the first `followed` changes cancel or replace.
    gone: HashSet<TimerId>,
}

#[derive(Clone, Debug)]
enum Change {
    Creation { key: Option<Box<str>>, id: Option<TimerId>, replaces: bool },
    CancelKey(Box<str>),
    CancelId(TimerId),
}

impl Earlier {
    /// Appends a creation that has passed its checks.
    pub(crate) fn note_creation(&mut self, namespace: &str, naming: Naming<'_>, if_present: IfPresent) {
        self.creations += 1;
        self.changes.push(Change::Creation {
            key: naming.key.map(Into::into),
            id: naming.id(namespace),
            replaces: matches!(if_present, IfPresent::Replace | IfPresent::ReplaceKeepDue),
        });
    }

    pub(crate) fn note_cancellation(&mut self, named: Named<'_>) {
        self.changes.push(match named {
            Named::Key(key) => Change::CancelKey(key.into()),
            Named::Id(id) => Change::CancelId(id),
        });
    }

    /// Returns the greatest number of timers that the changes can add, without a read of the store.
    pub(super) fn most_added(&self) -> i64 {
        self.creations.cast_signed()
    }

    /// Evaluates the remaining changes, and returns the number of timers that all changes add. Negative if they remove
    /// more timers than they add.
    pub(super) async fn added(&mut self, timers: &Timers, namespace: &str) -> Result<i64, Problem> {
        while let Some(change) = self.changes.get(self.followed).cloned() {
            self.follow(timers, namespace, change).await?;
            self.followed += 1;
        }
        Ok(self.added)
    }

    /// Returns whether a timer with the key or the id of a creation exists after the changes evaluated so far.
    pub(super) async fn has(
        &self,
        timers: &Timers,
        namespace: &str,
        naming: Naming<'_>,
    ) -> Result<bool, Problem> {
        if let Some(id) = naming.id(namespace)
            && self.timer(timers, id).await?.is_some()
        {
            return Ok(true);
        }
        let Some(key) = naming.key else { return Ok(false) };
        Ok(self.keys.get(key) == Some(&true) || self.owner(timers, namespace, key).await?.is_some())
    }

    async fn follow(&mut self, timers: &Timers, namespace: &str, change: Change) -> Result<(), Problem> {
        match change {
            Change::Creation { key, id, replaces } => {
                let naming = Naming { key: key.as_deref(), ..Naming::default() };
                let is_repeated = match id {
                    Some(id) => self.timer(timers, id).await?.is_some(),
                    None => false,
                };
                let is_taken = self.has(timers, namespace, naming).await?;
                if is_repeated || is_taken && !replaces {
                    return Ok(());
                }
                let Some(key) = key else {
                    self.added += 1;
                    return Ok(());
                };
                match self.owner(timers, namespace, &key).await? {
                    Some(old) => self.remove(&old),
                    // An earlier creation of the batch has the key.
                    None if is_taken => self.added -= 1,
                    None => {}
                }
                self.added += 1;
                self.keys.insert(key, true);
            }
            Change::CancelKey(key) => {
                match self.owner(timers, namespace, &key).await? {
                    Some(old) => self.remove(&old),
                    None if self.keys.get(&key) == Some(&true) => self.added -= 1,
                    None => {}
                }
                self.keys.insert(key, false);
            }
            Change::CancelId(id) => {
                if let Some(old) = self.timer(timers, id).await? {
                    self.remove(&old);
                    if old.owns_key() {
                        self.keys.extend(old.key.map(|key| (key, false)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a stored timer as cancelled or replaced. A timer in delivery stays stored, and is not subtracted.
    fn remove(&mut self, old: &Timer) {
        self.added -= i64::from(!matches!(old.state, State::Leased(_)));
        self.gone.insert(old.id);
    }

    /// Returns the stored timer with this id. `None` if an evaluated change cancels or replaces it.
    async fn timer(&self, timers: &Timers, id: TimerId) -> Result<Option<Timer>, Problem> {
        if self.gone.contains(&id) {
            return Ok(None);
        }
        timers.get(id).await.map_err(|error| unavailable(&error))
    }

    /// Returns the stored timer with this key. `None` if an evaluated change gives or removes the key.
    async fn owner(&self, timers: &Timers, namespace: &str, key: &str) -> Result<Option<Timer>, Problem> {
        if self.keys.contains_key(key) {
            return Ok(None);
        }
        timers.get(by_key(namespace, key)).await.map_err(|error| unavailable(&error))
    }
}
