//! The audit trail: the changes that people and programs have requested.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// An entry of the audit trail: a requested change and its outcome. It contains no secrets and no payloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// The moment at which the entry was made.
    pub at: Moment,
    /// The kind of the requested change.
    pub action: AuditAction,
    /// Whether the requested change was made.
    pub outcome: AuditOutcome,
    /// The person or program that requested the change.
    pub by: AuditAuthor,
    /// The namespace of the change, if it concerns a single namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The changed object: the id of a timer, operation or token, the key of a schedule, or the name of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number of timers that were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Details of the change, such as the label of the timers or the new limits, or the reason for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The person or program that requested a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditAuthor {
    /// The interface through which the request came.
    pub via: AuditVia,
    /// The name of the token with which the request was made. For the web page, it is the token with which the visitor
    /// signed in. None if the service has no tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The id of the token, as `tourbillond token list` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// The system user who ran the command, if a command made the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The address of the client. Behind a proxy, it is the last address in `X-Forwarded-For`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The interface through which the request for a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditVia {
    /// The HTTP interface.
    Api,
    /// The web page.
    Page,
    /// A command of `tourbillond`.
    Command,
}

/// The outcome of a requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditOutcome {
    /// The change is in progress. A second entry with the same action and target follows when the change ends.
    Begun,
    /// The change was made.
    Done,
    /// The change was not made, or not completely.
    Failed,
    /// It is not known whether the change was made.
    Unknown,
}

/// The kind of the change that an entry of the audit trail describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditAction {
    /// A namespace was made, or its limits were set. Pausing a namespace is such a change.
    SetNamespace,
    /// A namespace was removed.
    RemoveNamespace,
    /// A signing secret was made.
    MakeSecret,
    /// A token was made.
    MakeToken,
    /// A token was revoked.
    RevokeToken,
    /// Timers were cancelled by a label, or by a prefix of their keys.
    CancelMany,
    /// Dead timers were delivered again.
    ReplayMany,
    /// A schedule was backfilled: its timers were made for past moments that its plan names.
    Backfill,
    /// A single batch cancelled more than one timer.
    Batch,
    /// A timer was changed on the web page. The detail says how.
    ChangeTimer,
    /// A schedule was changed on the web page. The detail says how.
    ChangeSchedule,
    /// The circuit breakers of a host were closed, so that the timers that wait for the host are delivered.
    ReopenHost,
    /// A backup was made.
    BackUp,
    /// A backup was restored.
    Restore,
    /// Lost shards were restored, or damaged records were removed.
    Mend,
}
