//! The account of a run: the measured values. Some of them must have certain values, which the account checks.

use crate::clients::Report;
use crate::tally::Tally;
use comfy_table::{Table, presets};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tourbillon::{Lateness, Stats};

/// The largest permitted fraction of re-arms that cost a shard something, or that come too late.
const FEW: f64 = 0.01;

pub(crate) struct Account {
    pub(crate) connections: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) server: Tally,
    pub(crate) clients: Report,
    pub(crate) engine: Stats,
    pub(crate) close_lateness: Histogram<u64>,
    pub(crate) server_cpu: Duration,
    pub(crate) steady: Option<Steady>,
}

/// The engine's counts at the start and at the end of the time in which all connections were open.
pub(crate) struct Steady {
    pub(crate) begin: Moment,
    pub(crate) end: Moment,
}

/// The engine's counts at a certain moment.
pub(crate) struct Moment {
    pub(crate) elapsed: Duration,
    pub(crate) rearmed: u64,
    pub(crate) engine: Stats,
}

impl Steady {
    fn length(&self) -> Duration {
        self.end.elapsed - self.begin.elapsed
    }

    fn rearmed(&self) -> u64 {
        self.end.rearmed - self.begin.rearmed
    }

    fn growth(&self, counter: fn(&Stats) -> u64) -> u64 {
        counter(&self.end.engine) - counter(&self.begin.engine)
    }
}

/// A line of the account: a value, and the expectation of the value.
pub(crate) struct Line {
    label: &'static str,
    /// The value's name in the JSON object.
    key: &'static str,
    value: Value,
    shown: String,
    expectation: Option<Expectation>,
}

struct Expectation {
    text: String,
    is_met: bool,
}

impl Line {
    fn new(label: &'static str, key: &'static str, value: impl Into<Value>, shown: impl ToString) -> Self {
        Self { label, key, value: value.into(), shown: shown.to_string(), expectation: None }
    }

    fn count(label: &'static str, key: &'static str, count: u64) -> Self {
        Self::new(label, key, count, count)
    }

    fn time(label: &'static str, key: &'static str, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        Self::new(label, key, seconds, format!("{seconds:.2} s"))
    }

    fn lateness(label: &'static str, key: &'static str, percentiles: Percentiles) -> Self {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let [p50, p99, p999, max] =
            [percentiles.p50, percentiles.p99, percentiles.p999, percentiles.max].map(millis);
        let value = json!({ "p50": p50, "p99": p99, "p99.9": p999, "max": max });
        Self::new(label, key, value, format!("{p50:.2} / {p99:.2} / {p999:.2} / {max:.2} ms"))
    }

    fn must(mut self, text: impl ToString, is_met: bool) -> Self {
        self.expectation = Some(Expectation { text: text.to_string(), is_met });
        self
    }

    /// Adds the expectation that the value is a small fraction of `rearmed`, the number of re-arms.
    fn must_be_few(self, rearmed: u64) -> Self {
        let is_met = self.value.as_f64().is_some_and(|count| count < FEW * rearmed as f64);
        self.must(format!("below {FEW} of the re-arms"), is_met)
    }

    fn must_be_zero(self) -> Self {
        let is_met = self.value == 0;
        self.must("0", is_met)
    }
}

struct Percentiles {
    p50: Duration,
    p99: Duration,
    p999: Duration,
    max: Duration,
}

impl From<Lateness> for Percentiles {
    fn from(Lateness { p50, p99, p999, max, .. }: Lateness) -> Self {
        Self { p50, p99, p999, max }
    }
}

impl From<&Histogram<u64>> for Percentiles {
    fn from(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(nanos.value_at_quantile(quantile));
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: Duration::from_nanos(nanos.max()) }
    }
}

impl Account {
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut lines = self.connection_lines();
        lines.extend(self.promise_lines());
        lines.extend(self.time_lines());
        lines.extend(self.engine_lines());
        lines.extend(self.steady_lines());
        lines
    }

    fn connection_lines(&self) -> Vec<Line> {
        let Self { server, clients, .. } = self;
        let Tally { opened, closed_by_timeout, closed_by_client, still_open, .. } = *server;
        let accounted = closed_by_timeout + closed_by_client + still_open;
        vec![
            Line::count("connections opened", "opened", opened).must(
                format!("{}, {} as the clients saw it", self.connections, clients.greeted),
                opened == self.connections as u64 && opened == clients.greeted,
            ),
            Line::count("closed by timeout", "closed_by_timeout", closed_by_timeout).must(
                format!("{}, as the clients saw it", clients.closed_by_server),
                closed_by_timeout == clients.closed_by_server,
            ),
            Line::count("closed by the client", "closed_by_client", closed_by_client).must(
                format!("at most {}, as the clients saw it", clients.left),
                closed_by_client <= clients.left,
            ),
            Line::count("still open at the end", "still_open", still_open)
                .must("the rest of those opened", accounted == opened),
        ]
    }

    fn promise_lines(&self) -> Vec<Line> {
        let Self { server, clients, .. } = self;
        vec![
            Line::count("closed early", "closed_early", server.closed_early).must_be_zero(),
            Line::count(
                "closed early, as the clients saw it",
                "closed_early_for_clients",
                clients.closed_early,
            )
            .must_be_zero(),
            Line::count("closed while talking", "closed_while_talking", clients.closed_while_talking)
                .must_be_zero(),
            Line::count("not closed in time", "not_closed_in_time", server.not_closed_in_time).must_be_zero(),
        ]
    }

    fn time_lines(&self) -> Vec<Line> {
        let Self { clients, engine, .. } = self;
        vec![
            Line::time("idle timeout", "idle_timeout_s", self.idle_timeout),
            Line::time("longest pause of a talking client", "longest_pause_s", clients.longest_pause),
            Line::count("clients that overslept, silent since", "overslept", clients.overslept),
            Line::lateness(
                "lateness of handlers, p50 / p99 / p99.9 / max",
                "handler_lateness_ms",
                engine.total.lateness.into(),
            ),
            Line::lateness(
                "lateness of closes, p50 / p99 / p99.9 / max",
                "close_lateness_ms",
                (&self.close_lateness).into(),
            ),
            Line::time("CPU time of the server, engine included", "server_cpu_s", self.server_cpu),
            Line::time("CPU time of the clients", "clients_cpu_s", clients.cpu_time),
        ]
    }

    fn engine_lines(&self) -> Vec<Line> {
        let Stats { owned, ref total, .. } = self.engine;
        let Tally { closed_by_timeout, still_open, rearmed, overtaken, fired_twice, .. } = self.server;
        vec![
            Line::count("timers fired", "fired", owned.fired).must(
                format!("{closed_by_timeout} closed by timeout, {overtaken} overtaken"),
                owned.fired == closed_by_timeout + overtaken,
            ),
            Line::count("- overtaken by bytes, or by the end", "overtaken", overtaken).must_be_few(rearmed),
            Line::count("- a second time without being armed", "fired_twice", fired_twice).must_be_zero(),
            Line::count("timers left", "timers_left", owned.alive)
                .must(format!("{still_open}, still open at the end"), owned.alive == still_open),
            Line::count("handlers that panicked", "panics", total.panics).must_be_zero(),
            Line::count("wakes: times that a shard slept and woke", "wakes", total.wakes),
            Line::count("unparks: times that a server loop woke one", "unparks", total.unparks),
        ]
    }

    fn steady_lines(&self) -> Vec<Line> {
        let Some(steady) = &self.steady else { return Vec::new() };
        let rearmed = steady.rearmed();
        let rate = rearmed as f64 / steady.length().as_secs_f64();
        let posted = steady.growth(|engine| engine.owned.posted);
        let put_off = steady.growth(|engine| engine.owned.postponed);
        let unparks = steady.growth(|engine| engine.total.unparks);
        vec![
            Line::time("with all connections open", "steady_s", steady.length()),
            Line::count("- re-arms, by bytes that were read", "steady_rearmed", rearmed),
            Line::new("- re-arms per second", "steady_rearmed_per_s", rate, format!("{rate:.0}")),
            Line::count("- re-arms that reached a shard", "steady_posted", posted).must_be_few(rearmed),
            Line::count("- tickets that shards put off themselves", "steady_put_off", put_off),
            Line::count("- unparks", "steady_unparks", unparks).must_be_few(rearmed),
        ]
    }
}

pub(crate) fn to_table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(["", "measured", "must be"]);
    for Line { label, shown, expectation, .. } in lines {
        let expected = expectation.as_ref().map_or("", |expectation| &expectation.text);
        table.add_row([label, shown.as_str(), expected]);
    }
    table
}

pub(crate) fn to_json(lines: &[Line]) -> Value {
    let mut object: Map<String, Value> =
        lines.iter().map(|line| (line.key.to_owned(), line.value.clone())).collect();
    object.insert("failures".to_owned(), failures(lines).into());
    Value::Object(object)
}

pub(crate) fn failures(lines: &[Line]) -> Vec<String> {
    let failure = |line: &Line| {
        let Expectation { text, is_met } = line.expectation.as_ref()?;
        (!is_met).then(|| format!("{}: {}, must be {text}", line.label, line.shown))
    };
    lines.iter().filter_map(failure).collect()
}
