//! Runs the command that prints the audit trail: the requested changes, with their authors.

use crate::exit::Failure;
use crate::output::{Output, or_none, word};
use clap::Args;
use tourbillon_client::Client;
use tourbillon_client::api::{AuditAction, AuditAuthor, AuditEntry, Moment};

/// The conditions that select entries of the audit trail. Each entry is a change that a user or a token requested.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Show the changes in all namespaces, even if a setting names a namespace
    #[arg(long)]
    all_namespaces: bool,
    /// Only changes by the token with this name or id
    #[arg(long, value_name = "NAME")]
    by_token: Option<String>,
    /// Only changes of this kind, such as cancel-many or set-namespace
    #[arg(long, value_name = "ACTION", value_parser = action)]
    action: Option<AuditAction>,
    /// Only changes from this moment on
    #[arg(long, value_name = "MOMENT")]
    since: Option<Moment>,
    /// Only changes before this moment
    #[arg(long, value_name = "MOMENT")]
    until: Option<Moment>,
    /// The greatest number of changes to list
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

fn action(text: &str) -> Result<AuditAction, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

/// The greatest number of entries that the service returns in one page of the audit trail.
const PAGE: u64 = 200;

/// Prints the audit trail, the newest entry first. If the settings name a namespace, prints only the entries of this
/// namespace.
pub(crate) async fn audit(
    which: Audit,
    client: &Client,
    namespace: Option<&str>,
    output: Output,
) -> Result<(), Failure> {
    let mut rest = which.limit;
    let mut list = client.audit().page_size(u32::try_from(rest.min(PAGE)).unwrap_or(200));
    if let Some(namespace) = namespace.filter(|_| !which.all_namespaces) {
        list = list.namespace(namespace);
    }
    if let Some(token) = which.by_token {
        list = list.token(token);
    }
    if let Some(action) = which.action {
        list = list.action(action);
    }
    if let Some(since) = which.since {
        list = list.since(since);
    }
    if let Some(until) = which.until {
        list = list.until(until);
    }
    let mut entries = Vec::new();
    while rest > 0 {
        let Some(mut page) = list.next_page().await? else { break };
        page.truncate(usize::try_from(rest).unwrap_or(usize::MAX));
        rest -= page.len() as u64;
        entries.extend(page);
    }
    let columns = ["AT", "ACTION", "OUTCOME", "COUNT", "BY", "NAMESPACE", "TARGET", "DETAIL"];
    Ok(output.list(&entries, columns, row)?)
}

fn row(entry: &AuditEntry) -> [String; 8] {
    [
        entry.at.to_string(),
        word(&entry.action),
        word(&entry.outcome),
        or_none(entry.count),
        author(&entry.by),
        or_none(entry.namespace.as_ref()),
        or_none(entry.target.as_ref()),
        or_none(entry.detail.as_ref()),
    ]
}

/// Returns the author of a change, as text for a table cell.
fn author(by: &AuditAuthor) -> String {
    let name = by.token.as_ref().or(by.token_id.as_ref()).or(by.user.as_ref());
    let parts = [name.cloned(), Some(word(&by.via)), by.peer.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
