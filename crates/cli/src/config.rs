//! Reads the settings. A flag takes precedence over an environment variable, a variable over the settings file, and
//! the file over the default.

use crate::exit::{Code, Failure};
use crate::parse;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tourbillon_client::Client;

/// The settings that have command-line flags.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// The service's URL [variable: TOURBILLON_URL] [default: http://127.0.0.1:7670]
    #[arg(long, global = true, value_name = "URL", help_heading = "Service")]
    pub(crate) url: Option<String>,
    /// The file that contains only the token [variable: TOURBILLON_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Service")]
    pub(crate) token_file: Option<String>,
    /// The namespace of the timers [variable: TOURBILLON_NAMESPACE] [default: default]
    #[arg(short, long, global = true, value_name = "NAME", help_heading = "Service")]
    pub(crate) namespace: Option<String>,
    /// A file of certificates in PEM that are trusted in addition to the public authorities [variable: TOURBILLON_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Service")]
    pub(crate) ca: Option<String>,
    /// The timeout of one request [variable: TOURBILLON_TIMEOUT] [default: 10s]
    #[arg(long, global = true, value_name = "DURATION", help_heading = "Service")]
    pub(crate) timeout: Option<String>,
    /// The TOML file that sets `url`, `token_file`, `namespace`, `ca` and `timeout` [variable: TOURBILLON_CONFIG]
    /// [default: tourbillon/cli.toml in the user's folder for settings, such as ~/.config]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Service")]
    pub(crate) config: Option<PathBuf>,
}

/// The word that `config` prints as the origin of a setting with its default value.
const DEFAULT: &str = "default";

/// A setting: its name, its value, and the origin of the value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: Option<String>,
    pub(crate) origin: String,
}

/// The settings with which the program runs, each with the origin of its value, such as a flag or a variable.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    url: Setting,
    token_file: Setting,
    namespace: Setting,
    ca: Setting,
    timeout: Setting,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    url: Option<String>,
    token_file: Option<String>,
    namespace: Option<String>,
    ca: Option<String>,
    timeout: Option<String>,
}

/// Returns the value of an environment variable. `None` if the variable is not set, or empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the path of the settings file, and whether the user named it. A file that the user named must exist.
fn file_path(flag: Option<&Path>) -> Option<(PathBuf, bool)> {
    if let Some(path) = flag {
        return Some((path.to_owned(), true));
    }
    if let Some(path) = variable("TOURBILLON_CONFIG") {
        return Some((path.into(), true));
    }
    let folder = if cfg!(windows) {
        PathBuf::from(variable("APPDATA")?)
    } else if let Some(folder) = variable("XDG_CONFIG_HOME") {
        folder.into()
    } else {
        Path::new(&variable("HOME")?).join(".config")
    };
    Some((folder.join("tourbillon").join("cli.toml"), false))
}

impl Config {
    /// Reads the settings from flags, environment variables and the settings file. Fails if the user names a settings
    /// file that does not exist.
    pub(crate) fn load(flags: &Flags) -> Result<Self, Failure> {
        let (mut file, mut path) = (File::default(), PathBuf::new());
        if let Some((found, is_named)) = file_path(flags.config.as_deref()) {
            match std::fs::read_to_string(&found) {
                Ok(text) => {
                    file = toml::from_str(&text).map_err(|error| {
                        Failure::new(Code::Usage, format!("{}: {error}", found.display()))
                    })?;
                    path = found;
                }
                Err(error) if !is_named && error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Failure::new(Code::Usage, format!("{}: {error}", found.display())));
                }
            }
        }
        let setting =
            |name: &'static str, flag: Option<&String>, file: Option<String>, default: Option<&str>| {
                let variable_name = format!("TOURBILLON_{}", name.replace('-', "_").to_ascii_uppercase());
                let (value, origin) = if let Some(value) = flag {
                    (Some(value.clone()), format!("--{name}"))
                } else if let Some(value) = variable(&variable_name) {
                    (Some(value), variable_name)
                } else if file.is_some() {
                    (file, path.display().to_string())
                } else {
                    (default.map(str::to_owned), DEFAULT.to_owned())
                };
                Setting { name, value, origin }
            };
        Ok(Self {
            url: setting("url", flags.url.as_ref(), file.url, Some("http://127.0.0.1:7670")),
            token_file: setting("token-file", flags.token_file.as_ref(), file.token_file, None),
            namespace: setting("namespace", flags.namespace.as_ref(), file.namespace, Some("default")),
            ca: setting("ca", flags.ca.as_ref(), file.ca, None),
            timeout: setting("timeout", flags.timeout.as_ref(), file.timeout, Some("10s")),
        })
    }

    /// Returns all settings, each with the origin of its value.
    pub(crate) fn settings(&self) -> [&Setting; 5] {
        [&self.url, &self.token_file, &self.namespace, &self.ca, &self.timeout]
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.value.as_deref().unwrap_or("default")
    }

    /// Returns the namespace that a flag, a variable or the settings file sets. `None` if the setting has its default.
    pub(crate) fn named_namespace(&self) -> Option<&str> {
        let is_named = self.namespace.origin != DEFAULT;
        self.namespace.value.as_deref().filter(|_| is_named)
    }

    pub(crate) fn url(&self) -> &str {
        self.url.value.as_deref().unwrap_or_default()
    }

    fn timeout(&self) -> Result<Duration, Failure> {
        let timeout = parse::duration(self.timeout.value.as_deref().unwrap_or_default());
        let timeout = timeout.and_then(|timeout| match timeout.is_zero() {
            true => Err("a timeout of zero lets no request succeed".to_owned()),
            false => Ok(timeout),
        });
        timeout.map_err(|fault| Failure::new(Code::Usage, format!("{}: {fault}", self.timeout.origin)))
    }

    /// Makes a client of the service with the URL, the token, the certificates and the timeout of these settings.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let mut builder = Client::builder(self.url()).timeout(self.timeout()?);
        if let Some(path) = &self.token_file.value {
            builder = builder.token_file(path);
        }
        if let Some(path) = &self.ca.value {
            builder = builder.ca_file(path);
        }
        Ok(builder.build()?)
    }
}
