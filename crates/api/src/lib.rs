#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod audit;
mod batch;
mod claim;
mod endpoint;
mod event;
mod history;
mod json;
mod moment;
mod namespace;
mod node;
mod operation;
mod page;
mod past;
mod policy;
mod problem;
mod queue;
mod report;
mod schedule;
mod shape;
mod timer;

pub use audit::{AuditAction, AuditAuthor, AuditEntry, AuditOutcome, AuditVia};
pub use batch::{Batch, BatchAnswer, BatchResult, Change};
pub use claim::{AckAnswer, AckResult, Acks, Claim, ClaimRequest, Claims, Nack, Renewed};
pub use endpoint::{Breaker, Endpoint, OpenBreaker};
pub use event::{Event, EventKind};
pub use history::{History, HistoryPoint, Horizon, HorizonBucket, LatenessBySecond, SecondLateness};
pub use json::RawJson;
pub use moment::Moment;
pub use namespace::{LimitsPatch, NamespaceLimits, NamespaceView, NewSecret, Role, SecretView};
pub use node::{Node, Nodes, Shard};
pub use operation::{CancelMany, Operation, OperationState, ReplayMany};
pub use page::Page;
pub use past::{AttemptOutcome, EndKind, Past, PastAttempt, PastEnd, RepeatCause};
pub use policy::{Backoff, Policy};
pub use problem::{FieldFault, Problem, ProblemKind};
pub use queue::QueueView;
pub use report::{HostView, Readiness, ServiceStats};
pub use schedule::{
    Backfill, ClockChange, Gap, Monthly, NewSchedule, Occurrence, Preview, Removed, SchedulePatch,
    ScheduleState, ScheduleView, ShortMonth, Triggered,
};
pub use timer::{
    Callback, CancelResult, Cancelled, Changed, Delay, IfPresent, Kept, NewTimer, PlaceOutcome, Placed, Pull,
    Replaced, Timer,
};
pub use tourbillon_words::{Guarantee, InvalidMoment, Missed, Overlap, Phase};
