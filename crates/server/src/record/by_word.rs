//! Keeps a value for each value of a metric's label.

/// A map with a value for each of the `N` words that a metric's label can have.
#[derive(Debug)]
pub(crate) struct ByWord<V, const N: usize>([(&'static str, V); N]);

impl<V: Default, const N: usize> ByWord<V, N> {
    const fn words(&self) -> &[(&'static str, V); N] {
        &self.0
    }

    pub(crate) fn new(words: [&'static str; N]) -> Self {
        Self(words.map(|word| (word, V::default())))
    }

    /// Returns the value for a word of the label. For an unknown word, returns the value of the label's last word.
    pub(crate) fn of(&self, word: &str) -> &V {
        let found = self.0.iter().find(|(known, _)| *known == word);
        &found.unwrap_or(&self.0[N - 1]).1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &V)> {
        self.words().iter().map(|(word, value)| (*word, value))
    }
}
