//! Tests a store whose file has several names, and a process that changes its working folder.

use crate::faults::{builder, clock};
use crate::place::Place;
use crate::{apply, get, place, timer};
use pollster::block_on;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tourbillon_durable::store::{Durability, RedbStore, StoreErrorKind};

/// The environment variable that tells a test that it runs in a process of its own, whose working folder is its
/// place.
const CHILD: &str = "TOURBILLON_WORKING_FOLDER";

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Opens a store by its path and by links. All of them lead to one journal, which is locked while the store is open. So
/// a timer that was acknowledged under one name is found under the other.
#[test]
fn a_store_has_one_journal_under_all_its_names() {
    let place_of = Place::new();
    let folder = place_of.file().parent().unwrap().to_owned();
    let links = tempfile::tempdir().unwrap();
    symlink(place_of.file(), links.path().join("file.redb")).unwrap();
    symlink(&folder, links.path().join("folder")).unwrap();
    let names = [links.path().join("file.redb"), place_of.file(), links.path().join("folder/timers.redb")];
    for (id, name) in (1..).zip(&names) {
        // The first opening makes the file through a link that leads nowhere yet.
        let store = builder(&clock()).open(name).unwrap();
        apply(&store, place(timer(id, 900)), Durability::PowerLoss).unwrap();
        for other in &names {
            let locked = [
                RedbStore::open(other).map(drop),
                RedbStore::builder().verify(other).map(drop),
                builder(&clock()).forget_damaged(other).map(drop),
            ];
            for locked in locked {
                assert_eq!(locked.unwrap_err().kind(), StoreErrorKind::Locked, "{}", other.display());
            }
        }
    }
    let store = builder(&clock()).open(&names[0]).unwrap();
    assert!((1..=3).all(|id| get(&store, id).is_some()));
    assert_eq!(names_in(&folder), ["timers.redb", "timers.redb.ops"]);
    assert_eq!(names_in(links.path()), ["file.redb", "folder"]);
}

#[test]
fn a_store_whose_file_has_hard_links_is_refused() {
    let place_of = Place::new();
    drop(builder(&clock()).open(place_of.file()).unwrap());
    let other = place_of.file().with_extension("other");
    fs::hard_link(place_of.file(), &other).unwrap();
    for name in [place_of.file(), other.clone()] {
        let refused = [
            RedbStore::open(&name).map(drop),
            RedbStore::builder().verify(&name).map(drop),
            builder(&clock()).forget_damaged(&name).map(drop),
        ];
        assert!(refused.into_iter().all(|refused| refused.unwrap_err().kind() == StoreErrorKind::Limit));
    }
    fs::remove_file(&other).unwrap();
    drop(builder(&clock()).open(place_of.file()).unwrap());
}

/// The working folder belongs to the whole process, so the test runs in a process of its own.
#[test]
fn a_process_may_change_its_working_folder() {
    if std::env::var_os(CHILD).is_none() {
        let place_of = Place::new();
        let name = "names::a_process_may_change_its_working_folder";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name]).current_dir(place_of.file().parent().unwrap()).env(CHILD, "1");
        let ended = child.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"));
        let store = builder(&clock()).open(place_of.file()).unwrap();
        assert!((1..=3).all(|id| get(&store, id).is_some()));
        return;
    }
    let store = builder(&clock()).keep_free(1 << 20).open("timers.redb").unwrap();
    apply(&store, place(timer(1, 900)), Durability::PowerLoss).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::env::set_current_dir(elsewhere.path()).unwrap();
    // The store looks at its files again after a moment.
    std::thread::sleep(std::time::Duration::from_millis(50));
    apply(&store, place(timer(2, 900)), Durability::PowerLoss).unwrap();
    block_on(store.compact()).unwrap();
    apply(&store, place(timer(3, 900)), Durability::PowerLoss).unwrap();
    drop(store);
    assert_eq!(names_in(elsewhere.path()), [""; 0]);
}
