//! The findings of the checks.

use core::fmt;

/// The findings of the checks of the servers, one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    lines: Vec<Line>,
    is_unanswered: bool,
}

/// A line of a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    grade: Grade,
    server: Box<str>,
    text: Box<str>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// Timers may be lost or late in a failure.
    Warning,
    /// The store does not open.
    Refusal,
}

impl Report {
    /// The lines, in the order of the checks.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Whether a line is a refusal.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.lines.iter().any(|line| line.grade == Grade::Refusal)
    }

    /// Whether the servers do not answer, which may change within a moment.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    pub(crate) fn note_silence(&mut self, text: impl Into<Box<str>>) {
        self.is_unanswered = true;
        self.add("", Grade::Refusal, text);
    }

    pub(crate) fn add(&mut self, server: &str, grade: Grade, text: impl Into<Box<str>>) {
        self.lines.push(Line { grade, server: server.into(), text: text.into() });
    }
}

impl Line {
    /// How the check ended.
    #[must_use]
    pub fn grade(&self) -> Grade {
        self.grade
    }

    /// The address of the server; empty for a line about all.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The finding, and what to do if it is a problem.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// One line of text for each line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
