//! Receives events as they happen, and connects again when a connection breaks.

use crate::error::{Error, with_causes};
use crate::transport::Transport;
use core::time::Duration;
use futures_util::stream::{self, Stream};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::sync::Arc;
use tourbillon_api::Event;

/// The greatest size of a single event in a stream, in bytes.
const LONGEST: usize = 1 << 20;

/// The time without a byte after which a connection counts as broken. Even if no event happens, the service sends a
/// comment (a line that the client ignores) every 15 s.
const SILENCE: Duration = Duration::from_secs(45);

/// An item of a stream of events: an event, or a gap in the events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// An event. [`Event::missed`] is the number of events that the reader missed just before it. A reader misses an
    /// event if it is too slow, or if a later version of the service sends the event in an unknown form.
    Event(Box<Event>),
    /// The connection broke, and a new connection was made. The reader has missed the events between the two
    /// connections. The service does not store events, so their number is unknown.
    Gap {
        /// The reason why the broken connection ended.
        reason: Box<str>,
    },
}

/// A stream of the events of a service.
#[derive(Debug)]
pub struct Events {
    transport: Arc<Transport>,
    path: String,
    reading: Option<Incoming>,
    parser: Parser,
    /// The reason why the last connection of the stream ended. `None` while there is a connection.
    lost: Option<Box<str>>,
    failures: u32,
    silence: Duration,
}

impl Events {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self {
            transport,
            path,
            reading: None,
            parser: Parser::default(),
            lost: None,
            failures: 0,
            silence: SILENCE,
        }
    }

    /// Sets how long the client waits for the next byte. If no byte arrives for this time, the connection counts as
    /// broken. The default is 45 s. Even if no event happens, the service sends a comment (a line that the client
    /// ignores) every 15 s, so the time should be longer than that.
    #[must_use]
    pub fn silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Connects at once, so that no event after this call is missed. Without this call, the first call of
    /// [`Events::next`] connects.
    ///
    /// # Errors
    ///
    /// Fails as [`Events::next`] does.
    pub async fn open(&mut self) -> Result<(), Error> {
        if self.reading.is_none() && self.lost.is_none() {
            self.connect().await?;
        }
        Ok(())
    }

    /// Waits for the next event. If the connection breaks, the call connects again, with pauses of up to 3.2 s, as long
    /// as the caller waits.
    ///
    /// # Errors
    ///
    /// Fails if the first connection cannot be made, or if the service refuses the request. The caller may try again.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, no event is lost: the next call returns the event.
    pub async fn next(&mut self) -> Result<Seen, Error> {
        loop {
            if let Some(event) = self.parser.events.pop_front() {
                return Ok(Seen::Event(event));
            }
            let Some(reading) = &mut self.reading else {
                if let Some(gap) = self.connect().await? {
                    return Ok(gap);
                }
                continue;
            };
            let reason = match tokio::time::timeout(self.silence, reading.frame()).await {
                Ok(Some(Ok(frame))) => match frame.data_ref().map(|data| self.parser.push(data)) {
                    None | Some(Ok(())) => continue,
                    Some(Err(reason)) => reason,
                },
                Ok(Some(Err(error))) => with_causes(&error),
                Ok(None) => "the service has ended the connection".to_owned(),
                Err(_) => format!("nothing came for {:?}", self.silence),
            };
            self.reading = None;
            self.parser.restart();
            self.lost = Some(reason.into());
        }
    }

    /// Connects to the stream of events. If an earlier connection has broken, returns the gap between the two
    /// connections.
    async fn connect(&mut self) -> Result<Option<Seen>, Error> {
        if self.failures > 0 || self.lost.is_some() {
            let longest = 200_u64 << self.failures.min(4);
            tokio::time::sleep(Duration::from_millis(longest / 2 + fastrand::u64(..=longest / 2))).await;
        }
        match self.transport.open(&self.path).await {
            Ok(response) => {
                self.reading = Some(response.into_body());
                self.failures = 0;
                Ok(self.lost.take().map(|reason| Seen::Gap { reason }))
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let is_passing = match &error {
                    Error::Connection(_) | Error::Timeout => true,
                    Error::Problem(problem) => problem.status >= 500 || problem.status == 429,
                    Error::Decode { status, .. } => *status >= 500,
                    _ => false,
                };
                if self.lost.is_some() && is_passing { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Converts this value into a stream of events. The stream ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Seen, Error>> + Send {
        stream::try_unfold(self, async |mut events| Ok(Some((events.next().await?, events))))
    }
}

/// Parses a body of the type `text/event-stream`.
#[derive(Debug, Default)]
struct Parser {
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// The data of an event whose end has not arrived.
    data: Vec<u8>,
    events: VecDeque<Box<Event>>,
    /// The number of unreadable events after the last readable event. A later version of the service may send events
    /// that this version cannot read.
    unread: u64,
}

impl Parser {
    fn restart(&mut self) {
        self.line.clear();
        self.data.clear();
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() + self.data.len() > LONGEST {
                return Err(format!("an event has more than {LONGEST} bytes"));
            }
            if self.line.ends_with(b"\n") {
                let line = core::mem::take(&mut self.line);
                self.line(line.trim_ascii_end());
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            let data = core::mem::take(&mut self.data);
            match serde_json::from_slice::<Box<Event>>(&data) {
                Ok(mut event) => {
                    event.missed += core::mem::take(&mut self.unread);
                    self.events.push_back(event);
                }
                Err(_) if data.is_empty() => {}
                Err(_) => self.unread += 1,
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.trim_ascii_start());
        }
        // Comments and other fields are ignored.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = ": hello\r\n\r\nevent: created\ndata: {\"at\":\"2026-11-22T16:00:00.000Z\",\"kind\":\"created\",\n\
        data: \"namespace\":\"ü\"}\n\ndata:{\"at\":\"2026-11-22T16:00:00.000Z\",\"kind\":\"dead\",\"namespace\":\"b\"}\n\n";

    #[test]
    fn events_are_read_in_pieces_of_every_size() {
        for size in 1..=TWO.len() {
            let mut parser = Parser::default();
            for piece in TWO.as_bytes().chunks(size) {
                parser.push(piece).unwrap();
            }
            let names: Vec<_> = parser.events.iter().map(|event| &*event.namespace).collect();
            assert_eq!(names, ["ü", "b"], "pieces of {size}");
        }
    }

    #[test]
    fn an_event_of_a_later_version_counts_as_missed() {
        let mut parser = Parser::default();
        parser.push(TWO.replace("\"created\"", "\"melted\"").as_bytes()).unwrap();
        let events: Vec<_> = parser.events.iter().map(|event| (&*event.namespace, event.missed)).collect();
        assert_eq!(events, [("b", 1)]);
    }

    #[test]
    fn an_event_has_a_greatest_size() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 65_536];
        assert!((0..16).all(|_| parser.push(&piece).is_ok()));
        assert!(parser.push(&piece).is_err());
        let mut parser = Parser::default();
        let line = format!("data:{}\n", "x".repeat(1_000));
        assert!((0..2_000).any(|_| parser.push(line.as_bytes()).is_err()));
    }
}
