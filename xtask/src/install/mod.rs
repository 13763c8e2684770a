//! `cargo xtask install`: what a distribution's library and development
//! package hold: the shared library with its links, the static library, the
//! headers, the same of libsrpt, the preload library, the files for pkg-config,
//! srp-target, manual pages and licences. `cargo xtask uninstall` takes them
//! away again.

mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::{headers, library, man, workspace};
use record::Record;

/// Below the prefix, what was installed there. Packages have records of their
/// own, and none of this.
const RECORD: &str = "share/doc/librdmacm/installed-files";

/// A library that is installed.
struct Library {
    name: &'static str,
    /// Folder of its crate, below the workspace's.
    crate_folder: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        name: "librdmacm",
        crate_folder: "",
    },
    Library {
        name: "libsrpt",
        crate_folder: "srpt",
    },
];

/// Command line of `cargo xtask install`.
#[derive(clap::Args)]
pub struct Args {
    /// Where the files will be used from; below /usr/local, ldconfig makes them
    /// take the place of the distribution's
    #[arg(long, default_value = "/usr/local", value_name = "DIR")]
    prefix: PathBuf,
    /// Put before every path that is written, for packaging
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
    /// Where the libraries go; relative paths are below the prefix
    #[arg(long, default_value = "lib", value_name = "DIR")]
    libdir: PathBuf,
}

impl Args {
    /// Builds the library and installs everything.
    pub fn run(self) -> Result<ExitCode> {
        let mut tree = Tree::new(&self.prefix, self.destdir.as_deref(), &self.libdir)?;
        tree.install(&library::stage_srpt()?)?;
        tree.install_preload(&library::stage_preload()?)?;
        tree.install_srp_target(&library::stage_srp_target()?)?;
        tree.keep_record()?;
        println!(
            "installed below {}",
            tree.destination(&tree.prefix).display()
        );
        if self.destdir.is_none() {
            println!(
                "run ldconfig if the dynamic loader caches {}",
                tree.libdir.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Command line of `cargo xtask uninstall`.
#[derive(clap::Args)]
pub struct UninstallArgs {
    /// The prefix that was installed to
    #[arg(long, default_value = "/usr/local", value_name = "DIR")]
    prefix: PathBuf,
}

impl UninstallArgs {
    /// Removes what was installed.
    pub fn run(self) -> Result<ExitCode> {
        let removed = uninstall(&self.prefix)?;
        println!("removed {removed} files below {}", self.prefix.display());
        println!("run ldconfig if the dynamic loader has cached them");
        Ok(ExitCode::SUCCESS)
    }
}

/// Removes what installations below `prefix` have put there, nothing else, and
/// returns how many files that were.
pub fn uninstall(prefix: &Path) -> Result<usize> {
    let kept = std::path::absolute(prefix)
        .context("a prefix is needed")?
        .join(RECORD);
    ensure!(
        kept.exists(),
        "nothing was installed: no {}",
        kept.display()
    );
    Record::read(&kept)?.remove()
}

/// Where an installation goes.
pub struct Tree {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
    libdir: PathBuf,
    record: Record,
}

impl Tree {
    /// A tree for `prefix` with its libraries in `libdir` (below `prefix` if
    /// relative), written to the same paths below `destdir`.
    pub fn new(prefix: &Path, destdir: Option<&Path>, libdir: &Path) -> Result<Self> {
        let prefix = std::path::absolute(prefix).context("a prefix is needed")?;
        Ok(Self {
            libdir: prefix.join(libdir),
            destdir: destdir.map(std::path::absolute).transpose()?,
            record: Record::read(&prefix.join(RECORD))?,
            prefix,
        })
    }

    /// Installs everything; `stage` holds the finished shared library.
    pub fn install(&mut self, stage: &Path) -> Result<()> {
        let root = workspace::root();
        for library in &LIBRARIES {
            self.install_library(library, stage)?;
        }

        let man = self.destination(&self.prefix.join("share/man"));
        for page in files(&root.join("man"))? {
            let section = page.extension().unwrap_or_default().to_string_lossy();
            let name = page.file_name().unwrap_or_default();
            let to = man.join(format!("man{section}")).join(name);
            // Not every reader of a page by its path follows a link within it.
            match man::link(&fs::read_to_string(&page)?) {
                Some(other) => self.record.link(&format!("{other}.{section}"), &to)?,
                None => self.record.copy(&page, &to, 0o644)?,
            }
        }

        let doc = self.destination(&self.prefix.join("share/doc/librdmacm"));
        for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
            self.record.copy(&root.join(name), &doc.join(name), 0o644)?;
        }
        for page in files(&root.join("docs"))? {
            let name = page.file_name().unwrap_or_default();
            self.record
                .copy(&page, &doc.join("docs").join(name), 0o644)?;
        }
        Ok(())
    }

    /// Installs a library with all that programs need to be compiled with it.
    fn install_library(&mut self, library: &Library, stage: &Path) -> Result<()> {
        let root = workspace::root();
        let name = library.name;
        let manifest = Manifest::read(&root.join(library.crate_folder), &root)?;

        let libdir = self.destination(&self.libdir);
        let (soname, file) = (
            format!("{name}.so.1"),
            format!("{name}.so.{}", manifest.version),
        );
        let record = &mut self.record;
        record.copy(&stage.join(&soname), &libdir.join(&file), 0o755)?;
        record.link(&file, &libdir.join(&soname))?;
        record.link(&soname, &libdir.join(format!("{name}.so")))?;
        let archive = format!("{name}.a");
        let built = library::target_directory()?.join("release").join(&archive);
        record.copy(&built, &libdir.join(archive), 0o644)?;

        let pc = format!("{name}.pc");
        let template = fs::read_to_string(root.join(format!("pkgconfig/{pc}.in")))?;
        let text = template
            .replace("@prefix@", &self.prefix.to_string_lossy())
            .replace("@libdir@", &self.libdir.to_string_lossy())
            .replace("@url@", &manifest.url)
            .replace("@version@", &manifest.version);
        record.write(&libdir.join("pkgconfig").join(pc), &text)?;

        let include = self.destination(&self.prefix.join("include"));
        for (crate_folder, header) in headers::of_crates() {
            if crate_folder == library.crate_folder {
                let from = root.join(crate_folder).join("include").join(header);
                self.record.copy(&from, &include.join(header), 0o644)?;
            }
        }
        Ok(())
    }

    /// Installs the preload library, with the names that the original's has.
    fn install_preload(&mut self, stage: &Path) -> Result<()> {
        let to = self.destination(&self.libdir).join(library::PRELOAD);
        self.record
            .copy(&stage.join(library::PRELOAD), &to, 0o755)?;
        for version in ["1", "1.0.0"] {
            let name = to.with_extension(format!("so.{version}"));
            self.record.link("librspreload.so", &name)?;
        }
        Ok(())
    }

    /// Installs the program in `stage`.
    fn install_srp_target(&mut self, stage: &Path) -> Result<()> {
        const NAME: &str = "srp-target";
        let bin = self.destination(&self.prefix.join("bin"));
        self.record.copy(&stage.join(NAME), &bin.join(NAME), 0o755)
    }

    /// Keeps what was installed for [`uninstall`]; not in a package.
    pub fn keep_record(&mut self) -> Result<()> {
        if self.destdir.is_some() {
            return Ok(());
        }
        self.record.keep(&self.prefix.join(RECORD))
    }

    /// Where `path` is written to.
    pub fn destination(&self, path: &Path) -> PathBuf {
        match &self.destdir {
            Some(destdir) => destdir.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_path_buf(),
        }
    }
}

/// What the package's manifest says about the C library.
struct Manifest {
    version: String,
    url: String,
}

impl Manifest {
    /// Reads it from the manifest of a crate and that of the workspace.
    fn read(of_crate: &Path, root: &Path) -> Result<Self> {
        let table = |folder: &Path| -> Result<toml::Table> {
            let path = folder.join("Cargo.toml");
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.parse()?)
        };
        let (own, workspace) = (table(of_crate)?, table(root)?);
        let string = |manifest: &toml::Table, keys: &[&str]| {
            let (last, tables) = keys.split_last()?;
            tables
                .iter()
                .try_fold(manifest, |table, key| table.get(*key)?.as_table())?
                .get(*last)?
                .as_str()
                .map(str::to_owned)
        };
        Ok(Self {
            version: string(&own, &["package", "metadata", "capi", "library", "version"])
                .context("Cargo.toml does not name the version of the C library")?,
            url: string(&workspace, &["workspace", "package", "repository"])
                .context("Cargo.toml does not name the repository")?,
        })
    }
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_goes_before_absolute_paths_only_when_writing() {
        let tree = Tree::new(
            Path::new("/usr"),
            Some(Path::new("/tmp/root")),
            Path::new("lib/x86_64-linux-gnu"),
        )
        .unwrap();
        assert_eq!(tree.libdir, Path::new("/usr/lib/x86_64-linux-gnu"));
        assert_eq!(
            tree.destination(&tree.libdir),
            Path::new("/tmp/root/usr/lib/x86_64-linux-gnu")
        );
    }

    #[test]
    fn the_version_satisfies_what_programs_require() {
        let manifest = {
            let root = workspace::root();
            Manifest::read(&root, &root).unwrap()
        };
        let numbers: Vec<u32> = manifest
            .version
            .split('.')
            .map(|number| number.parse().unwrap())
            .collect();
        assert!(numbers >= vec![1, 3, 44], "{}", manifest.version);
    }
}
