//! The load tool wrk, a program of the system.

use crate::results::LEFT_OUT;
use std::net::SocketAddr;
use std::process::{Command, Output};

const PROGRAM: &str = "wrk";

/// The report of wrk, a load generator, on a run without errors.
#[derive(Debug, PartialEq)]
pub(super) struct Report {
    pub(super) requests: f64,
    pub(super) seconds: f64,
    /// The median time from a request to its response, in ms.
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Returns the version of wrk, or a text that says that wrk is not installed.
pub(crate) fn version() -> String {
    // The tool fails when it prints its version.
    let output = Command::new(PROGRAM).arg("--version").output();
    let version = output.ok().and_then(|output| {
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.split_whitespace().nth(1)?.to_owned())
    });
    version.unwrap_or_else(|| format!("{LEFT_OUT}: {}", why_not()))
}

/// Returns whether wrk, the load generator, is installed.
pub(super) fn is_here() -> bool {
    Command::new(PROGRAM).arg("--version").output().is_ok()
}

pub(super) fn why_not() -> &'static str {
    "no wrk here"
}

/// Runs wrk, which requests the path `/` from the server for some seconds, on one thread. Each connection sends its
/// next request after the response to the request before.
///
/// # Errors
///
/// Fails if a request got no response, or if a response was not a success.
pub(super) fn run(server: SocketAddr, connections: usize, seconds: u64) -> Result<Report, String> {
    let [connections, seconds] = [connections as u64, seconds].map(|number| number.to_string());
    let address = format!("http://{server}/");
    let arguments = ["-t1", "-c", &connections, "-d", &seconds, "--latency", &address];
    let output = Command::new(PROGRAM).args(arguments).output().map_err(|error| error.to_string())?;
    let Output { status, stdout, stderr } = output;
    let text = String::from_utf8_lossy(&stdout);
    match parse(&text) {
        Some(report) if status.success() => Ok(report),
        _ => Err(format!("{status}: {text}{}", String::from_utf8_lossy(&stderr))),
    }
}

/// Reads a report of wrk. Returns `None` if the text is not a report, or if the report has an error.
fn parse(text: &str) -> Option<Report> {
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return None;
    }
    let after = |label: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(label).map(str::trim))
    };
    let (requests, seconds) = text.lines().find_map(|line| line.trim().split_once(" requests in "))?;
    let (seconds, _) = seconds.split_once(',')?;
    Some(Report {
        requests: requests.parse().ok()?,
        seconds: millis(seconds)? / 1e3,
        p50: millis(after("50%")?)?,
        p99: millis(after("99%")?)?,
    })
}

fn millis(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[number.len()..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Running 4s test @ http://127.0.0.1:8080/
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.34ms    0.87ms  21.70ms   91.88%
    Req/Sec    78.99k     3.93k   87.02k    75.00%
  Latency Distribution
     50%  980.00us
     75%    1.53ms
     90%    2.09ms
     99%    1.04s 
  315999 requests in 4.02s, 38.88MB read
Requests/sec:  78606.72
Transfer/sec:      9.67MB
";

    #[test]
    fn a_report_without_errors_is_read() {
        let expected = Report { requests: 315_999.0, seconds: 4.02, p50: 0.98, p99: 1_040.0 };
        assert_eq!(parse(TEXT), Some(expected));
    }

    #[test]
    fn a_report_with_errors_is_none() {
        for line in
            ["  Socket errors: connect 0, read 3, write 0, timeout 0", "  Non-2xx or 3xx responses: 7"]
        {
            assert_eq!(parse(&format!("{TEXT}{line}\n")), None);
        }
        assert_eq!(parse("unable to connect to 127.0.0.1:1 Connection refused"), None);
    }
}
