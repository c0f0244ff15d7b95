//! The library as programs find it once it is installed: by pkg-config and by CMake, shared and static.

#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::*;

/// Installs what cargo built for the tests into a fresh prefix of its own.
fn install(name: &str, arguments: &[&str]) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix).unwrap();
    }
    let mut script = Command::new("sh");
    script.arg(root().join("install.sh")).arg("--prefix").arg(&prefix).arg("--from").arg(libraries());
    run(script.args(arguments));
    prefix
}

fn assert_runs(program: &Path, library_path: Option<&Path>) {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    let expected = format!("installed: {}\n", env!("CARGO_PKG_VERSION"));
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
    // Packagers put the destination in front while copying: no file has it in its text.
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
}

#[test]
fn pkg_config_finds_it() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let prefix = install("installed-pkg-config", &[]);
    let ask = |arguments: &[&str]| -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("tourbillon");
        let output = String::from_utf8(run(&mut command).stdout).unwrap();
        output.split_whitespace().map(str::to_owned).collect()
    };
    let build = |name: &str, flags: Vec<String>| {
        let program = prefix.join(name);
        run(Command::new("cc").arg(root().join("tests/c/installed.c")).arg("-o").arg(&program).args(flags));
        program
    };
    assert_eq!(ask(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    assert_runs(&build("shared", ask(&["--cflags", "--libs"])), Some(&prefix.join("lib")));
    let archive = [ask(&["--cflags"]), ask(&["--variable=archive"]), ask(&["--variable=archive_libs"])];
    assert_runs(&build("static", archive.concat()), None);
}

#[test]
fn cmake_finds_it() {
    if !has("cc") || !has("cmake") {
        return;
    }
    let prefix = install("installed-cmake", &[]);
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
    assert_runs(&build.join("shared"), None);
    assert_runs(&build.join("static"), None);
}
