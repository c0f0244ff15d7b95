//! Writes numbers, lengths of time and moments as text for people.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use tourbillon_api::Moment;
use url::form_urlencoded::Serializer;

/// The characters that are escaped in a path: all except the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Writes a duration, given in milliseconds, in at most two units.
pub(super) fn span(millis: u64) -> String {
    let two = |unit: u64, name: &str, below: u64, name_below: &str| {
        let (whole, rest) = (millis / unit, millis % unit / below);
        if rest == 0 { format!("{whole} {name}") } else { format!("{whole} {name} {rest} {name_below}") }
    };
    match millis {
        0..SECOND => format!("{millis} ms"),
        SECOND..MINUTE => {
            let (whole, tenth) = (millis / SECOND, millis % SECOND / 100);
            if tenth == 0 { format!("{whole} s") } else { format!("{whole}.{tenth} s") }
        }
        MINUTE..HOUR => two(MINUTE, "min", SECOND, "s"),
        HOUR..DAY => two(HOUR, "h", MINUTE, "min"),
        DAY..YEAR => two(DAY, "d", HOUR, "h"),
        _ => two(YEAR, "y", DAY, "d"),
    }
}

/// Writes how far a moment is from now: "in …" or "… ago". Both moments are in milliseconds.
pub(super) fn ago_or_in(at: u64, now: u64) -> String {
    if at > now { format!("in {}", span(at - now)) } else { format!("{} ago", span(now - at)) }
}

/// Writes a moment for people, without the letters `T` and `Z`.
pub(super) fn plain(at: Moment) -> String {
    let text = at.to_string();
    text.trim_end_matches('Z').replacen('T', " ", 1)
}

/// Writes a number with its digits in groups of three, such as "1,234".
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number in at most four characters, such as "1.2k", for the axis of a chart. Rounds the number down.
pub(super) fn short(number: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (1_000_000_000_000_000_000, "E"),
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let Some((unit, letter)) = UNITS.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    let (whole, tenth) = (number / unit, number % unit / (unit / 10));
    if whole >= 10 || tenth == 0 { format!("{whole}{letter}") } else { format!("{whole}.{tenth}{letter}") }
}

/// Writes a number of bytes in its greatest suitable unit, such as "1.5 MiB". Rounds down to one digit behind the
/// point.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut text = format!("{bytes} B");
    for (unit, power) in UNITS.iter().zip((10..).step_by(10)) {
        let (whole, rest) = (bytes >> power, bytes & ((1 << power) - 1));
        if whole == 0 {
            break;
        }
        text = format!("{whole}.{} {unit}", (u128::from(rest) * 10) >> power);
    }
    text
}

/// Returns the rate of `count` events within `millis` milliseconds, in tenths of an event per hour.
pub(super) fn per_hour(count: u64, millis: u64) -> u64 {
    // An hour has 3,600,000 ms, and the result is in tenths.
    let tenths = u128::from(count) * 36_000_000 / u128::from(millis.max(1));
    u64::try_from(tenths).unwrap_or(u64::MAX)
}

/// Writes a rate, given in tenths of an event per hour. The text gives events per second if the rate is at least one
/// event per second. Otherwise it gives events per minute or per hour.
pub(super) fn rate(tenths_per_hour: u64) -> String {
    let (tenths, unit) = match tenths_per_hour {
        0 => return "0/s".to_owned(),
        1..600 => (tenths_per_hour, "h"),
        600..36_000 => (tenths_per_hour / 60, "min"),
        _ => (tenths_per_hour / 3_600, "s"),
    };
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if whole >= 100 || tenth == 0 {
        format!("{}/{unit}", number(whole))
    } else {
        format!("{whole}.{tenth}/{unit}")
    }
}

/// Shortens a text to at most `most` characters. A shortened text ends with "…", which counts as a character.
pub(super) fn beginning(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Returns the address of the page at `path` with these parameters, each with a name and a value. Leaves out empty
/// values.
pub(super) fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let query = Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// Percent-encodes a text for use as a segment of a path. A namespace may have any name if a library or a caller in SQL
/// has stored its timers. Only the segments `.` and `..` cannot be encoded, because browsers remove them from paths in
/// any form.
pub(super) fn segment(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_two_units_at_most() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (12_340, "12.3 s"),
            (60_000, "1 min"),
            (3_599_999, "59 min 59 s"),
            (3_600_000, "1 h"),
            (5_400_000, "1 h 30 min"),
            (DAY + 2 * HOUR, "1 d 2 h"),
            (2 * YEAR + DAY, "2 y 1 d"),
        ] {
            assert_eq!(span(millis), text);
        }
        assert_eq!(ago_or_in(1_000, 3_000), "2 s ago");
        assert_eq!(ago_or_in(3_000, 1_000), "in 2 s");
        assert!(span(u64::MAX).ends_with(" d"));
    }

    #[test]
    fn numbers_are_grouped_and_none_is_rounded() {
        for (value, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(number(value), text);
        }
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1k"),
            (1_999, "1.9k"),
            (99_999, "99k"),
            (1_000_000, "1M"),
            (u64::MAX, "18E"),
        ] {
            assert_eq!(short(value), text);
        }
        for (count, millis, text) in [
            (0, 10_000, "0/s"),
            (1, 10_000, "6/min"),
            (15, 10_000, "1.5/s"),
            (12_345, 10_000, "1,234/s"),
            (1, 36 * 60_000, "1.6/h"),
        ] {
            assert_eq!(rate(per_hour(count, millis)), text);
        }
        for (value, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (20 << 30, "20.0 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(beginning("äöü", 3), "äöü");
        assert_eq!(beginning("äöüß", 3), "äö…");
    }
}
