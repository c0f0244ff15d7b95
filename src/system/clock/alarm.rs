//! An alarm in the near future. It goes by the system's own clock, even if the engine runs on another clock.

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    use core::time::Duration;
    use std::time::Instant;

    /// A moment in the near future, for which a thread waits.
    #[derive(Debug)]
    pub(crate) struct Alarm(Instant);

    impl Alarm {
        pub(crate) fn after(time: Duration) -> Self {
            let now = Instant::now();
            Self(now.checked_add(time).unwrap_or(now))
        }

        /// Returns the time until the alarm's moment; zero once the moment has come.
        pub(crate) fn rest(&self) -> Duration {
            self.0.saturating_duration_since(Instant::now())
        }
    }
}

#[cfg(all(test, tourbillon_loom))]
mod imp {
    use core::cell::Cell;
    use core::time::Duration;

    /// An alarm in a model, which has no time. The alarm's moment has come after the first call of `rest`.
    #[derive(Debug)]
    pub(crate) struct Alarm(Cell<Duration>);

    impl Alarm {
        pub(crate) fn after(time: Duration) -> Self {
            Self(Cell::new(time))
        }

        pub(crate) fn rest(&self) -> Duration {
            self.0.replace(Duration::ZERO)
        }
    }
}

pub(crate) use imp::Alarm;
