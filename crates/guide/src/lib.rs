//! Runs the Rust programs of the guide (`docs/guide`) as doc tests. Each page of the guide is a module.
//!
//! `tests/guide` tests the commands, the settings and the C programs of the pages. It also fails if a page is missing
//! here.
#![forbid(unsafe_code)]

/// Includes the pages of the guide as the docs of modules. Only a doc test reads the pages, because the package does
/// not contain them.
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
    postgres = "postgres.md",
    service = "service.md",
    clients = "clients.md",
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
