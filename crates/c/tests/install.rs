//! Tests the installed library. Programs find it by pkg-config and by CMake, and link it shared and static.

#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::*;

/// Returns an empty folder to install into. Removes an older folder of this name.
fn fresh_prefix(name: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix).unwrap();
    }
    prefix
}

/// Installs the libraries that cargo built for the tests into a new folder. Returns the folder.
fn install(name: &str, arguments: &[&str]) -> PathBuf {
    let prefix = fresh_prefix(name);
    let mut script = Command::new("sh");
    script.arg(root().join("install.sh")).arg("--prefix").arg(&prefix).arg("--from").arg(libraries());
    run(script.args(arguments));
    prefix
}

fn assert_runs(program: &Path, library_path: Option<&Path>, expected: &str) {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    assert_eq!(String::from_utf8_lossy(&run(&mut command).stdout), expected);
}

#[test]
fn the_files_have_the_names_that_linkers_look_for() {
    let prefix = install(
        "installed-files",
        &["--libdir", "/usr/lib/elsewhere", "--destdir", env!("CARGO_TARGET_TMPDIR")],
    );
    let libdir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("usr/lib/elsewhere");
    let version = env!("CARGO_PKG_VERSION");
    let soname = format!("libtourbillon.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    let target = |name: &str| std::fs::read_link(libdir.join(name)).unwrap();
    assert_eq!(target("libtourbillon.so"), Path::new(&soname));
    assert_eq!(target(&soname), PathBuf::from(format!("libtourbillon.so.{version}")));
    assert!(libdir.join("libtourbillon.a").exists());
    let includes =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(prefix.strip_prefix("/").unwrap()).join("include");
    for header in ["tourbillon.h", "tourbillon_libevent.h"] {
        assert!(includes.join(header).exists(), "{header}");
    }
    // `--destdir` only says where the files are copied. No file may contain that path.
    let pc = std::fs::read_to_string(libdir.join("pkgconfig/tourbillon.pc")).unwrap();
    assert!(
        pc.contains("\nlibdir=/usr/lib/elsewhere\n") && pc.contains(&format!("\nVersion: {version}\n")),
        "{pc}"
    );
    assert!(pc.contains(&format!("prefix={}\n", prefix.display())), "{pc}");
}

#[test]
fn the_script_refuses_what_it_does_not_know() {
    let status = |arguments: &[&str]| {
        let mut script = Command::new("sh");
        script.arg(root().join("install.sh")).args(arguments).output().unwrap().status.code()
    };
    assert_eq!(status(&["--help"]), Some(0));
    assert_eq!(status(&["--everything"]), Some(2));
    assert_eq!(status(&["--prefix"]), Some(2));
    assert_eq!(status(&["--prefix", "relative"]), Some(2));
    assert_eq!(status(&["--prefix", "/tmp/none", "--from", "/nowhere"]), Some(1));
    // Neither pkg-config nor CMake could read these names.
    for character in ["\"", "'", "\\", "$", "#", ";", "`", "(", ")", "&", "|", "<", ">", "\n"] {
        let folder = format!("/tmp/n{character}ne");
        for option in ["--prefix", "--libdir", "--includedir"] {
            assert_eq!(status(&[option, &folder, "--from", "/nowhere"]), Some(2), "{folder}");
        }
    }
}

/// Returns the commands of the README's shell block that contains `mark`, one command for each line.
fn commands_of_the_readme(mark: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.find(|block| block.contains(mark)).expect("the README shows it");
    block.replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// Returns a line of shell without its comment.
fn code_of(line: &str) -> &str {
    line.split("  #").next().unwrap_or(line).trim_end()
}

/// Builds programs by the README's commands, against the library that is installed under `prefix`. Then runs the
/// programs.
fn assert_programs_are_built_as_the_readme_says(prefix: &Path) {
    let has_space = prefix.to_str().unwrap().contains(' ');
    let commands = commands_of_the_readme("pkg-config --variable=archive");
    let [for_shared, for_static] = &commands[..] else { panic!("{commands:?}") };
    let in_header = program_in_the_header();
    let installed = std::fs::read_to_string(root().join("tests/c/installed.c")).unwrap();
    let greeting = format!("installed: {}\n", env!("CARGO_PKG_VERSION"));
    for (source, expected) in [(installed, greeting), (in_header, String::new())] {
        std::fs::write(prefix.join("prog.c"), source).unwrap();
        for (command, library_path) in [(for_shared, Some(prefix.join("lib"))), (for_static, None)] {
            let mut shell = Command::new("sh");
            shell.current_dir(prefix).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
            // As the README says, a space needs `eval`.
            let command = if has_space { format!("eval \"{}\"", code_of(command)) } else { command.clone() };
            run(shell.arg("-ec").arg(command));
            let program = prefix.join("a.out");
            assert_runs(&program, library_path.as_deref(), &expected);
            // The next command must make its own program.
            std::fs::remove_file(program).unwrap();
        }
    }
}

#[test]
fn pkg_config_finds_it() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    for name in ["installed-pkg-config", "installed pkg config"] {
        let prefix = install(name, &[]);
        let mut asks = Command::new("pkg-config");
        asks.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(["--modversion", "tourbillon"]);
        let version = String::from_utf8(run(&mut asks).stdout).unwrap();
        assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
        assert_programs_are_built_as_the_readme_says(&prefix);
    }
}

/// Follows the README as a user does. Builds and installs the release libraries, builds programs against them, and
/// unloads the shared library while its threads run.
#[test]
#[ignore = "builds the release libraries; a step of .ci/run"]
fn the_release_is_installed_as_the_readme_says() {
    assert!(has("cc") && has("pkg-config"), "this takes a compiler for C and pkg-config");
    let prefix = fresh_prefix("installed-release");
    let commands = commands_of_the_readme("install.sh --prefix");
    let [command] = &commands[..] else { panic!("{commands:?}") };
    let command = command.replace("/usr/local", prefix.to_str().unwrap());
    // In this folder, the path in the README's command is right.
    run(Command::new("sh").current_dir(root().join("../..")).arg("-ec").arg(command));
    assert_programs_are_built_as_the_readme_says(&prefix);
    assert_stays_loaded(&prefix.join("lib/libtourbillon.so"));
}

#[test]
fn cmake_finds_it() {
    if !has("cc") || !has("cmake") {
        return;
    }
    for name in ["installed-cmake", "installed cmake"] {
        assert_cmake_finds_it(&install(name, &[]));
    }
}

fn assert_cmake_finds_it(prefix: &Path) {
    let source = prefix.join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::copy(root().join("tests/c/installed.c"), source.join("installed.c")).unwrap();
    let project = format!(
        "cmake_minimum_required(VERSION 3.10)\n\
         project(installed C)\n\
         find_package(tourbillon {} REQUIRED)\n\
         add_executable(shared installed.c)\n\
         target_link_libraries(shared tourbillon::tourbillon)\n\
         add_executable(static installed.c)\n\
         target_link_libraries(static tourbillon::static)\n",
        env!("CARGO_PKG_VERSION")
    );
    std::fs::write(source.join("CMakeLists.txt"), project).unwrap();
    let build = prefix.join("build");
    let prefix_path = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    // CMake before 3.13 has no -B.
    std::fs::create_dir_all(&build).unwrap();
    run(Command::new("cmake").current_dir(&build).arg(&prefix_path).arg(&source));
    run(Command::new("cmake").arg("--build").arg(&build));
    let greeting = format!("installed: {}\n", env!("CARGO_PKG_VERSION"));
    assert_runs(&build.join("shared"), None, &greeting);
    assert_runs(&build.join("static"), None, &greeting);
}
