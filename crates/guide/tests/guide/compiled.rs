//! Tests the blocks that another program reads: settings, configurations of Prometheus, and programs in C.

use crate::blocks::{Use, all_of};
use crate::shell::programs;
use crate::{is_installed, of_repository};
use std::fs;
use std::process::Command;

#[test]
fn the_service_reads_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let programs = programs(folder.path());
    let blocks = all_of(&Use::Settings);
    assert!(!blocks.is_empty());
    let config = |text: &str| {
        fs::write(folder.path().join("guide.toml"), text).unwrap();
        Command::new(programs.join("tourbillond"))
            .args(["config", "--config", "guide.toml"])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    for (place, block) in blocks {
        let read = config(&block.text);
        assert!(read.status.success(), "{place}: {}", String::from_utf8_lossy(&read.stderr));
        // Each line of the block has become a setting.
        let settings = String::from_utf8(read.stdout).unwrap();
        let set = settings.lines().filter(|line| line.contains("guide.toml:")).count();
        assert_eq!(
            set,
            block.text.lines().filter(|line| line.contains(" = ")).count(),
            "{place}: {settings}"
        );
    }
    assert!(!config("[limits]\nconections = 7\n").status.success(), "a wrong setting is found");
}

#[test]
fn the_programs_in_c_compile() {
    if !is_installed("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let blocks = all_of(&Use::C);
    assert!(!blocks.is_empty());
    let compile = |text: &str| {
        let path = folder.path().join("guide.c");
        fs::write(&path, text).unwrap();
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
            .arg(of_repository("crates/c/include"))
            .arg(&path)
            .output()
            .unwrap()
    };
    for (place, block) in blocks {
        let compiled = compile(&block.text);
        assert!(compiled.status.success(), "{place}: {}", String::from_utf8_lossy(&compiled.stderr));
    }
    assert!(!compile("#include <tourbillon.h>\nint x = tb_no_such_call();\n").status.success());
}

#[test]
fn prometheus_reads_its_configuration() {
    if !is_installed("promtool") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let blocks = all_of(&Use::Prometheus);
    assert!(!blocks.is_empty());
    let check = |text: &str| {
        fs::write(folder.path().join("prometheus.yml"), text).unwrap();
        Command::new("promtool")
            .args(["check", "config", "--syntax-only", "prometheus.yml"])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    for (place, block) in blocks {
        let read = check(&block.text);
        assert!(read.status.success(), "{place}: {}", String::from_utf8_lossy(&read.stderr));
    }
    assert!(!check("scrape_config: []\n").status.success(), "a wrong field is found");
}
