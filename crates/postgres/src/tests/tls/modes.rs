//! Tests the modes, on servers with and without TLS and with good and bad certificates.

use super::rig::{Files, Middle, Secure, WITH_TLS, WITHOUT_TLS, accepted, refused, self_signed};
use crate::link::Failure;
use crate::{Connect, ConnectError, PostgresStore, Tls};
use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_fault::{Authority, Issued, Postgres};

const ALL: &str = "host all all 127.0.0.1/32 trust\n";

#[test]
fn each_mode_takes_the_servers_for_which_it_is() {
    let (authority, other, files) = (Authority::new("ours"), Authority::new("other"), Files::new());
    let own = authority.server(&["localhost", "127.0.0.1"]);
    let Some(mut secure) = Secure::start(&own, &authority.pem(), ALL) else { return };
    let ours = files.put("ours.pem", &authority.pem());
    let others = files.put("others.pem", &other.pem());
    // A file may have several authorities.
    let both = files.put("both.pem", &format!("{}{}", other.pem(), authority.pem()));
    let (ours, others, both) = (ours.display(), others.display(), both.display());
    let at = |words: &str| secure.address("postgres", words);
    accepted(&at("sslmode=disable"), WITHOUT_TLS);
    for words in ["", "sslmode=prefer", "sslmode=require"] {
        accepted(&at(words), WITH_TLS);
    }
    for mode in ["sslmode=require&", "sslmode=verify-ca&", "sslmode=verify-full&", ""] {
        accepted(&at(&format!("{mode}sslrootcert={ours}")), WITH_TLS);
        accepted(&at(&format!("{mode}sslrootcert={both}")), WITH_TLS);
        let failure =
            refused(&at(&format!("{mode}sslrootcert={others}")), "from no authority that is trusted");
        assert!(matches!(failure, Failure::Failed(_)), "{failure:?}");
    }
    // The system does not know this authority. A system may have no authorities at all.
    let _failure = refused(&at("sslmode=verify-full"), "authorit");
    let _failure = refused(&at("sslrootcert=system"), "authorit");

    // The name of the host decides, and not its address.
    let named = |host: &str, mode: &str| {
        format!(
            "host={host} hostaddr=127.0.0.1 port={} user=postgres sslmode={mode} sslrootcert='{ours}'",
            secure.0.port()
        )
    };
    accepted(&named("localhost", "verify-full"), WITH_TLS);
    accepted(&named("db.example", "verify-ca"), WITH_TLS);
    let words = "the certificate of the server is not for db.example, but for localhost, 127.0.0.1";
    let _failure = refused(&named("db.example", "verify-full"), words);
    let _failure = refused(&named("a..b", "verify-full"), "the host must be a DNS name");

    let (past, future) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2900, 1, 1));
    let nameless = authority.changed(|parameters| parameters.subject_alt_names.clear());
    for (own, words) in [
        (authority.changed(|parameters| parameters.not_after = past), "expired "),
        (authority.changed(|parameters| parameters.not_before = future), "is valid only in "),
        (nameless, "no name in subjectAltName"),
        (self_signed(&rcgen::PKCS_ECDSA_P256_SHA256, true), "is that of an authority (CA:TRUE)"),
    ] {
        // A trusted authority shows its own certificate. It may not serve with it.
        let _path = files.put("ours.pem", &format!("{}{}", authority.pem(), own.certificate));
        secure.0.present(&own);
        let full = format!("sslmode=verify-full&sslrootcert={ours}");
        let _failure = refused(&secure.address("postgres", &full), words);
        accepted(&secure.address("postgres", "sslmode=require"), WITH_TLS);
    }
    // A certificate that its own key has signed vouches for itself.
    let own = self_signed(&rcgen::PKCS_ED25519, false);
    let _path = files.put("ours.pem", &own.certificate);
    secure.0.present(&own);
    accepted(&secure.address("postgres", &format!("sslrootcert={ours}")), WITH_TLS);
}

#[test]
fn an_authority_that_is_not_valid_now_vouches_for_no_server() {
    let (past, future) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2900, 1, 1));
    let expired = Authority::with("ours", |parameters| parameters.not_after = past);
    let early = Authority::with("ours", |parameters| parameters.not_before = future);
    let (other, files) = (Authority::new("other"), Files::new());
    let Some(mut secure) = Secure::start(&expired.server(&["127.0.0.1"]), &other.pem(), ALL) else { return };
    for (authority, words) in [(&expired, "authority expired "), (&early, "authority is valid only in ")] {
        secure.0.present(&authority.server(&["127.0.0.1"]));
        let ours = files.put("ours.pem", &authority.pem());
        let both = files.put("both.pem", &format!("{}{}", authority.pem(), other.pem()));
        let (ours, both) = (ours.display(), both.display());
        for mode in ["verify-ca", "verify-full"] {
            let at = |path: String| secure.address("postgres", &format!("sslmode={mode}&sslrootcert={path}"));
            let failure = refused(&at(ours.to_string()), words);
            assert!(matches!(failure, Failure::Failed(_)), "{failure:?}");
            let _failure = refused(&at(both.to_string()), "from no authority that is trusted");
        }
        accepted(&secure.address("postgres", "sslmode=require"), WITH_TLS);
    }
    // An authority that follows an expired one stands beside it.
    secure.0.present(&other.server(&["127.0.0.1"]));
    let both = files.put("both.pem", &format!("{}{}", expired.pem(), other.pem()));
    accepted(&secure.address("postgres", &format!("sslrootcert={}", both.display())), WITH_TLS);
}

#[test]
fn a_server_without_tls_is_refused_if_the_mode_insists() {
    let Some(server) = Postgres::start(&[]) else { return };
    for words in ["", "?sslmode=prefer", "?sslmode=disable"] {
        accepted(&format!("{}{words}", server.url()), WITHOUT_TLS);
    }
    let files = Files::new();
    let ours = files.put("ours.pem", &Authority::new("ours").pem());
    for words in ["sslmode=require".to_owned(), format!("sslrootcert={}", ours.display())] {
        let _failure = refused(&format!("{}?{words}", server.url()), "server does not support TLS");
    }
    // A local socket has no TLS, as in libpq.
    let socket = format!("host={} port={} user=postgres", server.folder().display(), server.port());
    for words in ["", " sslmode=require", " sslmode=verify-full"] {
        accepted(&format!("{socket}{words}"), WITHOUT_TLS);
    }
}

#[test]
fn rules_of_the_server_for_connections_with_and_without_tls_are_met() {
    let authority = Authority::new("ours");
    let rules = "hostssl all only_tls 127.0.0.1/32 trust\nhostnossl all no_tls 127.0.0.1/32 trust\n";
    let own = authority.server(&["127.0.0.1"]);
    let Some(secure) = Secure::start(&own, &authority.pem(), rules) else { return };
    let _made = secure.0.sql("CREATE ROLE only_tls LOGIN; CREATE ROLE no_tls LOGIN; CREATE ROLE never LOGIN");
    accepted(&secure.address("only_tls", "sslmode=prefer"), WITH_TLS);
    accepted(&secure.address("only_tls", "sslmode=require"), WITH_TLS);
    let failure = refused(&secure.address("only_tls", "sslmode=disable"), "no encryption");
    assert!(matches!(failure, Failure::Failed(_)), "{failure:?}");
    accepted(&secure.address("no_tls", "sslmode=prefer"), WITHOUT_TLS);
    let _failure = refused(&secure.address("no_tls", "sslmode=require"), "SSL encryption");
    // The error names both attempts.
    let failure = refused(&secure.address("never", ""), "no encryption; with TLS: ");
    assert!(format!("{failure:?}").contains("SSL encryption"), "{failure:?}");
}

#[test]
fn the_mode_prefer_goes_on_without_tls_if_the_handshake_fails() {
    let Some(server) = Postgres::start(&[]) else { return };
    // The program refuses clients that ask for the protocol of PostgreSQL.
    let own = Authority::new("ours").server(&["127.0.0.1"]);
    let middle = Middle::start(&server, &own, false, &[b"h2"]);
    let at = |words: &str| format!("postgresql://postgres@127.0.0.1:{}/postgres?{words}", middle.port);
    accepted(&at("sslmode=prefer"), WITHOUT_TLS);
    let failure = refused(&at("sslmode=require"), "the handshake of TLS failed");
    assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
    let failure =
        refused(&at("sslmode=prefer&channel_binding=require"), "did not use channel binding; with TLS: ");
    assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
}

/// PostgreSQL accepts connections that begin with TLS only from version 17 on. So here a program in front of the server
/// accepts them.
#[test]
fn a_connection_may_begin_with_tls() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (authority, files) = (Authority::new("ours"), Files::new());
    let own = authority.server(&["127.0.0.1"]);
    let ours = files.put("ours.pem", &authority.pem());
    let at = |port: u16| {
        let ours = ours.display();
        format!("postgresql://postgres@127.0.0.1:{port}/postgres?sslnegotiation=direct&sslrootcert={ours}")
    };
    let middle = Middle::start(&server, &own, true, &[b"postgresql"]);
    // The server behind the program sees no TLS.
    accepted(&at(middle.port), WITHOUT_TLS);
    let other = Middle::start(&server, &own, true, &[]);
    let _failure = refused(&at(other.port), "has not said that it is PostgreSQL");
    // The server itself reads the first bytes of TLS as a length that is too great.
    let _failure = refused(&at(server.port()), "the handshake of TLS failed");
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for mode in ["disable", "require"] {
        let address = format!("postgresql://a@127.0.0.1:{port}/d?sslmode={mode}");
        let connect = Connect::to(&address).unwrap().response_timeout(Duration::from_millis(300));
        let begin = Instant::now();
        let failure = super::rig::refused_by(&connect, "has not answered in time");
        assert!(matches!(failure, Failure::Lost(_)) && begin.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused_before_a_connection() {
    for (address, words) in [
        ("postgresql://a@h/d?sslmode=hunter2", "one of disable, prefer, require, verify-ca and verify-full"),
        ("postgresql://a@h/d?sslmode=", "sslmode is empty"),
        ("host=h sslmode=allow", "sslmode=allow is not supported"),
        ("host=h sslcert=/c", "sslcert and sslkey are set together"),
        ("host=h sslcrl=/c", "sslcrl is not supported"),
        ("host=h sslpassword=hunter2", "sslpassword is not supported"),
        ("host=h sslnegotiation=hunter2", "invalid value for option `sslnegotiation`"),
        ("host=h password=a hunter2=b", "invalid connection string"),
    ] {
        let error = Connect::to(address).expect_err(address);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(words) && !shown.contains("hunter2"), "{address}: {shown}");
    }
    for (address, words) in [
        ("host=h sslmode=verify-ca", "needs an authority"),
        ("host=h sslmode=prefer sslrootcert=/c", "checks nothing"),
        ("host=h sslmode=verify-ca sslrootcert=system", "too weak"),
        ("host=h sslmode=disable sslcert=/c sslkey=/k", "is for TLS"),
        ("host=h sslnegotiation=direct", "sslnegotiation=direct needs TLS"),
        ("host=h,/run sslmode=require", "a local socket"),
        ("host=/run hostaddr=10.0.0.5 sslmode=verify-full", "hostaddr, which needs the name of a host"),
        ("host=h,/run hostaddr=10.0.0.5,10.0.0.6", "hostaddr, which needs the name of a host"),
        (
            "postgresql://%2Frun/d?hostaddr=10.0.0.5&sslmode=disable",
            "hostaddr, which needs the name of a host",
        ),
    ] {
        let connect = Connect::to(address).unwrap();
        let error = connect.check().unwrap_err();
        assert!(matches!(error, ConnectError::Tls(_)) && error.to_string().contains(words), "{error}");
        let opened = pollster::block_on(PostgresStore::builder().open(&connect));
        assert_eq!(opened.unwrap_err().kind(), StoreErrorKind::Limit, "{address}");
    }
    // An authority of the program is enough.
    let tls = Tls::new().authority(Authority::new("ours").pem());
    Connect::to("host=h sslmode=verify-ca").unwrap().tls(tls).check().unwrap();
    Connect::to("host=/run,/tmp sslmode=verify-full").unwrap().check().unwrap();
    Connect::to("host=h hostaddr=10.0.0.5 sslmode=verify-full").unwrap();
}

/// Runs the command of the README that makes a certificate.
#[test]
fn the_certificate_of_the_page_is_taken_by_its_name() {
    let page = include_str!("../../../README.md");
    let (_, command) = page.split_once("```sh\nopenssl req").expect("the page has the command");
    let (command, _) = command.split_once("```").unwrap();
    let files = Files::new();
    let folder = files.put("x", "").with_file_name("");
    let made =
        Command::new("sh").args(["-c", &format!("openssl req{command}")]).current_dir(&folder).output();
    let made = made.unwrap();
    if made.status.code() == Some(127) {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    assert!(made.status.success(), "{made:?}");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let own = Issued { certificate: read("server.crt"), key: read("server.key") };
    let Some(secure) = Secure::start(&own, &own.certificate, ALL) else { return };
    accepted(
        &format!(
            "host=db.example hostaddr=127.0.0.1 port={} user=postgres sslrootcert='{}'",
            secure.0.port(),
            folder.join("server.crt").display(),
        ),
        WITH_TLS,
    );
}
