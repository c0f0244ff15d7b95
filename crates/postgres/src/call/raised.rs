//! Finds the SQLSTATE of an error by its message, for a driver that reports only the message.
//!
//! The pairs of message and SQLSTATE are read from the text of the migrations, where each pair has the form `RAISE
//! EXCEPTION 'message' ... ERRCODE = 'code'`. So there is no list of messages that could be out of date.

use crate::schema::sources;

/// The message of PostgreSQL's own error 40P01, in English.
const DEADLOCK: &str = "deadlock detected";

/// Returns the SQLSTATE of an error with this message. `None` if the SQL functions do not raise the message.
pub(super) fn sqlstate_of(message: &str) -> Option<&'static str> {
    if message == DEADLOCK {
        return Some("40P01");
    }
    sources().flat_map(raised).find(|(form, _)| fits(form, message)).map(|(_, code)| code)
}

/// Returns the messages of all errors that the SQL functions in `sql` raise, with their SQLSTATEs. `sql` is the text of
/// a file of a migration. In a message, `%` stands for a value.
fn raised(sql: &'static str) -> impl Iterator<Item = (String, &'static str)> {
    sql.split("RAISE EXCEPTION '").skip(1).filter_map(|rest| {
        let statement = rest.split(';').next()?;
        // A quote within a text is doubled.
        let end = statement.char_indices().find(|&(at, c)| {
            let (before, after) = (&statement[..at], &statement[at + c.len_utf8()..]);
            c == '\''
                && !after.starts_with('\'')
                && before.chars().rev().take_while(|c| *c == '\'').count() % 2 == 0
        });
        let (form, rest) = statement.split_at(end?.0);
        let code = rest.split_once("ERRCODE = '")?.1.split('\'').next()?;
        Some((form.replace("''", "'"), code))
    })
}

/// Returns whether `message` is `form` with a value in the place of each `%`.
fn fits(form: &str, message: &str) -> bool {
    let mut parts = form.split('%');
    let Some(mut rest) = parts.next().and_then(|first| message.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_the_functions_has_its_sqlstate() {
        let all: Vec<_> = sources().flat_map(raised).collect();
        let raises: usize = sources().map(|sql| sql.matches("RAISE EXCEPTION").count()).sum();
        assert_eq!(all.len(), raises, "each error has a message and a code");
        assert!(raises > 40, "{raises}");
        for (form, code) in &all {
            let message = form.replace('%', "7");
            assert_eq!(sqlstate_of(&message), Some(*code), "{message}");
        }
    }

    #[test]
    fn a_message_of_others_has_none() {
        assert_eq!(sqlstate_of("the lease of the timer 7 is lost"), Some("TB001"));
        assert_eq!(sqlstate_of("the lease of the timer 7 is lost, perhaps"), None);
        assert_eq!(sqlstate_of("relation \"orders\" does not exist"), None);
        assert_eq!(sqlstate_of(""), None);
        assert_eq!(sqlstate_of("deadlock detected"), Some("40P01"));
    }
}
