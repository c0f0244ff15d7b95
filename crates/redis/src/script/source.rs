//! The Lua scripts that the server runs.

use std::sync::OnceLock;

/// A script that the server runs, and the name that it has in errors.
pub(crate) struct Script {
    name: &'static str,
    source: &'static str,
    sha1: OnceLock<Box<str>>,
    /// The text with its flags, if it has some.
    flagged: Option<(&'static str, OnceLock<Box<str>>)>,
}

/// The first line of a script that runs although the server's memory is full. Servers before 7.0 do not know it.
macro_rules! within_memory {
    () => {
        "#!lua flags=allow-oom\n"
    };
}
pub(crate) use within_memory;

impl Script {
    /// The script of `source`, mostly an `include_str!`.
    pub(crate) const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, sha1: OnceLock::new(), flagged: None }
    }

    /// The same, with a text that begins with a line of flags.
    pub(crate) const fn with_flags(name: &'static str, source: &'static str, flagged: &'static str) -> Self {
        Self { name, source, sha1: OnceLock::new(), flagged: Some((flagged, OnceLock::new())) }
    }

    /// The name for errors.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The text in Lua, without flags.
    #[cfg(test)]
    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    /// Whether the script has flags.
    pub(crate) fn has_flags(&self) -> bool {
        self.flagged.is_some()
    }

    /// The text with its flags, if it has some, or without.
    pub(crate) fn text(&self, has_flags: bool) -> &'static str {
        match &self.flagged {
            Some((flagged, _)) if has_flags => flagged,
            _ => self.source,
        }
    }

    /// The SHA-1 of the text in hexadecimal digits: the name under which the server keeps the script.
    pub(crate) fn sha1(&self, has_flags: bool) -> &str {
        let sha1 = match &self.flagged {
            Some((_, sha1)) if has_flags => sha1,
            _ => &self.sha1,
        };
        sha1.get_or_init(|| redis::Script::new(self.text(has_flags)).get_hash().into())
    }
}
