//! A session of `psql` that stays open.

use std::io::Write;
use std::process::{Child, Stdio};
use tourbillon_fault::{Postgres, eventually};

/// A session of `psql` that a test sends statements. It ends at the first statement that fails.
pub(super) struct Psql(Option<Child>);

impl Psql {
    pub(super) fn new(server: &Postgres) -> Self {
        let mut command = server.psql("postgres");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().expect("psql starts")))
    }

    pub(super) fn send(&mut self, statements: &str) {
        let input = self.0.as_mut().and_then(|child| child.stdin.as_mut()).expect("it is piped");
        writeln!(input, "{statements}").expect("psql reads");
    }

    /// Ends the session after its statements. Returns the values of all rows, or the message of the server.
    pub(super) fn end(mut self) -> Result<String, String> {
        let answer = self.0.take().expect("it ends once").wait_with_output().expect("psql ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if answer.status.success() { Ok(text(&answer.stdout)) } else { Err(text(&answer.stderr)) }
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            let _ended = child.wait_with_output();
        }
    }
}

/// Waits until `count` sessions fulfil the condition.
pub(super) fn await_sessions(server: &Postgres, condition: &str, count: usize) {
    eventually("the sessions have come so far", || {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {condition}");
        server.sql(&sql) == count.to_string()
    });
}

/// Waits until `count` transactions of psql are open and idle. A transaction that has only begun does not count,
/// because psql sends the statements after `BEGIN` separately.
pub(super) fn await_idle(server: &Postgres, count: usize) {
    let condition = "application_name = 'psql' AND state = 'idle in transaction' AND xact_start IS NOT NULL
                     AND query NOT LIKE 'BEGIN%'";
    await_sessions(server, condition, count);
}
