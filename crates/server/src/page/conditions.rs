//! Reads the conditions of a list of timers from the page's address. Writes conditions into the addresses of links.

use super::fault::{Fault, UNSEEN};
use super::text::with_query;
use super::view::phase_name;
use super::visitor::Visitor;
use crate::listing::{Listed, Listing};
use crate::service::{DeadGroup, Service};
use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tourbillon_api::{Moment, Phase};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::Filter;

/// The number of timers on one page of a list.
pub(super) const OF_A_PAGE: u32 = 50;
/// The greatest number of namespaces that a form offers for a choice.
const MOST_OFFERED: usize = 100;
/// The greatest length of the text of one condition, in bytes.
const LONGEST: usize = 255;
/// The greatest length of the cursor in an address, in bytes. The cursor names a position in a list.
const LONGEST_CURSOR: usize = 1_024;

/// The conditions on the timers of a list, from the query of the page's address, before any check. An empty field sets
/// no condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    namespace: String,
    /// The visitor's text in the search field: a timer's id, or the beginning of a key.
    q: String,
    label: String,
    phase: String,
    /// The reason for which the listed timers are parked (set aside, even if due), such as `paused`.
    reason: String,
    /// The earliest due moment of a listed timer, in UTC.
    from: String,
    /// The moment before which the listed timers are due, in UTC.
    until: String,
    /// The word for the order of the list: `asc`, `desc`, or empty for the list's usual order.
    order: String,
    /// The receiver of the listed dead timers: the host and port of a callback, or the name of a queue.
    place: String,
    /// The text with which the last error of each listed dead timer begins.
    error: String,
    cursor: String,
    /// A word for the change that the visitor has just made, such as `cancel`. The page shows a message about this
    /// change. Empty if the visitor opened the page without a change.
    pub(super) done: String,
}

/// The namespace that a page's address names. Empty if the page shows all namespaces.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InNamespace {
    pub(super) namespace: String,
}

/// A word for the change that the visitor has just made, such as `pause`. The page shows a message about this change.
/// Empty if the visitor opened the page without a change.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Done {
    pub(super) done: String,
}

/// The conditions on the timers of a list, after parsing and a check of the visitor's permissions. An empty text sets
/// no condition.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    /// The namespace whose timers are listed. If the text is empty, the timers of all namespaces are listed.
    pub(super) namespace: String,
    pub(super) q: String,
    pub(super) label: String,
    pub(super) phase: Option<Phase>,
    pub(super) reason: String,
    pub(super) from: Option<Moment>,
    pub(super) until: Option<Moment>,
    pub(super) descending: bool,
    pub(super) group: Option<DeadGroup>,
    pub(super) cursor: String,
    /// Whether the list is the page of dead timers. The usual order of that page begins with the latest deaths.
    is_of_the_dead: bool,
    /// Whether the store lists parked timers by due moment. Other stores list them by reason.
    lists_parked_by_due: bool,
}

/// The phases of stored timers. A visitor can limit a list to one phase.
pub(super) const PHASES: [Phase; 4] = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];

/// The query of an address, parsed as `T`. If the query cannot be read, the answer is a page that says why.
#[derive(Debug)]
pub(super) struct Search<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Service> for Search<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Fault> {
        let query = axum::extract::Query::from_request_parts(parts, service).await;
        let axum::extract::Query(asked) = query
            .map_err(|_| Fault::bad("The address cannot be read: a condition is there more than once."))?;
        Ok(Self(asked))
    }
}

impl Query {
    /// Returns the conditions unchanged. Fails if the text of any condition is too long.
    pub(super) fn admit(self) -> Result<Self, Fault> {
        let Self { namespace, q, label, phase, reason, from, until, order, place, error, .. } = &self;
        let texts = [namespace, q, label, phase, reason, from, until, order, place, error];
        if texts.iter().any(|text| text.len() > LONGEST) || self.cursor.len() > LONGEST_CURSOR {
            return Err(Fault::bad(format!("A condition has at most {LONGEST} bytes.")));
        }
        Ok(self)
    }

    /// Parses the conditions. Fails if a word is unknown, or if the visitor may not see the namespace.
    pub(super) fn conditions(self, service: &Service, visitor: &Visitor) -> Result<Conditions, Fault> {
        let phase = match &*self.phase {
            "" => None,
            name => match PHASES.into_iter().find(|phase| phase_name(*phase) == name) {
                Some(phase) => Some(phase),
                None => return Err(Fault::bad("The phase is pending, leased, parked or dead.")),
            },
        };
        let descending = match &*self.order {
            "" | "asc" => false,
            "desc" => true,
            _ => return Err(Fault::bad("The order is asc or desc.")),
        };
        let has_group = !self.place.is_empty() || !self.error.is_empty();
        Ok(Conditions {
            namespace: visible(&self.namespace, service, visitor)?,
            q: self.q.trim().to_owned(),
            label: self.label,
            phase,
            reason: self.reason,
            from: moment(&self.from)?,
            until: moment(&self.until)?,
            descending,
            group: has_group.then(|| DeadGroup::new(&self.place, &self.error)),
            cursor: self.cursor,
            is_of_the_dead: false,
            lists_parked_by_due: service.timers().timer_store().lists_parked_by_due(),
        })
    }

    /// Parses the conditions of the page of dead timers. The latest deaths come first unless the address asks for
    /// another order.
    pub(super) fn of_the_dead(self, service: &Service, visitor: &Visitor) -> Result<Conditions, Fault> {
        let has_order = !self.order.is_empty();
        // The list has only dead timers. A reason selects parked timers, so it would make the list empty.
        let asked =
            Self { phase: String::new(), reason: String::new(), ..self }.conditions(service, visitor)?;
        let descending = asked.descending || !has_order;
        Ok(Conditions { phase: Some(Phase::Dead), descending, is_of_the_dead: true, ..asked })
    }
}

/// Returns the namespace that a page shows, or an empty text for all namespaces. `asked` is the namespace in the
/// address.
///
/// If `asked` is empty, returns the namespace of the visitor's token, or the service's only namespace. Without such a
/// namespace, returns an empty text. Fails if the visitor may not see the namespace.
pub(super) fn visible(asked: &str, service: &Service, visitor: &Visitor) -> Result<String, Fault> {
    let namespace = match (asked, visitor.only_namespace()) {
        ("", Some(only)) => only.to_owned(),
        ("", None) => {
            let all = service.namespaces().all();
            let first = all.keys().next().filter(|_| all.len() == 1);
            first.map(|name| name.to_string()).unwrap_or_default()
        }
        (asked, _) => asked.to_owned(),
    };
    let may_see = if namespace.is_empty() { visitor.reads_all() } else { visitor.reads(&namespace) };
    Fault::unless(may_see, UNSEEN)?;
    Ok(namespace)
}

/// Returns the namespace that a page shows, as [`visible`] does. Also fails if there is no such namespace.
pub(super) fn existing(asked: &str, service: &Service, visitor: &Visitor) -> Result<String, Fault> {
    let namespace = visible(asked, service, visitor)?;
    if !namespace.is_empty() {
        service.namespaces().require(&namespace)?;
    }
    Ok(namespace)
}

/// Parses a moment in UTC in the form that browsers send. The text does not name a zone, and may lack the seconds.
/// Returns `None` for an empty text.
fn moment(text: &str) -> Result<Option<Moment>, Fault> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let texts = [text.to_owned(), format!("{text}Z"), format!("{text}:00Z"), format!("{text}T00:00:00Z")];
    let moment = texts.into_iter().find_map(|text| text.replacen(' ', "T", 1).parse().ok());
    moment.map(Some).ok_or_else(|| Fault::bad("A moment is 2031-01-31T09:00 for example, in UTC."))
}

impl Conditions {
    /// Returns whether the list has any condition besides the namespace.
    pub(super) fn is_filtered(&self) -> bool {
        !self.q.is_empty() || self.is_filtered_beyond_the_search()
    }

    /// Returns whether the list has any condition besides the namespace and the text of the search.
    pub(super) fn is_filtered_beyond_the_search(&self) -> bool {
        !self.label.is_empty()
            || !self.reason.is_empty()
            || self.phase.is_some_and(|_| !self.is_of_the_dead)
            || self.has_range()
            || self.group.is_some()
    }

    /// Returns whether the list shows the timers of all namespaces.
    pub(super) fn is_of_all(&self) -> bool {
        self.namespace.is_empty()
    }

    /// Returns whether the list is limited by an earliest or a latest due moment.
    pub(super) fn has_range(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    /// Returns the address of the first page of the same list in reverse order. `path` is the path of the list.
    pub(super) fn turned(&self, path: &str) -> String {
        // The list in the other order refuses the cursor of this list, so the address has none.
        Self { descending: !self.descending, ..self.clone() }.address(path, None)
    }

    /// Writes a moment for an input field of a form, in UTC. Leaves out seconds that are zero. Returns an empty text
    /// for `None`.
    pub(super) fn field(moment: Option<&Moment>) -> String {
        let text = moment.map_or_else(String::new, Moment::to_string);
        let text = text.trim_end_matches('Z').trim_end_matches(".000");
        let minutes = text.strip_suffix(":00").filter(|minutes| minutes.matches(':').count() == 1);
        minutes.unwrap_or(text).to_owned()
    }

    /// Returns the address of the list at `path` that has these conditions. The list begins at `cursor`, or at its
    /// first timer if `cursor` is `None`.
    pub(super) fn address(&self, path: &str, cursor: Option<&str>) -> String {
        let field = |moment: &Option<Moment>| Self::field(moment.as_ref());
        let (place, error) = self.group.as_ref().map_or(("", ""), |group| (&*group.place, &*group.error));
        // The address names the order only if it is not the usual order of the page.
        let order = match (self.descending, self.is_of_the_dead) {
            (true, false) => "desc",
            (false, true) => "asc",
            _ => "",
        };
        let conditions = [
            ("namespace", &*self.namespace),
            ("q", &*self.q),
            ("label", &*self.label),
            ("phase", self.phase.filter(|_| !self.is_of_the_dead).map_or("", phase_name)),
            ("reason", &*self.reason),
            ("from", &*field(&self.from)),
            ("until", &*field(&self.until)),
            ("order", order),
            ("place", place),
            ("error", error),
            ("cursor", cursor.unwrap_or("")),
        ];
        with_query(path, &conditions)
    }

    fn filter(&self) -> Filter {
        let given = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Into::into);
        // The list includes timers that are due exactly at `from`, but the store excludes its bound. So the bound is a
        // millisecond earlier.
        let before = |moment: &Moment| UtcMillis::from_millis(moment.as_millis().saturating_sub(1));
        Filter {
            namespace: given(&self.namespace),
            label: given(&self.label),
            key_prefix: given(&self.q),
            phase: self.phase,
            reason: given(&self.reason),
            due_after: self.from.as_ref().map(before),
            due_before: self.until.map(Into::into),
            descending: self.descending,
            ..Filter::default()
        }
    }

    /// Reads one page of the timers that meet the conditions. The result contains the timers and the cursor of the next
    /// page.
    pub(super) async fn page(&self, service: &Service) -> Result<Listed, Fault> {
        // Without this check, a namespace that does not exist would look like an empty namespace.
        if !self.is_of_all() {
            service.namespaces().require(&self.namespace)?;
        }
        let listing = match &self.group {
            Some(group) => Listing::of_group(self.filter(), group.clone()),
            None => Listing::new(self.filter()),
        };
        let cursor = Some(&*self.cursor).filter(|cursor| !cursor.is_empty());
        Ok(listing.page(service, cursor, OF_A_PAGE).await?)
    }

    /// Returns words for the order in which the list shows its timers, such as "by due moment".
    pub(super) fn order(&self) -> &'static str {
        let is_by_due = !self.reason.is_empty()
            || self.phase == Some(Phase::Pending)
            || self.phase == Some(Phase::Parked) && self.lists_parked_by_due;
        let is_by_key = !self.q.is_empty() && self.phase != Some(Phase::Dead);
        // The arms stand in the sequence of the table at `Filter`, because the first condition there decides the order.
        match self {
            Self { label, .. } if !label.is_empty() => "by id",
            _ if is_by_key => "by key",
            _ if is_by_due => "by due moment",
            Self { phase: Some(Phase::Leased), .. } => "by the end of the lease",
            Self { phase: Some(Phase::Dead), .. } => "by the moment of death",
            Self { phase: Some(Phase::Parked), .. } => "by reason",
            _ => "by id",
        }
    }
}

/// Returns the namespaces that a form offers for a choice. The flag is true for the namespace `shown`, which the page
/// shows at present.
pub(super) fn offered(service: &Service, visitor: &Visitor, shown: &str) -> Vec<(String, bool)> {
    let all = service.namespaces().all();
    let visible = all.keys().filter(|name| visitor.reads(name)).take(MOST_OFFERED);
    let mut offered: Vec<_> = visible.map(|name| (name.to_string(), **name == *shown)).collect();
    // The limit may have left out the shown namespace. Without this addition, the form would then search in all
    // namespaces.
    if !shown.is_empty() && !offered.iter().any(|(_, is_shown)| *is_shown) {
        offered.push((shown.to_owned(), true));
    }
    offered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_forms_are_read_as_utc() {
        let at = |text| moment(text).ok().flatten().map(|moment: Moment| moment.to_string());
        assert_eq!(at("").as_deref(), None);
        for (text, read) in [
            ("2031-01-31T09:00", "2031-01-31T09:00:00.000Z"),
            ("2031-01-31T09:00:05", "2031-01-31T09:00:05.000Z"),
            ("2031-01-31 09:00", "2031-01-31T09:00:00.000Z"),
            ("2031-01-31", "2031-01-31T00:00:00.000Z"),
            ("2031-01-31T09:00:00Z", "2031-01-31T09:00:00.000Z"),
        ] {
            assert_eq!(at(text).as_deref(), Some(read), "{text}");
        }
        assert!(moment("tomorrow").is_err());
        for text in ["2031-01-31T09:00", "2031-01-31T09:00:05", "2031-01-31T00:00", "2031-01-31T09:00:05.250"]
        {
            let moment = moment(text).ok().flatten();
            assert_eq!(Conditions::field(moment.as_ref()), text, "a link keeps the moment");
        }
        assert_eq!(Conditions::field(None), "");
    }
}
