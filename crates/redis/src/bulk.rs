//! Operations on many timers: each timer on its own, in the order of an index.

use crate::commit::{Commit, Known};
use crate::layout::Part;
use crate::lists::Index;
use crate::send::Sent;
use crate::shared::Core;
use crate::stored::{label_entry, part};
use crate::transact::Start;
use tourbillon_durable::store::draft::Draft;
use tourbillon_durable::store::{Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::Timer;

/// Entries that are read at once.
const AT_ONCE: usize = 256;

impl Core {
    /// Withdraws timers of a label, one after the other.
    pub(crate) async fn cancel_labelled(
        &self,
        namespace: &str,
        label: &str,
        limit: u32,
    ) -> Result<Outcome, StoreError> {
        let index = Index::Members(Part::Labels, label_entry(namespace, label));
        let op = Op::CancelLabelled { namespace: namespace.into(), label: label.into(), limit: 1 };
        let limit = limit.max(1);
        let (mut cancelled, mut in_flight, mut last) = (0, 0, None);
        loop {
            let (entries, is_end) = self.entries_after(&index, last.as_deref(), AT_ONCE).await?;
            for (entry, found) in entries.iter().zip(self.timers_of(&entries).await?) {
                if cancelled == limit {
                    return Ok(Outcome::CancelledMany { cancelled, in_flight, more: true });
                }
                if let Some(found) = found {
                    let cancel = |draft: Draft| draft.apply(op.clone());
                    let outcome = self.transact(Start::Read(Box::new(found)), cancel).await?;
                    if let Outcome::CancelledMany { cancelled: its, in_flight: flying, .. } = outcome {
                        cancelled += its;
                        in_flight += flying;
                    }
                }
                last = Some(entry.place.clone());
            }
            if is_end {
                return Ok(Outcome::CancelledMany { cancelled, in_flight, more: false });
            }
        }
    }

    /// Puts timers back that were put aside for a reason, one after the other.
    pub(crate) async fn unpark(&self, reason: &str, limit: u32) -> Result<Outcome, StoreError> {
        let index = Index::Members(Part::Parked, part(reason));
        let (mut unparked, mut last) = (0, None);
        while unparked < limit {
            let (entries, is_end) = self.entries_after(&index, last.as_deref(), AT_ONCE).await?;
            for (entry, found) in entries.iter().zip(self.timers_of(&entries).await?) {
                if unparked == limit {
                    break;
                }
                if let Some(found) = found {
                    let put_back = |draft: Draft| draft.apply(Op::Unpark(reason.into(), 1));
                    let outcome = self.transact(Start::Read(Box::new(found)), put_back).await?;
                    if let Outcome::Unparked(its) = outcome {
                        unparked += its;
                    }
                }
                last = Some(entry.place.clone());
            }
            if is_end {
                break;
            }
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// Stores timers of a backup by one script.
    pub(crate) async fn import(&self, timers: Vec<Timer>) -> Result<(), StoreError> {
        let changes = Draft::new(self.time.now()).import(timers)?;
        if changes.timers.is_empty() {
            return Ok(());
        }
        let commit = Commit::new(&self.layout, &Known::default(), &changes, None);
        if let Sent::Refused { doubt, .. } = self.send(commit).await? {
            let message = format!("{doubt:?} of a timer to be imported is stored already");
            return Err(StoreError::new(StoreErrorKind::Limit, message));
        }
        self.pending(&Known::default(), &changes).for_each(|(shard, due)| self.note(shard, due));
        Ok(())
    }
}
