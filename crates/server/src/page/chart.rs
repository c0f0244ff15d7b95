//! Draws charts as SVG. The service draws them, so the browser needs no script for them.
//!
//! Colours and sizes of text are CSS classes, since the content security policy forbids styles within a page. Each bar
//! or cell has a title with its numbers. Each chart stands next to a table or a text with the same numbers.

use super::text::{number, per_hour, plain, rate, short, span};
use askama::Template;
use core::fmt;
use tourbillon_api::{History, HistoryPoint, Horizon, LatenessBySecond, Node, Nodes, Shard};

/// The full width of a drawing: 100 %, in hundredths of a percent. Horizontal positions are parts of this width,
/// because a drawing is as wide as the window permits. Heights are pixels, so texts keep their size.
const WIDTH: u64 = 10_000;

/// A horizontal position or width, in hundredths of a percent of the drawing's width.
#[derive(Clone, Copy, Debug)]
struct Part(u64);

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}%", self.0 / 100, self.0 % 100)
    }
}

/// A rectangle in a drawing. The browser shows `title` when the pointer rests on the rectangle.
struct Rect {
    x: Part,
    y: u64,
    width: Part,
    height: u64,
    class: String,
    title: String,
}

/// A text in a drawing, such as a label of an axis.
struct Label {
    x: Part,
    /// The distance from the drawing's top to the text's baseline, in pixels.
    y: u64,
    text: String,
    class: &'static str,
}

/// A horizontal line across a drawing, at the height of a bar with a certain value. `text` is this value, or empty.
struct Line {
    y: u64,
    text: String,
}

/// A drawing of rectangles, lines and labels. The template `chart.svg` renders it.
#[derive(Template)]
#[template(path = "chart.svg", escape = "html")]
pub(super) struct Chart {
    name: &'static str,
    height: u64,
    rects: Vec<Rect>,
    lines: Vec<Line>,
    labels: Vec<Label>,
}

/// The height of the space above a chart's bars, in pixels. The number of each bar is printed there.
const ABOVE: u64 = 16;
/// The height of the space below a chart's bars, in pixels. The labels of the axis are printed there.
const BELOW: u64 = 18;
/// The distance from the bottom of a chart's bars down to the baseline of the labels, in pixels.
const BASE: u64 = 14;

/// Scales `value` from the range 0 to `most` to the range 0 to `height`. For a value above 0, the result is at least 1,
/// so that the bar of the value stays visible.
fn scaled(value: u64, most: u64, height: u64) -> u64 {
    if value == 0 || most == 0 {
        return 0;
    }
    let share = u128::from(value) * u128::from(height) / u128::from(most);
    u64::try_from(share).unwrap_or(height).clamp(1, height)
}

/// Scales `value` from the range 0 to `most` to the range 0 to `height`, on a logarithmic axis. Each doubling of the
/// value adds the same height.
fn scaled_by_log(value: u64, most: u64, height: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    // Logarithms are counted in sixteenths of a doubling.
    let log = |value: u64| {
        let whole = u64::from(value.ilog2());
        let rest = (u128::from(value) << 4) >> whole;
        whole * 16 + u64::try_from(rest).unwrap_or(16) - 16
    };
    // A doubling is added to both logarithms, because the logarithm of 1 is 0: a bar for the value 1 would get only the
    // least height.
    let (value, most) = (log(value) + 16, log(most.max(1)) + 16);
    (value * height / most).clamp(2, height)
}

/// Returns the lines across a chart with a logarithmic axis from 0 to `most`: a line at zero, and at most four at
/// powers of ten.
fn lines_by_log(most: u64, height: u64) -> Vec<Line> {
    let powers: Vec<u64> = core::iter::successors(Some(1_u64), |power| power.checked_mul(10))
        .take_while(|p| *p <= most)
        .collect();
    let step = powers.len().div_ceil(4).max(1);
    // The line at zero has no number: the number of the next line is too close.
    let zero = Line { y: ABOVE + height, text: String::new() };
    // The steps go down from the greatest power, so the greatest power always has a line.
    let powers = powers.iter().rev().step_by(step);
    let lines = powers
        .map(|power| Line { y: ABOVE + height - scaled_by_log(*power, most, height), text: short(*power) });
    core::iter::once(zero).chain(lines).collect()
}

/// Draws a bar for each bucket of pending timers. A bucket counts the timers that are due within a span of time from
/// now. Later buckets have longer spans. The axis marks the ends of the spans. Returns `None` if no timer is pending.
pub(super) fn horizon(horizon: &Horizon) -> Option<Chart> {
    const HEIGHT: u64 = 140;
    let buckets = &horizon.buckets;
    // Without buckets, this line returns, so the next line does not divide by zero.
    let most = buckets.iter().map(|bucket| bucket.count).max().filter(|most| *most > 0)?;
    let step = WIDTH / u64::try_from(buckets.len()).ok()?;
    let (mut rects, mut labels, mut before) = (Vec::new(), Vec::new(), 0);
    for (at, bucket) in (0..).zip(buckets) {
        let (left, middle, right) = (at * step, at * step + step / 2, at * step + step);
        let or_more = if bucket.at_least { " or more" } else { "" };
        let (range, x, mark) = match bucket.within_ms {
            Some(0) => ("overdue".to_owned(), middle, "due".to_owned()),
            Some(within) => (format!("due in {} to {}", span(before), span(within)), right, coarse(within)),
            None => (format!("due in more than {}", span(before)), middle, "later".to_owned()),
        };
        // A narrow window has no room for all labels of the axis. So every second label is hidden in it.
        let class = if at > 0 && at % 2 == 0 { "tick middle wide" } else { "tick middle" };
        labels.push(Label { x: Part(x), y: ABOVE + HEIGHT + BASE, text: mark, class });
        let height = scaled_by_log(bucket.count, most, HEIGHT);
        let y = ABOVE + HEIGHT - height;
        let plus = if bucket.at_least { "+" } else { "" };
        let text = format!("{}{plus}", short(bucket.count));
        labels.push(Label { x: Part(middle), y: y - 4, text, class: "count middle" });
        rects.push(Rect {
            x: Part(left + step / 16),
            y,
            width: Part(step - step / 8),
            height,
            class: if bucket.within_ms == Some(0) { "bar bad" } else { "bar" }.to_owned(),
            title: format!("{}{or_more} {range}", number(bucket.count)),
        });
        before = bucket.within_ms.unwrap_or(before);
    }
    Some(Chart {
        name: "Pending timers by the time until they are due",
        height: ABOVE + HEIGHT + BELOW,
        rects,
        lines: lines_by_log(most, HEIGHT),
        labels,
    })
}

/// Writes a duration of `millis` milliseconds as a number of its greatest unit, such as "3 h".
fn coarse(millis: u64) -> String {
    let text = span(millis);
    let mut words = text.split(' ');
    match (words.next(), words.next()) {
        (Some(count), Some(unit)) => format!("{count} {unit}"),
        _ => text,
    }
}

/// The number of the style class that colours the greatest lateness. [`heat`] chooses the class of a lateness.
const HOTTEST: u32 = 9;

/// Returns the number of the style class that colours a lateness, given in milliseconds. The number is 1 for less than
/// 2 ms, and 9 for at least 30 s. The style sheet names these classes `h1` to `h9`.
fn heat(millis: u64) -> u32 {
    const BOUNDS: [u64; 8] = [2, 5, 10, 50, 250, 1_000, 5_000, 30_000];
    1 + u32::try_from(BOUNDS.iter().filter(|bound| millis >= **bound).count()).unwrap_or(8)
}

/// Draws the deliveries of the last hour, grouped by the second of the minute for which they were due. A bar shows the
/// number of deliveries, and the cell below the bar shows their lateness. Returns `None` if there was no delivery.
pub(super) fn lateness(lateness: &LatenessBySecond) -> Option<Chart> {
    const HEIGHT: u64 = 40;
    const STRIP: u64 = 26;
    // Without seconds, this line returns, so the next line does not divide by zero.
    let most = lateness.seconds.iter().map(|second| second.count).max().filter(|most| *most > 0)?;
    let step = WIDTH / u64::try_from(lateness.seconds.len()).ok()?;
    let mut rects = Vec::new();
    for (at, second) in (0..).zip(&lateness.seconds) {
        let title = if second.count == 0 {
            format!(":{at:02}, no delivery")
        } else {
            format!(
                ":{at:02}, {} deliveries, 99 % at most {} late, the latest {}",
                number(second.count),
                span(second.p99_ms),
                span(second.max_ms)
            )
        };
        let class = if second.count == 0 { "h0".to_owned() } else { format!("h{}", heat(second.p99_ms)) };
        let height = scaled(second.count, most, HEIGHT);
        let (x, width) = (Part(at * step), Part(step - step / 12));
        let y = ABOVE + HEIGHT - height;
        rects.push(Rect { x, y, width, height, class: "bar faint".to_owned(), title: title.clone() });
        rects.push(Rect { x, y: ABOVE + HEIGHT + 3, width, height: STRIP, class, title });
    }
    let label = |at: u64| Label {
        x: Part(at * step + step / 2),
        y: ABOVE + HEIGHT + 3 + STRIP + BASE,
        text: format!(":{at:02}"),
        class: "tick middle",
    };
    Some(Chart {
        name: "Lateness by second of the minute, over the last hour",
        height: ABOVE + HEIGHT + STRIP + BELOW + 3,
        rects,
        lines: vec![Line { y: ABOVE, text: short(most) }, Line { y: ABOVE + HEIGHT, text: "0".to_owned() }],
        labels: [0, 10, 20, 30, 40, 50, 59].into_iter().map(label).collect(),
    })
}

/// Draws a row for each node that is live or owns shards, for at most `most` nodes. A row has a rectangle for each
/// shard of the node. The rectangle's height and colour show how late the shard's first timer is. Returns `None` if
/// there are no shards.
pub(super) fn shards(nodes: &Nodes, most: usize) -> Option<Chart> {
    const ROW: u64 = 44;
    const CELL: u64 = 24;
    let step = WIDTH / u64::try_from(nodes.shards.len()).ok().filter(|count| *count > 0)?;
    let has_some = |node: &&Node| node.live || node.shards > 0;
    let mut owners: Vec<(Option<&str>, &str)> = nodes
        .nodes
        .iter()
        .filter(has_some)
        .take(most)
        .map(|node| (Some(&*node.incarnation), &*node.name))
        .collect();
    let is_listed = |shard: &Shard| owners.iter().any(|(owner, _)| *owner == shard.owner.as_deref());
    // The limit `most` leaves out nodes, but no shard may be missing in the chart.
    if !nodes.shards.iter().all(is_listed) {
        owners.push((None, "no node, or one that is not listed"));
    }
    let (mut rects, mut labels) = (Vec::new(), Vec::new());
    for (at, (owner, name)) in (0..).zip(&owners) {
        let top = at * ROW;
        let is_own = |shard: &&Shard| match owner {
            Some(owner) => shard.owner.as_deref() == Some(owner),
            // The last row has no owner. It has the shards that belong to none of the nodes in the other rows.
            None => !owners.iter().any(|(other, _)| other.is_some() && *other == shard.owner.as_deref()),
        };
        let own = nodes.shards.iter().filter(is_own);
        labels.push(Label {
            x: Part(0),
            y: top + BASE,
            text: format!("{name}: {} shards", own.clone().count()),
            class: "count",
        });
        for shard in own {
            let heat = if shard.silent || shard.lost { HOTTEST } else { heat(shard.overdue_ms) };
            // The height grows with the class of the lateness: from a third of the space below the label to all of this
            // space.
            let height = 6 + 2 * u64::from(heat);
            let lateness = match shard.overdue_ms {
                _ if shard.lost => "its server has lost it".to_owned(),
                _ if shard.silent => "its server does not answer".to_owned(),
                0 => "nothing is due".to_owned(),
                late => format!("the first timer is due for {}", span(late)),
            };
            let looked = shard.polled_ms_ago;
            let looked = looked.map_or_else(String::new, |age| format!(", looked at {} ago", span(age)));
            rects.push(Rect {
                x: Part(u64::from(shard.number) * step),
                y: top + BELOW + CELL - height,
                width: Part((step - step / 8).max(1)),
                height,
                class: format!("h{heat}"),
                title: format!("shard {} of {name}: {lateness}{looked}", shard.number),
            });
        }
    }
    let rows = u64::try_from(owners.len()).unwrap_or_default();
    let lines = (0..rows).map(|row| Line { y: row * ROW + BELOW + CELL, text: String::new() });
    Some(Chart {
        name: "Shards by node and lateness",
        height: rows * ROW,
        rects,
        lines: lines.collect(),
        labels,
    })
}

/// The meaning of a chart's values. The meaning decides how the chart writes the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The values count events. The chart shows rates, and the caption shows the sum.
    Events,
    /// The values are durations in milliseconds, such as the lateness of the oldest timer.
    Times,
    /// The values count things that exist at a moment, such as stored timers.
    Numbers,
}

/// A number in the service's history, such as the number of created timers. A small chart shows the number over time.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) value: fn(&HistoryPoint) -> u64,
    pub(super) kind: Kind,
}

pub(super) const SERIES: [Series; 6] = [
    Series { name: "Created", class: "bar", value: |point| point.created, kind: Kind::Events },
    Series { name: "Delivered", class: "bar good", value: |point| point.delivered, kind: Kind::Events },
    Series { name: "Failed attempts", class: "bar warn", value: |point| point.failed, kind: Kind::Events },
    Series { name: "Died", class: "bar bad", value: |point| point.dead, kind: Kind::Events },
    Series { name: "Oldest overdue", class: "bar warn", value: |point| point.overdue_ms, kind: Kind::Times },
    Series { name: "Pending", class: "bar", value: |point| point.pending, kind: Kind::Numbers },
];

/// A small chart of one number in the service's history over time, with the number's name and a caption.
pub(super) struct Small {
    pub(super) name: &'static str,
    pub(super) caption: String,
    pub(super) chart: Chart,
}

/// Returns the labels of a time axis from `hours` ago until now. `y` is the baseline of the labels, in pixels.
fn ago(hours: u64, y: u64) -> Vec<Label> {
    let text = |quarters: u64| {
        let minutes = hours * 15 * quarters;
        if minutes.is_multiple_of(60) { format!("{} h", minutes / 60) } else { format!("{minutes} min") }
    };
    let label = |x: u64, text: String, class| Label { x: Part(x), y, text, class };
    vec![
        label(0, format!("{} ago", text(4)), "tick"),
        label(WIDTH / 2, text(2), "tick middle"),
        label(WIDTH, "now".to_owned(), "tick end"),
    ]
}

/// Draws a small chart for each number in the service's history, over the last `hours`. Intervals without data stay
/// empty.
pub(super) fn history(history: &History, hours: u64) -> Vec<Small> {
    const HEIGHT: u64 = 56;
    let (since, until) = (history.since.as_millis(), history.until.as_millis());
    let length = until.saturating_sub(since).max(1);
    let small = |series: &Series| {
        // Events are compared by rate, since the service may have run for only a part of an interval.
        let height_of = |point: &HistoryPoint| match series.kind {
            Kind::Events => per_hour((series.value)(point), point.covered_ms),
            Kind::Times | Kind::Numbers => (series.value)(point),
        };
        let most = history.points.iter().map(height_of).max().unwrap_or(0);
        let shown = |value: u64| match series.kind {
            Kind::Events => rate(value),
            Kind::Times => span(value),
            Kind::Numbers => number(value),
        };
        // A bar has at least the width 1, so it must begin at least 1 before the right edge.
        let x_of = |at: u64| scaled(at.saturating_sub(since), length, WIDTH).min(WIDTH - 1);
        let points = history.points.iter().filter(|point| (series.value)(point) > 0);
        let rects = points.map(|point| {
            let at = point.at.as_millis();
            let (x, end) = (x_of(at), x_of(at.saturating_add(history.interval_ms)));
            let height = scaled(height_of(point), most, HEIGHT);
            let value = shown(height_of(point));
            let value = match series.kind {
                Kind::Events => format!("{}, {value}", number((series.value)(point))),
                Kind::Times | Kind::Numbers => value,
            };
            Rect {
                x: Part(x),
                y: ABOVE + HEIGHT - height,
                width: Part(end.saturating_sub(x).max(1)),
                height,
                class: series.class.to_owned(),
                title: format!("{} UTC: {value}", plain(point.at)),
            }
        });
        let sum = history.points.iter().fold(0_u64, |sum, point| sum.saturating_add((series.value)(point)));
        let caption = match series.kind {
            _ if most == 0 => "none".to_owned(),
            Kind::Events => format!("{}, at most {}", number(sum), shown(most)),
            Kind::Times | Kind::Numbers => format!("at most {}", shown(most)),
        };
        let zero = Line { y: ABOVE + HEIGHT, text: "0".to_owned() };
        let top = Line {
            y: ABOVE,
            text: match series.kind {
                Kind::Events => rate(most),
                Kind::Times => coarse(most),
                Kind::Numbers => short(most),
            },
        };
        Small {
            name: series.name,
            caption,
            chart: Chart {
                name: series.name,
                height: ABOVE + HEIGHT + BELOW,
                rects: rects.collect(),
                lines: if most == 0 { vec![zero] } else { vec![top, zero] },
                labels: ago(hours, ABOVE + HEIGHT + BASE),
            },
        }
    };
    SERIES.iter().map(small).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_api::{HorizonBucket, Moment, SecondLateness};

    #[test]
    fn bars_grow_with_their_values_and_small_ones_can_be_seen() {
        assert_eq!([scaled(0, 9, 100), scaled(1, 1_000_000, 100), scaled(9, 9, 100)], [0, 1, 100]);
        assert_eq!(scaled(u64::MAX, u64::MAX, 100), 100);
        let heights: Vec<_> =
            [0, 1, 2, 3, 1_000, 1_000_000].map(|value| scaled_by_log(value, 1_000_000, 100)).into();
        assert!(heights.is_sorted() && heights[0] == 0 && heights[1] > 0 && heights[5] == 100, "{heights:?}");
        assert_eq!(scaled_by_log(u64::MAX, u64::MAX, 100), 100);
    }

    #[test]
    fn charts_have_a_mark_for_each_value_and_none_for_nothing() {
        let now = Moment::from_millis(1_000_000_000);
        let bucket = |within_ms, count| HorizonBucket { within_ms, count, at_least: false };
        for buckets in [Vec::new(), vec![bucket(Some(0), 0), bucket(None, 0)]] {
            assert!(horizon(&Horizon { now, buckets, unplaced: 0 }).is_none());
        }
        let some = Horizon {
            now,
            buckets: vec![bucket(Some(0), 1), bucket(Some(1_000), 0), bucket(None, 7)],
            unplaced: 0,
        };
        let text = horizon(&some).unwrap().render().unwrap();
        assert!(text.contains("7 due in more than 1 s") && text.contains("1 overdue"), "{text}");

        let node = |incarnation: &str, live, shards| Node {
            incarnation: incarnation.to_owned(),
            name: format!("node <{incarnation}>"),
            version: "1".to_owned(),
            since: now,
            seen: now,
            live,
            this: false,
            shards,
        };
        let shard = |number, owner: Option<&str>, overdue_ms| Shard {
            number,
            owner: owner.map(str::to_owned),
            polled_ms_ago: Some(70),
            overdue_ms,
            first_due: None,
            epoch: 1,
            takeovers: 0,
            taken_over: None,
            silent: number == 3,
            lost: false,
        };
        let mut nodes = Nodes { now, shared: true, nodes: Vec::new(), shards: Vec::new() };
        assert!(shards(&nodes, 9).is_none());
        nodes.nodes = vec![node("a", true, 1), node("b", true, 1), node("gone", false, 0)];
        nodes.shards = vec![
            shard(0, Some("a"), 0),
            shard(1, Some("b"), 60_000),
            shard(2, None, 3),
            shard(3, Some("a"), 0),
        ];
        let chart = shards(&nodes, 9).unwrap();
        let heights: Vec<_> = chart.rects.iter().map(|rect| rect.height).collect();
        assert_eq!(heights, [8, 24, 24, 10], "the lateness can be read without colours");
        assert_eq!(chart.labels.len(), 3, "a node that is gone and has no shards has no row");
        let text = chart.render().unwrap();
        for part in [
            r#"class="h9""#,
            "shard 1 of node &#60;b&#62;: the first timer is due for 1 min, looked at 70 ms ago",
            "shard 0 of node &#60;a&#62;: nothing is due",
            "shard 2 of no node",
            "shard 3 of node &#60;a&#62;: its server does not answer, looked at 70 ms ago",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let cut = shards(&nodes, 1).unwrap();
        assert_eq!((cut.labels.len(), cut.rects.len()), (2, 4), "all shards are shown, if not all nodes");

        let mut seconds = vec![SecondLateness::default(); 60];
        assert!(lateness(&LatenessBySecond { seconds: seconds.clone() }).is_none());
        seconds[7] = SecondLateness { count: 3, max_ms: 40_000, p99_ms: 40_000 };
        let text = lateness(&LatenessBySecond { seconds }).unwrap().render().unwrap();
        assert!(text.contains(r#"class="h9""#) && text.contains(":07, 3 deliveries"), "{text}");
    }
}
