//! Runs the command that copies a service's data into a file.

use crate::exit::{Code, Failure};
use crate::output::{Output, plain};
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use tourbillon_client::Client;

/// Copies all timers, schedules and namespaces as of one moment. Needs a token with the role admin. The file contains
/// bodies and signing secrets, so only its owner can read it.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file, or `-` for the standard output. An existing file is replaced once the copy is complete
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The time between two updates of a backup's progress on a terminal.
const PAUSE: Duration = Duration::from_millis(250);

fn of(path: &Path) -> impl Fn(io::Error) -> Failure + use<> {
    let path = path.to_owned();
    move |error| Failure::new(Code::NotFulfilled, format!("{}: {error}", path.display()))
}

/// Prints the number of copied bytes on a terminal. Dropping the value erases the printed line.
struct Progress {
    is_shown: bool,
    bytes: u64,
    last: Option<Instant>,
}

impl Progress {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.is_shown && self.last.is_none_or(|last| last.elapsed() >= PAUSE) {
            self.last = Some(Instant::now());
            let mega = self.bytes / 1_000_000;
            let _best_effort = write!(io::stderr(), "\r{mega} MB copied");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            let _best_effort = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Copies the service's data to the writer `to`. Returns the number of timers in the copy.
async fn copy(
    client: &Client,
    to: &mut (impl Write + Send),
    progress: &mut Progress,
    failure: impl Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut copy = client.backup().await?;
    while let Some(piece) = copy.next().await? {
        to.write_all(&piece).map_err(&failure)?;
        progress.add(piece.len());
    }
    to.flush().map_err(&failure)?;
    // A complete copy always has its number of timers, so the default is never used.
    Ok(copy.timers().unwrap_or_default())
}

async fn to_file(path: &Path, client: &Client, progress: &mut Progress) -> Result<u64, Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The temporary file is removed if it is dropped before it gets its name. Only its owner can read it.
    let mut file = NamedTempFile::new_in(folder).map_err(of(folder))?;
    let timers = copy(client, &mut file, progress, of(path)).await?;
    file.as_file().sync_all().map_err(of(path))?;
    file.persist(path).map_err(|error| of(path)(error.error))?;
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(of(folder))?;
    }
    Ok(timers)
}

/// Copies the service's data into a file. The file gets its final name only once the copy is complete and on the disk.
pub(crate) async fn backup(to: Backup, client: &Client, output: Output) -> Result<(), Failure> {
    let path = &to.file;
    let is_shown = !output.is_json && io::stderr().is_terminal();
    let mut progress = Progress { is_shown, bytes: 0, last: None };
    let copying = async {
        if path.as_os_str() == "-" {
            // A reader of the standard output that ends early has no complete copy, so the command fails.
            let failed = |error| Failure::new(Code::NotFulfilled, format!("the output failed: {error}"));
            return copy(client, &mut io::stdout(), &mut progress, failed).await.map(|_| None);
        }
        to_file(path, client, &mut progress).await.map(Some)
    };
    let copied = tokio::select! {
        copied = copying => copied?,
        _interrupted = tokio::signal::ctrl_c() => {
            return Err(Failure::new(Code::NotFulfilled, "interrupted"));
        }
    };
    drop(progress);
    let Some(timers) = copied else { return Ok(()) };
    let done = json!({ "file": path.display().to_string(), "timers": timers });
    Ok(output.value(&done, |_| plain(&format!("{}: {timers} timers", path.display())))?)
}
