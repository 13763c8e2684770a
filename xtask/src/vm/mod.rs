//! `cargo xtask vm`: runs a command in a virtual machine that boots a
//! distribution kernel, has a soft-RoCE device and sees this machine's files.
//!
//! The root is the machine's own (or `--root`), read-only under a throw-away
//! overlay; what the command writes is lost unless it goes to a `--share`.
//! Its environment names the test set-up:
//!
//! | variable | meaning |
//! |---|---|
//! | `RDMACM_TEST_DEV`, `RDMACM_TEST_NETDEV` | the RDMA device and the interface below it |
//! | `RDMACM_TEST_IP`, `RDMACM_TEST_IP6` | its addresses |
//! | `RDMACM_TEST_PEER_IP` | a neighbour that answers ARP but no RDMA; with `--hosts 2` the other machine |
//! | `RDMACM_TEST_HOST` | with `--hosts 2`: 1 or 2 |

mod accelerator;
pub mod apt;
mod initramfs;
pub mod kernel;
pub mod machine;
pub mod pair;
pub mod roots;

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use kernel::Release;
use machine::Job;
use pair::Labelled;

/// The command line of `cargo xtask vm`.
#[derive(clap::Args)]
pub struct Args {
    /// Kernel to boot
    #[arg(long, value_enum, default_value_t = Release::V6_1)]
    kernel: Release,
    /// Root file system to use instead of the machine's own: a folder, or a
    /// name given to `cargo xtask root`
    #[arg(long, value_name = "DIR|NAME")]
    root: Option<PathBuf>,
    /// Longest time the whole run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Environment variable for the command
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    env: Vec<(String, String)>,
    /// Folder that the command may write, at the same path
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// Machines to run the command on; 2 are linked, and the command knows
    /// which it is on by RDMACM_TEST_HOST (1 or 2)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    hosts: u8,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Args {
    /// Runs the command; its exit status becomes ours.
    pub fn run(self) -> Result<ExitCode> {
        let kernel = kernel::get(self.kernel)?;
        let root = self.root.as_deref().map(roots::find).transpose()?;
        let shares: Vec<_> = self
            .share
            .iter()
            .map(|dir| {
                fs::canonicalize(dir).with_context(|| format!("no folder {}", dir.display()))
            })
            .collect::<Result<_>>()?;
        let directory = env::current_dir()?;
        let job = |link| Job {
            kernel: &kernel,
            root: root.clone(),
            shares: shares.clone(),
            env: self.env.clone(),
            directory: directory.clone(),
            command: self.command.clone(),
            timeout: Duration::from_secs(self.timeout),
            link,
        };
        let status = match self.hosts {
            1 => machine::run(&job(None), &mut io::stdout())?,
            _ => pair::run(job, [&mut Labelled::new(1), &mut Labelled::new(2)])?,
        };
        Ok(ExitCode::from(status))
    }
}

fn name_and_value(argument: &str) -> Result<(String, String), String> {
    match argument.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
