//! The Lua scripts that the server runs.

use std::sync::OnceLock;

/// A script that the server runs, and the name that it has in errors.
pub(crate) struct Script {
    name: &'static str,
    source: &'static str,
    sha1: OnceLock<Box<str>>,
}

impl Script {
    /// The script of `source`, mostly an `include_str!`.
    pub(crate) const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, sha1: OnceLock::new() }
    }

    /// The name for errors.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The text in Lua.
    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    /// The SHA-1 of the text in hexadecimal digits: the name under which the server keeps the script.
    pub(crate) fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| redis::Script::new(self.source).get_hash().into())
    }
}
