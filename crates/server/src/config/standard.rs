//! Reads the environment variables that OpenTelemetry defines. Other programs on the machine may use these variables
//! too. So a wrong value only causes a warning, and a setting of this program takes precedence. Only headers that
//! cannot be parsed are an error, because the collector would refuse all spans without its headers.

use percent_encoding::percent_decode_str;
use std::ffi::OsString;

/// The values that OpenTelemetry's environment variables give to settings, and the warnings about wrong values.
#[derive(Debug, Default)]
pub(super) struct Standard {
    pub(super) values: Vec<StandardValue>,
    pub(super) warnings: Vec<String>,
}

/// The value that an environment variable gives to the setting with the key `key`.
#[derive(Debug)]
pub(super) struct StandardValue {
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
    pub(super) value: String,
}

/// Returns the value of an environment variable. An empty value counts as unset.
fn value_of<'e>(environment: &'e [(OsString, OsString)], name: &str) -> Option<&'e str> {
    let value = environment.iter().find(|(other, _)| other == name).and_then(|(_, value)| value.to_str());
    value.filter(|value| !value.is_empty())
}

/// Reads OpenTelemetry's environment variables that correspond to a setting of the service.
pub(super) fn read(environment: &[(OsString, OsString)]) -> Standard {
    let value = |name| value_of(environment, name);
    let mut read = Standard::default();
    if let Some(name) = value("OTEL_SERVICE_NAME") {
        let (key, variable) = ("telemetry.service_name", "OTEL_SERVICE_NAME");
        read.values.push(StandardValue { key, variable, value: name.to_owned() });
    }
    let traces = value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let all = value("OTEL_EXPORTER_OTLP_ENDPOINT");
    // By OpenTelemetry's rules, the endpoint for traces is a whole URL. The endpoint for all signals gets a path for
    // each signal.
    let (name, endpoint) = match (traces, all) {
        (Some(url), _) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url.to_owned()),
        (None, Some(url)) => {
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/v1/traces", url.trim_end_matches('/')))
        }
        (None, None) => return read,
    };
    let is_off = value("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
        || value("OTEL_TRACES_EXPORTER") == Some("none");
    // This check comes first, so that an exporter that is switched off causes no warning.
    if is_off {
        return read;
    }
    if !cfg!(feature = "otel") {
        let message = "this program was built without the feature `otel`, so it sends no spans";
        read.warnings.push(format!("{name}: {message}"));
        return read;
    }
    let protocol = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    if let Some((name, protocol)) = protocol.into_iter().find_map(|name| Some((name, value(name)?)))
        && protocol != "http/protobuf"
    {
        read.warnings.push(format!("{name}: {protocol:?} is not spoken; spans are sent by http/protobuf"));
    }
    read.values.push(StandardValue { key: "telemetry.endpoint", variable: name, value: endpoint });
    read
}

/// Parses the headers of requests to the OpenTelemetry collector from an environment variable. The text has names and
/// percent-encoded values, separated by commas. There is no setting for these headers, because they may be secret. If
/// the text is not valid, fails with the variable's name.
pub(crate) fn headers(environment: &[(OsString, OsString)]) -> Result<Vec<(String, String)>, &'static str> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
    let Some((variable, text)) =
        names.into_iter().find_map(|name| Some((name, value_of(environment, name)?)))
    else {
        return Ok(Vec::new());
    };
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim().to_owned(), value.into_owned()))
        })
        .collect::<Option<_>>()
        .ok_or(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        all.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let with = |text| headers(&variables(&[("OTEL_EXPORTER_OTLP_HEADERS", text)]));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            with("api-key=a%2Cb%20c, x = y=z ,"),
            Ok(vec![pair("api-key", "a,b c"), pair("x", "y=z")])
        );
        assert_eq!(with(""), Ok(Vec::new()));
        assert_eq!(with("a"), Err("OTEL_EXPORTER_OTLP_HEADERS"));
        let both =
            variables(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=1"), ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2")]);
        assert_eq!(headers(&both), Ok(vec![pair("b", "2")]));
    }

    #[cfg(feature = "otel")]
    #[test]
    fn the_variable_for_traces_wins_and_that_for_all_signals_gets_a_path() {
        let endpoint = |all: &[(&str, &str)]| {
            let read = read(&variables(all));
            let found = read.values.into_iter().find(|found| found.key == "telemetry.endpoint");
            (found.map(|found| found.value), read.warnings.len())
        };
        let (all, traces) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let base = (all, "http://c:4318/base/");
        assert_eq!(endpoint(&[base]), (Some("http://c:4318/base/v1/traces".to_owned()), 0));
        assert_eq!(endpoint(&[base, (traces, "http://t/x")]), (Some("http://t/x".to_owned()), 0));
        assert_eq!(endpoint(&[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).1, 1);
        assert_eq!(endpoint(&[base, ("OTEL_SDK_DISABLED", "true")]), (None, 0));
        assert_eq!(endpoint(&[base, ("OTEL_TRACES_EXPORTER", "none")]), (None, 0));
        assert_eq!(endpoint(&[(all, "")]), (None, 0));
    }

    #[cfg(not(feature = "otel"))]
    #[test]
    fn a_program_without_the_feature_warns_of_a_collector() {
        let read = read(&variables(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")]));
        assert!(read.values.is_empty());
        assert!(read.warnings.len() == 1 && read.warnings[0].contains("`otel`"), "{:?}", read.warnings);
    }
}
