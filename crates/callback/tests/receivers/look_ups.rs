//! Tests look-ups at a name server of the test's own.

use crate::{ATTEMPT, Receiver, answer, callback, settings};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tourbillon_callback::{Caller, Outcome};

/// The number of the type of a record with an IPv4 address.
const A: [u8; 2] = [0, 1];

/// Starts a name server that knows the address 127.0.0.1 of every name. It answers questions for IPv6 addresses only if
/// `answers_v6` is true. It then says that there are none.
async fn name_server(answers_v6: bool) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut query = [0; 1_500];
        while let Ok((length, from)) = socket.recv_from(&mut query).await {
            // The question follows the header of 12 bytes: a name that ends with a zero, a type and a class.
            let name = query[12..length].iter().position(|byte| *byte == 0).unwrap();
            let end = 12 + name + 5;
            let is_v4 = query[end - 4..end - 2] == A;
            if !is_v4 && !answers_v6 {
                continue;
            }
            let mut reply = query[..2].to_vec();
            reply.extend([0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
            reply.extend(&query[12..end]);
            if is_v4 {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            socket.send_to(&reply, from).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_name_server_that_knows_one_family_of_addresses_delays_little() {
    let receiver = Receiver::start(answer("204 No Content", "")).await;
    for answers_v6 in [true, false] {
        let mut settings = settings();
        settings.name_servers = vec![name_server(answers_v6).await];
        let caller = Caller::new(settings).unwrap();
        // An underscore is in no name of a machine by the rules, and in many names all the same.
        for name in ["one.example", "my_service", "a_b.example."] {
            let url = format!("http://{name}:{}/", receiver.address.port());
            let begun = Instant::now();
            let outcome = caller.send(&callback(&url), ATTEMPT).await;
            assert!(matches!(outcome, Outcome::Delivered(_)), "{name}: {outcome:?}");
            assert!(begun.elapsed() < Duration::from_millis(1_200), "{name}: {:?}", begun.elapsed());
        }
    }
}
