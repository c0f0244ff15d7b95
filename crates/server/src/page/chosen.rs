//! Replays or drops the dead timers that a visitor has ticked in the list.

use super::fault::{Fault, UNCHANGED};
use super::posted::Posted;
use super::rows::id_of;
use crate::service::{Named, Service, Verb};
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use tourbillon_api::{CancelResult, Phase, Problem, ProblemKind};
use tourbillon_durable::timer::TimerId;

/// The greatest number of timers that a visitor may tick in one form.
const MOST: usize = 200;
/// The word that a visitor must type to confirm that the ticked timers are dropped.
const WORD: &str = "drop";

/// Replays or drops the dead timers that the visitor has ticked. `verb` is the last part of the address, and says which
/// of these changes to make. Then redirects to the list.
pub(super) async fn change(
    State(service): State<Service>,
    Path(verb): Path<String>,
    form: Posted,
) -> Result<Response, Fault> {
    let is_drop = match &*verb {
        "replay" => false,
        "drop" => true,
        _ => return Err(Fault::no_page()),
    };
    if is_drop {
        form.fields.confirm(WORD)?;
    }
    // All boxes are read and all permissions are checked before the first change, so a refused form changes nothing.
    let chosen: Vec<(&str, TimerId)> = form.fields.all("timer").map(named).collect::<Result<_, _>>()?;
    if chosen.is_empty() || chosen.len() > MOST {
        return Err(Fault::bad(format!("Nothing was changed: choose 1 to {MOST} timers.")));
    }
    Fault::unless(chosen.iter().all(|(namespace, _)| form.visitor.writes(namespace)), UNCHANGED)?;
    let mut is_part = false;
    for (namespace, id) in chosen {
        let is_done = match is_drop {
            true => drop_dead(&service, namespace, id).await,
            false => replay(&service, namespace, id).await,
        };
        is_part |= !is_done?;
    }
    let done = match (is_drop, is_part) {
        (false, false) => "replay-chosen",
        (true, false) => "drop-chosen",
        (_, true) => "part",
    };
    Ok(Redirect::to(&back(form.fields.get("back"), done)).into_response())
}

/// Splits the value of a ticked box into the namespace and the timer's id. The value has the form `namespace/id`. The
/// last slash ends the namespace, because its name may have a slash, and an id has none.
fn named(text: &str) -> Result<(&str, TimerId), Fault> {
    let (namespace, id) =
        text.rsplit_once('/').ok_or_else(|| Fault::bad("A choice has a namespace and an id."))?;
    Ok((namespace, id_of(id)?))
}

/// Returns whether a problem concerns a single timer: the timer is gone, is not dead any more, or its key is taken.
/// After such a problem, the other ticked timers are still changed.
fn is_of_timer(problem: &Problem) -> bool {
    matches!(problem.kind, ProblemKind::NotFound | ProblemKind::WrongPhase | ProblemKind::KeyExists)
}

async fn replay(service: &Service, namespace: &str, id: TimerId) -> Result<bool, Fault> {
    match service.changes().change(namespace, Named::Id(id), Verb::Replay).await {
        Ok(_) => Ok(true),
        Err(problem) if is_of_timer(&problem) => Ok(false),
        Err(problem) => Err(problem.into()),
    }
}

/// Drops a dead timer. Returns false if the timer is not dead. If another visitor replays the timer at the same moment,
/// the replayed timer may be cancelled.
async fn drop_dead(service: &Service, namespace: &str, id: TimerId) -> Result<bool, Fault> {
    let stored = match service.stored_timers().get(namespace, id.into()).await {
        Ok(timer) => timer.state.phase(),
        Err(problem) if is_of_timer(&problem) => return Ok(false),
        Err(problem) => return Err(problem.into()),
    };
    // A cancellation would also end a timer that somebody has replayed since the list was shown.
    if stored != Phase::Dead {
        return Ok(false);
    }
    let cancelled = service.changes().cancel(namespace, Named::Id(id)).await?;
    Ok(cancelled.result == CancelResult::Cancelled)
}

/// Returns the address to which a visitor returns after the change that the word `done` names, with this word as a
/// parameter. The address is `from` if this is a list of dead timers, otherwise that of the whole list.
fn back(from: &str, done: &str) -> String {
    // The address comes from the form and becomes the header `Location`, so it may have only characters that are valid
    // in a header.
    let is_list = from.starts_with("/ui/dead") && from.bytes().all(|byte| byte.is_ascii_graphic());
    let from = if is_list { from } else { "/ui/dead" };
    let separator = if from.contains('?') { '&' } else { '?' };
    format!("{from}{separator}done={done}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_leads_back_to_its_list_and_nowhere_else() {
        assert_eq!(back("/ui/dead?label=a", "part"), "/ui/dead?label=a&done=part");
        assert_eq!(back("/ui/dead", "part"), "/ui/dead?done=part");
        for other in ["", "//evil.example", "https://evil.example", "/ui/dead\r\nx: y", "/ui/dead ü"] {
            assert_eq!(back(other, "part"), "/ui/dead?done=part", "{other}");
        }
    }
}
