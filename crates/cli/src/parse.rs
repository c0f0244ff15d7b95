//! Parses the values of flags, such as durations and limits.

use core::time::Duration;
use tourbillon_client::api::Backoff;

/// The units of durations, the longest unit first. Each unit has its length in milliseconds.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration such as `1h30m`: whole numbers with units, the longest unit first. Returns milliseconds.
pub(crate) fn millis(text: &str) -> Result<u64, String> {
    let fault = || format!("not a duration such as 30d, 1h30m, 5s or 250ms: {text:?}");
    let (mut rest, mut units, mut sum) = (text, &UNITS[..], 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| fault())?;
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let at = units.iter().position(|(name, _)| *name == unit).ok_or_else(fault)?;
        sum = number.checked_mul(units[at].1).and_then(|part| sum.checked_add(part)).ok_or_else(fault)?;
        units = &units[at + 1..];
        rest = after;
    }
    if text.is_empty() { Err(fault()) } else { Ok(sum) }
}

/// Parses a duration such as `30d`, `1h30m` or `250ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    millis(text).map(Duration::from_millis)
}

/// Writes a duration, given in milliseconds, in a form such as `1h30m`.
pub(crate) fn short(mut millis: u64) -> String {
    let mut text = String::new();
    for (unit, length) in UNITS {
        // Weeks are left out, since they are hard to compare with days.
        if unit != "w" && millis >= length {
            text.push_str(&format!("{}{unit}", millis / length));
            millis %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Parses a backoff: `standard`, `fixed:5s`, `exponential:1s..1h` or `ladder:1s,5s,1m`.
pub(crate) fn backoff(text: &str) -> Result<Backoff, String> {
    let fault =
        || format!("not a back-off such as standard, fixed:5s, exponential:1s..1h or ladder:1s,5s: {text:?}");
    match text.split_once(':') {
        None if text == "standard" => Ok(Backoff::Standard {}),
        Some(("fixed", pause)) => Ok(Backoff::Fixed { pause_ms: millis(pause)? }),
        Some(("exponential", range)) => {
            let (first, max) = range.split_once("..").ok_or_else(fault)?;
            Ok(Backoff::Exponential { first_ms: millis(first)?, max_ms: millis(max)? })
        }
        Some(("ladder", pauses)) => {
            Ok(Backoff::Ladder { pauses_ms: pauses.split(',').map(millis).collect::<Result<_, _>>()? })
        }
        _ => Err(fault()),
    }
}

/// Parses a day of the month: a number from 1 to 31, or `last`. The word `last` means 31, because a shorter month uses
/// its last day.
pub(crate) fn day(text: &str) -> Result<i8, String> {
    if text == "last" {
        return Ok(31);
    }
    let day = text.parse().ok().filter(|day| (1..=31).contains(day));
    day.ok_or_else(|| format!("neither a day from 1 to 31 nor `last`: {text:?}"))
}

/// Reads a header such as `x-order: 17`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("not `name: value`: {text:?}"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The value of a flag that sets a limit: a number, or the word `none` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit<T> {
    None,
    Of(T),
}

impl<T> Limit<T> {
    pub(crate) fn get(self) -> Option<T> {
        match self {
            Self::None => None,
            Self::Of(limit) => Some(limit),
        }
    }
}

/// Parses a limit: a number, or the word `none` for no limit.
pub(crate) fn limit<T: core::str::FromStr>(text: &str) -> Result<Limit<T>, String> {
    if text == "none" {
        return Ok(Limit::None);
    }
    text.parse().map(Limit::Of).map_err(|_| format!("neither a number in range nor `none`: {text:?}"))
}

/// Parses a limit in milliseconds: a duration such as `30d`, or the word `none` for no limit.
pub(crate) fn limit_millis(text: &str) -> Result<Limit<u64>, String> {
    if text == "none" { Ok(Limit::None) } else { millis(text).map(Limit::Of) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, expected) in [
            ("30d", 30 * 86_400_000),
            ("5m", 300_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("1w2d3h4m5s6ms", 604_800_000 + 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_006),
            ("0s", 0),
        ] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "5",
            "m",
            "5M",
            "1.5h",
            "-1s",
            "5 m",
            "1s1s",
            "1ms1s",
            "1y",
            "99999999999999999999s",
            "600000000000000w",
            "5µs",
        ] {
            assert!(millis(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        for value in [0, 1, 999, 1_000, 61_001, 86_400_000, 30 * 86_400_000 + 5, 3_600_000 * 24 * 400] {
            assert_eq!(millis(&short(value)), Ok(value), "{}", short(value));
        }
    }

    #[test]
    fn a_day_of_the_month_may_be_the_last() {
        assert_eq!((day("1"), day("31"), day("last")), (Ok(1), Ok(31), Ok(31)));
        for text in ["", "0", "32", "-1", "Last", "1.5"] {
            assert!(day(text).is_err(), "{text}");
        }
    }

    #[test]
    fn back_offs_have_a_form_each() {
        assert_eq!(backoff("standard"), Ok(Backoff::Standard {}));
        assert_eq!(backoff("fixed:5s"), Ok(Backoff::Fixed { pause_ms: 5_000 }));
        assert_eq!(
            backoff("exponential:1s..1h"),
            Ok(Backoff::Exponential { first_ms: 1_000, max_ms: 3_600_000 })
        );
        assert_eq!(backoff("ladder:1s,5s"), Ok(Backoff::Ladder { pauses_ms: vec![1_000, 5_000] }));
        for text in ["", "fixed", "fixed:", "exponential:1s", "ladder:1s,", "standard:1s", "Fixed:1s"] {
            assert!(backoff(text).is_err(), "{text}");
        }
    }
}
