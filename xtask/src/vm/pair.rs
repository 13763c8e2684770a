//! Two test machines on a link, running the same command.

use std::fs;
use std::io::{self, Write};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, anyhow};

use super::machine::{self, Job, Link};
use crate::workspace;

/// Where one machine's output goes.
pub type Sink<'a> = &'a mut (dyn Write + Send);

/// Runs the job that `job` makes for each end of the link, with one sink for
/// each; the exit status is the first that is not 0.
pub fn run<'a>(job: impl Fn(Option<Link>) -> Job<'a>, sinks: [Sink<'_>; 2]) -> Result<u8> {
    // Not below target/: the path of a socket may have 107 bytes only.
    let name = format!("xtask-link-{}", std::process::id());
    let folder = workspace::create(std::env::temp_dir().join(name))?;
    let jobs = [1, 2].map(|host| {
        let folder = folder.clone();
        job(Some(Link { host, folder }))
    });
    let results = thread::scope(|scope| {
        let runs: Vec<_> = jobs
            .iter()
            .zip(sinks)
            .map(|(job, sink)| scope.spawn(move || machine::run(job, sink)))
            .collect();
        let join = |run: ScopedJoinHandle<'_, Result<u8>>| {
            run.join()
                .unwrap_or_else(|_| Err(anyhow!("the thread that ran the machine panicked")))
        };
        runs.into_iter().map(join).collect::<Vec<_>>()
    });
    // Sockets and notes of a link that no longer exists.
    let _ = fs::remove_dir_all(&folder);
    let mut status = 0;
    for result in results {
        let this = result?;
        if status == 0 {
            status = this;
        }
    }
    Ok(status)
}

/// Writes whole lines to standard output, each after the machine's number.
pub struct Labelled {
    host: u8,
    line: Vec<u8>,
}

impl Labelled {
    /// For the machine with this number.
    pub fn new(host: u8) -> Self {
        Self {
            host,
            line: Vec::new(),
        }
    }
}

impl Write for Labelled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.line.push(byte);
            if byte == b'\n' {
                let mut out = io::stdout().lock();
                write!(out, "{}: ", self.host)?;
                out.write_all(&self.line)?;
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
