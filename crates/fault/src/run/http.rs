//! Reads and writes the messages of HTTP/1.1, as far as a run needs them: with a `content-length`, and on connections
//! that stay open.

use std::io::{self, BufRead};

/// The first line of a message, its headers with lower-case names, and its body.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) first: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// Reads a message. Returns `None` if the connection ends before the message begins.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut first = String::new();
        if from.read_line(&mut first)? == 0 {
            return Ok(None);
        }
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            if line.trim_end().is_empty() && line.ends_with('\n') {
                break;
            }
            let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut message = Self { first: first.trim_end().to_owned(), headers, body: Vec::new() };
        let length = message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        message.body = vec![0; length];
        from.read_exact(&mut message.body)?;
        Ok(Some(message))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_connection_are_read_one_after_the_other() {
        let bytes = b"POST /1 HTTP/1.1\r\nContent-Length: 2\r\nWebhook-Id: a:b\r\n\r\nhiHTTP/1.1 204 No Content\r\n\r\n";
        let mut bytes = &bytes[..];
        let first = Message::read(&mut bytes).unwrap().unwrap();
        assert_eq!((&*first.first, &first.body[..]), ("POST /1 HTTP/1.1", &b"hi"[..]));
        assert_eq!(first.header("webhook-id"), Some("a:b"));
        let second = Message::read(&mut bytes).unwrap().unwrap();
        assert_eq!((&*second.first, second.body.len()), ("HTTP/1.1 204 No Content", 0));
        assert!(Message::read(&mut bytes).unwrap().is_none());
        assert!(Message::read(&mut &b"POST / HTTP/1.1\r\nhost"[..]).is_err());
    }
}
