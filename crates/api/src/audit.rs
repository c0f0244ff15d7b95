//! The audit trail: the changes that people and programs have made.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// An entry of the audit trail: a requested change and its outcome. It has no secrets and no payloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// The moment.
    pub at: Moment,
    /// The action.
    pub action: AuditAction,
    /// The outcome.
    pub outcome: AuditOutcome,
    /// The person or program that requested the change.
    pub by: AuditAuthor,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The changed object in it: the id of a timer, an operation or a token, the key of a schedule, or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number of timers that were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The change in detail, such as the label of timers or the new limits, or the reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The person or program that requested a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditAuthor {
    /// The way by which the request came.
    pub via: AuditVia,
    /// The name of the token. A session of the page has the token that began it. None if the service has no tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The id of the token, as `tourbillond token list` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// The system user who ran the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The address of the client. Behind a proxy it is the last address in `X-Forwarded-For`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The way by which the request for a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditVia {
    /// The HTTP interface.
    Api,
    /// The page in a browser.
    Page,
    /// A command of `tourbillond`.
    Command,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditOutcome {
    /// The change is in progress. An entry with the same action and target follows at its end.
    Begun,
    /// The change was made.
    Done,
    /// The change was not made, or not completely.
    Failed,
    /// It is not known whether the change was made.
    Unknown,
}

/// The action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditAction {
    /// A namespace was made, or its limits were set: paused, for example.
    SetNamespace,
    /// A namespace was removed.
    RemoveNamespace,
    /// A signing secret was made.
    MakeSecret,
    /// A token was made.
    MakeToken,
    /// A token was revoked.
    RevokeToken,
    /// Timers were cancelled by a label, or by the beginning of their keys.
    CancelMany,
    /// Dead timers were delivered again.
    ReplayMany,
    /// Occurrences of a schedule were made for instants that have passed.
    Backfill,
    /// More than one timer was cancelled by one batch.
    Batch,
    /// A timer was changed on the page. The detail says how.
    ChangeTimer,
    /// A schedule was changed on the page. The detail says how.
    ChangeSchedule,
    /// The breakers of a host were closed, and the timers that were parked for it were put back.
    ReopenHost,
    /// A backup was made.
    BackUp,
    /// A backup was restored.
    Restore,
    /// Lost shards were brought back, or damaged records were removed.
    Mend,
}
