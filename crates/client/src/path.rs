//! Builds paths and queries of requests.

use core::fmt::Write as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are escaped in a path: all except the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Appends a segment to a path, and escapes it. The segments `.` and `..` are escaped too, because proxies would
/// resolve them.
pub(crate) fn push(path: &mut String, segment: &str) {
    path.push('/');
    match segment {
        "." => path.push_str("%2E"),
        ".." => path.push_str("%2E%2E"),
        _ => path.extend(utf8_percent_encode(segment, ESCAPED)),
    }
}

/// Builds the path of a request from its segments, and escapes each segment.
pub(crate) fn join(segments: &[&str]) -> String {
    let mut path = String::new();
    segments.iter().for_each(|segment| push(&mut path, segment));
    path
}

/// Builds the query of a URL from pairs of a name and a value. Leaves out the pairs without a value.
pub(crate) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let start = if query.is_empty() { '?' } else { '&' };
            // Writing to a string cannot fail.
            let _written = write!(query, "{start}{name}={}", utf8_percent_encode(value, ESCAPED));
        }
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leaves_its_segment() {
        for (key, segment) in [
            ("order 17", "order%2017"),
            ("a/b", "a%2Fb"),
            ("?a=b#c", "%3Fa%3Db%23c"),
            ("..", "%2E%2E"),
            (".", "%2E"),
            ("...", "..."),
            ("50%", "50%25"),
            ("ü", "%C3%BC"),
            ("a:b", "a%3Ab"),
        ] {
            assert_eq!(join(&["v1", key]), format!("/v1/{segment}"));
        }
    }

    #[test]
    fn a_query_has_only_what_has_a_value() {
        assert_eq!(query(&[("phase", None), ("label", None)]), "");
        assert_eq!(query(&[("phase", None), ("label", Some("a&b")), ("x", Some(""))]), "?label=a%26b&x=");
    }
}
