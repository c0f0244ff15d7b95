//! Runs the commands that list or change many timers.

use super::operation;
use crate::exit::{Code, Failure};
use crate::output::{Output, or_none, plain, word};
use clap::{Args, Subcommand, ValueEnum};
use tourbillon_client::Namespace;
use tourbillon_client::api::{self, CancelResult, Moment, ReplayMany, Timer};

/// The conditions for the listed timers.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only timers in this phase
    #[arg(long, value_enum, value_name = "PHASE")]
    phase: Option<Phase>,
    /// Only timers with this label
    #[arg(short, long, value_name = "LABEL")]
    label: Option<String>,
    /// Only timers whose keys begin with this text
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Only timers that are due before this moment
    #[arg(long, value_name = "MOMENT")]
    due_before: Option<Moment>,
    /// Only timers that are due after this moment
    #[arg(long, value_name = "MOMENT")]
    due_after: Option<Moment>,
    /// Only timers that were made after this moment. If the moment is in the future, these are timers that were made
    /// while the service's clock was ahead of the true time
    #[arg(long, value_name = "MOMENT")]
    created_after: Option<Moment>,
    #[command(flatten)]
    length: Length,
}

/// How many timers a list prints.
#[derive(Debug, Args)]
pub(crate) struct Length {
    /// The greatest number of timers
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// List all timers
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Phase {
    /// The timer waits for its due moment
    Pending,
    /// The timer is being delivered
    Leased,
    /// The service holds the timer back, for example because its host is paused, or because no receiver fetches it
    Parked,
    /// The service gave up on the timer, and keeps it until it is replayed or dropped
    Dead,
}

impl From<Phase> for api::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Pending => Self::Pending,
            Phase::Leased => Self::Leased,
            Phase::Parked => Self::Parked,
            Phase::Dead => Self::Dead,
        }
    }
}

/// The greatest number of timers that the service returns in one page of a list.
const PAGE: u64 = 200;

/// Prints the timers of a list. With `--json`, prints each page of the list as soon as the page has arrived.
async fn show(
    list: tourbillon_client::List,
    Length { limit, all }: Length,
    output: Output,
    is_dead: bool,
) -> Result<(), Failure> {
    let mut rest = if all { u64::MAX } else { limit };
    let mut pages = list.page_size(u32::try_from(rest.min(PAGE)).unwrap_or(200)).pages();
    let mut timers: Vec<Timer> = Vec::new();
    let mut has_more = false;
    while rest > 0 && !has_more {
        let Some(mut page) = pages.next_page().await? else { break };
        if page.len() as u64 > rest {
            has_more = true;
            page.truncate(usize::try_from(rest).unwrap_or(usize::MAX));
        }
        rest -= page.len() as u64;
        if output.is_json {
            page.iter().try_for_each(|timer| output.json(timer))?;
        } else {
            timers.extend(page);
        }
    }
    if output.is_json {
        return Ok(());
    }
    if is_dead {
        output.list(&timers, ["ID", "KEY", "DEAD SINCE", "FAILURES", "LAST ERROR", "TARGET"], |timer| {
            let error = timer.last_error.as_ref().or(timer.reason.as_ref());
            [
                timer.id.clone(),
                or_none(timer.key.as_ref()),
                or_none(timer.dead_since),
                timer.failures.to_string(),
                or_none(error),
                target(timer),
            ]
        })?;
    } else {
        output.list(&timers, ["ID", "KEY", "PHASE", "DUE", "DELIVERIES", "LABELS", "TARGET"], |timer| {
            [
                timer.id.clone(),
                or_none(timer.key.as_ref()),
                word(&timer.phase),
                timer.due.to_string(),
                timer.deliveries.to_string(),
                timer.labels.join(", "),
                target(timer),
            ]
        })?;
    }
    if has_more || rest == 0 && pages.next_page().await?.is_some_and(|page| !page.is_empty()) {
        eprintln!("There are more timers; --all shows them.");
    }
    Ok(())
}

/// Returns the destination of a timer: the URL of its callback, or its queue.
fn target(timer: &Timer) -> String {
    match (&timer.callback, &timer.pull) {
        (Some(callback), _) => callback.url.clone(),
        (None, Some(pull)) => format!("queue {}", pull.queue),
        (None, None) => String::new(),
    }
}

/// Lists the timers that meet the conditions in the user's flags.
pub(crate) async fn list(list: List, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let mut wanted = timers.list();
    if let Some(phase) = list.phase {
        wanted = wanted.phase(phase.into());
    }
    if let Some(label) = list.label {
        wanted = wanted.label(label);
    }
    if let Some(prefix) = list.key_prefix {
        wanted = wanted.key_prefix(prefix);
    }
    if let Some(moment) = list.due_before {
        wanted = wanted.due_before(moment);
    }
    if let Some(moment) = list.due_after {
        wanted = wanted.due_after(moment);
    }
    if let Some(moment) = list.created_after {
        wanted = wanted.created_after(moment);
    }
    show(wanted, list.length, output, false).await
}

/// The timers to cancel.
#[derive(Debug, Args)]
pub(crate) struct CancelMany {
    #[command(flatten)]
    which: ByLabelOrKey,
    /// Do not wait until all timers are cancelled
    #[arg(long)]
    no_wait: bool,
}

/// A condition that selects timers. Exactly one of the flags must be given. clap adds every argument of this struct to
/// the group, so the struct must have no other arguments.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ByLabelOrKey {
    /// All timers with this label
    #[arg(short, long, value_name = "LABEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    label: Option<String>,
    /// All timers whose keys begin with this text
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key_prefix: Option<String>,
}

/// Makes the service cancel many timers in the background. Waits until all timers are cancelled, unless the user gives
/// `--no-wait`.
pub(crate) async fn cancel_many(many: CancelMany, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let ByLabelOrKey { label, key_prefix } = many.which;
    let operation = timers.cancel_many(&api::CancelMany { label, key_prefix }).await?;
    operation::show(operation, !many.no_wait, operation::Work::Cancel, timers, output).await
}

/// A command that lists, replays or drops dead timers, on which the service gave up.
#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List dead timers
    List {
        /// Only timers with this label
        #[arg(short, long, value_name = "LABEL")]
        label: Option<String>,
        #[command(flatten)]
        length: Length,
    },
    /// Deliver dead timers again, as if they were new
    Replay {
        /// The ids of the dead timers, or the keys that these timers had until they died
        #[arg(required = true, value_name = "ID or KEY")]
        names: Vec<String>,
    },
    /// Drop dead timers
    Drop {
        /// The ids of the dead timers, or the keys that these timers had until they died
        #[arg(required = true, value_name = "ID or KEY")]
        names: Vec<String>,
    },
    /// Deliver all dead timers again, as if they were new
    ReplayAll {
        /// Only timers with this label
        #[arg(short, long, value_name = "LABEL")]
        label: Option<String>,
        /// Do not wait until all timers are replayed
        #[arg(long)]
        no_wait: bool,
    },
}

/// Runs a command of `dead`: lists, replays or drops dead timers.
pub(crate) async fn dead(dead: Dead, timers: &Namespace, output: Output) -> Result<(), Failure> {
    match dead {
        Dead::List { label, length } => {
            let mut wanted = timers.list().phase(api::Phase::Dead);
            if let Some(label) = label {
                wanted = wanted.label(label);
            }
            show(wanted, length, output, true).await
        }
        Dead::Replay { names } => {
            for name in names {
                let id = id_of_dead(&name, timers).await?;
                let changed = timers.replay(&id).await?;
                output.value(&changed, |changed| format!("replayed {}", plain(&changed.id)))?;
            }
            Ok(())
        }
        Dead::Drop { names } => {
            for name in names {
                let id = id_of_dead(&name, timers).await?;
                drop_dead(&id, timers, output).await?;
            }
            Ok(())
        }
        Dead::ReplayAll { label, no_wait } => {
            let operation = timers.replay_many(&ReplayMany { label }).await?;
            operation::show(operation, !no_wait, operation::Work::Replay, timers, output).await
        }
    }
}

/// Returns whether a text has the form of a timer's id. A key could have the same form, but hardly any key does.
fn is_id(text: &str) -> bool {
    let is_permitted = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_permitted)
}

/// Returns the id of a dead timer. `name` is the timer's id or its former key. A timer gives up its key when it dies,
/// so several dead timers may have had the same key. In this case the function fails.
async fn id_of_dead(name: &str, timers: &Namespace) -> Result<String, Failure> {
    if is_id(name) {
        return Ok(name.to_owned());
    }
    let mut pages = timers.list().phase(api::Phase::Dead).key_prefix(name).page_size(200).pages();
    let mut ids = Vec::new();
    while let Some(page) = pages.next_page().await? {
        let are_meant = page.into_iter().filter(|timer| timer.key.as_deref() == Some(name));
        ids.extend(are_meant.map(|timer| timer.id));
    }
    match &ids[..] {
        [id] => Ok(id.clone()),
        [] => {
            let message = format!("no dead timer had the key {name:?}; `dead list` shows ids and keys");
            Err(Failure::new(Code::NotFound, message))
        }
        ids => {
            let message = format!("{} dead timers had the key {name:?}; name one by its id: ", ids.len());
            Err(Failure::new(Code::NotFulfilled, message + &ids[..ids.len().min(10)].join(", ")))
        }
    }
}

/// Removes a dead timer from the service. Fails if the timer is not dead.
async fn drop_dead(id: &str, timers: &Namespace, output: Output) -> Result<(), Failure> {
    let at = timers.id(id);
    let phase = at.get().await?.phase;
    if phase != api::Phase::Dead {
        let message = format!("the timer {id} is {} and stays", word(&phase));
        return Err(Failure::new(Code::NotFulfilled, message));
    }
    let dropped = at.cancel().await?;
    match dropped.result {
        CancelResult::NotFound => Err(Failure::new(Code::NotFound, format!("there is no timer {id}"))),
        _ => Ok(output.value(&dropped, |_| format!("dropped {}", plain(id)))?),
    }
}
