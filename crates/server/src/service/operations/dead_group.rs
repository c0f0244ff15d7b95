//! Groups dead timers by destination and last error, to change the timers of a group together.

use crate::convert::shown;
use crate::text::cut;
use serde::{Deserialize, Serialize};
use tourbillon_durable::Change;
use tourbillon_durable::state::State;
use tourbillon_durable::timer::Timer;
use url::Url;

/// The greatest length of a group's error, in bytes. Errors with the same first bytes belong to one group.
const LONGEST_ERROR: usize = 120;

/// The greatest length of a group's destination, in bytes.
const LONGEST_PLACE: usize = 255;

/// A group of dead timers with the same destination and the same last error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DeadGroup {
    /// The destination of the timers: the host and port of their callbacks, or the word `queue` and the queue's name.
    /// `elsewhere` if the timers' work cannot be read. Only the first bytes of a long destination.
    pub(crate) place: Box<str>,
    /// The first bytes of the timers' last error.
    pub(crate) error: Box<str>,
}

impl DeadGroup {
    /// Makes the group of dead timers with this destination and this last error. Cuts the error to its first 120 bytes,
    /// and the destination to its first 255 bytes.
    pub(crate) fn new(place: &str, error: &str) -> Self {
        Self { place: cut(place, LONGEST_PLACE).into(), error: cut(error, LONGEST_ERROR).into() }
    }

    /// Returns the group to which a dead timer belongs, by its destination and its last error.
    pub(crate) fn of(timer: &Timer) -> Self {
        let timer = shown(timer, false);
        let host = |url: &str| {
            let url = Url::parse(url).ok()?;
            Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
        };
        let place = match (&timer.callback, &timer.pull) {
            (Some(callback), _) => host(&callback.url).unwrap_or_else(|| "elsewhere".to_owned()),
            (None, Some(pull)) => format!("queue {}", pull.queue),
            (None, None) => "elsewhere".to_owned(),
        };
        // In a group, an empty error matches any error. So timers without an error need words of their own.
        let error = timer.last_error.as_deref().filter(|error| !error.is_empty());
        Self::new(&place, error.unwrap_or("without an error"))
    }

    /// Returns whether a timer is dead and belongs to this group. An empty destination or error of the group matches
    /// any value.
    pub(crate) fn has(&self, timer: &Timer) -> bool {
        if !matches!(timer.state, State::Dead(_)) {
            return false;
        }
        let own = Self::of(timer);
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        fits(&self.place, &own.place) && fits(&self.error, &own.error)
    }
}

/// The work of an operation that replays dead timers of a namespace, or removes them if `is_drop` is set. If `label` or
/// `group` is set, the operation changes only the timers that match.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeadWork {
    pub(crate) label: Option<Box<str>>,
    pub(crate) group: Option<DeadGroup>,
    pub(crate) is_drop: bool,
}

impl DeadWork {
    /// Returns the change that the operation makes to a dead timer, or `None` if the timer does not belong to `group`.
    pub(super) fn change(&self, timer: &Timer) -> Option<Change> {
        let is_meant = self.group.as_ref().is_none_or(|group| group.has(timer));
        is_meant
            .then(|| if self.is_drop { Change::Cancel(timer.id.into()) } else { Change::Replay(timer.id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_short_texts() {
        let long = DeadGroup::new(&"h".repeat(4_000), &"e".repeat(4_000));
        assert_eq!((long.place.len(), long.error.len()), (LONGEST_PLACE, LONGEST_ERROR));
    }
}
