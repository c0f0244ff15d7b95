//! The overview: how the service is, what it did, and what comes.

use super::chart::{self, Chart, Small};
use super::fault::Fault;
use super::text::{number, per_hour, rate, span};
use super::timers::now;
use super::view::{Frame, When, show};
use super::visitor::Visitor;
use crate::convert::unavailable;
use crate::service::Service;
use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use tourbillon_api::{HistoryPoint, Moment};

/// The number of intervals of the history's charts, and one more since the first begins before them.
const POINTS: usize = 121;
/// The lengths of the history that is shown, in hours.
const RANGES: [u64; 4] = [1, 6, 24, 72];
const HOUR: u64 = 3_600_000;
/// The time over which rates are shown, in milliseconds.
const LATELY: u64 = 60_000;

/// A number with its name.
struct Figure {
    name: &'static str,
    value: String,
    note: String,
    class: &'static str,
    address: Option<&'static str>,
}

struct NamespaceRow {
    name: String,
    is_paused: bool,
    pending: String,
    leased: String,
    parked: String,
    dead: String,
}

/// The whole service, for visitors that may see it.
struct Whole {
    version: String,
    up: String,
    last_fire: Option<When>,
    reasons: Vec<String>,
    figures: Vec<Figure>,
    horizon: Option<Chart>,
    lateness: Option<Chart>,
    history: Vec<Small>,
    /// The length of the history that is shown, in hours.
    hours: u64,
    /// The other lengths.
    ranges: [u64; 4],
    begun: bool,
    /// The moment at which the last numbers of the history were taken.
    taken: Option<When>,
    /// Whether schedules are stored.
    has_schedules: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    /// The length of the history, in hours.
    hours: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage<'a> {
    frame: Frame<'a>,
    whole: Option<Whole>,
    namespaces: Vec<NamespaceRow>,
    is_empty: bool,
}

/// The number of namespaces on the page.
const MOST: usize = 100;

/// The rate over the last minute.
fn rate_of(points: &[HistoryPoint], value: fn(&HistoryPoint) -> u64) -> String {
    let covered: u64 = points.iter().map(|point| point.covered_ms).sum();
    let count: u64 = points.iter().map(value).sum();
    if covered == 0 { "–".to_owned() } else { rate(per_hour(count, covered)) }
}

/// The length of the history that was asked for. By default it is the shortest one that has all that is known.
fn range(service: &Service, asked: &str, now: Moment) -> Result<u64, Fault> {
    if !asked.is_empty() {
        let hours = RANGES.into_iter().find(|hours| hours.to_string() == asked);
        return hours.ok_or_else(|| Fault::bad("The history is shown for 1, 6, 24 or 72 hours."));
    }
    let all = service.history(None, POINTS);
    let age = all.points.first().map_or(0, |point| now.as_millis().saturating_sub(point.at.as_millis()));
    Ok(RANGES.into_iter().find(|hours| hours * HOUR >= age).unwrap_or(RANGES[3]))
}

async fn whole(service: &Service, asked: &str, now: Moment, has_schedules: bool) -> Result<Whole, Fault> {
    let hours = range(service, asked, now)?;
    let since = |millis: u64| Some(Moment::from_millis(now.as_millis().saturating_sub(millis)));
    let stats = service.stats().await.map_err(|error| unavailable(&error))?;
    let lately = service.history(since(LATELY), 6);
    let past = service.history(since(hours * HOUR), POINTS);
    let readiness = service.readiness().await;
    let overdue_class = match stats.overdue_ms {
        0..5_000 => "",
        5_000..30_000 => "warn",
        _ => "bad",
    };
    let (created, delivered, failed) = (
        rate_of(&lately.points, |point| point.created),
        rate_of(&lately.points, |point| point.delivered),
        rate_of(&lately.points, |point| point.failed),
    );
    let mut figures = vec![
        Figure {
            name: "Oldest overdue",
            // In seconds, always: an operator compares it with the last look.
            value: format!("{}.{} s", number(stats.overdue_ms / 1_000), stats.overdue_ms % 1_000 / 100),
            note: if stats.overdue_ms == 0 { "nothing is due".to_owned() } else { span(stats.overdue_ms) },
            class: overdue_class,
            address: Some("/ui/timers?phase=pending"),
        },
        Figure {
            name: "Dead",
            value: number(stats.dead),
            note: "wait for a replay".to_owned(),
            class: if stats.dead > 0 { "bad" } else { "" },
            address: Some("/ui/dead"),
        },
        Figure {
            name: "Parked",
            value: number(stats.parked),
            note: "put aside".to_owned(),
            class: "",
            address: Some("/ui/timers?phase=parked"),
        },
        Figure {
            name: "Pending",
            value: number(stats.pending),
            note: format!("{} being delivered", number(stats.leased)),
            class: "",
            address: Some("/ui/timers?phase=pending"),
        },
        Figure {
            name: "Created",
            value: created,
            note: format!("{} since the start", number(stats.created)),
            class: "",
            address: None,
        },
        Figure {
            name: "Delivered",
            value: delivered,
            note: format!("{} since the start", number(stats.delivered)),
            class: "",
            address: None,
        },
        Figure {
            name: "Failed",
            value: failed,
            note: format!("{} since the start", number(stats.failed)),
            class: "",
            address: None,
        },
    ];
    if stats.damaged > 0 {
        figures.push(Figure {
            name: "Damaged",
            value: number(stats.damaged),
            note: "set aside; tourbillond check names them".to_owned(),
            class: "bad",
            address: None,
        });
    }
    Ok(Whole {
        up: span(stats.up_ms / 1_000 * 1_000),
        last_fire: stats.last_fire.map(|at| When::new(at, now)),
        reasons: readiness.reasons,
        figures,
        horizon: chart::horizon(&service.horizon().await?),
        lateness: chart::lateness(&service.lateness_by_second()),
        begun: !past.points.is_empty(),
        taken: lately
            .points
            .last()
            .map(|point| When::new(Moment::from_millis(point.at.as_millis() + lately.interval_ms), now)),
        has_schedules,
        history: chart::history(&past, hours),
        hours,
        ranges: RANGES,
        version: stats.version,
    })
}

/// Shows the overview.
pub(super) async fn show_overview(
    State(service): State<Service>,
    visitor: Visitor,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Fault> {
    let asked = asked.map(|Query(asked)| asked).unwrap_or_default();
    page(&service, &visitor, &asked.hours).await.map_err(|fault| fault.of(&visitor))
}

async fn page(service: &Service, visitor: &Visitor, hours: &str) -> Result<Response, Fault> {
    let views = service.show_namespaces(|name| visitor.reads(name)).await?;
    let total = |view: &tourbillon_api::NamespaceView| {
        view.pending + view.leased + view.parked + view.dead + view.schedules
    };
    let is_empty = views.iter().all(|view| total(view) == 0);
    let has_schedules = views.iter().any(|view| view.schedules > 0);
    let row = |view: tourbillon_api::NamespaceView| NamespaceRow {
        is_paused: view.limits.paused,
        pending: number(view.pending),
        leased: number(view.leased),
        parked: number(view.parked),
        dead: number(view.dead),
        name: view.name,
    };
    let whole = if visitor.reads_all() {
        Some(whole(service, hours, now(service), has_schedules).await?)
    } else {
        None
    };
    let namespaces = views.into_iter().take(MOST).map(row).collect();
    Ok(show(&OverviewPage { frame: Frame::new(visitor, "overview"), whole, namespaces, is_empty }))
}
