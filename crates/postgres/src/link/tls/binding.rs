//! The hash of the server's certificate to which SCRAM binds a password (`tls-server-end-point`, RFC 5929).

use super::der::{SEQUENCE, element};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The hash functions that a signature may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The object identifiers of signature algorithms. Each has the hash function that SCRAM uses to bind a password to a
/// certificate. As RFC 5929 demands, SHA-256 replaces MD5 and SHA-1.
const SIGNATURES: [(&[u8], Hash); 9] = [
    // md5WithRSAEncryption, sha1WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", Hash::Sha256),
    // sha256WithRSAEncryption, sha384WithRSAEncryption, sha512WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", Hash::Sha384),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", Hash::Sha512),
    // ecdsa-with-SHA1, ecdsa-with-SHA256, ecdsa-with-SHA384, ecdsa-with-SHA512
    (b"\x2a\x86\x48\xce\x3d\x04\x01", Hash::Sha256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", Hash::Sha256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", Hash::Sha384),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", Hash::Sha512),
];

/// The algorithm RSASSA-PSS. Its parameters name the hash function.
const PSS: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a";

/// The hash functions that the parameters of RSASSA-PSS name: id-sha1, id-sha256, id-sha384, id-sha512.
const HASHES: [(&[u8], Hash); 4] = [
    (b"\x2b\x0e\x03\x02\x1a", Hash::Sha256),
    (b"\x60\x86\x48\x01\x65\x03\x04\x02\x01", Hash::Sha256),
    (b"\x60\x86\x48\x01\x65\x03\x04\x02\x02", Hash::Sha384),
    (b"\x60\x86\x48\x01\x65\x03\x04\x02\x03", Hash::Sha512),
];

const OBJECT_IDENTIFIER: u8 = 0x06;
/// The tag of the hash function in the parameters of RSASSA-PSS.
const HASH: u8 = 0xa0;

/// Returns the hash of a certificate, to which SCRAM binds the password. Returns `None` if the certificate cannot be
/// read, or if the algorithm of its signature names no hash function (such as Ed25519). The password is not bound then.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match hash(certificate)? {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

/// Returns the hash function of a certificate's signature. A certificate is a sequence of the signed part, the
/// algorithm and the signature (RFC 5280, section 4.1).
fn hash(certificate: &[u8]) -> Option<Hash> {
    let (fields, _) = element(SEQUENCE, certificate)?;
    let (_, fields) = element(SEQUENCE, fields)?;
    let (algorithm, _) = element(SEQUENCE, fields)?;
    let (identifier, parameters) = element(OBJECT_IDENTIFIER, algorithm)?;
    let find = |table: &[(&[u8], Hash)], identifier: &[u8]| {
        table.iter().find(|(known, _)| *known == identifier).map(|(_, hash)| *hash)
    };
    if identifier != PSS {
        return find(&SIGNATURES, identifier);
    }
    let (parameters, _) = element(SEQUENCE, parameters)?;
    let Some((hash, _)) = element(HASH, parameters) else {
        // The default is SHA-1, which SHA-256 replaces.
        return Some(Hash::Sha256);
    };
    let (identifier, _) = element(OBJECT_IDENTIFIER, element(SEQUENCE, hash)?.0)?;
    find(&HASHES, identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    /// Makes a certificate that has only the algorithm of its signature. The signed part and the signature are zeros.
    fn certificate(algorithm: &[u8], parameters: &[u8]) -> Vec<u8> {
        let identifier = der(OBJECT_IDENTIFIER, algorithm);
        let algorithm = der(SEQUENCE, &[identifier, parameters.to_vec()].concat());
        der(SEQUENCE, &[der(SEQUENCE, &[0; 300]), algorithm, der(0x03, &[0; 70])].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, expected) in SIGNATURES {
            assert_eq!(hash(&certificate(algorithm, b"\x05\x00")), Some(expected));
        }
        for (name, expected) in HASHES {
            let hash_of_pss = der(HASH, &der(SEQUENCE, &der(OBJECT_IDENTIFIER, name)));
            assert_eq!(hash(&certificate(PSS, &der(SEQUENCE, &hash_of_pss))), Some(expected));
        }
        assert_eq!(hash(&certificate(PSS, &der(SEQUENCE, b""))), Some(Hash::Sha256));
        // Ed25519.
        assert_eq!(hash(&certificate(b"\x2b\x65\x70", b"")), None);
    }

    #[test]
    fn certificates_of_rcgen_have_the_hashes_of_their_algorithms() {
        for (algorithm, length) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let made = rcgen::CertificateParams::new(["db".to_owned()]).unwrap().self_signed(&key).unwrap();
            assert_eq!(end_point(made.der()).map(|hash| hash.len()), length);
            for end in 0..made.der().len().min(200) {
                // A certificate that is cut off cannot be read.
                assert_eq!(end_point(&made.der()[..end]), None);
            }
        }
    }
}
