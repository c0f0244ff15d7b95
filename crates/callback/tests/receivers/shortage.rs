//! Tests callbacks on a machine that lacks file descriptors. Such a callback is not sent, and its receiver has no part
//! in that.

use crate::{ATTEMPT, Receiver, answer, callback, settings};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_callback::{Attempt, Caller, Outcome};

/// Opens files until the process may open no more.
fn take_all_descriptors() -> Vec<File> {
    core::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn is_unsent(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unsent { error } if error.contains("no free"))
}

/// Runs the ignored test below in a process of its own that may open few files.
#[cfg(unix)]
#[test]
fn a_shortage_of_file_descriptors_is_no_fault_of_the_receiver() {
    let test = std::env::current_exe().unwrap();
    let run = "ulimit -n 64 && exec \"$0\" --ignored --exact shortage::with_few_file_descriptors";
    let run = Command::new("sh").args(["-c", run]).arg(test).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "it needs a process of its own, which may open only 64 files"]
async fn with_few_file_descriptors() {
    let receiver = Receiver::start(answer("204 No Content", "")).await;
    // This name server would answer nothing, and it is not asked.
    let nobody = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings();
    settings.hosts.failures = 1;
    settings.name_servers = vec![nobody.local_addr().unwrap()];
    let caller = Caller::new(settings).unwrap();
    let taken = take_all_descriptors();
    assert!(!taken.is_empty());
    for url in [receiver.url(), format!("http://a.example:{}/", receiver.address.port())] {
        for _ in 0..3 {
            let outcome = caller.send(&callback(&url), ATTEMPT).await;
            assert!(is_unsent(&outcome), "{url}: {outcome:?}");
        }
    }
    assert!(caller.hosts().iter().all(|host| host.failures == 0 && host.open_for.is_none()));
    // An attempt that must not be repeated waits for a file descriptor, up to its timeout.
    let once = |timeout| Attempt { is_once: true, timeout, ..ATTEMPT };
    let outcome = caller.send(&callback(&receiver.url()), once(Duration::from_secs(1))).await;
    assert!(is_unsent(&outcome), "{outcome:?}");
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(taken);
    });
    let outcome = caller.send(&callback(&receiver.url()), once(Duration::from_secs(30))).await;
    assert!(matches!(outcome, Outcome::Delivered(_)), "{outcome:?}");
    assert_eq!(receiver.requests().len(), 1);
}

/// A resolver of the program's own can lack a file descriptor, too.
#[cfg(unix)]
#[tokio::test]
async fn a_look_up_that_finds_no_file_descriptor_is_no_fault_of_the_name() {
    let mut settings = settings();
    // The number of the error is the same on all systems of this kind.
    settings.resolver = Some(Arc::new(|_: &str, _| {
        Box::pin(async { Err::<Vec<SocketAddr>, _>(io::Error::from_raw_os_error(24)) })
    }));
    let caller = Caller::new(settings).unwrap();
    let outcome = caller.send(&callback("http://a.example/"), ATTEMPT).await;
    assert!(is_unsent(&outcome), "{outcome:?}");
}

/// Each idle connection takes a file descriptor and a port, so hosts without end must not keep one each.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_wait_for_a_further_callback_are_bounded_over_all_hosts() {
    const HOSTS: u16 = 700;
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    tokio::spawn({
        let open = Arc::clone(&open);
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                let open = Arc::clone(&open);
                tokio::spawn(async move {
                    open.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    serve_until_closed(stream).await;
                    open.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                });
            }
        }
    });
    let caller = Caller::new(settings()).unwrap();
    for host in 0..HOSTS {
        let url = format!("http://127.1.{}.{}:{port}/", host / 250, host % 250 + 1);
        let outcome = caller.send(&callback(&url), ATTEMPT).await;
        assert!(matches!(outcome, Outcome::Delivered(_)), "{outcome:?}");
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let open = open.load(std::sync::atomic::Ordering::Relaxed);
    assert!(open <= 520, "{open} idle connections");
}

#[cfg(target_os = "linux")]
async fn serve_until_closed(mut stream: tokio::net::TcpStream) {
    use tokio::io::AsyncWriteExt as _;
    while crate::read_request(&mut stream).await.is_some() {
        let _has_closed = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    }
}
