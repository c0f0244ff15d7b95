//! Shows the audit trail to administrators of the whole service.

use super::conditions::Search;
use super::fault::Fault;
use super::text::{number, with_query};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::audit::{Wanted, word};
use crate::service::Service;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tourbillon_api::{AuditAction, AuditAuthor, AuditEntry, AuditOutcome, AuditVia, Moment};

/// The number of entries on one page of the audit trail.
const ON_A_PAGE: u32 = 50;

/// The kinds of changes by which a visitor can filter the audit trail. Addresses and the HTTP interface use the same
/// words.
const ACTIONS: [&str; 15] = [
    "cancel-many",
    "replay-many",
    "backfill",
    "batch",
    "change-timer",
    "change-schedule",
    "reopen-host",
    "set-namespace",
    "remove-namespace",
    "make-secret",
    "make-token",
    "revoke-token",
    "back-up",
    "restore",
    "mend",
];

/// The conditions on the entries of the audit trail, from the query of the page's address. An empty field sets no
/// condition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    namespace: String,
    token: String,
    action: String,
    cursor: String,
}

impl Query {
    fn wanted(&self) -> Result<Wanted, Fault> {
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let action = given(&self.action).map(|word| serde_json::from_value(word.into())).transpose();
        let action: Option<AuditAction> = action.map_err(|_| Fault::bad("There is no such action."))?;
        Ok(Wanted {
            namespace: given(&self.namespace),
            token: given(&self.token),
            action,
            ..Wanted::default()
        })
    }

    /// Returns the address of the page of the audit trail that begins at `cursor`, with the same conditions on the
    /// entries.
    fn address(&self, cursor: &str) -> String {
        let Self { namespace, token, action, .. } = self;
        let conditions =
            [("namespace", &**namespace), ("token", token), ("action", action), ("cursor", cursor)];
        with_query("/ui/audit", &conditions)
    }

    fn is_filtered(&self) -> bool {
        [&self.namespace, &self.token, &self.action].into_iter().any(|text| !text.is_empty())
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage<'a> {
    frame: Frame<'a>,
    asked: &'a Query,
    rows: Vec<AuditEntry>,
    now: Moment,
    first: Option<String>,
    next: Option<String>,
}

/// Returns the word for the outcome of a change, and the style class that colours the word.
fn outcome(outcome: AuditOutcome) -> (&'static str, &'static str) {
    match outcome {
        AuditOutcome::Begun => ("begun", ""),
        AuditOutcome::Done => ("done", "good"),
        AuditOutcome::Failed => ("failed", "bad"),
        _ => ("unknown", "warn"),
    }
}

/// Describes through which interface an author made a change, such as the HTTP interface, and from which address.
fn from(by: &AuditAuthor) -> String {
    let via = match by.via {
        AuditVia::Page => "the page",
        AuditVia::Command => "a command",
        _ => "the interface",
    };
    by.peer.as_ref().map_or_else(|| via.to_owned(), |peer| format!("{via}, {peer}"))
}

/// Shows one page of the audit trail. Fails unless the visitor is an administrator of the whole service.
pub(super) async fn show_audit(
    State(service): State<Service>,
    visitor: Visitor,
    Search(asked): Search<Query>,
) -> Result<Response, Fault> {
    Fault::unless(visitor.rules(), "The audit trail is shown to administrators of the whole service.")?;
    let cursor = Some(&*asked.cursor).filter(|cursor| !cursor.is_empty());
    let found = service.audit().entries(asked.wanted()?, cursor, ON_A_PAGE).await?;
    Ok(show(&AuditPage {
        frame: Frame::new(&visitor, "audit"),
        asked: &asked,
        rows: found.items,
        now: now(&service),
        first: cursor.map(|_| asked.address("")),
        next: found.next.map(|next| asked.address(&next)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_of_the_list_is_one_of_the_trail() {
        for action in ACTIONS {
            let asked = Query { action: action.to_owned(), ..Query::default() };
            assert!(asked.wanted().is_ok_and(|wanted| wanted.action.is_some()), "{action}");
        }
        let wrong = Query { action: "explode".to_owned(), ..Query::default() };
        assert!(wrong.wanted().is_err());
        let asked = Query { namespace: "a&b".to_owned(), ..Query::default() };
        assert_eq!(asked.address("1-7"), "/ui/audit?namespace=a%26b&cursor=1-7");
    }
}
