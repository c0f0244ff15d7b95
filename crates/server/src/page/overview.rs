//! Shows the overview: the service's condition, its recent work, and the timers to come.

use super::chart::{self, Chart, Small};
use super::conditions::Search;
use super::fault::Fault;
use super::rows::whole_list;
use super::text::{bytes, number, per_hour, rate, span};
use super::view::{Frame, When, now, show};
use super::visitor::Visitor;
use crate::convert::unavailable;
use crate::service::{Disk, Service};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tourbillon_api::{Breaker, HistoryPoint, Moment, NamespaceView};

/// The greatest number of intervals in a chart of the history. 120 intervals fill the chart, and one further interval
/// begins before the chart's left edge.
const POINTS: usize = 121;
/// The lengths of history from which a visitor can choose, in hours.
const RANGES: [u64; 4] = [1, 6, 24, 72];
const HOUR: u64 = 3_600_000;
/// The length of the span before now over which the page averages rates, in milliseconds.
const LATELY: u64 = 60_000;

/// A number on the page, with its name and a note. The number links to the page `address`, if `address` is set.
struct Figure {
    name: &'static str,
    value: String,
    note: String,
    class: &'static str,
    address: Option<&'static str>,
}

impl Figure {
    fn new(name: &'static str, value: String, note: impl Into<String>) -> Self {
        Self { name, value, note: note.into(), class: "", address: None }
    }

    /// Colours the number by a style class.
    fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    /// Links the number to a page.
    fn to(self, address: &'static str) -> Self {
        Self { address: Some(address), ..self }
    }
}

/// The part of the overview that concerns the whole service. Only visitors who may read all namespaces see it.
struct Whole {
    version: String,
    up: String,
    last_fire: Option<When>,
    reasons: Vec<String>,
    figures: Vec<Figure>,
    horizon: Option<Chart>,
    lateness: Option<Chart>,
    history: Vec<Small>,
    /// The length of the history that the charts show, in hours.
    hours: u64,
    begun: bool,
    /// The moment of the latest data in the history. `None` if the history is empty.
    taken: Option<When>,
    /// Whether any schedule exists in a namespace that the visitor may read.
    has_schedules: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    /// The length of the history that the visitor asks for, in hours, as a text. If the text is empty, the page chooses
    /// the shortest length that covers all data.
    hours: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage<'a> {
    frame: Frame<'a>,
    whole: Option<Whole>,
    /// The numbers of stored timers, summed over the namespaces that the visitor may read. Empty if the visitor may see
    /// the whole service.
    figures: Vec<Figure>,
    namespaces: Vec<NamespaceView>,
    is_empty: bool,
}

/// The greatest number of namespaces that the overview shows.
const MOST: usize = 100;

/// The numbers of stored timers, by phase. `leased` counts the timers whose delivery is under way.
struct Stored {
    dead: u64,
    parked: u64,
    pending: u64,
    leased: u64,
}

impl Stored {
    /// Sums the numbers of stored timers over the namespaces in `views`.
    fn of(views: &[NamespaceView]) -> Self {
        let sum = |count: fn(&NamespaceView) -> u64| views.iter().map(count).sum();
        Self {
            dead: sum(|view| view.dead),
            parked: sum(|view| view.parked),
            pending: sum(|view| view.pending),
            leased: sum(|view| view.leased),
        }
    }

    /// Returns the numbers as the page shows them. Each number links to the list of the timers that it counts.
    fn figures(&self) -> [Figure; 3] {
        let class = if self.dead > 0 { "bad" } else { "" };
        let leased = format!("{} being delivered", number(self.leased));
        [
            Figure::new("Dead", number(self.dead), "wait for a replay").class(class).to("/ui/dead"),
            Figure::new("Parked", number(self.parked), "put aside").to("/ui/timers?phase=parked"),
            Figure::new("Pending", number(self.pending), leased).to("/ui/timers?phase=pending"),
        ]
    }
}

/// Makes the number on the overview that shows how much of the disk is free.
fn disk_figure(disk: Disk) -> Figure {
    let note = match disk.is_full() {
        true => "free: too little, so nothing new is stored".to_owned(),
        false => format!("free of {}; the timers take {}", bytes(disk.size), bytes(disk.used)),
    };
    let class = match (disk.is_full(), disk.is_nearly_full()) {
        (true, _) => "bad",
        (false, true) => "warn",
        (false, false) => "",
    };
    Figure::new("Disk", bytes(disk.free), note).class(class)
}

/// Makes the number on the overview that counts the hosts whose circuit breakers are not closed. Returns `None` if no
/// host has got callbacks.
fn breakers_figure(service: &Service) -> Option<Figure> {
    let endpoints = service.reports().endpoints();
    let open = endpoints.iter().filter(|endpoint| endpoint.breaker != Breaker::Closed).count() as u64;
    let note = format!("of {} that got callbacks", number(endpoints.len() as u64));
    let class = if open > 0 { "bad" } else { "" };
    let figure = Figure::new("Hosts that fail", number(open), note).class(class).to("/ui/endpoints");
    (!endpoints.is_empty()).then_some(figure)
}

/// Writes the average rate of a value over the given points of the history, such as "5/s".
fn rate_of(points: &[HistoryPoint], value: fn(&HistoryPoint) -> u64) -> String {
    let covered: u64 = points.iter().map(|point| point.covered_ms).sum();
    let count: u64 = points.iter().map(value).sum();
    if covered == 0 { "–".to_owned() } else { rate(per_hour(count, covered)) }
}

/// Returns the length of the history that the page shows, in hours. `asked` is the length in the address. If `asked` is
/// empty, returns the shortest length that covers all data.
fn range(service: &Service, asked: &str, now: Moment) -> Result<u64, Fault> {
    if !asked.is_empty() {
        let hours = RANGES.into_iter().find(|hours| hours.to_string() == asked);
        return hours.ok_or_else(|| Fault::bad("The history is shown for 1, 6, 24 or 72 hours."));
    }
    let all = service.reports().history(None, POINTS);
    let age = all.points.first().map_or(0, |point| now.as_millis().saturating_sub(point.at.as_millis()));
    // The first interval may begin a little before the 72 hours that the history keeps, so no range may be long enough.
    Ok(RANGES.into_iter().find(|hours| hours * HOUR >= age).unwrap_or(RANGES[3]))
}

async fn whole(service: &Service, asked: &str, now: Moment, has_schedules: bool) -> Result<Whole, Fault> {
    let hours = range(service, asked, now)?;
    let since = |millis: u64| Some(Moment::from_millis(now.as_millis().saturating_sub(millis)));
    let stats = service.condition().stats().await.map_err(|error| unavailable(&error))?;
    let lately = service.reports().history(since(LATELY), 6);
    let past = service.reports().history(since(hours * HOUR), POINTS);
    let readiness = service.condition().readiness().await;
    let overdue_class = match stats.overdue_ms {
        0..5_000 => "",
        5_000..30_000 => "warn",
        _ => "bad",
    };
    // This figure is always in seconds. So an operator can compare it with an earlier reading.
    let overdue = format!("{}.{} s", number(stats.overdue_ms / 1_000), stats.overdue_ms % 1_000 / 100);
    let note = if stats.overdue_ms == 0 { "nothing is due".to_owned() } else { span(stats.overdue_ms) };
    let of_events = |name, value, all| {
        Figure::new(name, rate_of(&lately.points, value), format!("{} since the start", number(all)))
    };
    let mut figures = vec![
        Figure::new("Oldest overdue", overdue, note).class(overdue_class).to("/ui/timers?phase=pending"),
        of_events("Created", |point| point.created, stats.created),
        of_events("Delivered", |point| point.delivered, stats.delivered).to("/ui/ended?how=delivered"),
        of_events("Failed", |point| point.failed, stats.failed),
    ];
    let stored =
        Stored { dead: stats.dead, parked: stats.parked, pending: stats.pending, leased: stats.leased };
    figures.splice(1..1, stored.figures());
    figures.extend(breakers_figure(service));
    figures.extend(service.reports().disk().await.map(disk_figure));
    if stats.damaged > 0 {
        let note = "set aside; tourbillond check names them";
        figures.push(Figure::new("Damaged", number(stats.damaged), note).class("bad"));
    }
    Ok(Whole {
        up: span(stats.up_ms / 1_000 * 1_000),
        last_fire: stats.last_fire.map(|at| When::new(at, now)),
        reasons: readiness.reasons,
        figures,
        horizon: chart::horizon(&service.reports().horizon().await?),
        lateness: chart::lateness(&service.reports().lateness_by_second()),
        begun: !past.points.is_empty(),
        // A point has the moment at which its interval begins. The sample is taken at the end of the interval.
        taken: lately
            .points
            .last()
            .map(|point| When::new(Moment::from_millis(point.at.as_millis() + lately.interval_ms), now)),
        has_schedules,
        history: chart::history(&past, hours),
        hours,
        version: stats.version,
    })
}

/// Shows the overview of the service: its most important numbers, its charts and its namespaces.
pub(super) async fn show_overview(
    State(service): State<Service>,
    visitor: Visitor,
    asked: Result<Search<Query>, Fault>,
) -> Result<Response, Fault> {
    let asked = asked.map(|Search(asked)| asked).unwrap_or_default();
    let views = service.namespace_admin().views(|name| visitor.reads(name)).await?;
    let total = |view: &NamespaceView| view.pending + view.leased + view.parked + view.dead + view.schedules;
    let is_empty = views.iter().all(|view| total(view) == 0);
    let has_schedules = views.iter().any(|view| view.schedules > 0);
    let whole = if visitor.reads_all() {
        Some(whole(&service, &asked.hours, now(&service), has_schedules).await?)
    } else {
        None
    };
    let figures = if whole.is_none() { Stored::of(&views).figures().into() } else { Vec::new() };
    // Only the table is limited. The figures and `is_empty` count all namespaces that the visitor may read.
    let namespaces = views.into_iter().take(MOST).collect();
    Ok(show(&OverviewPage { frame: Frame::new(&visitor, "overview"), whole, figures, namespaces, is_empty }))
}
