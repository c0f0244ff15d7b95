//! Changes of stored timers, one at a time or many in one transaction.

use super::events::event;
use super::idempotency::Entered;
use super::place::{Naming, Ready, by_key};
use super::{Deed, End, Service, Trace};
use crate::convert::{due, rejected, unavailable};
use crate::telemetry::Span;
use core::time::Duration;
use std::collections::HashMap;
use tourbillon_api::{
    self as api, AuditAction, BatchResult, CancelResult, Cancelled, Changed, Delay, Event, EventKind,
    Problem, ProblemKind,
};
use tourbillon_durable::store::Durability;
use tourbillon_durable::timer::{Address, Timer, TimerId};
use tourbillon_durable::{self as durable, Change, Due, Effect, Rejection, Timers, UtcMillis};

/// The length of a key that a creation permits, in bytes.
const LONGEST_KEY: usize = 255;

/// The name by which a request finds a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    /// The key.
    Key(&'a str),
    /// The id.
    Id(TimerId),
}

impl Named<'_> {
    /// The address of the timer. An id finds timers of all namespaces.
    pub(crate) fn address(self, namespace: &str) -> Address {
        match self {
            Self::Key(key) => by_key(namespace, key),
            Self::Id(id) => id.into(),
        }
    }

    /// Fails for a key that is too long for a timer: a request to cancel by it means another key.
    fn admit(self) -> Result<(), Problem> {
        match self {
            Self::Key(key) if key.len() > LONGEST_KEY => Err(rejected(&Rejection::TooLong("the key"))),
            Self::Key(_) | Self::Id(_) => Ok(()),
        }
    }
}

impl Named<'_> {
    /// A change of the timer as the audit trail has it.
    fn deed(self, namespace: &str, verb: &str) -> Deed {
        let target = match self {
            Self::Key(key) => key.to_owned(),
            Self::Id(id) => id.to_string(),
        };
        Deed::new(AuditAction::ChangeTimer).namespace(namespace).target(target).detail(verb)
    }
}

impl Verb {
    const fn word(self) -> &'static str {
        match self {
            Self::Fire => "fire",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Replay => "replay",
        }
    }
}

/// The id of a text.
pub(crate) fn id(text: &str) -> Result<TimerId, Problem> {
    text.parse().map_err(|_| Problem::new(ProblemKind::BadRequest, "an id is the text of a UUID"))
}

/// A change of one timer, without an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Fire,
    Pause,
    Resume,
    Replay,
}

impl Service {
    /// A stored timer of the namespace, if there is one.
    async fn find(&self, namespace: &str, named: Named<'_>) -> Result<Option<Timer>, Problem> {
        let at = named.address(namespace);
        let timer = self.timers().get(at).await.map_err(|error| unavailable(&error))?;
        Ok(timer.filter(|timer| *timer.namespace == *namespace))
    }

    /// Cancels a timer, or drops a dead one.
    pub(crate) async fn cancel(&self, namespace: &str, named: Named<'_>) -> Result<Cancelled, Problem> {
        let note = self.begin_note_of_page(|| named.deed(namespace, "cancel"));
        let answer = self.cancel_one(namespace, named).await;
        if let Some(note) = note {
            note.end(&answer).await;
        }
        answer
    }

    async fn cancel_one(&self, namespace: &str, named: Named<'_>) -> Result<Cancelled, Problem> {
        self.namespace(namespace)?;
        named.admit()?;
        if matches!(named, Named::Id(_)) && self.find(namespace, named).await?.is_none() {
            return Ok(Cancelled { result: CancelResult::NotFound });
        }
        let cancelled = self.timers().cancel(named.address(namespace)).await;
        let cancelled = cancelled.map_err(|error| unavailable(&error))?;
        Ok(self.cancelled(namespace, named, &cancelled))
    }

    /// The answer to a cancellation that the store has answered.
    fn cancelled(&self, namespace: &str, named: Named<'_>, cancelled: &durable::Cancelled) -> Cancelled {
        let result = match cancelled {
            durable::Cancelled::Cancelled(_) => CancelResult::Cancelled,
            durable::Cancelled::InFlight => CancelResult::InFlight,
            _ => return Cancelled { result: CancelResult::NotFound },
        };
        self.count_cancelled(namespace);
        if let durable::Cancelled::Cancelled(timer) = cancelled {
            self.flights().cancelled(timer);
        }
        self.events().show(|| {
            let mut shown = event(EventKind::Cancelled, namespace);
            match named {
                Named::Key(key) => shown.key = Some(key.to_owned()),
                Named::Id(id) => shown.id = Some(id.to_string()),
            }
            match cancelled {
                durable::Cancelled::Cancelled(timer) => {
                    shown.id = Some(timer.id.to_string());
                    shown.key = timer.key.as_deref().map(str::to_owned);
                }
                _ => shown.detail = Some("a delivery has begun".to_owned()),
            }
            shown
        });
        Cancelled { result }
    }

    /// Moves a timer's due moment.
    pub(crate) async fn move_timer(
        &self,
        namespace: &str,
        named: Named<'_>,
        to: &Delay,
    ) -> Result<Changed, Problem> {
        let timer = self.stored(namespace, named.address(namespace)).await?;
        let to = moment(self.timers(), self.settings().max_delay, to, "")?;
        self.check_due(namespace, to)?;
        let changed = self.timers().move_to(timer.id, to).await.map_err(|error| unavailable(&error))?;
        self.moved(namespace, timer.id, timer.key.as_deref(), changed)
    }

    fn moved(
        &self,
        namespace: &str,
        id: TimerId,
        key: Option<&str>,
        changed: durable::Changed,
    ) -> Result<Changed, Problem> {
        let answer = change(id, changed)?;
        self.events().show(|| Event {
            id: Some(id.to_string()),
            key: key.map(str::to_owned),
            ..event(EventKind::Moved, namespace)
        });
        Ok(answer)
    }

    /// Changes a timer.
    pub(crate) async fn change(
        &self,
        namespace: &str,
        named: Named<'_>,
        verb: Verb,
    ) -> Result<Changed, Problem> {
        let note = self.begin_note_of_page(|| named.deed(namespace, verb.word()));
        let answer = self.change_one(namespace, named, verb).await;
        if let Some(note) = note {
            note.end(&answer).await;
        }
        answer
    }

    async fn change_one(&self, namespace: &str, named: Named<'_>, verb: Verb) -> Result<Changed, Problem> {
        let timer = self.stored(namespace, named.address(namespace)).await?;
        let (id, timers, begun) = (timer.id, self.timers(), self.flights().now());
        let changed = match verb {
            Verb::Fire => timers.fire(id).await,
            Verb::Pause => timers.pause(id).await,
            Verb::Resume => timers.resume(id).await,
            Verb::Replay => timers.replay(id).await,
        };
        let changed = change(id, changed.map_err(|error| unavailable(&error))?)?;
        if let Verb::Replay = verb {
            // Its first delivery may have begun already.
            self.flights().replayed(&timer, begun);
        }
        Ok(changed)
    }

    /// Makes changes in one transaction. Each has its answer, in the same order.
    pub(crate) async fn batch(
        &self,
        namespace: &str,
        trace: Option<Trace>,
        changes: &[api::Change],
    ) -> Result<Vec<BatchResult>, Problem> {
        let cancels = changes.iter().filter(|change| matches!(change, api::Change::Cancel { .. })).count();
        let detail = || format!("{cancels} cancellations of {} changes", changes.len());
        let note = (cancels > 1)
            .then(|| self.begin_note(Deed::new(AuditAction::Batch).namespace(namespace).detail(detail())));
        let answer = self.change_all(namespace, trace, changes).await;
        if let Some(note) = note {
            let cancelled = answer.iter().flatten().filter(|result| is_cancelled(result)).count();
            match cancelled {
                // Nothing was changed, and a trail has room for what was.
                0 | 1 if answer.is_ok() => note.forget(),
                _ => note.end(End::from(&answer).count(cancelled as u64)).await,
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
        // The namespace is not removed while timers are being stored in it.
        let _stays = self.namespace(namespace)?;
        let (mut asked, mut orders) = (Vec::with_capacity(changes.len()), Vec::new());
        for (index, change) in changes.iter().enumerate() {
            let ahead = orders.len() as u64;
            let question = self.ask(namespace, trace, change, &format!("/changes/{index}"), ahead).await;
            asked.push(question.map(|(question, order)| {
                orders.push(order);
                question
            }));
        }
        let effects = self.timers().batch(orders, Durability::PowerLoss).await;
        let mut effects = effects.map_err(|error| unavailable(&error))?.into_iter();
        let mut holders = HashMap::new();
        let mut results = Vec::with_capacity(asked.len());
        for question in asked {
            let result = match (question, &mut effects) {
                (Err(answer), _) => Ok(answer),
                (Ok(question), effects) => match effects.next() {
                    Some(effect) => self.answer(namespace, question, effect, &mut holders).await,
                    None => Err(Problem::new(ProblemKind::Internal, "the store gave too few answers")),
                },
            };
            results.push(result.unwrap_or_else(BatchResult::Problem));
        }
        Ok(results)
    }

    /// What the store is asked for a change. Fails with the answer if that is known before.
    async fn ask<'c>(
        &self,
        namespace: &str,
        trace: Option<Trace>,
        change: &'c api::Change,
        pointer: &str,
        ahead: u64,
    ) -> Result<(Question<'c>, Change), BatchResult> {
        match change {
            api::Change::Put { key, idempotency_key, timer } => {
                let (key, idempotency_key) = (key.as_deref(), idempotency_key.as_deref());
                let mut span = self.telemetry().creation(trace, namespace, key);
                let naming = Naming { key, idempotency_key, trace: span.trace() };
                let ready = self.ready(namespace, naming, timer, &format!("{pointer}/timer"), ahead).await;
                let Ready { order: (kind, spec), entered, .. } = ready.map_err(|problem| {
                    span.refused(&problem);
                    BatchResult::Problem(problem)
                })?;
                Ok((Question::Put { key, entered, span }, Change::schedule(kind, spec)))
            }
            api::Change::Cancel { key, id } => {
                let named = named(key.as_deref(), id.as_deref(), pointer).map_err(BatchResult::Problem)?;
                named.admit().map_err(BatchResult::Problem)?;
                let is_here = match named {
                    Named::Key(_) => true,
                    Named::Id(_) => {
                        self.find(namespace, named).await.map_err(BatchResult::Problem)?.is_some()
                    }
                };
                if !is_here {
                    return Err(BatchResult::Cancelled(Cancelled { result: CancelResult::NotFound }));
                }
                Ok((Question::Cancel(named), Change::Cancel(named.address(namespace))))
            }
            api::Change::Move { key, id, to } => {
                let named = named(key.as_deref(), id.as_deref(), pointer).map_err(BatchResult::Problem)?;
                let to = moment(self.timers(), self.settings().max_delay, to, &format!("{pointer}/to"));
                let to = to.map_err(BatchResult::Problem)?;
                self.check_due(namespace, to).map_err(BatchResult::Problem)?;
                let before = self.find(namespace, named).await.map_err(BatchResult::Problem)?;
                let before = before.map(|timer| timer.id);
                if before.is_none() && matches!(named, Named::Id(_)) {
                    return Err(BatchResult::Problem(not_found()));
                }
                Ok((Question::Move { named, before }, Change::Move(named.address(namespace), to)))
            }
            _ => Err(BatchResult::Problem(Problem::field(pointer, "this change is not known"))),
        }
    }

    /// The answer to a change of a batch. `holders` has the timers that the changes before it have found under their
    /// keys.
    async fn answer<'c>(
        &self,
        namespace: &str,
        question: Question<'c>,
        effect: Result<Effect, Rejection>,
        holders: &mut HashMap<&'c str, TimerId>,
    ) -> Result<BatchResult, Problem> {
        match (question, effect) {
            (Question::Put { key, entered, mut span }, Ok(Effect::Placed(placed))) => {
                holders.extend(key.map(|key| (key, placed.id())));
                let placed = self.placed(namespace, key, placed, entered.as_ref()).await;
                span.created(&placed);
                placed.map(BatchResult::Placed)
            }
            (Question::Cancel(named), Ok(Effect::Cancelled(cancelled))) => {
                Ok(BatchResult::Cancelled(self.cancelled(namespace, named, &cancelled)))
            }
            (Question::Move { named, before }, Ok(Effect::Changed(changed))) => {
                let (key, id) = match named {
                    Named::Id(id) => (None, Some(id)),
                    Named::Key(key) => (Some(key), holders.get(key).copied().or(before)),
                };
                let id = match id {
                    Some(id) => id,
                    // The key was another caller's in the meantime.
                    None => self.find(namespace, named).await?.ok_or_else(not_found)?.id,
                };
                self.moved(namespace, id, key, changed).map(BatchResult::Changed)
            }
            (question, Err(rejection)) => {
                let problem = rejected(&rejection);
                if let Question::Put { key, mut span, .. } = question {
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

/// Whether a change has cancelled a timer.
fn is_cancelled(result: &BatchResult) -> bool {
    matches!(result, BatchResult::Cancelled(Cancelled { result }) if *result != CancelResult::NotFound)
}

/// A change that the store was asked for.
#[derive(Debug)]
enum Question<'c> {
    Put {
        key: Option<&'c str>,
        entered: Option<Entered>,
        span: Span,
    },
    Cancel(Named<'c>),
    Move {
        named: Named<'c>,
        /// The timer before the batch.
        before: Option<TimerId>,
    },
}

fn named<'c>(key: Option<&'c str>, id: Option<&str>, pointer: &str) -> Result<Named<'c>, Problem> {
    match (key, id) {
        (Some(key), None) => Ok(Named::Key(key)),
        (None, Some(text)) => match text.parse() {
            Ok(id) => Ok(Named::Id(id)),
            Err(_) => Err(Problem::field(format!("{pointer}/id"), "an id is the text of a UUID")),
        },
        _ => Err(Problem::field(pointer, "one of `key` and `id`")),
    }
}

/// The moment to which a timer is moved.
fn moment(timers: &Timers, longest: Duration, to: &Delay, pointer: &str) -> Result<UtcMillis, Problem> {
    let now = timers.timer_store().now();
    let to = match due(to.due, to.delay_ms, pointer)? {
        // A moment that has passed is now.
        Some(Due::At(moment)) => moment.max(now),
        Some(Due::After(delay)) => now.after(delay),
        None => return Err(Problem::field(pointer, "one of `due` and `delay_ms`")),
    };
    if to > now.after(longest) || to >= UtcMillis::MAX {
        return Err(Problem::new(ProblemKind::DueTooFar, "the due moment is too far away"));
    }
    Ok(to)
}

fn not_found() -> Problem {
    Problem::new(ProblemKind::NotFound, "there is no such timer")
}

fn change(id: TimerId, changed: durable::Changed) -> Result<Changed, Problem> {
    match changed {
        durable::Changed::Changed => Ok(Changed { id: id.to_string() }),
        durable::Changed::NotFound => Err(not_found()),
        durable::Changed::KeyExists(holder) => {
            Err(Problem::new(ProblemKind::KeyExists, format!("the timer {holder} has the key")))
        }
        durable::Changed::Refused(phase) => {
            Err(Problem::new(ProblemKind::WrongPhase, format!("the timer is {phase:?}")))
        }
        other => Err(Problem::new(ProblemKind::Internal, format!("{other:?}"))),
    }
}
