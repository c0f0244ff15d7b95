//! Begins operations, each of which changes many timers in the background. Shows their progress.

use super::fault::{Fault, UNCHANGED, UNSEEN};
use super::posted::Posted;
use super::rows::whole_list;
use super::text::{number, segment};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::service::{DeadGroup, DeadWork, Service, Work};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use tourbillon_api::{CancelMany, Operation, OperationState, Problem, ProblemKind, ReplayMany};

/// Begins an operation: a change that cancels, replays or drops many timers in the background. Redirects to the page
/// that shows the operation's progress.
pub(super) async fn begin(
    State(service): State<Service>,
    Path(verb): Path<String>,
    form: Posted,
) -> Result<Response, Fault> {
    let Posted { visitor, fields } = &form;
    let namespace = fields.get("namespace");
    Fault::unless(visitor.writes(namespace), UNCHANGED)?;
    let text = |name| fields.given(name).map(str::to_owned);
    let work = match &*verb {
        "cancel" => {
            let which = CancelMany { label: text("label"), key_prefix: text("key_prefix") };
            let (CancelMany { label: Some(word), key_prefix: None }
            | CancelMany { label: None, key_prefix: Some(word) }) = &which
            else {
                return Err(Fault::bad(
                    "One of a label and the beginning of a key says which timers are cancelled.",
                ));
            };
            fields.confirm(word)?;
            Work::Cancel(which)
        }
        "replay" => {
            fields.confirm("replay")?;
            match group(&form) {
                None => Work::Replay(ReplayMany { label: text("label") }),
                group => {
                    let label = fields.given("label").map(Into::into);
                    Work::Dead(DeadWork { label, group, is_drop: false })
                }
            }
        }
        "drop" => {
            fields.confirm("drop")?;
            let label = fields.given("label").map(Into::into);
            Work::Dead(DeadWork { label, group: group(&form), is_drop: true })
        }
        _ => return Err(Fault::no_page()),
    };
    let operation = service.operations().begin(namespace, work).await?;
    Ok(Redirect::to(&format!("/ui/operations/{}/{}", segment(namespace), operation.id)).into_response())
}

/// Returns the group of dead timers whose receiver and last error the form names. `None` if the form names neither.
fn group(Posted { fields, .. }: &Posted) -> Option<DeadGroup> {
    let (place, error) = (fields.get("place"), fields.get("error"));
    (!place.is_empty() || !error.is_empty()).then(|| DeadGroup::new(place, error))
}

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage<'a> {
    frame: Frame<'a>,
    namespace: &'a str,
    operation: &'a Operation,
    begun: When,
}

fn state(state: OperationState) -> &'static str {
    match state {
        OperationState::Done => "done",
        OperationState::Failed => "failed",
        _ => "running",
    }
}

/// Shows the progress of an operation, a change of many timers in the background.
pub(super) async fn show_operation(
    State(service): State<Service>,
    visitor: Visitor,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Fault> {
    Fault::unless(visitor.reads(&namespace), UNSEEN)?;
    let Some(operation) = service.operations().find(&namespace, &id).await? else {
        let detail = "There is no such operation. It is shown for an hour after its end.";
        return Err(Problem::new(ProblemKind::NotFound, detail).into());
    };
    let page = OperationPage {
        frame: Frame { is_live: operation.state == OperationState::Running, ..Frame::new(&visitor, "") },
        namespace: &namespace,
        operation: &operation,
        begun: When::new(operation.begun, now(&service)),
    };
    Ok(show(&page))
}
