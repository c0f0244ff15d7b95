//! Errors and edges: the engine at its limits, in unusual places and at the wrong time. There is a file for each theme.

#[path = "../support/mod.rs"]
mod support;

mod building;
mod clocks;
mod deadlines;
mod full;
mod inside;
mod jobs;
mod sessions;
mod shutdown;
mod threads;
mod together;
mod waiting;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Job, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

fn at(since_origin: Duration) -> Timestamp {
    Timestamp::ZERO + since_origin
}

/// A payload whose drop calls a function.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl OnDrop {
    fn new(f: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(f)))
    }

    fn nothing() -> Self {
        Self(None)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Returns an engine builder for each way to run handlers. Each engine has at most two threads for handlers.
fn every_dispatch() -> Vec<Builder> {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || queue.into_iter().for_each(Job::run));
    let ways = vec![
        Builder::new().workers(2),
        Builder::new().inline(),
        #[cfg(feature = "rayon")]
        Builder::new().rayon_pool(rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap().into()),
        Builder::new().executor(move |job| jobs.send(job).unwrap()),
    ];
    ways.into_iter().map(|builder| builder.shards(2)).collect()
}
