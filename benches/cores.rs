//! The cost of many cores, as far as two cores can show it. The program measures the memory and the wake-ups of idle
//! shards. It also measures the system's barrier, on the thread that asks for it and on a thread that it interrupts.
//!
//! `cargo bench --bench cores` prints the figures; the times are medians with their ranges. Linux only.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};
    use std::{env, fs};
    use tourbillon::{Builder, Fired};

    /// The argument that makes the process run an engine with idle shards and print its costs.
    pub(crate) const SHARDS: &str = "--shards";

    /// The number of time windows in which a thread counts. Barriers run in every second window.
    const WINDOWS: usize = 40;
    const WINDOW: Duration = Duration::from_millis(50);

    /// Returns the number in a field of `/proc/self/status`, in the field's own unit.
    fn status(field: &str) -> u64 {
        let text = fs::read_to_string("/proc/self/status").expect("the status of this process");
        let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a field of the status");
        line.split_whitespace().nth(1).expect("a value").parse().expect("a number")
    }

    /// Returns how often this process's threads have gone to sleep or lost their core.
    fn switches() -> u64 {
        let tasks = fs::read_dir("/proc/self/task").expect("the threads of this process");
        let number = |path: std::path::PathBuf| {
            let text = fs::read_to_string(path.join("status")).unwrap_or_default();
            let values = text.lines().filter(|line| line.contains("ctxt_switches"));
            values.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
        };
        tasks.flatten().map(|task| number(task.path())).sum()
    }

    /// Runs an engine with idle shards. Returns its memory in KiB, its threads, and its context switches in two
    /// seconds.
    fn idle(shards: usize) -> (u64, u64, u64) {
        let (before, threads) = (status("VmRSS"), status("Threads"));
        let engine = Builder::new().shards(shards).start(|_: Fired<'_, u64>| {}).expect("an engine");
        // After this loop each shard has worked once, and has a far timer.
        for shard in 0..shards {
            engine.handle().on(shard).schedule(Duration::ZERO, 0).expect("room");
            let _ = engine.handle().on(shard).schedule(Duration::from_secs(3_600), 0).expect("room");
        }
        while engine.handle().stats().fired < shards as u64 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(200));
        let from = switches();
        thread::sleep(Duration::from_secs(2));
        // One switch is the sleep of this thread itself.
        let woken = (switches() - from).saturating_sub(1);
        assert_eq!(engine.handle().stats().fired, shards as u64, "each shard has fired once");
        (status("VmRSS") - before, status("Threads") - threads, woken)
    }

    const REGISTER: i64 = 1 << 4;
    const BARRIER: i64 = 1 << 3;

    fn membarrier(command: i64) -> bool {
        // SAFETY: the call takes three integers, and its only effect is the barrier.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    fn summary(mut values: Vec<f64>) -> String {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values[0], values[values.len() - 1]);
        format!("{:.2} ({first:.2}..{last:.2})", values[values.len() / 2])
    }

    /// Measures the system's memory barrier, in microseconds. Returns three texts: the time of a barrier alone, the
    /// time of a barrier beside a counting thread, and the time that the counting thread loses to a barrier.
    fn barrier() -> (String, String, String) {
        assert!(membarrier(REGISTER), "the system has the barrier");
        let alone: Vec<f64> = (0..WINDOWS).map(|_| asked(&AtomicU64::new(0), Instant::now()).0).collect();
        let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let (mut asking, mut lost) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Only this thread writes the count.
                    count.store(black_box(count.load(Ordering::Relaxed)) + 1, Ordering::Relaxed);
                }
            });
            thread::sleep(WINDOW);
            for _ in 0..WINDOWS {
                let begin = Instant::now();
                let from = count.load(Ordering::Relaxed);
                while begin.elapsed() < WINDOW {
                    std::hint::spin_loop();
                }
                let free = (count.load(Ordering::Relaxed) - from) as f64 / begin.elapsed().as_secs_f64();
                let (each, barriers, counted, elapsed) = asked(&count, Instant::now());
                asking.push(each);
                let missing = free * elapsed - counted as f64;
                lost.push(missing / free / barriers as f64 * 1e6);
            }
            stop.store(true, Ordering::Relaxed);
        });
        (summary(alone), summary(asking), summary(lost))
    }

    /// Asks for a barrier every 20 µs during a time window. Returns the microseconds of a barrier, the number of
    /// barriers, the growth of `count`, and the window's length in seconds.
    fn asked(count: &AtomicU64, begin: Instant) -> (f64, u64, u64, f64) {
        let from = count.load(Ordering::Relaxed);
        let (mut barriers, mut time) = (0, Duration::ZERO);
        while begin.elapsed() < WINDOW {
            let at = Instant::now();
            assert!(membarrier(BARRIER), "a barrier");
            time += at.elapsed();
            barriers += 1;
            while at.elapsed() < Duration::from_micros(20) {
                std::hint::spin_loop();
            }
        }
        let counted = count.load(Ordering::Relaxed) - from;
        (time.as_secs_f64() * 1e6 / barriers as f64, barriers, counted, begin.elapsed().as_secs_f64())
    }

    pub(crate) fn print() {
        let (alone, asking, lost) = barrier();
        println!("barrier, no other thread runs: {alone} µs");
        println!("barrier, another thread runs:  {asking} µs, of which the other thread loses {lost} µs");
        let of_one = idle_in_a_process(1);
        for shards in [1, 2, 16, 64] {
            let [memory, threads, woken] = idle_in_a_process(shards);
            let each = memory.saturating_sub(of_one[0]) / (shards as u64 - 1).max(1);
            println!(
                "{shards:2} idle shards: {memory} KiB, {threads} threads, {woken} context switches in 2 s; \
                 {each} KiB for a further shard"
            );
        }
    }

    /// Runs an engine with idle shards in a new process. Returns the memory, the threads and the context switches of
    /// that process.
    fn idle_in_a_process(shards: usize) -> [u64; 3] {
        let program = env::current_exe().expect("this program");
        let output =
            Command::new(program).args([SHARDS, &shards.to_string()]).output().expect("the process runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("a line of numbers");
        let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        numbers.try_into().expect("three numbers")
    }

    /// Prints the costs of an engine with idle shards. The process that [`idle_in_a_process`] starts calls this
    /// function.
    pub(crate) fn print_idle(shards: usize) {
        let (memory, threads, woken) = idle(shards);
        println!("{memory} {threads} {woken}");
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    {
        let mut arguments = std::env::args().skip_while(|argument| argument != linux::SHARDS);
        if let Some(shards) = arguments.nth(1) {
            linux::print_idle(shards.parse().expect("a number of shards"));
        } else if std::env::args().any(|argument| argument == "--bench") {
            // `cargo test --benches` asks for no figures, so nothing is measured.
            linux::print();
        }
    }
}
