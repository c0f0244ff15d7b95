//! Suggests a known name for a name that was probably misspelt.

/// Returns the name that most resembles a text, or `None` if no name is similar.
///
/// Skips names whose length differs much from the length of the text. Otherwise a long text from a client could take
/// much time, because the time of a comparison is proportional to the product of both lengths.
pub(crate) fn similar<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let (length, most) = (text.chars().count(), 1 + text.chars().count() / 5);
    let near = names.filter(|name| length.abs_diff(name.chars().count()) <= most);
    let scored = near.map(|name| (strsim::damerau_levenshtein(text, name), name));
    let best = scored.min_by_key(|&(distance, _)| distance)?;
    (best.0 <= most).then_some(best.1)
}
