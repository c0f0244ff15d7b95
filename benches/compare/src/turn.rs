//! One turn of one contestant, in its own process. So the threads, memory and processor time of other contestants do
//! not count.
//!
//! The process gets the workload, the contestant's name and the case as JSON, and prints its [`Figures`] as JSON. If a
//! check fails, it prints the reason on standard error and fails.

use crate::case::Case;
use crate::foreign::Program;
use crate::process::CANNOT;
use crate::results::Figures;
use crate::scale::Scale;
use crate::workload::{Turn, Workload};
use std::error::Error;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The first argument of a process that measures one contestant once.
pub(crate) const COMMAND: &str = "turn";

/// The result of a process that measured a contestant.
pub(crate) enum Ending {
    Figures(Figures),
    Cannot(String),
    Failed(String),
}

/// The time after which a measuring process counts as hanging.
const LONGEST: Duration = Duration::from_secs(180);

/// Measures a contestant once, in a new process of this program.
pub(crate) fn here(workload: &str, contestant: &str, case: &Case) -> Ending {
    match std::env::current_exe() {
        Ok(program) => run(Command::new(program), workload, contestant, case),
        Err(error) => Ending::Failed(error.to_string()),
    }
}

pub(crate) fn foreign(program: &Program, workload: &str, case: &Case, scale: Scale) -> Ending {
    match program.command(scale) {
        Ok(command) => run(command, workload, program.contestant, case),
        Err(why) => Ending::Cannot(why),
    }
}

fn run(command: Command, workload: &str, contestant: &str, case: &Case) -> Ending {
    match try_run(command, workload, contestant, case) {
        Ok((status, output, _)) if status.success() => match serde_json::from_str(&output) {
            Ok(figures) => Ending::Figures(figures),
            Err(error) => Ending::Failed(format!("{error}: {output}")),
        },
        Ok((status, _, errors)) if status.code() == Some(CANNOT) => Ending::Cannot(errors.trim().to_owned()),
        Ok((status, _, errors)) => Ending::Failed(format!("{status}: {}", errors.trim())),
        Err(error) => Ending::Failed(error.to_string()),
    }
}

fn try_run(
    mut command: Command,
    workload: &str,
    contestant: &str,
    case: &Case,
) -> Result<(ExitStatus, String, String), Box<dyn Error>> {
    command.args([COMMAND, workload, contestant, &serde_json::to_string(case)?]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = wait(&mut child)?;
    // By now the process has ended. Its output fits into a pipe.
    let mut texts = [String::new(), String::new()];
    child.stdout.take().ok_or("no output")?.read_to_string(&mut texts[0])?;
    child.stderr.take().ok_or("no errors")?.read_to_string(&mut texts[1])?;
    let [output, errors] = texts;
    Ok((status, output, errors))
}

fn wait(child: &mut Child) -> Result<ExitStatus, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Err(format!("not done after {LONGEST:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Makes one measurement, in this process, of the contestant that the arguments name.
pub(crate) fn take(workloads: &[Workload], arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [workload, contestant, case] = arguments else {
        return Err("a turn is a workload, a contestant and a case".into());
    };
    let case: Case = serde_json::from_str(case)?;
    let workload = workloads.iter().find(|known| known.name == workload).ok_or("no such workload")?;
    let entrants = (workload.entrants)();
    let entrant = entrants.iter().find(|known| known.name == *contestant).ok_or("no such contestant")?;
    let Turn::Here(turn) = entrant.turn else { return Err("not here".into()) };
    serde_json::to_writer(io::stdout(), &turn(&case))?;
    Ok(())
}
