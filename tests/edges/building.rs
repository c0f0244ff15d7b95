//! Options out of their bounds, and decisions of the builder about cores and about the threads that run handlers.

use crate::SECOND;
use crate::support::{MS, PATIENCE, wait_until};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tourbillon::{BuildError, Builder, Fired, Job};

#[test]
fn an_option_out_of_bounds_is_named_with_its_value_and_its_bound() {
    let between = "between 1µs and 3600s";
    let cases = [
        (Builder::new().tick(Duration::ZERO), "tick", "0ns", between),
        (Builder::new().tick(Duration::from_nanos(999)), "tick", "999ns", between),
        (Builder::new().tick(3_601 * SECOND), "tick", "3601s", between),
        (Builder::new().shards(0), "shards", "0", "between 1 and 1024"),
        (Builder::new().shards(1_025), "shards", "1025", "between 1 and 1024"),
        (Builder::new().workers(0), "workers", "0", "between 1 and 1024"),
        (Builder::new().workers(1_025), "workers", "1025", "between 1 and 1024"),
        (Builder::new().capacity(0), "capacity", "0", "between 1 and 4294967295"),
        (Builder::new().lane_capacity(63), "lane_capacity", "63", "between 64 and 4294967296"),
        (Builder::new().cores([]), "cores", "an empty list", "at least one core"),
    ];
    for (builder, expected_option, expected_value, expected_bound) in cases {
        let error = builder.start(|_: Fired<'_, ()>| {}).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{expected_option} is {expected_value}, but must be {expected_bound}")
        );
        let BuildError::OutOfBounds { option, value, bound } = error else { panic!("{error}") };
        assert_eq!((option, &*value, &*bound), (expected_option, expected_value, expected_bound));
    }
    for (loops, expected) in [
        (0, "loops is 0, but must be between 1 and 1024"),
        (1_025, "loops is 1025, but must be between 1 and 1024"),
    ] {
        assert_eq!(Builder::new().loops(loops).unwrap_err().to_string(), expected);
    }
    let error = Builder::new().tick(Duration::ZERO).driven(|_: Fired<'_, ()>| {}).unwrap_err();
    assert!(matches!(error, BuildError::OutOfBounds { option: "tick", .. }));
}

#[test]
fn a_refused_pin_is_counted_and_nothing_else() {
    let (sender, fired) = mpsc::channel();
    let engine = Builder::new()
        .shards(2)
        .cores([usize::MAX, 1_023])
        .start(move |timer| sender.send(timer.payload).unwrap())
        .unwrap();
    for shard in 0..2 {
        engine.handle().use_shard(shard);
        engine.handle().schedule(MS, shard).unwrap();
    }
    let mut order = [fired.recv_timeout(PATIENCE).unwrap(), fired.recv_timeout(PATIENCE).unwrap()];
    order.sort_unstable();
    assert_eq!(order, [0, 1]);
    let stats = engine.handle().stats();
    assert_eq!(stats.total.pins_refused, 2);
    assert!(stats.shards.iter().all(|shard| shard.pins_refused == 1));
    let engine = Builder::new().shards(1).unpinned().start(|_: Fired<'_, ()>| {}).unwrap();
    wait_until("it has begun", || engine.handle().stats().total.turns > 0);
    assert_eq!(engine.handle().stats().total.pins_refused, 0);
}

#[test]
fn handlers_run_where_the_builder_says() {
    let named = |builder: Builder| {
        let (sender, name) = mpsc::channel();
        let engine = builder
            .shards(1)
            .start(move |_: Fired<'_, ()>| sender.send(thread::current().name().map(String::from)).unwrap())
            .unwrap();
        engine.handle().schedule(MS, ()).unwrap();
        name.recv_timeout(PATIENCE).unwrap().unwrap()
    };
    assert_eq!(named(Builder::new().inline()), "tb-shard-0");
    // The shard's leader runs due timers itself. If it blocks, a worker takes its place.
    assert_eq!(named(Builder::new().workers(1)), "tb-shard-0");
    #[cfg(feature = "rayon")]
    {
        use std::sync::Arc;

        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(|_| String::from("callers pool"));
        let pool = Arc::new(pool.build().unwrap());
        assert_eq!(named(Builder::new().rayon_pool(Arc::clone(&pool))), "callers pool");
        assert_eq!(pool.install(|| 1 + 1), 2);
    }
    let (jobs, queue) = mpsc::channel::<Job>();
    let executor = thread::Builder::new().name(String::from("callers executor"));
    let executor = executor.spawn(move || queue.into_iter().for_each(Job::run)).unwrap();
    assert_eq!(named(Builder::new().executor(move |job| jobs.send(job).unwrap())), "callers executor");
    executor.join().unwrap();
}
