//! The store of a turn, the runtimes on the store, and the processes whose time and memory count.

use super::deliveries::{Deliveries, Payload};
use super::{Failure, Task};
use crate::process;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, RedbStore, TimerStore};
use tourbillon_durable::{Durable, Timers};
use tourbillon_fault::Server;
use tourbillon_postgres::PostgresStore;
use tourbillon_redis::{Connect, RedisStore};
use tourbillon_sqlite::SqliteStore;

/// An open store with a runtime. A shared server may have several runtimes.
pub(super) struct Subject {
    pub(super) place: Place,
    durable: Durable,
    others: Vec<Durable>,
    pub(super) durability: Durability,
}

/// The file or the server in which a store keeps its timers.
pub(super) enum Place {
    File(Arc<RedbStore>),
    Sqlite,
    Server(Server),
    /// A PostgreSQL server that the book has started.
    Postgres(Database),
}

/// A database on a PostgreSQL server.
pub(super) struct Database {
    url: String,
    /// The first process of the server.
    server: u32,
    /// Whether stores in the database listen for notifications.
    listens: bool,
}

impl Database {
    async fn open(&self) -> Result<Arc<dyn TimerStore>, Failure> {
        let connect = tourbillon_postgres::Connect::to(&self.url)?;
        Ok(Arc::new(PostgresStore::builder().listen(self.listens).open(&connect).await?))
    }
}

impl Place {
    /// Opens the store of a task. A store in a file may already exist.
    async fn open(task: &Task) -> Result<(Self, Arc<dyn TimerStore>), Failure> {
        if let Some(url) = &task.config.url {
            let (server, listens) = (task.config.server, task.config.listens);
            let database = Database { url: url.clone(), server, listens };
            let store = database.open().await?;
            return Ok((Self::Postgres(database), store));
        }
        if task.config.sqlite {
            return Ok((Self::Sqlite, Arc::new(SqliteStore::open(task.dir.join("timers.db"))?)));
        }
        let Some(appendfsync) = &task.config.appendfsync else {
            let store = Arc::new(RedbStore::open(task.dir.join("timers.redb"))?);
            return Ok((Self::File(Arc::clone(&store)), store));
        };
        // The server's folder is on the disk that the rounds measure.
        let _only_once = tempfile::env::override_temp_dir(&task.dir);
        let server = Server::start(&["--appendonly", "yes", "--appendfsync", appendfsync]);
        let server = server.ok_or("there is no redis-server")?;
        let place = Self::Server(server);
        let store = place.open_again().await?;
        Ok((place, store))
    }

    /// Opens the store of a server once more, as another process would. Fails for a store in a file.
    async fn open_again(&self) -> Result<Arc<dyn TimerStore>, Failure> {
        match self {
            Self::File(_) | Self::Sqlite => Err("a file has one process".into()),
            Self::Postgres(database) => database.open().await,
            Self::Server(server) => {
                let connect = Connect::single(&server.url())?;
                Ok(Arc::new(RedisStore::builder("bench").open(&connect).await?))
            }
        }
    }

    /// Returns the processor time of this process and of the server, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        process::cpu_seconds(std::process::id()) + self.server_cpu_seconds().unwrap_or(0.0)
    }

    /// Returns the server's processor time, in seconds. `None` for a store in a file.
    pub(super) fn server_cpu_seconds(&self) -> Option<f64> {
        match self {
            Self::File(_) | Self::Sqlite => None,
            Self::Server(server) => Some(process::cpu_seconds(server.pid())),
            Self::Postgres(database) => Some(process::family_cpu_seconds(database.server)),
        }
    }

    /// Returns the resident memory of the server, in bytes. If the store is in a file, returns the resident memory of
    /// this process.
    pub(super) fn ram(&self) -> f64 {
        match self {
            Self::File(_) | Self::Sqlite => process::ram(),
            Self::Server(server) => process::ram_of(server.pid()),
            Self::Postgres(database) => sum(database.server, process::ram_of),
        }
    }

    pub(super) fn peak(&self) -> f64 {
        match self {
            Self::File(_) | Self::Sqlite => process::peak(),
            Self::Server(server) => process::peak_of(server.pid()),
            Self::Postgres(database) => sum(database.server, process::peak_of),
        }
    }

    /// Returns whether the book has started the server, and answers questions about it.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }
}

/// Returns the sum of a figure of a server's processes. A process that has just ended has no figure.
fn sum(server: u32, figure: fn(u32) -> f64) -> f64 {
    process::family(server).into_iter().map(figure).filter(|figure| figure.is_finite()).sum()
}

impl Subject {
    pub(super) async fn start(task: &Task, deliveries: &Arc<Deliveries>) -> Result<Self, Failure> {
        let start = |store| {
            let deliveries = Arc::clone(deliveries);
            let runtime = tokio::runtime::Handle::current();
            Durable::builder_on(store)
                .handler(move |payload: Payload, _| {
                    deliveries.note(&payload);
                    core::future::ready(())
                })
                .executor(move |work| drop(runtime.spawn(work)))
                .end_durability(durability(&task.config.ends))
                .catch_up_rate(None)
                .start()
        };
        let (place, store) = Place::open(task).await?;
        let durable = start(store)?;
        let mut others = Vec::new();
        for _ in 1..task.sizes.nodes {
            others.push(start(place.open_again().await?)?);
        }
        Ok(Self { place, durable, others, durability: durability(&task.config.durability) })
    }

    pub(super) fn shutdown(self) {
        for durable in self.others.into_iter().chain([self.durable]) {
            let _stats = durable.shutdown(Duration::from_secs(10));
        }
    }

    pub(super) fn timers(&self) -> Timers {
        self.durable.handle().clone()
    }

    pub(super) async fn pending(&self) -> Result<usize, Failure> {
        Ok(usize::try_from(self.timers().counts().await?.of(Phase::Pending))?)
    }
}

fn durability(name: &str) -> Durability {
    match name {
        "power" => Durability::PowerLoss,
        "process" => Durability::ProcessCrash,
        _ => Durability::Volatile,
    }
}
