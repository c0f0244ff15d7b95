//! Runs the commands of the pages, in their order. Each page has a shell of its own.

use crate::blocks::{Page, Use, pages, uses};
use crate::shell::{Background, Shell, name_of, programs, shows, wait};
use crate::{is_installed, of_repository};
use std::fs;

/// The address at which the service listens on the pages of the guide.
const SERVICE: &str = "127.0.0.1:7670";

/// The addresses of programs in pairs: the address on the page, and the address at which the program really listens.
struct Places(Vec<(String, String)>);

impl Places {
    fn real(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (shown, real)| text.replace(shown, real))
    }
}

/// Reads the manifest (`Cargo.toml`) of a package in the repository.
fn manifest(package: &str) -> String {
    let folder = match package.strip_prefix("tourbillon") {
        Some("") => String::new(),
        Some(rest) => format!("crates/{}/", rest.trim_start_matches('-')),
        None => panic!("{package} is no package of the repository"),
    };
    let path = of_repository(&format!("{folder}Cargo.toml"));
    let manifest = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{package}: {error}"));
    assert!(manifest.contains(&format!("name = \"{package}\"\n")), "{package}");
    manifest
}

/// Removes the commands of cargo from a code block. Checks that the packages and features in these commands exist.
fn without_cargo(block: &str) -> String {
    let mut kept = Vec::new();
    for line in block.lines() {
        let words: Vec<_> = line.split_whitespace().take_while(|word| *word != "#").collect();
        let after = |flag: &str| {
            words.iter().position(|word| *word == flag).map(|at| *words.get(at + 1).expect("a value"))
        };
        let ["cargo", command, rest @ ..] = &words[..] else {
            kept.push(line.to_owned());
            continue;
        };
        match *command {
            "add" => {
                let (package, feature) = (rest[0], after("--features"));
                if package.starts_with("tourbillon") {
                    let manifest = manifest(package);
                    let is_there = |feature| manifest.contains(&format!("\n{feature} = ["));
                    assert!(feature.is_none_or(is_there), "{line}: no such feature");
                    // The path is for a copy of the repository that lies beside the user's program.
                    let (_, path) =
                        after("--path").expect("a path").split_once("../tourbillon").expect("a copy");
                    let there = fs::read_to_string(of_repository(&format!("./{path}/Cargo.toml")));
                    assert_eq!(there.ok(), Some(manifest), "{line}: no such path");
                } else {
                    // The crate is not of this project. But the programs of the guide are compiled with it, so the
                    // guide's manifest names it.
                    let own = fs::read_to_string(of_repository("crates/guide/Cargo.toml")).unwrap();
                    let used = own.lines().find(|line| line.starts_with(&format!("{package} = ")));
                    let used = used.unwrap_or_else(|| panic!("{line}: not used here"));
                    assert!(feature.is_none_or(|feature| used.contains(&format!("\"{feature}\""))), "{line}");
                }
            }
            "install" => {
                let path = after("--path").expect("the path of a package");
                let manifest = fs::read_to_string(of_repository(&format!("{path}/Cargo.toml"))).unwrap();
                let program =
                    after("--bin").map_or("[[bin]]".to_owned(), |name| format!("name = \"{name}\""));
                assert!(manifest.contains(&program), "{line}: no such program");
            }
            "new" => kept.push(format!("mkdir {}", rest[0])),
            _ => panic!("{line}: no test checks this command of cargo"),
        }
    }
    kept.join("\n")
}

/// Runs the code blocks of a page in the page's order. Returns the number of blocks that ran.
fn follow(page: &Page) -> usize {
    let uses = uses(page);
    if !uses.iter().any(|(_, usage)| matches!(usage, Use::Run | Use::Until | Use::Background)) {
        return 0;
    }
    let folder = tempfile::tempdir().unwrap();
    let programs = programs(folder.path());
    let mut shell = Shell::start(folder.path(), &programs);
    let mut background: Vec<(String, Background)> = Vec::new();
    let mut places = Places(Vec::new());
    let (mut output, mut count) = (String::new(), 0);
    for (at, (block, usage)) in uses.iter().enumerate() {
        let place = format!("{}:{}", page.name, block.line);
        let text = places.real(&block.text);
        match usage {
            Use::Run => {
                output = shell.run(&without_cargo(&text)).unwrap_or_else(|error| {
                    let logs: String = background.iter().map(|(_, program)| program.output()).collect();
                    panic!("{place}: {text}\n{error}\n{logs}")
                });
            }
            Use::Until => {
                let Some((shown, Use::Output)) = uses.get(at + 1) else { panic!("{place}: until what?") };
                let shown = places.real(&shown.text);
                let commands = without_cargo(&text);
                // A command that fails is a reason to try again. It ends only the subshell.
                let commands = format!("( set -e; {commands}\n) || true");
                let came = wait(|| {
                    output = shell.run(&commands).unwrap_or_else(|error| panic!("{place}: {text}\n{error}"));
                    shows(&output, &shown)
                });
                assert!(came, "{place}: {shown} is not in {output}");
            }
            Use::Background => {
                let command = without_cargo(&text).replace("\\\n", " ");
                let name = name_of(&command).to_owned();
                let shown = match name.as_str() {
                    "tourbillond" => Some(SERVICE.to_owned()),
                    _ => command
                        .split_whitespace()
                        .find(|word| word.starts_with("127.0.0.1:"))
                        .map(str::to_owned),
                };
                let shown = shown.unwrap_or_else(|| panic!("{place}: where does it listen?"));
                let port = shown.rsplit(':').next().unwrap();
                let started =
                    Background::start(folder.path(), &programs, &command.replace(&format!(":{port}"), ":0"));
                if name == "tourbillond" {
                    shell.run(&format!("export TOURBILLON_URL=http://{}", started.address)).unwrap();
                }
                places.0.push((shown, started.address.clone()));
                background.push((name, started));
            }
            Use::Output => assert!(shows(&output, &text), "{place}: {text} is not in {output}"),
            Use::OutputOf(name) => {
                let (_, program) = background
                    .iter()
                    .rev()
                    .find(|(other, _)| other == name)
                    .unwrap_or_else(|| panic!("{place}: {name} does not run"));
                assert!(
                    wait(|| shows(&program.output(), &text)),
                    "{place}: {text} is not in {}",
                    program.output()
                );
            }
            _ => continue,
        }
        count += 1;
    }
    count
}

#[test]
fn the_commands_of_the_pages_do_what_the_pages_say() {
    for program in ["bash", "curl"] {
        if !is_installed(program) {
            return;
        }
    }
    let count: usize = pages().iter().map(follow).sum();
    assert!(count > 20, "{count} blocks ran");
}

#[test]
fn a_page_with_a_false_output_is_found() {
    if !is_installed("bash") {
        return;
    }
    let page = |shown: &str| Page {
        name: "none.md".to_owned(),
        text: format!("```sh\necho 127.0.0.1:7670 is it\n```\n```text\n{shown}\n```\n"),
    };
    assert_eq!(follow(&page("127...is it")), 2);
    std::panic::catch_unwind(|| follow(&page("127...is not"))).unwrap_err();
}
