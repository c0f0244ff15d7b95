//! The PostgreSQL server of a case. Each turn has a database of its own on it. The turn asks this program for figures
//! of the server, and for events that a contestant cannot cause by itself.

use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;
use tourbillon_fault::Postgres;

/// The database of a turn.
const DATABASE: &str = "turn";

type Figures = BTreeMap<&'static str, f64>;

/// The server, and the session that holds a snapshot in the database of the turn.
pub(crate) struct Host {
    server: Postgres,
    holder: Option<Child>,
}

impl Host {
    /// Starts a server with its files in `data`. It synchronises its files, as by default.
    pub(crate) fn start(data: &Path) -> Result<Self, Box<dyn Error>> {
        // A second case finds the folder set.
        let _is_set = tempfile::env::override_temp_dir(data);
        let server = Postgres::start(&["fsync=on"]).ok_or("there is no PostgreSQL")?;
        Ok(Self { server, holder: None })
    }

    /// Makes an empty database. The pages that earlier turns have changed are written before.
    pub(crate) fn begin_turn(&self) {
        let drop_old = format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)");
        for statement in [drop_old, "CHECKPOINT".to_owned(), format!("CREATE DATABASE {DATABASE}")] {
            let _answer = self.server.sql(&statement);
        }
    }

    pub(crate) fn url(&self) -> String {
        let url = self.server.url();
        let (server, _) = url.rsplit_once('/').unwrap_or((&url, ""));
        format!("{server}/{DATABASE}")
    }

    /// Returns the id of the server's first process.
    pub(crate) fn pid(&self) -> u32 {
        self.server.pid().unwrap_or(0)
    }

    fn number(&self, sql: &str) -> f64 {
        self.server.sql(&format!("SELECT {sql}")).parse().unwrap_or(f64::NAN)
    }

    /// Returns the number of transactions that have ended in the database of the turn. A session reports its
    /// transactions at most once a second, and within ten seconds.
    pub(crate) fn transactions(&self) -> f64 {
        let sum = "xact_commit + xact_rollback FROM pg_stat_database WHERE datname = ";
        self.number(&format!("{sum}'{DATABASE}'"))
    }

    /// Switches autovacuum on or off: its transactions count, too.
    pub(crate) fn set_autovacuum(&self, is_on: bool) {
        let value = if is_on { "on" } else { "off" };
        let _set = self.server.sql(&format!("ALTER SYSTEM SET autovacuum = {value}"));
        let _read = self.server.sql("SELECT pg_reload_conf()");
    }

    /// Makes the server quiet: autovacuum is off, all changed pages are written, and each session has reported the
    /// transactions of its past work.
    pub(crate) fn calm(&self) {
        self.set_autovacuum(false);
        let _written = self.server.sql("CHECKPOINT");
        thread::sleep(Duration::from_secs(12));
    }

    /// Does what a line of a turn asks for. `None` if the line asks for nothing.
    pub(crate) fn answer(&mut self, line: &Value) -> Option<Result<Figures, Box<dyn Error>>> {
        let asks = |question: &str| line[question].as_bool() == Some(true);
        if asks("server") {
            let wal = self.number("pg_current_wal_insert_lsn() - '0/0'");
            let disk = self.number(&format!("pg_database_size('{DATABASE}')"));
            return Some(Ok(Figures::from([("wal", wal), ("disk", disk)])));
        }
        if asks("hold") {
            return Some(self.hold().map(|()| Figures::new()));
        }
        if asks("kill_server") {
            self.server.kill();
            return Some(Ok(Figures::new()));
        }
        if asks("run_server") {
            self.server.run();
            return Some(Ok(Figures::from([("pid", f64::from(self.pid()))])));
        }
        None
    }

    /// Begins a transaction with a snapshot in the database of the turn. It stays open until
    /// [`release`](Self::release).
    fn hold(&mut self) -> Result<(), Box<dyn Error>> {
        let mut command = self.server.psql("postgres");
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let statements = format!(
            "\\connect {DATABASE}\nBEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM pg_class;\n"
        );
        holder.stdin.as_mut().ok_or("no input")?.write_all(statements.as_bytes())?;
        let mut line = String::new();
        let _bytes = BufReader::new(holder.stdout.as_mut().ok_or("no output")?).read_line(&mut line)?;
        self.holder = Some(holder);
        if line.trim().parse::<u64>().is_ok() { Ok(()) } else { Err("nobody holds a snapshot".into()) }
    }

    /// Ends the transaction that holds a snapshot, if there is one.
    pub(crate) fn release(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _has_ended = holder.kill();
            let _status = holder.wait();
        }
    }
}
