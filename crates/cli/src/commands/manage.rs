//! Runs the commands about namespaces, and the command that prints this program's settings.

use crate::config::Config;
use crate::exit::Failure;
use crate::output::{Output, or_none, plain, print};
use crate::parse::{self, Limit};
use clap::{Args, Subcommand};
use serde_json::json;
use std::io;
use tourbillon_client::Client;
use tourbillon_client::api::{LimitsPatch, NamespaceLimits, NamespaceView};

/// A command that shows or changes namespaces.
#[derive(Debug, Subcommand)]
pub(crate) enum Ns {
    /// List the namespaces
    List,
    /// Show a namespace
    Get {
        /// The namespace's name
        name: String,
    },
    /// Make a namespace, or change some of its limits
    Set(Box<Set>),
    /// Remove a namespace that has no timers
    Delete {
        /// The namespace's name
        name: String,
    },
    /// Make a new signing secret, which is shown only once
    RotateSecret {
        /// The namespace's name
        name: String,
    },
}

/// A namespace and the limits to change. Other limits stay unchanged.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The namespace's name
    name: String,
    /// The greatest number of stored timers, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse::limit::<u64>)]
    max_timers: Option<Limit<u64>>,
    /// The greatest number of timers made per second, or `none` for the service's limit
    #[arg(long, value_name = "NUMBER", value_parser = parse::limit::<u32>)]
    creations: Option<Limit<u32>>,
    /// The greatest number of schedules, or `none` for the service's limit
    #[arg(long, value_name = "NUMBER", value_parser = parse::limit::<u64>)]
    max_schedules: Option<Limit<u64>>,
    /// The greatest number of deliveries per second by each node, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse::limit::<u32>)]
    rate: Option<Limit<u32>>,
    /// The greatest number of concurrent deliveries by each node, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse::limit::<u32>)]
    concurrency: Option<Limit<u32>>,
    /// The greatest size of a delivery's body in bytes, or `none`
    #[arg(long, value_name = "BYTES", value_parser = parse::limit::<u32>)]
    max_body: Option<Limit<u32>>,
    /// The longest time until the due moment, or `none`
    #[arg(long, value_name = "DURATION", value_parser = parse::limit_millis)]
    max_delay: Option<Limit<u64>>,
    /// A host to which callbacks may go. A host that begins with `*.` includes its subdomains. The given hosts
    /// together replace the whole list
    #[arg(long, value_name = "HOST", conflicts_with = "allow_all_hosts")]
    allow_host: Vec<String>,
    /// Let callbacks go to all hosts
    #[arg(long)]
    allow_all_hosts: bool,
    /// Hold all deliveries of the namespace back. New timers are still accepted
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    /// Deliver the namespace's timers again after --pause
    #[arg(long)]
    resume: bool,
    /// Store the beginning of each HTTP answer to a callback, for debugging
    #[arg(long, conflicts_with = "drop_answers")]
    keep_answers: bool,
    /// Store only the status of each HTTP answer to a callback
    #[arg(long)]
    drop_answers: bool,
    /// Reset every limit of the namespace that no other flag sets. Without --replace, such a limit stays unchanged
    #[arg(long)]
    replace: bool,
}

/// Returns the change of a namespace's limits that the user's flags ask for.
fn patch(set: &Set) -> LimitsPatch {
    let flag = |is_set: bool, is_unset: bool| (is_set || is_unset).then_some(is_set);
    LimitsPatch {
        max_timers: set.max_timers.map(Limit::get),
        creations_per_second: set.creations.map(Limit::get),
        max_schedules: set.max_schedules.map(Limit::get),
        rate_per_second: set.rate.map(Limit::get),
        concurrency: set.concurrency.map(Limit::get),
        max_body_bytes: set.max_body.map(Limit::get),
        max_delay_ms: set.max_delay.map(Limit::get),
        allowed_hosts: (set.allow_all_hosts || !set.allow_host.is_empty()).then(|| set.allow_host.clone()),
        paused: flag(set.pause, set.resume),
        keep_answers: flag(set.keep_answers, set.drop_answers),
    }
}

/// Runs a command of `ns`, such as `list`, `set` or `delete`, which shows or changes namespaces.
pub(crate) async fn ns(ns: Ns, client: &Client, output: Output) -> Result<(), Failure> {
    match ns {
        Ns::List => {
            let all = client.namespaces().await?;
            output.list(&all, ["NAME", "PENDING", "LEASED", "PARKED", "DEAD", "PAUSED"], |view| {
                let paused = if view.limits.paused { "yes" } else { "" };
                let counts =
                    [view.pending, view.leased, view.parked, view.dead].map(|count| count.to_string());
                let [pending, leased, parked, dead] = counts;
                [view.name.clone(), pending, leased, parked, dead, paused.to_owned()]
            })?;
        }
        Ns::Get { name } => output.fields(&client.namespace(&name).view().await?, fields)?,
        Ns::Set(set) => {
            let namespace = client.namespace(&set.name);
            let patch = patch(&set);
            let view = if set.replace {
                namespace.set(&patch.apply(NamespaceLimits::default())).await?
            } else {
                namespace.patch(&patch).await?
            };
            output.fields(&view, fields)?;
        }
        Ns::Delete { name } => {
            client.namespace(&name).delete().await?;
            output.value(&json!({ "deleted": name }), |_| format!("deleted {}", plain(&name)))?;
        }
        Ns::RotateSecret { name } => {
            let secret = client.namespace(&name).rotate_secret().await?;
            output.value(&secret, |secret| match secret.former_until {
                Some(until) => format!("{}\nThe secrets before it sign too until {until}.", secret.secret),
                None => secret.secret.clone(),
            })?;
        }
    }
    Ok(())
}

fn fields(view: &NamespaceView) -> Vec<(&'static str, String)> {
    let limits = &view.limits;
    let mut fields = vec![
        ("name", view.name.clone()),
        ("pending", view.pending.to_string()),
        ("leased", view.leased.to_string()),
        ("parked", view.parked.to_string()),
        ("dead", view.dead.to_string()),
        ("schedules", view.schedules.to_string()),
        ("paused", if limits.paused { "yes".to_owned() } else { String::new() }),
        ("max timers", or_none(limits.max_timers)),
        ("max schedules", or_none(limits.max_schedules)),
        ("creations a second", or_none(limits.creations_per_second)),
        ("rate a second", or_none(limits.rate_per_second)),
        ("concurrency", or_none(limits.concurrency)),
        ("max body", or_none(limits.max_body_bytes)),
        ("max delay", or_none(limits.max_delay_ms.map(parse::short))),
        ("allowed hosts", limits.allowed_hosts.join(", ")),
    ];
    fields.extend(view.secrets.iter().map(|secret| {
        let until = secret.until.map_or_else(String::new, |until| format!(", signs until {until}"));
        ("secret", format!("made {}{until}", secret.made))
    }));
    fields
}

/// Prints the settings of this program. `tourbillond config` prints the settings of the service.
pub(crate) fn show_config(config: &Config, output: Output) -> io::Result<()> {
    let settings = config.settings();
    if output.is_json {
        return print(&serde_json::to_string(&settings)?);
    }
    output.list(&settings, ["SETTING", "VALUE", "ORIGIN"], |setting| {
        [setting.name.to_owned(), or_none(setting.value.as_ref()), setting.origin.clone()]
    })
}
