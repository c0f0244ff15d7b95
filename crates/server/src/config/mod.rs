//! Loads the configuration from the defaults, the file, the environment and the flags. A later source in this list
//! wins.
//!
//! All sources use the same table of settings ([`table`]). Variables that OpenTelemetry defines ([`standard`]) rank
//! between the defaults and the file. Settings never contain secrets. Tokens and keys are in files, and settings name
//! the paths of these files.

mod file;
mod log;
mod postgres;
mod redis;
mod show;
mod standard;
mod table;
mod value;

pub(crate) use file::FileFault;
pub(crate) use show::{json, lines};
use standard::StandardValue;
pub(crate) use standard::headers;
use table::PREFIX;
pub(crate) use table::{Config, SETTINGS, Setting};
pub(crate) use value::{Form, Value};

use crate::settings::{Settings, StorePlace};
use crate::similar::similar;
use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Parses a length of time, such as `250ms` or `5m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text)
}

/// The name of the settings file that is read if the flag `--config` is not given. The file may be missing.
pub(crate) const FILE: &str = "tourbillon.toml";

/// The place from which a setting's value comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Variable(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// The loaded settings. `origins` says where each value comes from, in the order of [`SETTINGS`].
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) origins: Vec<Origin>,
    /// The warnings that are logged at the start. Most warnings are about environment variables with probably misspelt
    /// names.
    pub(crate) warnings: Vec<String>,
}

/// The reason why the configuration cannot be used.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The file of the settings cannot be read.
    Read(PathBuf, io::Error),
    File(FileFault),
    /// The value of an environment variable or of a flag is not valid.
    Value {
        origin: Origin,
        message: String,
    },
    /// The values of several settings contradict each other.
    Together(String),
    /// A file that a setting names, such as a certificate, cannot be read or has wrong contents. The text names it.
    Named(String),
}

impl ConfigError {
    /// Makes the error of a file that a setting names.
    fn named(path: &Path, error: impl fmt::Display) -> Self {
        Self::Named(format!("{}: {error}", path.display()))
    }

    /// Returns whether the error stays until somebody changes the settings. A file that a setting names may be right at
    /// the next start: another program may be renewing it, or its disk may not be there yet.
    pub(crate) fn is_of_setting(&self) -> bool {
        !matches!(self, Self::Named(_))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::File(fault) => fault.fmt(f),
            Self::Value { origin, message } => write!(f, "{origin}: {message}"),
            Self::Together(message) | Self::Named(message) => f.write_str(message),
        }
    }
}

impl core::error::Error for ConfigError {}

/// The sources from which the settings are loaded.
pub(crate) struct Sources<'a> {
    /// The settings file that the flag `--config` names. `None` if the flag was not given.
    pub(crate) file: Option<&'a Path>,
    /// The folder that is searched for the settings file `tourbillon.toml` if the flag `--config` was not given.
    pub(crate) folder: &'a Path,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Returns the value of a setting's command-line flag. Returns `None` if the flag was not given.
    pub(crate) flag: &'a dyn Fn(&Setting) -> Option<String>,
}

/// Loads the settings from the file, the environment variables and the flags. Fails if a value is not valid, or if
/// values contradict each other.
pub(crate) fn load(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
    let mut loaded = Loaded {
        config: Config::default(),
        origins: vec![Origin::Default; SETTINGS.len()],
        warnings: Vec::new(),
    };
    let standard = standard::read(&sources.environment);
    loaded.warnings.extend(standard.warnings);
    for StandardValue { key, variable, value } in standard.values {
        // Other programs use these variables too. So a wrong value only causes a warning, and the service starts.
        let setting = SETTINGS.iter().find(|setting| setting.key == key);
        if let Some(Err(error)) =
            setting.map(|setting| loaded.set(setting, &value, Origin::Variable(variable.to_owned())))
        {
            loaded.warnings.push(format!("{error}; the variable is ignored"));
        }
    }
    if let Some((path, text)) = file_of(sources)? {
        for entry in file::entries(&path, &text).map_err(ConfigError::File)? {
            let origin = Origin::File { path: path.clone(), line: entry.line };
            loaded.set(entry.setting, &entry.text, origin)?;
        }
    }
    for (name, value) in &sources.environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) else {
            loaded.warn_of(name);
            continue;
        };
        let origin = Origin::Variable(name.to_owned());
        let value = value.to_str().ok_or_else(|| ConfigError::Value {
            origin: origin.clone(),
            message: "the value is not UTF-8".to_owned(),
        })?;
        loaded.set(setting, value, origin)?;
    }
    for setting in SETTINGS {
        if let Some(value) = (sources.flag)(setting) {
            loaded.set(setting, &value, Origin::Flag(setting.flag()))?;
        }
    }
    loaded.config.check().map_err(ConfigError::Together)?;
    Ok(loaded)
}

fn file_of(sources: &Sources<'_>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = sources.file.map_or_else(|| sources.folder.join(FILE), Path::to_owned);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && sources.file.is_none() => Ok(None),
        Err(error) => Err(ConfigError::Read(path, error)),
    }
}

impl Loaded {
    fn set(&mut self, setting: &'static Setting, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let set = (setting.set)(&mut self.config, text);
        if let Err(message) = set {
            return Err(match origin {
                Origin::File { path, line } => ConfigError::File(FileFault {
                    path,
                    line,
                    message: format!("{}: {message}", setting.key),
                }),
                origin => ConfigError::Value { origin, message },
            });
        }
        if let Some(at) = SETTINGS.iter().position(|other| other.key == setting.key) {
            self.origins[at] = origin;
        }
        Ok(())
    }

    /// Warns about the unknown environment variable `name` if the name resembles the variable of a setting. The
    /// variable is not an error, because other programs may use the same prefix.
    fn warn_of(&mut self, name: &str) {
        let variables: Vec<_> = SETTINGS.iter().map(Setting::variable).collect();
        // The names are compared without their common prefix, because `similar` tolerates more differences in a longer
        // text.
        let ends = variables.iter().filter_map(|variable| variable.strip_prefix(PREFIX));
        let end = name.strip_prefix(PREFIX).unwrap_or(name);
        if let Some(meant) = similar(end, ends) {
            self.warnings.push(format!("the variable {name} is not known; is {PREFIX}{meant} meant?"));
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), String> {
        if self.listen.is_empty() {
            return Err("listen: the service needs an address".to_owned());
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err("tls.certificate and tls.key are set together or not at all".to_owned());
        }
        let positive = [
            ("limits.connections", u64::from(self.max_connections)),
            ("limits.creations", u64::from(self.creations)),
            ("deliveries.concurrency", self.concurrency as u64),
            ("deliveries.open_claims", self.open_claims as u64),
            ("deliveries.host_concurrency", self.host_concurrency as u64),
            ("deliveries.prompt_host_concurrency", self.prompt_host_concurrency as u64),
            ("deliveries.host_failures", u64::from(self.host_failures)),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{key}: at least 1"));
        }
        self.check_place()?;
        self.check_redis()?;
        self.check_postgres()?;
        if let Some(endpoint) = &self.telemetry_endpoint
            && !cfg!(feature = "otel")
        {
            let endpoint = &endpoint.0;
            return Err(format!(
                "telemetry.endpoint: this program was built without the feature `otel`, so no spans can be sent to {endpoint}"
            ));
        }
        if self.max_header.0 < SMALLEST_HEADER {
            return Err("limits.header: at least 8KiB".to_owned());
        }
        let times = [
            ("timeouts.header", self.header_timeout),
            ("timeouts.body", self.body_timeout),
            ("timeouts.idle", self.idle_timeout),
            ("timeouts.write", self.write_timeout),
            ("callbacks.connect_timeout", self.connect_timeout),
        ];
        if let Some((key, _)) = times.iter().find(|(_, time)| time.is_zero()) {
            return Err(format!("{key}: more than no time"));
        }
        // The runtime would silently take the nearest length in this range.
        if !LEASE.contains(&self.lease) {
            return Err("deliveries.lease: from a second to a day".to_owned());
        }
        if self.max_body.0 > LARGEST_BODY || self.max_request.0 > LARGEST_BODY {
            return Err("limits.body and limits.request: at most 1GiB".to_owned());
        }
        Ok(())
    }

    /// Fails if the settings name several places for the timers.
    fn check_place(&self) -> Result<(), String> {
        let places = [
            ("sqlite.path", self.sqlite_path.is_some()),
            ("redis.servers", !self.redis_servers.is_empty()),
            ("postgres.server", self.postgres_server.is_some()),
        ];
        let mut named = places.iter().filter(|(_, is_named)| *is_named);
        match (named.next(), named.next()) {
            (Some((one, _)), Some((other, _))) => Err(format!("{one} and {other} are not set together")),
            _ => Ok(()),
        }
    }

    /// Fails if a setting of the same section as the setting `server` has another value than its default. The settings
    /// do not place the timers in `store`, so such a value has no effect.
    fn refuse_unused(&self, server: &str, store: &str) -> Result<(), String> {
        let section = server.split('.').next();
        let default = Self::default();
        let is_changed = |setting: &&Setting| (setting.get)(self) != (setting.get)(&default);
        let mut of_store = SETTINGS.iter().filter(|setting| Some(setting.section()) == section);
        match of_store.find(is_changed) {
            Some(setting) => {
                Err(format!("{} is for timers in {store}, and {server} names no server", setting.key))
            }
            None => Ok(()),
        }
    }

    /// Returns the place where the service stores its timers. Reads the files of passwords and certificates.
    pub(crate) fn store(&self) -> Result<StorePlace, ConfigError> {
        Ok(match (&self.sqlite_path, &self.postgres_server) {
            (Some(path), _) => StorePlace::Sqlite(path.clone()),
            (None, Some(server)) => StorePlace::Postgres(self.postgres(server)?),
            (None, None) if self.redis_servers.is_empty() => StorePlace::File,
            (None, None) => StorePlace::Redis(self.redis()?),
        })
    }

    /// Returns the path of the token file.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.tokens.clone().unwrap_or_else(|| self.data.join("tokens.json"))
    }

    /// Returns the limits for connections that the configuration sets.
    pub(crate) fn connection_limits(&self) -> crate::listen::Limits {
        crate::listen::Limits {
            connections: self.max_connections,
            header: self.max_header.0,
            body: self.max_request.0,
            header_timeout: self.header_timeout,
            body_timeout: self.body_timeout,
            idle_timeout: self.idle_timeout,
            write_timeout: self.write_timeout,
        }
    }

    /// Converts the configuration into the settings of the service. Fails if a file that a setting names cannot be
    /// read.
    pub(crate) fn settings(&self) -> Result<Settings, ConfigError> {
        let mut settings = Settings::new(&self.data);
        settings.tokens = Some(self.token_file());
        settings.concurrency = self.concurrency;
        settings.host_concurrency = self.host_concurrency;
        settings.prompt_host_concurrency = self.prompt_host_concurrency.max(self.host_concurrency);
        settings.open_claims = self.open_claims;
        settings.lease = self.lease;
        settings.least_pause = self.least_pause;
        settings.creations = self.creations;
        settings.max_schedules = self.max_schedules;
        settings.max_timers = self.max_timers;
        settings.max_delay = self.max_delay;
        settings.catch_up_rate = (self.catch_up_rate > 0).then_some(self.catch_up_rate);
        settings.cache = self.cache.0;
        settings.keep_free = self.keep_free.0 as u64;
        settings.without_locks = self.without_locks;
        settings.scrub = self.scrub;
        settings.telemetry.endpoint = self.telemetry_endpoint.as_ref().map(|endpoint| endpoint.0.clone());
        settings.telemetry.service_name.clone_from(&self.telemetry_service_name);
        settings.telemetry.share = self.telemetry_share.0;
        settings.store = self.store()?;
        settings.rules.allow_http = self.allow_http;
        settings.rules.body = self.max_body.0;
        let caller = &mut settings.caller;
        caller.guard.allow_private = self.allow_private;
        caller.guard.allowed.clone_from(&self.allowed);
        caller.hosts.failures = self.host_failures;
        caller.connect_timeout = self.connect_timeout;
        caller.name_servers.clone_from(&self.name_servers);
        if let Some(path) = &self.certificates {
            let failed = |error: rustls::pki_types::pem::Error| ConfigError::named(path, error);
            for certificate in CertificateDer::pem_file_iter(path).map_err(failed)? {
                caller.certificates.push(certificate.map_err(failed)?.to_vec());
            }
            if caller.certificates.is_empty() {
                return Err(ConfigError::named(path, "there is no certificate in PEM"));
            }
        }
        Ok(settings)
    }
}

/// The permitted range of the length of a timer's lease.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
/// The greatest size of a body in memory, in bytes. Several bodies must fit into an address space.
const LARGEST_BODY: usize = 1 << 30;
/// The smallest buffer that hyper accepts for a request's header, in bytes.
const SMALLEST_HEADER: usize = 8 << 10;

#[cfg(test)]
mod tests;
