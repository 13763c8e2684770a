//! Our target program, `srp-target`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::initiator::Address;
use super::sh;
use crate::guest::program::{self, Running};
use crate::library::Library;

const PORT: u16 = 5555;

/// How to start it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program's file.
    pub file: PathBuf,
    /// The address to listen on.
    pub ip: String,
    /// Words in front: a tool that runs it.
    pub under: Vec<String>,
}

/// A running target; killed when dropped.
pub struct Target {
    running: Running,
    address: Address,
}

impl Program {
    /// Starts it with options, and waits until it listens.
    pub fn start(&self, options: &str) -> Result<Target> {
        let file = self.file.to_string_lossy();
        let portal = format!("{}:{PORT}", self.ip);
        let mut words: Vec<&str> = self.under.iter().map(String::as_str).collect();
        words.extend([&file, "--portal", &portal]);
        words.extend(options.split_whitespace());
        let mut running = program::start(&words, &Library::Original)?;
        running.wait_until("listened", |program| {
            Ok(program.output().contains("listening: "))
        })?;
        let address = announced(&running.output(), portal)?;
        Ok(Target { running, address })
    }

    /// Runs it with options that make it end at once; its words come back.
    pub fn refuse(&self, options: &str) -> Result<String> {
        let output = Command::new(&self.file)
            .args(options.split_whitespace())
            .output()?;
        ensure!(!output.status.success(), "it started");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Where to find a target at `portal`, by what it has `said`.
pub fn announced(said: &str, portal: String) -> Result<Address> {
    let value = |key: &str| {
        let rest = said.split_once(key)?.1;
        Some(rest.split([',', '\n']).next()?.to_owned())
    };
    let ids = value("id_ext=").zip(value("ioc_guid="));
    Ok(Address {
        ids: ids.context("srp-target names no target port")?,
        portal,
    })
}

impl Target {
    /// Where an initiator finds it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        self.running.output()
    }

    /// Waits until it has printed this text so many times.
    pub fn wait_output(&mut self, text: &str, times: usize) -> Result<()> {
        self.running
            .wait_until(&format!("said `{text}`"), |program| {
                Ok(program.output().matches(text).count() >= times)
            })
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.running.wait_for(Duration::ZERO)?.is_none())
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) -> Result<()> {
        sh(&format!("kill -{name} {}", self.pid()))?;
        Ok(())
    }

    /// Ends it with SIGKILL, and waits for its end.
    pub fn kill(mut self) -> Result<()> {
        self.signal("KILL")?;
        self.running.wait()?;
        Ok(())
    }

    /// Ends it with SIGTERM, and demands that it ends well.
    pub fn stop(mut self) -> Result<String> {
        self.signal("TERM")?;
        self.running.wait_success()?;
        Ok(self.running.output())
    }

    /// Its resident memory in KiB.
    pub fn resident(&self) -> Result<u64> {
        let status = super::read(format!("/proc/{}/status", self.pid()))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .context("no VmRSS")
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        super::names(format!("/proc/{}/fd", self.pid())).len()
    }
}

/// Makes a sparse file of so many MiB, filled with zeros.
pub fn image(path: &Path, mebibytes: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.set_len(mebibytes << 20)?;
    Ok(())
}
