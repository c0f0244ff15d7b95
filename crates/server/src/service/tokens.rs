//! Tokens: the right of each request.
//!
//! A token is `tb_`, its role, and 32 random bytes. The file has the SHA-256 of each token and not the token itself, so
//! that a reader of the file cannot use them. The random bytes need no slow hash: nobody can guess them.
//!
//! Without a file every request is permitted, and the service must be reachable from this machine only. That is decided
//! at the start. A file that appears later ends it; a file that disappears, or becomes empty, does not bring it back.

use super::files;
use core::time::Duration;
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq as _;
use tourbillon_api::{Moment, Role};

/// The right of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub(crate) role: Role,
    /// The only namespace that the right holds for.
    pub(crate) namespace: Option<Box<str>>,
}

impl Principal {
    /// The right to everything.
    pub(crate) const ALL: Self = Self { role: Role::Admin, namespace: None };

    /// Whether a request that needs this role in this namespace is permitted. Without a namespace the request concerns
    /// the whole service.
    pub(crate) fn permits(&self, role: Role, namespace: Option<&str>) -> bool {
        self.role >= role && self.namespace.as_deref().is_none_or(|own| namespace == Some(own))
    }
}

/// The name of a role in tokens and on the command line.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Reader => "reader",
        Role::Writer => "writer",
        Role::Admin => "admin",
    }
}

/// SHA-256 of a token, by which the service knows it.
pub(crate) type TokenHash = [u8; 32];

/// The hash of a token.
pub(crate) fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

fn now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// A token, without itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    /// A name for people.
    #[serde(default)]
    pub(crate) name: Box<str>,
    pub(crate) role: Role,
    /// The only namespace, or none for all.
    #[serde(default)]
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) made: Moment,
    /// The moment from which the token is not accepted.
    #[serde(default)]
    pub(crate) until: Option<Moment>,
    /// SHA-256 of the token, in hexadecimal digits.
    #[serde(with = "hexadecimal")]
    hash: TokenHash,
}

mod hexadecimal {
    use super::{HEXLOWER, TokenHash};
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(hash: &TokenHash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TokenHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        hash.ok_or_else(|| D::Error::custom("a hash has 64 hexadecimal digits"))
    }
}

impl Stored {
    /// The token's id: the first digits of its hash.
    pub(crate) fn id(&self) -> String {
        HEXLOWER.encode(&self.hash[..6])
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.until.is_some_and(|until| until <= now())
    }
}

/// What a new token is for.
#[derive(Clone, Debug)]
pub(crate) struct NewToken {
    pub(crate) name: Box<str>,
    pub(crate) role: Role,
    pub(crate) namespace: Option<Box<str>>,
    /// The time for which the token is accepted.
    pub(crate) expires: Option<Duration>,
}

/// The file of tokens, for the program that changes it.
#[derive(Debug)]
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The tokens, or none if there is no file.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<Stored>>> {
        files::read(&self.0)
    }

    /// Changes the file. Other programs that change it at the same time wait.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Stored>) -> io::Result<T>) -> io::Result<T> {
        if let Some(folder) = self.0.parent() {
            files::make_folder(folder)?;
        }
        let lock = File::create(self.0.with_extension("lock"))?;
        lock.lock()?;
        let mut tokens = self.read()?.unwrap_or_default();
        let answer = change(&mut tokens)?;
        files::replace(&self.0, &tokens)?;
        Ok(answer)
    }

    /// Adds a token and returns it. It is nowhere else.
    pub(crate) fn add(&self, new: NewToken) -> io::Result<(String, Stored)> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let digits = BASE32_NOPAD.encode(&random).to_ascii_lowercase();
        let token = format!("tb_{}_{digits}", role_name(new.role));
        let made = now();
        let until = new.expires.map(|time| {
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Moment::from_millis(made.as_millis().saturating_add(millis))
        });
        let stored = Stored {
            name: new.name,
            role: new.role,
            namespace: new.namespace,
            made,
            until,
            hash: hash(&token),
        };
        self.change(|tokens| {
            tokens.push(stored.clone());
            Ok(())
        })?;
        Ok((token, stored))
    }

    /// Removes the one token with this id or name. Fails if there is none, or more than one has the name.
    pub(crate) fn revoke(&self, which: &str) -> io::Result<Stored> {
        self.change(|tokens| {
            let fits = |token: &Stored| token.id() == which || *token.name == *which;
            let mut fitting = (0..tokens.len()).filter(|&at| fits(&tokens[at]));
            match (fitting.next(), fitting.next()) {
                (Some(at), None) => Ok(tokens.remove(at)),
                (None, _) => {
                    Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no token {which:?}")))
                }
                (Some(_), Some(_)) => Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("more than one token has the name {which:?}; name one by its id"),
                )),
            }
        })
    }
}

/// The reason why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFault {
    /// No such token was made, or it was revoked.
    Unknown,
    /// The token's time is over.
    Expired,
}

/// What distinguishes a version of a file from another: its length, its time of change, its number on the disk.
type Version = (u64, Option<SystemTime>, u64);

fn version_of(path: &Path) -> Option<Version> {
    let data = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&data);
    #[cfg(not(unix))]
    let number = 0;
    Some((data.len(), data.modified().ok(), number))
}

/// The tokens of a service.
#[derive(Debug)]
pub(crate) struct Tokens {
    file: TokenFile,
    /// None if every request is permitted.
    known: RwLock<Option<Arc<[Stored]>>>,
    version: Mutex<Option<Version>>,
}

impl Tokens {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let version = version_of(path);
        let file = TokenFile::new(path);
        let known = file.read()?.map(Into::into);
        Ok(Self { file, known: RwLock::new(known), version: Mutex::new(version) })
    }

    /// Whether every request is permitted.
    pub(crate) fn is_open(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Reads the file again, if it has changed or `always`. Returns whether it was read. If it cannot be read, the
    /// tokens stay as they are.
    pub(crate) fn reload(&self, always: bool) -> io::Result<bool> {
        let mut version: MutexGuard<'_, _> = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let present = version_of(&self.file.0);
        if *version == present && !always {
            return Ok(false);
        }
        // Before the file is read: a change in between is seen the next time. A file that cannot be read is reported
        // once.
        *version = present;
        let read = self.file.read()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokens) = read {
            *known = Some(tokens.into());
        } else if known.is_some() {
            *known = Some(Arc::new([]));
        }
        Ok(true)
    }

    /// The file, for changes.
    pub(crate) fn file(&self) -> &TokenFile {
        &self.file
    }

    /// The tokens, none while every request is permitted.
    pub(crate) fn known(&self) -> Option<Arc<[Stored]>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The right of a request with this token.
    pub(crate) fn principal(&self, token: &str) -> Result<Principal, TokenFault> {
        self.principal_of(&hash(token))
    }

    /// The right of a request with the token that has this hash.
    pub(crate) fn principal_of(&self, presented: &TokenHash) -> Result<Principal, TokenFault> {
        let known = self.known();
        // All are compared, and each in the same time.
        let mut found = None;
        for stored in known.as_deref().unwrap_or_default() {
            if bool::from(stored.hash.ct_eq(presented)) {
                found = Some(stored);
            }
        }
        match found {
            None => Err(TokenFault::Unknown),
            Some(stored) if stored.is_expired() => Err(TokenFault::Expired),
            Some(stored) => Ok(Principal { role: stored.role, namespace: stored.namespace.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(role: Role) -> NewToken {
        NewToken { name: "n".into(), role, namespace: None, expires: None }
    }

    #[test]
    fn a_token_has_its_role_and_256_random_bits_and_is_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let file = TokenFile::new(&path);
        let (first, _) = file.add(new(Role::Writer)).unwrap();
        let (second, stored) = file.add(new(Role::Writer)).unwrap();
        let digits = first.strip_prefix("tb_writer_").unwrap();
        assert_eq!(BASE32_NOPAD.decode(digits.to_ascii_uppercase().as_bytes()).unwrap().len(), 32);
        assert_ne!(first, second);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(digits) && text.contains(&stored.id()), "{text}");
        let tokens = Tokens::open(&path).unwrap();
        assert_eq!(tokens.principal(&first), Ok(Principal { role: Role::Writer, namespace: None }));
        for other in
            ["", "tb_writer_", &first[..first.len() - 1], &first.to_uppercase(), &format!("{first} ")]
        {
            assert_eq!(tokens.principal(other), Err(TokenFault::Unknown), "{other:?}");
        }
    }

    #[test]
    fn changes_of_the_file_are_seen_and_its_end_permits_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let file = TokenFile::new(&path);
        let tokens = Tokens::open(&path).unwrap();
        assert!(tokens.is_open());
        assert!(!tokens.reload(false).unwrap());
        assert!(tokens.reload(true).unwrap() && tokens.is_open());

        let (token, stored) = file.add(new(Role::Admin)).unwrap();
        assert!(tokens.reload(false).unwrap() && !tokens.reload(false).unwrap());
        assert!(!tokens.is_open() && tokens.principal(&token).is_ok());

        std::fs::write(&path, "[{").unwrap();
        assert!(tokens.reload(false).is_err());
        assert!(!tokens.reload(false).unwrap(), "the fault is reported once");
        assert!(!tokens.is_open() && tokens.principal(&token).is_ok());

        std::fs::remove_file(&path).unwrap();
        assert!(tokens.reload(false).unwrap());
        assert!(!tokens.is_open());
        assert_eq!(tokens.principal(&token), Err(TokenFault::Unknown));

        let (token, _) = file.add(new(Role::Admin)).unwrap();
        tokens.reload(false).unwrap();
        assert!(tokens.principal(&token).is_ok());
        file.revoke("n").unwrap();
        tokens.reload(false).unwrap();
        assert!(!tokens.is_open() && tokens.principal(&token) == Err(TokenFault::Unknown));
        assert_eq!(file.revoke(&stored.id()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_token_expires() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let expired = NewToken { expires: Some(Duration::ZERO), ..new(Role::Admin) };
        let (token, _) = TokenFile::new(&path).add(expired).unwrap();
        let later = NewToken { expires: Some(Duration::from_secs(60)), ..new(Role::Admin) };
        let (other, _) = TokenFile::new(&path).add(later).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        assert_eq!(tokens.principal(&token), Err(TokenFault::Expired));
        assert!(tokens.principal(&other).is_ok());
    }

    #[test]
    fn a_name_that_two_tokens_have_revokes_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("t.json"));
        let (_, first) = file.add(new(Role::Admin)).unwrap();
        file.add(new(Role::Reader)).unwrap();
        assert_eq!(file.revoke("n").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(file.revoke(&first.id()).unwrap().role, Role::Admin);
        assert_eq!(file.read().unwrap().unwrap().len(), 1);
    }
}
