//! What an installation has put where, kept in a file beside it, so that it can
//! be taken away again. Knows nothing of what the files are.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The files and folders that installations have made.
#[derive(Default)]
pub struct Record {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
}

impl Record {
    /// What the installations before this one have left in the record `kept`;
    /// nothing if there is no such file.
    pub fn read(kept: &Path) -> Result<Self> {
        let text = match fs::read_to_string(kept) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", kept.display()))?,
        };
        let mut record = Self::default();
        for line in text.lines() {
            match line.strip_suffix('/') {
                Some(folder) => record.folders.insert(folder.into()),
                None => record.files.insert(line.into()),
            };
        }
        Ok(record)
    }

    /// Copies a file.
    pub fn copy(&mut self, from: &Path, to: &Path, mode: u32) -> Result<()> {
        self.replace(to)?;
        fs::copy(from, to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Writes a file.
    pub fn write(&mut self, to: &Path, text: &str) -> Result<()> {
        self.replace(to)?;
        fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, target: &str, to: &Path) -> Result<()> {
        self.replace(to)?;
        symlink(target, to).with_context(|| format!("cannot link {}", to.display()))
    }

    /// Makes room for `path`. An older file is removed, not overwritten: a
    /// running program may have it mapped.
    fn replace(&mut self, path: &Path) -> Result<()> {
        let name = path.to_string_lossy();
        ensure!(!name.contains('\n'), "a line break in the name {name:?}");
        if let Some(folder) = path.parent() {
            let missing = folder.ancestors().take_while(|folder| !folder.exists());
            self.folders.extend(missing.map(Path::to_path_buf));
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        if path.symlink_metadata().is_ok() {
            fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        self.files.insert(path.to_path_buf());
        Ok(())
    }

    /// Keeps the record in the file `kept`, which is one of what was installed.
    pub fn keep(&mut self, kept: &Path) -> Result<()> {
        self.replace(kept)?;
        let files = self
            .files
            .iter()
            .map(|file| format!("{}\n", file.display()));
        let folders = self.folders.iter();
        let folders = folders.map(|folder| format!("{}/\n", folder.display()));
        let text: String = files.chain(folders).collect();
        fs::write(kept, text).with_context(|| format!("cannot write {}", kept.display()))
    }

    /// Removes the files, and the folders that were made for them and have
    /// nothing else in them. What is gone already is none. Returns how many
    /// files were removed.
    pub fn remove(&self) -> Result<usize> {
        let mut removed = 0;
        for file in &self.files {
            match fs::remove_file(file) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot remove {}", file.display()));
                }
            }
        }
        // Those within others come first.
        for folder in self.folders.iter().rev() {
            match fs::remove_dir(folder) {
                Err(error)
                    if !matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", folder.display()));
                }
                _ => {}
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder for one test, removed afterwards.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("xtask-record-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            fs::create_dir_all(place.join("lib")).unwrap();
            Self(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_put_goes_and_what_was_there_stays() {
        let place = Place::new("exact");
        let at = |name: &str| place.0.join(name);
        fs::write(at("lib/another"), "").unwrap();
        let kept = at("share/doc/record");
        // Twice, the second time with a file less.
        for files in [
            &["lib/own", "include/a/b", "lib/old"][..],
            &["lib/own", "include/a/b"],
        ] {
            let mut record = Record::read(&kept).unwrap();
            for file in files {
                record.write(&at(file), "text").unwrap();
            }
            record.link("own", &at("lib/link")).unwrap();
            record.keep(&kept).unwrap();
        }
        fs::write(at("include/other"), "").unwrap();
        // Four, the link among them, and the record.
        assert_eq!(Record::read(&kept).unwrap().remove().unwrap(), 5);
        let mut left: Vec<_> = ["", "lib", "include"]
            .iter()
            .flat_map(|folder| fs::read_dir(at(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .collect();
        left.sort();
        let expected = ["include", "include/other", "lib", "lib/another"];
        assert_eq!(left, expected.map(at));
        assert_eq!(Record::read(&kept).unwrap().remove().unwrap(), 0);
    }
}
