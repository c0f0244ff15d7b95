//! Reads the marks of shards. The mark of a shard is the id of the deployment to which the shard belongs.

use super::call::run;
use crate::layout::{Layout, Part, Shard};
use crate::link::Link;
use crate::script::filled;
use futures_util::future::join_all;
use tourbillon_durable::store::{ServerTime, StoreError};

/// The end of an error message about lost data, which says how to repair the loss.
pub(crate) const REMEDY: &str = "`tourbillond mend`, or `RedisBuilder::mend`, brings it back";

/// Each shard with its mark, which is the id of the shard's deployment. The mark is `None` if it is lost, and an error
/// if the shard's server has failed.
pub(crate) type Marks = Vec<(Shard, Result<Option<Vec<u8>>, StoreError>)>;

/// Reads the marks (deployment ids) of the shards in all groups at the same time. Returns the marks sorted by shard.
pub(crate) async fn marks_of(
    link: &dyn Link,
    time: &ServerTime,
    layout: &Layout,
    groups: Vec<Vec<Shard>>,
) -> Marks {
    let calls = groups.into_iter().map(async |group| {
        let keys = group.iter().map(|shard| layout.key(*shard, Part::Meta)).collect();
        let asked = async {
            let (mut answered, _) = run(link, time, |scripts| &scripts.marks, keys, []).await?;
            let mut marks = answered.rest.list()?;
            group.iter().map(|_| filled(marks.next()?)).collect::<Result<Vec<_>, StoreError>>()
        };
        match asked.await {
            Ok(marks) => group.into_iter().zip(marks.into_iter().map(Ok)).collect::<Marks>(),
            Err(error) => group.into_iter().map(|shard| (shard, Err(error.clone()))).collect(),
        }
    });
    let mut marks: Marks = join_all(calls).await.into_iter().flatten().collect();
    marks.sort_by_key(|(shard, _)| *shard);
    marks
}

/// Formats a list of shards for a message, which names at most 20 of them.
pub(crate) fn listed(shards: &[Shard]) -> String {
    const MOST: usize = 20;
    let numbers = shards.iter().take(MOST).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let word = if shards.len() == 1 { "shard" } else { "shards" };
    match shards.len() {
        count if count > MOST => format!("{word} {numbers} and {} others", count - MOST),
        _ => format!("{word} {numbers}"),
    }
}
