//! An engine in a container that grants half a core. It has one shard, not a shard for each core of the machine.
//!
//! The standard library finds the quota. The first test makes a control group of the version that the system has. Then
//! it starts this program again as a child in that group. The second test makes folders with the files of control
//! groups of both versions. A child uses such a folder as its root and starts an engine. Both tests need a privilege.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tourbillon::{Builder, Fired};

const CHILD: &str = "TOURBILLON_QUOTA_CHILD";
/// The environment variable that gives a child process its root folder.
const ROOT: &str = "TOURBILLON_QUOTA_ROOT";

/// A control group (cgroup) of Linux. Dropping the value removes the group.
struct Group(PathBuf);

impl Group {
    /// Makes a control group with a quota of half a core. The group has version 2, or else version 1.
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
            // `fs::write` would make the file if it does not exist.
            let mut file = fs::OpenOptions::new().write(true).open(group.0.join(file))?;
            io::Write::write_all(&mut file, value.as_bytes())?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group's only process has ended and was waited for. It may take a moment to leave the group.
        let is_gone = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_micros(100));
            fs::remove_dir(&self.0).is_ok()
        });
        assert!(is_gone || std::thread::panicking(), "{} remains", self.0.display());
    }
}

fn shards_by_default() -> usize {
    let engine = Builder::new().start(|_: Fired<'_, ()>| {}).unwrap();
    engine.handle().stats().shards.len()
}

#[test]
fn a_child() {
    let Ok(group) = env::var(CHILD) else { return };
    // This moves all threads of the process into the group.
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

// --- Trees ---

/// The file that shows the process's place among the control groups (cgroups) of version 2.
const IN_V2: (&str, &str) = ("proc/self/cgroup", "0::/a/b/c\n");
const IN_V1: (&str, &str) =
    ("proc/self/cgroup", "9:memory:/a\n4:cpu,cpuacct:/a/b/c\n1:name=systemd:/elsewhere\n0::/\n");

/// The default number of shards that an engine must have.
#[derive(Clone, Copy)]
enum Shards {
    One,
    /// A shard for each core of the machine.
    All,
    /// Two shards. One shard if the machine has one core.
    Two,
}

/// A tree of control groups (cgroups): its name, its files with their contents, and the expected number of shards. The
/// quota is rounded down to whole cores, but at least to one core.
type Tree<'a> = (&'a str, &'a [(&'a str, &'a str)], Shards);

/// Trees of control groups (cgroups) of version 2. A group and each group above it, except the root, has one file with
/// `quota period`.
const TREES_OF_V2: [Tree<'_>; 12] = [
    ("half a core", &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "50000 100000\n")], Shards::One),
    (
        "one core and a half",
        &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "150000 100000\n")],
        Shards::One,
    ),
    (
        "two cores and a half",
        &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "250000 100000\n")],
        Shards::Two,
    ),
    (
        "the least in the outermost group",
        &[
            IN_V2,
            V2_IS_HERE,
            ("sys/fs/cgroup/a/b/c/cpu.max", "9000000 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "100000 100000\n"),
        ],
        Shards::One,
    ),
    (
        "the least in the middle",
        &[
            IN_V2,
            V2_IS_HERE,
            ("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "5000 10000\n"),
            ("sys/fs/cgroup/a/cpu.max", "9000000 100000\n"),
        ],
        Shards::One,
    ),
    (
        "no file in the innermost group",
        &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/cpu.max", "50000 100000\n")],
        Shards::One,
    ),
    ("no quota", &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n")], Shards::All),
    ("no file at all", &[IN_V2, V2_IS_HERE], Shards::All),
    ("no second version", &[IN_V2, ("sys/fs/cgroup/a/b/c/cpu.max", "50000 100000\n")], Shards::All),
    ("a word", &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "garbage")], Shards::All),
    ("a period of zero", &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "50000 0\n")], Shards::All),
    ("nothing", &[IN_V2, V2_IS_HERE, ("sys/fs/cgroup/a/b/c/cpu.max", "")], Shards::All),
];

/// A file whose presence shows that control groups (cgroups) have version 2.
const V2_IS_HERE: (&str, &str) = ("sys/fs/cgroup/a/b/c/cgroup.controllers", "cpu memory\n");

/// Trees of control groups (cgroups) of version 1. Quota and period each have a file, and each controller has a mount.
const TREES_OF_V1: [Tree<'_>; 9] = [
    (
        "half a core",
        &[
            IN_V1,
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_period_us", "100000\n"),
        ],
        Shards::One,
    ),
    (
        "two cores and a half, both controllers in the mount's name",
        &[
            IN_V1,
            ("sys/fs/cgroup/cpu,cpuacct/a/b/c/cpu.cfs_quota_us", "250000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/a/b/c/cpu.cfs_period_us", "100000\n"),
        ],
        Shards::Two,
    ),
    (
        "half a core, mounted elsewhere",
        &[
            IN_V1,
            (
                "proc/self/mountinfo",
                "20 1 0:5 / /proc rw,nosuid - proc proc rw\n\
                 30 23 0:26 / /groups/of/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("groups/of/cpu/a/b/c/cpu.cfs_quota_us", "50000\n"),
            ("groups/of/cpu/a/b/c/cpu.cfs_period_us", "100000\n"),
        ],
        Shards::One,
    ),
    (
        "the least in the outermost group",
        &[
            IN_V1,
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
        ],
        Shards::One,
    ),
    (
        "half a core, beside a second version without a quota",
        &[
            IN_V1,
            V2_IS_HERE,
            ("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_period_us", "100000\n"),
        ],
        Shards::One,
    ),
    (
        "no quota",
        &[
            IN_V1,
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_period_us", "100000\n"),
        ],
        Shards::All,
    ),
    (
        "garbage",
        &[
            IN_V1,
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_quota_us", "much\n"),
            ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_period_us", ""),
        ],
        Shards::All,
    ),
    ("no period", &[IN_V1, ("sys/fs/cgroup/cpu/a/b/c/cpu.cfs_quota_us", "50000\n")], Shards::All),
    ("no group", &[IN_V1], Shards::All),
];

/// Trees of control groups (cgroups) of neither version. An empty path is left out: the standard library panics at it,
/// and the kernel never writes it.
const OTHER_TREES: [Tree<'_>; 2] = [
    ("nothing at all", &[], Shards::All),
    ("no line that is one", &[("proc/self/cgroup", "garbage\n\n:\n")], Shards::All),
];

/// A folder that contains a tree of control groups (cgroups). Dropping the value removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("quota-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let folder = Self(root);
        for (path, content) in files {
            let path = folder.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_child_with_a_root_of_its_own() {
    let Ok(root) = env::var(ROOT) else { return };
    match std::os::unix::fs::chroot(root) {
        Ok(()) => eprintln!("shards: {}", shards_by_default()),
        Err(error) => eprintln!("no root: {error}"),
    }
}

#[test]
fn quotas_of_both_versions_are_found() {
    let cores = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    for (version, trees) in [("2", &TREES_OF_V2[..]), ("1", &TREES_OF_V1), ("neither", &OTHER_TREES)] {
        for (name, files, expected) in trees {
            let folder = Folder::with(files);
            let output = Command::new(env::current_exe().unwrap())
                .args(["--exact", "a_child_with_a_root_of_its_own", "--nocapture"])
                .env(ROOT, &folder.0)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            if let Some((_, error)) = text.split_once("no root: ") {
                eprintln!("skipped: a child cannot have a root of its own here ({})", error.trim_end());
                return;
            }
            let expected = match expected {
                Shards::One => 1,
                Shards::Two => cores.min(2),
                Shards::All => cores,
            };
            assert!(text.contains(&format!("shards: {expected}\n")), "version {version}, {name}: {text}");
        }
    }
}
