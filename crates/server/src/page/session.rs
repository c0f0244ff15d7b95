//! Keeps the sessions of browsers. A browser signs in with an access token, then sends a cookie instead.
//!
//! The cookie is random, and independent of the token. The service keeps only the hashes of cookies and tokens. Each
//! request looks the token up again, so a token that is revoked or expires ends its sessions. Sessions also end with
//! the process.

use crate::state::{TokenHash, hash};
use core::time::Duration;
use data_encoding::BASE32_NOPAD;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The greatest number of sessions. A further session ends the oldest session of the token that has the most sessions.
/// So a token that signs in again and again ends only its own sessions.
const MOST: usize = 1_024;
/// The time for which a session lasts after the visitor has signed in.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3_600);

/// The sessions of all browsers that have signed in, by the hashes of their cookies.
#[derive(Debug)]
pub(super) struct Sessions {
    open: Mutex<HashMap<TokenHash, Session>>,
    /// The CSRF token of all forms while the service has no token file, and so needs no access tokens. Nobody signs in
    /// then, so there are no sessions with CSRF tokens of their own.
    mark: Box<str>,
}

/// The session of a browser that has signed in with a token.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The hash of the access token with which the browser signed in.
    pub(super) token: TokenHash,
    /// The CSRF token in the forms of the session's pages.
    pub(super) mark: Box<str>,
    ends: Instant,
}

/// Returns 32 random bytes as text. `None` if the system does not provide random numbers.
fn random() -> Option<Box<str>> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(BASE32_NOPAD.encode(&bytes).to_ascii_lowercase().into())
}

impl Sessions {
    pub(super) fn new() -> Self {
        // If the system gives no random numbers, the CSRF token is empty. Then no form is accepted: see `mark`.
        Self { open: Mutex::default(), mark: random().unwrap_or_default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the CSRF token of all forms while the service has no token file, so that nobody signs in. If the text is
    /// empty, the service accepts no form.
    pub(super) fn mark(&self) -> Box<str> {
        self.mark.clone()
    }

    /// Begins a session for a browser that has signed in with `token`. Returns the value of the session's cookie.
    /// `None` if the system does not provide random numbers.
    pub(super) fn begin(&self, token: TokenHash) -> Option<Box<str>> {
        let (cookie, mark) = (random()?, random()?);
        let now = Instant::now();
        let mut open = self.lock();
        open.retain(|_, session| session.ends > now);
        if open.len() >= MOST {
            make_room(&mut open, &token);
        }
        open.insert(hash(&cookie), Session { token, mark, ends: now + LASTS });
        Some(cookie)
    }

    /// Returns the session to which a cookie belongs. `None` if the session has ended.
    pub(super) fn find(&self, cookie: &str) -> Option<Session> {
        // Expired sessions are removed only when the next session begins, so the end is checked here, too.
        self.lock().get(&hash(cookie)).filter(|session| session.ends > Instant::now()).cloned()
    }

    /// Ends the session to which a cookie belongs.
    pub(super) fn end(&self, cookie: &str) {
        self.lock().remove(&hash(cookie));
    }
}

/// Ends the oldest session of the token that has the most sessions, to make room for a new session of `token`. If
/// several tokens have the most sessions, and `token` is among them, ends a session of `token`.
fn make_room(open: &mut HashMap<TokenHash, Session>, token: &TokenHash) {
    let mut counts = HashMap::<TokenHash, usize>::new();
    for session in open.values() {
        *counts.entry(session.token).or_default() += 1;
    }
    let Some((most, _)) = counts.iter().max_by_key(|(holder, count)| (**count, *holder == token)) else {
        return;
    };
    let of_most = open.iter().filter(|(_, session)| session.token == *most);
    // All sessions last equally long, so the session that ends first is the oldest.
    if let Some(first) = of_most.min_by_key(|(_, session)| session.ends).map(|(key, _)| *key) {
        open.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_bounded_and_those_of_one_token_end_no_others() {
        let sessions = Sessions::new();
        let first = sessions.begin([1; 32]).unwrap();
        let of_other = sessions.begin([2; 32]).unwrap();
        assert_eq!(sessions.find(&first).unwrap().token, [1; 32]);
        let last = (0..2 * MOST).map(|_| sessions.begin([2; 32]).unwrap()).last().unwrap();
        assert_eq!(sessions.lock().len(), MOST);
        assert!(sessions.find(&first).is_some(), "the only session of its token stays");
        assert!(sessions.find(&of_other).is_none(), "the oldest of the other token makes room");
        assert_ne!(sessions.find(&last).unwrap().mark, sessions.mark());
        sessions.end(&last);
        assert!(sessions.find(&last).is_none());
    }
}
