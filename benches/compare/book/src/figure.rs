//! Writes figures as text, with three significant digits and a comma for each thousand.

/// Writes a number with three significant digits: `1.23`, `12.3`, `123`, `1,230`. Writes `-` if `value` is NaN.
#[must_use]
pub fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value < 0.0 {
        return format!("-{}", figure(-value));
    }
    let scientific = format!("{value:.2e}");
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    let (Some(exponent), Ok(rounded)) = (exponent, scientific.parse::<f64>()) else { return "-".to_owned() };
    match usize::try_from(2 - exponent) {
        Ok(decimals) => format!("{rounded:.decimals$}"),
        _ => grouped(rounded),
    }
}

/// Writes a count with all its digits.
#[must_use]
pub fn count(value: f64) -> String {
    if value.fract() == 0.0 && value >= 0.0 { grouped(value) } else { figure(value) }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    digits.parse().map_or(digits, thousands)
}

/// Writes a count with a comma for each thousand.
#[must_use]
pub fn thousands(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits() {
        let figures =
            [0.0, 0.001_234, 0.25, 1.236, 9.999, 12.34, 48.0, 99.96, 123.4, 999.9, 12_345.0, 1e7, -1.5];
        let texts = figures.map(figure);
        let expected = [
            "0",
            "0.00123",
            "0.250",
            "1.24",
            "10.0",
            "12.3",
            "48.0",
            "100",
            "123",
            "1,000",
            "12,300",
            "10,000,000",
            "-1.50",
        ];
        assert_eq!(texts, expected);
        assert_eq!(figure(f64::NAN), "-");
    }

    #[test]
    fn counts_keep_all_their_digits() {
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(0.5), "0.500");
    }

    #[test]
    fn counts_have_a_comma_for_each_thousand() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(10_000_000), "10,000,000");
    }
}
