//! The reason why a service was not opened.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};
use tourbillon_callback::CertificateError;
use tourbillon_durable::StartError;
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_redis::{Grade, Report};

/// The greatest number of namespaces that an error message names.
const NAMES: usize = 10;

/// The reason why a service was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A file of the service could not be read or written.
    File {
        /// The path of the file that could not be read or written.
        path: PathBuf,
        /// The reason why the file could not be read or written.
        error: io::Error,
    },
    /// The file of the namespaces is missing, although an earlier start or restore has made it, or the store has timers
    /// of its namespaces.
    NoNamespaces {
        /// The path of the missing file of namespaces.
        path: PathBuf,
        /// The names of the namespaces that have stored timers.
        names: Vec<Box<str>>,
    },
    /// The document of the namespaces is missing, although the deployment on Redis or in PostgreSQL has timers.
    LostNamespaces {
        /// The name of the deployment on Redis, or of the schema in PostgreSQL.
        deployment: Box<str>,
        /// The names of the namespaces that have stored timers.
        names: Vec<Box<str>>,
    },
    /// A restore into this data folder has begun and not ended, so the folder may have only a part of the backup's
    /// timers.
    HalfRestored(PathBuf),
    /// A restore into this deployment on Redis has begun and not ended, so the deployment may have only a part of the
    /// backup's timers.
    HalfRestoredDeployment(Box<str>),
    /// Another process uses this data folder.
    InUse(PathBuf),
    /// The store cannot be opened on the Redis servers, for example because of their configuration. The report has the
    /// reasons.
    Servers(Report),
    /// The Redis servers could not be reached. The report has the reasons.
    NoServers(Report),
    /// The store could not be opened.
    Store(StoreError),
    /// A certificate from the settings could not be read.
    Certificate(CertificateError),
    /// The runtime that delivers timers could not be started.
    Start(StartError),
    /// Spans cannot be sent to the collector in the settings. The text says why.
    Telemetry(Box<str>),
}

/// Joins the first names of namespaces to a text.
fn listed(names: &[Box<str>]) -> String {
    let shown = names[..names.len().min(NAMES)].join(", ");
    match names.len().checked_sub(NAMES) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} others"),
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NoNamespaces { path, names } => {
                let used = match names.is_empty() {
                    true => "has been there".to_owned(),
                    false => format!("the store has timers of the namespaces {}", listed(names)),
                };
                write!(
                    f,
                    "{} is missing, and {used}: put the file back. To go on without the limits and secrets of its \
                     namespaces, write {{}} into it",
                    path.display()
                )
            }
            Self::LostNamespaces { deployment, names } => {
                let names = listed(names);
                write!(
                    f,
                    "the deployment {deployment} has lost the document of its namespaces, and has timers of the \
                     namespaces {names}: restore a backup of the server. To go on without it, run `tourbillond mend`: a \
                     node that runs puts its copy back, and without such a node the limits and secrets are lost"
                )
            }
            Self::HalfRestored(path) => {
                let path = path.display();
                write!(f, "{path}: a restore into this folder has not ended: run `tourbillond restore` again")
            }
            Self::HalfRestoredDeployment(name) => {
                write!(
                    f,
                    "a restore into the deployment {name} has not ended: run `tourbillond restore` again"
                )
            }
            Self::InUse(path) => {
                write!(f, "{}: another service uses this folder, or a restore", path.display())
            }
            Self::Servers(report) => {
                f.write_str("the Redis servers are refused:")?;
                let refused = report.lines().iter().filter(|line| line.grade() == Grade::Refusal);
                refused.into_iter().try_for_each(|line| write!(f, " {} {};", line.server(), line.text()))
            }
            Self::NoServers(report) => {
                report.lines().iter().try_for_each(|line| write!(f, "Redis: {}; ", line.text()))
            }
            Self::Store(error) => write!(f, "the store cannot be opened: {error}"),
            Self::Certificate(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
            Self::Telemetry(error) => write!(f, "telemetry.endpoint: {error}"),
        }
    }
}

impl core::error::Error for OpenError {}

impl OpenError {
    /// Returns whether the settings or the servers cause this error. If so, each further start fails, too, until
    /// somebody changes the settings or the servers.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::Servers(_) => true,
            // The deployment has another number of shards, for example.
            Self::Store(error) => error.kind() == StoreErrorKind::Limit,
            _ => false,
        }
    }
}

/// Makes a function that converts an I/O error of the file `path` into an [`OpenError`].
pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |error| OpenError::File { path, error }
}
