//! Tests the messages to the service manager: ready, alive, and stopping.

use crate::process::{Daemon, SOON, folder, program};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;

#[test]
fn the_manager_learns_when_the_service_is_ready_alive_and_stopping() {
    let folder = folder();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let next = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap().trim().to_owned()
    };
    let mut command = program(folder.path(), &["--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
    let mut daemon = Daemon::spawn(command);
    assert_eq!(next(), "READY=1");
    for _ in 0..5 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    daemon.signal(Signal::TERM);
    while next() != "STOPPING=1" {}
    assert!(daemon.end(SOON).success());
}
