//! Lanes, each the queue of a thread's insertions for a shard: pushing, draining, reuse of blocks and of lanes. A block
//! of a lane holds two insertions here.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence or tag was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | L1: `push` | `push_races_with_drain` and twelve more, here and in `parker` and `shard` |
//! | L1: `drain` | the same |
//! | L2: `recycle` | `a_drained_block_is_reused` |
//! | L2: `spare_block` | `a_drained_block_is_reused` |
//! | L3: `take_over` | none: the lock orders it, and loom has no load that waits for a later store |
//! | L4, L5: `chain` | `a_new_lane_is_counted`, `shard::a_first_push_races_with_sleep`, `parker::push_races_with_park` |
//! | L4: `lanes` | `a_new_lane_is_counted` |
//! | L5: `take_arrivals` | `shard::a_first_push_races_with_sleep`, `parker::push_races_with_park` |
//! | L6: `retire` | `a_lane_leaves_the_walk`, `a_lane_is_taken_over_while_it_leaves`, and five more |
//! | L6: `leave_walk`, Acquire | the same seven, `shard::a_first_push_races_with_sleep` |
//! | L6: `leave_walk`, Release | none: as `take_over` |
//! | X3: a lane leaves although it was taken over | `a_lane_is_taken_over_while_it_leaves` |
//! | X3: a lane leaves after it was drained | the seven of `retire`, `shard::a_first_push_races_with_sleep` |
//! | X3: a lane that is taken over does not arrive | all but `a_lane_is_taken_over` and those that do not drain |

use super::model;
use crate::base::sync::{StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::lockfree::inbox::{Inbox, InboxReader, Lane};
use crate::lockfree::slab::{Magazines, Slab};
use crate::lockfree::state::Cancel;

fn insertion(index: u32) -> Insertion {
    Insertion { deadline: Timestamp::ZERO, index, stamp: 0 }
}

/// Drains all lanes (queues to the shard) until `count` insertions (tickets) were seen. Returns the indices of these
/// insertions.
fn drain_all(reader: &mut InboxReader, count: usize) -> Vec<u32> {
    let mut seen = drain(reader);
    while seen.len() < count {
        thread::yield_now();
        seen.extend(drain(reader));
    }
    seen
}

/// Drains every lane once. Returns the indices of the insertions (tickets).
fn drain(reader: &mut InboxReader) -> Vec<u32> {
    let mut seen = Vec::new();
    reader.walk(|lane| lane.drain(|insertion| seen.push(insertion.index)));
    seen
}

/// A push of insertions (tickets) races with a drain. Legal ending: the drain sees the first pushed insertions, or
/// none, and the next drain sees all other insertions.
#[test]
fn push_races_with_drain() {
    model("push_races_with_drain", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer = thread::spawn(move || {
            for index in 0..3 {
                let _ = writer.push(insertion(index));
            }
        });
        assert_eq!(drain_all(&mut inbox.reader(), 3), [0, 1, 2], "a posting was lost, doubled or overtaken");
        producer.join().unwrap();
    });
}

/// A batch of insertions (tickets) that spans several blocks is published as a whole.
#[test]
fn a_batch_is_seen_whole() {
    model("a_batch_is_seen_whole", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer = thread::spawn(move || {
            let _ = writer.push_all(&[insertion(0), insertion(1), insertion(2)]);
        });
        let seen = drain(&mut inbox.reader());
        assert!(seen.is_empty() || seen == [0, 1, 2], "a part of the batch was seen: {seen:?}");
        producer.join().unwrap();
    });
}

/// A block of a lane that was drained comes back to the writer, and holds new insertions.
#[test]
fn a_drained_block_is_reused() {
    model("a_drained_block_is_reused", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        for index in 0..3 {
            let _ = writer.push(insertion(index));
        }
        let producer = thread::spawn(move || {
            for index in 3..5 {
                let _ = writer.push(insertion(index));
            }
        });
        assert_eq!(
            drain_all(&mut inbox.reader(), 5),
            [0, 1, 2, 3, 4],
            "a posting was lost, doubled or overtaken where a block was reused"
        );
        producer.join().unwrap();
    });
}

/// Two threads register lanes and push while the shard drains. Each insertion (ticket) is drained exactly once.
#[test]
fn two_producers_one_drain() {
    model("two_producers_one_drain", || {
        let inbox = StdArc::new(Inbox::new(64));
        let producers = [0, 1].map(|index| {
            let inbox = StdArc::clone(&inbox);
            thread::spawn(move || {
                let _ = inbox.register().push(insertion(index));
            })
        });
        let mut reader = inbox.reader();
        let mut seen = drain(&mut reader);
        for producer in producers {
            producer.join().unwrap();
        }
        seen.extend(drain(&mut reader));
        seen.sort_unstable();
        assert_eq!(seen, [0, 1], "a thread's posting was lost or doubled");
    });
}

/// A thread ends and leaves its lane, which was not drained. The next thread takes the lane over.
#[test]
fn a_lane_is_taken_over() {
    model("a_lane_is_taken_over", || {
        let inbox = StdArc::new(Inbox::new(64));
        let first = StdArc::clone(&inbox);
        let mut writer = first.register();
        let leaving = thread::spawn(move || {
            let _ = writer.push(insertion(0));
        });
        let _ = inbox.register().push(insertion(1));
        leaving.join().unwrap();
        let mut seen = drain(&mut inbox.reader());
        seen.sort_unstable();
        assert_eq!(
            seen,
            [0, 1],
            "the posting of the thread that ended, or of its successor, was lost or doubled"
        );
    });
}

/// A thread ends while the reader walks over the lanes. The thread's insertion (ticket) is drained before its lane
/// leaves the walk, or when the lane leaves.
#[test]
fn a_lane_leaves_the_walk() {
    model("a_lane_leaves_the_walk", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut reader = inbox.reader();
        let mut writer = inbox.register();
        let leaving = thread::spawn(move || {
            let _ = writer.push(insertion(0));
        });
        let mut seen = Vec::new();
        loop {
            let mut lanes = 0;
            reader.walk(|lane| {
                lanes += 1;
                lane.drain(|insertion| seen.push(insertion.index));
            });
            if lanes == 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(seen, [0], "the lane left the walk with its posting, or the posting came twice");
        leaving.join().unwrap();
    });
}

/// A thread takes over a lane that is leaving the reader's walk. A later walk finds the insertions (tickets) of the new
/// writer. Legal endings: (a) the lane stays in the walk; (b) the lane leaves, and enters again.
#[test]
fn a_lane_is_taken_over_while_it_leaves() {
    model("a_lane_is_taken_over_while_it_leaves", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut reader = inbox.reader();
        let _ = inbox.register().push(insertion(0));
        let other = StdArc::clone(&inbox);
        let producer = thread::spawn(move || {
            let mut writer = other.register();
            let _ = writer.push(insertion(1));
            let _ = writer.push(insertion(2));
        });
        let mut seen = drain(&mut reader);
        seen.extend(drain(&mut reader));
        producer.join().unwrap();
        seen.extend(drain(&mut reader));
        assert_eq!(seen, [0, 1, 2], "a posting of the lane's new writer was lost, doubled or overtaken");
        assert_eq!(inbox.lanes().count(), 1, "the lane was not taken over");
        assert_eq!(
            inbox.lanes().map(Lane::scheduled).sum::<u64>(),
            3,
            "the count lost what one of the lane's writers scheduled"
        );
    });
}

/// A thread that counts the lanes finds a new lane complete.
#[test]
fn a_new_lane_is_counted() {
    model("a_new_lane_is_counted", || {
        let inbox = StdArc::new(Inbox::new(64));
        let other = StdArc::clone(&inbox);
        let producer = thread::spawn(move || other.register().push(insertion(0)));
        let counted = || inbox.lanes().map(Lane::scheduled).sum::<u64>();
        while counted() == 0 {
            thread::yield_now();
        }
        assert_eq!(counted(), 1, "a posting of a new lane is counted twice, or not any more");
        let _ = producer.join().unwrap();
    });
}

/// A timer is cancelled while its insertion, the ticket for the wheel, is drained. Legal endings: (a) the drain drops
/// the insertion; (b) the drain keeps the insertion, which becomes stale. In both endings the cancel wins. A timer that
/// is not cancelled is always kept. (tokio #8252)
#[test]
fn cancel_races_with_drain() {
    model("cancel_races_with_drain", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer_slab = StdArc::clone(&slab);
        let producer = thread::spawn(move || {
            let mut magazines = Magazines::new();
            let mut arm = || {
                let index = magazines.take(producer_slab.slots()).unwrap();
                // SAFETY: the slot is vacant, and the magazine gave it to this thread.
                unsafe { producer_slab.write(index, 7) };
                let control = producer_slab.slots().control(index);
                let (id, stamp) = control.arm(index, Timestamp::ZERO);
                let _ = writer.push(Insertion { deadline: Timestamp::ZERO, index, stamp });
                id
            };
            let cancelled = arm();
            let kept = arm();
            let control = producer_slab.slots().control(cancelled.index());
            assert_eq!(
                control.cancel(cancelled),
                Cancel::Won,
                "a timer that has not fired could not be cancelled"
            );
            kept
        });
        let mut live = Vec::new();
        let mut reader = inbox.reader();
        for round in 0..2 {
            reader.walk(|lane| {
                lane.drain(|insertion| {
                    if slab.slots().control(insertion.index).is_live(insertion.stamp) {
                        live.push(insertion);
                    }
                });
            });
            if round == 0 {
                thread::yield_now();
            }
        }
        let kept = producer.join().unwrap();
        reader.walk(|lane| lane.drain(|insertion| live.push(insertion)));
        live.retain(|insertion| slab.slots().control(insertion.index).is_live(insertion.stamp));
        assert_eq!(
            live.iter().map(|insertion| insertion.index).collect::<Vec<_>>(),
            [kept.index()],
            "the drain dropped a live insertion, or kept a cancelled one"
        );
    });
}

/// The worker that claims a timer sees the payload that the producer wrote. Only the lane and the shard publish the
/// write.
#[test]
fn worker_handover_publishes_the_payload() {
    use crate::lockfree::state::Claim;
    model("worker_handover_publishes_the_payload", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer_slab = StdArc::clone(&slab);
        let producer = thread::spawn(move || {
            let index = Magazines::new().take(producer_slab.slots()).unwrap();
            // SAFETY: the slot is vacant, and the magazine gave it to this thread.
            unsafe { producer_slab.write(index, 7) };
            let (_, stamp) = producer_slab.slots().control(index).arm(index, Timestamp::ZERO);
            let _ = writer.push(Insertion { deadline: Timestamp::ZERO, index, stamp });
        });
        let mut due = Vec::new();
        let mut reader = inbox.reader();
        while due.is_empty() {
            reader.walk(|lane| lane.drain(|insertion| due.push(insertion)));
            thread::yield_now();
        }
        let worker_slab = StdArc::clone(&slab);
        let worker = thread::spawn(move || {
            for Insertion { index, stamp, .. } in due {
                let claim = worker_slab.slots().control(index).claim(stamp, Timestamp::ZERO);
                assert!(matches!(claim, Claim::Won { .. }), "the worker could not claim a timer that is due");
                // SAFETY: the claim succeeded.
                assert_eq!(
                    unsafe { worker_slab.take(index) },
                    7,
                    "the worker saw the payload before it was written"
                );
            }
        });
        worker.join().unwrap();
        producer.join().unwrap();
    });
}
