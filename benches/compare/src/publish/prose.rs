//! Checks that prose has no figures of its own, since measured figures must come from the results.

/// The units of figures. A number before a unit counts as a measured figure.
const UNITS: [&str; 22] = [
    "ns", "us", "µs", "ms", "s", "seconds", "min", "minutes", "h", "%", "percent", "times", "x", "×", "byte",
    "bytes", "KB", "kB", "KiB", "MB", "MiB", "CPU",
];

/// Numbers with units that are parameters of workloads and contestants. Prose may have them, because they were not
/// measured.
const PARAMETERS: [&str; 10] =
    ["10 to 60 s", "50 to 200 ms", "200 ms", "40 ms", "95 %", "5 s", "1 ms", "0.1 ms", "30 days", "16 bytes"];

/// Returns the measured figures in a text. Leaves out parameters of workloads.
pub(super) fn figures(text: &str) -> Vec<String> {
    let text = PARAMETERS.iter().fold(text.to_owned(), |text, parameter| without(&text, parameter));
    let words: Vec<&str> = text
        .split(|letter: char| letter.is_whitespace() || "-()[]|*_`\"".contains(letter))
        .map(|word| word.trim_matches(|letter: char| ",.;:!?".contains(letter)))
        .filter(|word| !word.is_empty())
        .collect();
    let next = words.iter().skip(1).copied().chain([""]);
    let figure = |(&word, next): (&&str, &str)| {
        let number = word.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let is_number = number.starts_with(|first: char| first.is_ascii_digit());
        let unit = &word[number.len()..];
        match is_number {
            true if UNITS.contains(&unit) => Some(word.to_owned()),
            true if unit.is_empty() && UNITS.contains(&next) => Some(format!("{word} {next}")),
            _ => None,
        }
    };
    words.iter().zip(next).filter_map(figure).collect()
}

/// Removes `part` from `text`. Keeps a `part` that ends a longer number or begins a longer word.
fn without(text: &str, part: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(part) {
        let (before, after) = (&rest[..at], &rest[at + part.len()..]);
        let is_whole = !before.ends_with(|last: char| last.is_alphanumeric() || ".,".contains(last))
            && !after.starts_with(char::is_alphanumeric);
        kept += before;
        kept += if is_whole { "" } else { part };
        rest = after;
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_unit_is_a_figure() {
        let texts = [
            ("It takes 71 ns.", "71 ns"),
            ("It takes 0.41 s of CPU", "0.41 s"),
            ("it is 1.4 times ours", "1.4 times"),
            ("*2x* as fast", "2x"),
            ("(3.1µs)", "3.1µs"),
            ("a third, 33 %", "33 %"),
            ("4,096 bytes", "4,096 bytes"),
            ("a 28-KiB ring", "28 KiB"),
            ("`12 MB`", "12 MB"),
            ("under 45 minutes", "45 minutes"),
            ("2 CPU", "2 CPU"),
        ];
        for (text, figure) in texts {
            assert_eq!(figures(text), [figure], "{text}");
        }
    }

    #[test]
    fn other_numbers_are_none() {
        let text = "With 1,000,000 pending, from 8 threads, at p99.9, Java 17, 2 cores, docs/x2.md, ns 5";
        assert_eq!(figures(text), [""; 0]);
    }

    #[test]
    fn parameters_are_no_figures_where_they_stand_by_themselves() {
        assert_eq!(figures("a timeout of 5 s, 10 to 60 s ahead, on ticks of 1 ms"), [""; 0]);
        assert_eq!(figures("it took 1.5 s, 2.1 ms and 15 s"), ["1.5 s", "2.1 ms", "15 s"]);
    }
}
