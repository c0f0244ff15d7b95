//! Redirects. A redirect leads from the shard of a timer's id to the shard that stores the timer. See
//! `operation/redirects.rs`.

use super::entry::id_bytes;
use super::slot::Shard;
use tourbillon_durable::timer::TimerId;

/// The value that leads to the shard that stores a timer, if the timer's id belongs to another shard. The id's
/// shard stores this value. The bytes are the number of the shard that stores the timer. In a cluster, a colon and
/// a random *mark* follow. Each creation draws its own mark, so each redirect belongs to one creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect(Vec<u8>);

impl Redirect {
    /// Makes a redirect for the creation of one timer in a cluster. `home` is the shard that will store the timer. The
    /// redirect gets a new random mark, so it differs from the redirects of all other creations.
    pub(crate) fn fresh(home: Shard) -> Self {
        // The last bytes of a fresh id are random. Its first bytes are the time, which two creations may share.
        let [.., a, b, c, d] = id_bytes(TimerId::fresh());
        Self([home.to_string().as_bytes(), b":", &[a, b, c, d]].concat())
    }

    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn split(&self) -> (&[u8], &[u8]) {
        // The random mark may contain a colon. The number before the mark contains none, so the first colon ends the
        // number.
        let colon = self.0.iter().position(|byte| *byte == b':').unwrap_or(self.0.len());
        self.0.split_at(colon)
    }

    /// Returns the shard that stores the timer according to this redirect, or `None` if the bytes are damaged.
    pub(crate) fn home(&self) -> Option<Shard> {
        core::str::from_utf8(self.split().0).ok()?.parse().ok()
    }

    /// Returns the bytes that make this redirect of the timer `id` void. The shard to which the redirect leads stores
    /// the bytes in its sorted set [`Part::Recent`](crate::layout::Part::Recent). While the bytes are stored there, the
    /// creation that has written this redirect cannot store its timer in that shard.
    pub(crate) fn void(&self, id: TimerId) -> Vec<u8> {
        // With the colon and the mark, this member is longer than the id of an ended timer. So these members of the
        // sorted set are never equal.
        [&id_bytes(id)[..], self.split().1].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_its_shard_whatever_its_mark() {
        for home in [0, 7, 1_023] {
            let id = TimerId::from_u128(5);
            let (redirect, other) = (Redirect::fresh(home), Redirect::fresh(home));
            assert_eq!(redirect.home(), Some(home));
            assert_ne!(redirect.void(id), other.void(id), "two creations have two marks");
            let plain = Redirect::of(home.to_string().into_bytes());
            assert_eq!(plain.home(), Some(home), "a redirect of one server");
            assert_eq!(plain.void(id), id_bytes(id));
        }
        let mark_with_colon = Redirect::of(b"12:::::".to_vec());
        assert_eq!(mark_with_colon.home(), Some(12));
        for bad in [&b""[..], b":", b"x:1234", b"70000"] {
            assert_eq!(Redirect::of(bad.to_vec()).home(), None);
        }
    }
}
