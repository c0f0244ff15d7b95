//! An order and its timeout of 30 days, in the database of a shop.
//!
//! - The order and its timeout are stored in one transaction.
//! - The payment marks the order and cancels the timeout in one transaction.
//! - The handler of the timeout closes the order and ends the timer in one transaction. If the handler has lost the
//!   timer, the transaction rolls back. So an order is closed once.
//!
//! The example runs on a manual clock, so the 30 days pass at once.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::{Delivery, Durable, Kind, Spec, Verdict};
use tourbillon_sqlite::rusqlite::{Connection, TransactionBehavior};
use tourbillon_sqlite::{SqliteStore, Transactional};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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
    path: PathBuf,
    timers: Transactional,
}

impl Shop {
    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    fn order(&self, order: i64) -> Result<()> {
        let mut connection = self.connect()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("INSERT INTO orders VALUES (?, 'open')", [order])?;
        let month = Duration::from_secs(30 * 86_400);
        let timeout = Spec::new(PaymentTimeout { order }).key(format!("order {order}")).after(month);
        self.timers.schedule(&transaction, timeout)?;
        transaction.commit()?;
        self.timers.wake();
        Ok(())
    }

    fn pay(&self, order: i64) -> Result<()> {
        let mut connection = self.connect()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("UPDATE orders SET state = 'paid' WHERE number = ?", [order])?;
        self.timers.cancel(&transaction, format!("order {order}").as_str())?;
        Ok(transaction.commit()?)
    }

    /// Closes an order that was not paid, and ends its timer.
    fn close(&self, timeout: &PaymentTimeout, delivery: &Delivery) -> Result<()> {
        let token = delivery.token;
        let mut connection = self.connect()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let sql = "UPDATE orders SET state = 'closed' WHERE number = ? AND state = 'open'";
        transaction.execute(sql, [timeout.order])?;
        self.timers.done(&transaction, delivery.id, token)?;
        Ok(transaction.commit()?)
    }

    fn state(&self, order: i64) -> Result<String> {
        let sql = "SELECT state FROM orders WHERE number = ?";
        Ok(self.connect()?.query_row(sql, [order], |row| row.get(0))?)
    }
}

fn run(path: &Path) -> Result<()> {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(1_800_000_000_000_000_000));
    let store = SqliteStore::builder().clock(clock.clone()).open(path)?;
    let shop = Shop { path: path.to_owned(), timers: store.transactional() };
    shop.connect()?.execute_batch("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT NOT NULL)")?;
    let (sender, closed) = channel();
    let closing = shop.clone();
    let handler = move |timeout: PaymentTimeout, delivery: Delivery| -> Verdict {
        let result = closing.close(&timeout, &delivery).map_err(|error| error.to_string());
        sender.send(timeout.order).expect("the example waits");
        result.into()
    };
    let _durable = Durable::builder(store).blocking_handler(handler).start()?;
    shop.order(17)?;
    shop.order(18)?;
    shop.pay(17)?;
    clock.advance(Duration::from_secs(31 * 86_400));
    assert_eq!(closed.recv_timeout(Duration::from_secs(20))?, 18);
    assert_eq!((shop.state(17)?, shop.state(18)?), ("paid".to_owned(), "closed".to_owned()));
    println!("order 17 was paid, and order 18 was closed after 30 days");
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(&folder.path().join("shop.db"))
}
