//! Runs the command about operations. An operation changes many timers in the background.

use crate::exit::{Code, Failure};
use crate::output::{Output, or_none, plain, word};
use clap::Args;
use tourbillon_client::Namespace;
use tourbillon_client::api::{Operation, OperationState};

/// The operations to show, and whether to wait for the end of an operation. An operation is a change of many timers
/// that the service makes in the background.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The operation's id, which a command such as `cancel-many` printed. Without an id, all operations of the last
    /// hour are shown
    id: Option<String>,
    /// Wait until the operation has ended
    #[arg(long, requires = "id")]
    wait: bool,
}

/// Lists the operations of a namespace: the changes of many timers that the service makes in the background. If the
/// user gives an id, prints only the operation with this id.
pub(crate) async fn operation(which: Which, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let Some(id) = which.id else {
        let columns = ["ID", "STATE", "BEGUN", "CHANGED", "IN FLIGHT", "REFUSED", "ERROR"];
        return Ok(output.list(&timers.operations().await?, columns, row)?);
    };
    show(timers.operation(&id).await?, which.wait, "changed", timers, output).await
}

fn row(operation: &Operation) -> [String; 7] {
    [
        operation.id.clone(),
        word(&operation.state),
        operation.begun.to_string(),
        operation.changed.to_string(),
        operation.in_flight.to_string(),
        operation.refused.to_string(),
        or_none(operation.error.as_ref()),
    ]
}

/// Prints the progress of an operation, a change of many timers in the background. If `waits` is true, first waits for
/// the operation's end. `verb` names the change, such as "cancelled". Fails if the operation has failed.
pub(super) async fn show(
    mut operation: Operation,
    waits: bool,
    verb: &str,
    timers: &Namespace,
    output: Output,
) -> Result<(), Failure> {
    if waits {
        operation = timers.wait_for(operation, |_| ()).await?;
    }
    output.value(&operation, |operation| {
        let Operation { id, state, changed, in_flight, .. } = operation;
        let error = operation.error.as_ref().map_or_else(String::new, |error| format!(": {}", plain(error)));
        format!("{}: {changed} {verb}, {in_flight} of them in flight (operation {id}){error}", word(state))
    })?;
    if operation.state == OperationState::Failed { Err(Failure::shown(Code::NotFulfilled)) } else { Ok(()) }
}
