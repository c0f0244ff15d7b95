//! Runs the command that lists the nodes that share the timers, or the shards that the nodes deliver.

use crate::exit::Failure;
use crate::output::{Output, or_none, print};
use crate::parse;
use clap::Args;
use std::collections::HashMap;
use tourbillon_client::Client;
use tourbillon_client::api::{Moment, Node, Nodes, Shard};

/// Whether to list the nodes of the service, or the shards, into which its timers are divided.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// List the shards, into which the timers are divided, each with the node that delivers its timers
    #[arg(long)]
    shards: bool,
}

/// Prints the nodes that share the timers. With the flag `--shards`, prints instead the shards, into which the timers
/// are divided, each with the node that delivers its timers.
pub(crate) async fn nodes(which: Which, client: &Client, output: Output) -> Result<(), Failure> {
    let all = client.nodes().await?;
    if output.is_json {
        return Ok(output.json(&all)?);
    }
    if !all.shared {
        return Ok(print("The service has its timers in a file of its own, and shares them with no node.")?);
    }
    if which.shards {
        let names: HashMap<_, _> = all.nodes.iter().map(|node| (&*node.incarnation, &*node.name)).collect();
        let columns =
            ["SHARD", "NODE", "INCARNATION", "OVERDUE", "POLLED", "OWNERS", "TAKEOVERS", "LAST TAKEOVER"];
        return Ok(output.list(&all.shards, columns, |shard| shard_row(shard, &names))?);
    }
    let columns = ["NODE", "INCARNATION", "VERSION", "STATE", "SHARDS", "OVERDUE", "SINCE", "LAST SIGN"];
    Ok(output.list(&all.nodes, columns, |node| node_row(node, &all))?)
}

fn ago(at: Moment, now: Moment) -> String {
    format!("{} ago", parse::short(now.as_millis().saturating_sub(at.as_millis())))
}

fn node_row(node: &Node, all: &Nodes) -> [String; 8] {
    let own = all.shards.iter().filter(|shard| shard.owner.as_ref() == Some(&node.incarnation));
    let state = match (node.live, node.this) {
        (false, _) => "gone",
        (true, true) => "live, answers",
        (true, false) => "live",
    };
    [
        node.name.clone(),
        node.incarnation.clone(),
        node.version.clone(),
        state.to_owned(),
        node.shards.to_string(),
        match own.clone().any(|shard| shard.silent) {
            true => "unknown".to_owned(),
            false => parse::short(own.map(|shard| shard.overdue_ms).max().unwrap_or(0)),
        },
        node.since.to_string(),
        ago(node.seen, all.now),
    ]
}

fn shard_row(shard: &Shard, names: &HashMap<&str, &str>) -> [String; 8] {
    let owner = shard.owner.as_deref();
    [
        shard.number.to_string(),
        owner.map_or("none", |owner| names.get(owner).copied().unwrap_or("unknown")).to_owned(),
        owner.unwrap_or_default().to_owned(),
        match shard {
            shard if shard.lost => "lost".to_owned(),
            shard if shard.silent => "unknown".to_owned(),
            shard => parse::short(shard.overdue_ms),
        },
        or_none(shard.polled_ms_ago.map(|age| format!("{} ago", parse::short(age)))),
        shard.epoch.to_string(),
        shard.takeovers.to_string(),
        or_none(shard.taken_over),
    ]
}
