//! Tests the binding of SCRAM to the server's certificate.

use super::rig::{Files, Middle, Secure, WITH_TLS, accepted, refused, self_signed};
use crate::link::Failure;
use tourbillon_durable::store::StoreErrorKind;
use tourbillon_fault::Authority;

const RULES: &str = "host all app 127.0.0.1/32 scram-sha-256\n";

#[test]
fn a_password_is_bound_to_the_certificate_of_the_server() {
    let (authority, files) = (Authority::new("ours"), Files::new());
    let own = authority.server(&["127.0.0.1"]);
    let Some(mut secure) = Secure::start(&own, &authority.pem(), RULES) else { return };
    let _made = secure.0.sql("CREATE ROLE app LOGIN PASSWORD 'hunter2'");
    let ours = files.put("ours.pem", &authority.pem());
    let ours = format!("sslrootcert={}", ours.display());
    let bound = "channel_binding=require";
    accepted(&secure.address("app:hunter2", &format!("{ours}&{bound}")), WITH_TLS);
    accepted(&secure.address("app:hunter2", &format!("{ours}&channel_binding=disable")), WITH_TLS);
    let failure = refused(&secure.address("app:hunter2x", &ours), "password authentication failed");
    assert_eq!(failure.into_error().kind(), StoreErrorKind::Closed);
    let _failure = refused(&secure.address("app", &ours), "password missing");
    // Without TLS there is nothing to bind to.
    accepted(&secure.address("app:hunter2", &format!("sslmode=prefer&{bound}")), WITH_TLS);
    let disabled = secure.address("app:hunter2", &format!("sslmode=disable&{bound}"));
    let _failure = refused(&disabled, "did not use channel binding");

    // A program in the middle has another certificate. The mode `require` does not notice this, but the binding does.
    let middle = Middle::start(&secure.0, &self_signed(&rcgen::PKCS_ECDSA_P256_SHA256, false), false, &[]);
    let through = |words: &str| {
        let port = middle.port;
        format!("postgresql://app:hunter2@127.0.0.1:{port}/postgres?sslmode=require&{words}")
    };
    assert!(super::rig::dial(&crate::Connect::to(&through("")).unwrap()).is_ok());
    let _failure = refused(&through(bound), "did not use channel binding");
    let _failure = refused(&through(&ours), "from no authority that is trusted");

    for algorithm in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let own = self_signed(algorithm, false);
        secure.0.present(&own);
        let trusted = files.put("own.pem", &own.certificate);
        let trusted = format!("sslrootcert={}", trusted.display());
        accepted(&secure.address("app:hunter2", &trusted), WITH_TLS);
        let address = secure.address("app:hunter2", &format!("{trusted}&{bound}"));
        if *algorithm == rcgen::PKCS_ED25519 {
            // Its signature has no hash function, so there is no binding.
            let failure = refused(&address, "did not use channel binding");
            assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
        } else {
            accepted(&address, WITH_TLS);
        }
    }
}
