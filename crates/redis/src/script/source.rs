//! A Lua script: its text, and the hash by which the server finds it.

use std::sync::OnceLock;

/// A script that the server runs, with a name for error messages.
pub(crate) struct Script {
    name: &'static str,
    source: &'static str,
    sha1: OnceLock<Box<str>>,
    /// The script's text after a first line with flags for the server, such as `#!lua flags=allow-oom`, and the hash of
    /// this whole text. Servers before Redis 7.0 refuse this line, and get `source` instead. `None` for a script
    /// without flags.
    flagged: Option<(&'static str, OnceLock<Box<str>>)>,
    only_reads: bool,
}

/// The first line of a script that may run while the server's memory is full. Servers before Redis 7.0 refuse this
/// line.
macro_rules! within_memory {
    // This is a macro, because `concat!` joins literals and does not accept a constant.
    () => {
        "#!lua flags=allow-oom\n"
    };
}
pub(crate) use within_memory;

impl Script {
    /// Makes a script without flags from its text in Lua.
    pub(crate) const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, sha1: OnceLock::new(), flagged: None, only_reads: false }
    }

    /// Makes a script without flags that changes nothing.
    pub(crate) const fn of_read(name: &'static str, source: &'static str) -> Self {
        Self { name, source, sha1: OnceLock::new(), flagged: None, only_reads: true }
    }

    /// Makes a script with two texts: `source` without flags, for servers before Redis 7.0, and `flagged` with flags.
    pub(crate) const fn with_flags(name: &'static str, source: &'static str, flagged: &'static str) -> Self {
        Self {
            name,
            source,
            sha1: OnceLock::new(),
            flagged: Some((flagged, OnceLock::new())),
            only_reads: false,
        }
    }

    /// Returns whether the script changes nothing. If such a script fails, nothing has changed.
    pub(crate) fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// Returns the name that error messages show.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the script's text in Lua, without flags.
    #[cfg(test)]
    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    /// Returns whether the script has a second text for servers from Redis 7.0 on. The first line of this text has
    /// flags for the server, such as `#!lua flags=allow-oom`.
    pub(crate) fn has_flags(&self) -> bool {
        self.flagged.is_some()
    }

    /// Returns the script's text in Lua. If `has_flags` is true and the script has flags for the server, the first line
    /// of the text is the line with the flags, such as `#!lua flags=allow-oom`.
    pub(crate) fn text(&self, has_flags: bool) -> &'static str {
        match &self.flagged {
            Some((flagged, _)) if has_flags => flagged,
            _ => self.source,
        }
    }

    /// Returns the SHA-1 of [`text`](Self::text) in hexadecimal digits, by which the server finds the script.
    pub(crate) fn sha1(&self, has_flags: bool) -> &str {
        let sha1 = match &self.flagged {
            Some((_, sha1)) if has_flags => sha1,
            _ => &self.sha1,
        };
        // Scripts are statics, whose initial values cannot contain a computed hash. So the first use computes it.
        sha1.get_or_init(|| redis::Script::new(self.text(has_flags)).get_hash().into())
    }
}
