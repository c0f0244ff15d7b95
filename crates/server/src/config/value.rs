//! Parses the values of settings from text, and writes them.

use core::fmt::Write as _;
use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;
use tourbillon_callback::guard::Range;
use tourbillon_postgres::ConnectError;
use tourbillon_redis::SyncPolicy;
use url::Url;

/// The type that the value of a setting has in the settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Number,
    Truth,
    List,
}

impl Form {
    /// Describes the type of a value in words, for error messages.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Text => "a text in quotes",
            Self::Number => "a whole number",
            Self::Truth => "true or false",
            Self::List => "a list of texts in brackets",
        }
    }
}

/// A type that the value of a setting can have. Each value is parsed from a text.
pub(crate) trait Value: Sized {
    /// The type that the value has in the settings file.
    const FORM: Form;
    /// The placeholder that the help shows for the value, such as `PATH`.
    const NAME: &'static str;

    /// Parses the text of a value. Fails with a description of the texts that are accepted.
    fn parse(text: &str) -> Result<Self, String>;

    /// Writes the value as a text that [`parse`](Self::parse) accepts.
    fn show(&self) -> String;
}

impl Value for bool {
    const FORM: Form = Form::Truth;
    const NAME: &'static str = "BOOL";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Value for $number {
            const FORM: Form = Form::Number;
            const NAME: &'static str = "NUMBER";

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("{text:?} is not a whole number up to {}", Self::MAX))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers! { u32 u64 usize }

/// The units of time, each with its number of milliseconds, in descending order.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Value for Duration {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "TIME";

    fn parse(text: &str) -> Result<Self, String> {
        // The help of some settings gives zero a meaning, and zero is the same in each unit.
        if text == "0" {
            return Ok(Self::ZERO);
        }
        let fault = || format!("{text:?} is not a time as 250ms, 10s, 5m, 2h or 30d");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| fault())?;
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(fault)?;
        number.checked_mul(*millis).map(Self::from_millis).ok_or_else(fault)
    }

    fn show(&self) -> String {
        let millis = self.as_millis();
        // Zero is a multiple of each unit, and would otherwise be shown in days.
        let fitting = UNITS.iter().find(|&&(_, unit)| millis > 0 && millis.is_multiple_of(u128::from(unit)));
        let (name, unit) = fitting.copied().unwrap_or(("s", 1_000));
        format!("{}{name}", millis / u128::from(unit))
    }
}

/// The value of a setting that is a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) usize);

const SIZES: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Value for Size {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "SIZE";

    fn parse(text: &str) -> Result<Self, String> {
        // The help of some settings gives zero a meaning, and zero is the same in each unit.
        if text == "0" {
            return Ok(Self(0));
        }
        let fault = || format!("{text:?} is not a size as 500B, 64KiB, 16MiB or 1GiB");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
        let (number, unit) = text.split_at(digits);
        let number: usize = number.parse().map_err(|_| fault())?;
        let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(fault)?;
        number.checked_mul(*bytes).map(Self).ok_or_else(fault)
    }

    fn show(&self) -> String {
        // Zero is a multiple of each unit, and would otherwise be shown in GiB.
        let fitting = SIZES.iter().find(|&&(_, unit)| self.0 > 0 && self.0.is_multiple_of(unit));
        let (name, unit) = fitting.copied().unwrap_or(("B", 1));
        format!("{}{name}", self.0 / unit)
    }
}

impl Value for PathBuf {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "PATH";

    fn parse(text: &str) -> Result<Self, String> {
        // The message does not repeat the text, because the text may be a secret.
        if text.starts_with("-----BEGIN") || text.starts_with("tb_") {
            return Err("the setting is the path of a file, and must not be the secret itself".to_owned());
        }
        if text.is_empty() { Err("a path has at least one character".to_owned()) } else { Ok(text.into()) }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// A setting whose value is a text. An empty text is refused.
impl Value for String {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "TEXT";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err("a text has at least one character".to_owned())
        } else {
            Ok(text.to_owned())
        }
    }

    fn show(&self) -> String {
        self.clone()
    }
}

/// The value of a setting that is a fraction from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl Value for Share {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "SHARE";

    fn parse(text: &str) -> Result<Self, String> {
        // The range also refuses NaN. The check `share < 0.0 || share > 1.0` would not.
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or_else(|| format!("{text:?} is not a number from 0 to 1, as 0.05"))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// The URL of an OpenTelemetry collector to which spans are posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(pub(crate) String);

impl Value for Endpoint {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "URL";

    /// Parses the URL of a collector. A URL without a path gets the path that collectors use for spans.
    fn parse(text: &str) -> Result<Self, String> {
        // The message does not repeat the text, because a URL may contain a password.
        let mut url = Url::parse(text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| "the URL must look like http://127.0.0.1:4318".to_owned())?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "the URL must not have a password: a secret belongs in OTEL_EXPORTER_OTLP_HEADERS".to_owned()
            );
        }
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok(Self(url.into()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// The URL of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl(pub(crate) Url);

impl Value for ServerUrl {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "URL";

    fn parse(text: &str) -> Result<Self, String> {
        // The message does not repeat the text, because a URL may contain a password.
        let has_place = |url: &Url| match url.scheme() {
            "redis" | "rediss" => url.host_str().is_some_and(|host| !host.is_empty()),
            "unix" => !url.path().is_empty(),
            _ => false,
        };
        let url = Url::parse(text).ok().filter(has_place);
        let url = url.ok_or_else(|| "the URL must look like redis://127.0.0.1:6379".to_owned())?;
        // The URL of a local socket has its password in the query.
        if url.password().is_some() || url.query_pairs().any(|(name, _)| name == "pass") {
            return Err(
                "the URL must not have a password: redis.password_file names a file with it".to_owned()
            );
        }
        Ok(Self(url))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// The address of a PostgreSQL server, without a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseAddress(pub(crate) String);

impl Value for DatabaseAddress {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "URL";

    fn parse(text: &str) -> Result<Self, String> {
        // The message does not repeat the text, because an address may contain a password.
        let connect = tourbillon_postgres::Connect::to(text).map_err(|error| match error {
            ConnectError::Tls(fault) => fault.into(),
            _ => "the address must look like postgresql://user@127.0.0.1/database".to_owned(),
        })?;
        if connect.has_password() {
            return Err("the address must not have a password: postgres.password_file names a file with it"
                .to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// The value of a setting for confirmations in Redis: how many replicas must confirm a change, and the longest wait for
/// the confirmations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sync(pub(crate) SyncPolicy);

impl Value for Sync {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "SYNC";

    fn parse(text: &str) -> Result<Self, String> {
        let fault = || {
            format!("{text:?} is none of none, wait:REPLICAS:TIME as wait:1:500ms, and waitaof:REPLICAS:TIME")
        };
        if text == "none" {
            return Ok(Self(SyncPolicy::None));
        }
        let mut parts = text.splitn(3, ':');
        let (Some(kind), Some(replicas), Some(time)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(fault());
        };
        let replicas: u32 = replicas.parse().map_err(|_| fault())?;
        let timeout = Duration::parse(time).map_err(|_| fault())?;
        if timeout.is_zero() {
            return Err(format!("{text:?}: more than no time"));
        }
        match kind {
            "wait" if replicas == 0 => Err(format!("{text:?}: at least one replica")),
            "wait" => Ok(Self(SyncPolicy::Wait { replicas, timeout })),
            // With no replica, `waitaof` still waits for the append-only file of the primary.
            "waitaof" => Ok(Self(SyncPolicy::WaitAof { replicas, timeout })),
            _ => Err(fault()),
        }
    }

    fn show(&self) -> String {
        match self.0 {
            SyncPolicy::Wait { replicas, timeout } => format!("wait:{replicas}:{}", timeout.show()),
            SyncPolicy::WaitAof { replicas, timeout } => format!("waitaof:{replicas}:{}", timeout.show()),
            _ => "none".to_owned(),
        }
    }
}

/// A setting that may be unset. An empty text means that the setting is unset.
impl<T: Value> Value for Option<T> {
    const FORM: Form = T::FORM;
    const NAME: &'static str = T::NAME;

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, T::show)
    }
}

impl Value for SocketAddr {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "ADDRESS";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is not an address and port, as 127.0.0.1:7670 or [::1]:7670"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Range {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "RANGE";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|fault: tourbillon_callback::guard::NoRange| fault.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A setting with a list of values, separated by commas.
impl<T: Value> Value for Vec<T> {
    const FORM: Form = Form::List;
    const NAME: &'static str = T::NAME;

    fn parse(text: &str) -> Result<Self, String> {
        // An empty text, the default of several settings, stands for an empty list.
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(T::parse).collect()
    }

    fn show(&self) -> String {
        self.iter().fold(String::new(), |mut text, item| {
            let comma = if text.is_empty() { "" } else { "," };
            let _infallible = write!(text, "{comma}{}", item.show());
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T: Value + PartialEq + core::fmt::Debug>(text: &str) {
        let value = T::parse(text).unwrap();
        assert_eq!(value.show(), text);
        assert_eq!(T::parse(&value.show()).as_ref(), Ok(&value));
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        for text in ["0s", "250ms", "10s", "90s", "5m", "2h", "30d"] {
            survives::<Duration>(text);
        }
        for text in ["0B", "500B", "64KiB", "1500KiB", "16MiB", "1GiB"] {
            survives::<Size>(text);
        }
        survives::<Vec<SocketAddr>>("127.0.0.1:7670,[::1]:7670");
        survives::<Vec<Range>>("10.0.0.0/8,fc00::/7");
        survives::<Option<PathBuf>>("");
        survives::<Option<PathBuf>>("a/b");
        survives::<bool>("true");
        for text in ["0", "0.05", "1"] {
            survives::<Share>(text);
        }
        survives::<String>("a b");
        survives::<Option<Endpoint>>("");
        survives::<Option<Endpoint>>("https://collector.example/v1/traces");
        let Ok(Endpoint(url)) = Endpoint::parse("http://127.0.0.1:4318") else { panic!() };
        assert_eq!(url, "http://127.0.0.1:4318/v1/traces");
        survives::<Vec<ServerUrl>>(
            "redis://10.0.0.1:6379,rediss://name@redis.example:6380/2,unix:///run/redis.sock",
        );
        for text in ["none", "wait:1:500ms", "waitaof:0:1s", "waitaof:2:1s"] {
            survives::<Sync>(text);
        }
    }

    #[test]
    fn zero_needs_no_unit() {
        assert_eq!(Duration::parse("0"), Ok(Duration::ZERO));
        assert_eq!(Size::parse("0"), Ok(Size(0)));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "10", "s", "-1s", "1.5s", "10 s", "10S", "99999999999999999999s", "9999999999999999d"]
        {
            assert!(Duration::parse(text).is_err(), "{text:?}");
        }
        for text in ["", "10", "KiB", "10kb", "99999999999GiB"] {
            assert!(Size::parse(text).is_err(), "{text:?}");
        }
        assert!(bool::parse("yes").is_err());
        for text in ["", "-0.1", "1.1", "NaN", "inf", "5%"] {
            assert!(Share::parse(text).is_err(), "{text:?}");
        }
        assert!(u32::parse("-1").is_err());
        assert!(Vec::<SocketAddr>::parse("127.0.0.1:7670,localhost:1").is_err());
        let secret = PathBuf::parse("tb_admin_secret").unwrap_err();
        assert!(!secret.contains("tb_admin"), "{secret}");
        assert!(String::parse("").is_err());
        for text in
            ["127.0.0.1:4318", "grpc://collector.example", "http://", "https://u:hunter2@collector.example"]
        {
            let fault = Endpoint::parse(text).unwrap_err();
            assert!(!fault.contains("hunter2"), "{fault}");
        }
        for text in [
            "127.0.0.1:6379",
            "http://127.0.0.1",
            "redis://",
            "redis:///0",
            "redis://u:hunter2@redis.example",
            "redis://:hunter2@redis.example",
            "unix:///run/redis.sock?pass=hunter2",
        ] {
            let fault = ServerUrl::parse(text).unwrap_err();
            assert!(!fault.contains("hunter2"), "{fault}");
        }
        for text in [
            "",
            "wait",
            "wait:1",
            "wait:0:1s",
            "wait:1:0s",
            "wait:-1:1s",
            "wait:1:1",
            "sync:1:1s",
            "waitaof::1s",
        ] {
            assert!(Sync::parse(text).is_err(), "{text:?}");
        }
    }
}
