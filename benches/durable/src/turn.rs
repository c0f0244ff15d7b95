//! A turn in a process of its own: the measurement of one case, of the library or of the service.

use crate::ours::{Task, caller, workloads};
use crate::service;
use std::error::Error;
use tokio::runtime::Runtime;

/// Runs the measurement that `task` describes, and prints its figures as a line of JSON.
pub(crate) fn run(task: &str) -> Result<(), Box<dyn Error>> {
    let task: Task = serde_json::from_str(task)?;
    let runtime = Runtime::new()?;
    let workload = async {
        match &*task.workload {
            "create" => workloads::run_create(&task).await,
            "late" => workloads::run_late(&task).await,
            "herd" => workloads::run_herd(&task).await,
            "foreign" => workloads::run_foreign(&task).await,
            "held" => workloads::run_held(&task).await,
            "caller" => caller::run_caller(&task).await,
            // The turn kills the server of the store, in place of the program that kills a turn with a file.
            "stock" if task.config.url.is_some() => workloads::run_stock_on_server(&task).await,
            "stock" => workloads::run_stock(&task).await,
            "recover" => workloads::run_recover(&task).await,
            "service" if task.config.service => service::run(&task).await,
            "service" => workloads::run_beside_service(&task).await,
            other => Err(format!("no workload {other}").into()),
        }
    };
    let numbers = runtime.block_on(workload).map_err(|error| -> Box<dyn Error> { error })?;
    println!("{}", serde_json::to_string(&numbers.0)?);
    Ok(())
}
