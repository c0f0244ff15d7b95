//! The zone that a misspelt name means.

/// The zone of this machine's database whose name resembles a text most, if any name does: `Europe/Zurich` for
/// `Europe/Zurch` or `zurich`.
pub(super) fn zone(text: &str) -> Option<String> {
    // A text that is far longer than a name resembles none.
    const LONGEST: usize = 40;
    if text.len() > LONGEST {
        return None;
    }
    let text = text.trim().to_ascii_lowercase().replace(' ', "_");
    let names = jiff::tz::db().available().map(|name| name.as_str().to_owned());
    // Some databases have each zone three times.
    let names = names.filter(|name| !name.starts_with("posix/") && !name.starts_with("right/"));
    let distance = |name: &str| strsim::osa_distance(&text, &name.to_ascii_lowercase());
    // The region is often left out.
    let city = |name: &str| name.rsplit_once('/').map_or(usize::MAX, |(_, city)| distance(city));
    let scored = names.map(|name| (distance(&name).min(city(&name)), name));
    let best = scored.min()?;
    (best.0 <= 1 + text.len() / 8).then_some(best.1)
}
