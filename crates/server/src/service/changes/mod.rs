//! Changes stored timers. This file changes single timers, and `batch` changes many timers in one transaction.

mod batch;

use super::creations::{CreationLimits, Creations};
use super::names::{Named, not_found};
use super::recorder::ChangeRecorder;
use super::stored_timers::{StoredTimers, is_withdrawn};
use crate::audit::Audit;
use crate::convert::{due, unavailable};
use crate::settings::Settings;
use crate::state::Namespaces;
use crate::telemetry::Telemetry;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_api::{CancelResult, Cancelled, Changed, Delay, Problem, ProblemKind};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{self as durable, Due, Timers, UtcMillis};

/// A change of a single timer that needs no parameter, such as a pause. A move is not such a change, because it needs
/// the new due moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Fire,
    Pause,
    Resume,
    Replay,
}

impl Verb {
    /// Returns the change that a word names, or `None` if the word is unknown.
    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Fire, Self::Pause, Self::Resume, Self::Replay].into_iter().find(|verb| verb.word() == word)
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fire => "fire",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Replay => "replay",
        }
    }
}

/// The state of a timer before a request that cancels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Live,
    /// The timer was cancelled or replaced earlier, while its delivery was running, and the delivery is still running.
    Withdrawn,
}

/// Serves the requests that change stored timers.
pub(crate) struct Changes {
    pub(super) settings: Arc<Settings>,
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) stored: StoredTimers,
    pub(super) creations: Arc<Creations>,
    pub(super) limits: Arc<CreationLimits>,
    pub(super) audit: Audit,
    pub(super) telemetry: Telemetry,
    pub(super) recorder: ChangeRecorder,
}

impl Changes {
    /// Cancels a timer of a namespace. Removes the timer if it is dead.
    pub(crate) async fn cancel(&self, namespace: &str, named: Named<'_>) -> Result<Cancelled, Problem> {
        let deed = || named.deed(namespace, "cancel");
        self.audit.note_on_page(deed, self.cancel_one(namespace, named)).await
    }

    async fn cancel_one(&self, namespace: &str, named: Named<'_>) -> Result<Cancelled, Problem> {
        self.namespaces.require(namespace)?;
        let Some(before) = self.may_be_there(namespace, named).await? else {
            return Ok(Cancelled { result: CancelResult::NotFound });
        };
        let cancelled = self.timers.cancel(named.address(namespace)).await;
        let cancelled = cancelled.map_err(|error| unavailable(&error))?;
        Ok(self.cancelled(namespace, named, before, &cancelled))
    }

    /// Returns `None` if the namespace does not contain the timer, so the store must not be asked to change it. Reads
    /// the timer if it is named by an id, because the store finds an id in any namespace. Does not read if it is named
    /// by a key, which the store looks up only in the given namespace. Fails if the key is invalid.
    async fn may_be_there(&self, namespace: &str, named: Named<'_>) -> Result<Option<Before>, Problem> {
        named.admit()?;
        if let Named::Key(_) = named {
            // A timer that was withdrawn during its delivery no longer has its key.
            return Ok(Some(Before::Live));
        }
        let timer = self.stored.find(namespace, named).await?;
        Ok(timer.map(|timer| if is_withdrawn(&timer.state) { Before::Withdrawn } else { Before::Live }))
    }

    /// Records a cancellation that the store has confirmed. Records nothing if the timer was cancelled or replaced
    /// earlier. Returns the answer for the client.
    fn cancelled(
        &self,
        namespace: &str,
        named: Named<'_>,
        before: Before,
        cancelled: &durable::Cancelled,
    ) -> Cancelled {
        if before == Before::Live {
            self.recorder.cancelled(namespace, named, cancelled);
        }
        let result = match cancelled {
            durable::Cancelled::Cancelled(_) => CancelResult::Cancelled,
            durable::Cancelled::InFlight => CancelResult::InFlight,
            _ => CancelResult::NotFound,
        };
        Cancelled { result }
    }

    /// Changes the due moment of a timer.
    pub(crate) async fn move_timer(
        &self,
        namespace: &str,
        named: Named<'_>,
        to: &Delay,
    ) -> Result<Changed, Problem> {
        let timer = self.stored.get(namespace, named.address(namespace)).await?;
        let to = moment(&self.timers, self.settings.max_delay, to, "")?;
        self.check_due(namespace, to)?;
        // The change names the timer by its id, because another timer may have taken the key since the read.
        let changed = self.timers.move_to(timer.id, to).await.map_err(|error| unavailable(&error))?;
        self.moved(namespace, timer.id, timer.key.as_deref(), changed)
    }

    fn moved(
        &self,
        namespace: &str,
        id: TimerId,
        key: Option<&str>,
        changed: durable::Changed,
    ) -> Result<Changed, Problem> {
        let answer = change(id, changed, |phase| refusal("moved", phase))?;
        self.recorder.moved(namespace, id, key);
        Ok(answer)
    }

    /// Fires, pauses, resumes or replays a timer, as `verb` says.
    pub(crate) async fn change(
        &self,
        namespace: &str,
        named: Named<'_>,
        verb: Verb,
    ) -> Result<Changed, Problem> {
        let deed = || named.deed(namespace, verb.word());
        self.audit.note_on_page(deed, self.change_one(namespace, named, verb)).await
    }

    async fn change_one(&self, namespace: &str, named: Named<'_>, verb: Verb) -> Result<Changed, Problem> {
        let timer = self.stored.get(namespace, named.address(namespace)).await?;
        // The change names the timer by its id, because another timer may have taken the key since the read. The moment
        // is read before the change, because the delivery after a replay may end before the answer comes.
        let (id, timers, begun) = (timer.id, &self.timers, self.recorder.now());
        let changed = match verb {
            Verb::Fire => timers.fire(id).await,
            Verb::Pause => timers.pause(id).await,
            Verb::Resume => timers.resume(id).await,
            Verb::Replay => timers.replay(id).await,
        };
        let changed = changed.map_err(|error| unavailable(&error))?;
        let changed = change(id, changed, |phase| match (verb, &timer.state) {
            (Verb::Fire, _) => refusal("fired", phase),
            (Verb::Pause, _) => refusal("paused", phase),
            (Verb::Resume, State::Parked(reason)) if phase == Phase::Parked => {
                format!("the timer is not paused; it is parked for the reason {reason}")
            }
            (Verb::Resume, _) => format!("the timer is not paused; it is {phase}"),
            (Verb::Replay, _) => format!("only a dead timer can be replayed; this timer is {phase}"),
        })?;
        if let Verb::Replay = verb {
            self.recorder.replayed(&timer, begun);
        }
        Ok(changed)
    }

    /// Fails if the limits of the namespace forbid this due moment.
    fn check_due(&self, namespace: &str, due: UtcMillis) -> Result<(), Problem> {
        self.limits.check_due(&self.namespaces.require(namespace)?.limits, due)
    }
}

/// Returns the new due moment from a request that moves a timer. `to`, a field of the request, has this moment or a
/// delay from now. Errors name the field by `pointer`, its JSON pointer. Fails if the moment is more than `longest` in
/// the future.
fn moment(timers: &Timers, longest: Duration, to: &Delay, pointer: &str) -> Result<UtcMillis, Problem> {
    let now = timers.timer_store().now();
    let to = match due(to.due, to.delay_ms, pointer)? {
        // A moment in the past counts as now.
        Some(Due::At(moment)) => moment.max(now),
        Some(Due::After(delay)) => now.after(delay),
        None => return Err(Problem::field(pointer, "one of `due` and `delay_ms`")),
    };
    // `after` adds a millisecond to both moments, so a delay of exactly `longest` is permitted. Sums stop at `MAX`, so
    // a sum of `MAX` may stand for a later moment.
    if to > now.after(longest) || to >= UtcMillis::MAX {
        return Err(Problem::new(ProblemKind::DueTooFar, "the due moment is too far away"));
    }
    Ok(to)
}

/// Returns the text for a change that the phase of the timer does not permit. `changed` names the change.
fn refusal(changed: &str, phase: Phase) -> String {
    match phase {
        Phase::Leased => format!("the timer is leased: while it is being delivered, it cannot be {changed}"),
        Phase::Dead => format!("the timer is dead: until it is replayed, it cannot be {changed}"),
        other => format!("the timer is {other}, so it cannot be {changed}"),
    }
}

/// Returns the answer to a change of a timer. `refusal` explains that the phase of the timer does not permit the
/// change.
fn change(
    id: TimerId,
    changed: durable::Changed,
    refusal: impl FnOnce(Phase) -> String,
) -> Result<Changed, Problem> {
    match changed {
        durable::Changed::Changed => Ok(Changed { id: id.to_string() }),
        durable::Changed::NotFound => Err(not_found()),
        durable::Changed::KeyExists(holder) => {
            Err(Problem::new(ProblemKind::KeyExists, format!("the timer {holder} has the key")))
        }
        durable::Changed::Refused(phase) => Err(Problem::new(ProblemKind::WrongPhase, refusal(phase))),
        other => Err(Problem::new(ProblemKind::Internal, format!("{other:?}"))),
    }
}
