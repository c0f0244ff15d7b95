//! Transactions of a program that creates timers by `tourbillon.schedule`, beside its own writes.

use super::deliveries::{Deliveries, Payload};
use super::figures::Numbers;
use super::subject::Subject;
use super::tools::{Chance, check, connect, key, millis, now, per};
use super::{Failure, Task};
use crate::results::Samples;
use hdrhistogram::Histogram;
use std::time::Instant;
use tokio_postgres::{Client, Statement};

/// The number of articles. Two transactions seldom change the same row of this many.
const ARTICLES: u32 = 10_000;

const TABLES: &str = "
    CREATE TABLE article (id int PRIMARY KEY, price int NOT NULL, stock int NOT NULL);
    CREATE TABLE orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer int NOT NULL, article int NOT NULL,
        price int NOT NULL, placed timestamptz NOT NULL DEFAULT now()
    );";

/// The minutes until a timer is due: the time in which an order is paid. A timer that is due within an hour has an
/// entry in one index more than others.
const SOON: i32 = 30;
/// The same for a timer that is due in ten days.
const FAR: i32 = 14_400;

/// A connection of a shop. An order is one transaction: it reads the price of an article, inserts the order, and takes
/// the article from the stock. It may also create a timer, whose key has the number of the order.
struct Shop {
    client: Client,
    price: Statement,
    order: Statement,
    take: Statement,
    schedule: Statement,
    chance: Chance,
}

/// The times of transactions and of the calls that create timers in them, in nanoseconds.
#[derive(Clone)]
struct Times {
    orders: Histogram<u64>,
    calls: Histogram<u64>,
}

/// All counted blocks with timers, or all without.
struct Blocks {
    times: Times,
    /// The time of each block.
    seconds: Vec<f64>,
    /// The processor time of all blocks, in seconds, and their bytes of log.
    cpu: f64,
    log: f64,
}

/// The server as a whole, and a connection that asks it for figures.
struct Meter<'a> {
    client: Client,
    subject: &'a Subject,
}

fn nanos(since: Instant) -> Result<u64, Failure> {
    Ok(u64::try_from(since.elapsed().as_nanos())?)
}

fn median_ms(times: &Histogram<u64>) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let nanos = times.value_at_quantile(0.5) as f64;
    nanos / 1e6
}

impl Times {
    fn new() -> Result<Self, Failure> {
        Ok(Self { orders: Histogram::new(3)?, calls: Histogram::new(3)? })
    }
}

impl Blocks {
    fn new() -> Result<Self, Failure> {
        Ok(Self { times: Times::new()?, seconds: Vec::new(), cpu: 0.0, log: 0.0 })
    }
}

impl Shop {
    async fn open(task: &Task, seed: u64) -> Result<Self, Failure> {
        let client = connect(task).await?;
        let price = client.prepare("SELECT price FROM article WHERE id = $1").await?;
        let order = "INSERT INTO orders (customer, article, price) VALUES ($1, $2, $3) RETURNING id";
        let order = client.prepare(order).await?;
        let take = client.prepare("UPDATE article SET stock = stock - 1 WHERE id = $1").await?;
        let schedule =
            "SELECT tourbillon.schedule('t', payload => $1, key => $2, delay => make_interval(mins => $3))";
        let schedule = client.prepare(schedule).await?;
        Ok(Self { client, price, order, take, schedule, chance: Chance(seed) })
    }

    #[expect(clippy::cast_possible_truncation, reason = "below 10,000")]
    async fn order(&mut self, with_timer: bool, times: &mut Times) -> Result<(), Failure> {
        let mut any = || 1 + (self.chance.part() * f64::from(ARTICLES - 1)) as i32;
        let (customer, article) = (any(), any());
        let begin = Instant::now();
        let transaction = self.client.transaction().await?;
        let price: i32 = transaction.query_one(&self.price, &[&article]).await?.try_get(0)?;
        let id: i64 = transaction.query_one(&self.order, &[&customer, &article, &price]).await?.try_get(0)?;
        let taken = transaction.execute(&self.take, &[&article]).await?;
        if with_timer {
            let call = Instant::now();
            let (payload, key) = timer(usize::try_from(id)?)?;
            let _id = transaction.query_one(&self.schedule, &[&payload, &key, &SOON]).await?;
            times.calls.record(nanos(call)?)?;
        }
        transaction.commit().await?;
        times.orders.record(nanos(begin)?)?;
        check(taken == 1, || format!("article {article} is missing"))
    }

    /// Creates a timer in a transaction of its own.
    async fn create(&self, n: usize, minutes: i32) -> Result<(), Failure> {
        let (payload, key) = timer(n)?;
        let _id = self.client.query_one(&self.schedule, &[&payload, &key, &minutes]).await?;
        Ok(())
    }
}

/// Returns the payload and the key of a timer.
fn timer(n: usize) -> Result<(Vec<u8>, String), Failure> {
    Ok((serde_json::to_vec(&Payload::new(n, millis(now())))?, key(n)))
}

impl Meter<'_> {
    /// Returns the position in the server's log, in bytes.
    async fn log(&self) -> Result<f64, Failure> {
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8";
        Ok(self.client.query_one(sql, &[]).await?.try_get(0)?)
    }

    /// Returns the processor time of this process and of the server, in seconds.
    fn cpu(&self) -> f64 {
        self.subject.place.cpu_seconds()
    }
}

/// Makes `each` orders on each connection, on all at once.
async fn run_block(
    shops: &mut Vec<Shop>,
    each: usize,
    with_timer: bool,
    blocks: &mut Blocks,
    meter: &Meter<'_>,
) -> Result<(), Failure> {
    let (log, cpu, begin) = (meter.log().await?, meter.cpu(), Instant::now());
    let callers: Vec<_> = shops
        .drain(..)
        .map(|mut shop| {
            tokio::spawn(async move {
                let mut times = Times::new()?;
                for _ in 0..each {
                    shop.order(with_timer, &mut times).await?;
                }
                Ok::<_, Failure>((shop, times))
            })
        })
        .collect();
    for caller in callers {
        let (shop, times) = caller.await??;
        shops.push(shop);
        blocks.times.orders.add(times.orders)?;
        blocks.times.calls.add(times.calls)?;
    }
    blocks.seconds.push(begin.elapsed().as_secs_f64());
    blocks.cpu += meter.cpu() - cpu;
    blocks.log += meter.log().await? - log;
    Ok(())
}

/// Makes orders on all connections, in pairs of blocks: one block with timers, one without. They change places from
/// pair to pair, so that both have the same share of other work on the machine. Returns the number of orders with
/// timers.
async fn run_pairs(
    task: &Task,
    shops: &mut Vec<Shop>,
    meter: &Meter<'_>,
    name: &str,
    numbers: &mut Numbers,
) -> Result<usize, Failure> {
    let (pairs, each) = (task.sizes.pairs, task.sizes.each);
    let count = each * shops.len();
    for with_timer in [false, true] {
        // These blocks do not count: PostgreSQL plans statements, and fills its caches.
        run_block(shops, each, with_timer, &mut Blocks::new()?, meter).await?;
    }
    let (mut bare, mut timed) = (Blocks::new()?, Blocks::new()?);
    for pair in 0..pairs {
        for with_timer in [pair % 2 == 1, pair % 2 == 0] {
            let blocks = if with_timer { &mut timed } else { &mut bare };
            run_block(shops, each, with_timer, blocks, meter).await?;
        }
    }
    for (kind, blocks) in [("bare", &bare), ("timed", &timed)] {
        numbers.put(format!("{name}_{kind}_ms"), median_ms(&blocks.times.orders));
        let rate = 1.0 / per(blocks.seconds.iter().sum(), count * pairs);
        numbers.put(format!("{name}_{kind}_rate"), rate);
        numbers.put(format!("{name}_{kind}_cpu_us"), per(blocks.cpu * 1e6, count * pairs));
        numbers.put(format!("{name}_{kind}_wal"), per(blocks.log, count * pairs));
    }
    let ratios: Vec<f64> =
        timed.seconds.iter().zip(&bare.seconds).map(|(timed, bare)| timed / bare).collect();
    let ratio = Samples::new(&ratios).ok_or("no blocks")?.median();
    numbers.put(format!("{name}_more"), (ratio - 1.0) * 100.0);
    numbers.put(format!("{name}_call_ms"), median_ms(&timed.times.calls));
    numbers.put(format!("{name}_wal"), per(timed.log - bare.log, count * pairs));
    Ok((pairs + 1) * count)
}

/// Measures what a creation costs the transaction of a caller: its time and its bytes of log. Nothing is due during the
/// turn, and the store looks for due timers as it always does.
pub(crate) async fn run_caller(task: &Task) -> Result<Numbers, Failure> {
    let subject = Subject::start(task, &Deliveries::new(0, 0)).await?;
    let (sizes, mut numbers) = (&task.sizes, Numbers::default());
    let meter = Meter { client: connect(task).await?, subject: &subject };
    meter.client.batch_execute(TABLES).await?;
    let articles =
        format!("INSERT INTO article SELECT n, n % 100, 1000000 FROM generate_series(1, {ARTICLES}) n");
    meter.client.batch_execute(&format!("{articles}; ANALYZE article")).await?;
    let mut shops = vec![Shop::open(task, 1).await?];
    let mut orders = run_pairs(task, &mut shops, &meter, "one", &mut numbers).await?;
    for seed in 2..=u64::try_from(sizes.callers)? {
        shops.push(Shop::open(task, seed).await?);
    }
    orders += run_pairs(task, &mut shops, &meter, "many", &mut numbers).await?;
    let mut number = 2 * orders;
    for (name, minutes) in [("alone", SOON), ("far", FAR)] {
        let (before, mut times) = (meter.log().await?, Histogram::<u64>::new(3)?);
        for _ in 0..sizes.alone {
            number += 1;
            let begin = Instant::now();
            shops[0].create(number, minutes).await?;
            times.record(nanos(begin)?)?;
        }
        numbers.put(format!("{name}_wal"), per(meter.log().await? - before, sizes.alone));
        numbers.put(format!("{name}_ms"), median_ms(&times));
    }
    let stored: i64 = meter.client.query_one("SELECT count(*) FROM orders", &[]).await?.try_get(0)?;
    check(usize::try_from(stored)? == 2 * orders, || format!("{stored} of {} orders are there", 2 * orders))?;
    let (pending, wanted) = (subject.pending().await?, orders + 2 * sizes.alone);
    check(pending == wanted, || format!("{pending} of {wanted} timers are there"))?;
    subject.shutdown();
    Ok(numbers)
}
