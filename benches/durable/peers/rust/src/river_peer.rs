//! River for Rust.

use crate::deliveries::Deliveries;
use crate::peer::{Payload, Peer};
use crate::task::{Config, Failure};
use riverqueue::jiff::Timestamp;
use riverqueue::migrate::PostgresMigrator;
use riverqueue::sqlx::PgPool;
use riverqueue::sqlx::postgres::PgPoolOptions;
use riverqueue::{
    Client, InsertOpts, Job, JobState, MaintenanceConfig, QueueConfig, RunHandle, UniqueOpts, WorkContext,
    WorkOutcome, Workers,
};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;

pub(crate) struct River {
    pool: PgPool,
    client: Client,
    running: Mutex<Option<RunHandle>>,
    /// The ids of the jobs by the numbers of their timers. River cancels a job by its id.
    ids: std::sync::Mutex<HashMap<usize, i64>>,
}

/// The key of a timer is that of its arguments.
fn opts(payload: &Payload) -> Result<InsertOpts, Failure> {
    let at = Timestamp::from_millisecond(i64::try_from(payload.due)?)?;
    let unique = UniqueOpts::new().with_by_args(true);
    Ok(InsertOpts::default().with_scheduled_at(at).with_unique(unique))
}

impl River {
    pub(crate) async fn open(config: &Config, deliveries: Arc<Deliveries>) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new().max_connections(64).connect(&config.url).await?;
        PostgresMigrator::new(pool.clone()).migrate_up().await?;
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, job: Job<Payload>| {
            deliveries.note(&job.args);
            std::future::ready(Ok::<_, Failure>(WorkOutcome::Complete))
        })?;
        let poll = Duration::from_millis(config.poll);
        let queue = QueueConfig::new(1_000).with_fetch_poll_interval(poll);
        // Jobs that are due within this time become available, and the workers look for those that are due. The short
        // election has a leader elected before the first job is due.
        let maintenance = MaintenanceConfig::default()
            .with_scheduler_interval(Duration::from_secs(1))
            .with_elect_interval(Duration::from_millis(500));
        let client = Client::builder(pool.clone())
            .workers(workers)
            .queue("default", queue)
            .fetch_cooldown(Duration::from_millis(10).min(poll))
            .maintenance(maintenance)
            .build()?;
        Ok(Self { pool, client, running: Mutex::default(), ids: std::sync::Mutex::default() })
    }

    fn note(&self, job: &Job<Payload>) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(job.args.n, job.row.id);
    }
}

impl Peer for River {
    async fn create(&self, payload: Payload) -> Result<(), Failure> {
        let opts = opts(&payload)?;
        self.note(&self.client.insert(payload).opts(opts).await?.job);
        Ok(())
    }

    async fn create_many(&self, payloads: Vec<Payload>) -> Result<(), Failure> {
        let jobs = payloads.into_iter().map(|payload| Ok((payload.clone(), opts(&payload)?)));
        let jobs = jobs.collect::<Result<Vec<_>, Failure>>()?;
        self.client.insert_many(jobs).await?.iter().for_each(|inserted| self.note(&inserted.job));
        Ok(())
    }

    async fn cancel(&self, n: usize) -> Result<bool, Failure> {
        let id = self.ids.lock().unwrap_or_else(PoisonError::into_inner).get(&n).copied();
        let row = self.client.jobs().cancel(id.ok_or("no such timer")?).await?;
        Ok(row.state == JobState::Cancelled)
    }

    async fn pending(&self) -> Result<usize, Failure> {
        let sql = "SELECT count(*) FROM river_job WHERE state IN ('scheduled', 'available')";
        let count: i64 = riverqueue::sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
        Ok(usize::try_from(count)?)
    }

    async fn consume(&self) -> Result<(), Failure> {
        *self.running.lock().await = Some(self.client.start()?);
        Ok(())
    }

    async fn stop(&self) {
        if let Some(mut running) = self.running.lock().await.take() {
            let _ended = running.stop().await;
        }
    }
}
