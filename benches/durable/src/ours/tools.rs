//! Moments, keys and checks.

use super::{Failure, Task};
use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn key(n: usize) -> String {
    format!("t{n:015}")
}

/// Returns the present time in seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a moment of this century")]
pub(crate) fn millis(seconds: f64) -> u64 {
    (seconds * 1_000.0) as u64
}

pub(crate) fn check(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("the check failed: {}", message()).into()) }
}

/// The random generator `SplitMix64`. The same seed gives each measurement the same moments.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    #[expect(clippy::cast_precision_loss, reason = "32 bits")]
    pub(crate) fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as f64 / f64::from(u32::MAX)
    }

    /// Returns a random moment, 1 to 30 days from now.
    pub(crate) fn far(&mut self) -> u64 {
        millis(now() + 86_400.0 * (1.0 + 29.0 * self.part()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
pub(crate) fn per(amount: f64, count: usize) -> f64 {
    amount / count as f64
}

/// Asks the program that started this process for something, and returns its answer.
pub(crate) fn ask(question: &serde_json::Value) -> Result<BTreeMap<String, f64>, Failure> {
    println!("{question}");
    let mut line = String::new();
    let _bytes = std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Connects to the PostgreSQL server of a turn's store, as another program would.
pub(super) async fn connect(task: &Task) -> Result<tokio_postgres::Client, Failure> {
    let url = task.config.url.as_ref().ok_or("the store is not in PostgreSQL")?;
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    drop(tokio::spawn(connection));
    Ok(client)
}
