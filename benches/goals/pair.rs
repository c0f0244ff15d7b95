//! The engine against locked queues: schedule + cancel from 1, 2 and 8 threads while others are pending.

use crate::baselines::{LazyHeap, Locked, Tree};
use crate::common::{
    FireCount, Length, NANOS, OwnNow, Service, ThroughHandle, ThroughProducer, fill, run_pairs,
};
use crate::report::{Report, Samples};
use crate::sizes::Sizes;

const THREADS: [usize; 3] = [1, 2, 8];
/// The columns of few and of many pending, for each of [`THREADS`].
const FEW: [usize; 3] = [0, 1, 2];
const MANY: [usize; 3] = [3, 4, 5];
const COLUMNS: usize = FEW.len() + MANY.len();

type Measure = fn(&Sizes, threads: usize, pending: usize) -> f64;

const HEAP: &str = <Locked<LazyHeap> as Service>::NAME;
const TREE: &str = <Locked<Tree> as Service>::NAME;
const CONTESTANTS: [(&str, Measure); 5] = [
    (ThroughHandle::NAME, measure::<ThroughHandle>),
    (ThroughProducer::NAME, measure::<ThroughProducer>),
    (OwnNow::NAME, measure::<OwnNow>),
    (HEAP, measure::<Locked<LazyHeap>>),
    (TREE, measure::<Locked<Tree>>),
];

pub(crate) fn run(sizes: &Sizes) -> Report {
    let mut figures: [[Samples; COLUMNS]; CONTESTANTS.len()] = Default::default();
    for round in 0..sizes.rounds {
        eprintln!("pair: round {} of {}", round + 1, sizes.rounds);
        for (pending, columns) in [(sizes.few, FEW), (sizes.many, MANY)] {
            for (threads, column) in THREADS.into_iter().zip(columns) {
                for turn in 0..CONTESTANTS.len() {
                    let contestant = (turn + round) % CONTESTANTS.len();
                    figures[contestant][column].push(CONTESTANTS[contestant].1(sizes, threads, pending));
                }
            }
        }
    }
    let columns = [sizes.few, sizes.many]
        .map(|pending| THREADS.map(|threads| format!("threads: {threads}, pending: {pending}")))
        .concat();
    let mut report = Report::new(
        "The engine: schedule + cancel, clock read included (ns a pair and thread)",
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    for ((name, _), samples) in CONTESTANTS.iter().zip(figures) {
        report.row(*name, samples.into());
    }
    judge(&mut report);
    report
}

fn judge(report: &mut Report) {
    for ours in [ThroughHandle::NAME, ThroughProducer::NAME] {
        for ((threads, column), wanted) in THREADS.into_iter().zip(MANY).zip([3.5, 10.0, 10.0]) {
            report.want_ratio(&format!("threads: {threads}"), column, ours, HEAP, wanted);
        }
        let [alone, together, _] = MANY.map(|column| report.median(ours, column));
        let ratio = together / alone;
        report.verdict(
            format!("{ours}: a pair from 2 threads at most 1.25 times one from 1 thread"),
            format!("{ratio:.2}"),
            ratio <= 1.25,
        );
        let ratio = alone / report.median(ours, FEW[0]);
        report.verdict(
            format!("{ours}: a pair with many pending at most 1.5 times one with few"),
            format!("{ratio:.2}"),
            ratio <= 1.5,
        );
    }
    let against_tree = THREADS
        .into_iter()
        .zip(MANY)
        .map(|(threads, column)| {
            let ratio = report.median(TREE, column) / report.median(ThroughHandle::NAME, column);
            format!("{ratio:.1} from {threads}")
        })
        .collect::<Vec<_>>();
    report.note(format!("Times faster than {TREE} (no goal), Handle: {}.", against_tree.join(", ")));
}

fn measure<S: Service>(sizes: &Sizes, threads: usize, pending: usize) -> f64 {
    let fired = FireCount::default();
    let service = S::start(fired.on_fire());
    fill(&service, pending, &NANOS, sizes.settle);
    let run = run_pairs(&service, threads, &NANOS, Length::Time(sizes.pair_time));
    fired.check(&service, pending);
    run.nanos_per_pair
}
