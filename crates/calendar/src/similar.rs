//! Finds the time zone that a misspelt name means.

/// Returns the name of the zone in this machine's database that is most similar to `text`; `None` if no name is
/// similar. For example, `Europe/Zurch` and `zurich` give `Europe/Zurich`.
pub(super) fn zone(text: &str) -> Option<String> {
    // A longer text is not similar to any name.
    const LONGEST: usize = 40;
    if text.len() > LONGEST {
        return None;
    }
    let text = text.trim().to_ascii_lowercase().replace(' ', "_");
    let names = jiff::tz::db().available().map(|name| name.as_str().to_owned());
    // Some databases list each zone three times: by its name, and again in these two folders.
    let names = names.filter(|name| !name.starts_with("posix/") && !name.starts_with("right/"));
    let distance = |name: &str| strsim::osa_distance(&text, &name.to_ascii_lowercase());
    // People often leave out the region, so the text is also compared with the city.
    let city = |name: &str| name.rsplit_once('/').map_or(usize::MAX, |(_, city)| distance(city));
    let scored = names.map(|name| (distance(&name).min(city(&name)), name));
    let best = scored.min()?;
    (best.0 <= 1 + text.len() / 8).then_some(best.1)
}
