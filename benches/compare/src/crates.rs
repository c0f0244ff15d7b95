//! The versions of what is compared, off the lock file.

use serde_json::Value;

const COMPARED: [&str; 3] = ["tourbillon", "tokio", "futures-timer"];
const LOCK: &str = include_str!("../Cargo.lock");

pub(crate) fn versions() -> Value {
    COMPARED.into_iter().map(|name| (name, version(name))).collect()
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
        for name in COMPARED {
            let version = version(name).unwrap_or_else(|| panic!("{name} is in the lock file"));
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{name} {version}");
        }
        assert_eq!(version("nothing of this name"), None);
    }
}
