//! The audit trail: who has changed what.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// An entry of the audit trail: a change that somebody asked for, and what became of it. It has no secrets and no
/// payloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// The moment.
    pub at: Moment,
    /// What was done.
    pub action: AuditAction,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// The person or program that has asked for it.
    pub by: AuditAuthor,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What was changed in it: the id of a timer, an operation or a token, the key of a schedule, a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number of timers that were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The change in detail, such as the label of timers or the new limits, or the reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The person or program that has asked for a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditAuthor {
    /// The way by which the change was asked for.
    pub via: AuditVia,
    /// The name of the token; of a page's session, the name of the token that began it. None if the service has no
    /// tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The id of the token, as `tourbillond token list` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// The user of the system who has run a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The address of the client. Behind a proxy it is the one that the proxy names last in `X-Forwarded-For`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The way by which a change was asked for.
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

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AuditOutcome {
    /// It goes on. An entry with the same action and target follows at its end.
    Begun,
    /// It was made.
    Done,
    /// It was not made, or not to its end.
    Failed,
    /// Whether it was made is not known.
    Unknown,
}

/// What was done.
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
    /// The page has changed a timer: the detail says how.
    ChangeTimer,
    /// The page has changed a schedule: the detail says how.
    ChangeSchedule,
    /// The breakers of a host were closed, and what was parked for it was put back.
    ReopenHost,
    /// A backup was made.
    BackUp,
    /// A backup was restored.
    Restore,
    /// Lost shards were brought back, or damaged records were removed.
    Mend,
}
