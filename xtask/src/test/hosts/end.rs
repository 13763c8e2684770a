//! One end of a connection or a member of a group, on either machine: the
//! program `programs/across.c`, told its steps one by one.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::remote::{Remote, There};
use crate::guest::Bench;
use crate::guest::program::{self, LOOK_AGAIN, Running};
use crate::library::Library;

/// The longest a step may take; the program itself gives up a little earlier.
const LIMIT: Duration = Duration::from_secs(270);

enum Program<'a> {
    Here(Running),
    There(There<'a>, &'a Remote),
}

/// The program, told its steps.
pub struct End<'a> {
    program: Program<'a>,
    commands: PathBuf,
    answered: usize,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// An event, `completion`, `errno`, or `nothing` when it never ended.
    pub end: String,
    /// The event's or completion's status, or the errno.
    pub status: i32,
    /// How long it took.
    pub time: Duration,
}

impl Answer {
    /// Reads a line of the program; `None` for one that is no answer.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let [_, end, status, milliseconds] = words[..] else {
            return None;
        };
        Some(Self {
            end: end.to_owned(),
            status: status.parse().ok()?,
            time: Duration::from_millis(milliseconds.parse().ok()?),
        })
    }

    /// Demands this end with this status within this time.
    pub fn demand(&self, end: &str, status: i32, within: Duration) -> Result<()> {
        ensure!(
            self.end == end && self.status == status,
            "{} with {} instead of {end} with {status}",
            self.end,
            self.status
        );
        ensure!(self.time <= within, "{end} after {:?}", self.time);
        Ok(())
    }
}

impl<'a> End<'a> {
    /// Starts the program on this machine.
    pub fn here(bench: &Bench, library: &Library, port: u16) -> Result<Self> {
        let commands = commands(port, library);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &commands, FileType::Fifo, mode, 0).context("cannot make a FIFO")?;
        let words = words(bench, &commands, port);
        let words: Vec<_> = words.split(' ').collect();
        Ok(Self {
            program: Program::Here(program::start_with(&words, library, &LOG)?),
            commands,
            answered: 0,
        })
    }

    /// Starts the program on the other machine.
    pub fn there(remote: &'a Remote, bench: &Bench, library: &Library, port: u16) -> Result<Self> {
        let commands = commands(port, library);
        remote.shell(&format!("mkfifo {}", commands.display()))?;
        let program = remote.start(&words(bench, &commands, port), library)?;
        Ok(Self {
            program: Program::There(program, remote),
            commands,
            answered: 0,
        })
    }

    /// A server on the other machine that does this with requests: `listen`
    /// accepts, `ignore` does not.
    pub fn server(
        remote: &'a Remote,
        bench: &Bench,
        library: &Library,
        port: u16,
        command: &str,
    ) -> Result<Self> {
        let server = Self::there(remote, bench, library, port)?;
        server.tell(&format!("{command} {}", crate::guest::variable(PEER_IP)?))?;
        if let Program::There(program, _) = &server.program {
            program.wait_listening()?;
        }
        Ok(server)
    }

    /// Tells it a step, without waiting for the end of that.
    pub fn tell(&self, command: &str) -> Result<()> {
        match &self.program {
            Program::Here(_) => fs::write(&self.commands, format!("{command}\n"))
                .with_context(|| format!("cannot tell {command}")),
            Program::There(_, remote) => {
                remote.shell(&format!("echo {command} >{}", self.commands.display()))
            }
        }
    }

    /// How the next step ended that it was told.
    pub fn answer(&mut self) -> Result<Answer> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let output = self.output()?;
            let complete = output.rfind('\n').map_or("", |end| &output[..end]);
            let answer = complete
                .lines()
                .filter_map(Answer::parse)
                .nth(self.answered);
            if let Some(answer) = answer {
                self.answered += 1;
                return Ok(answer);
            }
            if let Program::Here(running) = &mut self.program
                && let Some(status) = running.wait_for(Duration::ZERO)?
            {
                bail!("across ended with {status}: {}", running.said());
            }
            ensure!(Instant::now() < deadline, "no answer; it said: {output}");
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// All that it has printed.
    pub fn output(&self) -> Result<String> {
        match &self.program {
            Program::Here(running) => Ok(running.output()),
            Program::There(program, _) => program.output(),
        }
    }

    /// Tells it a step and waits for the end of that.
    pub fn step(&mut self, command: &str) -> Result<Answer> {
        self.tell(command)?;
        self.answer()
    }

    /// Tells it a step that must end so.
    pub fn must(&mut self, command: &str, end: &str) -> Result<()> {
        self.step(command)?
            .demand(end, 0, LIMIT)
            .with_context(|| command.to_owned())
    }

    /// Resolves the other machine's address and the route there.
    pub fn resolve(&mut self) -> Result<()> {
        let ip = crate::guest::variable(PEER_IP)?;
        self.must(&format!("resolve {ip} 5000"), "ADDR_RESOLVED")?;
        self.must("route 5000", "ROUTE_RESOLVED")
    }

    /// Connects to the server on the other machine, with so many retries of the
    /// queue pair, and sends it a message.
    pub fn connect(&mut self, retries: u8) -> Result<()> {
        self.resolve()?;
        self.must(&format!("connect {retries}"), "ESTABLISHED")?;
        self.must("send", "completion")
    }
}

/// So that a failure comes with what our library says about it.
const LOG: [(&str, &str); 1] = [("RDMACM_LOG", "info")];

/// The other machine's address.
pub const PEER_IP: &str = "RDMACM_TEST_PEER_IP";

fn commands(port: u16, library: &Library) -> PathBuf {
    std::env::temp_dir().join(format!("across-{port}-{}", library.name()))
}

fn words(bench: &Bench, commands: &std::path::Path, port: u16) -> String {
    let program = bench.programs.join("across");
    format!("{} {} {port}", program.display(), commands.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_other_lines() {
        let answer = Answer::parse("resolve ADDR_ERROR -110 2013").unwrap();
        let within = Duration::from_secs(3);
        assert!(answer.demand("ADDR_ERROR", -110, within).is_ok());
        assert!(answer.demand("ADDR_ERROR", -1, within).is_err());
        assert!(answer.demand("ADDR_RESOLVED", -110, within).is_err());
        let short = Duration::from_secs(2);
        assert!(answer.demand("ADDR_ERROR", -110, short).is_err());
        assert_eq!(Answer::parse("event RDMA_CM_EVENT_ESTABLISHED 0"), None);
        assert_eq!(Answer::parse("rdmacm[7] WARN id 3"), None);
    }
}
