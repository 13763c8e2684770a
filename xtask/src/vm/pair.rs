//! Two test machines on a link, running the same command. Each line of output
//! says which machine it comes from.

use std::fs;
use std::io::{self, Write};
use std::thread;

use anyhow::{Result, anyhow};

use super::machine::{self, Job, Link};
use crate::workspace;

/// Runs the job that `job` makes for each end of the link; the exit status is
/// the first that is not 0.
pub fn run<'a>(job: impl Fn(Option<Link>) -> Job<'a>) -> Result<u8> {
    // Not below target/: the path of a socket may have 107 bytes only.
    let name = format!("xtask-link-{}", std::process::id());
    let folder = workspace::create(std::env::temp_dir().join(name))?;
    let jobs = [1, 2].map(|host| {
        let folder = folder.clone();
        job(Some(Link { host, folder }))
    });
    let results = thread::scope(|scope| {
        let runs = jobs.each_ref().map(|job| {
            scope.spawn(move || {
                let host = job.link.as_ref().map_or(0, |link| link.host);
                machine::run(job, &mut Labelled::new(host))
            })
        });
        runs.map(|run| {
            run.join()
                .unwrap_or_else(|_| Err(anyhow!("the thread that ran the machine panicked")))
        })
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
struct Labelled {
    host: u8,
    line: Vec<u8>,
}

impl Labelled {
    fn new(host: u8) -> Self {
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
