//! An alarm a short time from now, by the system's own clock, whatever clock the engine runs on.

#[cfg(not(all(test, tourbillon_loom)))]
mod imp {
    use core::time::Duration;
    use std::time::Instant;

    /// An alarm: a moment in the near future.
    #[derive(Debug)]
    pub(crate) struct Alarm(Instant);

    impl Alarm {
        pub(crate) fn after(time: Duration) -> Self {
            let now = Instant::now();
            Self(now.checked_add(time).unwrap_or(now))
        }

        /// The time until the alarm; zero once its moment has come.
        pub(crate) fn rest(&self) -> Duration {
            self.0.saturating_duration_since(Instant::now())
        }
    }
}

#[cfg(all(test, tourbillon_loom))]
mod imp {
    use core::cell::Cell;
    use core::time::Duration;

    /// An alarm in a model, which has no time: the alarm goes off after its rest was read once.
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
