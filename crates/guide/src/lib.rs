//! The programs of the guide (`docs/guide`) as doc tests: a module for each page.
//!
//! The commands, the settings and the C programs of the pages are tested by `tests/guide`, which also fails if a page
//! is missing here.
#![forbid(unsafe_code)]

/// Includes the pages. The package does not contain the pages, so only a doc test reads them.
macro_rules! pages {
    ($($module:ident = $file:literal),* $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../../docs/guide/", $file))]
            mod $module {}
        )*
    };
}

pages! {
    index = "README.md",
    first_timer = "first-timer.md",
    choosing = "choosing.md",
    timeouts = "timeouts.md",
    durable = "durable.md",
    service = "service.md",
    receivers = "receivers.md",
    schedules = "schedules.md",
    operating = "operating.md",
    proxies = "proxies.md",
    monitoring = "monitoring.md",
    logs = "logs.md",
    time = "time.md",
    limits = "limits.md",
    migration = "migration.md",
}
