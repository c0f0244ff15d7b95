//! Sessions in a map whose entries expire: a day of a site with a few visitors, on a clock that is moved by hand.
//!
//! A visitor logs in, clicks some pages and goes. Only every second visitor logs out. Each click keeps the session for
//! another half hour. When that time has passed, the listener gets the session.
//!
//! `cargo run -p tourbillon-tasks --example session_cache`
#![expect(clippy::print_stdout, reason = "the summary is for whoever runs this program")]

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tourbillon_tasks::DrivenTasks;
use tourbillon_tasks::uses::Lifetime;

const VISITORS: u64 = 1_000;
const MINUTE: Duration = Duration::from_secs(60);

/// The site's data about a visitor.
struct Session {
    visitor: u64,
    clicks: AtomicU64,
}

/// Counts of sessions by the way in which they ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) logins: u64,
    pub(crate) clicks: u64,
    pub(crate) logouts: u64,
    pub(crate) expired: u64,
    /// The number of clicks by visitors whose sessions had expired.
    pub(crate) too_late: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run()?);
    Ok(())
}

pub(crate) fn run() -> Result<Summary, Box<dyn Error>> {
    let mut tasks = DrivenTasks::new()?;
    let (ended, log) = mpsc::channel();
    let sessions = tasks.handle().expiry_map_with_listener(
        Lifetime::of(30 * MINUTE).refreshed_on_access(),
        move |_token: String, session: Arc<Session>| ended.send(session).unwrap_or_default(),
    );
    let mut summary = Summary::default();
    for minute in 0..24 * 60 {
        for visitor in 0..VISITORS {
            let token = format!("token of {visitor}");
            // Each visitor comes at a minute of his own and clicks every few minutes. Visitors with odd numbers log
            // out.
            let Some(since) = (minute + 1_440 - visitor).checked_sub(1_440) else { continue };
            let (pace, last) = (1 + visitor % 10, 10 * (1 + visitor % 10));
            match since {
                0 => {
                    let session = Session { visitor, clicks: AtomicU64::new(0) };
                    sessions.insert(token, Arc::new(session))?;
                    summary.logins += 1;
                }
                _ if since == last && visitor % 2 == 1 => {
                    summary.logouts += u64::from(sessions.remove(&token).is_some());
                }
                _ if since <= last && since % pace == 0 => {
                    let session = sessions.get(&token).ok_or("a session that clicks has gone")?;
                    session.clicks.fetch_add(1, Ordering::Relaxed);
                    summary.clicks += 1;
                }
                // Some visitors come back after an hour, and have to log in again.
                _ if since == last + 60 => summary.too_late += u64::from(!sessions.contains(&token)),
                _ => {}
            }
        }
        tasks.advance(MINUTE);
    }
    tasks.advance(30 * MINUTE);
    for session in log.try_iter() {
        // The listener is not called for visitors who logged out.
        assert!(session.visitor % 2 == 0 && session.clicks.load(Ordering::Relaxed) > 0);
        summary.expired += 1;
    }
    Ok(summary)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logins, clicks, logouts, expired, too_late } = self;
        write!(
            f,
            "{logins} logins, {clicks} clicks; {logouts} logged out, {expired} expired, {too_late} came back too late"
        )
    }
}
