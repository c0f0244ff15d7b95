//! Counts how many timers are due in each span of the future.

use super::counts::Counter;
use super::index::{Scores, Walk, lanes};
use crate::deployment::Deployment;
use crate::layout::{Part, Shard, Slice, period_of, start_of};
use crate::script::decimal;
use futures_util::future::try_join_all;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Horizon, StoreError};

/// The greatest number of slices that one script lists or counts. A slice is the set of the pending timers of one lane
/// (group of namespaces) that are due in one period of two hours.
const SLICES_AT_ONCE: usize = 5_000;
/// The greatest number of slices (sets of pending timers) that a [`Horizon`] counts, in all shards together.
const MOST_SLICES: usize = 50_000;

/// Counts how many timers are due in each span of the future. The shards divide [`MOST_SLICES`] equally between them,
/// but each shard counts at least the slices (sets of pending timers) of one period. If a shard has more slices than it
/// counts, the counts of the latest spans are too low.
pub(crate) async fn horizon(counter: &Counter) -> Result<Horizon, StoreError> {
    let deployment = &*counter.deployment;
    let mut horizon = Horizon::empty(deployment.time.now());
    let parts: Vec<(Shard, Part)> = deployment.layout.shards().map(|shard| (shard, Part::Slices)).collect();
    let mut slices: Vec<(Slice, Shard)> = Vec::new();
    let mut cut = None;
    // Each shard lists at least all lanes of one period, and one slice of a later period. Without that slice, the
    // answer of a shard with all lanes in its first period would be full, and the whole period would not be counted.
    let each = (MOST_SLICES / parts.len().max(1)).max(lanes() + 1);
    for parts in parts.chunks((SLICES_AT_ONCE / each.max(1)).max(1)) {
        for (found, (shard, _)) in
            Walk::ascending(deployment).scores(parts, Scores::ALL, None, each).await?.iter().zip(parts)
        {
            slices.extend(found.iter().filter_map(|(name, _)| Some((Slice::named(name)?, *shard))));
            // If the answer of a shard is full, the shard may have more slices. From this period on, not all timers are
            // counted. The slices are listed by their first due moments, so all slices of earlier periods are listed.
            let last = found.last().filter(|_| found.len() >= each).map(|(_, due)| period_of(*due));
            cut = cut.into_iter().chain(last).min();
        }
    }
    slices.retain(|(slice, _)| cut.is_none_or(|cut| slice.period() < cut));
    slices.sort_unstable();
    // A slice in which a span ends is divided between spans. Any other slice belongs to one span as a whole.
    let ends: Vec<UtcMillis> = horizon.spans.iter().map(|span| span.until).collect();
    let has_end = |period: u64| ends.iter().any(|end| period_of(end.as_millis()) == period);
    let (divided, whole): (Vec<_>, Vec<_>) =
        slices.into_iter().partition(|(slice, _)| has_end(slice.period()));
    for (_, counts) in tally(deployment, &divided, &ends).await? {
        for (end, count) in ends.iter().zip(counts) {
            horizon.add(*end, count);
        }
    }
    for (slice, counts) in tally(deployment, &whole, &[]).await? {
        horizon.add(UtcMillis::from_millis(start_of(slice.period())), counts.iter().sum());
    }
    if let Some(cut) = cut {
        let cut = UtcMillis::from_millis(start_of(cut));
        // A span includes its last moment, so a span that ends exactly at the cut is incomplete, too.
        horizon.spans.iter_mut().filter(|span| span.until >= cut).for_each(|span| span.is_exact = false);
        let pending = counter.counts().await?.of(Phase::Pending);
        // The two numbers are from different moments, so the second may be greater than the first.
        horizon.unplaced = pending.saturating_sub(horizon.placed());
    }
    Ok(horizon)
}

/// Counts the timers of each slice by their due moments. A slice is a stored set of pending timers. The result has a
/// list of counts for each slice: one count for each moment in `ends`, of the timers that are due up to this moment and
/// after the previous moment, and a last count of all later timers.
async fn tally(
    deployment: &Deployment,
    slices: &[(Slice, Shard)],
    ends: &[UtcMillis],
) -> Result<Vec<(Slice, Vec<u64>)>, StoreError> {
    let groups = deployment.topology.places_by_script(slices.iter().map(|(_, shard)| *shard));
    let answers = groups.into_iter().map(async |places| {
        let mut counts = Vec::new();
        for places in places.chunks(SLICES_AT_ONCE) {
            let slices = || places.iter().filter_map(|place| slices.get(*place));
            let keys =
                slices().map(|(slice, shard)| deployment.layout.key(*shard, Part::Slice(*slice))).collect();
            let arguments = ends.iter().map(|end| decimal(end.as_millis()));
            let mut answered = deployment.run(|scripts| &scripts.count_scores, keys, arguments).await?;
            let mut lists = answered.rest.list()?;
            for (slice, _) in slices() {
                let (mut values, mut numbers) = (lists.list()?, Vec::new());
                while !values.is_empty() {
                    numbers.push(values.number()?);
                }
                counts.push((*slice, numbers));
            }
        }
        Ok::<_, StoreError>(counts)
    });
    Ok(try_join_all(answers).await?.into_iter().flatten().collect())
}
