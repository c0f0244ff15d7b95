//! Histories with a planted fault. The check must find the planted fault, and nothing else.

use super::record::{ANSWERS, CAUSES};
use super::*;
use std::fs;

const WALL: u64 = 1_000_000_000_000;
const SECOND: u64 = 1_000_000;

/// Builds a history for a test. Its moments are whole seconds.
#[derive(Default)]
struct Story {
    records: Vec<Record>,
    calls: u64,
    terms: Terms,
    end: End,
}

/// Converts a second of the test to a due moment, in milliseconds of UTC.
fn due(second: u64) -> u64 {
    (second * SECOND + WALL) / 1_000
}

fn timer(id: Id, second: u64) -> Place {
    Place { id, key: None, due: due(second), replaces: false, is_once: false, series: None }
}

fn keyed(id: Id, second: u64) -> Place {
    Place { key: Some("k".into()), replaces: true, ..timer(id, second) }
}

impl Story {
    fn new() -> Self {
        let (lease, ttl, response) = (6 * SECOND, 10 * SECOND, 2 * SECOND);
        Self {
            terms: Terms { wall: WALL, lease, ttl, response, workers: 2, ..Terms::default() },
            ..Self::default()
        }
    }

    fn call(mut self, second: u64, call: Call, answer: Option<Answer>) -> Self {
        self.calls += 1;
        self.records.push(Record::Invoked(second * SECOND, self.calls, call));
        let answer = answer.map(|answer| Record::Answered(second * SECOND + 500, self.calls, answer));
        self.records.extend(answer);
        self
    }

    /// Adds a call whose answer comes in a later second than the call.
    fn long_call(mut self, asked: u64, answered: u64, call: Call, answer: Answer) -> Self {
        self.calls += 1;
        self.records.push(Record::Invoked(asked * SECOND, self.calls, call));
        self.records.push(Record::Answered(answered * SECOND, self.calls, answer));
        self
    }

    fn place(self, second: u64, place: Place, answer: Answer) -> Self {
        self.call(second, Call::Place(place), Some(answer))
    }

    fn cancel(self, second: u64, id: Id, answer: Answer) -> Self {
        self.call(second, Call::Cancel(id), Some(answer))
    }

    fn move_to(self, second: u64, id: Id, to: u64, answer: Answer) -> Self {
        self.call(second, Call::Move(id, due(to)), Some(answer))
    }

    fn delivery(mut self, change: impl FnOnce(&mut Delivery), id: Id, second: u64) -> Self {
        let mut delivery = Delivery {
            arrived: second * SECOND + 2_000,
            begun: second * SECOND + 1_000,
            id,
            stored: id,
            attempt: 1,
            delivery: 1,
            due: 0,
            scheduled: due(second),
            node: "a".into(),
            series: None,
            is_done: true,
        };
        change(&mut delivery);
        self.records.push(Record::Delivered(delivery));
        self
    }

    fn delivered(self, id: Id, second: u64) -> Self {
        self.delivery(|_| {}, id, second)
    }

    fn fault(mut self, cause: Cause, node: Option<&str>, from: u64, until: u64) -> Self {
        let fault = Fault { cause, node: node.map(Into::into), from: from * SECOND, until: until * SECOND };
        self.records.push(Record::Fault(fault));
        self
    }

    fn lossy(mut self, from: u64, until: u64) -> Self {
        self.terms.lossy.push((from * SECOND, until * SECOND));
        self
    }

    fn stored(mut self, id: Id, stored: Stored) -> Self {
        self.end.stored.insert(id, stored);
        self.end.counted += 1;
        self
    }

    fn findings(&self) -> Findings {
        check(self.records.clone(), &self.terms, &self.end)
    }

    #[track_caller]
    fn breaks(&self, broken: &[Broken]) -> Findings {
        let findings = self.findings();
        assert_eq!(findings.broken, broken);
        findings
    }
}

#[test]
fn a_history_without_faults_is_clean() {
    let findings = Story::new()
        .place(1, timer(1, 5), Answer::Created)
        .place(1, timer(2, 6), Answer::Unknown)
        .place(2, timer(2, 6), Answer::Repeated)
        .place(2, timer(3, 7), Answer::Created)
        .cancel(3, 3, Answer::Cancelled)
        .place(3, keyed(4, 9), Answer::Created)
        .place(4, keyed(5, 9), Answer::Replaced(4, false))
        .place(4, Place { replaces: false, ..keyed(6, 9) }, Answer::KeyExists(5))
        .place(4, timer(7, 5), Answer::Failed)
        .place(4, timer(8, 5), Answer::Created)
        .delivered(1, 5)
        .delivered(2, 6)
        .delivery(|delivery| delivery.is_done = false, 8, 6)
        .delivery(|delivery| (delivery.attempt, delivery.due) = (2, due(7)), 8, 7)
        .delivered(5, 9)
        .breaks(&[]);
    assert_eq!((findings.calls, findings.acknowledged, findings.deliveries), (10, 6, 5));
    assert_eq!(findings.lateness.most, SECOND + 1_000, "of the timer that failed once");
}

#[test]
fn a_timer_that_is_nowhere_is_lost() {
    let story = Story::new().place(1, timer(1, 5), Answer::Created);
    story.breaks(&[Broken::Lost(1)]);
    // A first attempt that failed does not end the timer.
    let story = story.delivery(|delivery| delivery.is_done = false, 1, 5);
    story.breaks(&[Broken::Lost(1)]);
    let dead = story.stored(1, Stored::Dead);
    assert_eq!(dead.breaks(&[]).dead, 1);
    Story::new().place(1, timer(1, 5), Answer::Created).stored(1, Stored::Alive).breaks(&[Broken::Stuck(1)]);
    Story::new().place(1, timer(1, 5), Answer::Unknown).breaks(&[]);
}

#[test]
fn what_the_policy_permits_to_be_lost_is_counted() {
    let story = Story::new().place(10, timer(1, 20), Answer::Created);
    let findings = story.lossy(9, 11).breaks(&[]);
    assert_eq!(findings.lost_by_terms, 1);
    Story::new().place(8, timer(1, 20), Answer::Created).lossy(9, 11).breaks(&[Broken::Lost(1)]);
    // The call began within the span of losses, although its answer came after the span.
    let long = |asked| Story::new().long_call(asked, 13, Call::Place(timer(1, 20)), Answer::Created);
    assert_eq!(long(10).lossy(9, 11).breaks(&[]).lost_by_terms, 1);
    long(12).lossy(9, 11).breaks(&[Broken::Lost(1)]);
}

#[test]
fn a_lost_timer_is_not_excused_by_a_cancel_that_did_not_find_it() {
    let story = Story::new().place(1, timer(1, 5), Answer::Created);
    story.cancel(2, 1, Answer::NotFound).breaks(&[Broken::Lost(1)]);
    let story = Story::new().place(1, timer(1, 5), Answer::Created).cancel(2, 1, Answer::Unknown);
    story.cancel(3, 1, Answer::NotFound).breaks(&[]);
}

#[test]
fn a_delivery_before_its_due_moment_is_early() {
    let story = Story::new().place(1, timer(1, 5), Answer::Created).delivered(1, 4);
    story.breaks(&[Broken::Early(1, SECOND - 1_000)]);
    // A later attempt has a due moment of its own.
    let story = Story::new().place(1, timer(1, 2), Answer::Created);
    let story = story.delivery(|delivery| delivery.is_done = false, 1, 2);
    let again = |delivery: &mut Delivery| (delivery.attempt, delivery.due) = (2, due(5));
    story.delivery(again, 1, 3).breaks(&[Broken::Early(1, 2 * SECOND - 1_000)]);
}

#[test]
fn a_timer_that_was_moved_has_the_new_due_moment() {
    let story = || Story::new().place(1, timer(1, 5), Answer::Created);
    let early = |by: u64| [Broken::Early(1, by * SECOND - 1_000)];
    // The header of a callback does not name a due moment.
    let at = |story: Story, second| story.delivery(|delivery| delivery.due = 0, 1, second);
    at(story().move_to(2, 1, 9, Answer::Moved), 7).breaks(&early(2));
    at(story().move_to(2, 1, 9, Answer::Moved), 9).breaks(&[]);
    at(story().move_to(2, 1, 3, Answer::Moved), 3).breaks(&[]);
    at(story().move_to(2, 1, 3, Answer::Leased), 3).breaks(&early(2));
    at(story().move_to(2, 1, 3, Answer::RolledBack), 3).breaks(&early(2));
    // Without an answer, both due moments are possible.
    at(story().move_to(2, 1, 3, Answer::Unknown), 3).breaks(&[]);
    at(story().move_to(2, 1, 9, Answer::Unknown), 5).breaks(&[]);
    // The repeated call has certainly moved the timer. A delivery before that call's answer may have had the earlier
    // due moment.
    let again = || story().move_to(2, 1, 9, Answer::Unknown).move_to(6, 1, 9, Answer::Moved);
    at(again(), 5).breaks(&[]);
    at(again(), 7).breaks(&early(2));
    let long = story().long_call(2, 6, Call::Move(1, due(9)), Answer::Moved);
    at(long, 5).breaks(&[]);
    // The second of two moves counts.
    at(story().move_to(2, 1, 9, Answer::Moved).move_to(3, 1, 4, Answer::Moved), 4).breaks(&[]);
    at(story().move_to(2, 1, 3, Answer::Moved).move_to(3, 1, 9, Answer::Moved), 7).breaks(&early(2));
    // A move does not excuse the loss of a timer, and does not find a timer that was delivered.
    story().move_to(2, 1, 9, Answer::Moved).breaks(&[Broken::Lost(1)]);
    at(story(), 5).move_to(7, 1, 9, Answer::NotFound).breaks(&[]);
    at(story().move_to(2, 1, 9, Answer::NotFound), 5).breaks(&[Broken::Revived(1)]);
}

#[test]
fn a_transaction_that_was_rolled_back_has_no_effect() {
    Story::new().place(1, timer(1, 5), Answer::RolledBack).breaks(&[]);
    let story = Story::new().place(1, timer(1, 5), Answer::RolledBack);
    story.delivered(1, 5).breaks(&[Broken::Phantom(1)]);
    let story = || Story::new().place(1, timer(1, 5), Answer::Created).cancel(2, 1, Answer::RolledBack);
    story().delivered(1, 5).breaks(&[]);
    story().breaks(&[Broken::Lost(1)]);
}

#[test]
fn lateness_counts_from_the_end_of_a_long_transaction() {
    let story = Story::new().long_call(1, 6, Call::Place(timer(1, 5)), Answer::Created);
    let late = story.delivered(1, 6).breaks(&[]).lateness;
    assert_eq!(late.most, 1_000);
}

#[test]
fn one_creation_is_one_timer_of_the_store() {
    let story = Story::new().place(1, timer(1, 5), Answer::Created).delivered(1, 5);
    let story = story.delivery(|delivery| delivery.stored = 2, 1, 12);
    story.fault(Cause::Kill, Some("a"), 6, 6).breaks(&[Broken::Renamed(1)]);
}

#[test]
fn a_crash_of_the_server_forgets_claims_and_ends_of_the_last_second() {
    let story = |first, again, cause| {
        let story = Story::new().place(1, timer(1, first), Answer::Created);
        story.delivered(1, first).delivered(1, again).fault(cause, None, 6, 7)
    };
    let doubled = &[Broken::Doubled(1)];
    for first in [5, 6] {
        assert_eq!(story(first, 7, Cause::Crash).breaks(&[]).duplicates, [(Cause::Crash, 1)].into());
        story(first, 7, Cause::Server).breaks(doubled);
    }
    story(3, 7, Cause::Crash).breaks(doubled);
    story(20, 21, Cause::Crash).breaks(doubled);
}

#[test]
fn a_node_may_begin_deliveries_of_a_forgotten_claim_until_it_renews_its_leases() {
    let story = |first, again, cause| {
        let story = Story::new().place(1, timer(1, first), Answer::Created);
        story.delivered(1, first).delivered(1, again).fault(cause, None, 6, 6)
    };
    assert_eq!(story(7, 8, Cause::Crash).breaks(&[]).duplicates, [(Cause::Crash, 1)].into());
    story(7, 8, Cause::Server).breaks(&[Broken::Doubled(1)]);
    story(9, 10, Cause::Crash).breaks(&[Broken::Doubled(1)]);
}

#[test]
fn lateness_has_quantiles() {
    let mut story = Story::new();
    for number in 1..=1_000 {
        let late = |delivery: &mut Delivery| delivery.begun = 5 * SECOND + number * 1_000;
        let id = Id::from(number);
        story = story.place(1, timer(id, 5), Answer::Created).delivery(late, id, 5);
    }
    let found = story.breaks(&[]).lateness;
    assert_eq!(found, Lateness { p50: 500_000, p99: 990_000, p999: 999_000, most: SECOND });
    assert_eq!(Story::new().breaks(&[]).lateness, Lateness::default());
}

#[test]
fn a_duplicate_needs_a_cause() {
    let story = || Story::new().place(1, timer(1, 5), Answer::Created).delivered(1, 5).delivered(1, 9);
    story().breaks(&[Broken::Doubled(1)]);
    let findings = story().fault(Cause::Kill, Some("a"), 6, 6).breaks(&[]);
    assert_eq!(findings.duplicates, [(Cause::Kill, 1)].into());
    story().fault(Cause::Kill, Some("b"), 6, 6).breaks(&[Broken::Doubled(1)]);
    story().fault(Cause::Kill, Some("a"), 4, 4).breaks(&[Broken::Doubled(1)]);
    story().fault(Cause::Kill, Some("a"), 10, 10).breaks(&[Broken::Doubled(1)]);
    let findings = story().fault(Cause::Server, None, 4, 8).breaks(&[]);
    assert_eq!(findings.duplicates, [(Cause::Server, 1)].into());
    story().fault(Cause::Server, None, 10, 12).breaks(&[Broken::Doubled(1)]);
    story().fault(Cause::Pause, Some("b"), 4, 8).breaks(&[Broken::Doubled(1)]);
}

#[test]
fn a_fault_is_the_cause_of_a_duplicate_only_if_it_can_end_the_lease() {
    let twice = |first, again| {
        Story::new().place(1, timer(1, first), Answer::Created).delivered(1, first).delivered(1, again)
    };
    let doubled = &[Broken::Doubled(1)];
    // The end of a delivery is stored long before its node is killed.
    twice(5, 40).fault(Cause::Kill, Some("a"), 25, 25).breaks(doubled);
    // The receiver reads the request of a node that has been killed.
    let late = |delivery: &mut Delivery| (delivery.begun, delivery.arrived) = (5_300_000, 5_301_000);
    let story = Story::new().place(1, timer(1, 5), Answer::Created).delivery(late, 1, 5).delivered(1, 14);
    let findings = story.fault(Cause::Kill, Some("a"), 5, 5).breaks(&[]);
    assert_eq!(findings.duplicates, [(Cause::Kill, 1)].into());
    // The lease lasts for six seconds. A repetition after two seconds means that another node has stolen it.
    twice(5, 7).fault(Cause::Kill, Some("a"), 6, 6).breaks(doubled);
    // One stall of a second does not end a lease, and neither do two stalls far apart. Four seconds in a row do.
    twice(5, 12).fault(Cause::Pause, None, 6, 7).breaks(doubled);
    twice(5, 30).fault(Cause::Pause, Some("a"), 6, 8).fault(Cause::Pause, Some("a"), 18, 20).breaks(doubled);
    let stalls = twice(5, 14).fault(Cause::Pause, Some("a"), 5, 7).fault(Cause::Pause, None, 8, 10);
    assert_eq!(stalls.breaks(&[]).duplicates, [(Cause::Pause, 1)].into());
    // Two records of the same stall count once.
    twice(5, 14).fault(Cause::Pause, Some("a"), 5, 7).fault(Cause::Pause, None, 5, 7).breaks(doubled);
    // A fault of a server or a network excuses nothing if it comes long before or long after the delivery. A fault of
    // another node's network excuses nothing either.
    for cause in [Cause::Server, Cause::Failover, Cause::Network] {
        twice(5, 26).fault(cause, None, 20, 24).breaks(doubled);
        twice(40, 46).fault(cause, None, 20, 24).breaks(doubled);
        twice(5, 12).fault(cause, Some("b"), 5, 9).breaks(doubled);
        assert_eq!(twice(5, 12).fault(cause, None, 5, 9).breaks(&[]).duplicates, [(cause, 1)].into());
        assert_eq!(twice(5, 12).fault(cause, Some("a"), 5, 9).breaks(&[]).duplicates, [(cause, 1)].into());
    }
}

#[test]
fn what_a_server_lost_as_it_may_is_delivered_again() {
    let story = |first| Story::new().place(1, timer(1, first), Answer::Created).delivered(1, first);
    // The store acknowledged the end of the delivery within the span of losses. If the servers lost this end, the timer
    // is pending again at once.
    let lost = |first, again| story(first).delivered(1, again).lossy(6, 7).fault(Cause::Failover, None, 6, 9);
    assert_eq!(lost(6, 8).breaks(&[]).duplicates, [(Cause::Failover, 1)].into());
    lost(20, 21).breaks(&[Broken::Doubled(1)]);
    let once = |first, again| {
        let once = Place { is_once: true, ..timer(1, first) };
        let story = Story::new().place(1, once, Answer::Created).delivered(1, first).delivered(1, again);
        story.lossy(6, 7).fault(Cause::Failover, None, 6, 9)
    };
    once(6, 9).breaks(&[]);
    // A call that was answered before the span is not lost.
    once(5, 9).breaks(&[Broken::Twice(1)]);
}

#[test]
fn an_end_that_the_replica_did_not_have_is_lost_only_if_the_terms_say_so() {
    let story = |first, again, cause, loses_ends| {
        let story = Story::new().place(1, timer(1, first), Answer::Created);
        let mut story = story.delivered(1, first).delivered(1, again).fault(cause, None, 6, 7);
        story.terms.loses_ends = loses_ends;
        story
    };
    let doubled = &[Broken::Doubled(1)];
    for first in [5, 6] {
        let lost = story(first, 7, Cause::Failover, true).breaks(&[]);
        assert_eq!(lost.duplicates, [(Cause::Failover, 1)].into());
        story(first, 7, Cause::Failover, false).breaks(doubled);
        story(first, 7, Cause::Server, true).breaks(doubled);
    }
    // These deliveries are long before the failover, after it, or both before it.
    story(3, 7, Cause::Failover, true).breaks(doubled);
    story(20, 21, Cause::Failover, true).breaks(doubled);
    story(4, 5, Cause::Failover, true).breaks(doubled);
}

#[test]
fn a_node_that_stood_still_begins_one_delivery_of_another_at_most() {
    let by = |node: &'static str| move |delivery: &mut Delivery| delivery.node = node.into();
    let story = || {
        let story =
            Story::new().place(1, timer(1, 5), Answer::Created).place(1, timer(2, 5), Answer::Created);
        let story = story.delivery(by("b"), 1, 9).delivery(by("b"), 2, 9);
        story.fault(Cause::Pause, Some("a"), 3, 15)
    };
    // The node was stopped between its last check of the lease and the handler's first line.
    assert_eq!(story().delivered(1, 15).breaks(&[]).duplicates, [(Cause::Pause, 1)].into());
    story().delivered(1, 15).delivered(2, 15).breaks(&[Broken::Doubled(2)]);
    story().delivered(1, 17).breaks(&[Broken::Doubled(1)]);
}

#[test]
fn a_delivery_after_a_success_is_a_duplicate_whatever_its_attempt() {
    let story = Story::new().place(1, timer(1, 5), Answer::Created).delivered(1, 5);
    story.delivery(|delivery| delivery.attempt = 2, 1, 6).breaks(&[Broken::Doubled(1)]);
}

#[test]
fn a_timer_that_is_delivered_at_most_once_has_no_excuse_for_twice() {
    let once = Place { is_once: true, ..timer(1, 5) };
    let story = || Story::new().place(1, once.clone(), Answer::Created).fault(Cause::Kill, Some("a"), 6, 6);
    story().delivered(1, 5).delivered(1, 9).breaks(&[Broken::Twice(1)]);
    assert_eq!(story().breaks(&[]).never, 1);
    Story::new().place(1, once.clone(), Answer::Created).breaks(&[Broken::Lost(1)]);
}

#[test]
fn a_timer_that_is_delivered_at_most_once_is_lost_only_by_a_fault_that_meets_its_delivery() {
    let once = |id| Place { is_once: true, ..timer(id, 20) };
    let story = || Story::new().place(1, once(1), Answer::Created);
    let lost = &[Broken::Lost(1)];
    for cause in [Cause::Kill, Cause::Pause, Cause::Server, Cause::Failover, Cause::Network] {
        let node = matches!(cause, Cause::Kill | Cause::Pause).then_some("a");
        assert_eq!(story().fault(cause, node, 21, 25).breaks(&[]).never, 1, "{cause}");
        // A fault long before the timer is due, or long after its delivery, excuses nothing.
        story().fault(cause, node, 5, 6).breaks(lost);
        story().fault(cause, node, 40, 44).breaks(lost);
    }
    // The pause lasts for a second, which is shorter than a lease. So the node goes on with its delivery.
    story().fault(Cause::Pause, Some("a"), 20, 21).breaks(lost);
    // A node that was dead before the timer was due cannot have claimed the timer.
    story().fault(Cause::Kill, Some("a"), 19, 19).breaks(lost);
    // The timer waits until a second node takes the shard of the first dead node. Then the second node dies.
    let next = story().fault(Cause::Kill, Some("a"), 19, 19).fault(Cause::Kill, Some("b"), 28, 28);
    assert_eq!(next.breaks(&[]).never, 1);
    // A node with two workers has claimed at most two timers.
    let three = story().place(1, once(2), Answer::Created).place(1, once(3), Answer::Created);
    assert_eq!(three.fault(Cause::Kill, Some("a"), 20, 20).breaks(&[Broken::Lost(3)]).never, 2);
}

#[test]
fn nothing_is_delivered_after_a_cancel() {
    let story = || Story::new().place(1, timer(1, 5), Answer::Created);
    story().cancel(4, 1, Answer::Cancelled).delivered(1, 5).breaks(&[Broken::Revived(1)]);
    story().cancel(4, 1, Answer::Cancelled).stored(1, Stored::Dead).breaks(&[Broken::Kept(1)]);
    let findings = story().cancel(4, 1, Answer::Cancelled).delivered(1, 5).lossy(3, 5).breaks(&[]);
    assert_eq!(findings.revived_by_terms, 1);
    story().delivered(1, 5).cancel(6, 1, Answer::NotFound).breaks(&[]);
    // A delivery that has begun is the last delivery.
    story().cancel(4, 1, Answer::InFlight).delivered(1, 5).breaks(&[]);
    let twice = story().cancel(4, 1, Answer::InFlight).delivered(1, 5).delivered(1, 12);
    twice.fault(Cause::Network, None, 5, 9).breaks(&[Broken::Revived(1)]);
    story().cancel(4, 1, Answer::Unknown).delivered(1, 5).breaks(&[]);
    story().cancel(4, 1, Answer::NotFound).delivered(1, 5).breaks(&[Broken::Revived(1)]);
    // An at-most-once timer leaves the store before its handler is called, and the store's answer takes some time.
    let once = || Story::new().place(1, Place { is_once: true, ..timer(1, 5) }, Answer::Created);
    let absent = || once().cancel(5, 1, Answer::NotFound);
    absent().delivered(1, 8).breaks(&[]);
    absent().delivered(1, 7).delivered(1, 8).breaks(&[Broken::Twice(1)]);
    absent().delivered(1, 10).breaks(&[Broken::Revived(1)]);
    once().cancel(5, 1, Answer::Cancelled).delivered(1, 6).breaks(&[Broken::Revived(1)]);
    // A cancel that finds the timer leased makes the removal fail, so no delivery begins.
    let in_flight = || once().cancel(5, 1, Answer::InFlight);
    in_flight().breaks(&[]);
    in_flight().delivered(1, 6).breaks(&[Broken::Revived(1)]);
    in_flight().delivered(1, 20).breaks(&[Broken::Revived(1)]);
    assert_eq!(in_flight().delivered(1, 6).lossy(4, 5).breaks(&[]).revived_by_terms, 1);
    // A pause of the node delays the call, and a fault of the servers or of another node does not.
    absent().fault(Cause::Pause, Some("a"), 6, 20).delivered(1, 21).breaks(&[]);
    absent().fault(Cause::Pause, Some("a"), 6, 20).delivered(1, 23).breaks(&[Broken::Revived(1)]);
    absent().fault(Cause::Pause, Some("a"), 1, 4).delivered(1, 10).breaks(&[Broken::Revived(1)]);
    absent().fault(Cause::Pause, Some("b"), 6, 20).delivered(1, 21).breaks(&[Broken::Revived(1)]);
    absent().fault(Cause::Crash, None, 6, 20).delivered(1, 21).breaks(&[Broken::Revived(1)]);
}

#[test]
fn one_generation_of_a_key_is_delivered_after_a_replace() {
    let story = || Story::new().place(1, keyed(1, 5), Answer::Created);
    let replaced = || story().place(2, keyed(2, 6), Answer::Replaced(1, false)).delivered(2, 6);
    replaced().breaks(&[]);
    replaced().delivered(1, 5).breaks(&[Broken::Revived(1)]);
    let late = story().place(2, keyed(2, 6), Answer::Replaced(1, true)).delivered(1, 5).delivered(2, 6);
    late.breaks(&[]);
    // The first answer was lost, but the call has displaced the old timer.
    let unknown = || story().place(2, keyed(2, 6), Answer::Unknown).place(3, keyed(2, 6), Answer::Repeated);
    unknown().delivered(2, 6).breaks(&[]);
    let both = unknown().delivered(2, 6).delivered(1, 5).delivered(1, 6).fault(Cause::Kill, Some("a"), 5, 5);
    // Deliveries count in the order in which they began. The old timer has one delivery too many.
    both.breaks(&[Broken::Doubled(1), Broken::Revived(1)]);
}

#[test]
fn a_repeated_creation_makes_one_timer() {
    let story = || Story::new().place(1, timer(1, 5), Answer::Created).delivered(1, 5);
    story().place(6, timer(1, 5), Answer::Created).breaks(&[Broken::CreatedTwice(1)]);
    story().place(6, timer(1, 5), Answer::Created).lossy(0, 2).breaks(&[]);
    story().place(6, timer(1, 5), Answer::Repeated).breaks(&[]);
}

#[test]
fn a_call_without_an_effect_has_none() {
    Story::new().place(1, timer(1, 5), Answer::Failed).delivered(1, 5).breaks(&[Broken::Phantom(1)]);
    let refused = Story::new().place(1, keyed(1, 5), Answer::Created).delivered(1, 5);
    let refused = refused.place(1, Place { replaces: false, ..keyed(2, 6) }, Answer::KeyExists(1));
    refused.delivered(2, 6).breaks(&[Broken::Phantom(2)]);
    Story::new().delivered(9, 5).breaks(&[Broken::Phantom(9)]);
    Story::new().call(1, Call::Place(timer(1, 5)), None).delivered(1, 5).breaks(&[]);
}

#[test]
fn a_series_has_each_instant_once() {
    let series = Place { series: Some((2_000, due(9))), ..timer(1, 5) };
    let in_series = |delivery: &mut Delivery| delivery.series = Some(1);
    let story = || Story::new().place(1, series.clone(), Answer::Created);
    let all = || story().delivery(in_series, 1, 5).delivery(in_series, 21, 7).delivery(in_series, 22, 9);
    all().breaks(&[]);
    story().delivery(in_series, 1, 5).delivery(in_series, 22, 9).breaks(&[Broken::InstantMissing(1, due(7))]);
    all().delivery(in_series, 23, 9).breaks(&[Broken::InstantTwice(1, due(9))]);
    let missing = [Broken::Lost(1), Broken::InstantMissing(1, due(5))];
    story().delivery(in_series, 21, 7).delivery(in_series, 22, 9).breaks(&missing);
    // Only a loss of the series' creation excuses a missing instant of the series.
    let left_out = || story().delivery(in_series, 1, 5).delivery(in_series, 22, 9);
    left_out().lossy(0, 2).breaks(&[]);
    left_out().lossy(3, 9).breaks(&[Broken::InstantMissing(1, due(7))]);
}

#[test]
fn the_structure_and_the_counts_are_looked_at() {
    let mut story = Story::new();
    story.end.faults.push("a lease without a timer".to_owned());
    story.breaks(&[Broken::Structure("a lease without a timer".to_owned())]);
    let mut story = Story::new().place(1, timer(1, 5), Answer::Created).stored(1, Stored::Dead);
    story.end.counted = 3;
    story.breaks(&[Broken::Counts(3, 1)]);
    Story::new().stored(7, Stored::Dead).breaks(&[Broken::Stuck(7)]);
}

#[test]
fn records_are_read_as_they_were_written() {
    let series = Place { series: Some((2_000, 9_000)), is_once: true, ..keyed(u128::MAX, 5) };
    let in_series = |delivery: &mut Delivery| delivery.series = Some(0xabc);
    let mut story =
        Story::new().place(1, series, Answer::Created).place(2, timer(2, 6), Answer::KeyExists(7));
    for (answer, _) in ANSWERS {
        story = story.cancel(3, 2, answer).move_to(3, 2, 9, answer);
    }
    for (cause, _) in CAUSES {
        story = story.fault(cause, Some("b"), 1, 2).fault(cause, None, 1, 2);
    }
    let story =
        story.place(4, keyed(3, 5), Answer::Replaced(1, true)).delivered(1, 5).delivery(in_series, 2, 6);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history");
    let mut text: String = story.records.iter().map(|record| format!("{record}\n")).collect();
    // A writer that is killed leaves half a line.
    text.push_str("delivery 12 1");
    fs::write(&file, text).expect("a file");
    assert_eq!(read(&file).expect("records"), story.records);
    fs::write(&file, "delivery 12 1\n").expect("a file");
    assert!(read(&file).is_err(), "a whole line that is no record is an error");
}
