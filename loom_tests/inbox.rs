//! Lanes: pushing, draining, reuse of blocks and of lanes. A block holds two postings here.
//!
//! Each row was tried: the ordering named was made `Relaxed`, or the fence or tag left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | L1: `push` | `push_races_with_drain` and three more |
//! | L1: `drain` | the same four |
//! | L2: `recycle` | `a_drained_block_is_reused` |
//! | L2: `spare_block` | `a_drained_block_is_reused` |
//! | L3: `retire` | `a_lane_is_taken_over`, which aborts |
//! | L3: `take_over` | `a_lane_is_taken_over`, which aborts |
//! | L4: `register` | `two_producers_one_drain` |
//! | L4: `lanes` | `two_producers_one_drain` |

use super::model;
use crate::inbox::Inbox;
use crate::slab::{Magazines, Slab};
use crate::state::Cancel;
use crate::sync::{StdArc, thread};
use crate::tick::Timestamp;
use crate::ticket::Posting;

fn posting(index: u32) -> Posting {
    Posting { deadline: Timestamp::ZERO, index, stamp: 0 }
}

/// Drains until `count` postings were seen.
fn drain_all(inbox: &Inbox, count: usize) -> Vec<u32> {
    let mut seen = drain(inbox);
    while seen.len() < count {
        thread::yield_now();
        seen.extend(drain(inbox));
    }
    seen
}

/// Drains every lane; the calling thread is the reader.
fn drain(inbox: &Inbox) -> Vec<u32> {
    let mut seen = Vec::new();
    for lane in inbox.lanes() {
        // SAFETY: each model drains from one thread at a time.
        unsafe { lane.drain(|posting| seen.push(posting.index)) };
    }
    seen
}

/// Legal endings: the drain sees a prefix of what was pushed, and the next one the rest.
#[test]
fn push_races_with_drain() {
    model("push_races_with_drain", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer = thread::spawn(move || {
            for index in 0..3 {
                let _ = writer.push(posting(index));
            }
        });
        assert_eq!(drain_all(&inbox, 3), [0, 1, 2]);
        producer.join().unwrap();
    });
}

/// A batch that spans blocks is published as one.
#[test]
fn a_batch_is_seen_whole() {
    model("a_batch_is_seen_whole", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer = thread::spawn(move || {
            let _ = writer.push_all(&[posting(0), posting(1), posting(2)]);
        });
        let seen = drain(&inbox);
        assert!(seen.is_empty() || seen == [0, 1, 2], "{seen:?}");
        producer.join().unwrap();
    });
}

/// A block that was drained comes back to the writer and carries new postings.
#[test]
fn a_drained_block_is_reused() {
    model("a_drained_block_is_reused", || {
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        for index in 0..3 {
            let _ = writer.push(posting(index));
        }
        let producer = thread::spawn(move || {
            for index in 3..5 {
                let _ = writer.push(posting(index));
            }
        });
        assert_eq!(drain_all(&inbox, 5), [0, 1, 2, 3, 4]);
        producer.join().unwrap();
    });
}

/// Two threads register and push while the shard drains: nothing is lost, nothing comes twice.
#[test]
fn two_producers_one_drain() {
    model("two_producers_one_drain", || {
        let inbox = StdArc::new(Inbox::new(64));
        let producers = [0, 1].map(|index| {
            let inbox = StdArc::clone(&inbox);
            thread::spawn(move || {
                let _ = inbox.register().push(posting(index));
            })
        });
        let mut seen = drain(&inbox);
        for producer in producers {
            producer.join().unwrap();
        }
        seen.extend(drain(&inbox));
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
    });
}

/// A thread that ends leaves its lane, undrained, to the next one.
#[test]
fn a_lane_is_taken_over() {
    model("a_lane_is_taken_over", || {
        let inbox = StdArc::new(Inbox::new(64));
        let first = StdArc::clone(&inbox);
        let mut writer = first.register();
        let leaving = thread::spawn(move || {
            let _ = writer.push(posting(0));
        });
        let _ = inbox.register().push(posting(1));
        leaving.join().unwrap();
        let mut seen = drain(&inbox);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
    });
}

/// A timer is cancelled while its posting is drained. Legal endings: the posting is dropped there, or is kept and goes
/// stale; the cancel wins either way, and a timer that is not cancelled is always kept. (tokio #8252)
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
                // SAFETY: the magazine gave the vacant slot.
                unsafe { producer_slab.write(index, 7) };
                let control = producer_slab.slots().control(index);
                let (id, stamp) = control.arm(index, Timestamp::ZERO);
                let _ = writer.push(Posting { deadline: Timestamp::ZERO, index, stamp });
                id
            };
            let cancelled = arm();
            let kept = arm();
            let control = producer_slab.slots().control(cancelled.index());
            assert_eq!(control.cancel(cancelled), Cancel::Won);
            kept
        });
        let mut live = Vec::new();
        for round in 0..2 {
            for lane in inbox.lanes() {
                // SAFETY: this thread is the reader.
                unsafe {
                    lane.drain(|posting| {
                        if slab.slots().control(posting.index).is_live(posting.stamp) {
                            live.push(posting);
                        }
                    });
                }
            }
            if round == 0 {
                thread::yield_now();
            }
        }
        let kept = producer.join().unwrap();
        for lane in inbox.lanes() {
            // SAFETY: as above.
            unsafe { lane.drain(|posting| live.push(posting)) };
        }
        live.retain(|posting| slab.slots().control(posting.index).is_live(posting.stamp));
        assert_eq!(live.iter().map(|posting| posting.index).collect::<Vec<_>>(), [kept.index()]);
    });
}

/// What a producer wrote into the payload reaches the worker that claims the timer, through the lane and the shard.
#[test]
fn worker_handover_publishes_the_payload() {
    use crate::state::Claim;
    model("worker_handover_publishes_the_payload", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let inbox = StdArc::new(Inbox::new(64));
        let mut writer = inbox.register();
        let producer_slab = StdArc::clone(&slab);
        let producer = thread::spawn(move || {
            let index = Magazines::new().take(producer_slab.slots()).unwrap();
            // SAFETY: the magazine gave the vacant slot.
            unsafe { producer_slab.write(index, 7) };
            let (_, stamp) = producer_slab.slots().control(index).arm(index, Timestamp::ZERO);
            let _ = writer.push(Posting { deadline: Timestamp::ZERO, index, stamp });
        });
        let mut due = Vec::new();
        while due.is_empty() {
            for lane in inbox.lanes() {
                // SAFETY: this thread is the reader.
                unsafe { lane.drain(|posting| due.push(posting)) };
            }
            thread::yield_now();
        }
        let worker_slab = StdArc::clone(&slab);
        let worker = thread::spawn(move || {
            for Posting { index, stamp, .. } in due {
                let claim = worker_slab.slots().control(index).claim(stamp, Timestamp::ZERO);
                assert!(matches!(claim, Claim::Won { .. }));
                // SAFETY: the claim won.
                assert_eq!(unsafe { worker_slab.take(index) }, 7);
            }
        });
        worker.join().unwrap();
        producer.join().unwrap();
    });
}
