//! Translates the fields of a cron expression from common notations to croner's notation.
//!
//! This module translates four notations that croner does not support:
//! - a start without an end (`0/5`)
//! - a range that goes beyond the end of its field (`22-4`, `FRI-MON`)
//! - a day counted from the last day (`L-3`)
//! - `@midnight`
//!
//! croner also accepts texts that are not proper cron expressions. This module refuses them.

use core::iter;
use croner::errors::CronError;
use croner::parser::CronParser;

/// The values and words that are permitted in a certain field of a cron expression.
struct Kind {
    name: &'static str,
    least: u32,
    most: u32,
    longest_step: u32,
    /// The names that stand for values, in order, such as `JAN`. The first name stands for the least value.
    names: &'static [&'static str],
    /// The words that the field permits although they stand for no number, such as `L`.
    signs: &'static [&'static str],
}

const FIELDS: [Kind; 7] = [
    Kind { name: "second", least: 0, most: 59, longest_step: 59, names: &[], signs: &[] },
    Kind { name: "minute", least: 0, most: 59, longest_step: 59, names: &[], signs: &[] },
    Kind { name: "hour", least: 0, most: 23, longest_step: 23, names: &[], signs: &[] },
    Kind { name: "day of the month", least: 1, most: 31, longest_step: 31, names: &[], signs: &["?", "L"] },
    Kind {
        name: "month",
        least: 1,
        most: 12,
        longest_step: 12,
        names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        signs: &[],
    },
    Kind {
        name: "weekday",
        least: 0,
        most: 6,
        longest_step: 7,
        names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        signs: &["?"],
    },
    Kind { name: "year", least: 1, most: 5000, longest_step: 4999, names: &[], signs: &[] },
];
/// The index of the hour in [`FIELDS`]. Fields up to this index select the time of the day, later fields select the
/// day.
const HOUR: usize = 2;
const DAY: usize = 3;
const WEEKDAY: usize = 5;
const YEAR: usize = 6;
/// The greatest `n` of an item `L-n`. The shortest month has this number of days before its last day.
const MOST_BEFORE_LAST: u32 = 27;

impl Kind {
    /// Returns the value that a word stands for: a number, or a name of this field. Returns `None` for any other word.
    fn value(&self, word: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| *name == word);
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| self.least + at);
        named.or_else(|| if is_number(word) { word.parse().ok() } else { None })
    }

    fn is_word(&self, word: &str) -> bool {
        is_number(word) || word == "*" || self.names.contains(&word) || self.signs.contains(&word)
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The fields of a cron expression, or a nickname such as `@daily`.
pub(super) struct Fields {
    /// The texts of the fields, each with its index in [`FIELDS`]. Items such as `L-3` are not translated yet. Empty
    /// for a nickname.
    all: Vec<(usize, String)>,
    nickname: Option<String>,
}

impl Fields {
    /// Reads a cron expression. If a field is wrong, fails with a description of the fault.
    ///
    /// The checks are stricter than those of the crate croner, which accepts letters of other scripts, and `1,,2`.
    /// croner reads `1MON` as 11, `MON` in the field of the month as January, `15W3` as `15W`, and `L,LW` as `LW`. In
    /// the field of the weekday, croner ignores a lone `L`. If the field of the minute is `,`, croner searches for
    /// several seconds.
    pub(super) fn parse(expression: &str) -> Result<Self, String> {
        if let Some(letter) = expression.chars().find(|letter| !letter.is_ascii()) {
            return Err(format!("{letter:?} is not understood"));
        }
        let upper = expression.trim().to_ascii_uppercase();
        if upper.starts_with('@') {
            let nickname = if upper == "@MIDNIGHT" { "@DAILY".to_owned() } else { upper };
            return Ok(Self { all: Vec::new(), nickname: Some(nickname) });
        }
        let fields: Vec<&str> = upper.split_whitespace().collect();
        if !(5..=7).contains(&fields.len()) {
            return Err(format!("it has {} fields, not 5, 6 or 7", fields.len()));
        }
        let first = usize::from(fields.len() == 5);
        let all = (first..).zip(fields).map(|(index, field)| Ok((index, understood(index, field)?)));
        Ok(Self { all: all.collect::<Result<_, String>>()?, nickname: None })
    }

    /// Returns whether the expression is fixed. An expression is repeating if its second, its minute or its hour begins
    /// with `*`. Every other expression is fixed.
    pub(super) fn are_fixed(&self) -> bool {
        match &self.nickname {
            Some(nickname) => nickname != "@HOURLY",
            None => self.all.iter().all(|(index, field)| *index > HOUR || !field.starts_with('*')),
        }
    }

    /// Returns the expression in the notation of the crate croner. If a day is counted from the last day of the month,
    /// as in `L-3`, returns four expressions instead, for months of 28, 29, 30 and 31 days.
    pub(super) fn by_length(&self) -> Vec<String> {
        if let Some(nickname) = &self.nickname {
            return vec![nickname.clone()];
        }
        let counts_from_end = self
            .all
            .iter()
            .any(|(index, field)| *index == DAY && field.split(',').any(|item| before_last(item).is_some()));
        let lengths = if counts_from_end { 28..=31 } else { 31..=31 };
        lengths.map(|length| self.in_months_of(length)).collect()
    }

    /// Returns the expression in the notation of the crate croner, for months of `length` days.
    fn in_months_of(&self, length: u32) -> String {
        let of_day = |item: &str| {
            before_last(item).map_or_else(|| item.to_owned(), |days| (length - days).to_string())
        };
        let text = |(index, field): &(usize, String)| match *index {
            DAY => field.split(',').map(of_day).collect::<Vec<_>>().join(","),
            _ => field.clone(),
        };
        self.all.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// Returns the message of croner's error, beginning with the name and the text of the faulty field.
    pub(super) fn blame(&self, error: &CronError) -> String {
        let alone = |index: usize, field: &str| {
            let mut all = ["*"; FIELDS.len()];
            all[index] = field;
            all.join(" ")
        };
        let is_at_fault =
            |(index, field): &&(usize, String)| CronParser::new().parse(&alone(*index, field)).is_err();
        match self.all.iter().find(is_at_fault) {
            Some((index, field)) => {
                let message = error.to_string();
                let message =
                    message.rsplit(": ").next().unwrap_or_default().trim_end_matches('.').to_lowercase();
                format!("the {} {field:?}: {message}", FIELDS[*index].name)
            }
            None => "it is not a nickname".to_owned(),
        }
    }
}

/// Reads an item such as `L-3`, the third day before the last day of the month, and returns the number. Returns `None`
/// for any other item, and for a number that is out of range.
fn before_last(item: &str) -> Option<u32> {
    item.strip_prefix("L-")?.parse().ok().filter(|days| (1..=MOST_BEFORE_LAST).contains(days))
}

/// Checks the text of a field. Returns the text with its items, which commas separate, in the notation of the crate
/// croner.
fn understood(index: usize, field: &str) -> Result<String, String> {
    let name = FIELDS[index].name;
    let (plus, items) = match field.strip_prefix('+') {
        Some(items) if index == WEEKDAY => ("+", items),
        _ => ("", field),
    };
    let items: Vec<_> = items.split(',').collect();
    if let Some(item) = items.iter().find(|item| !is_item(index, item)) {
        return Err(format!("the {name} {item:?} is not understood"));
    }
    let longest = FIELDS[index].longest_step;
    let step = |item: &str| item.split_once('/').and_then(|(_, step)| step.parse::<u32>().ok());
    if let Some(item) = items.iter().find(|item| step(item).is_some_and(|step| step > longest)) {
        return Err(format!("the {name} {item:?}: its step is out of bounds, at most {longest}"));
    }
    if index == DAY {
        if items.contains(&"L") && items.contains(&"LW") {
            return Err("L and LW exclude each other".to_owned());
        }
        if let Some(item) = items.iter().find(|item| item.starts_with("L-") && before_last(item).is_none()) {
            return Err(format!("the {name} {item:?}: from L-1 to L-{MOST_BEFORE_LAST}, without W"));
        }
    }
    let items: Vec<_> = items.into_iter().map(|item| in_other_words(index, item)).collect();
    Ok(format!("{plus}{}", items.join(",")))
}

/// Returns whether an item of a field consists of permitted words, with `-`, `/` or `#` between the words.
fn is_item(index: usize, item: &str) -> bool {
    let item = match index {
        DAY => item.strip_suffix('W').unwrap_or(item),
        WEEKDAY => item.strip_suffix("#L").or_else(|| item.strip_suffix('L')).unwrap_or(item),
        _ => item,
    };
    item.split(['-', '/', '#']).all(|word| FIELDS[index].is_word(word))
}

/// Returns an item of a field in the notation of the crate croner. An item such as `0/5`, with a step but without an
/// end, gets the field's greatest value as its end. A range such as `22-4`, which runs past the field's greatest value,
/// becomes a list. A wrong item is returned unchanged, so that croner refuses it.
fn in_other_words(index: usize, item: &str) -> String {
    let kind = &FIELDS[index];
    let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
    let (from, to) = range.split_once('-').map_or((range, None), |(from, to)| (from, Some(to)));
    // croner would read the end of this range as 7, and would match every day. But the range contains only Sunday.
    if index == WEEKDAY && matches!((from, to), ("SUN", Some("SUN" | "7")) | ("0", Some("SUN"))) {
        return "SUN".to_owned();
    }
    let is_in_field =
        |value: &u32| (kind.least..=kind.most).contains(value) || index == WEEKDAY && *value == 7;
    let value = |word: &str| kind.value(word).filter(is_in_field);
    let stays = || item.to_owned();
    match (value(from), to.map(value), step) {
        (Some(from), None, Some(step)) => {
            format!("{}-{}/{step}", if from > kind.most { 0 } else { from }, kind.most)
        }
        (Some(from), Some(Some(to)), step) if from > to && index != YEAR => {
            let step = step.map_or(Some(1), |step| step.parse().ok()).filter(|step| *step > 0);
            step.map_or_else(stays, |step| wrapped(kind, from, to, step))
        }
        _ => stays(),
    }
}

/// Returns every `step`th value of a range that runs past the field's greatest value. The range goes from `from` to the
/// greatest value, and on from the least value to `to`. Commas separate the values.
fn wrapped(kind: &Kind, from: u32, to: u32, step: usize) -> String {
    let count = kind.most - kind.least + 1;
    let after = |value: &u32| Some(kind.least + (value + 1 - kind.least) % count);
    let first = kind.least + (from - kind.least) % count;
    let length = (to + count - first) % count + 1;
    let values =
        iter::successors(Some(first), after).take(usize::try_from(length).unwrap_or(0)).step_by(step);
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}
