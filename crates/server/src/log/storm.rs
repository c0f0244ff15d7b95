//! Limits the log lines of each kind. If many events of a kind come together, the first events get lines. The other
//! events are only counted.
//!
//! A kind has at most 20 lines in ten seconds. Then one line says how many more events there were. Events of the level
//! `debug` are not limited, because they are logged only on request.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::{Level, Metadata, error, info, warn};

/// The greatest number of log lines of one kind within the time [`SPAN`].
const LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);
/// The kind of the log lines that say how many further events were not logged.
const MORE: &str = "more";

/// The kinds of events that occurred lately, each with its number of log lines.
static KINDS: Mutex<Kinds> = Mutex::new(Kinds(BTreeMap::new()));

struct Kinds(BTreeMap<&'static str, Window>);

/// Counts the log lines of a kind of events within a window of ten seconds. Also counts the kind's events without a
/// line.
struct Window {
    begun: Instant,
    lines: u32,
    more: u64,
    /// The level of the kind's latest event without a log line.
    level: Level,
}

/// The number of a kind's events without a log line. `level` is the level of the latest of these events.
#[derive(Debug, PartialEq, Eq)]
struct Surplus {
    kind: &'static str,
    level: Level,
    count: u64,
}

impl Kinds {
    fn admits(&mut self, kind: &'static str, level: Level, now: Instant) -> bool {
        if level > Level::INFO || kind == MORE {
            return true;
        }
        let window = self.0.entry(kind).or_insert(Window { begun: now, lines: 0, more: 0, level });
        if now.saturating_duration_since(window.begun) >= SPAN {
            (window.begun, window.lines) = (now, 0);
        }
        if window.lines < LINES {
            window.lines += 1;
            return true;
        }
        window.more += 1;
        window.level = level;
        false
    }

    /// Removes each kind for which `is_over` says that its window of ten seconds is over. The result has an entry for
    /// each removed kind that has events without a log line.
    fn settle(&mut self, is_over: impl Fn(&Window) -> bool) -> Vec<Surplus> {
        let mut all = Vec::new();
        self.0.retain(|kind, window| {
            let is_over = is_over(window);
            if is_over && window.more > 0 {
                all.push(Surplus { kind, level: window.level, count: window.more });
            }
            !is_over
        });
        all
    }
}

/// Returns whether an event gets a log line. Counts the event for the limit of its kind.
pub(super) fn admits(event: &'static Metadata<'static>, now: Instant) -> bool {
    KINDS.lock().unwrap_or_else(PoisonError::into_inner).admits(event.target(), *event.level(), now)
}

fn tell(is_over: impl Fn(&Window) -> bool) {
    let all = KINDS.lock().unwrap_or_else(PoisonError::into_inner).settle(is_over);
    for Surplus { kind, level, count } in all {
        match level {
            Level::ERROR => error!(target: MORE, kind, count, "and {count} more of this kind"),
            Level::WARN => warn!(target: MORE, kind, count, "and {count} more of this kind"),
            _ => info!(target: MORE, kind, count, "and {count} more of this kind"),
        }
    }
}

/// Logs how many events got no line, for each kind whose window of ten seconds is over. The service calls this about
/// once a second.
pub(crate) fn settle() {
    let now = Instant::now();
    tell(|window| now.saturating_duration_since(window.begun) >= SPAN);
}

/// Logs how many events got no line, for all kinds. Called at the end of the process.
pub(crate) fn finish() {
    tell(|_| true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_one_kind_has_few_lines_and_its_count() {
        let (mut kinds, begin) = (Kinds(BTreeMap::new()), Instant::now());
        let admitted = |kinds: &mut Kinds, kind, level, now| {
            (0..1_000).filter(|_| kinds.admits(kind, level, now)).count()
        };
        assert_eq!(admitted(&mut kinds, "died", Level::WARN, begin), 20);
        assert_eq!(admitted(&mut kinds, "asked", Level::DEBUG, begin), 1_000, "who asks for them gets them");
        assert!(kinds.admits("other", Level::INFO, begin), "each kind has its own bound");
        assert_eq!(kinds.settle(|_| false), []);

        let later = begin + SPAN;
        assert_eq!(admitted(&mut kinds, "died", Level::ERROR, later), 20, "a new span");
        let surplus = Surplus { kind: "died", level: Level::ERROR, count: 2 * 980 };
        assert_eq!(kinds.settle(|_| true), [surplus], "nothing is lost at the change of spans");
        assert_eq!(kinds.settle(|_| true), []);
    }
}
