//! Tests client certificates, and files that change while a store is open.

use super::rig::{Files, Secure, Seen, dial, refused, refused_by};
use crate::{Connect, ConnectError, PostgresStore, Tls};
use std::time::Duration;
use tourbillon_durable::store::{StoreErrorKind, TimerStore as _};
use tourbillon_fault::{Authority, Issued, eventually};

const RULES: &str = "hostssl all by_certificate 127.0.0.1/32 cert
hostssl all by_both 127.0.0.1/32 trust clientcert=verify-full
hostssl all by_any 127.0.0.1/32 trust clientcert=verify-ca\n";

const ROLES: &str = "CREATE ROLE by_certificate LOGIN; CREATE ROLE by_both LOGIN; CREATE ROLE by_any LOGIN";

#[test]
fn a_client_certificate_is_sent_and_a_missing_or_wrong_one_is_named() {
    let (authority, users, files) = (Authority::new("ours"), Authority::new("users"), Files::new());
    let own = authority.server(&["127.0.0.1"]);
    let Some(secure) = Secure::start(&own, &users.pem(), RULES) else { return };
    let _made = secure.0.sql(ROLES);
    let ours = files.put("ours.pem", &authority.pem());
    let at =
        |user: &str, words: &str| secure.address(user, &format!("sslrootcert={}{words}", ours.display()));
    for user in ["by_certificate", "by_both", "by_any"] {
        let _failure = refused(&at(user, ""), "requires a valid client certificate");
        let issued = users.user(user);
        let tls = Tls::new().certificate(issued.certificate.clone(), issued.key.clone());
        let connect = Connect::to(&at(user, "")).unwrap().tls(tls);
        let seen = Seen { has_tls: true, user: Some(format!("/CN={user}")) };
        assert_eq!(dial(&connect).unwrap(), seen);

        let certificate = files.put("own.pem", &issued.certificate);
        let key = files.put("own.key", &issued.key);
        let words = format!("&sslcert={}&sslkey={}", certificate.display(), key.display());
        assert_eq!(dial(&Connect::to(&at(user, &words)).unwrap()).unwrap(), seen);
        // The mode prefer sends a certificate as well.
        let words = format!("sslmode=prefer{words}");
        assert_eq!(dial(&Connect::to(&secure.address(user, &words)).unwrap()).unwrap(), seen);
    }

    // Of another user, of another authority, and one that has expired.
    let sent = |user: &str, issued: &Issued| {
        let tls = Tls::new().certificate(issued.certificate.clone(), issued.key.clone());
        Connect::to(&at(user, "")).unwrap().tls(tls)
    };
    let _failure =
        refused_by(&sent("by_certificate", &users.user("by_any")), "certificate authentication failed");
    assert!(dial(&sent("by_any", &users.user("somebody"))).is_ok());
    let past = rcgen::date_time_ymd(2020, 1, 1);
    let expired = users.changed(|parameters| parameters.not_after = past);
    for issued in [Authority::new("others").user("by_any"), expired] {
        let message = refused_by(&sent("by_any", &issued), "").into_error().to_string();
        // The server ends the connection after its alert. So the alert may be lost.
        let is_named = message.contains("the server does not accept the client certificate");
        assert!(is_named || message.contains("error communicating with the server"), "{message}");
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_before_a_connection_and_no_key_is_shown() {
    let (authority, files) = (Authority::new("ours"), Files::new());
    let (one, two) = (authority.user("one"), authority.user("two"));
    let missing = files.put("x", "").with_file_name("missing");
    let empty = files.put("empty", "hunter2");
    let damaged = one.key.replacen("\n", "\n*hunter2*", 1);
    let encrypted = one.key.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let (certificate, key) = (files.put("one.pem", &one.certificate), files.put("one.key", &one.key));
    for (tls, words) in [
        (Tls::new().authority_from(&missing), "missing cannot be read"),
        (Tls::new().authority_from(&empty), "empty: there is no certificate"),
        (Tls::new().authority("hunter2"), "a certificate in memory: there is no certificate"),
        (Tls::new().certificate_from(&missing, &key), "missing cannot be read"),
        (Tls::new().certificate_from(&certificate, &missing), "missing cannot be read"),
        (Tls::new().certificate_from(&certificate, &empty), "empty: there is no private key"),
        (Tls::new().certificate(one.certificate.clone(), damaged), "not valid PEM"),
        (Tls::new().certificate(one.certificate.clone(), encrypted), "or it is encrypted"),
        (Tls::new().certificate(one.certificate.clone(), two.key.clone()), "the key is that of another"),
    ] {
        let connect = Connect::to("postgresql://a:hunter2@h/d?sslmode=verify-full").unwrap();
        // The system may have no authorities.
        let connect = connect.tls(Tls::new().authority(authority.pem())).tls(tls);
        let error = connect.check().unwrap_err();
        let shown = format!("{error} {error:?} {connect:?}");
        assert!(matches!(error, ConnectError::Certificate(_)) && shown.contains(words), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("PRIVATE"), "{shown}");
        let opened = pollster::block_on(PostgresStore::builder().open(&connect));
        assert_eq!(opened.unwrap_err().kind(), StoreErrorKind::Io);
    }
}

/// A store stays open while the authorities of the server and of its users change. New connections take the new files.
#[test]
fn files_that_have_changed_are_read_for_new_connections() {
    let (authority, users, files) = (Authority::new("ours"), Authority::new("users"), Files::new());
    let own = authority.server(&["127.0.0.1"]);
    let rules = "hostssl all owner 127.0.0.1/32 cert\n";
    let Some(mut secure) = Secure::start(&own, &users.pem(), rules) else { return };
    let _made = secure.0.sql("CREATE ROLE owner LOGIN SUPERUSER");
    let put = |authority: &Authority, users: &Authority| {
        let issued = users.user("owner");
        let paths = [
            files.put("ours.pem", &authority.pem()),
            files.put("own.pem", &issued.certificate),
            files.put("own.key", &issued.key),
        ];
        paths.map(|path| path.display().to_string())
    };
    let [ours, certificate, key] = put(&authority, &users);
    let words = format!("sslrootcert={ours}&sslcert={certificate}&sslkey={key}");
    let connect = Connect::to(&secure.address("owner", &words)).unwrap().patience(Duration::from_millis(500));
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect)).unwrap();
    let counts = || pollster::block_on(store.counts()).map(drop);
    counts().unwrap();

    let (authority, users) = (Authority::new("ours, later"), Authority::new("users, later"));
    secure.0.put("users.crt", &users.pem());
    secure.0.present(&authority.server(&["127.0.0.1"]));
    // The connections have ended, and the files are the old ones.
    let error = counts().unwrap_err();
    assert!(error.is_transient() && error.kind() == StoreErrorKind::Io, "{error}");
    assert!(error.to_string().contains("from no authority that is trusted"), "{error}");
    let _paths = put(&authority, &users);
    eventually("the store has connections again", || counts().is_ok());

    // The new key is written later than its certificate.
    let issued = users.user("owner");
    let _path = files.put("own.pem", &issued.certificate);
    secure.0.shut_down();
    secure.0.run();
    assert!(counts().unwrap_err().to_string().contains("the key is that of another"));
    let _path = files.put("own.key", &issued.key);
    eventually("the store has connections again", || counts().is_ok());
}
