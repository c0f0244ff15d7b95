//! Numbers, lengths of time and moments as text.

use tourbillon_api::Moment;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// A length of time in milliseconds, in two units at most.
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

/// A moment as seen from now.
pub(super) fn ago_or_in(at: u64, now: u64) -> String {
    if at > now { format!("in {}", span(at - now)) } else { format!("{} ago", span(now - at)) }
}

/// A moment without the letters that stand for UTC.
pub(super) fn plain(at: Moment) -> String {
    let text = at.to_string();
    text.trim_end_matches('Z').replacen('T', " ", 1)
}

/// A number with its digits in groups of three.
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

/// The beginning of a text, of at most so many characters.
pub(super) fn beginning(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
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
        assert_eq!(beginning("äöü", 3), "äöü");
        assert_eq!(beginning("äöüß", 3), "äö…");
    }
}
