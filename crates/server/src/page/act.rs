//! Handles the buttons with which a visitor changes a single timer.

use super::fault::{Fault, UNCHANGED};
use super::posted::Posted;
use super::rows::{address, id_of};
use super::text::with_query;
use crate::service::{Named, Service, Verb};
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use tourbillon_api::CancelResult;

/// The word that a visitor must type to confirm that a timer is cancelled.
const WORD: &str = "cancel";

/// Changes a single timer. `verb` is the last part of the address, such as `pause`. Afterwards redirects to the timer's
/// page, or to the list of timers if the service does not know the timer any more. Redirects to the list of dead timers
/// if the form was on that list, or if a timer to cancel was not found.
pub(super) async fn one(
    State(service): State<Service>,
    Path((namespace, id, verb)): Path<(String, String, String)>,
    form: Posted,
) -> Result<Response, Fault> {
    Fault::unless(form.visitor.writes(&namespace), UNCHANGED)?;
    let id = id_of(&id)?;
    let named = Named::Id(id);
    let done = match Verb::of(&verb) {
        Some(verb) => {
            service.changes().change(&namespace, named, verb).await?;
            verb.word()
        }
        None if verb == "cancel" => {
            form.fields.confirm(WORD)?;
            match service.changes().cancel(&namespace, named).await?.result {
                CancelResult::Cancelled => "cancel",
                CancelResult::InFlight => "cancel-in-flight",
                CancelResult::NotFound => "gone",
            }
        }
        None => return Err(Fault::no_page()),
    };
    let is_of_the_list = form.fields.get("from") == "dead" || done == "gone";
    let in_list = |path| with_query(path, &[("namespace", &namespace), ("done", done)]);
    let to = if is_of_the_list {
        in_list("/ui/dead")
    } else if service.reports().past(&namespace, id).await.is_ok()
        || service.stored_timers().get(&namespace, id.into()).await.is_ok()
    {
        with_query(&address(&namespace, &id.to_string()), &[("done", done)])
    } else {
        in_list("/ui/timers")
    };
    Ok(Redirect::to(&to).into_response())
}
