//! Takes the parameters about TLS, such as `sslmode=require`, out of an address. The driver supports only some of these
//! parameters, so this crate reads them itself.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The names of the parameters about TLS that this crate reads. These parameters are taken out of an address before the
/// driver gets the address.
const WORDS: [&str; 4] = ["sslcert", "sslkey", "sslmode", "sslrootcert"];

/// The names of the parameters about TLS that libpq reads, but that this crate does not support. These parameters are
/// taken out of an address as well, because the driver's error would not name the unsupported parameter.
pub(super) const UNSUPPORTED: [&str; 9] = [
    "requiressl",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslpassword",
    "sslsni",
];

/// An address without its parameters about TLS, such as `sslmode=require`. `words` has the names and values of these
/// parameters.
pub(super) struct Split<'a> {
    pub(super) rest: Cow<'a, str>,
    pub(super) words: Vec<(&'static str, String)>,
}

/// Takes the parameters about TLS, such as `sslmode=require`, out of an address. An address that cannot be parsed is
/// returned unchanged. The driver parses it later, and reports its fault.
pub(super) fn split(address: &str) -> Split<'_> {
    let is_url = address.starts_with("postgres://") || address.starts_with("postgresql://");
    let parts = if is_url { split_url(address) } else { split_words(address) };
    match parts {
        Some((rest, words)) if !words.is_empty() => Split { rest: rest.into(), words },
        _ => Split { rest: address.into(), words: Vec::new() },
    }
}

type Parts = (String, Vec<(&'static str, String)>);

fn known(name: &str) -> Option<&'static str> {
    WORDS.into_iter().chain(UNSUPPORTED).find(|word| *word == name)
}

fn split_url(address: &str) -> Option<Parts> {
    // As the driver does: the user and the password are before the first `@`, and may contain a question mark.
    let user = address.find('@').map_or(0, |at| at + 1);
    let query = user + address.get(user..)?.find('?')?;
    let (place, query) = (address.get(..query)?, address.get(query + 1..)?);
    let (mut kept, mut words) = (Vec::new(), Vec::new());
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match known(&percent_decode_str(name).decode_utf8().ok()?) {
            Some(word) => words.push((word, percent_decode_str(value).decode_utf8().ok()?.into_owned())),
            None => kept.push(pair),
        }
    }
    let mark = if kept.is_empty() { "" } else { "?" };
    Some((format!("{place}{mark}{}", kept.join("&")), words))
}

/// Takes the parameters about TLS out of an address that is a list of parameters, such as `host=/run/postgresql
/// password='a b'`. Returns `None` if the address cannot be read.
fn split_words(address: &str) -> Option<Parts> {
    let (mut kept, mut words) = (Vec::new(), Vec::new());
    let mut rest = address.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, length) = value(after)?;
        let end = rest.len() - after.len() + length;
        match known(name.trim_end()) {
            Some(word) => words.push((word, value)),
            None => kept.push(rest.get(..end)?),
        }
        rest = rest.get(end..)?.trim_start();
    }
    Some((kept.join(" "), words))
}

/// Returns the value at the start of a text. Also returns the length of the value in the text, including its quotes and
/// backslashes. `None` if a closing quote is missing.
fn value(text: &str) -> Option<(String, usize)> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut letters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, next)| next)),
            '\'' if is_quoted => return Some((value, at + 1)),
            _ if !is_quoted && letter.is_whitespace() => return Some((value, at)),
            _ => value.push(letter),
        }
    }
    (!is_quoted).then_some((value, text.len()))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[track_caller]
    fn check(address: &str, rest: &str, words: &[(&str, &str)]) {
        let split = split(address);
        let found: Vec<_> = split.words.iter().map(|(word, value)| (*word, value.as_str())).collect();
        assert_eq!((&*split.rest, found.as_slice()), (rest, words), "{address}");
    }

    #[test]
    fn words_about_tls_are_taken_out_of_an_address_and_the_rest_stays_as_it_is() {
        check("postgresql://a:p@h/d", "postgresql://a:p@h/d", &[]);
        check("postgresql://a:p?q@h/d?sslmode=require", "postgresql://a:p?q@h/d", &[("sslmode", "require")]);
        check(
            "postgres://h,i/d?user=a&sslrootcert=%2Fetc%2Fa%20b&connect_timeout=3&ssl%6Dode=x",
            "postgres://h,i/d?user=a&connect_timeout=3",
            &[("sslrootcert", "/etc/a b"), ("sslmode", "x")],
        );
        check("postgresql://h?sslmode=", "postgresql://h", &[("sslmode", "")]);
        check("postgresql://h?sslnegotiation=direct", "postgresql://h?sslnegotiation=direct", &[]);
        check(
            r"  host=h  password='a \' sslmode=x' sslmode = verify-full sslcert='/a b' sslkey=/c\ d port=1",
            r"host=h password='a \' sslmode=x' port=1",
            &[("sslmode", "verify-full"), ("sslcert", "/a b"), ("sslkey", "/c d")],
        );
        // Addresses with faults stay as they are.
        for address in ["host=h sslmode='x", "host=h sslmode", "sslmode", "redis://h?a=1", ""] {
            check(address, address, &[]);
        }
    }
}
