//! The versions of the compared crates, from the lock file.

use std::collections::BTreeMap;

const COMPARED: [&str; 15] = [
    "tourbillon",
    "tokio",
    "futures-timer",
    "tokio-util",
    "pingora-timeout",
    "async-io",
    "async-executor",
    "hierarchical_hash_wheel_timer",
    "kestrel-timer",
    "moka",
    "scc",
    "axum",
    "hyper",
    "hyper-util",
    "tower",
];
const LOCK: &str = include_str!("../Cargo.lock");

pub(crate) fn versions() -> BTreeMap<String, String> {
    let version = |name: &str| Some((name.to_owned(), version(name)?.to_owned()));
    COMPARED.into_iter().filter_map(version).collect()
}

fn version(name: &str) -> Option<&'static str> {
    let mut lines = LOCK.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_compared_crate_has_a_version() {
        let versions = versions();
        for name in COMPARED {
            assert!(versions[name].starts_with(|first: char| first.is_ascii_digit()), "{name}");
        }
        assert_eq!(version("nothing of this name"), None);
    }
}
