//! Charts: drawings that are made on the service. Colours and sizes of text are classes, since a page may have no styles of
//! its own. Each mark has its numbers as a title, and each chart a table or a text of the same numbers.

use super::text::{number, plain, span};
use askama::Template;
use tourbillon_api::{History, HistoryPoint, Horizon, LatenessBySecond};

/// The width of a drawing, in its own units.
const WIDTH: u64 = 720;

/// A rectangle of a drawing.
struct Rect {
    x: u64,
    y: u64,
    width: u64,
    height: u64,
    class: String,
    title: String,
}

/// A text of a drawing.
struct Label {
    x: u64,
    text: String,
    class: &'static str,
}

/// A chart of rectangles.
#[derive(Template)]
#[template(path = "chart.svg", escape = "html")]
pub(super) struct Chart {
    name: &'static str,
    width: u64,
    height: u64,
    rects: Vec<Rect>,
    labels: Vec<Label>,
    /// The place of the labels.
    baseline: u64,
    top: Option<String>,
}

/// A number between 0 and `height`: the share of `value` in `most`. A value that is not zero can be seen.
fn scaled(value: u64, most: u64, height: u64) -> u64 {
    if value == 0 || most == 0 {
        return 0;
    }
    let share = u128::from(value) * u128::from(height) / u128::from(most);
    u64::try_from(share).unwrap_or(height).clamp(1, height)
}

/// The same on a logarithmic axis: each doubling is as high as the others.
fn scaled_by_log(value: u64, most: u64, height: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    // In 16ths of a doubling.
    let log = |value: u64| {
        let whole = u64::from(value.ilog2());
        let rest = (u128::from(value) << 4) >> whole;
        whole * 16 + u64::try_from(rest).unwrap_or(16) - 16
    };
    let (value, most) = (log(value) + 16, log(most.max(1)) + 16);
    (value * height / most).clamp(2, height)
}

/// The pending timers by the time until they are due: each bucket ends later than the one before by about the same factor.
pub(super) fn horizon(horizon: &Horizon) -> Option<Chart> {
    const HEIGHT: u64 = 120;
    let buckets = &horizon.buckets;
    let most = buckets.iter().map(|bucket| bucket.count).max()?;
    let count = u64::try_from(buckets.len()).ok()?;
    let step = WIDTH / count.max(1);
    let (mut rects, mut labels, mut before) = (Vec::new(), Vec::new(), 0);
    for (at, bucket) in (0..).zip(buckets) {
        let range = match bucket.within_ms {
            Some(0) => "overdue".to_owned(),
            Some(within) => format!("due in {} to {}", span(before), span(within)),
            None => format!("due in more than {}", span(before)),
        };
        let or_more = if bucket.at_least { " or more" } else { "" };
        let height = scaled_by_log(bucket.count, most, HEIGHT);
        let class = if bucket.within_ms == Some(0) { "bar bad" } else { "bar" };
        rects.push(Rect {
            x: at * step + 2,
            y: 16 + HEIGHT - height,
            width: step.saturating_sub(4),
            height,
            class: class.to_owned(),
            title: format!("{}{or_more} {range}", number(bucket.count)),
        });
        let text = match bucket.within_ms {
            Some(0) => "due".to_owned(),
            Some(within) => coarse(within),
            None => "later".to_owned(),
        };
        labels.push(Label { x: at * step + step / 2, text, class: "tick middle" });
        before = bucket.within_ms.unwrap_or(before);
    }
    // Labels that would touch each other are left out, but for the ends.
    let keep = labels.len().div_ceil(14).max(1);
    let last = labels.len().saturating_sub(1);
    let labels = labels.into_iter().enumerate();
    let labels = labels.filter(|(at, _)| at % keep == 0 || *at == last).map(|(_, label)| label).collect();
    Some(Chart {
        name: "Pending timers by the time until they are due",
        width: WIDTH,
        height: HEIGHT + 36,
        rects,
        labels,
        baseline: HEIGHT + 30,
        top: Some(format!("{} at most in one bar", number(most))),
    })
}

/// A length of time in its greatest unit.
fn coarse(millis: u64) -> String {
    let text = span(millis);
    let mut words = text.split(' ');
    match (words.next(), words.next()) {
        (Some(count), Some(unit)) => format!("{count} {unit}"),
        _ => text,
    }
}

/// The class of a lateness: from `h1`, below 2 ms, to `h9`.
fn heat(millis: u64) -> u32 {
    const BOUNDS: [u64; 8] = [2, 5, 10, 50, 250, 1_000, 5_000, 30_000];
    1 + u32::try_from(BOUNDS.iter().filter(|bound| millis >= **bound).count()).unwrap_or(8)
}

/// The lateness by second of the minute, none if there was no delivery.
pub(super) fn lateness(lateness: &LatenessBySecond) -> Option<Chart> {
    if lateness.seconds.iter().all(|second| second.count == 0) {
        return None;
    }
    let most = lateness.seconds.iter().map(|second| second.count).max().unwrap_or(0);
    let mut rects = Vec::new();
    for (at, second) in (0..).zip(&lateness.seconds) {
        let x = at * 12;
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
        let height = scaled(second.count, most, 28);
        rects.push(Rect {
            x,
            y: 30 - height,
            width: 11,
            height,
            class: "bar faint".to_owned(),
            title: title.clone(),
        });
        rects.push(Rect { x, y: 32, width: 11, height: 26, class, title });
    }
    let label = |at: u64| Label { x: at * 12 + 5, text: format!(":{at:02}"), class: "tick middle" };
    Some(Chart {
        name: "Lateness by second of the minute, over the last hour",
        width: WIDTH,
        height: 76,
        rects,
        labels: [0, 10, 20, 30, 40, 50, 59].into_iter().map(label).collect(),
        baseline: 72,
        top: None,
    })
}

/// A series of the history.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) value: fn(&HistoryPoint) -> u64,
    /// Whether the values are lengths of time.
    pub(super) is_time: bool,
    /// Whether the values of all points are added up in the caption; otherwise the greatest is shown.
    pub(super) is_sum: bool,
}

pub(super) const SERIES: [Series; 6] = [
    Series { name: "Created", class: "bar", value: |point| point.created, is_time: false, is_sum: true },
    Series {
        name: "Delivered",
        class: "bar good",
        value: |point| point.delivered,
        is_time: false,
        is_sum: true,
    },
    Series {
        name: "Failed attempts",
        class: "bar warn",
        value: |point| point.failed,
        is_time: false,
        is_sum: true,
    },
    Series { name: "Died", class: "bar bad", value: |point| point.dead, is_time: false, is_sum: true },
    Series {
        name: "Oldest overdue",
        class: "bar warn",
        value: |point| point.overdue_ms,
        is_time: true,
        is_sum: false,
    },
    Series { name: "Pending", class: "bar", value: |point| point.pending, is_time: false, is_sum: false },
];

/// A small chart of one series.
pub(super) struct Small {
    pub(super) name: &'static str,
    pub(super) caption: String,
    pub(super) chart: Chart,
}

/// The history, one chart a series. Gaps stay empty.
pub(super) fn history(history: &History) -> Vec<Small> {
    const HEIGHT: u64 = 44;
    let (since, until) = (history.since.as_millis(), history.until.as_millis());
    let length = until.saturating_sub(since).max(1);
    let small = |series: &Series| {
        let values: Vec<u64> = history.points.iter().map(series.value).collect();
        let most = values.iter().copied().max().unwrap_or(0);
        let shown = |value| if series.is_time { span(value) } else { number(value) };
        let x_of = |at: u64| scaled(at.saturating_sub(since), length, WIDTH).min(WIDTH - 1);
        let rects =
            history.points.iter().zip(&values).filter(|(_, value)| **value > 0).map(|(point, value)| {
                let at = point.at.as_millis();
                let (x, end) = (x_of(at), x_of(at.saturating_add(history.interval_ms)));
                let height = scaled(*value, most, HEIGHT);
                Rect {
                    x,
                    y: HEIGHT - height,
                    width: end.saturating_sub(x).max(1),
                    height,
                    class: series.class.to_owned(),
                    title: format!("{} UTC: {}", plain(point.at), shown(*value)),
                }
            });
        let sum = || values.iter().fold(0_u64, |sum, value| sum.saturating_add(*value));
        let caption = if series.is_sum { shown(sum()) } else { format!("at most {}", shown(most)) };
        Small {
            name: series.name,
            caption,
            chart: Chart {
                name: series.name,
                width: WIDTH,
                height: HEIGHT + 1,
                rects: rects.collect(),
                labels: Vec::new(),
                baseline: HEIGHT,
                top: None,
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
        let empty = Horizon { now, buckets: Vec::new(), unplaced: 0 };
        assert!(horizon(&empty).is_none());
        let bucket = |within_ms, count| HorizonBucket { within_ms, count, at_least: false };
        let some = Horizon {
            now,
            buckets: vec![bucket(Some(0), 1), bucket(Some(1_000), 0), bucket(None, 7)],
            unplaced: 0,
        };
        let text = horizon(&some).unwrap().render().unwrap();
        assert!(text.contains("7 due in more than 1 s") && text.contains("1 overdue"), "{text}");

        let mut seconds = vec![SecondLateness::default(); 60];
        assert!(lateness(&LatenessBySecond { seconds: seconds.clone() }).is_none());
        seconds[7] = SecondLateness { count: 3, max_ms: 40_000, p99_ms: 40_000 };
        let text = lateness(&LatenessBySecond { seconds }).unwrap().render().unwrap();
        assert!(text.contains(r#"class="h9""#) && text.contains(":07, 3 deliveries"), "{text}");
    }
}
