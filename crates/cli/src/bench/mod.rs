//! Measures a running service. Puts load on the service, receives the callbacks, checks the result, and removes
//! everything that it made.

mod load;
mod receiver;

use crate::exit::{Code, Failure};
use crate::output::{Output, plain, table};
use crate::parse;
use clap::{Args, ValueEnum};
use core::future::{Future as _, poll_fn};
use core::net::SocketAddr;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use futures_util::TryStreamExt as _;
use hdrhistogram::Histogram;
use load::{Load, Work};
use receiver::Receiver;
use serde::Serialize;
use std::time::Instant;
use tourbillon_client::api::{CancelMany, NamespaceLimits, OperationState, ProblemKind};
use tourbillon_client::{Client, Error, Namespace};

/// A measurement. It makes its own namespace if the token permits this, and otherwise works in the given namespace. At
/// its end it removes everything that it made.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The number of connections. Each makes one timer after another
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// The duration of the load, in seconds
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The kind of load
    #[arg(long, value_enum, default_value_t = Kind::Create)]
    kind: Kind,
    /// The size of each timer's body in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    body: usize,
    /// The greatest number of creations per second. Without this flag, each connection makes the next timer at once
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// For callbacks: the time from the creation to the due moment
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse::millis)]
    delay: u64,
    /// For callbacks: the address at which the receiver listens. The service must be allowed to call it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    receiver: SocketAddr,
    /// For callbacks: after the last creation, stop waiting once no callback has arrived for this time plus --delay
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse::duration)]
    patience: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Create timers that become due 24 hours later, so that none is delivered during the load
    Create,
    /// Create timers that become due after `--delay`, and receive their callbacks in this process
    Callback,
}

/// The percentiles of measured durations, in milliseconds.
#[derive(Debug, Serialize)]
struct Percentiles {
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl Percentiles {
    fn of(micros: &Histogram<u64>) -> Self {
        let at = |quantile| {
            let micros = u32::try_from(micros.value_at_quantile(quantile)).unwrap_or(u32::MAX);
            f64::from(micros) / 1_000.0
        };
        Self { p50_ms: at(0.5), p90_ms: at(0.9), p99_ms: at(0.99), p999_ms: at(0.999), max_ms: at(1.0) }
    }

    fn row(&self, name: &str) -> [String; 6] {
        let cell = |millis: f64| format!("{millis:.3} ms");
        let Self { p50_ms, p90_ms, p99_ms, p999_ms, max_ms } = *self;
        [name.to_owned(), cell(p50_ms), cell(p90_ms), cell(p99_ms), cell(p999_ms), cell(max_ms)]
    }
}

/// The result of the command `bench`, as the program prints it.
#[derive(Debug, Serialize)]
struct Report {
    kind: Kind,
    connections: u32,
    seconds: f64,
    /// The number of creations that succeeded.
    created: u64,
    created_per_second: f64,
    creation: Percentiles,
    /// The number of creations that certainly failed, so their timers do not exist.
    failed: u64,
    /// The number of creations whose outcome is unknown, because the connection broke before an answer came.
    unknown: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callbacks: Option<Callbacks>,
    /// Whether the timers in the service, or the callbacks that arrived, match the created timers.
    check: Check,
}

/// The callbacks that arrived at the receiver of the command `bench`: their number and their lateness.
#[derive(Debug, Serialize)]
struct Callbacks {
    arrived: u64,
    /// The number of callbacks that arrived more than once. The service may send a callback more than once, so a
    /// repeated callback is not an error.
    repeated: u64,
    arrived_per_second: f64,
    /// The times from the due moments of the callbacks to their arrivals. The due moment is by the service's clock, and
    /// the arrival is by the clock of this process.
    lateness: Percentiles,
}

/// The result of the check for lost timers: whether the timers in the service, or the callbacks that arrived, match the
/// created timers. `text` has the compared numbers.
#[derive(Debug, Serialize)]
struct Check {
    is_right: bool,
    text: String,
}

/// The namespace and the label of the timers that the command `bench` creates.
struct Place {
    timers: Namespace,
    name: String,
    /// Whether the command `bench` created the namespace. If so, the command also removes the namespace at its end.
    is_own: bool,
    label: String,
}

impl Place {
    async fn make(client: &Client, namespace: &str) -> Result<Self, Failure> {
        let label = format!("bench-{:016x}", fastrand::u64(..));
        let timers = client.namespace(&label);
        match timers.set(&NamespaceLimits::default()).await {
            Ok(_) => Ok(Self { timers, name: label.clone(), is_own: true, label }),
            Err(Error::Problem(problem)) if problem.kind == ProblemKind::Forbidden => {
                let timers = client.namespace(namespace);
                Ok(Self { timers, name: namespace.to_owned(), is_own: false, label })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of stored timers that the command `bench` created. If the command created the namespace,
    /// this is the namespace's count. Otherwise counts the timers with the command's label.
    async fn stored(&self) -> Result<u64, Error> {
        if self.is_own {
            let view = self.timers.view().await?;
            return Ok(view.pending + view.leased + view.parked + view.dead);
        }
        let list = self.timers.list().label(&self.label).page_size(200).stream();
        list.try_fold(0, async |count, _| Ok(count + 1)).await
    }

    /// Removes every timer that the command `bench` created, including timers whose creation was interrupted. Also
    /// removes the namespace if the command created it.
    async fn clear(&self) -> Result<(), Failure> {
        let all = CancelMany { label: Some(self.label.clone()), key_prefix: None };
        let begin = Instant::now();
        loop {
            let operation = self.timers.cancel_many(&all).await?;
            let operation = self.timers.wait_for(operation, |_| ()).await?;
            if operation.state == OperationState::Failed {
                let text = operation.error.unwrap_or_default();
                return Err(Failure::new(Code::NotFulfilled, format!("the timers were not removed: {text}")));
            }
            let left = match self.is_own {
                true => self.timers.delete().await,
                false => match self.stored().await? {
                    0 => Ok(()),
                    left => Err(Error::Invalid(format!("{left} timers are left").into())),
                },
            };
            match left {
                Ok(()) => return Ok(()),
                // A delivery under way may prevent the removal of the namespace until the attempt ends. So try again.
                Err(Error::Problem(_) | Error::Invalid(_)) if begin.elapsed() < Duration::from_secs(20) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Measures a service, and prints the report. Removes the created timers at the end, also after Ctrl-C.
pub(crate) async fn run(
    bench: Bench,
    client: &Client,
    namespace: &str,
    output: Output,
) -> Result<(), Failure> {
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    // The first poll registers the handler of Ctrl-C. From now on, Ctrl-C does not end the process.
    let is_early = poll_fn(|context| Poll::Ready(interrupt.as_mut().poll(context).is_ready())).await;
    let place = Place::make(client, namespace).await?;
    let result = tokio::select! {
        result = measure(&bench, &place, client), if !is_early => result,
        _ = &mut interrupt, if !is_early => Err(Failure::new(Code::NotFulfilled, "interrupted")),
        else => Err(Failure::new(Code::NotFulfilled, "interrupted")),
    };
    let cleared = place.clear().await;
    let report = result?;
    if output.is_json {
        output.json(&report)?;
    } else {
        show(&report)?;
    }
    cleared.map_err(|failure| {
        let message = failure.message.unwrap_or_default();
        Failure::new(
            failure.code,
            format!("{message}; timers with the label {} are left in {}", place.label, place.name),
        )
    })?;
    if report.check.is_right && report.created > 0 { Ok(()) } else { Err(Failure::shown(Code::NotFulfilled)) }
}

async fn measure(bench: &Bench, place: &Place, client: &Client) -> Result<Report, Failure> {
    let receiver = match bench.kind {
        Kind::Create => None,
        Kind::Callback => Some(Receiver::start(bench.receiver).await.map_err(|error| {
            Failure::new(Code::Usage, format!("no receiver at {}: {error}", bench.receiver))
        })?),
    };
    let work = Work {
        delay_ms: receiver.as_ref().map_or(86_400_000, |_| bench.delay),
        url: receiver.as_ref().map(Receiver::url),
        body: "x".repeat(bench.body),
        label: place.label.clone(),
    };
    // Without a right to the whole service, a token may not read these counters. Then their check is left out.
    let before = client.stats().await.ok().map(|stats| stats.created);
    let begin = Instant::now();
    let load =
        Load::run(&place.timers, work, bench.connections, Duration::from_secs(bench.seconds), bench.rate)
            .await?;
    let seconds = begin.elapsed().as_secs_f64();
    let after = client.stats().await.ok().map(|stats| stats.created);
    let (callbacks, mut check) = match &receiver {
        None => (None, check_stored(place, &load).await?),
        Some(receiver) => {
            receiver.wait_for(&load.ids, bench.patience + Duration::from_millis(bench.delay)).await;
            let arrivals = receiver.arrivals();
            let missing = load.ids.iter().filter(|id| !arrivals.ids.contains_key(*id)).count();
            let arrived = u64::try_from(arrivals.ids.len()).unwrap_or(u64::MAX);
            let callbacks = Callbacks {
                arrived,
                repeated: arrivals.repeated,
                arrived_per_second: per_second(arrived, arrivals.span().as_secs_f64()),
                lateness: Percentiles::of(&arrivals.lateness),
            };
            let text = format!("{missing} of {} callbacks have not arrived", load.ids.len());
            (Some(callbacks), Check { is_right: missing == 0, text })
        }
    };
    if let (Some(before), Some(after)) = (before, after) {
        let counted = after.saturating_sub(before);
        check.is_right &= counted >= load.created;
        check.text.push_str(&format!("; the service's counter of creations grew by {counted}"));
    }
    Ok(Report {
        kind: bench.kind,
        connections: bench.connections,
        seconds,
        created: load.created,
        created_per_second: per_second(load.created, seconds),
        creation: Percentiles::of(&load.latency),
        failed: load.failed,
        unknown: load.unknown,
        first_error: load.first_error,
        callbacks,
        check,
    })
}

fn per_second(count: u64, seconds: f64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds.max(0.001)
}

/// Compares the number of timers in the service with the number of creations that succeeded.
async fn check_stored(place: &Place, load: &Load) -> Result<Check, Failure> {
    let stored = place.stored().await?;
    let by = if place.is_own { "counts" } else { "lists" };
    let text = format!("the service {by} {stored} timers, and answered {} creations", load.created);
    Ok(Check { is_right: (load.created..=load.created + load.unknown).contains(&stored), text })
}

fn show(report: &Report) -> Result<(), Failure> {
    let mut rows = vec![report.creation.row("creation")];
    if let Some(callbacks) = &report.callbacks {
        rows.push(callbacks.lateness.row("lateness"));
    }
    let columns = ["", "p50", "p90", "p99", "p99.9", "max"];
    let mut text = format!(
        "{} timers made in {:.2} s by {} connections: {:.0} a second\n",
        report.created, report.seconds, report.connections, report.created_per_second
    );
    if let Some(callbacks) = &report.callbacks {
        text.push_str(&format!(
            "{} callbacks arrived: {:.0} a second, {} more than once\n",
            callbacks.arrived, callbacks.arrived_per_second, callbacks.repeated
        ));
    }
    if report.failed > 0 || report.unknown > 0 {
        let error = report.first_error.as_deref().map(plain).unwrap_or_default();
        text.push_str(&format!(
            "{} creations failed, {} have an unknown outcome; the first: {error}\n",
            report.failed, report.unknown
        ));
    }
    let verdict = if report.check.is_right { "right" } else { "WRONG" };
    text.push_str(&format!(
        "\n{}\n\ncheck: {verdict}: {}",
        table(Some(columns), rows.into_iter()),
        report.check.text
    ));
    Ok(crate::output::print(&text)?)
}
