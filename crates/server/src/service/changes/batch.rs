//! Makes many changes of timers in one transaction, with an answer for each change.

use super::{Before, Changes, moment};
use crate::audit::{Deed, End};
use crate::convert::{rejected, unavailable};
use crate::record::Entered;
use crate::service::creations::{Earlier, Naming, Ready};
use crate::service::names::{Named, not_found};
use crate::state::Trace;
use crate::telemetry::Span;
use std::collections::HashMap;
use tourbillon_api::{self as api, AuditAction, BatchResult, CancelResult, Cancelled, Problem, ProblemKind};
use tourbillon_durable::store::Durability;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Change, Effect, Rejection};

impl Changes {
    /// Makes the changes of a batch in one transaction. Returns an answer for each change, in the order of the changes.
    pub(crate) async fn batch(
        &self,
        namespace: &str,
        trace: Option<Trace>,
        changes: &[api::Change],
    ) -> Result<Vec<BatchResult>, Problem> {
        let cancels = changes.iter().filter(|change| matches!(change, api::Change::Cancel { .. })).count();
        let detail = || format!("{cancels} cancellations of {} changes", changes.len());
        let entry = (cancels > 1)
            .then(|| self.audit.begin(Deed::new(AuditAction::Batch).namespace(namespace).detail(detail())));
        let answer = self.change_all(namespace, trace, changes).await;
        if let Some(entry) = entry {
            let cancelled = answer.iter().flatten().filter(|result| is_cancelled(result)).count();
            match cancelled {
                // At most one timer was cancelled. The trail only records cancellations of several timers.
                0 | 1 if answer.is_ok() => entry.forget(),
                _ => entry.end(End::from(&answer).count(cancelled as u64)).await,
            }
        }
        answer
    }

    async fn change_all(
        &self,
        namespace: &str,
        trace: Option<Trace>,
        changes: &[api::Change],
    ) -> Result<Vec<BatchResult>, Problem> {
        // The namespace cannot be removed before this value is dropped.
        let _stays = self.namespaces.require(namespace)?;
        let (mut batch, mut orders) = (Vec::with_capacity(changes.len()), Vec::new());
        let mut earlier = Earlier::default();
        for (index, change) in changes.iter().enumerate() {
            let pointer = format!("/changes/{index}/{}", word(change));
            let prepared = self.prepare(namespace, trace, change, &pointer, &mut earlier).await;
            batch.push(prepared.map(|(prepared, order)| {
                orders.extend(order);
                prepared
            }));
        }
        let effects = self.timers.batch(orders, Durability::PowerLoss).await;
        let mut effects = effects.map_err(|error| unavailable(&error))?.into_iter();
        let mut holders = HashMap::new();
        let mut results = Vec::with_capacity(batch.len());
        for prepared in batch {
            // The store answers only the changes that it received, in their order. It receives neither refused changes
            // nor cancellations of timers that do not exist.
            let result = match prepared {
                Err(problem) => Err(problem),
                Ok(Prepared::Absent) => {
                    Ok(BatchResult::Cancelled(Cancelled { result: CancelResult::NotFound }))
                }
                Ok(prepared) => match effects.next() {
                    Some(effect) => self.answer(namespace, prepared, effect, &mut holders).await,
                    None => Err(Problem::new(ProblemKind::Internal, "the store gave too few answers")),
                },
            };
            results.push(result.unwrap_or_else(BatchResult::Problem));
        }
        Ok(results)
    }

    /// Checks a change of a batch before the transaction. Returns the data for the client's answer, and the change for
    /// the store, which is `None` if `change` cancels a timer that does not exist. `pointer` is the JSON pointer to the
    /// fields of the change within the request. `earlier` has the changes before this change in the batch.
    async fn prepare<'c>(
        &self,
        namespace: &str,
        trace: Option<Trace>,
        change: &'c api::Change,
        pointer: &str,
        earlier: &mut Earlier,
    ) -> Result<(Prepared<'c>, Option<Change>), Problem> {
        match change {
            api::Change::Put { key, idempotency_key, timer } => {
                let (key, idempotency_key) = (key.as_deref(), idempotency_key.as_deref());
                let mut span = self.telemetry.creation(trace, namespace, key);
                let naming = Naming { key, idempotency_key, trace: span.trace(), ..Naming::default() };
                let at = format!("{pointer}/timer");
                let ready = match key.map_or(Ok(()), |key| admit_key(key, pointer)) {
                    Ok(()) => self.creations.ready(namespace, naming, timer, &at, earlier).await,
                    Err(problem) => Err(problem),
                };
                let ready = ready.inspect_err(|problem| span.refused(problem))?;
                let Ready { creation: (kind, spec), entered, .. } = ready;
                Ok((Prepared::Put { key, entered, span }, Some(Change::schedule(kind, spec))))
            }
            api::Change::Cancel { key, id } => {
                let named = named(key.as_deref(), id.as_deref(), pointer)?;
                Ok(match self.may_be_there(namespace, named).await? {
                    Some(before) => {
                        earlier.note_cancellation(named);
                        (Prepared::Cancel(named, before), Some(Change::Cancel(named.address(namespace))))
                    }
                    None => (Prepared::Absent, None),
                })
            }
            api::Change::Move { key, id, to } => {
                let named = named(key.as_deref(), id.as_deref(), pointer)?;
                let to = moment(&self.timers, self.settings.max_delay, to, &format!("{pointer}/to"))?;
                self.check_due(namespace, to)?;
                let before = self.stored.find(namespace, named).await?.map(|timer| timer.id);
                // The store would find an id in any namespace, so an id that this namespace lacks is refused here. A
                // key passes, because an earlier change of the batch may create its timer.
                if before.is_none() && matches!(named, Named::Id(_)) {
                    return Err(not_found());
                }
                let change = Change::Move(named.address(namespace), to);
                Ok((Prepared::Move { named, before }, Some(change)))
            }
            _ => Err(Problem::field(pointer, "this change is not known")),
        }
    }

    /// Makes the client's answer about one change of a batch. `effect` is the store's answer about this change.
    /// `holders` maps a key to the timer with this key that an earlier change of the batch found or created.
    async fn answer<'c>(
        &self,
        namespace: &str,
        prepared: Prepared<'c>,
        effect: Result<Effect, Rejection>,
        holders: &mut HashMap<&'c str, TimerId>,
    ) -> Result<BatchResult, Problem> {
        match (prepared, effect) {
            (Prepared::Put { key, entered, mut span }, Ok(Effect::Placed(placed))) => {
                holders.extend(key.map(|key| (key, placed.id())));
                let placed = self.creations.placed(namespace, key, placed, entered.as_ref()).await;
                span.created(&placed);
                placed.map(BatchResult::Placed)
            }
            (Prepared::Cancel(named, before), Ok(Effect::Cancelled(cancelled))) => {
                Ok(BatchResult::Cancelled(self.cancelled(namespace, named, before, &cancelled)))
            }
            (Prepared::Move { named, before }, Ok(Effect::Changed(changed))) => {
                let (key, id) = match named {
                    Named::Id(id) => (None, Some(id)),
                    // An earlier change of the batch may have given the key to another timer.
                    Named::Key(key) => (Some(key), holders.get(key).copied().or(before)),
                };
                let id = match id {
                    Some(id) => id,
                    // No timer had the key when the batch was prepared. Another caller has since created the timer.
                    None => self.stored.find(namespace, named).await?.ok_or_else(not_found)?.id,
                };
                self.moved(namespace, id, key, changed).map(BatchResult::Changed)
            }
            (prepared, Err(rejection)) => {
                let problem = rejected(&rejection);
                if let Prepared::Put { key, mut span, .. } = prepared {
                    span.refused(&problem);
                    if let (Some(key), Rejection::KeyExists(holder)) = (key, &rejection) {
                        holders.insert(key, *holder);
                    }
                }
                Err(problem)
            }
            (_, Ok(other)) => Err(Problem::new(ProblemKind::Internal, format!("{other:?}"))),
        }
    }
}

fn is_cancelled(result: &BatchResult) -> bool {
    matches!(result, BatchResult::Cancelled(Cancelled { result }) if *result != CancelResult::NotFound)
}

/// A checked change of a batch, with the data for the client's answer, which is made after the store has answered.
#[derive(Debug)]
enum Prepared<'c> {
    Put {
        key: Option<&'c str>,
        entered: Option<Entered>,
        span: Span,
    },
    Cancel(Named<'c>, Before),
    /// A cancellation of a timer that does not exist. The store gets no change for it.
    Absent,
    Move {
        named: Named<'c>,
        /// The id of the timer to move, as it was stored before the batch. `None` if `named` is a key that no timer had
        /// then.
        before: Option<TimerId>,
    },
}

/// Returns the word by which a request names the kind of a change.
fn word(change: &api::Change) -> &'static str {
    match change {
        api::Change::Put { .. } => "put",
        api::Change::Cancel { .. } => "cancel",
        api::Change::Move { .. } => "move",
        _ => "",
    }
}

/// Fails if the key is invalid: empty, too long, or with a zero byte. `pointer` is the JSON pointer to the object with
/// the field `key`.
fn admit_key(key: &str, pointer: &str) -> Result<(), Problem> {
    Named::Key(key).admit().map_err(|problem| {
        let detail = problem.detail.clone();
        problem.with_field(format!("{pointer}/key"), detail)
    })
}

fn named<'c>(key: Option<&'c str>, id: Option<&str>, pointer: &str) -> Result<Named<'c>, Problem> {
    match (key, id) {
        (Some(key), None) => admit_key(key, pointer).map(|()| Named::Key(key)),
        (None, Some(text)) => match text.parse() {
            Ok(id) => Ok(Named::Id(id)),
            Err(_) => Err(Problem::field(format!("{pointer}/id"), "an id is the text of a UUID")),
        },
        _ => Err(Problem::field(pointer, "one of `key` and `id`")),
    }
}
