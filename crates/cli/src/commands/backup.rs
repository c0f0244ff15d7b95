//! Runs the command that copies a service's data into a file.

use crate::exit::{Code, Failure};
use crate::output::{Output, plain};
use clap::Args;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tourbillon_client::Client;

/// Copies all timers, schedules and namespaces as of one moment. Needs a token with the role admin. The file contains
/// bodies and signing secrets, so only its owner can read it.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file, or `-` for the standard output. An existing file is replaced once the copy is complete. A pipe or a
    /// device gets the copy piece by piece
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

/// The place that a copy goes to.
enum Target {
    Output,
    /// A device or a pipe, to which the copy is written piece by piece. It is not replaced.
    Stream(PathBuf),
    /// A file, which the complete copy replaces.
    File(PathBuf),
}

/// Returns whether `target` is the file, the device or the pipe that the standard output of this process leads to.
#[cfg(unix)]
fn is_output(target: &Metadata) -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;
    let output = io::stdout().as_fd().try_clone_to_owned().and_then(|output| File::from(output).metadata());
    output.is_ok_and(|output| (output.dev(), output.ino()) == (target.dev(), target.ino()))
}

#[cfg(not(unix))]
fn is_output(_: &Metadata) -> bool {
    false
}

/// The greatest number of links that the system follows in a path.
const MOST_LINKS: usize = 40;

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Output);
        }
        match std::fs::metadata(path) {
            Ok(target) if is_output(&target) => return Ok(Self::Output),
            Ok(target) if !target.is_file() => return Ok(Self::Stream(path.to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A rename would replace a link. So the copy replaces the file to which the link leads.
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let Ok(next) = std::fs::read_link(&path) else { break };
            path = folder_of(&path).join(next);
        }
        Ok(Self::File(path))
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The end of the name of a file that has an unfinished copy.
const UNFINISHED: &str = ".part";

/// Removes the unfinished copies that earlier runs have left in `folder`. Their names start with `begin`. The
/// process that writes a copy has a lock on it, so the copies of other processes stay.
fn remove_unfinished(folder: &Path, begin: &OsStr) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        let is_unfinished = name.starts_with(begin.as_encoded_bytes())
            && name.ends_with(UNFINISHED.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_unfinished
            && let Ok(file) = File::options().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _is_tried_again_by_the_next_run = std::fs::remove_file(entry.path());
        }
    }
}

async fn to_file(path: &Path, client: &Client, progress: &mut Progress) -> Result<u64, Failure> {
    let folder = folder_of(path);
    let mut begin = OsString::from(".");
    begin.push(path.file_name().unwrap_or_default());
    begin.push(".");
    remove_unfinished(folder, &begin);
    // The temporary file is removed if it is dropped before it gets its name. Only its owner can read it.
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(&begin).suffix(UNFINISHED).tempfile_in(folder);
    let mut file = made.map_err(of(folder))?;
    // On a file system without locks, no run removes unfinished copies.
    let _best_effort = file.as_file().try_lock();
    let timers = copy(client, &mut file, progress, of(path)).await?;
    file.as_file().sync_all().map_err(of(path))?;
    file.persist(path).map_err(|error| of(path)(error.error))?;
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(of(folder))?;
    }
    Ok(timers)
}

/// Waits for a signal that ends the program.
#[cfg(unix)]
async fn interrupted() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        _some = terminate.recv() => Ok(()),
        _some = hang_up.recv() => Ok(()),
        waited = tokio::signal::ctrl_c() => waited,
    }
}

#[cfg(not(unix))]
async fn interrupted() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Copies the service's data to a file, a device, a pipe, or the standard output. A file gets its final name only once
/// the copy is complete and on the disk.
pub(crate) async fn backup(to: Backup, client: &Client, output: Output) -> Result<(), Failure> {
    let path = &to.file;
    let is_shown = !output.is_json && io::stderr().is_terminal();
    let mut progress = Progress { is_shown, bytes: 0, last: None };
    let timers = match Target::of(path).map_err(of(path))? {
        Target::Output => {
            // A reader of the standard output that ends early has no complete copy, so the command fails.
            let failed = |error| Failure::new(Code::NotFulfilled, format!("the output failed: {error}"));
            // The number of timers is not printed, because it would be behind the copy.
            return copy(client, &mut io::stdout(), &mut progress, failed).await.map(drop);
        }
        // The opening and each write may wait for the other end of a pipe, and no file is left behind. So signals have
        // their usual effect.
        Target::Stream(stream) => {
            let mut stream = File::options().write(true).open(stream).map_err(of(path))?;
            copy(client, &mut stream, &mut progress, of(path)).await?
        }
        Target::File(file) => tokio::select! {
            copied = to_file(&file, client, &mut progress) => copied?,
            _interrupted = interrupted() => {
                return Err(Failure::new(Code::NotFulfilled, "interrupted"));
            }
        },
    };
    drop(progress);
    let done = json!({ "file": path.display().to_string(), "timers": timers });
    Ok(output.value(&done, |_| plain(&format!("{}: {timers} timers", path.display())))?)
}
