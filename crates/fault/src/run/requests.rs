//! Clients that send requests to the nodes of a run, which are processes of `tourbillond`.

use super::callbacks::{id_of_text, path, policy};
use super::door::{Door, Wanted};
use super::http::Message;
use super::{moment, wall};
use crate::history::{Answer, Call, Id, Place};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tourbillon_durable::UtcMillis;

/// The number of requests after which a client connects to another node.
const TURN: u32 = 50;

/// The addresses of the nodes that run, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(Arc<Mutex<Vec<(String, SocketAddr)>>>);

impl Addresses {
    pub(super) fn add(&self, name: &str, address: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), address));
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| other != name);
    }

    fn nth(&self, turn: usize) -> Option<SocketAddr> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = turn.checked_rem(nodes.len())?;
        Some(nodes[index].1)
    }
}

/// A client that sends requests to one node after the other.
pub(super) struct Requests {
    nodes: Addresses,
    /// The first part of the URLs of callbacks: the URL of the receiver, the process that gets the callbacks.
    receiver: String,
    response: Duration,
    turn: usize,
    open: Option<BufReader<TcpStream>>,
    /// The number of requests on the open connection.
    sent: u32,
    /// The ids under which the store keeps the client's timers. The keys are the timers' ids in the history.
    stored: HashMap<Id, String>,
    /// The ids that the client's timers have in the history. The keys are the ids under which the store keeps them.
    named: HashMap<String, Id>,
}

/// The outcome of a request: the status and the body of the response. If no response arrived, the outcome is the
/// [`Answer`] that the run's history records for the request.
type Response = Result<(u16, Value), Answer>;

impl Requests {
    pub(super) fn new(nodes: Addresses, receiver: String, response: Duration, number: usize) -> Self {
        Self {
            nodes,
            receiver,
            response,
            turn: number,
            open: None,
            sent: 0,
            stored: HashMap::new(),
            named: HashMap::new(),
        }
    }

    fn connect(&mut self) -> Option<&mut BufReader<TcpStream>> {
        if self.sent >= TURN {
            self.open = None;
        }
        if self.open.is_none() {
            (self.turn, self.sent) = (self.turn + 1, 0);
            let stream = TcpStream::connect_timeout(&self.nodes.nth(self.turn)?, self.response).ok()?;
            stream.set_read_timeout(Some(self.response)).ok()?;
            stream.set_nodelay(true).ok()?;
            self.open = Some(BufReader::new(stream));
        }
        self.sent += 1;
        self.open.as_mut()
    }

    fn request(&mut self, method: &str, path: &str, header: &str, body: &Value) -> Response {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let text = format!(
            "{method} /v1/namespaces/default/{path} HTTP/1.1\r\nhost: localhost\r\n{kind}{header}content-length: {}\r\n\r\n\
             {body}",
            body.len()
        );
        let Some(stream) = self.connect() else {
            std::thread::sleep(Duration::from_millis(20));
            return Err(Answer::Failed);
        };
        let answer = stream.get_mut().write_all(text.as_bytes()).and_then(|()| Message::read(stream));
        let Ok(Some(message)) = answer else {
            self.open = None;
            return Err(Answer::Unknown);
        };
        let status = message.first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = serde_json::from_slice(&message.body).unwrap_or_default();
        Ok((status, body))
    }

    /// Converts a response that reports a failure to the answer that the history records.
    fn refused(status: u16, body: &Value) -> Answer {
        match (status, body["type"].as_str().unwrap_or_default()) {
            (409, "/problems/key-exists") => Answer::KeyExists(0),
            (409, "/problems/wrong-phase") => Answer::Leased,
            (404, _) => Answer::NotFound,
            // The service does not know yet whether the earlier request has an effect.
            (409, "/problems/idempotency-in-progress") | (408, _) => Answer::Unknown,
            (429 | 500.., _) if body["outcome"] == "unknown" => Answer::Unknown,
            (429 | 500.., _) => Answer::Failed,
            _ => panic!("the service refuses a request of the run: {status} {body}"),
        }
    }

    fn place(&mut self, place: &Place, wanted: &Wanted) -> Response {
        let url = format!("{}{}", self.receiver, path(place.id, wanted.fails));
        let body = json!({
            "due": UtcMillis::from_millis(place.due).to_string(),
            "callback": { "url": url },
            "policy": policy(wanted.attempts, place.is_once),
            "if_present": if place.replaces { "replace" } else { "reject" },
        });
        let header = format!("idempotency-key: {:x}\r\n", place.id);
        match &place.key {
            Some(key) => self.request("PUT", &format!("timers/{key}"), &header, &body),
            None => self.request("POST", "timers", &header, &body),
        }
    }

    fn placed(&mut self, id: Id, body: &Value) -> Answer {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let stored = text(&body["id"]);
        self.named.insert(stored.clone(), id);
        self.stored.insert(id, stored);
        match body["outcome"].as_str() {
            Some("created") => Answer::Created,
            Some("repeated") => Answer::Repeated,
            Some("replaced") => {
                let old = text(&body["replaced"]["id"]);
                let id = self.named.get(&old).copied().or_else(|| id_of_text(&old)).unwrap_or_default();
                Answer::Replaced(id, body["replaced"]["was"] == "leased")
            }
            _ => panic!("an unknown outcome of a creation: {body}"),
        }
    }

    fn call(&mut self, wanted: &Wanted) -> Answer {
        let response = match &wanted.call {
            Call::Place(place) => self.place(place, wanted),
            Call::Cancel(id) => {
                let path = format!("ids/{}", self.stored[id]);
                self.request("DELETE", &path, "", &Value::Null)
            }
            Call::Move(id, due) => {
                let path = format!("ids/{}", self.stored[id]);
                let due = json!({ "due": UtcMillis::from_millis(*due).to_string() });
                self.request("PATCH", &path, "", &due)
            }
        };
        let (status, body) = match response {
            Ok(response) => response,
            Err(answer) => return answer,
        };
        if !matches!(status, 200 | 201) {
            if matches!(status, 408 | 429 | 500..) {
                // The node cannot serve the request now, so the next request goes to another node.
                self.open = None;
                std::thread::sleep(Duration::from_millis(20));
            }
            return Self::refused(status, &body);
        }
        match &wanted.call {
            Call::Place(place) => self.placed(place.id, &body),
            Call::Move(..) => Answer::Moved,
            Call::Cancel(_) => match body["result"].as_str() {
                Some("cancelled") => Answer::Cancelled,
                Some("in-flight") => Answer::InFlight,
                _ => Answer::NotFound,
            },
        }
    }
}

impl Door for Requests {
    /// Returns the machine's time of day. The PostgreSQL server of the run uses the same clock.
    fn now(&mut self) -> UtcMillis {
        UtcMillis::from_millis((wall() + moment()) / 1_000)
    }

    fn send(&mut self, wanted: &[Wanted]) -> Vec<Answer> {
        wanted.iter().map(|wanted| self.call(wanted)).collect()
    }
}
