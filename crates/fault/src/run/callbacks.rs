//! Receives the callbacks of `tourbillond`, and writes each callback into the journal before it answers the callback.
//!
//! A callback's path contains the timer's id in the history, and the number of deliveries that the receiver refuses
//! first. Each node reaches the receiver at a different address of this machine. So the receiver knows which node has
//! sent a callback.

use super::http::Message;
use super::moment;
use super::node::{AGAIN, SLOW, is_slow};
use super::receiver::Journal;
use crate::history::{Delivery, Id, Record};
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::timer::Timer;

/// The host name of the receiver in the URLs of callbacks. Each node has its own name server, which resolves the name.
pub(super) const HOST: &str = "receiver.test";

/// The address 127.1.0.0 as a number. The sum of this number and a node's number is the address at which the node
/// reaches the receiver. Smaller addresses have other uses.
const FIRST: u32 = 0x7f01_0000;

/// Returns the address of this machine at which the node with this number reaches the receiver. Each node uses another
/// address, so the receiver knows which node has sent a callback.
fn address_of(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST + node)
}

/// Returns the name of the node with this number.
pub(super) fn name_of(node: u32) -> String {
    format!("n{node}")
}

/// Returns the path of a timer's callbacks. The receiver refuses the first `fails` of them.
pub(super) fn path(id: Id, fails: u32) -> String {
    format!("/{id:x}/{fails}")
}

fn read(path: &str) -> Option<(Id, u32)> {
    let (id, fails) = path.strip_prefix('/')?.split_once('/')?;
    Some((Id::from_str_radix(id, 16).ok()?, fails.parse().ok()?))
}

/// Reads an id as the store's interfaces write it: in hexadecimal digits, with hyphens.
pub(super) fn id_of_text(text: &str) -> Option<Id> {
    Id::from_str_radix(&text.replace('-', ""), 16).ok()
}

/// Returns the id that a stored timer has in the history. For a timer with a callback, the id is in the callback's URL.
/// For any other timer, it is the store's id.
pub(super) fn id_of(timer: &Timer) -> Id {
    let payload = String::from_utf8_lossy(&timer.payload.0);
    let after = payload.split_once(HOST).and_then(|(_, after)| after.split_once('/'));
    let id = after.and_then(|(_, id)| Id::from_str_radix(id.split('/').next()?, 16).ok());
    id.unwrap_or_else(|| timer.id.as_u128())
}

/// Starts a name server for the node with this number, and returns the server's address. The server answers each
/// look-up with the address at which the node reaches the receiver. It runs until this process ends.
pub(super) fn serve_names(node: u32) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = socket.local_addr()?;
    drop(thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            if let Some(answer) = answer(&question[..length], address_of(node)) {
                drop(socket.send_to(&answer, from));
            }
        }
    }));
    Ok(address)
}

/// Returns a name server's answer: `address` if the question asks for an IPv4 address, and no record otherwise.
fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    const HEAD: usize = 12;
    let mut end = HEAD;
    while *question.get(end)? != 0 {
        end += usize::from(question[end]) + 1;
    }
    let asked = question.get(HEAD..end + 5)?;
    let is_v4 = asked.ends_with(&[0, 1, 0, 1]);
    // A good answer to one question, with one record or none.
    let mut answer =
        [question.get(..2)?, &[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0], asked].concat();
    if is_v4 {
        // A record for the name in the question: an address, valid for a minute.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// Accepts callbacks of nodes at `listener`, and writes each callback to `journal` before answering it. Never returns.
pub(super) fn receive(listener: &TcpListener, journal: &Arc<Journal>) {
    for stream in listener.incoming() {
        let (Ok(stream), journal) = (stream, Arc::clone(journal)) else { continue };
        // The thread ends with the connection.
        drop(thread::spawn(move || serve(&stream, &journal)));
    }
}

fn serve(stream: &TcpStream, journal: &Journal) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let node = match stream.local_addr()? {
        SocketAddr::V4(address) => name_of(address.ip().to_bits().wrapping_sub(FIRST)),
        SocketAddr::V6(_) => "?".to_owned(),
    };
    let mut incoming = BufReader::new(stream);
    while let Some(request) = Message::read(&mut incoming)? {
        let Some(delivery) = delivery(&request, &node) else {
            (&mut &*stream).write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        let (id, is_done) = (delivery.id, delivery.is_done);
        journal.write(&Record::Delivered(delivery))?;
        // Some callbacks are slow, so that faults hit deliveries under way.
        if is_slow(id) {
            thread::sleep(SLOW);
        }
        let answer: &[u8] = if is_done {
            b"HTTP/1.1 204 No Content\r\n\r\n"
        } else {
            b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"
        };
        (&mut &*stream).write_all(answer)?;
    }
    Ok(())
}

fn delivery(request: &Message, node: &str) -> Option<Delivery> {
    let begun = moment();
    let (id, fails) = read(request.first.split(' ').nth(1)?)?;
    let attempt = request.header("tourbillon-attempt")?.parse().ok()?;
    let scheduled: UtcMillis = request.header("tourbillon-scheduled-for")?.parse().ok()?;
    let stored = id_of_text(request.header("webhook-id")?)?;
    Some(Delivery {
        arrived: begun,
        begun,
        id,
        stored,
        attempt,
        delivery: attempt,
        due: scheduled.as_millis(),
        scheduled: scheduled.as_millis(),
        node: node.into(),
        series: None,
        is_done: attempt > fails,
    })
}

/// Returns the delivery policy for a timer with a callback, as JSON: the number of attempts, the guarantee, and the
/// pause after a failed attempt. The HTTP interface and the SQL functions accept this JSON.
pub(super) fn policy(attempts: u32, is_once: bool) -> serde_json::Value {
    let guarantee = if is_once { "at-most-once" } else { "at-least-once" };
    let pause = u64::try_from(AGAIN.as_millis()).unwrap_or(50);
    serde_json::json!({
        "attempts": attempts,
        "guarantee": guarantee,
        "backoff": { "kind": "fixed", "pause_ms": pause },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::timer::{Payload, TimerId};

    #[test]
    fn a_name_server_answers_with_the_address_of_its_node() {
        let question =
            |kind| [&[7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, b'r', 0, 0, kind, 0, 1][..], &[9; 11]].concat();
        let found = answer(&question(1), address_of(3)).unwrap();
        assert_eq!((&found[..2], found[7], &found[found.len() - 4..]), (&[7, 9][..], 1, &[127, 1, 0, 3][..]));
        let none = answer(&question(28), address_of(3)).unwrap();
        assert_eq!((none[7], none.len()), (0, 19));
        assert_eq!(answer(&question(1)[..14], address_of(3)), None);
    }

    #[test]
    fn a_callback_names_its_timer() {
        let payload =
            Payload(format!("\u{1}\u{20}http://{HOST}:1{}\u{4}POST", path(0xabc, 2)).into_bytes().into());
        let timer = Timer { payload, ..Timer::new(TimerId::from_u128(1), "callback", UtcMillis::ZERO) };
        assert_eq!(id_of(&timer), 0xabc);
        assert_eq!(id_of(&Timer::new(TimerId::from_u128(1), "fault", UtcMillis::ZERO)), 1);
    }
}
