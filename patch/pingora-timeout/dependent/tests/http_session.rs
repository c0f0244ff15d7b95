//! The read timeout of pingora's HTTP session runs on the engine, which counts it.

mod observing;

use observing::{MS, observed};
use pingora_core::ErrorType;
use pingora_timeout_dependent::read_response;
use tokio::net::{TcpListener, TcpStream};

#[test]
fn a_silent_server_is_given_up_by_a_timer_of_the_engine() {
    let (outcome, time, fired) = observed(async {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("bound");
        let (client, _peer) = tokio::join!(TcpStream::connect(address), server.accept());
        read_response(client.expect("a connection"), 40 * MS).await
    });
    let error = outcome.expect_err("the server is silent");
    assert_eq!(error.etype(), &ErrorType::ReadTimedout);
    assert_eq!(fired, 1);
    assert!(time >= 40 * MS, "{time:?}");
}
