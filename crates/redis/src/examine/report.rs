//! The report in which the checks of servers collect their findings.

use core::fmt;

/// The findings of a check of servers. Each finding is a [`Line`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    lines: Vec<Line>,
    is_unanswered: bool,
    is_absent: bool,
}

/// A line of a [`Report`]: the result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    grade: Grade,
    server: Box<str>,
    text: Box<str>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// The server passes the check.
    Ok,
    /// The server works, but a failure may lose or delay timers.
    Warning,
    /// The store cannot be opened on this server.
    Refusal,
}

impl Report {
    /// Returns the lines, in the order of the checks.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns whether any line has the grade [`Grade::Refusal`].
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.lines.iter().any(|line| line.grade == Grade::Refusal)
    }

    /// Returns whether the report has a refusal because servers did not answer. A later check may succeed.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    /// Returns whether the servers have no timers under the name of the deployment: it was never opened, or the servers
    /// have lost all of it.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// Makes the report if no server fits the connection's settings.
    pub(crate) fn of_misfit(reason: String) -> Self {
        let mut report = Self::default();
        report.add("", Grade::Refusal, reason);
        report
    }

    pub(crate) fn note_absence(&mut self, text: impl Into<Box<str>>) {
        self.is_absent = true;
        self.add("", Grade::Ok, text);
    }

    pub(crate) fn note_silence(&mut self, server: &str, text: impl Into<Box<str>>) {
        self.is_unanswered = true;
        self.add(server, Grade::Refusal, text);
    }

    pub(crate) fn add(&mut self, server: &str, grade: Grade, text: impl Into<Box<str>>) {
        self.lines.push(Line { grade, server: server.into(), text: text.into() });
    }
}

impl Line {
    /// Returns the severity of the finding.
    #[must_use]
    pub fn grade(&self) -> Grade {
        self.grade
    }

    /// Returns the address of the checked server, which is empty for a line about all servers.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the text of the finding, which also says how to solve a problem.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The line of a report prints the grade with a width, which only `pad` respects.
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Refusal => "refusal",
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.server.is_empty() { "" } else { " " };
        write!(f, "{:<7} {}{space}{}", self.grade, self.server, self.text)
    }
}

/// Writes the report as text, with one line for each finding.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
