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
    show(timers.operation(&id).await?, which.wait, Work::Unknown, timers, output).await
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

/// The kind of an operation's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Cancel,
    Replay,
    Backfill,
    /// The answer about an operation does not say what its work is.
    Unknown,
}

impl Work {
    /// Describes what the operation has done so far.
    fn progress(self, operation: &Operation) -> String {
        let Operation { changed, in_flight, refused, .. } = operation;
        match self {
            Self::Cancel => format!("{changed} cancelled, {in_flight} of them in flight"),
            Self::Replay if *refused == 0 => format!("{changed} replayed"),
            Self::Replay => {
                format!("{changed} replayed, {refused} refused: other timers have their keys by now")
            }
            Self::Backfill if *refused == 0 => format!("{changed} made"),
            Self::Backfill => format!("{changed} made, {refused} left out: their moments had timers before"),
            Self::Unknown if *refused == 0 => format!("{changed} changed, {in_flight} of them in flight"),
            Self::Unknown => {
                format!("{changed} changed, {in_flight} of them in flight, {refused} refused or left out")
            }
        }
    }

    /// Returns whether the operation has not done all that was asked.
    fn is_unfulfilled(self, operation: &Operation) -> bool {
        operation.state == OperationState::Failed || self == Self::Replay && operation.refused > 0
    }
}

/// Prints the progress of an operation, a change of many timers in the background. If `waits` is true, first waits for
/// the operation's end. Fails if the operation has failed, or if it has not replayed all dead timers.
pub(super) async fn show(
    mut operation: Operation,
    waits: bool,
    work: Work,
    timers: &Namespace,
    output: Output,
) -> Result<(), Failure> {
    if waits {
        operation = timers.wait_for(operation, |_| ()).await?;
    }
    output.value(&operation, |operation| {
        let Operation { id, state, .. } = operation;
        let error = operation.error.as_ref().map_or_else(String::new, |error| format!(": {}", plain(error)));
        format!("{}: {} (operation {id}){error}", word(state), work.progress(operation))
    })?;
    if work.is_unfulfilled(&operation) { Err(Failure::shown(Code::NotFulfilled)) } else { Ok(()) }
}
