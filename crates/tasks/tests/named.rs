//! Repeating tasks by name. Each name has at most one task, and is free when its task has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::Builder;
use tourbillon_tasks::{
    DrivenTasks, First, IfPresent, NamedErrorKind, NamedTasks, OnPanic, Repeat, RepeatErrorKind, Started,
    Stopped, TaskEngine,
};

const SECOND: Duration = Duration::from_secs(1);

fn secondly() -> Repeat {
    Repeat::every(SECOND)
}

#[test]
fn a_replaced_task_runs_no_more() {
    let mut tasks = DrivenTasks::new().unwrap();
    let jobs = tasks.handle().named();
    let (log, runs) = mpsc::channel();
    for name in ["first", "second"] {
        let log = log.clone();
        let started =
            jobs.start(IfPresent::Replace, 17, secondly(), move |_| log.send(name).unwrap()).unwrap();
        match (name, started) {
            ("first", Started::New(_)) | ("second", Started::Replaced { before: Stopped::Stopped, .. }) => {}
            other => panic!("{other:?}"),
        }
        tasks.advance(2 * SECOND);
    }
    assert_eq!(runs.try_iter().collect::<Vec<_>>(), ["first", "first", "second", "second"]);
    assert_eq!((jobs.keys(), tasks.handle().repeating().len()), (vec![17], 1));
}

#[test]
fn a_name_that_is_taken_is_kept_or_an_error() {
    let mut tasks = DrivenTasks::new().unwrap();
    let jobs = tasks.handle().named();
    let runs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&runs);
    let add = move |_: &tourbillon_tasks::Run| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let Started::New(task) = jobs.start(IfPresent::Reject, "job", secondly(), add.clone()).unwrap() else {
        panic!("the name was free")
    };
    let refused = jobs.start(IfPresent::Reject, "job", secondly(), add.clone()).unwrap_err();
    assert_eq!((refused.kind.clone(), refused.key), (NamedErrorKind::Present, "job"));
    assert_eq!(refused.to_string(), "the name has a task");
    let Started::Kept(kept) = jobs.start(IfPresent::Keep, "job", secondly(), add).unwrap() else {
        panic!("the name was taken")
    };
    tasks.advance(3 * SECOND);
    assert_eq!((kept.report(), task.report().runs), (task.report(), 3));
    assert_eq!((runs.load(Ordering::Relaxed), tasks.handle().repeating().len()), (3, 1));
    // The closure that came back works as it would have in its task.
    assert_eq!(jobs.stop("job"), Some(Stopped::Stopped));
    jobs.start(IfPresent::Reject, "job", secondly(), refused.task).unwrap();
    tasks.advance(SECOND);
    assert_eq!(runs.load(Ordering::Relaxed), 4);
}

#[test]
fn a_name_is_free_when_its_task_has_ended_by_itself() {
    let mut tasks = DrivenTasks::new().unwrap();
    let jobs = tasks.handle().named();
    let start = |name: &'static str, plan: Repeat, f: fn(&tourbillon_tasks::Run)| {
        jobs.start(IfPresent::Reject, name, plan, f).unwrap();
    };
    start("counted", secondly().times(2), |_| {});
    start("stops itself", secondly(), tourbillon_tasks::Run::stop);
    start("panics", secondly().on_panic(OnPanic::Stop), |_| panic!("on purpose"));
    start("stays", secondly(), |_| {});
    tasks.advance(SECOND);
    let mut names = jobs.keys();
    names.sort_unstable();
    assert_eq!(names, ["counted", "stays"]);
    tasks.advance(SECOND);
    assert_eq!(jobs.keys(), ["stays"]);
    start("counted", secondly(), |_| {});
}

/// During the last run of a task, the closure itself sees that the task has ended and that its name is free.
#[test]
fn a_task_in_its_last_run_has_ended_and_its_name_is_free() {
    let mut tasks = DrivenTasks::new().unwrap();
    let jobs: NamedTasks<&str> = tasks.handle().named();
    let (again, report) = mpsc::channel();
    let inside = jobs.clone();
    let Started::New(task) = jobs
        .start(IfPresent::Reject, "job", secondly().times(1), move |_| {
            let seen = (inside.get("job").is_none(), inside.keys().is_empty());
            again.send((seen, inside.start(IfPresent::Reject, "job", secondly(), |_| {}).unwrap())).unwrap();
        })
        .unwrap()
    else {
        panic!("the name was free")
    };
    assert!(!task.has_ended());
    tasks.advance(SECOND);
    let (seen, started) = report.try_recv().unwrap();
    assert_eq!((seen, task.has_ended()), ((true, true), true));
    let Started::Replaced { task: second, before: Stopped::Running } = started else { panic!("{started:?}") };
    tasks.advance(SECOND);
    // When the first task ended, the name stayed with the second task.
    assert_eq!((second.report().runs, jobs.get("job").map(|task| task.report().runs)), (1, Some(1)));
}

#[test]
fn what_cannot_be_started_leaves_the_name_as_it_is() {
    let tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let jobs = tasks.handle().named();
    let zero = jobs.start(IfPresent::Replace, 1, Repeat::every(Duration::ZERO), |_| {}).unwrap_err();
    assert_eq!(zero.kind, NamedErrorKind::NotStarted(RepeatErrorKind::ZeroPeriod));
    jobs.start(IfPresent::Replace, 1, secondly(), |_| {}).unwrap();
    let full = jobs.start(IfPresent::Replace, 1, secondly(), |_| {}).unwrap_err();
    assert!(matches!(full.kind, NamedErrorKind::NotStarted(RepeatErrorKind::Refused(_))), "{full}");
    assert!(!jobs.get(&1).unwrap().has_ended());
    drop(tasks.handle().shutdown());
    assert!(jobs.keys().is_empty());
    let late = jobs.start(IfPresent::Replace, 2, secondly(), |_| {}).unwrap_err();
    assert!(matches!(late.kind, NamedErrorKind::NotStarted(RepeatErrorKind::Refused(_))), "{late}");
    assert!(jobs.keys().is_empty() && tasks.handle().repeating().is_empty());
}

/// The name decides first. A task that is kept, or whose name is refused, needs neither a free slot nor a valid plan. A
/// replacement needs both, because the last run of the earlier task may still be under way.
#[test]
fn a_name_that_is_taken_is_found_even_if_nothing_could_be_started() {
    let mut tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let jobs = tasks.handle().named();
    jobs.start(IfPresent::Reject, "job", secondly(), |_| {}).unwrap();
    assert!(tasks.handle().after(SECOND, || {}).is_err(), "there is a slot left");
    for plan in [secondly(), Repeat::every(Duration::ZERO)] {
        let kept = jobs.start(IfPresent::Keep, "job", plan.clone(), |_| {});
        assert!(matches!(kept, Ok(Started::Kept(_))), "{kept:?}");
        let refused = jobs.start(IfPresent::Reject, "job", plan.clone(), |_| {}).unwrap_err();
        assert_eq!(refused.kind, NamedErrorKind::Present);
        let refused = jobs.start(IfPresent::Replace, "job", plan.clone(), |_| {}).unwrap_err();
        assert!(matches!(refused.kind, NamedErrorKind::NotStarted(_)), "{refused}");
        let refused = jobs.start(IfPresent::Keep, "other", plan, |_| {}).unwrap_err();
        assert!(matches!(refused.kind, NamedErrorKind::NotStarted(_)), "{refused}");
    }
    tasks.advance(SECOND);
    assert_eq!((jobs.get("job").map(|task| task.report().runs), jobs.keys()), (Some(1), vec!["job"]));
    // The task ends. Its name is free, and so the plan and the engine decide.
    drop(tasks.handle().shutdown());
    let refused = jobs.start(IfPresent::Keep, "job", secondly(), |_| {}).unwrap_err();
    assert!(matches!(refused.kind, NamedErrorKind::NotStarted(RepeatErrorKind::Refused(_))), "{refused}");
}

#[test]
fn replacing_a_task_that_runs_says_so_and_its_end_leaves_the_new_one() {
    let tasks = TaskEngine::start(Builder::new().workers(2)).unwrap();
    let jobs: NamedTasks<u8> = tasks.handle().named();
    let (begun, wait_for_begin) = mpsc::channel();
    let (end, wait_for_end) = mpsc::channel::<()>();
    let at_once = secondly().first(First::AtOnce);
    jobs.start(IfPresent::Replace, 1, at_once, move |_| {
        begun.send(()).unwrap();
        wait_for_end.recv().unwrap();
    })
    .unwrap();
    wait_for_begin.recv().unwrap();
    let old = jobs.get(&1).unwrap();
    let hour = Repeat::every(Duration::from_secs(3_600));
    let Started::Replaced { task, before } = jobs.start(IfPresent::Replace, 1, hour, |_| {}).unwrap() else {
        panic!("it was there")
    };
    assert_eq!(before, Stopped::Running);
    end.send(()).unwrap();
    let _ = old.stop_and_wait();
    assert!(!task.has_ended() && !jobs.get(&1).unwrap().has_ended());
}

/// Goal: at most one task of a name ever begins runs. Method: threads replace and stop a few names, whose tasks note
/// their numbers. After a replacement, once the old task's run has ended, the old task notes nothing any more.
#[test]
fn threads_that_replace_and_stop_leave_nothing_behind() {
    const NAMES: u64 = 3;
    const ROUNDS: u64 = 400;
    let tasks = TaskEngine::start(Builder::new().tick(Duration::from_micros(100)).workers(2)).unwrap();
    let jobs: NamedTasks<u64> = tasks.handle().named();
    let dead: Arc<Mutex<Vec<u64>>> = Arc::default();
    let token = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (jobs, dead, token) = (&jobs, &dead, &token);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = (round * 7 + thread) % NAMES;
                    let plan =
                        Repeat::every(Duration::from_micros(200)).first(First::AtOnce).times(1 + round % 5);
                    if round % 4 == 3 {
                        let _ = jobs.stop(&name);
                        continue;
                    }
                    let (mine, seen) = (token.fetch_add(1, Ordering::Relaxed), Arc::clone(dead));
                    let started = jobs.start(IfPresent::Replace, name, plan, move |_| {
                        assert!(!seen.lock().unwrap().contains(&mine), "{mine} runs after its end");
                    });
                    if let Started::New(task) | Started::Replaced { task, .. } = started.unwrap()
                        && round % 5 == 0
                    {
                        let _ = task.stop_and_wait();
                        dead.lock().unwrap().push(mine);
                    }
                }
            });
        }
    });
    let patience = Instant::now();
    while !(jobs.keys().is_empty() && tasks.handle().repeating().is_empty()) {
        assert!(patience.elapsed() < Duration::from_secs(20), "{:?}", jobs.keys());
        thread::yield_now();
    }
    assert_eq!(tasks.handle().stats().total.panics, 0);
}
