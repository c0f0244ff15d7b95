//! Describes the machine of the measurement.

use serde_json::{Value, json};
use std::fs;
use std::process::Command;

pub(crate) fn describe() -> Value {
    json!({
        "processor": processor(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": first_line("/proc/meminfo"),
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load": first_line("/proc/loadavg"),
        "rustc": output("rustc", &["--version"]),
        "commit": commit(),
    })
}

fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = info.lines().find(|line| line.starts_with("model name"))?;
    Some(model.split_once(':')?.1.trim().to_owned())
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

fn commit() -> Option<String> {
    let commit = output("git", &["rev-parse", "--short", "HEAD"])?;
    // The results are excluded, since new results do not change the measured code.
    let but_results = [":/", ":(top,exclude)benches/results"];
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changes = output("git", &[&status[..], &but_results].concat())?;
    Some(if changes.is_empty() { commit } else { commit + " and changes" })
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
