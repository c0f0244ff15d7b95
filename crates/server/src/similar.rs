//! Names that were probably meant.

/// The name that resembles a text most, if one does: for a suggestion.
pub(crate) fn similar<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let scored = names.map(|name| (strsim::damerau_levenshtein(text, name), name));
    let best = scored.min_by_key(|&(distance, _)| distance)?;
    (best.0 <= 1 + text.len() / 5).then_some(best.1)
}
