//! A strict reader of Prometheus' text format, version 0.0.4.

use std::collections::{BTreeMap, BTreeSet};

/// A page of metrics that the reader has found correct.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The name and the type of each metric family, in the page's order.
    pub(crate) families: Vec<(String, String)>,
    pub(crate) samples: BTreeMap<Series, f64>,
}

/// A time series: its name, and its labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
}

impl Page {
    /// Reads a page of metrics. An error describes the page's first fault.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        let mut page = Self::default();
        let mut helped: Option<String> = None;
        for line in text.lines() {
            let outcome = match line.strip_prefix("# ") {
                Some(rest) => page.read_comment(rest, &mut helped),
                None => page.read_sample(line),
            };
            outcome.map_err(|error| format!("{error}: {line:?}"))?;
        }
        page.check_histograms()?;
        Ok(page)
    }

    /// Returns the value of a time series, which is written with its labels, as `name{shard="0"}`.
    pub(crate) fn get(&self, series: &str) -> f64 {
        let (series, rest) = read_series(series).unwrap();
        assert_eq!(rest, "");
        *self.samples.get(&series).unwrap_or_else(|| panic!("no {series:?} in {self:#?}"))
    }

    fn read_comment(&mut self, rest: &str, helped: &mut Option<String>) -> Result<(), String> {
        let mut words = rest.splitn(3, ' ');
        let (keyword, name, text) = (words.next(), words.next().unwrap_or(""), words.next().unwrap_or(""));
        check_name(name)?;
        match keyword {
            Some("HELP") => {
                let names = self.families.iter().map(|(name, _)| name);
                if names.chain(helped.as_ref()).any(|other| other == name) {
                    return Err("helped twice".to_owned());
                }
                if text.is_empty() || unescape(text, &['\\']).is_none() {
                    return Err("a help that is none".to_owned());
                }
                *helped = Some(name.to_owned());
            }
            Some("TYPE") => {
                if helped.take().as_deref() != Some(name) {
                    return Err("a type without its help before".to_owned());
                }
                if !["counter", "gauge", "histogram"].contains(&text) {
                    return Err("an unknown type".to_owned());
                }
                if (text == "counter") != name.ends_with("_total") {
                    return Err("counters, and nothing else, end in _total".to_owned());
                }
                self.families.push((name.to_owned(), text.to_owned()));
            }
            _ => return Err("an unknown comment".to_owned()),
        }
        Ok(())
    }

    fn read_sample(&mut self, line: &str) -> Result<(), String> {
        let (series, rest) = read_series(line)?;
        let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
        let value: f64 = value.parse().map_err(|_| "a value that is no number")?;
        let Some((family, kind)) = self.families.last() else {
            return Err("a sample without a type".to_owned());
        };
        let suffix = series.name.strip_prefix(family.as_str()).ok_or("a sample of another family")?;
        let fits = match kind.as_str() {
            "histogram" => match suffix {
                "_bucket" => series.labels.contains_key("le"),
                "_sum" | "_count" => !series.labels.contains_key("le"),
                _ => false,
            },
            _ => suffix.is_empty() && !series.labels.contains_key("le"),
        };
        if !fits {
            return Err("a sample that does not fit its type".to_owned());
        }
        if value < 0.0 || !value.is_finite() {
            return Err("none of our values can be that".to_owned());
        }
        match self.samples.insert(series, value) {
            Some(_) => Err("a series that was there already".to_owned()),
            None => Ok(()),
        }
    }

    fn check_histograms(&self) -> Result<(), String> {
        for (family, _) in self.families.iter().filter(|(_, kind)| kind == "histogram") {
            let name = format!("{family}_bucket");
            let mut histograms: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
            for (series, &value) in self.samples.iter().filter(|(series, _)| series.name == name) {
                let mut labels = series.labels.clone();
                let bound = labels.remove("le").ok_or("a bucket without its bound")?;
                let bound: f64 = bound.parse().map_err(|_| format!("a bound of {bound}"))?;
                histograms.entry(labels).or_default().push((bound, value));
            }
            let series_of =
                |suffix| self.samples.keys().filter(move |series| series.name == format!("{family}{suffix}"));
            for suffix in ["_sum", "_count"] {
                let owners: BTreeSet<_> = series_of(suffix).map(|series| &series.labels).collect();
                if owners != histograms.keys().collect() {
                    return Err(format!("{family}{suffix} is not there once for each histogram"));
                }
            }
            for (labels, mut buckets) in histograms {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                if !buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
                    return Err(format!("{family} is not cumulative: {buckets:?}"));
                }
                let count = self.samples[&Series { name: format!("{family}_count"), labels }];
                if buckets.last() != Some(&(f64::INFINITY, count)) {
                    return Err(format!("the last bucket of {family} is not the count {count}: {buckets:?}"));
                }
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_good =
        |(at, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit());
    if name.is_empty() || !name.chars().enumerate().all(is_good) {
        return Err(format!("{name:?} is no name"));
    }
    Ok(())
}

/// Reads a series' name and labels from the start of `text`. Returns both, and the rest of the text.
fn read_series(text: &str) -> Result<(Series, &str), String> {
    let end = text.find(['{', ' ']).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    check_name(name)?;
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            check_name(label)?;
            let mut escaped = false;
            let end = after.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let (value, after) = after.split_at(end.ok_or("a value without an end")?);
            let value = unescape(value, &['\\', '"']).ok_or("a stray backslash")?;
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(format!("{label} is there twice"));
            }
            let after = &after[1..];
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').ok_or("labels without an end")?;
                    break;
                }
            }
        }
    }
    Ok((Series { name: name.to_owned(), labels }, rest))
}

/// Replaces the escapes in `text`. Returns `None` if a backslash stands before a character other than `n` or a
/// character of `marks`.
fn unescape(text: &str, marks: &[char]) -> Option<String> {
    let mut chars = text.chars();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' => plain.push('\n'),
                mark if marks.contains(&mark) => plain.push(mark),
                _ => return None,
            },
            _ => plain.push(c),
        }
    }
    Some(plain)
}

#[test]
fn the_reader_is_strict() {
    const COUNTER: &str = "# HELP a_total A.\n# TYPE a_total counter\n";
    const HISTOGRAM: &str = "# HELP h H.\n# TYPE h histogram\n";
    let good = [
        format!("{COUNTER}a_total 1\n"),
        format!("{COUNTER}a_total{{x=\"1\",y=\"\\\\ \\\" \\n\"}} 1.5\na_total{{x=\"2\"}} 0\n"),
        format!("{HISTOGRAM}h_bucket{{le=\"0.5\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\nh_sum 3\nh_count 2\n"),
    ];
    for text in good {
        Page::read(&text).unwrap();
    }
    let bad = [
        (format!("{COUNTER}a_total 1"), "has no end"),
        ("a_total 1\n".to_owned(), "without a type"),
        ("# TYPE a_total counter\n".to_owned(), "without its help"),
        (format!("{COUNTER}{COUNTER}"), "helped twice"),
        ("# HELP a A.\n# TYPE a counter\n".to_owned(), "_total"),
        ("# HELP a A.\n# TYPE a meter\n".to_owned(), "unknown type"),
        ("# HELP a \\x\n# TYPE a gauge\n".to_owned(), "help that is none"),
        (format!("{COUNTER}b_total 1\n"), "another family"),
        (format!("{COUNTER}a_total 1\na_total 2\n"), "there already"),
        (format!("{COUNTER}a_total{{x=\"1\",x=\"2\"}} 1\n"), "twice"),
        (format!("{COUNTER}a_total{{x=\"\\y\"}} 1\n"), "stray backslash"),
        (format!("{COUNTER}a_total{{x=\"1\" 1\n"), "without an end"),
        (format!("{COUNTER}a_total x\n"), "no number"),
        (format!("{COUNTER}a_total -1\n"), "can be that"),
        (format!("{COUNTER}a_total{{0=\"1\"}} 1\n"), "no name"),
        (format!("{HISTOGRAM}h 1\n"), "fit its type"),
        (format!("{HISTOGRAM}h_bucket 1\n"), "fit its type"),
        (format!("{HISTOGRAM}h_bucket{{le=\"1\"}} 1\nh_sum 3\nh_count 1\n"), "last bucket"),
        (format!("{HISTOGRAM}h_bucket{{le=\"+Inf\"}} 1\nh_sum 3\nh_count 2\n"), "last bucket"),
        (
            format!("{HISTOGRAM}h_bucket{{le=\"1\"}} 3\nh_bucket{{le=\"+Inf\"}} 2\nh_sum 3\nh_count 2\n"),
            "not cumulative",
        ),
        (format!("{HISTOGRAM}h_bucket{{le=\"+Inf\"}} 2\nh_count 2\n"), "h_sum is not there"),
    ];
    for (text, error) in bad {
        let found = Page::read(&text).expect_err(&text);
        assert!(found.contains(error), "{found} for {text}");
    }
}
