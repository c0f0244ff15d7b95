//! Counts that callgrind takes of a part of this program, by instruction: executions, locked instructions, and cache
//! lines.
//!
//! The program starts itself under `valgrind --tool=callgrind`. That process calls [`count`] once, and callgrind counts
//! only inside of this call. Its output has the executions of each instruction by the address in the program's file.
//! The bytes there say whether the instruction is locked. The functions of an address, with those that the compiler has
//! inlined there, come from `addr2line` of the binutils. The instructions of a library (the C library's copies,
//! allocations and clock) count for the place that calls it.
//!
//! *Lines* are the cache lines that the counted part touches. callgrind simulates a cache of [`CACHE`] bytes. The
//! program empties it before the call, and the lines that the call touches stay in it. So a line counts once, at the
//! instruction that touches it first. Hints to fetch a line do not count, since callgrind ignores them.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::io::ErrorKind;
use std::ops::{AddAssign, Sub};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// The size of the simulated cache: more than the lines of a counted part.
const CACHE: usize = 8 << 20;
const LINE: usize = 64;
/// The function by which the C library begins a program. Its cost is that of the whole program.
const BEGIN: &str = "__libc_start_main";

/// Runs `work`, and counts its instructions if the process runs under callgrind.
pub(crate) fn count(work: impl FnOnce()) {
    // Every line of a larger block of memory is read, so that the simulated cache holds nothing of the program's.
    let others = vec![1_u8; 2 * CACHE];
    black_box(others.iter().step_by(LINE).map(|byte| u64::from(*byte)).sum::<u64>());
    let mut work = Some(work);
    counted(&mut || {
        if let Some(work) = work.take() {
            work();
        }
    });
}

/// Valgrind counts only the instructions that run inside this function.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    black_box(work)();
}

/// Counts of an instruction, of several, or of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) instructions: f64,
    pub(crate) locked: f64,
    pub(crate) lines: f64,
    /// Readings of the processor's counter.
    pub(crate) readings: f64,
}

impl Cost {
    /// Returns the cost of one of `number` operations that have this cost together.
    pub(crate) fn of_each(self, number: u64) -> Self {
        let each = |count: f64| count / number as f64;
        Self {
            instructions: each(self.instructions),
            locked: each(self.locked),
            lines: each(self.lines),
            readings: each(self.readings),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.locked += other.locked;
        self.lines += other.lines;
        self.readings += other.readings;
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            locked: self.locked - other.locked,
            lines: self.lines - other.lines,
            readings: self.readings - other.readings,
        }
    }
}

/// The costs of a run, by the address of the instruction in the program's file.
#[derive(Debug, Default)]
pub(crate) struct Costs(BTreeMap<u64, Cost>);

impl Costs {
    pub(crate) fn sum(&self) -> Cost {
        let mut sum = Cost::default();
        self.0.values().for_each(|&cost| sum += cost);
        sum
    }

    fn at(&self, address: u64) -> Cost {
        self.0.get(&address).copied().unwrap_or_default()
    }
}

impl Sub for &Costs {
    type Output = Costs;

    fn sub(self, other: Self) -> Costs {
        let addresses: BTreeSet<u64> = self.0.keys().chain(other.0.keys()).copied().collect();
        Costs(addresses.into_iter().map(|address| (address, self.at(address) - other.at(address))).collect())
    }
}

/// Runs this program with `arguments` under callgrind. Returns the costs inside of [`count`]. If the tools cannot
/// count, returns the reason.
pub(crate) fn run(arguments: &[&str]) -> Result<Costs, String> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let file = env::temp_dir().join(format!("tourbillon-callgrind-{}-{run}", process::id()));
    let image = Image::of_this_program()?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*counted*"])
        .args(["--dump-instr=yes", "--dump-line=no", "--compress-strings=no", "--compress-pos=no"])
        .args(["--cache-sim=yes", &format!("--LL={CACHE},16,{LINE}")])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(&image.path)
        .args(arguments);
    let output = output(valgrind)?;
    let counts = fs::read_to_string(&file);
    let _removed = fs::remove_file(&file);
    image.costs(&counts.map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?)
}

fn output(mut command: Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("there is no {program}"),
        _ => error.to_string(),
    })
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// This program's file.
struct Image {
    path: String,
    bytes: Vec<u8>,
    /// The parts with code: the first address, the address after the last, and the place in the file.
    code: Vec<(u64, u64, u64)>,
}

impl Image {
    fn of_this_program() -> Result<Self, String> {
        let fail = |error: std::io::Error| error.to_string();
        let path = env::current_exe().map_err(fail)?.to_string_lossy().into_owned();
        let maps = fs::read_to_string("/proc/self/maps").map_err(fail)?;
        let (mut base, mut code) = (None, Vec::new());
        for line in maps.lines().filter(|line| line.ends_with(&*path)) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [range, rights, offset, ..] = words[..] else { continue };
            let hexadecimal =
                |text| u64::from_str_radix(text, 16).map_err(|error| format!("{error}: {line}"));
            let (begin, end) = range.split_once('-').ok_or(line)?;
            let (begin, end, offset) = (hexadecimal(begin)?, hexadecimal(end)?, hexadecimal(offset)?);
            // The file begins at address 0, since Linux may load the program anywhere.
            let base = *base.get_or_insert(begin);
            if rights.contains('x') {
                code.push((begin - base, end - base, offset));
            }
        }
        Ok(Self { bytes: fs::read(&path).map_err(fail)?, path, code })
    }

    /// Reads callgrind's output.
    fn costs(&self, output: &str) -> Result<Costs, String> {
        let events = output.lines().find_map(|line| line.strip_prefix("events: ")).ok_or("no events")?;
        let column = |name| events.split(' ').position(|event| event == name).ok_or("an event is missing");
        let (executed, read, written) = (column("Ir")?, column("DLmr")?, column("DLmw")?);
        let (mut costs, mut is_here, mut is_library_called, mut is_call) =
            (Costs::default(), false, false, false);
        for line in output.lines() {
            if let Some(object) = line.strip_prefix("ob=") {
                is_here = object == self.path;
            } else if let Some(object) = line.strip_prefix("cob=") {
                is_library_called = object != self.path;
            } else if let Some(function) = line.strip_prefix("cfn=") {
                is_library_called &= !function.starts_with(BEGIN);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with("0x") {
                let mut words = line.split(' ');
                let address = words.next().and_then(hexadecimal).ok_or(line)?;
                let counts: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
                let count = |column: usize| counts.get(column).copied().unwrap_or_default();
                // The costs of a called function that is in the program stand at its own instructions.
                if is_here && (!is_call || is_library_called) {
                    let kind = if is_call { Kind::Other } else { self.kind(address) };
                    let if_of = |wanted| if kind == wanted { count(executed) } else { 0.0 };
                    *costs.0.entry(address).or_default() += Cost {
                        instructions: count(executed),
                        locked: if_of(Kind::Locked),
                        lines: count(read) + count(written),
                        readings: if_of(Kind::Reading),
                    };
                }
                if is_call {
                    (is_call, is_library_called) = (false, false);
                }
            }
        }
        Ok(costs)
    }

    /// Returns the kind of the instruction at `address`. Knows only x86-64.
    fn kind(&self, address: u64) -> Kind {
        const PREFIXES: [u8; 8] = [0x66, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x64, 0x65];
        let holds = |&&(begin, end, _): &&(u64, u64, u64)| (begin..end).contains(&address);
        let place = self.code.iter().find(holds).map(|(begin, _, offset)| address - begin + offset);
        let bytes =
            place.and_then(|place| self.bytes.get(usize::try_from(place).ok()?..)).unwrap_or_default();
        let mut bytes = bytes.iter().copied().skip_while(|byte| PREFIXES.contains(byte));
        let mut next = || bytes.next().unwrap_or_default();
        let first = next();
        let is_rex = first >> 4 == 4;
        match (if is_rex { next() } else { first }, next()) {
            (0xf0, _) => Kind::Locked,
            // An exchange of a register with memory locks without the prefix.
            (0x86 | 0x87, operands) if operands >> 6 != 3 => Kind::Locked,
            (0x0f, 0x31) => Kind::Reading,
            _ => Kind::Other,
        }
    }
}

/// Kinds of instructions that are counted apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A locked instruction.
    Locked,
    /// A reading of the processor's counter.
    Reading,
    Other,
}

/// A step of an operation. An instruction belongs to a step if a function with one of these names contains it, or a
/// function that the compiler has inlined there. A name is several parts, divided by spaces, all of which the
/// function's path has.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Functions with all that is inlined in them.
    pub(crate) whole: &'static [&'static str],
    /// Functions without those parts that belong to another step.
    pub(crate) functions: &'static [&'static str],
}

impl Step {
    /// Returns the first of `functions` that has one of `names`.
    fn find<'a>(names: &[&str], functions: &'a [String]) -> Option<&'a str> {
        let has =
            |function: &String| names.iter().any(|name| name.split(' ').all(|part| function.contains(part)));
        functions.iter().find(|function| has(function)).map(|function| &**function)
    }

    /// Returns the number of the step to which an instruction in `functions` belongs, and the function that decides.
    /// The innermost function comes first.
    fn of<'a>(steps: &[Self], functions: &'a [String]) -> Option<(usize, &'a str)> {
        let numbered = || steps.iter().enumerate();
        let of_whole = numbered().find_map(|(at, step)| Some((at, Self::find(step.whole, functions)?)));
        of_whole.or_else(|| {
            functions.iter().find_map(|function| {
                let alone = core::slice::from_ref(function);
                numbered().find_map(|(at, step)| Some((at, Self::find(step.functions, alone)?)))
            })
        })
    }
}

/// The costs of an operation's steps, in their order. The last cost is that of the instructions of no step.
#[derive(Debug)]
pub(crate) struct ByStep {
    pub(crate) steps: Vec<Cost>,
    /// The functions of the instructions, each with its step. The name of the function that decides on the step comes
    /// first, then that of the innermost function that the compiler has inlined there.
    pub(crate) functions: BTreeMap<(usize, String), Cost>,
}

/// Divides costs into steps.
pub(crate) fn by_step(costs: &Costs, steps: &[Step]) -> Result<ByStep, String> {
    let mut by_step = ByStep { steps: vec![Cost::default(); steps.len() + 1], functions: BTreeMap::new() };
    for (address, functions) in functions(costs)? {
        let outermost = functions.last().map_or("", |function| function);
        let (step, function) = Step::of(steps, &functions).unwrap_or((steps.len(), outermost));
        let cost = costs.at(address);
        by_step.steps[step] += cost;
        let name = match functions.first() {
            Some(first) if first != function => format!("{function}: {first}"),
            _ => function.to_owned(),
        };
        *by_step.functions.entry((step, name)).or_default() += cost;
    }
    Ok(by_step)
}

/// Returns the functions at each address that has costs. The innermost function comes first.
fn functions(costs: &Costs) -> Result<BTreeMap<u64, Vec<String>>, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut found = BTreeMap::new();
    let addresses: Vec<String> = costs.0.keys().map(|address| format!("{address:#x}")).collect();
    // The system limits the length of a command.
    for addresses in addresses.chunks(4_096) {
        let mut symbols = Command::new("addr2line");
        symbols.args(["--addresses", "--inlines", "--functions", "--demangle", "--exe"]);
        symbols.arg(&program).args(addresses);
        let mut functions: Option<(u64, Vec<String>)> = None;
        let output = output(symbols)?.stdout;
        let text = String::from_utf8_lossy(&output);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(address) = hexadecimal(line) {
                found.extend(functions.replace((address, Vec::new())));
            } else if let Some((_, functions)) = &mut functions {
                functions.push(line.to_owned());
                // The next line has the place in the source.
                let _place = lines.next();
            }
        }
        found.extend(functions);
    }
    Ok(found)
}
