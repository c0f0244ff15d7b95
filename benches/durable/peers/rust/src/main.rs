//! One turn of a peer that is written in Rust: `tourbillon-durable-peers '{"peer": ..., "sizes": {...}, ...}'`.
//!
//! The work and the dialogue with the book are those of `peers/run.mjs`. Prints a line of JSON with the figures. A
//! check that fails ends the turn with an error.

mod awa_peer;
mod deliveries;
mod peer;
mod river_peer;
mod task;
mod tools;
mod workloads;

use std::sync::Arc;
use task::{Failure, Task};

async fn run(task: Task) -> Result<tools::Numbers, Failure> {
    let deliveries = Arc::new(deliveries::Deliveries::default());
    match &*task.peer {
        "river" => {
            let peer = river_peer::River::open(&task.config, Arc::clone(&deliveries)).await?;
            workloads::run(&task, Arc::new(peer), deliveries).await
        }
        "awa" => {
            let peer = awa_peer::Awa::open(&task.config, Arc::clone(&deliveries)).await?;
            workloads::run(&task, Arc::new(peer), deliveries).await
        }
        other => Err(format!("no peer {other}").into()),
    }
}

fn main() -> Result<(), Failure> {
    let text = std::env::args().nth(1).ok_or("no task")?;
    let task: Task = serde_json::from_str(&text)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let numbers = runtime.block_on(run(task))?;
    println!("{}", serde_json::json!({ "numbers": numbers }));
    // The connections end with the process.
    std::process::exit(0);
}
