//! The price of ending another thread's sleep earlier, in two ways: to wake the thread, or to set the alarm of the
//! system for which it waits (`timerfd_settime`). The thread that wakes sleeps again for the rest of its time. The
//! thread whose alarm is set sleeps on until the alarm.
//!
//! `cargo bench --bench alarms` prints the time of one call on the calling thread, as the median and the range of the
//! calls between the tenth and the ninetieth percentile. Linux only.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

#[cfg(target_os = "linux")]
mod linux {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    /// The time between two calls. The other thread sleeps by then.
    const PAUSE: Duration = Duration::from_micros(50);

    /// Prints the time of a call of `call`.
    fn print(name: &str, calls: usize, mut call: impl FnMut()) {
        let mut times: Vec<u128> = (0..calls)
            .map(|_| {
                let begin = Instant::now();
                while begin.elapsed() < PAUSE {
                    std::hint::spin_loop();
                }
                let begin = Instant::now();
                call();
                begin.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!("{name:44} {:6} ns ({}..{})", at(50), at(10), at(90));
    }

    /// Returns the setting of an alarm that rings once, `seconds` from now.
    fn once(seconds: i64) -> Itimerspec {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: seconds, tv_nsec: 1 } }
    }

    pub(crate) fn print_all(calls: usize) {
        print("two readings of the clock", calls, || {});
        let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a descriptor");
        let set = |seconds| {
            _ = timerfd_settime(&alarm, TimerfdTimerFlags::empty(), &once(seconds)).expect("a time")
        };
        let mut seconds = 3_600;
        print("an alarm for which nobody waits", calls, || {
            seconds -= 1;
            set(seconds);
        });
        thread::scope(|scope| {
            set(3_600);
            scope.spawn(|| rustix::io::read(&alarm, &mut [0_u8; 8]).expect("it rings at the end"));
            let mut seconds = 3_600;
            print("an alarm for which another thread waits", calls, || {
                seconds -= 1;
                set(seconds);
            });
            set(0);
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    thread::park_timeout(Duration::from_secs(3_600));
                }
            });
            print("a thread that is woken", calls, || sleeper.thread().unpark());
            is_over.store(true, Ordering::Release);
            sleeper.thread().unpark();
        });
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    {
        let is_measured = std::env::args().any(|argument| argument == "--bench");
        linux::print_all(if is_measured { 2_000 } else { 10 });
    }
}
