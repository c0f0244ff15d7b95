//! An order and its timeout of 30 days, in the PostgreSQL database of a shop, with sqlx.
//!
//! - The order and its timeout are stored in one transaction.
//! - The payment marks the order and cancels the timeout in one transaction.
//! - The handler of the timeout closes the order and ends the timer in one transaction. If the handler has lost the
//!   timer, the transaction rolls back. So an order is closed once.

use sqlx::PgPool;
use std::sync::mpsc::channel;
use std::time::Duration;
use tourbillon_durable::{Delivery, Due, Durable, Kind, Spec, Verdict};
use tourbillon_postgres::tourbillon_api::CancelResult;
use tourbillon_postgres::{Connect, PostgresStore, Transactional};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct PaymentTimeout {
    order: i64,
}

impl Kind for PaymentTimeout {
    const NAME: &'static str = "payment timeout";
}

/// The shop's own connections and the timers in the same database.
#[derive(Clone)]
struct Shop {
    pool: PgPool,
    timers: Transactional,
}

impl Shop {
    async fn order(&self, order: i64) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        let sql = "INSERT INTO orders (number, state) VALUES ($1, 'open')";
        sqlx::query(sql).bind(order).execute(&mut *transaction).await?;
        let month = Duration::from_secs(30 * 86_400);
        let timeout = Spec::new(PaymentTimeout { order }).key(format!("order {order}")).after(month);
        self.timers.schedule(&timeout)?.with_sqlx(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }

    async fn pay(&self, order: i64) -> Result<CancelResult> {
        let mut transaction = self.pool.begin().await?;
        let sql = "UPDATE orders SET state = 'paid' WHERE number = $1";
        sqlx::query(sql).bind(order).execute(&mut *transaction).await?;
        let cancel = self.timers.cancel(format!("order {order}").as_str())?;
        let cancelled = cancel.with_sqlx(&mut transaction).await?;
        transaction.commit().await?;
        Ok(cancelled)
    }

    /// Closes an order that was not paid, and ends its timer.
    async fn close(&self, timeout: &PaymentTimeout, delivery: &Delivery) -> Result<()> {
        let token = delivery.token;
        let mut transaction = self.pool.begin().await?;
        let sql = "UPDATE orders SET state = 'closed' WHERE number = $1 AND state = 'open'";
        sqlx::query(sql).bind(timeout.order).execute(&mut *transaction).await?;
        self.timers.done(delivery.id, token).with_sqlx(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// Makes the timeout of an order due now.
    async fn hurry(&self, order: i64) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        let now = self.timers.move_to(format!("order {order}").as_str(), Due::After(Duration::ZERO))?;
        now.with_sqlx(&mut connection).await?;
        self.timers.wake();
        Ok(())
    }

    async fn state(&self, order: i64) -> Result<String> {
        let sql = "SELECT state FROM orders WHERE number = $1";
        Ok(sqlx::query_scalar(sql).bind(order).fetch_one(&self.pool).await?)
    }
}

/// Runs the shop on the database with this URL.
pub(crate) fn run(url: &str) -> Result<()> {
    // sqlx needs a runtime of tokio. The timers do not.
    let tokio = tokio::runtime::Runtime::new()?;
    let store = pollster::block_on(PostgresStore::builder().open(&Connect::to(url)?))?;
    let shop = Shop { pool: tokio.block_on(PgPool::connect(url))?, timers: store.transactional() };
    let table = "CREATE TABLE IF NOT EXISTS orders (number bigint PRIMARY KEY, state text NOT NULL)";
    tokio.block_on(sqlx::query(table).execute(&shop.pool))?;
    let (sender, closed) = channel();
    let (closing, runtime) = (shop.clone(), tokio.handle().clone());
    let handler = move |timeout: PaymentTimeout, delivery: Delivery| -> Verdict {
        let result = runtime.block_on(closing.close(&timeout, &delivery)).map_err(|error| error.to_string());
        let _nobody_waits = sender.send(timeout.order);
        result.into()
    };
    let durable = Durable::builder(store).blocking_handler(handler).start()?;
    tokio.block_on(shop.order(17))?;
    tokio.block_on(shop.order(18))?;
    assert_eq!(tokio.block_on(shop.pay(17))?, CancelResult::Cancelled);
    tokio.block_on(shop.hurry(18))?;
    assert_eq!(closed.recv_timeout(Duration::from_secs(60))?, 18);
    assert_eq!(tokio.block_on(shop.state(17))?, "paid");
    assert_eq!(tokio.block_on(shop.state(18))?, "closed");
    let _numbers = durable.shutdown(Duration::from_secs(10));
    Ok(())
}
