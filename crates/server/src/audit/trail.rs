//! Stores the audit trail in files. Each entry is a line of JSON, in the order of writing.
//!
//! The files are numbered, and lie in the folder `audit` of the data folder. Each entry is appended to the last file,
//! and synced. A file of 4 MiB or more gets no further entries. The trail keeps four files, which hold about 40,000
//! entries. Commands of `tourbillond` also write entries while a service runs, so writers lock a file in the folder.
//!
//! When a fifth file begins, the first two files are merged into a file of the usual size. The namespace with the most
//! bytes then loses its oldest entries, so a token of one namespace cannot displace the entries of other namespaces.
//!
//! A client reads the entries in pages. A merge moves entries to other places, so a cursor also has the moment and the
//! checksum of its entry, by which the next page finds the entry again.
//!
//! A power failure may cut a line. Readers skip such a line, and the next entry begins on a new line.

use crate::state::files;
use crate::text::cut;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use tourbillon_api::{AuditAction, AuditEntry, Moment};

/// The size in bytes at which a file is full and gets no further entries.
const FULL: u64 = 4 << 20;
/// The greatest number of files in an audit trail. If a further file begins, the first two files are merged.
const KEPT: usize = 4;
/// The greatest length of an entry's detail, in bytes. [`LONGEST_TEXT`] limits the other texts from clients.
const LONGEST_DETAIL: usize = 1_000;
const LONGEST_TEXT: usize = 300;

/// Cuts the texts of an entry that come from clients.
pub(super) fn shorten(entry: &mut AuditEntry) {
    entry.detail = entry.detail.take().map(|detail| cut(&detail, LONGEST_DETAIL));
    for text in [&mut entry.namespace, &mut entry.target, &mut entry.by.token] {
        *text = text.take().map(|text| cut(&text, LONGEST_TEXT));
    }
}

/// The conditions that select entries of the audit trail. An entry must meet all conditions that are set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) namespace: Option<String>,
    /// The name or the id of the token with which the entry's author made the change. `None` selects the entries of all
    /// authors.
    pub(crate) token: Option<String>,
    pub(crate) action: Option<AuditAction>,
    pub(crate) since: Option<Moment>,
    /// The moment before which the entry was written. `None` selects entries of any age.
    pub(crate) until: Option<Moment>,
}

impl Wanted {
    fn has(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.namespace, &entry.namespace)
            && (is(&self.token, &entry.by.token) || is(&self.token, &entry.by.token_id))
            && self.action.is_none_or(|action| action == entry.action)
            && self.since.is_none_or(|since| since <= entry.at)
            && self.until.is_none_or(|until| entry.at < until)
    }
}

/// The position of an entry in the audit trail: the number of its file, and its byte offset in the file. A later merge
/// may have moved the entry to another offset, or to the next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrailPosition {
    file: u32,
    offset: usize,
    /// The moment of the entry, in milliseconds since 1970.
    at: u64,
    /// The CRC-32 of the entry's line.
    sum: u32,
}

impl TrailPosition {
    /// Formats the position as a cursor for clients.
    pub(crate) fn cursor(self) -> String {
        let Self { file, offset, at, sum } = self;
        format!("{file}-{offset}-{at}-{sum}")
    }

    pub(crate) fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.split('-');
        let position = Self {
            file: parts.next()?.parse().ok()?,
            offset: parts.next()?.parse().ok()?,
            at: parts.next()?.parse().ok()?,
            sum: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(position)
    }

    /// Returns the byte offset in a file at which the entries end that are older than this position's entry. `file` is
    /// the number of the file, and `bytes` has its contents. If a merge has removed the entry itself, this is the end
    /// of the last entry that is not younger.
    fn end_in(self, file: u32, bytes: &[u8]) -> usize {
        let is_entry = |line: &[u8]| crc32fast::hash(line) == self.sum;
        let before = self.offset.checked_sub(1).map_or(Some(&b'\n'), |at| bytes.get(at));
        let line = bytes.get(self.offset..).and_then(|rest| rest.split(|byte| *byte == b'\n').next());
        if file == self.file && before == Some(&b'\n') && line.is_some_and(is_entry) {
            return self.offset;
        }
        let moved = lines_backwards(bytes).find(|(_, line)| is_entry(line));
        let is_old = |line: &[u8]| {
            serde_json::from_slice::<AuditEntry>(line).is_ok_and(|entry| entry.at.as_millis() <= self.at)
        };
        let older = || lines_backwards(bytes).find(|(_, line)| is_old(line));
        match moved {
            Some((offset, _)) => offset,
            None => older().map_or(0, |(offset, line)| offset + line.len()),
        }
    }
}

/// The audit trail of a service: the path of its folder.
#[derive(Clone, Debug)]
pub(crate) struct Trail(PathBuf);

impl Trail {
    /// Returns the audit trail in the data folder `data`. Opens no file.
    pub(crate) fn of(data: &Path) -> Self {
        Self(data.join("audit"))
    }

    fn path(&self, number: u32) -> PathBuf {
        self.0.join(format!("{number:06}.jsonl"))
    }

    /// Returns the numbers of the audit trail's files in ascending order.
    fn numbers(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        match self.0.read_dir() {
            Ok(folder) => {
                for file in folder {
                    let name = file?.file_name();
                    let number =
                        name.to_str().and_then(|name| name.strip_suffix(".jsonl")?.parse::<u32>().ok());
                    numbers.extend(number);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Appends an entry to the audit trail. Returns once the entry survives a power failure. Blocks the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written. The file may have the entry even then.
    pub(crate) fn append(&self, mut entry: AuditEntry) -> io::Result<()> {
        shorten(&mut entry);
        // A command may run as another user, such as the administrator. Its files must still belong to the user of the
        // service.
        // A data folder that was moved away is not made again, since changes in a new folder would be lost with it.
        files::make_in_folder(&self.0)?;
        files::give_to_owner_of_folder(&self.0)?;
        let lock = files::open_lock(&self.0.join("lock"))?;
        // Some file systems have no locks. Without a lock, an append is still complete, but a file may become a little
        // too large.
        // The lock lasts until `lock` is closed at the end of this function.
        let _held = lock.lock();
        let numbers = self.numbers()?;
        let last = numbers.last().copied().unwrap_or(0);
        let is_full = |number| self.path(number).metadata().is_ok_and(|file| file.len() >= FULL);
        let number = if last == 0 || is_full(last) { last + 1 } else { last };
        let mut file = self.open(number)?;
        files::give_to_owner_of_folder(&self.path(number))?;
        // The folder is synced before the first entry. If this fails, the file stays empty, and the next append syncs
        // the folder again.
        if file.metadata()?.len() == 0 {
            files::sync_folder(&self.path(number))?;
        }
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        // If a power failure has cut the last line, a line break comes first.
        if is_torn(&mut file)? {
            line.insert(0, b'\n');
        }
        file.write_all(&line)?;
        file.sync_data()?;
        if number != last {
            // After a crash there may be more surplus files than one merge removes, so several merges may run.
            let surplus = (numbers.len() + 1).saturating_sub(KEPT);
            numbers.windows(2).take(surplus).try_for_each(|pair| self.fold(pair[0], pair[1]))?;
        }
        Ok(())
    }

    /// Merges the file `first` into the file `second`, and removes `first`. If the merged file would be too large, the
    /// namespace with the most bytes loses its oldest entries.
    ///
    /// If a crash has interrupted an earlier merge, `second` already has the entries of `first`, and the merge does not
    /// add them again.
    fn fold(&self, first: u32, second: u32) -> io::Result<()> {
        let texts = (std::fs::read(self.path(first))?, std::fs::read(self.path(second))?);
        let lines_of = |text| <[u8]>::split(text, |byte| *byte == b'\n').filter(|line| !line.is_empty());
        let older: Vec<&[u8]> = lines_of(&texts.0).collect();
        let known: HashSet<&[u8]> = older.iter().copied().collect();
        let newer = lines_of(&texts.1).filter(|line| !known.contains(line));
        let mut lines: Vec<Option<&[u8]>> = older.iter().copied().chain(newer).map(Some).collect();
        let mut holders: HashMap<Option<String>, Holder> = HashMap::new();
        for (place, line) in lines.iter().enumerate() {
            let line = line.unwrap_or_default();
            let entry = serde_json::from_slice::<AuditEntry>(line);
            // A line that cannot be read counts as an entry without a namespace, so such lines are dropped in time as
            // well.
            let holder = holders.entry(entry.ok().and_then(|entry| entry.namespace)).or_default();
            holder.bytes += line.len() as u64 + 1;
            holder.places.push_back(place);
        }
        let mut left: u64 = holders.values().map(|holder| holder.bytes).sum();
        while left > FULL
            && let Some(holder) = holders.values_mut().max_by_key(|holder| holder.bytes)
            && let Some(place) = holder.places.pop_front()
        {
            // A dropped line leaves `None` behind, because the places of the other lines must stay valid.
            let bytes = lines[place].take().map_or(0, |line| line.len() as u64 + 1);
            (left, holder.bytes) = (left - bytes, holder.bytes - bytes);
        }
        let mut kept = Vec::new();
        for line in lines.into_iter().flatten() {
            kept.extend_from_slice(line);
            kept.push(b'\n');
        }
        files::replace_bytes(&self.path(second), &kept)?;
        std::fs::remove_file(self.path(first))
    }

    fn open(&self, number: u32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // The owner of the folder could put a link there. A command of the administrator would then append to
            // another file.
            let no_links = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
            options.mode(0o600).custom_flags(no_links);
        }
        options.open(self.path(number))
    }

    /// Returns at most `limit` entries that `wanted` selects, the newest first. With `before`, returns only entries
    /// before that position. If more entries may follow, also returns the value of `before` for the next page. Blocks
    /// the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub(crate) fn newest(
        &self,
        wanted: &Wanted,
        before: Option<TrailPosition>,
        limit: usize,
    ) -> io::Result<(Vec<AuditEntry>, Option<TrailPosition>)> {
        let lock = files::open_lock(&self.0.join("lock"));
        // The lock prevents a merge during the read. If the lock file cannot be opened, the read continues without a
        // lock.
        let _held = lock.as_ref().map(|lock| lock.lock_shared());
        let mut entries = Vec::new();
        let numbers = self.numbers()?;
        // A merge moves the entries of a file to the next file.
        let first = match before {
            Some(place) => numbers.iter().copied().find(|file| *file >= place.file),
            None => numbers.last().copied(),
        };
        let Some(first) = first else { return Ok((entries, None)) };
        for file in numbers.into_iter().rev().filter(|file| *file <= first) {
            let bytes = match std::fs::read(self.path(file)) {
                // A merge has removed this file, the oldest, after its name was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            let place = before.filter(|_| file == first);
            let end = place.map_or(bytes.len(), |place| place.end_in(file, &bytes));
            for (offset, line) in lines_backwards(&bytes[..end]) {
                let entry: Option<AuditEntry> = serde_json::from_slice(line).ok();
                let Some(entry) = entry.filter(|entry| wanted.has(entry)) else { continue };
                let at = entry.at.as_millis();
                entries.push(entry);
                if entries.len() >= limit {
                    let sum = crc32fast::hash(line);
                    return Ok((entries, Some(TrailPosition { file, offset, at, sum })));
                }
            }
        }
        Ok((entries, None))
    }
}

/// The part of two merged files that belongs to one namespace: the number of bytes, and the lines.
#[derive(Default)]
struct Holder {
    bytes: u64,
    /// The indexes of the namespace's lines in the list of all lines of the two merged files, the oldest line first.
    places: VecDeque<usize>,
}

/// Returns whether a file ends in the middle of a line.
fn is_torn(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Returns the lines of a text with their byte offsets, the last line first.
fn lines_backwards(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut end = bytes.len();
    core::iter::from_fn(move || {
        let line = bytes[..end].strip_suffix(b"\n").unwrap_or(&bytes[..end]);
        let start = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let found = (end > 0).then_some((start, &line[start..]));
        end = start;
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_api::{AuditAuthor, AuditOutcome, AuditVia};

    fn entry(at: u64, namespace: &str, detail: &str) -> AuditEntry {
        AuditEntry {
            at: Moment::from_millis(at),
            action: AuditAction::CancelMany,
            outcome: AuditOutcome::Done,
            by: AuditAuthor {
                via: AuditVia::Api,
                token: Some("ops".to_owned()),
                token_id: Some("ab12".to_owned()),
                user: None,
                peer: None,
                request_id: None,
            },
            namespace: Some(namespace.to_owned()),
            target: None,
            count: Some(700),
            detail: Some(detail.to_owned()),
        }
    }

    /// Reads all entries that `wanted` selects, in pages of at most `limit` entries. Returns the moments of the
    /// entries.
    fn all(trail: &Trail, wanted: &Wanted, limit: usize) -> Vec<u64> {
        let (mut moments, mut place) = (Vec::new(), None);
        loop {
            let (entries, next) = trail.newest(wanted, place, limit).unwrap();
            moments.extend(entries.iter().map(|entry| entry.at.as_millis()));
            place = next.and_then(|next| TrailPosition::parse(&next.cursor()));
            if place.is_none() {
                return moments;
            }
        }
    }

    #[test]
    fn entries_are_found_by_each_condition_the_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::of(folder.path());
        assert_eq!(all(&trail, &Wanted::default(), 2), [0; 0]);
        for at in 1..=5 {
            trail.append(entry(at, if at % 2 == 0 { "even" } else { "odd" }, "of\nmany\nlines")).unwrap();
        }
        for limit in 1..7 {
            assert_eq!(all(&trail, &Wanted::default(), limit), [5, 4, 3, 2, 1], "in pages of {limit}");
        }
        let text = |text: &str| Some(text.to_owned());
        let at = |at| Some(Moment::from_millis(at));
        let none = Wanted::default;
        for (wanted, expected) in [
            (Wanted { namespace: text("even"), ..none() }, &[4, 2][..]),
            (Wanted { token: text("ops"), ..none() }, &[5, 4, 3, 2, 1]),
            (Wanted { token: text("ab12"), since: at(4), ..none() }, &[5, 4]),
            (Wanted { token: text("other"), ..none() }, &[]),
            (Wanted { since: at(2), until: at(4), ..none() }, &[3, 2]),
            (Wanted { action: Some(AuditAction::BackUp), ..none() }, &[]),
        ] {
            assert_eq!(all(&trail, &wanted, 2), expected, "{wanted:?}");
        }
    }

    #[test]
    fn a_torn_line_is_left_out_and_no_later_one_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::of(folder.path());
        trail.append(entry(1, "a", "")).unwrap();
        let path = trail.path(1);
        let whole = std::fs::read(&path).unwrap();
        for torn in 1..whole.len() {
            std::fs::write(&path, [&whole[..], &whole[..torn]].concat()).unwrap();
            trail.append(entry(2, "a", "")).unwrap();
            // If only the line break is missing, the entry is still read.
            let expected: &[u64] = if torn == whole.len() - 1 { &[2, 1, 1] } else { &[2, 1] };
            assert_eq!(all(&trail, &Wanted::default(), 9), expected, "{torn} bytes of a line");
        }
    }

    #[test]
    fn a_namespace_with_many_changes_pushes_out_its_own_alone() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::of(folder.path());
        trail.append(entry(1, "quiet", "")).unwrap();
        let unbound = AuditEntry { namespace: None, ..entry(2, "", "") };
        trail.append(unbound).unwrap();
        // The namespace `noisy` fills many files. Each append is synced, so most of its entries are written at once.
        for round in 0..3 * KEPT {
            let line = |number| {
                let noisy = entry(3, "noisy", &"d".repeat(900));
                let mut line = serde_json::to_vec(&AuditEntry { count: Some(number), ..noisy }).unwrap();
                line.push(b'\n');
                line
            };
            let number = |nth| (round as u64) << 32 | nth;
            let many: Vec<u8> = (0..FULL / 1_000).flat_map(|nth| line(number(nth))).collect();
            let last = trail.numbers().unwrap().pop().unwrap();
            trail.open(last).unwrap().write_all(&many).unwrap();
            trail.append(entry(4, "noisy", "the last one")).unwrap();
        }
        let numbers = trail.numbers().unwrap();
        assert_eq!(numbers.len(), KEPT, "{numbers:?}");
        let found = |namespace: &str| {
            let wanted = Wanted { namespace: Some(namespace.to_owned()), ..Wanted::default() };
            all(&trail, &wanted, 1_000)
        };
        assert_eq!(found("quiet"), [1]);
        let wanted = Wanted { until: Some(Moment::from_millis(3)), ..Wanted::default() };
        assert_eq!(all(&trail, &wanted, 1_000), [2, 1], "the oldest file has what others did");
        assert_eq!(found("noisy")[0], 4);
        let bytes: u64 = numbers.iter().map(|number| trail.path(*number).metadata().unwrap().len()).sum();
        assert!(bytes <= KEPT as u64 * (FULL + (1 << 20)), "{bytes}");
    }

    #[test]
    fn a_data_folder_that_is_gone_is_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let trail = Trail::of(&data);
        trail.append(entry(1, "a", "")).unwrap();
        std::fs::rename(&data, folder.path().join("moved")).unwrap();
        assert_eq!(trail.append(entry(2, "a", "")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!data.exists());
    }

    #[test]
    fn the_trail_is_bounded_and_a_list_ends_where_its_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::of(folder.path());
        for number in 1..=9 {
            trail.append(entry(number, "a", "")).unwrap();
            let file = trail.open(trail.numbers().unwrap().pop().unwrap()).unwrap();
            file.set_len(FULL).unwrap();
        }
        assert_eq!(trail.numbers().unwrap(), [6, 7, 8, 9]);
        let (newest, next) = trail.newest(&Wanted::default(), None, 1).unwrap();
        assert_eq!(newest[0].at, Moment::from_millis(9));
        // The file of a cursor may be gone when a client asks for the next page.
        let gone = Some(TrailPosition { file: 5, offset: 7, at: 0, sum: 0 });
        assert_eq!(trail.newest(&Wanted::default(), gone, 1).unwrap(), (Vec::new(), None));
        assert_eq!(trail.newest(&Wanted::default(), next, 9).unwrap().0.len(), 8);
        let longest = entry(1, &"n".repeat(9_000), &"d".repeat(9_000));
        trail.append(longest).unwrap();
        let (newest, _) = trail.newest(&Wanted::default(), None, 1).unwrap();
        assert_eq!(newest[0].detail.as_ref().unwrap().len(), LONGEST_DETAIL);
        assert_eq!(newest[0].namespace.as_ref().unwrap().len(), LONGEST_TEXT);
    }

    #[test]
    fn a_merge_between_two_pages_hides_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::of(folder.path());
        for number in 1..=8 {
            trail.append(entry(number, "a", "")).unwrap();
            if number % 2 == 0 {
                let file = trail.open(trail.numbers().unwrap().pop().unwrap()).unwrap();
                file.set_len(FULL).unwrap();
            }
        }
        let page = |place, limit| {
            let (entries, next) = trail.newest(&Wanted::default(), place, limit).unwrap();
            let moments: Vec<u64> = entries.iter().map(|entry| entry.at.as_millis()).collect();
            (moments, next.and_then(|next| TrailPosition::parse(&next.cursor())))
        };
        let ((five, of_second), (seven, of_first)) = (page(None, 5), page(None, 7));
        assert_eq!((&five[..], &seven[5..]), (&[8, 7, 6, 5, 4][..], &[3, 2][..]));
        assert_eq!((of_second.unwrap().file, of_first.unwrap().file), (2, 1));
        trail.append(entry(9, "a", "")).unwrap();
        assert_eq!(trail.numbers().unwrap(), [2, 3, 4, 5], "the first two files are merged");
        assert_eq!((page(of_second, 9).0, page(of_first, 9).0), (vec![3, 2, 1], vec![1]));
        // An entry that a merge has removed is not found, but older entries of other namespaces are.
        let removed = TrailPosition { sum: 0, ..of_second.unwrap() };
        assert_eq!(page(Some(removed), 9).0, [4, 3, 2, 1]);
        assert_eq!(page(Some(TrailPosition { at: 3, ..removed }), 2).0, [3, 2]);
        for wrong in ["", "1-2", "1-2-3", "1-2-3-4-5", "1-2-3-x"] {
            assert_eq!(TrailPosition::parse(wrong), None, "{wrong}");
        }
    }
}
