//! The name of a schema, by itself and in statements.

use std::borrow::Cow;

/// The name of the schema in the statements of this crate. The real name replaces it before a statement is sent.
const STATED: &str = "tourbillon";

/// The name of a schema in PostgreSQL. The schema holds the tables and functions of one deployment: a set of timers,
/// and the nodes that deliver them.
#[derive(Clone, Debug)]
pub(crate) struct SchemaName(Box<str>);

impl Default for SchemaName {
    fn default() -> Self {
        Self(STATED.into())
    }
}

impl SchemaName {
    /// The rule for names, as errors state it.
    pub(crate) const RULE: &str = "a schema has up to 63 small letters, digits and `_`, with a letter first; \
                                   `pg_...` and `information_schema` are the server's";

    /// Checks a name against the [rule](Self::RULE). Returns `None` if the name breaks the rule. A valid name needs no
    /// escapes in a literal or in an identifier.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_name = name.len() <= 63
            && name.bytes().all(is_fit)
            && name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
            && !name.starts_with("pg_")
            // A dump leaves this schema out.
            && name != "information_schema";
        is_name.then(|| Self(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name as an identifier. Without the quotes, a word of SQL such as `user` could not be a name.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// Returns the statement `sql` with the name `self` in place of the schema name `tourbillon`.
    pub(crate) fn put_into<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if *self.0 == *STATED {
            return Cow::Borrowed(sql);
        }
        let (literal, quoted) = (format!("'{}'", self.0), self.quoted());
        Cow::Owned(
            sql.replace(&format!("{STATED}."), &format!("{quoted}."))
                .replace(&format!("'{STATED}'"), &literal)
                .replace(&format!("SCHEMA {STATED}"), &format!("SCHEMA {quoted}")),
        )
    }
}
