//! Figures as text.

/// As `1.23`, `12.3`, `123`, `1,230`.
pub(crate) fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.2e}");
    let rounded: f64 = scientific.parse().unwrap_or(f64::NAN);
    let exponent: i32 =
        scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match usize::try_from(2 - exponent) {
        Ok(decimals) => format!("{rounded:.decimals$}"),
        _ => count(rounded),
    }
}

/// A whole number, with a comma for each thousand.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0
            && digit.is_ascii_digit()
            && (digits.len() - index).is_multiple_of(3)
            && !text.ends_with('-')
        {
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
    fn figures_have_three_digits() {
        let texts = [0.0, 0.001_234, 1.0, 1.236, 12.34, 123.4, 12_345.0, 1_000_000.0, 999.9].map(figure);
        assert_eq!(texts, ["0", "0.00123", "1.00", "1.24", "12.3", "123", "12,300", "1,000,000", "1,000"]);
    }
}
