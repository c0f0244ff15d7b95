//! Makes a folder for a test, with the file of a store.

pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.0.path().join("timers.redb")
    }
}
