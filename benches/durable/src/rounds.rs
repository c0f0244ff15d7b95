//! Measures the contestants. They take turns round by round, and each turn has its own processes and its own folder.
//! In the cases on PostgreSQL, all turns of a case have a database of their own on one server.

use crate::ours::now;
use crate::plan::{CASES, CONTESTANTS, Case, Contestant};
use crate::results::{Figures, Outcome, Results, Row};
use crate::server::Host;
use crate::{machine, process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

pub(crate) struct Choice {
    pub(crate) quick: bool,
    pub(crate) only: Vec<String>,
    pub(crate) contestant: Option<String>,
    /// The number of rounds for all contestants. `None` means the number that each case plans.
    pub(crate) rounds: Option<usize>,
    pub(crate) data: PathBuf,
    pub(crate) results: PathBuf,
}

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// The peers that are written in Rust. They are one program.
const IN_RUST: [&str; 2] = ["river", "awa"];

/// The path of a Node.js that all client libraries support. The machine's own Node.js may have another version.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/node_modules/.bin/node");

pub(crate) fn measure(choice: &Choice) -> Result<(), Box<dyn Error>> {
    if let Some(unknown) = choice.only.iter().find(|name| !CASES.iter().any(|case| case.is_called(name))) {
        let known: BTreeSet<&str> = CASES.iter().flat_map(|case| [case.name, case.workload]).collect();
        return Err(format!("no case or workload {unknown}: there are {known:?}").into());
    }
    let mut results =
        if choice.results.exists() { Results::read(&choice.results)? } else { Results::default() };
    let mut failures = 0;
    let is_chosen =
        |case: &&Case| choice.only.is_empty() || choice.only.iter().any(|name| case.is_called(name));
    for case in CASES.iter().filter(is_chosen) {
        let outcome = measure_case(case, choice)?;
        failures += outcome.rows.iter().filter(|row| row.note.is_some()).count();
        results.machine = machine::describe();
        results.machine["commit"] = library_commit().into();
        results.machine["file_system"] = file_system(&choice.data).into();
        results.set_versions(versions());
        if choice.contestant.is_none() {
            results.put(outcome);
        } else {
            results.put_rows(outcome)?;
        }
        // The results are written after each case. So a run that is stopped leaves whole cases.
        results.write(&choice.results)?;
    }
    if failures > 0 { Err(format!("{failures} rows have notes").into()) } else { Ok(()) }
}

fn measure_case(case: &Case, choice: &Choice) -> Result<Outcome, Box<dyn Error>> {
    let sizes = if choice.quick { (case.quick)() } else { (case.full)() };
    let is_chosen = |one: &&Contestant| {
        one.cases.contains(&case.name)
            && choice.contestant.as_ref().is_none_or(|part| one.name.contains(part))
    };
    let contestants: Vec<&Contestant> = CONTESTANTS.iter().filter(is_chosen).collect();
    let mut rows: Vec<Row> = contestants
        .iter()
        .map(|one| Row {
            contestant: one.name.to_owned(),
            note: None,
            is_alone: choice.contestant.is_some(),
            numbers: BTreeMap::new(),
        })
        .collect();
    let begin = Instant::now();
    let fsync_ms = fsync(&choice.data)?;
    let rounds_of = |one: &Contestant| {
        choice.rounds.unwrap_or_else(|| if choice.quick { 1 } else { case.rounds_of(one) })
    };
    let rounds = contestants.iter().map(|one| rounds_of(one)).max().unwrap_or(0);
    let mut host = if case.is_on_postgres() { Some(Host::start(&choice.data)?) } else { None };
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            // Each round begins with another contestant.
            let index = (turn + round) % contestants.len();
            let (one, row) = (contestants[index], &mut rows[index]);
            if round >= rounds_of(one) {
                continue;
            }
            let start = Instant::now();
            match take_turn(one, case, &sizes, &choice.data, host.as_mut()) {
                Ok(figures) => {
                    let text = serde_json::to_string(&figures.numbers)?;
                    eprintln!("{} round {round}: {} ({:.0?}): {text}", case.name, one.name, start.elapsed());
                    for (key, figure) in figures.numbers {
                        row.numbers.entry(key).or_default().push(figure);
                    }
                }
                Err(error) => {
                    eprintln!("{} round {round}: {}: {error}", case.name, one.name);
                    row.note = Some(error.to_string());
                }
            }
        }
    }
    let commit = library_commit().unwrap_or_default();
    Ok(Outcome {
        case: case.name.to_owned(),
        sizes,
        scale: if choice.quick { "quick" } else { "full" }.to_owned(),
        seconds: begin.elapsed().as_secs(),
        commit,
        versions: versions(),
        fsync_ms,
        rows,
    })
}

fn take_turn(
    one: &Contestant,
    case: &Case,
    sizes: &Value,
    data: &Path,
    host: Option<&mut Host>,
) -> Result<Figures, Box<dyn Error>> {
    let dir = tempfile::Builder::new().prefix("tourbillon-durable-").tempdir_in(data)?;
    // If this program runs as root, PostgreSQL runs as another user, who must read the folder.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    let dir_of = |name: &str| -> Result<PathBuf, Box<dyn Error>> {
        let path = dir.path().join(name);
        fs::create_dir(&path)?;
        Ok(path)
    };
    let home = dir_of("data")?;
    let mut config = (one.config)();
    // A store in SQLite takes part in cases on PostgreSQL, without the server.
    let is_in_postgres = !config["sqlite"].as_bool().unwrap_or(false);
    let mut host = host.filter(|_| is_in_postgres);
    if let Some(host) = host.as_mut() {
        host.begin_turn();
        config["url"] = host.url().into();
        config["server"] = host.pid().into();
    }
    let task = |workload: &str, begin: f64| {
        json!({
            "peer": one.peer, "config": config, "workload": workload, "sizes": sizes, "dir": home, "begin": begin,
        })
        .to_string()
    };
    let program = |task: String| -> Result<Command, Box<dyn Error>> {
        Ok(match one.peer {
            Some(peer) if IN_RUST.contains(&peer) => {
                let mut command = Command::new(rust_peers());
                command.arg(task);
                command
            }
            Some(_) => {
                let mut command = Command::new(NODE);
                command.arg("run.mjs").arg(task).current_dir(PEERS);
                command
            }
            None => {
                let mut command = Command::new(env::current_exe()?);
                command.arg("turn").arg(task);
                command
            }
        })
    };
    let idle = Duration::from_secs(sizes["idle"].as_u64().unwrap_or(0));
    let mut figures = follow(program(task(case.workload, 0.0))?, idle, host.as_deref_mut())?;
    if one.peer.is_none() && case.workload == "stock" && host.is_none() {
        let due = figures.numbers.remove("killed_before").ok_or("the turn was not killed")?;
        let rest = due + 1.5 - now();
        if rest > 0.0 {
            thread::sleep(Duration::from_secs_f64(rest));
        }
        let recovered = follow(program(task("recover", now()))?, idle, None)?;
        figures.numbers.extend(recovered.numbers);
    }
    Ok(figures)
}

/// Returns the path of the program that has the peers in Rust.
fn rust_peers() -> String {
    env::var("RUST_PEERS").unwrap_or_else(|_| format!("{PEERS}/rust/target/release/tourbillon-durable-peers"))
}

/// Starts a measuring process and follows its output to the end. By its output, the process may ask this program to
/// measure or kill it, or for something that `host` does with the server.
fn follow(
    mut command: Command,
    idle: Duration,
    mut host: Option<&mut Host>,
) -> Result<Figures, Box<dyn Error>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let errors = child.stderr.take().map(|errors| thread::spawn(move || last_lines(errors)));
    let followed = read_lines(&mut child, idle, host.as_deref_mut());
    if let Some(host) = host {
        host.release();
    }
    if followed.is_err() {
        let _gone = child.kill();
    }
    let status = child.wait()?;
    let errors = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    match followed? {
        Some(figures) => Ok(figures),
        None => Err(format!("{status}: {errors}").into()),
    }
}

/// Returns the line of the output that has the error. Returns the last line if no line has an error.
fn last_lines(errors: impl std::io::Read) -> String {
    let lines: Vec<String> = BufReader::new(errors).lines().map_while(Result::ok).collect();
    lines.iter().find(|line| line.contains("Error: ")).or(lines.last()).cloned().unwrap_or_default()
}

fn read_lines(
    child: &mut Child,
    idle: Duration,
    mut host: Option<&mut Host>,
) -> Result<Option<Figures>, Box<dyn Error>> {
    let output = child.stdout.take().ok_or("no output")?;
    let mut killed_before = None;
    for line in BufReader::new(output).lines() {
        let line: Value = serde_json::from_str(&line?)?;
        if let Some(pids) = line["idle"].as_array() {
            let pids: Vec<u32> = pids.iter().filter_map(|pid| u32::try_from(pid.as_u64()?).ok()).collect();
            let transactions = |host: &Host| host.transactions();
            host.iter().for_each(|host| host.calm());
            let before = host.as_deref().map(transactions);
            let begin = Instant::now();
            let mut answer = while_idle(&pids, idle);
            if let (Some(before), Some(after)) = (before, host.as_deref().map(transactions)) {
                // The look of this program is a transaction of another database.
                answer.insert("idle_transactions", (after - before) / begin.elapsed().as_secs_f64());
            }
            host.iter().for_each(|host| host.set_autovacuum(true));
            tell(child, &json!(answer))?;
        } else if let Some(answer) = host.as_mut().and_then(|host| host.answer(&line)) {
            tell(child, &json!(answer?))?;
        } else if let Some(due) = line["kill"].as_f64() {
            killed_before = Some(due);
        } else {
            let mut figures: Figures = serde_json::from_value(line)?;
            if let Some(due) = killed_before {
                child.kill()?;
                figures.numbers.insert("killed_before".to_owned(), due);
            }
            return Ok(Some(figures));
        }
    }
    Ok(None)
}

/// Answers a question of a measuring process.
fn tell(child: &mut Child, answer: &Value) -> Result<(), Box<dyn Error>> {
    let answer = answer.to_string() + "\n";
    Ok(child.stdin.as_mut().ok_or("no input")?.write_all(answer.as_bytes())?)
}

/// Measures the processes `pids` during `time` while no timer is due. Returns their processor time and wake-ups.
fn while_idle(pids: &[u32], time: Duration) -> BTreeMap<&'static str, f64> {
    // The turn goes to sleep after it has printed its line.
    thread::sleep(Duration::from_secs(1));
    let sum = |figure: fn(u32) -> f64| pids.iter().map(|pid| figure(*pid)).sum::<f64>();
    let (cpu, wakes) = (sum(process::cpu_seconds), sum(process::wakes));
    thread::sleep(time);
    BTreeMap::from([
        // If a process ended during the pause, its figures are gone, and the difference may be below zero.
        ("idle_cpu_ms", ((sum(process::cpu_seconds) - cpu) * 1e3).max(0.0)),
        ("idle_wakes", (sum(process::wakes) - wakes).max(0.0)),
    ])
}

/// Measures a write of 4 KiB with fdatasync. Returns the median and the 99th percentile of its time, in milliseconds.
fn fsync(data: &Path) -> Result<(f64, f64), Box<dyn Error>> {
    let dir = tempfile::tempdir_in(data)?;
    let mut file = File::create(dir.path().join("floor"))?;
    let mut times = Vec::new();
    for _ in 0..500 {
        let start = Instant::now();
        file.write_all(&[1; 4_096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok((times[250], times[495]))
}

/// Returns the last commit that changed the library. `None` if git does not know.
fn library_commit() -> Option<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    output("git", &["-C", root, "log", "-1", "--format=%h", "--", "src", "crates"])
}

fn file_system(data: &Path) -> String {
    let table = output_all("df", &["--output=fstype", &data.to_string_lossy()]).unwrap_or_default();
    table.lines().nth(1).unwrap_or_default().trim().to_owned()
}

fn versions() -> BTreeMap<String, String> {
    let postgres =
        env::var("POSTGRES_BIN").unwrap_or_else(|_| "/usr/lib/postgresql/15/bin".to_owned()) + "/postgres";
    let nats = env::var("NATS_SERVER").unwrap_or_else(|_| format!("{PEERS}/venv/bin/nats-server"));
    let programs = [
        ("redis-server", "redis-server", "--version"),
        ("beanstalkd", "beanstalkd", "-v"),
        ("PostgreSQL", &*postgres, "--version"),
        ("node", NODE, "--version"),
        ("nats-server", &*nats, "--version"),
    ];
    let programs = programs.into_iter().filter_map(|(name, program, argument)| {
        Some((name.to_owned(), version_in(&output(program, &[argument])?)?.to_owned()))
    });
    let modules = ["bullmq", "ioredis", "graphile-worker", "pg", "pg-boss", "@nats-io/jetstream"]
        .into_iter()
        .filter_map(|name| {
            let text = fs::read_to_string(format!("{PEERS}/node_modules/{name}/package.json")).ok()?;
            let module: Value = serde_json::from_str(&text).ok()?;
            Some((name.to_owned(), module["version"].as_str()?.to_owned()))
        });
    const OWN: &str = include_str!("../Cargo.lock");
    const PEERS_IN_RUST: &str = include_str!("../peers/rust/Cargo.lock");
    let own = ["redb", "hyper", "libsqlite3-sys", "rusqlite", "tokio-postgres"];
    let crates = own.into_iter().filter_map(|name| crate_version(OWN, name));
    let peers = ["riverqueue", "awa"].into_iter().filter_map(|name| crate_version(PEERS_IN_RUST, name));
    // Cases of one page may come from several machines.
    let processor = machine::describe()["processor"].as_str().map(str::to_owned);
    let processor = processor.map(|name| ("processor".to_owned(), name));
    programs.chain(modules).chain(crates).chain(peers).chain(processor).collect()
}

/// Returns the name and version of a crate, from the lock file.
fn crate_version(lock: &str, name: &str) -> Option<(String, String)> {
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')?;
    Some((name.to_owned(), version.to_owned()))
}

/// Runs a program, and returns the first line of its output. `None` if the run fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    Some(output_all(program, arguments)?.lines().next()?.trim().to_owned())
}

fn output_all(program: &str, arguments: &[&str]) -> Option<String> {
    String::from_utf8(Command::new(program).args(arguments).output().ok()?.stdout).ok()
}

/// Returns the first word of `text` that begins with a digit, after an optional `v` or `v=`.
fn version_in(text: &str) -> Option<&str> {
    let words = text.split_ascii_whitespace();
    let words = words.map(|word| word.trim_start_matches("v=").trim_start_matches('v'));
    words.into_iter().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Figures, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        follow(command, Duration::ZERO, None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_turn_whose_check_fails_has_no_figures() {
        let error = shell("echo 'Error: the check failed: 3 timers were lost' >&2; exit 1").unwrap_err();
        assert!(error.contains("3 timers were lost"), "{error}");
        assert!(shell("echo nonsense").is_err());
    }

    #[test]
    fn a_turn_may_ask_for_a_measurement_and_for_its_death() {
        let figures = shell(r#"echo '{"idle":[1]}'; read x; echo "{\"numbers\":{\"a\":1}}"; "#).unwrap();
        assert_eq!(figures.numbers["a"], 1.0);
        let figures = shell(r#"echo '{"kill":5.5}'; echo '{"numbers":{}}'; exec sleep 100"#).unwrap();
        assert_eq!(figures.numbers["killed_before"], 5.5);
    }

    #[test]
    fn a_version_is_the_word_with_digits() {
        let texts = [
            "Redis server v=7.0.15 sha=0",
            "beanstalkd 1.12",
            "postgres (PostgreSQL) 15.18 (Debian)",
            "v20.20.2",
        ];
        let versions = texts.map(version_in);
        assert_eq!(versions, [Some("7.0.15"), Some("1.12"), Some("15.18"), Some("20.20.2")]);
    }

    #[test]
    fn crates_have_versions() {
        let (own, peers) = (include_str!("../Cargo.lock"), include_str!("../peers/rust/Cargo.lock"));
        assert!(crate_version(own, "redb").is_some());
        assert!(crate_version(own, "nothing of this name").is_none());
        assert!(crate_version(peers, "riverqueue").is_some());
    }
}
