//! Published files. Their contents are made from the results.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes each text of `files` to the file with the text's path, and makes the folders of the files. With `is_check`,
/// writes nothing.
///
/// # Errors
/// Fails if a file cannot be written. With `is_check`, fails if a file differs from its text. The error names the first
/// file that differs, and `command`, which makes the file again.
pub fn put(files: &[(PathBuf, String)], is_check: bool, command: &str) -> Result<(), Box<dyn Error>> {
    for (path, text) in files {
        if !is_check {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        } else if fs::read_to_string(path).ok().as_ref() != Some(text) {
            return Err(differs(path, command));
        }
    }
    Ok(())
}

/// Makes the error for the file `path` that differs from its generated text. The error names `command`, which makes the
/// file again.
#[must_use]
pub fn differs(path: &Path, command: &str) -> Box<dyn Error> {
    format!("{} is not what the results give: run `{command}`", path.display()).into()
}

/// Returns the files of a folder that have this extension and are not among `files`.
#[must_use]
pub fn strays(folder: &Path, extension: &str, files: &[(PathBuf, String)]) -> Vec<PathBuf> {
    let present = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_stray = |path: &PathBuf| {
        path.extension().is_some_and(|found| found == extension) && files.iter().all(|(file, _)| file != path)
    };
    present.filter(is_stray).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_passes_the_check_until_it_is_edited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plots/a.svg");
        let files = [(path.clone(), "a".to_owned())];
        assert!(put(&files, true, "make").unwrap_err().to_string().ends_with("run `make`"));
        assert!(!path.exists(), "a check writes nothing");
        put(&files, false, "make").unwrap();
        put(&files, true, "make").unwrap();
        fs::write(&path, "b").unwrap();
        assert!(put(&files, true, "make").is_err());
        let stray = folder.path().join("plots/b.svg");
        fs::write(&stray, "").unwrap();
        fs::write(folder.path().join("plots/c.txt"), "").unwrap();
        assert_eq!(strays(&folder.path().join("plots"), "svg", &files), [stray]);
    }
}
