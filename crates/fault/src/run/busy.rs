//! Finds signs of a busy machine: processes that got no processor time, and servers that answered late.

use crate::history::{Cause, Fault, Moment, Record};
use std::collections::HashMap;
use std::time::Duration;

/// Counts the stalls: spans in which a process got no processor time, although the test run had not stopped the
/// process. `noticed` are the nodes' reports. `done` are the faults that the test run caused.
pub(super) fn stalls(noticed: &[Record], done: &[Fault]) -> usize {
    let by_nodes = noticed.iter().filter_map(|record| match record {
        Record::Fault(fault) => Some(fault),
        _ => None,
    });
    let was_done = |fault: &Fault| {
        let meets = |other: &Fault| other.from <= fault.until && fault.from <= other.until;
        done.iter().any(|other| other.cause == Cause::Pause && other.node == fault.node && meets(other))
    };
    let of_runner = done.iter().filter(|fault| fault.cause == Cause::Pause && fault.node.is_none());
    by_nodes.filter(|fault| !was_done(fault)).count() + of_runner.count()
}

/// Returns the spans in which a call waited longer than `response` for its answer. During such a span, either a fault
/// hit the servers, or the servers were slow, for example because of a slow disk.
pub(super) fn waits(records: &[Record], response: Duration) -> Vec<Fault> {
    let mut asked: HashMap<u64, Moment> = HashMap::new();
    let mut waits = Vec::new();
    for record in records {
        match record {
            Record::Invoked(at, number, _) => drop(asked.insert(*number, *at)),
            Record::Answered(until, number, _) => {
                let from = asked.remove(number).unwrap_or(*until);
                // The calls of a batch are answered together, and count once.
                let is_new = waits.last().is_none_or(|wait: &Fault| wait.until != *until);
                if is_new && u128::from(until - from) > response.as_micros() {
                    waits.push(Fault { cause: Cause::Server, node: None, from, until: *until });
                }
            }
            _ => {}
        }
    }
    waits
}

/// Counts the waits for answers that no fault of the run explains. A fault explains a wait if the two overlap.
pub(super) fn unexplained(waits: &[Fault], done: &[Fault]) -> usize {
    let is_explained =
        |wait: &Fault| done.iter().any(|fault| fault.from <= wait.until && wait.from <= fault.until);
    waits.iter().filter(|wait| !is_explained(wait)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Call};

    #[test]
    fn a_call_that_waits_for_longer_than_for_a_reply_is_a_sign() {
        let asked = |at, number| Record::Invoked(at, number, Call::Cancel(1));
        let answered = |at, number| Record::Answered(at, number, Answer::NotFound);
        let records = [
            asked(1_000, 1),
            answered(2_001_000, 1),
            // The next two calls are one batch.
            asked(3_000_000, 2),
            asked(3_000_001, 3),
            answered(5_500_000, 2),
            answered(5_500_000, 3),
        ];
        let waits = waits(&records, Duration::from_secs(2));
        let fault = |from, until| Fault { cause: Cause::Server, node: None, from, until };
        assert_eq!(waits, [fault(3_000_000, 5_500_000)]);
        assert_eq!(unexplained(&waits, &[fault(1, 2)]), 1);
        assert_eq!(unexplained(&waits, &[fault(1, 4_000_000)]), 0);
    }
}
