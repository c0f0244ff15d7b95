//! Defines callbacks, which consist of a URL, a method, headers and a body, and the reasons why a callback is refused.

use crate::guard::Blocked;
use crate::names::dns_name;
use bytes::Bytes;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::{Host, Url};

/// A callback whose URL, method, headers and body have passed the checks. The address of the host is checked later,
/// before a connection is made.
#[derive(Clone, Debug)]
pub struct Callback {
    pub(crate) url: Url,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The limits and rules for the parts of callbacks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// Whether `http` is permitted. By default only `https` is permitted.
    pub allow_http: bool,
    /// The greatest length of the URL, in bytes; 2,048 by default.
    pub url: usize,
    /// The greatest length of all headers, in bytes; 8 KiB by default.
    pub headers: usize,
    /// The greatest length of the body, in bytes; 64 KiB by default.
    pub body: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self { allow_http: false, url: 2_048, headers: 8 << 10, body: 64 << 10 }
    }
}

/// The reason why the parts of a callback are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The text given as the URL is not a URL.
    Url(Box<str>),
    /// The callback must not go to its destination, for the reason in the value.
    Destination(Blocked),
    /// The method is not GET, POST, PUT, PATCH or DELETE.
    Method(Box<str>),
    /// The header is not permitted, or its name or value is not valid.
    Header(Box<str>),
    /// A part of the callback is too long. The text names the part, such as the body.
    TooLong(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(fault) => write!(f, "the URL cannot be read: {fault}"),
            Self::Destination(blocked) => blocked.fmt(f),
            Self::Method(method) => write!(f, "the method {method:?} is not permitted"),
            Self::Header(name) => write!(f, "the header {name:?} is not permitted, or not valid"),
            Self::TooLong(part) => write!(f, "too long: {part}"),
        }
    }
}

impl core::error::Error for Refusal {}

/// The headers that a callback must not set, because the connection or this crate sets them.
const RESERVED: [&str; 15] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    "tourbillon-attempt",
    "tourbillon-scheduled-for",
    "traceparent",
];

/// The ports of other protocols whose servers might interpret a request as a command.
const OTHER_PROTOCOLS: [u16; 3] = [2_049, 6_379, 11_211];

fn is_port_permitted(port: u16) -> bool {
    matches!(port, 80 | 443 | 1_024..) && !OTHER_PROTOCOLS.contains(&port)
}

impl Callback {
    /// Checks the parts of a callback against the rules, and makes the callback.
    ///
    /// # Errors
    ///
    /// Fails if a part is not valid, not permitted, or too long.
    pub fn new<'h>(
        url: &str,
        method: &str,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        body: impl Into<Bytes>,
        rules: &Rules,
    ) -> Result<Self, Refusal> {
        if url.len() > rules.url {
            return Err(Refusal::TooLong("the URL"));
        }
        let url = Url::parse(url).map_err(|error| Refusal::Url(error.to_string().into()))?;
        if let Some(Host::Domain(name)) = url.host()
            && dns_name(name).is_none()
        {
            let fault = "DNS has no such name of a host: each part has 1 to 63 letters, digits, `_` or `-`, and \
                         does not begin with `-`, and the name has at most 253 bytes";
            return Err(Refusal::Url(fault.into()));
        }
        let blocked = |blocked| Err(Refusal::Destination(blocked));
        match url.scheme() {
            "https" => {}
            "http" if rules.allow_http => {}
            _ => return blocked(Blocked::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return blocked(Blocked::UserInfo);
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if !is_port_permitted(port) {
            return blocked(Blocked::Port(port));
        }
        let method = match method {
            "GET" => Method::GET,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            other => return Err(Refusal::Method(other.into())),
        };
        let mut map = HeaderMap::new();
        let mut length = 0;
        for (name, value) in headers {
            length += name.len() + value.len() + 4;
            let refusal = || Refusal::Header(name.into());
            let name = HeaderName::try_from(name).map_err(|_| refusal())?;
            let value = HeaderValue::try_from(value).map_err(|_| refusal())?;
            if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
                return Err(refusal());
            }
            map.append(name, value);
        }
        if length > rules.headers {
            return Err(Refusal::TooLong("the headers"));
        }
        let body = body.into();
        if body.len() > rules.body {
            return Err(Refusal::TooLong("the body"));
        }
        Ok(Self { url, method, headers: map, body })
    }

    /// Returns the IP address and port if the URL contains an IP address in any notation. Returns `None` if the URL
    /// contains a host name.
    #[must_use]
    pub fn literal(&self) -> Option<SocketAddr> {
        let address = match self.url.host()? {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(_) => return None,
        };
        Some(SocketAddr::new(address, self.url.port_or_known_default()?))
    }

    /// Returns the host and port of the URL, without a full stop at the end of the host's name. All callbacks of a
    /// tenant to this host and port share a breaker.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or("").trim_end_matches('.');
        format!("{host}:{}", self.url.port_or_known_default().unwrap_or(0))
    }

    /// Returns the path of the callback's URL, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Callback, Refusal> {
        Callback::new(url, "POST", [], "", &Rules { allow_http: true, ..Rules::default() })
    }

    #[test]
    fn urls_that_must_not_be_called_are_refused() {
        for (url, refusal) in [
            ("ftp://example.com/", Blocked::Scheme),
            ("file:///etc/passwd", Blocked::Scheme),
            ("gopher://example.com:70/", Blocked::Scheme),
            ("https://user@example.com/", Blocked::UserInfo),
            ("https://:secret@example.com/", Blocked::UserInfo),
            ("https://example.com:22/", Blocked::Port(22)),
            ("https://example.com:25/", Blocked::Port(25)),
            ("https://example.com:6379/", Blocked::Port(6_379)),
        ] {
            assert_eq!(read(url).unwrap_err(), Refusal::Destination(refusal), "{url}");
        }
        for url in ["", "example.com", "https://", "https:// /", "https://[::1", "https://exa mple.com/"] {
            assert!(matches!(read(url), Err(Refusal::Url(_))), "{url}");
        }
        let long = |label: usize, labels: usize| {
            format!("https://{}example/", format!("{}.", "a".repeat(label)).repeat(labels))
        };
        for url in [
            long(64, 1),
            long(60, 5),
            "https://a..example/".to_owned(),
            "https://.example/".to_owned(),
            "https://example../".to_owned(),
            "https://./".to_owned(),
        ] {
            let refusal = read(&url).unwrap_err();
            assert!(refusal.to_string().contains("63 letters"), "{url}: {refusal}");
        }
        for url in [&*long(63, 1), &long(60, 4), "https://a_b.example/", "https://my_service./"] {
            assert!(read(url).is_ok(), "{url}");
        }
        let only_https = Callback::new("http://example.com/", "POST", [], "", &Rules::default());
        assert_eq!(only_https.unwrap_err(), Refusal::Destination(Blocked::Scheme));
    }

    /// The test checks that an address in a URL is read in every notation, for example 127.0.0.1 as `2130706433`. The
    /// guard checks the address that was read.
    #[test]
    fn literal_addresses_are_read_in_every_notation() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0x7f.1/",
            "http://%31%32%37.0.0.1/",
            "http://１２７.0.0.1/",
            "http://127.0.0.1./",
        ] {
            let literal = read(url).unwrap().literal();
            assert_eq!(literal, Some((core::net::Ipv4Addr::LOCALHOST, 80).into()), "{url}");
        }
    }

    #[test]
    fn a_full_stop_at_the_end_makes_no_other_host() {
        for url in ["https://good.example/", "https://good.example./", "https://GOOD.example:443/"] {
            assert_eq!(read(url).unwrap().host(), "good.example:443", "{url}");
        }
        assert_eq!(read("http://[::1]:8080/").unwrap().host(), "[::1]:8080");
    }

    #[test]
    fn headers_of_the_connection_are_refused() {
        let with = |name: &'static str, value: &'static str| {
            Callback::new("https://example.com/", "POST", [(name, value)], "", &Rules::default())
        };
        for name in RESERVED.into_iter().chain(["Host", "Proxy-Authorization", "Webhook-Id", "", "a b"]) {
            assert_eq!(with(name, "x").unwrap_err(), Refusal::Header(name.into()));
        }
        assert!(with("x-a", "a\r\nhost: b").is_err());
        assert!(with("x-a", "ok").is_ok());
        assert_eq!(
            with("x-a", Box::leak("x".repeat(9_000).into())).unwrap_err(),
            Refusal::TooLong("the headers")
        );
        let brewed = Callback::new("https://example.com/", "BREW", [], "", &Rules::default());
        assert!(matches!(brewed, Err(Refusal::Method(_))));
        let long = Callback::new("https://example.com/", "POST", [], vec![0; 70_000], &Rules::default());
        assert_eq!(long.unwrap_err(), Refusal::TooLong("the body"));
    }
}
