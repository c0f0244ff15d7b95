//! The form of a section, and columns that several sections have.

/// A column of a table: the key of its figure, and its heading.
pub(crate) type Column = (&'static str, &'static str);

pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The text that describes the workload, with placeholders for the sizes of the case.
    pub(crate) work: &'static str,
    /// Whether a line below each table names the best contestants.
    pub(crate) names_the_best: bool,
    pub(crate) tables: &'static [(&'static str, &'static str, &'static [Column])],
    /// Texts below the last table of a case. They have placeholders for the sizes of the case, and for figures as the
    /// reasons of goals have them.
    pub(crate) notes: &'static [(&'static str, &'static str)],
}

/// How late the handlers of timers were called, and what the timers cost.
pub(super) const LATENESS_AND_CPU: &[Column] = &[
    ("p50_ms", "p50, ms"),
    ("p99_ms", "p99, ms"),
    ("p999_ms", "p99.9, ms"),
    ("max_ms", "max, ms"),
    ("min_ms", "min, ms"),
    ("cpu_us", "CPU, µs each"),
];
