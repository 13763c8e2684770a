//! Where work that needs an RDMA device happens: in the test machine, or on
//! this machine's own device. Either way it is this program's `guest`
//! subcommand that does it, and what it prints comes back live.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::vm::kernel::{self, Kernel, Release};
use crate::vm::machine::{self, Job, Link};
use crate::vm::pair::{self, Sink};
use crate::vm::roots;
use crate::{process, workspace};

/// The options that `demo` and `test` share.
#[derive(clap::Args)]
pub struct Options {
    /// Use this machine's own RDMA device instead of a virtual machine
    #[arg(long, conflicts_with_all = ["kernel", "root"])]
    host: bool,
    /// Kernel of the virtual machine (6.1 unless given)
    #[arg(long, value_enum)]
    kernel: Option<Release>,
    /// Root file system of the virtual machine: a folder, or a name given to
    /// `cargo xtask root`
    #[arg(long, value_name = "DIR|NAME")]
    root: Option<PathBuf>,
}

/// A place to work in, and the program that works there.
pub struct Place {
    kind: Kind,
    driver: Driver,
}

enum Kind {
    /// A virtual machine.
    Vm {
        kernel: Kernel,
        root: Option<PathBuf>,
    },
    /// This machine, with the `RDMACM_TEST_*` variables.
    Host { env: Vec<(String, String)> },
}

/// A copy of this program: its own file may be replaced while it runs, by the
/// very builds that it starts, and may lie where another root does not see it.
struct Driver(PathBuf);

impl Driver {
    fn new() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let copy = workspace::target("vm/driver")?.join(name);
        fs::copy("/proc/self/exe", &copy).context("cannot copy this program's own file")?;
        Ok(Self(copy))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Fails only when somebody removed it already.
        let _ = fs::remove_file(&self.0);
    }
}

impl Options {
    /// The kernel that was asked for.
    pub fn kernel(&self) -> Option<Release> {
        self.kernel
    }

    /// Whether any of them is given.
    pub fn chosen(&self) -> bool {
        self.host || self.kernel.is_some() || self.root.is_some()
    }

    /// Makes the place ready: fetches the kernel, or finds the device.
    pub fn place(&self) -> Result<Place> {
        if self.host {
            return Ok(Place {
                kind: Kind::Host { env: own_device()? },
                driver: Driver::new()?,
            });
        }
        Place::machine(
            self.kernel.unwrap_or(Release::V6_1),
            self.root.as_deref().map(roots::find).transpose()?,
        )
    }
}

impl Place {
    /// A virtual machine with this kernel, fetched if need be, and this root
    /// (the machine's own without).
    pub fn machine(kernel: Release, root: Option<PathBuf>) -> Result<Self> {
        Ok(Self {
            kind: Kind::Vm {
                kernel: kernel::get(kernel)?,
                root,
            },
            driver: Driver::new()?,
        })
    }

    /// Runs `xtask guest ARGUMENTS` there and returns its exit status.
    pub fn run(
        &self,
        arguments: &[impl AsRef<str>],
        limit: Duration,
        sink: &mut dyn Write,
    ) -> Result<u8> {
        self.run_sharing(&[], arguments, limit, sink)
    }

    /// As [`Place::run`], with folders of this machine that it may write to.
    pub fn run_sharing(
        &self,
        folders: &[PathBuf],
        arguments: &[impl AsRef<str>],
        limit: Duration,
        sink: &mut dyn Write,
    ) -> Result<u8> {
        match &self.kind {
            Kind::Vm { kernel, root } => {
                let mut job = self.job(kernel, root.as_deref(), arguments, limit, None);
                job.shares = folders.to_vec();
                machine::run(&job, sink)
            }
            Kind::Host { env } => {
                let mut command = Command::new(&self.driver.0);
                command
                    .arg("guest")
                    .args(arguments.iter().map(AsRef::as_ref))
                    .envs(env.iter().cloned())
                    .env("CARGO_MANIFEST_DIR", manifest());
                here(&mut command, sink)
            }
        }
    }

    /// Runs `xtask guest ARGUMENTS` on two linked machines, with a sink for the
    /// output of each; `None` where there is one machine only.
    pub fn run_pair(
        &self,
        arguments: &[impl AsRef<str>],
        limit: Duration,
        sinks: [Sink<'_>; 2],
    ) -> Result<Option<u8>> {
        let Kind::Vm { kernel, root } = &self.kind else {
            return Ok(None);
        };
        let job = |link| self.job(kernel, root.as_deref(), arguments, limit, link);
        pair::run(job, sinks).map(Some)
    }

    fn job<'a>(
        &self,
        kernel: &'a Kernel,
        root: Option<&Path>,
        arguments: &[impl AsRef<str>],
        limit: Duration,
        link: Option<Link>,
    ) -> Job<'a> {
        let mut command = vec![self.driver.0.to_string_lossy().into_owned()];
        command.push("guest".to_owned());
        command.extend(arguments.iter().map(|word| word.as_ref().to_owned()));
        Job {
            kernel,
            root: root.map(Path::to_path_buf),
            shares: Vec::new(),
            env: vec![("CARGO_MANIFEST_DIR".to_owned(), manifest())],
            directory: workspace::root(),
            command,
            timeout: limit,
            link,
        }
    }

    /// One line on what it is.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Vm { kernel, root } => format!(
                "virtual machine, Linux {}, root {}",
                kernel.version,
                root.as_ref()
                    .map_or("/".into(), |root| root.display().to_string())
            ),
            Kind::Host { env } => {
                let words: Vec<_> = env.iter().map(|(_, value)| value.as_str()).collect();
                format!("this machine's own device: {}", words.join(" "))
            }
        }
    }
}

fn manifest() -> String {
    workspace::root().join("xtask").display().to_string()
}

fn here(command: &mut Command, sink: &mut dyn Write) -> Result<u8> {
    let shown = process::show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let Some(mut pipe) = child.stdout.take() {
        let mut buffer = [0; 4096];
        while let count @ 1.. = pipe.read(&mut buffer)? {
            sink.write_all(&buffer[..count])?;
            sink.flush()?;
        }
    }
    let status = child.wait()?;
    Ok(status
        .code()
        .and_then(|code| code.try_into().ok())
        .unwrap_or(1))
}

/// The first RDMA device of this machine whose interface has an IPv4 address.
fn own_device() -> Result<Vec<(String, String)>> {
    let links = process::output(Command::new("rdma").args(["link", "show"]))
        .context("this machine has no RDMA devices; run without --host")?;
    for line in links.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let after = |key: &str| {
            let index = words.iter().position(|word| *word == key)?;
            words.get(index + 1).copied()
        };
        let (Some(port), Some(netdev)) = (after("link"), after("netdev")) else {
            continue;
        };
        let device = port.split('/').next().unwrap_or(port);
        let Some(ip) = address(netdev, "-4")? else {
            continue;
        };
        let mut env = vec![
            ("RDMACM_TEST_DEV".to_owned(), device.to_owned()),
            ("RDMACM_TEST_NETDEV".to_owned(), netdev.to_owned()),
            ("RDMACM_TEST_IP".to_owned(), ip),
        ];
        if let Some(ip6) = address(netdev, "-6")? {
            env.push(("RDMACM_TEST_IP6".to_owned(), ip6));
        }
        return Ok(env);
    }
    bail!(
        "this machine has no RDMA device on an interface with an IPv4 address; run without --host"
    )
}

fn address(netdev: &str, family: &str) -> Result<Option<String>> {
    let listing = process::output(Command::new("ip").args([
        family, "-o", "addr", "show", "dev", netdev, "scope", "global",
    ]))?;
    Ok(listing
        .split_whitespace()
        .skip_while(|word| !word.starts_with("inet"))
        .nth(1)
        .and_then(|address| address.split('/').next())
        .map(str::to_owned))
}
