//! Looks up the tokens of requests, which determine the requests' permissions.
//!
//! If there has never been a token file, every request is permitted, so the service must be reachable only from this
//! machine. If the file appears later, requests need tokens from then on, even if the file disappears or becomes empty
//! again. While the file is missing, no token is accepted, and no service starts.

use super::principal::Principal;
use super::token_file::{Stored, TokenFile, TokenHash, hash};
use crate::clock::now;
use core::time::Duration;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;
use tokio::time::sleep;
use tourbillon_api::Moment;

/// The reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFault {
    /// No accepted token has this hash, because the token was never made or was revoked.
    Unknown,
    /// The token is in the token file, but has expired.
    Expired,
}

impl TokenFault {
    /// Returns the reason as text for a log line.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Unknown => "the token is not known",
            Self::Expired => "the token has expired",
        }
    }
}

/// The version of a file: its length, the time of its last change, and its inode.
type Version = (u64, Option<SystemTime>, u64);

fn version_of(path: &Path) -> Option<Version> {
    let data = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&data);
    #[cfg(not(unix))]
    let number = 0;
    Some((data.len(), data.modified().ok(), number))
}

/// The tokens that the service accepts, as last read from the token file. Clones share the tokens.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: TokenFile,
    /// The entries of the token file. `None` if there was no file, so that every request is permitted.
    known: RwLock<Option<Arc<[Stored]>>>,
    last: Mutex<LastRead>,
    /// Wakes the futures of [`Tokens::ended`] each time the token file has been read again.
    changes: watch::Sender<()>,
}

/// The result of the last attempt to read the token file.
#[derive(Debug)]
struct LastRead {
    version: Option<Version>,
    /// The error of the last read, or `None` if it succeeded.
    fault: Option<Box<str>>,
}

/// The longest time between two checks for the expiry of a token. The checks repeat because the clock may be set.
const LOOK: Duration = Duration::from_secs(60);

impl Tokens {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // The version is noted before the read, as in `reload`.
        let last = LastRead { version: version_of(path), fault: None };
        let file = TokenFile::new(path);
        let known = RwLock::new(file.read_at_start()?.map(Into::into));
        Ok(Self(Arc::new(Inner { file, known, last: Mutex::new(last), changes: watch::Sender::new(()) })))
    }

    fn last(&self) -> MutexGuard<'_, LastRead> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether every request is permitted, because there is no token file.
    pub(crate) fn is_open(&self) -> bool {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Reads the token file again if it has changed, if the last read failed, or if `always` is true. Returns whether
    /// the file was read. If the file is missing, no token is accepted. After any other error, the tokens stay as they
    /// were.
    ///
    /// If `always` is true, returns each error. Otherwise returns an error only if it differs from the last error.
    pub(crate) fn reload(&self, always: bool) -> io::Result<bool> {
        let mut last = self.last();
        let present = version_of(self.0.file.path());
        // After a failed read, the file is read even if its version is the same, because a change of its mode keeps the
        // version.
        if last.version == present && last.fault.is_none() && !always {
            return Ok(false);
        }
        // The version is noted before the read, so a change during the read is noticed the next time.
        last.version = present;
        let fault = match self.0.file.read() {
            Ok(read) => self.replace(read),
            Err(error) => Some(io::Error::new(
                error.kind(),
                format!("the tokens stay as they were, since their file cannot be read: {error}"),
            )),
        };
        let Some(fault) = fault else {
            last.fault = None;
            return Ok(true);
        };
        let words = fault.to_string();
        let is_known = last.fault.replace(words.as_str().into()).is_some_and(|last| *last == *words);
        if is_known && !always { Ok(false) } else { Err(fault) }
    }

    /// Replaces the tokens by `read`, the entries of the token file, or `None` if the file is missing. If requests need
    /// tokens and the file is missing, then no token is accepted, and the function returns an error.
    fn replace(&self, read: Option<Vec<Stored>>) -> Option<io::Error> {
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_missing = known.is_some() && read.is_none();
        if is_missing {
            *known = Some(Arc::new([]));
        } else {
            *known = read.map(Into::into);
        }
        drop(known);
        self.0.changes.send_replace(());
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, "no token is accepted, since their file is missing");
        is_missing.then(missing)
    }

    /// Returns the error of the last read of the token file, or `None` after a successful read.
    pub(crate) fn fault(&self) -> Option<Box<str>> {
        self.last().fault.clone()
    }

    /// Waits until the token no longer gives the permissions `right`: it is revoked, expires, or gets another role. If
    /// `token` is `None`, waits until requests need tokens.
    pub(crate) fn ended(
        &self,
        token: Option<TokenHash>,
        right: Principal,
    ) -> impl Future<Output = ()> + Send + use<> {
        let tokens = self.clone();
        async move {
            // The subscription precedes the first look at the tokens, so no reload between the two is missed.
            let mut changes = tokens.0.changes.subscribe();
            loop {
                let until = match &token {
                    None if tokens.is_open() => None,
                    None => return,
                    Some(token) => match tokens.look_up(token, |stored| (stored.principal(), stored.until)) {
                        Ok((present, until)) if present == right => until,
                        _ => return,
                    },
                };
                let left = |until: Moment| until.as_millis().saturating_sub(now().as_millis());
                let left = until.map_or(LOOK, |until| Duration::from_millis(left(until)).min(LOOK));
                tokio::select! {
                    // The sender belongs to `tokens`, so the wait cannot fail.
                    _changed = changes.changed() => {}
                    () = sleep(left) => {}
                }
            }
        }
    }

    /// Returns the token file, to which the caller can add tokens, and in which it can revoke them.
    pub(crate) fn file(&self) -> &TokenFile {
        &self.0.file
    }

    /// Returns the entries of all tokens, or `None` if every request is permitted.
    pub(crate) fn known(&self) -> Option<Arc<[Stored]>> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the name of the token with this hash, or `None` if the token is unknown or has no name.
    pub(crate) fn name(&self, hash: &TokenHash) -> Option<String> {
        let known = self.known()?;
        let stored = known.iter().find(|stored| stored.hash == *hash)?;
        Some(stored.name.to_string()).filter(|name| !name.is_empty())
    }

    /// Returns the permissions that a token gives to a request. Fails if the token is refused.
    pub(crate) fn principal(&self, token: &str) -> Result<Principal, TokenFault> {
        self.principal_of(&hash(token))
    }

    /// Returns the permissions that the token with this hash gives to a request. Fails if the token is refused.
    pub(crate) fn principal_of(&self, presented: &TokenHash) -> Result<Principal, TokenFault> {
        self.look_up(presented, Stored::principal)
    }

    fn look_up<T>(&self, presented: &TokenHash, show: impl FnOnce(&Stored) -> T) -> Result<T, TokenFault> {
        let known = self.known();
        // All entries are compared, each in the same time, so the time of an answer reveals nothing about tokens.
        let mut found = None;
        for stored in known.as_deref().unwrap_or_default() {
            if bool::from(stored.hash.ct_eq(presented)) {
                found = Some(stored);
            }
        }
        match found {
            None => Err(TokenFault::Unknown),
            Some(stored) if stored.is_expired() => Err(TokenFault::Expired),
            Some(stored) => Ok(show(stored)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token_file::NewToken;
    use super::*;
    use data_encoding::BASE32_NOPAD;
    use tourbillon_api::Role;

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
        assert_eq!(tokens.reload(false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!tokens.reload(false).unwrap() && tokens.fault().is_some(), "said once, and still so");
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
    fn a_token_file_that_is_lost_opens_no_service() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let file = TokenFile::new(&path);
        file.revoke("nobody").unwrap_err();
        assert!(Tokens::open(&path).unwrap().is_open(), "there has been no token");

        file.add(new(Role::Admin)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let error = Tokens::open(&path).unwrap_err();
        assert!(error.to_string().contains("t.lock"), "{error}");

        let (token, _) = file.add(new(Role::Admin)).unwrap();
        assert!(Tokens::open(&path).unwrap().principal(&token).is_ok(), "a new token is enough");

        let good = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(path.with_extension("lock")).unwrap();
        assert!(Tokens::open(&path).unwrap().is_open());

        // The file is copied from another folder.
        std::fs::write(&path, good).unwrap();
        assert!(!Tokens::open(&path).unwrap().is_open());
        std::fs::remove_file(&path).unwrap();
        Tokens::open(&path).unwrap_err();
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

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_right_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let tokens = Tokens::open(&path).unwrap();
        let has_ended = async |ended: &mut core::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            tokio::time::timeout(Duration::from_millis(1), ended).await.is_ok()
        };
        let mut open = Box::pin(tokens.ended(None, Principal::ALL)) as _;
        assert!(!has_ended(&mut open).await, "no request needs a token");
        let (_, revoked) = tokens.file().add(NewToken { name: "r".into(), ..new(Role::Writer) }).unwrap();
        let (_, kept) = tokens.file().add(new(Role::Reader)).unwrap();
        tokens.reload(false).unwrap();
        assert!(has_ended(&mut open).await);

        let end_of = |stored: &Stored| Box::pin(tokens.ended(Some(stored.hash), stored.principal())) as _;
        let (mut ends, mut stays) = (end_of(&revoked), end_of(&kept));
        let mut other = Box::pin(tokens.ended(Some(kept.hash), Principal::ALL)) as _;
        assert!(!has_ended(&mut ends).await && !has_ended(&mut stays).await);
        assert!(has_ended(&mut other).await, "the token has another role");
        tokens.file().revoke("r").unwrap();
        tokens.reload(false).unwrap();
        assert!(has_ended(&mut ends).await && !has_ended(&mut stays).await);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_fault_until_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let file = TokenFile::new(&path);
        file.add(new(Role::Admin)).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        assert!(tokens.fault().is_none());
        let good = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(tokens.reload(false).is_err() && tokens.fault().is_some());
        assert!(!tokens.reload(false).unwrap() && tokens.fault().is_some(), "said once, and still so");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, good).unwrap();
        assert!(tokens.reload(false).unwrap() && tokens.fault().is_none());
    }
}
