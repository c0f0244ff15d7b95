//! Stores all words of a command in one buffer. A commit has about forty words, most of them a few bytes long.

/// The words of a command to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    /// The position in `bytes` at which each word ends.
    ends: Vec<usize>,
}

/// Values that can be sent to a script as its arguments.
pub(crate) trait Arguments {
    /// Adds the arguments to the words of a command.
    fn add_to(self, words: &mut Words);
}

impl Words {
    pub(crate) fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    /// Adds a number as a word of decimal digits.
    pub(crate) fn push_number(&mut self, mut number: u64) {
        let start = self.bytes.len();
        loop {
            self.bytes.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
            number /= 10;
            if number == 0 {
                break;
            }
        }
        // The loop has pushed the last digit first.
        if let Some(digits) = self.bytes.get_mut(start..) {
            digits.reverse();
        }
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }
}

impl Arguments for Words {
    fn add_to(self, words: &mut Words) {
        words.append(&self);
    }
}

impl<I: IntoIterator<Item = Vec<u8>>> Arguments for I {
    fn add_to(self, words: &mut Words) {
        self.into_iter().for_each(|word| words.push(&word));
    }
}

impl From<Vec<Vec<u8>>> for Words {
    fn from(arguments: Vec<Vec<u8>>) -> Self {
        let mut words = Self::default();
        arguments.add_to(&mut words);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_was_pushed() {
        let mut words = Words::default();
        words.push(b"");
        for number in [0, 7, 10, 1_795_000_000_000, u64::MAX] {
            words.push_number(number);
        }
        let mut all = Words::from(vec![b"first".to_vec()]);
        words.add_to(&mut all);
        all.push(b"last");
        let text: Vec<_> = all.iter().map(|word| core::str::from_utf8(word).unwrap()).collect();
        assert_eq!(text, ["first", "", "0", "7", "10", "1795000000000", "18446744073709551615", "last"]);
    }
}
