//! Parses and writes the values of the log's settings.

use super::value::{Form, Value};
use crate::log;
use tracing::level_filters::LevelFilter;

/// The names of the log's levels, the most severe level first.
const LEVELS: [(&str, LevelFilter); 4] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
];

impl Value for LevelFilter {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "LEVEL";

    fn parse(text: &str) -> Result<Self, String> {
        let level = LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| *level);
        level.ok_or_else(|| format!("{text:?} is none of error, warn, info and debug"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for log::Form {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "FORM";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is none of text and json")),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_forms_are_read_as_they_are_shown() {
        for (name, level) in LEVELS {
            assert_eq!(LevelFilter::parse(name), Ok(level));
            assert_eq!(level.show(), name);
        }
        for form in [log::Form::Text, log::Form::Json] {
            assert_eq!(log::Form::parse(&form.show()), Ok(form));
        }
        assert!(LevelFilter::parse("trace").is_err() && LevelFilter::parse("INFO").is_err());
        assert!(log::Form::parse("logfmt").is_err());
    }
}
