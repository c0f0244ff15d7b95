//! Reads and changes the file that lists the tokens.
//!
//! A token consists of `tb_`, its role, and 32 random bytes. The file contains only the SHA-256 of each token, so a
//! reader of the file cannot use the tokens. A slow hash is not necessary, because nobody can guess 32 random bytes.

use super::files;
use super::principal::Principal;
use crate::clock::{millis, now};
use core::time::Duration;
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tourbillon_api::{Moment, Role};

/// Returns the name of a role as it appears in tokens and on the command line.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Reader => "reader",
        Role::Writer => "writer",
        Role::Admin => "admin",
    }
}

/// The SHA-256 of a token, by which the service identifies the token.
pub(crate) type TokenHash = [u8; 32];

pub(crate) fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// The entry of a token in the token file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    /// The name that a person gave the token, or an empty text.
    #[serde(default)]
    pub(crate) name: Box<str>,
    pub(crate) role: Role,
    /// The only namespace in which the token is valid. `None` permits all namespaces.
    #[serde(default)]
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) made: Moment,
    /// The moment from which the token is refused. `None` if the token does not expire.
    #[serde(default)]
    pub(crate) until: Option<Moment>,
    /// The SHA-256 of the token, which the file has in hexadecimal digits.
    #[serde(with = "hexadecimal")]
    pub(super) hash: TokenHash,
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

/// Returns the id of the token with this hash: the first 12 hexadecimal digits of the hash.
pub(crate) fn id_of_token(hash: &TokenHash) -> String {
    HEXLOWER.encode(&hash[..6])
}

impl Stored {
    pub(crate) fn id(&self) -> String {
        id_of_token(&self.hash)
    }

    /// Describes a token by its name, role, namespace and expiry. Reveals no part of the token.
    pub(crate) fn words(&self) -> String {
        let namespace = self.namespace.as_deref().map_or_else(String::new, |name| format!(" of {name:?}"));
        let until = self.until.map_or_else(String::new, |until| format!(" until {until}"));
        format!("{:?}, {}{namespace}{until}", self.name, role_name(self.role))
    }

    /// Returns the permissions that this token gives to a request.
    pub(super) fn principal(&self) -> Principal {
        Principal { role: self.role, namespace: self.namespace.clone() }
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.until.is_some_and(|until| until <= now())
    }
}

/// The length of the longest name of a token, in bytes.
pub(crate) const LONGEST_TOKEN_NAME: usize = 100;

/// The properties of a new token.
#[derive(Clone, Debug)]
pub(crate) struct NewToken {
    pub(crate) name: Box<str>,
    pub(crate) role: Role,
    pub(crate) namespace: Option<Box<str>>,
    /// The time for which the token is valid. `None` if the token does not expire.
    pub(crate) expires: Option<Duration>,
}

/// The file that lists the tokens. The command line and the pages for browsers change it.
#[derive(Debug)]
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the entries of the token file. Returns `None` if the file does not exist.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<Stored>>> {
        files::read(&self.0)
    }

    /// Reads the entries of the token file for a start of the service. Returns `None` if there has never been a token
    /// file. Fails if there was a token file that is now missing. Otherwise its loss would permit every request at the
    /// next start.
    pub(crate) fn read_at_start(&self) -> io::Result<Option<Vec<Stored>>> {
        let read = self.read()?;
        let lock = self.lock_path();
        if read.as_ref().is_some_and(|tokens| !tokens.is_empty()) {
            // The lock file does not record tokens in a file that `change` has not written, such as a copy, so this
            // call does. If it fails, the service still works.
            let _best_effort =
                files::open_lock(&lock).and_then(|mut lock_file| note_tokens(&mut lock_file, &lock));
        }
        if read.is_none() && std::fs::metadata(&lock).is_ok_and(|data| data.len() > 0) {
            let message = format!(
                "the file is missing, and had tokens. Put it back, or make new tokens. To permit all requests without \
                 a token, remove {}",
                lock.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Ok(read)
    }

    /// Returns the path of the lock file. It is not the token file, because [`files::replace`] puts another file in the
    /// place of the token file. The lock file is empty until the token file gets its first token.
    fn lock_path(&self) -> PathBuf {
        self.0.with_extension("lock")
    }

    /// Changes the entries of the token file under a lock. Waits until no other program has the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Stored>) -> io::Result<T>) -> io::Result<T> {
        if let Some(folder) = self.0.parent() {
            files::make_folder(folder)?;
        }
        let path = self.lock_path();
        // The lock lasts until the end of this function.
        let mut lock = files::open_lock(&path)?;
        lock.lock()?;
        let mut tokens = self.read()?.unwrap_or_default();
        let answer = change(&mut tokens)?;
        // The lock file is written first, so that it records tokens even if a power failure interrupts this function.
        note_tokens(&mut lock, &path)?;
        files::replace(&self.0, &tokens)?;
        Ok(answer)
    }

    /// Makes a token and adds its entry to the token file. Returns the token and the entry.
    pub(crate) fn add(&self, new: NewToken) -> io::Result<(String, Stored)> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let digits = BASE32_NOPAD.encode(&random).to_ascii_lowercase();
        let token = format!("tb_{}_{digits}", role_name(new.role));
        let made = now();
        let until = new.expires.map(|time| {
            let millis = millis(time);
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

    /// Removes the token with this id or name from the file. Fails if there is no such token, or if several tokens have
    /// the name.
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

/// Records in the lock file, which is at `path`, that the token file beside it has had tokens.
fn note_tokens(lock: &mut File, path: &Path) -> io::Result<()> {
    files::note(lock, path, b"The token file beside this file has had tokens.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(role: Role) -> NewToken {
        NewToken { name: "n".into(), role, namespace: None, expires: None }
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
