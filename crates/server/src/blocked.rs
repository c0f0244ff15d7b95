//! Explains why a callback must not go to its host, and which setting would permit the callback.

use std::net::SocketAddr;
use tourbillon_callback::guard::{Blocked, Guard};
use url::{Host, Url};

/// Explains why callbacks to this URL are blocked, and names a setting that could permit them. `permits_private` is
/// true if the service permits all private addresses (`callbacks.allow_private`).
pub(crate) fn words(blocked: Blocked, url: &str, permits_private: bool) -> String {
    match blocked {
        Blocked::Scheme if url.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("http:")) => {
            "`http` is not permitted: use `https`, or set `callbacks.allow_http` of the service".to_owned()
        }
        Blocked::Scheme => format!("{blocked}: use `https`"),
        Blocked::NotGlobal(address) => {
            // This guard shows whether `allow_private` alone would permit the address. The port has no effect, because
            // the guard has no addresses in `own`.
            let mut guard = Guard::default();
            guard.allow_private = true;
            let is_private = guard.check(SocketAddr::new(address, 443)).is_ok();
            match (names_address(url), is_private) {
                (true, true) => {
                    format!("{blocked}: set `callbacks.allow_private` or `callbacks.allowed` of the service")
                }
                (true, false) => format!("{blocked}: only `callbacks.allowed` of the service permits it"),
                // The URL has a host name instead of an address. The text does not reveal whether the name resolves to
                // a private address. Otherwise a client could explore the internal network.
                (false, _) if permits_private => {
                    format!("{blocked}, and not private: `callbacks.allowed` of the service may permit it")
                }
                (false, _) => {
                    format!("{blocked}: `callbacks.allow_private` or `callbacks.allowed` may permit it")
                }
            }
        }
        Blocked::UserInfo => format!("{blocked}: use the header `authorization`"),
        Blocked::Port(_) => format!("{blocked}: use 80, 443, or one from 1024 on"),
        other => other.to_string(),
    }
}

/// Returns whether the URL's host is an IP address rather than a name.
fn names_address(url: &str) -> bool {
    let url = Url::parse(url).ok();
    matches!(url.as_ref().and_then(Url::host), Some(Host::Ipv4(_) | Host::Ipv6(_)))
}

/// Returns the error text for a callback to `host`, which is missing in its namespace's list `allowed_hosts`.
pub(crate) fn host_words(host: &str) -> String {
    format!("the namespace does not allow the host {host}: add it to the namespace's `allowed_hosts`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_destination_names_the_setting_that_permits_it() {
        let not_global = |text: &str| Blocked::NotGlobal(text.parse().unwrap());
        for (blocked, url, remedy) in [
            (Blocked::Scheme, "http://example.com/", "`callbacks.allow_http`"),
            (Blocked::Scheme, "gopher://example.com/", "use `https`"),
            (not_global("127.0.0.1"), "https://127.0.0.1/", "`callbacks.allow_private`"),
            (not_global("127.0.0.1"), "https://localhost/", "`callbacks.allow_private`"),
            (not_global("fd00::1"), "https://[fd00::1]/", "`callbacks.allow_private`"),
            (not_global("169.254.169.254"), "https://169.254.169.254/", "only `callbacks.allowed`"),
            (Blocked::UserInfo, "https://a@example.com/", "`authorization`"),
            (Blocked::Port(22), "https://example.com:22/", "1024"),
        ] {
            let words = words(blocked, url, false);
            assert!(words.contains(remedy), "{words}");
            assert!(!words.contains("127.0.0.1"), "what a name resolves to is not shown: {words}");
            // A timer's error is a prefix and this text. At most 200 bytes of the error are stored and shown.
            assert!(words.len() < 180, "{words}");
        }
        // This setting is set already, so it is no remedy.
        let words = words(not_global("169.254.169.254"), "https://a.example/", true);
        assert!(words.contains("`callbacks.allowed`") && !words.contains("allow_private"), "{words}");
        assert!(host_words("a.example:443").contains("`allowed_hosts`"));
    }
}
