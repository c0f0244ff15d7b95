//! A container that grants half a core: an engine has one shard there, not one for each core of the machine.
//!
//! The test makes a control group, which takes a privilege, and starts this program again as a child in it.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tourbillon::{Builder, Fired};

const CHILD: &str = "TOURBILLON_QUOTA_CHILD";

/// A control group, which ends with this.
struct Group(PathBuf);

impl Group {
    /// One that grants half a core: of the second version, or of the first.
    fn of_half_a_core() -> io::Result<Self> {
        let name = format!("tourbillon-{}", std::process::id());
        let unified = Path::new("/sys/fs/cgroup");
        if unified.join("cgroup.controllers").exists() {
            return Self::make(unified.join(name), &[("cpu.max", "50000 100000")]);
        }
        Self::make(
            unified.join("cpu").join(name),
            &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")],
        )
    }

    fn make(path: PathBuf, settings: &[(&str, &str)]) -> io::Result<Self> {
        fs::create_dir(&path)?;
        let group = Self(path);
        for (file, value) in settings {
            // Not `fs::write`, which would make the file where there is none.
            let mut file = fs::OpenOptions::new().write(true).open(group.0.join(file))?;
            io::Write::write_all(&mut file, value.as_bytes())?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its one process has ended and was waited for, and may take a moment to leave.
        let is_gone = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_micros(100));
            fs::remove_dir(&self.0).is_ok()
        });
        assert!(is_gone || std::thread::panicking(), "{} remains", self.0.display());
    }
}

fn shards_by_default() -> usize {
    let engine = Builder::new().build(|_: Fired<'_, ()>| {}).unwrap();
    engine.handle().stats().shards.len()
}

#[test]
fn a_child() {
    let Ok(group) = env::var(CHILD) else { return };
    // All threads of this process move.
    fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    eprintln!("shards: {}", shards_by_default());
}

#[test]
fn half_a_core_is_one_shard() {
    if shards_by_default() == 1 {
        eprintln!("skipped: there is one core here anyway");
        return;
    }
    let group = match Group::of_half_a_core() {
        Ok(group) => group,
        Err(error) => {
            eprintln!("skipped: no control group can be made here ({error})");
            return;
        }
    };
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_child", "--nocapture"])
        .env(CHILD, &group.0)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("shards: 1\n"), "{text}");
}
