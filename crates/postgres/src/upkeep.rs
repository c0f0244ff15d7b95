//! The task of a node: signs of life, looks for timers that other processes have made, and sums of the counts.

use crate::deployment::instant;
use crate::layout::moment;
use crate::link::{Failure, Session};
use crate::node::{Mark, Node};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout;
use tokio_postgres::types::Type;

/// The pause between two looks while a timer is due within [`SOON`], or while another transaction holds a due timer.
const BUSY: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(1);
/// The pause between two sums of the counts.
const SUM: Duration = Duration::from_secs(5);

/// Starts the task of a node. The task ends soon after the store is dropped.
pub(crate) fn start(node: &Arc<Node>, pause: Duration) {
    let weak = Arc::downgrade(node);
    let task = async move {
        let (mut summed, mut rest) = (Instant::now(), pause);
        loop {
            {
                let Some(node) = weak.upgrade() else { return Ok(()) };
                // The store is gone if only this task has the node.
                if Arc::strong_count(&node) == 1 {
                    return Ok(());
                }
                let _rung = timeout(rest, node.bell.notified()).await;
            }
            let Some(node) = weak.upgrade() else { return Ok(()) };
            if Arc::strong_count(&node) == 1 {
                return Ok(());
            }
            rest = pause;
            if !node.is_member() {
                continue;
            }
            match turn(&node, summed.elapsed() >= SUM).await {
                Ok(is_busy) => {
                    if summed.elapsed() >= SUM {
                        summed = Instant::now();
                    }
                    rest = if is_busy { BUSY.min(pause) } else { pause };
                }
                // The next claim of the runtime returns the error.
                Err(_) => node.deployment.alarm.wake(),
            }
        }
    };
    drop(node.deployment.pool.spawn::<()>(task));
}

/// Makes one look. Returns whether the next look should come soon.
async fn turn(node: &Node, sums: bool) -> Result<bool, Failure> {
    let mut session = node.deployment.pool.session().await?;
    if node.is_sign_due() {
        node.give_sign(&mut session).await?;
    }
    if sums {
        session.query("SELECT 1 FROM tourbillon.fold()", &[]).await?;
    }
    look(node, &mut session).await
}

/// Looks whether this node must claim. A claim that is under way is a look itself, and it changes the mark.
async fn look(node: &Node, session: &mut Session) -> Result<bool, Failure> {
    let Ok(_no_claim) = node.claims.try_lock() else { return Ok(true) };
    let Mark { owned, due, id, seen, held, .. } = node.mark();
    let deployment = &node.deployment;
    let now = deployment.time.argument();
    let sent = instant();
    let sql = "SELECT * FROM tourbillon.peek($1, $2, $3, $4, $5, $6, $7)";
    let rows = session
        .read(
            sql,
            &[
                (&now, Type::INT8),
                (&node.incarnation, Type::INT8),
                (&owned, Type::TEXT),
                (&due, Type::INT8),
                (&id, Type::UUID),
                (&seen, Type::TEXT),
                (&held, Type::UUID_ARRAY),
            ],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (millis, snapshot): (i64, Option<&str>) = (row.get(0), row.get(4));
    let now = moment(millis);
    let was_set = deployment.time.learn(sent, now);
    let (is_same, has_late): (bool, bool) = (row.get(1), row.get(3));
    let next = row.get::<_, Option<i64>>(2).map(moment);
    let restarts = snapshot.is_some_and(|seen| node.with_mark(|mark| mark.notice(seen, millis)));
    if was_set || !is_same || has_late || restarts {
        deployment.alarm.wake();
    } else if let Some(next) = next {
        deployment.alarm.wake_for(next);
    }
    Ok(has_late || next.is_some_and(|next| next <= now + SOON))
}
