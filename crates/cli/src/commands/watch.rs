//! Runs the commands that show the service's events and counters while it runs.

use crate::exit::Failure;
use crate::output::{Output, or_none, plain, print, table, word};
use crate::parse;
use clap::Args;
use core::time::Duration;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use tourbillon_client::api::{Event, HostView, ServiceStats};
use tourbillon_client::{Client, Seen};

/// The events to show.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Show the events of all namespaces
    #[arg(long)]
    all_namespaces: bool,
    /// End after this number of events
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
}

/// Prints the service's events as they happen. If the connection breaks, connects again.
pub(crate) async fn tail(
    tail: Tail,
    client: &Client,
    namespace: &str,
    output: Output,
) -> Result<(), Failure> {
    let mut events = client.events((!tail.all_namespaces).then_some(namespace));
    let mut rest = tail.count;
    while rest != Some(0) {
        match events.next().await? {
            Seen::Event(event) => {
                if event.missed > 0 && !output.is_json {
                    print(&format!("--- {} events are missing: this reader was too slow", event.missed))?;
                }
                output.value(&event, |event| line(event))?;
                rest = rest.map(|rest| rest - 1);
            }
            Seen::Gap { reason } => {
                output.value(&json!({ "gap": reason }), |_| {
                    format!("--- events are missing: the connection broke ({})", plain(&reason))
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn line(event: &Event) -> String {
    let mut line = format!("{} {:<9} {}", event.at, word(&event.kind), event.namespace);
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _written = write!(line, " {name}{value}");
        }
    };
    add("", or_none(event.key.as_ref().map(|key| format!("{key:?}"))));
    add("", or_none(event.id.as_ref()));
    add("attempt=", or_none(event.attempt));
    add("late=", or_none(event.late_ms.map(parse::short)));
    add("took=", or_none(event.took_ms.map(parse::short)));
    add("", or_none(event.detail.as_ref()));
    plain(&line)
}

/// Prints the service's counters once, such as the number of pending timers.
pub(crate) async fn stats(client: &Client, output: Output) -> Result<(), Failure> {
    let stats = client.stats().await?;
    if output.is_json {
        return Ok(output.json(&stats)?);
    }
    Ok(print(&text(&stats, None))?)
}

/// Formats the service's counters as a table. If `before` has earlier counters, the table also shows rates.
fn text(stats: &ServiceStats, before: Option<&ServiceStats>) -> String {
    let rate = |now: u64, count: fn(&ServiceStats) -> u64| {
        let Some(before) = before else { return String::new() };
        let millis = stats.now.as_millis().saturating_sub(before.now.as_millis()).max(1);
        format!("{}/s", now.saturating_sub(count(before)).saturating_mul(1_000) / millis)
    };
    let row = |name: &str, value: String, rate: String| [name.to_owned(), value, rate];
    let rows = [
        row("version", stats.version.clone(), String::new()),
        row("now", stats.now.to_string(), String::new()),
        row("up", parse::short(stats.up_ms), String::new()),
        row("pending", stats.pending.to_string(), String::new()),
        row("leased", stats.leased.to_string(), String::new()),
        row("parked", stats.parked.to_string(), String::new()),
        row("dead", stats.dead.to_string(), String::new()),
        row("overdue", parse::short(stats.overdue_ms), String::new()),
        row("created", stats.created.to_string(), rate(stats.created, |stats| stats.created)),
        row("delivered", stats.delivered.to_string(), rate(stats.delivered, |stats| stats.delivered)),
        row("failed", stats.failed.to_string(), rate(stats.failed, |stats| stats.failed)),
        row("cancelled", stats.cancelled.to_string(), rate(stats.cancelled, |stats| stats.cancelled)),
    ];
    let mut text = table(None, rows.into_iter());
    if !stats.hosts.is_empty() {
        let row = |host: &HostView| {
            let open = or_none(host.open_for_ms.map(parse::short));
            [host.host.clone(), host.running.to_string(), host.failures.to_string(), open]
        };
        text.push_str("\n\n");
        text.push_str(&table(
            Some(["HOST", "RUNNING", "FAILURES", "PAUSED FOR"]),
            stats.hosts.iter().map(row),
        ));
    }
    text
}

/// How often the command `top` updates the table of the service's counters, and whether it prints the table only once.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The time between two updates
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse::duration)]
    interval: Duration,
    /// Print the table only once, as is the default without a terminal
    #[arg(long)]
    once: bool,
}

/// The terminal's alternate screen, with a hidden cursor. Dropping the value restores the terminal.
struct Screen;

impl Screen {
    fn open() -> io::Result<Self> {
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Self)
    }

    /// Replaces the text on the screen. The screen does not flicker, because new characters overwrite the old text.
    fn show(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        write!(out, "\x1b[H{}\x1b[K\x1b[J", text.replace('\n', "\x1b[K\r\n"))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _terminal_may_be_gone = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
    }
}

/// Shows the service's counters and refreshes them until the user presses Ctrl-C. If the output is not a terminal,
/// prints the counters only once.
pub(crate) async fn top(top: Top, client: &Client, url: &str, output: Output) -> Result<(), Failure> {
    if top.once || output.is_json || !io::stdout().is_terminal() {
        return stats(client, output).await;
    }
    // A single future waits for Ctrl-C from beginning to end. A signal that arrives while nothing waits would be lost.
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Ok(()),
        failed = show_for_ever(&top, client, url) => failed,
    }
}

/// Shows the service's counters, and refreshes them without end. If the service cannot be reached, the title of the
/// table shows the error.
async fn show_for_ever(top: &Top, client: &Client, url: &str) -> Result<(), Failure> {
    let mut before = client.stats().await?;
    let screen = Screen::open()?;
    let mut shown = text(&before, None);
    let mut title = url.to_owned();
    loop {
        screen.show(&format!("tourbillon top  {}  (Ctrl-C ends)\n\n{shown}", plain(&title)))?;
        tokio::time::sleep(top.interval.max(Duration::from_millis(100))).await;
        match client.stats().await {
            Ok(stats) => {
                shown = text(&stats, Some(&before));
                title = url.to_owned();
                before = stats;
            }
            Err(error) => title = format!("{url}: {error}"),
        }
    }
}
