//! awa.

use crate::deliveries::Deliveries;
use crate::peer::{Payload, Peer};
use crate::task::{Config, Failure};
use awa::model::UniqueOpts;
use awa::{Client, InsertOpts, InsertParams, JobResult, QueueConfig};
use chrono::{DateTime, Utc};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Awa {
    pool: PgPool,
    client: Client,
}

/// The key of a timer is that of its arguments.
fn opts(payload: &Payload) -> Result<InsertOpts, Failure> {
    let at = DateTime::<Utc>::from_timestamp_millis(i64::try_from(payload.due)?).ok_or("no such moment")?;
    Ok(InsertOpts { run_at: Some(at), unique: Some(UniqueOpts::default()), ..InsertOpts::default() })
}

impl Awa {
    pub(crate) async fn open(config: &Config, deliveries: Arc<Deliveries>) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new().max_connections(64).connect(&config.url).await?;
        awa::migrations::run(&pool).await?;
        let poll_interval = Duration::from_millis(config.poll);
        let queue = QueueConfig { max_workers: 500, poll_interval, ..QueueConfig::default() };
        let client = Client::builder(pool.clone())
            .queue("default", queue)
            .promote_interval(poll_interval)
            // A leader is elected before the first job is due.
            .leader_election_interval(Duration::from_millis(500))
            .register::<Payload, _, _>(move |payload, _| {
                deliveries.note(&payload);
                std::future::ready(Ok(JobResult::Completed))
            })
            .build()?;
        Ok(Self { pool, client })
    }
}

impl Peer for Awa {
    async fn create(&self, payload: Payload) -> Result<(), Failure> {
        let opts = opts(&payload)?;
        let _row = awa::insert_with(&self.pool, &payload, opts).await?;
        Ok(())
    }

    async fn create_many(&self, payloads: Vec<Payload>) -> Result<(), Failure> {
        let params =
            payloads.iter().map(|payload| Ok(awa::model::insert::params_with(payload, opts(payload)?)?));
        let params = params.collect::<Result<Vec<InsertParams>, Failure>>()?;
        let _rows = awa::insert_many_copy_from_pool(&self.pool, &params).await?;
        Ok(())
    }

    async fn pending(&self) -> Result<usize, Failure> {
        let sql = "SELECT count(*) FROM awa.jobs WHERE state IN ('scheduled', 'available')";
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
        Ok(usize::try_from(count)?)
    }

    async fn consume(&self) -> Result<(), Failure> {
        Ok(self.client.start().await?)
    }

    async fn stop(&self) {
        self.client.shutdown(Duration::from_secs(5)).await;
    }
}
