//! A turn of the service. The service has its own process with an HTTP listener. This process has the load and the
//! receiver.
//!
//! Each part of a turn has a new service, in a new folder or in a new schema of a PostgreSQL database.

mod daemon;
mod lean;
mod load;
mod receiver;

pub(crate) use daemon::{NAME, floor};

use crate::ours::{Chance, Deliveries, Failure, Noted, Numbers, Task, check, millis, now, per};
use crate::process;
use core::time::Duration;
use daemon::{AT_ONCE, Program};
use receiver::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use tourbillon_client::Client;

/// A running service, and a client of the service in this process.
struct Subject {
    program: Program,
    client: Client,
    /// The first process of the PostgreSQL server that has the timers, if one has them.
    server: Option<u32>,
}

impl Subject {
    fn start(task: &Task, part: &str) -> Result<Self, Failure> {
        let url = task.config.url.as_deref();
        let server = url.map(|_| task.config.server);
        let program = Program::service(&task.dir.join(part), url)?;
        let url = format!("http://{}", program.address);
        // The last batches of the first million timers wait long for the disk.
        let client = Client::builder(url).timeout(Duration::from_secs(60)).build()?;
        Ok(Self { program, client, server })
    }

    fn spent(&self) -> Spent {
        Spent::by(&self.program, self.server)
    }

    /// Fails unless exactly `pending` timers are pending. Fails if a delivery failed or a timer is dead.
    async fn check(&self, pending: usize) -> Result<(), Failure> {
        let stats = self.client.stats().await?;
        check(stats.pending == pending as u64, || {
            format!("{} of {pending} timers are pending", stats.pending)
        })?;
        check(stats.failed + stats.dead == 0, || {
            format!("{} deliveries failed, {} timers are dead", stats.failed, stats.dead)
        })
    }
}

/// Processor times, in seconds.
struct Spent {
    service: f64,
    /// The time of the PostgreSQL server that has the service's timers.
    server: Option<f64>,
    load: f64,
}

impl Spent {
    /// Returns the times that a program, a server and this process have spent.
    fn by(program: &Program, server: Option<u32>) -> Self {
        Self {
            service: process::cpu_seconds(program.pid()),
            server: server.map(process::family_cpu_seconds),
            load: process::cpu_seconds(std::process::id()),
        }
    }

    /// Adds the time of each operation since `before` to `numbers`, in microseconds.
    fn put(&self, numbers: &mut Numbers, part: &str, before: &Self, total: usize) {
        numbers.put(format!("{part}_cpu_us"), per((self.service - before.service) * 1e6, total));
        numbers.put(format!("{part}_load_cpu_us"), per((self.load - before.load) * 1e6, total));
        if let (Some(after), Some(before)) = (self.server, before.server) {
            numbers.put(format!("{part}_server_cpu_us"), per((after - before) * 1e6, total));
        }
    }
}

async fn create(task: &Task, numbers: &mut Numbers) -> Result<(), Failure> {
    let total = task.sizes.waiting;
    let chance = Arc::new(Mutex::new(Chance(1)));
    let far = move || chance.lock().unwrap_or_else(PoisonError::into_inner).far();
    let subject = Subject::start(task, "create")?;
    let before = subject.spent();
    let pace = load::waiting(subject.program.address, 64, total, far.clone()).await?;
    numbers.pace("waiting", &pace);
    subject.spent().put(numbers, "waiting", &before, total);
    subject.check(total).await?;
    drop(subject);
    let subject = Subject::start(task, "lean")?;
    // The requests are made beforehand, so the processor time counts from the first sent request.
    let (address, due) = (subject.program.address, far.clone());
    let before = subject.spent().service;
    let (pace, load_cpu) =
        tokio::task::spawn_blocking(move || lean::waiting(address, 64, total, due)).await??;
    numbers.pace("lean", &pace);
    numbers.put("lean_cpu_us", per((subject.spent().service - before) * 1e6, total));
    numbers.put("lean_load_cpu_us", per(load_cpu * 1e6, total));
    subject.check(total).await?;
    drop(subject);
    let floor = Program::floor()?;
    let before = Spent::by(&floor, None);
    let pace = load::waiting(floor.address, 64, total, far).await?;
    numbers.put("floor_rate", pace.rate);
    Spent::by(&floor, None).put(numbers, "floor", &before, total);
    Ok(())
}

/// Creates timers whose due moments `due` returns. Waits until all callbacks have arrived.
async fn callbacks(
    task: &Task,
    part: &str,
    total: usize,
    begin: f64,
    due: impl FnMut() -> u64,
    numbers: &mut Numbers,
) -> Result<Noted, Failure> {
    let deliveries = Deliveries::new(0, total);
    let subject = Subject::start(task, part)?;
    let receiver = Receiver::start(&deliveries).await?;
    load::fill(&subject.client, total, &format!("http://{}/", receiver.address), due).await?;
    check(now() < begin, || "the first timers were due before all were created".to_owned())?;
    let before = subject.spent();
    deliveries.end(Duration::from_secs(task.sizes.lead + task.sizes.seconds + 120)).await?;
    subject.spent().put(numbers, part, &before, total);
    // The last answers are still under way. If a timer had a second callback, it would also be under way.
    tokio::time::sleep(Duration::from_millis(500)).await;
    subject.check(0).await?;
    let most = receiver.most()?;
    check(most <= AT_ONCE, || format!("{most} callbacks at a time"))?;
    let noted = deliveries.take();
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    numbers.put(format!("{part}_doubled"), noted.doubled as f64);
    Ok(noted)
}

async fn herd(task: &Task, numbers: &mut Numbers) -> Result<(), Failure> {
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + task.sizes.lead as f64;
    let noted = callbacks(task, "herd", task.sizes.herd, due, || millis(due), numbers).await?;
    numbers.herd(&noted, due);
    Ok(())
}

async fn late(task: &Task, numbers: &mut Numbers) -> Result<(), Failure> {
    let sizes = &task.sizes;
    let total = sizes.rate * usize::try_from(sizes.seconds)?;
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let (begin, seconds) = (now() + sizes.lead as f64, sizes.seconds as f64);
    let mut chance = Chance(1);
    let due = || millis(begin + seconds * chance.part());
    let noted = callbacks(task, "late", total, begin, due, numbers).await?;
    numbers.late("late_", noted);
    Ok(())
}

async fn stock(task: &Task, numbers: &mut Numbers) -> Result<(), Failure> {
    let total = task.sizes.timers;
    let subject = Subject::start(task, "stock")?;
    let mut chance = Chance(1);
    load::fill(&subject.client, total, "http://127.0.0.1:1024/", || chance.far()).await?;
    subject.check(total).await?;
    tokio::time::sleep(Duration::from_secs(task.sizes.quiet)).await;
    numbers.put("stock_mb", process::resident(subject.program.pid()) / 1e6);
    numbers.put("stock_disk", per(process::disk(&task.dir.join("stock")), total));
    Ok(())
}

/// Runs all parts of the service's measurement, one after the other.
pub(crate) async fn run(task: &Task) -> Result<Numbers, Failure> {
    let mut numbers = Numbers::default();
    create(task, &mut numbers).await?;
    herd(task, &mut numbers).await?;
    late(task, &mut numbers).await?;
    if task.config.url.is_none() {
        stock(task, &mut numbers).await?;
    }
    Ok(numbers)
}
