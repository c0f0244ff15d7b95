//! Moments, checks, processor time, and the questions to the book.

use crate::task::Failure;
use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// The figures of a turn.
pub(crate) type Numbers = BTreeMap<String, f64>;

/// Returns the present time in milliseconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

pub(crate) fn check(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("the check failed: {}", message()).into()) }
}

/// The random generator `SplitMix64`, as in the other programs of the book.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as f64 / f64::from(u32::MAX)
    }

    /// Returns a random moment, 1 to 30 days from now.
    pub(crate) fn far(&mut self) -> u64 {
        (now() + 86_400_000.0 * (1.0 + 29.0 * self.part())) as u64
    }
}

/// Returns a quantile of numbers in ascending order.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(((part * sorted.len() as f64) as usize).min(last)).copied().unwrap_or(f64::NAN)
}

/// The fields of a line of `/proc/PID/stat` behind the name of the program.
fn stat(pid: u32) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect()
}

/// Returns this process and the server with its sessions.
pub(crate) fn pids(server: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let sessions = pids.filter(|pid| stat(*pid).first() == Some(&u64::from(server)));
    sessions.chain([server, std::process::id()]).collect()
}

/// Returns the processor time in seconds of this process and of the server with its sessions, those that have ended
/// included.
pub(crate) fn cpu_seconds(server: u32) -> f64 {
    let ticks = |pid: u32| stat(pid).iter().skip(10).take(4).sum::<u64>();
    pids(server).into_iter().map(ticks).sum::<u64>() as f64 / 100.0
}

/// Asks the book for something, and returns its answer.
pub(crate) fn ask(question: &str) -> Result<Numbers, Failure> {
    ask_for(&serde_json::json!({ question: true }))
}

/// Asks the book a question that has a value.
pub(crate) fn ask_for(question: &serde_json::Value) -> Result<Numbers, Failure> {
    println!("{question}");
    let mut line = String::new();
    let _bytes = std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
