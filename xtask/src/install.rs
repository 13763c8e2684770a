//! `cargo xtask install`: what a distribution's library and development
//! package hold: the shared library with its links, the static library, the
//! headers, the same of libsrpt, the preload library, the files for pkg-config,
//! srp-target, manual pages and licences.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{headers, library, workspace};

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
        let tree = Tree::new(&self.prefix, self.destdir.as_deref(), &self.libdir)?;
        tree.install(&library::stage_srpt()?)?;
        tree.install_preload(&library::stage_preload()?)?;
        tree.install_srp_target(&library::stage_srp_target()?)?;
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

/// Where an installation goes.
pub struct Tree {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
    libdir: PathBuf,
}

impl Tree {
    /// A tree for `prefix` with its libraries in `libdir` (below `prefix` if
    /// relative), written to the same paths below `destdir`.
    pub fn new(prefix: &Path, destdir: Option<&Path>, libdir: &Path) -> Result<Self> {
        let prefix = std::path::absolute(prefix).context("a prefix is needed")?;
        Ok(Self {
            libdir: prefix.join(libdir),
            destdir: destdir.map(std::path::absolute).transpose()?,
            prefix,
        })
    }

    /// Installs everything; `stage` holds the finished shared library.
    pub fn install(&self, stage: &Path) -> Result<()> {
        let root = workspace::root();
        for library in &LIBRARIES {
            self.install_library(library, stage)?;
        }

        let man = self.destination(&self.prefix.join("share/man"));
        for page in files(&root.join("man"))? {
            let section = page.extension().unwrap_or_default().to_string_lossy();
            let name = page.file_name().unwrap_or_default();
            copy(&page, &man.join(format!("man{section}")).join(name), 0o644)?;
        }

        let doc = self.destination(&self.prefix.join("share/doc/librdmacm"));
        for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
            copy(&root.join(name), &doc.join(name), 0o644)?;
        }
        Ok(())
    }

    /// Installs a library with all that programs need to be compiled with it.
    fn install_library(&self, library: &Library, stage: &Path) -> Result<()> {
        let root = workspace::root();
        let name = library.name;
        let manifest = Manifest::read(&root.join(library.crate_folder), &root)?;

        let libdir = self.destination(&self.libdir);
        let (soname, file) = (
            format!("{name}.so.1"),
            format!("{name}.so.{}", manifest.version),
        );
        copy(&stage.join(&soname), &libdir.join(&file), 0o755)?;
        link(&file, &libdir.join(&soname))?;
        link(&soname, &libdir.join(format!("{name}.so")))?;
        let archive = format!("{name}.a");
        let built = library::target_directory()?.join("release").join(&archive);
        copy(&built, &libdir.join(archive), 0o644)?;

        let pc = format!("{name}.pc");
        let template = fs::read_to_string(root.join(format!("pkgconfig/{pc}.in")))?;
        let text = template
            .replace("@prefix@", &self.prefix.to_string_lossy())
            .replace("@libdir@", &self.libdir.to_string_lossy())
            .replace("@url@", &manifest.url)
            .replace("@version@", &manifest.version);
        write(&libdir.join("pkgconfig").join(pc), &text)?;

        let include = self.destination(&self.prefix.join("include"));
        for (crate_folder, header) in headers::of_crates() {
            if crate_folder == library.crate_folder {
                let from = root.join(crate_folder).join("include").join(header);
                copy(&from, &include.join(header), 0o644)?;
            }
        }
        Ok(())
    }

    /// Installs the preload library, with the names that the original's has.
    fn install_preload(&self, stage: &Path) -> Result<()> {
        let to = self.destination(&self.libdir).join(library::PRELOAD);
        copy(&stage.join(library::PRELOAD), &to, 0o755)?;
        for version in ["1", "1.0.0"] {
            let name = to.with_extension(format!("so.{version}"));
            link("librspreload.so", &name)?;
        }
        Ok(())
    }

    /// Installs the program in `stage`.
    fn install_srp_target(&self, stage: &Path) -> Result<()> {
        const NAME: &str = "srp-target";
        let bin = self.destination(&self.prefix.join("bin"));
        copy(&stage.join(NAME), &bin.join(NAME), 0o755)
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

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    replace(to)?;
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn write(to: &Path, text: &str) -> Result<()> {
    replace(to)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

fn link(target: &str, to: &Path) -> Result<()> {
    replace(to)?;
    symlink(target, to).with_context(|| format!("cannot link {}", to.display()))
}

/// Makes room for `path`. An older file is removed, not overwritten: a running
/// program may have it mapped.
fn replace(path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        workspace::create(parent.to_path_buf())?;
    }
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    Ok(())
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
