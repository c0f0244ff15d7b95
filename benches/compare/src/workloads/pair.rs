//! The whole life of a timeout in the usual case. It is scheduled and cancelled, while others are pending.

use super::LONG;
use super::pairs::Pairs;
use crate::case::Case;
use crate::contestants::OneShots;
use crate::results::Figures;
use crate::roster::schedule_and_cancel;
use crate::scale::Scale;
use crate::workload::{Family, Workload, columns_by_threads};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "pair",
    operation: "schedule a timer 10 to 60 s ahead and cancel it (ns a pair and thread)",
    family: Family::Arming,
    about: "Checked: each cancel finds its timer, no timer fires, and no other timer is pending at the \
        end.\n\n\
        The wheel behind a mutex for each core, the heap and the tree are not libraries: they are \
        structures that a programmer would write with locks. Each caller of the wheel stays at one of its \
        shards. With eight threads, the time of an operation includes the time in which its thread waits \
        for a core. hierarchical_hash_wheel_timer sends a message for each call; the wait for its thread \
        to handle the messages is outside of the measured time. pingora-timeout shares one entry among all \
        timers of a slot, and cancels nothing. tokio's alternative timer takes cancelled timers out when \
        its task yields, so its jobs yield now and then, within the measured time.",
    reading: "In a pair through a handle ({pair; 1,000,000 pending; engine, Handle; t1} from one thread with \
        a million pending), the read of the clock takes {floor; one step; the engine's clock; ns}, which the \
        row with the caller's own `now` saves. The compare-and-swap of the cancel takes about {floor; one \
        step; atomic add, alone; ns}. A lane, a magazine and some dependent loads are the rest. \
        `Instant::now` takes {floor; one step; Instant::now; ns}: the row of that name is ours on the clock \
        that the others read.",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants: || schedule_and_cancel!(turn),
};

fn cases(scale: Scale) -> Vec<Case> {
    let case = |timers| Case {
        timers,
        threads: vec![1, 2, 8],
        time_ms: scale.pick(150, 20, 1),
        settle_ms: scale.pick(50, 5, 1),
        ..Case::named(if timers == 0 {
            "nothing pending".to_owned()
        } else {
            format!("{} pending", thousands(timers))
        })
    };
    scale.pick([0, 100_000, 1_000_000], [0, 10_000, 100_000], [0, 100, 200]).map(case).into()
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let most_threads = case.threads.iter().copied().max().unwrap_or(1);
    let mut pairs = Pairs::<C>::new(most_threads, LONG);
    pairs.fill(case.timers, case.settle());
    let figures = pairs.run_by_threads(case);
    pairs.check();
    figures
}
