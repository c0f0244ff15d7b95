//! The background task of a node. The task gives signs of life, and adds up the rows of the table `tally`. The task
//! also makes *looks*: a look finds out whether the node must claim, for example because another process has created a
//! timer. A look leases nothing. A second task listens for notifications, if the settings say so.

use crate::deployment::ms;
use crate::layout::moment;
use crate::link::{Connect, Failure, Param, Session, listen};
use crate::node::{Node, VERSION};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tourbillon_durable::store::ServerTime;

/// The pause between two looks for work (checks whether the node must claim) while a timer is due within [`SOON`], or
/// while another transaction has locked a due timer.
const BUSY: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(1);
/// The shortest pause between two looks if notifications cause the looks. A look checks whether the node must claim.
const RUNG: Duration = Duration::from_millis(2);
/// The shortest time after which the task again adds up the rows of the table `tally` (changes of the numbers of
/// timers).
const SUM: Duration = Duration::from_secs(5);

/// Starts the background task of a node, which gives the signs of life (heartbeats) and looks for work. `pause` is the
/// time between two looks if nothing makes the task look earlier. The task ends soon after the store is dropped.
pub(crate) fn start(node: &Arc<Node>, pause: Duration) {
    let weak = Arc::downgrade(node);
    let task = async move {
        let (mut summed, mut rest, mut is_rung) = (Instant::now(), pause, false);
        loop {
            {
                let Some(node) = weak.upgrade() else { return Ok(()) };
                // Without another reference to the node, the store is dropped.
                if Arc::strong_count(&node) == 1 {
                    return Ok(());
                }
                is_rung |= timeout(rest, node.bell.notified()).await.is_ok();
            }
            let Some(node) = weak.upgrade() else { return Ok(()) };
            if Arc::strong_count(&node) == 1 {
                return Ok(());
            }
            rest = pause;
            if !node.is_member() {
                continue;
            }
            match look_and_sum(&node, &mut summed).await {
                // A notification has announced a timer. The claim under way may have begun before the commit of this
                // timer. So the task looks again soon.
                Ok(Next::AfterClaim) if is_rung => {
                    rest = RUNG;
                    continue;
                }
                Ok(Next::AfterClaim | Next::Soon) => rest = BUSY.min(pause),
                Ok(Next::Later) => {}
                // A claim begins with the same statements as a look. So the next claim of the runtime returns the
                // error.
                Err(_) => node.deployment.alarm.wake(),
            }
            if is_rung {
                // One look serves all notifications that arrive during this pause.
                sleep(RUNG).await;
                is_rung = false;
            }
        }
    };
    drop(node.deployment.pool.spawn::<()>(task));
}

/// The time at which the task next looks for work (checks whether the node must claim).
enum Next {
    /// The task looks for work again after the pause that was passed to [`start`].
    Later,
    /// The task looks for work again after [`BUSY`], because a timer is due soon, or because a due timer waits for a
    /// claim.
    Soon,
    /// The task looks for work again soon. It could not look this time, because a claim of this node was under way, and
    /// a look must not run beside a claim.
    AfterClaim,
}

/// Listens for notifications on a separate connection. Each notification makes the task of the node look for work at
/// once.
pub(crate) fn listen_for(node: &Arc<Node>, connect: Connect) {
    let weak = Arc::downgrade(node);
    let ring = move || weak.upgrade().inspect(|node| node.bell.notify_one()).is_some();
    let schema = node.deployment.pool.schema().clone();
    let task = async move {
        listen(connect, &schema, ring).await;
        Ok(())
    };
    drop(node.deployment.pool.spawn::<()>(task));
}

/// Looks for work once: calls [`look`]. Then adds up the rows of the table `tally` (changes of the numbers of timers)
/// if this is worthwhile and was not done for [`SUM`]. `summed` is the moment at which the rows were last added up. No
/// call of the runtime would return an error of the sums, so the error is stored for
/// [`upkeep_fault`](tourbillon_durable::store::TimerStore::upkeep_fault).
async fn look_and_sum(node: &Node, summed: &mut Instant) -> Result<Next, Failure> {
    let mut session = node.deployment.pool.session().await?.within(node.ttl);
    let Looked { next, has_sums } = look(node, &mut session).await?;
    if summed.elapsed() >= SUM && (node.has_claimed.swap(false, Ordering::Relaxed) || has_sums) {
        *summed = Instant::now();
        let folded = session.query("SELECT 1 FROM tourbillon.fold()", &[]).await;
        if folded.is_err() {
            // The sums are still to be made, also if this node claims nothing more.
            node.has_claimed.store(true, Ordering::Relaxed);
        }
        node.note_upkeep(folded.err().map(Failure::into_error));
    }
    Ok(next)
}

/// The result of the function [`look`], which checks whether the node must claim.
struct Looked {
    next: Next,
    /// Whether the table `tally` (changes of the numbers of timers) has many rows. Then the task adds them up to one
    /// row for each number.
    has_sums: bool,
}

/// Finds out whether this node must claim, and gives a sign of life (heartbeat) if one is due. While a claim is under
/// way, only gives the sign of life. The claim reads the due timers anyway. It also changes the low-water marks (the
/// due moments up to which claims have read the timers), and a look could only begin at the old marks.
async fn look(node: &Node, session: &mut Session) -> Result<Looked, Failure> {
    let is_sign_due = node.is_sign_due();
    let Ok(_no_claim) = node.claims.try_lock() else {
        if is_sign_due {
            node.give_sign(session).await?;
        }
        return Ok(Looked { next: Next::AfterClaim, has_sums: false });
    };
    let mut mark = node.mark();
    // If the last look has found a late timer, a claim is needed anyway. Without a snapshot the server answers at once
    // that a claim is needed, and reads no timers.
    mark.seen = mark.seen.filter(|_| !mark.has_late);
    let deployment = &node.deployment;
    let now = deployment.argument();
    let sent = ServerTime::moment();
    let (name, ttl) = (&*node.name, ms(node.ttl));
    let mut params: Vec<Param<'_>> = vec![(&now, Type::INT8), (&node.incarnation, Type::INT8)];
    params.extend(mark.params());
    params.push((&mark.withheld, Type::INT2_ARRAY));
    let rows = if is_sign_due {
        params.extend([(&name as _, Type::TEXT), (&VERSION as _, Type::TEXT), (&ttl as _, Type::INT8)]);
        params.push((&node.listens, Type::BOOL));
        let sql =
            "SELECT * FROM tourbillon.tick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
        let rows = session.query(sql, &params).await?;
        node.has_signed();
        rows
    } else {
        let sql = "SELECT p.*, false FROM tourbillon.peek($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) p";
        session.read(sql, &params).await?
    };
    let Some(row) = rows.first() else { return Ok(Looked { next: Next::Later, has_sums: false }) };
    let (millis, snapshot): (i64, Option<&str>) = (row.get(0), row.get(4));
    let now = moment(millis);
    let was_set = deployment.time.learn(sent, now);
    let (is_same, has_late, has_sums): (bool, bool, bool) = (row.get(1), row.get(3), row.get(6));
    let free = row.get::<_, Option<i64>>(5).map_or(0, i64::cast_unsigned);
    let next = row.get::<_, Option<i64>>(2).map(moment);
    let was_reset =
        snapshot.is_some_and(|seen| node.with_mark(|mark| mark.notice(seen, free, millis, has_late)));
    if was_set || !is_same || has_late || was_reset {
        deployment.alarm.wake();
    } else if let Some(next) = next {
        deployment.alarm.wake_for(next);
    }
    let is_busy = has_late || next.is_some_and(|next| next <= now + SOON);
    Ok(Looked { next: if is_busy { Next::Soon } else { Next::Later }, has_sums })
}
